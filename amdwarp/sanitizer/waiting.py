"""Follows waves that wait for others by polling LDS: what they read, and which changes they come after when they go on.

See `amdwarp.sanitizer.polls` for what a poll is and `amdwarp.sanitizer.signals` for what passes from wave to wave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdwarp.asm import Program, Register
from amdwarp.emulator.bind import bind
from amdwarp.emulator.events import Access, CompletionEvent, InstructionEvent
from amdwarp.emulator.launch import registers_used
from amdwarp.emulator.memory import Array, Fault
from amdwarp.emulator.state import STOP, Batch, Closure, RegisterFile, Scalar, SplitError, Workgroup
from amdwarp.errors import EmulatorError
from amdwarp.sanitizer.effects import DS, Effects
from amdwarp.sanitizer.order import Records
from amdwarp.sanitizer.polls import Poll
from amdwarp.sanitizer.queues import Queues
from amdwarp.sanitizer.signals import MOST, Cell, Cells

#: Instructions that are carried out again at most.
_LONGEST = 1000
#: What has no effect on whether a wait ends.
_NO_EFFECT = ("s_wait", "s_sleep", "s_nop", "s_setprio", "s_delay_alu", "s_clause", "s_monitor_sleep")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A wave when it polls: scalar registers, SCC, mode and the vector registers that the loop writes, by row."""

    scalars: tuple[Scalar, ...]
    scc: Scalar
    mode: int
    rows: dict[int, Array]


@dataclass(frozen=True, slots=True)
class _Read:
    """A poll that a wave has made: address and size of what it read (size 0: of several addresses)."""

    poll: Poll
    cells: list[Cell]
    address: int
    size: int
    snapshot: Snapshot


class Rerun:
    """Carries a polling loop out again, from behind the read, with another value read."""

    def __init__(self, program: Program, effects: Sequence[Effects]) -> None:
        self.program, self.effects = program, effects
        self.vectors, accumulators = registers_used(program)
        self._file = RegisterFile(self.vectors + accumulators, 1, program.wave_size)
        self._closures: dict[int, Closure] = {}

    def snapshot(self, b: Batch, poll: Poll) -> Snapshot:
        """What is needed of a wave that has just issued the read of `poll`."""
        rows = [*range(self.vectors), *range(1024, 1024 + len(self._file.data) - self.vectors)]
        written = [at for at, bit in enumerate(rows) if poll.writes >> bit & 1]
        return Snapshot(tuple(b.s), b.scc, b.mode, {at: b.u[at].copy() for at in written})

    def ends(self, b: Batch, read: _Read, value: bytes) -> bool | None:
        """Whether the wait would have ended with `value` read; None if that cannot be told."""
        target = self.program.instructions[read.poll.read].operands[0]
        if b.n != 1 or not isinstance(target, Register) or 4 * target.count != len(value):
            return None
        clone = self._clone(b, read.snapshot)
        row = target.index + (self.vectors if target.kind == "a" else 0)
        for at, word in enumerate(np.frombuffer(value, np.uint32)):
            np.copyto(clone.u[row + at], word, where=True if clone.mask is None else clone.mask)
        return self._run(clone, read.poll)

    def _clone(self, b: Batch, snapshot: Snapshot) -> Batch:
        self._file.data[:] = b.u
        for at, content in snapshot.rows.items():
            self._file.data[at] = content
        nothing: Any = None
        group = Workgroup(self._file, nothing, nothing, nothing, b.group.lanes)
        clone = Batch(group, 0, 1, list(snapshot.scalars), 0)
        clone.scc, clone.mode = snapshot.scc, snapshot.mode
        return clone

    def _run(self, b: Batch, poll: Poll) -> bool | None:
        at, decided = poll.read + 1, False
        for _ in range(_LONGEST):
            if at not in poll.inside:
                return True
            if self.effects[at].queue:
                return False if decided else None
            inst = self.program.instructions[at]
            decided |= at in poll.branches
            if inst.base.startswith(_NO_EFFECT):
                at += 1
                continue
            try:
                following = self._closure(at)(b)
            except (SplitError, Fault, EmulatorError):
                return None
            if following == STOP:
                return None
            at = at + 1 if following is None else following
        return None

    def _closure(self, at: int) -> Closure:
        if at not in self._closures:
            self._closures[at] = bind(self.program, self.program.instructions[at], self.vectors)
        return self._closures[at]


