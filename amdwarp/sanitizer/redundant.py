"""Waits and barriers that no dependence needs.

A wait is needed if, without it alone, a register would be touched too early on some path, an LDS access would lose its
order in this run, or a store would be passed on unfinished. A barrier is needed if some LDS access had only that
barrier to order it, if waves reach it at different instructions, or if waves of a workgroup share global memory at all.

So each record carries two masks next to `Records.seen`: who would come after the operation if the first wait that
covers it were not there, and who if the first barrier behind it were not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from amdwarp.asm import Program
from amdwarp.emulator.events import Access
from amdwarp.emulator.memory import Array, Buffer, GlobalMemory
from amdwarp.sanitizer.effects import Effects, counter_name
from amdwarp.sanitizer.order import MAX_WAVES, NO_READ, NO_WRITE, Records
from amdwarp.sanitizer.pending import suspects
from amdwarp.sanitizer.report import Redundancy


class Needs:
    """What the accesses of a run needed; lives as long as the launch."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.waits: set[tuple[int, str]] = set()
        self.barriers: set[int] = set()
        self.executed: set[int] = set()
        self.meetings = Meetings()
        self.reset()

    def reset(self) -> None:
        """The next workgroup starts."""
        self.meetings.reset()
        size = len(self.records.seen)
        self.no_wait: Array = np.zeros(size, np.uint32)
        self.no_barrier: Array = np.zeros(size, np.uint32)
        self.wait_of: Array = np.full(size, -1, np.int32)
        self.barrier_of: Array = np.full(size, -1, np.int32)
        for array in (self.no_wait, self.no_barrier):
            array[NO_READ], array[NO_WRITE] = self.records.all, 0
        self._queue_of: dict[int, str] = {}
        self._late: list[int] = []
        self._first: list[int] = []
        self._second: list[int] = []
        self._places: list[tuple[int, ...]] = []

    def issued(self, base: int, end: int) -> None:
        """Records [base, end) were issued."""
        if end > len(self.no_wait):
            grown = len(self.records.seen) - len(self.no_wait)
            self.no_wait, self.no_barrier = (
                np.concatenate((array, np.zeros(grown, np.uint32))) for array in (self.no_wait, self.no_barrier)
            )
            self.wait_of, self.barrier_of = (
                np.concatenate((array, np.full(grown, -1, np.int32))) for array in (self.wait_of, self.barrier_of)
            )
        self.no_wait[base:end] = self.no_barrier[base:end] = self.records.seen[base:end]

    def covered(self, records: Sequence[int], inst: int, queue: str) -> None:
        """Wait `inst` is the first that covers these records."""
        at = np.array(records)
        self.wait_of[at] = inst
        self.no_barrier[at] |= self.records.bits[self.records.wave[at]]
        self._queue_of[inst] = queue
        self._first += records

    def covered_again(self, records: Sequence[int]) -> None:
        """Another wait covers them too."""
        at = np.array(records)
        self.no_wait[at] |= self.records.bits[self.records.wave[at]]
        self._late += records

    def barrier(self, places: Iterable[int]) -> None:
        """A barrier of all waves, reached at these instructions."""
        here = tuple(sorted(set(places)))
        if len(here) > 1:
            # Waves that meet from different instructions: without one of them they would no longer meet.
            self.barriers.update(here)
        if self._late:
            self.no_wait[np.array(self._late)] = self.records.all
            self._late = []
        if self._second:
            at = np.array(self._second)
            other = np.array([self._places[number] != here for number in self.barrier_of[at]])
            self.no_barrier[at[other]] = self.records.all
            self._second = at[~other].tolist()
        if self._first:
            self._places.append(here)
            self.barrier_of[np.array(self._first)] = len(self._places) - 1
            self._second += self._first
            self._first = []

    def used(self, earlier: Array, bit: Array) -> None:
        """Waves of `bit` access LDS behind the records `earlier`: note what they owe their order to."""
        ordered = (self.records.seen.take(earlier) & bit) != 0
        wait = ordered & ((self.no_wait.take(earlier) & bit) == 0)
        if wait.any():
            for inst in np.unique(self.wait_of.take(earlier[wait])).tolist():
                if inst >= 0:
                    self.waits.add((inst, self._queue_of[inst]))
        barrier = ordered & ((self.no_barrier.take(earlier) & bit) == 0)
        if barrier.any():
            for number in np.unique(self.barrier_of.take(earlier[barrier])).tolist():
                if number >= 0:
                    self.barriers.update(self._places[number])


class Meetings:
    """Whether waves of one workgroup have accessed the same global memory, so that barriers may order that.

    Attributes:
        found: they have, and one of them wrote.
    """

    def __init__(self) -> None:
        self.found = False
        self._group = 0
        self._last: dict[int, tuple[Array, Array]] = {}

    def reset(self) -> None:
        """The next workgroup starts."""
        self._group += 1

    def access(self, memory: GlobalMemory, access: Access, first: int) -> None:
        """An access to global memory by waves from `first` on, dword by dword."""
        steps = np.arange((access.size + 3) // 4)
        for row in range(access.addresses.shape[0]):
            on = access.addresses[row] if access.mask is None else access.addresses[row][access.mask[row]]
            me = self._group * MAX_WAVES + first + row
            for buffer in memory.buffers if on.size else ():
                inside = on[(on >= buffer.base) & (on < buffer.end)]
                if inside.size:
                    at = ((inside - np.uint64(buffer.base)).astype(np.int64) >> 2)[:, None] + steps
                    self._touch(buffer, at[at <= buffer.data.nbytes // 4], access.kind == "read", me)

    def _touch(self, buffer: Buffer, at: Array, reads: bool, me: int) -> None:
        if buffer.base not in self._last:
            empty = np.full(buffer.data.nbytes // 4 + 1, -1, np.int32)
            self._last[buffer.base] = (empty, empty.copy())
        written, read = self._last[buffer.base]
        others = [written.take(at)] if reads else [written.take(at), read.take(at)]
        for before in others:
            self.found |= bool(((before != me) & (before // MAX_WAVES == self._group)).any())
        (read if reads else written)[at] = me


def redundancies(program: Program, effects: Sequence[Effects], needs: Needs) -> list[Redundancy]:
    """Waits (by counter) and barriers that were executed and not needed."""
    found: list[Redundancy] = []
    meets = needs.meetings.found
    before = suspects(program, effects)
    for inst in program.instructions:
        if inst.index not in needs.executed:
            continue
        if inst.base == "s_barrier" and inst.index not in needs.barriers and not meets:
            found.append(Redundancy(inst))
        limits = effects[inst.index].waits
        for counter in dict.fromkeys(counter_name(program.target, queue) for queue, _ in limits):
            mine = [queue for queue, _ in limits if counter_name(program.target, queue) == counter]
            if any((inst.index, queue) in needs.waits for queue in mine):
                continue
            left = tuple((queue, count) for queue, count in limits if queue not in mine)
            without = [*effects[: inst.index], replace(effects[inst.index], waits=left), *effects[inst.index + 1 :]]
            if suspects(program, without) == before:
                found.append(Redundancy(inst, counter))
    return found