class Waiting:
    """The polling waves of a launch.

    Args:
        report: called with (record of the first write, index of the poll, wave, first byte, byte behind the last) where
            a poll may come before the first write of what it reads.
    """

    def __init__(
        self,
        program: Program,
        effects: Sequence[Effects],
        polls: Mapping[int, Poll],
        records: Records,
        queues: Queues,
        report: Callable[[int, int, int, int, int], None],
    ) -> None:
        self.polls, self.records, self.queues, self.report = polls, records, queues, report
        self.branches = frozenset(at for poll in polls.values() for at in poll.branches)
        self.rerun = Rerun(program, effects)
        self.cells = Cells(records)
        self.reset()

    def reset(self) -> None:
        """Forget everything, for the next workgroup."""
        self.cells.reset()
        self._reads: dict[int, dict[int, _Read]] = {}

    def changes(self, event: InstructionEvent, access: Access, record: int) -> None:
        """A write or atomic of the LDS queue, of which record `record` is that of the first wave."""
        if access.size not in (4, 8) or not event.serials:
            return
        for wave in range(event.first, event.last):
            row = wave - event.first
            addresses = _addresses(access, row)
            if 0 < len(addresses) <= MOST:
                passed = self._passed(wave, self.queues.records_of(DS, wave))
                plain = access.kind == "write"
                self.cells.issued((event.serials[0], wave), addresses, access.size, record + row, passed, plain)

    def arrived(self, address: int, wave: int, record: int, over: Sequence[int], lds: Array) -> None:
        """A copy of a wave, behind its records `over`, has arrived on a barrier object by itself."""
        self.cells.arrived(address, 8, record, self._passed(wave, over), lds)

    def _passed(self, wave: int, over: Sequence[int]) -> Array:
        """What a wave passes on, `over` included."""
        return np.concatenate((self.records.known_to(wave), np.array(over, np.int64)))

    def complete(self, event: CompletionEvent, lds: Array) -> None:
        """An operation has been carried out."""
        for wave in range(event.first, event.last):
            self.cells.made((event.serial, wave), lds)

    def reads(self, event: InstructionEvent, access: Access) -> bool:
        """A poll; False if what it reads is no cell, so that it is a read like any other."""
        poll = self.polls[event.inst.index]
        found = False
        for wave in range(event.first, event.last):
            addresses = _addresses(access, wave - event.first)
            if not 0 < len(addresses) <= MOST:
                continue
            cells = [cell for address in addresses for cell in self.cells.within(address, address + access.size)]
            if not cells:
                continue
            found = True
            for cell in cells:
                if cell.first and not self.records.seen[cell.first] >> np.uint32(wave) & 1:
                    self.report(cell.first, event.inst.index, wave, cell.address, cell.address + cell.size)
            size = access.size if len(addresses) == 1 else 0
            snapshot = self.rerun.snapshot(event.batch, poll)
            self._reads.setdefault(wave, {})[poll.read] = _Read(poll, cells, addresses[0], size, snapshot)
        return found

    def looks(self, event: InstructionEvent, access: Access) -> None:
        """A read that is no poll, of a barrier object of the hardware: taken for the end of a wait."""
        for wave in range(event.first, event.last):
            for address in _addresses(access, wave - event.first)[:MOST]:
                for cell in self.cells.within(address, address + access.size):
                    if cell.address in self.cells.objects:
                        self.cells.acquire(cell, wave, None)

    def leaves(self, event: InstructionEvent) -> bool:
        """A jump that a poll decides; True if a wave goes on behind a wait."""
        at, left = event.inst.index, False
        for wave in range(event.first, event.last):
            reads = self._reads.get(wave, {})
            for read in [read for read in reads.values() if at in read.poll.branches]:
                if event.next_pc in read.poll.inside:
                    continue
                left = True
                del reads[read.poll.read]
                for cell in read.cells:
                    self.cells.acquire(cell, wave, self._ends(event, read, cell))
        return left

    def _ends(self, event: InstructionEvent, read: _Read, cell: Cell) -> Callable[[bytes], bool | None] | None:
        if not read.size or len(read.cells) > 1 or read.poll.once:
            return None
        now = bytearray(event.batch.group.lds.data[read.address : read.address + read.size].tobytes())
        low, high = max(cell.address, read.address), min(cell.address + cell.size, read.address + read.size)

        def ends(value: bytes) -> bool | None:
            now[low - read.address : high - read.address] = value[low - cell.address : high - cell.address]
            return self.rerun.ends(event.batch, read, bytes(now))

        return ends


def _addresses(access: Access, row: int) -> list[int]:
    """Distinct addresses of one wave, or more than `MOST` of them."""
    on = access.addresses[row] if access.mask is None else access.addresses[row][access.mask[row]]
    found: list[int] = np.unique(on).tolist()
    return found
