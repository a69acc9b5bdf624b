"""Uses of LDS slots: data that are read once too often, and data that are never read.

Races are decided by order alone. A wrong slot may be in perfect order: the bytes were written, by an earlier use, and
everybody passed a barrier since. Two things give it away.

* A *stale read*: an instruction of one wave reads bytes that it has read before, although, visibly to it, an
  instruction that feeds it has written again in between. (A tile that stays in LDS for the whole loop is read again and
  again too, but what feeds its reads writes once.)
* A *lost write*: bytes that others could see are overwritten, or left at the end, without ever having been read, while
  behind them some instruction read bytes that its wave had read before and that are older by a barrier; or every
  execution of a write is lost; or a part is left at the end where such a write, or that place, was read whole before.
  What is merely left over, such as a copy ahead of the last step, is none; nor is one value for all bytes, which fills.
  (A table that a gather reads in part is written once, and its place was not read before.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from amdwarp.emulator.memory import Array
from amdwarp.sanitizer.order import APART, WRITE, Records

#: Reads of old bytes that are remembered of one instruction.
_KEPT = 4


@dataclass(frozen=True, slots=True)
class Clash:
    """A fault between two operations on LDS.

    Attributes:
        kind: see `amdwarp.sanitizer.report.KINDS`.
        earlier: record of the earlier operation, or `NO_WRITE`.
        later: index of the later instruction, or -1 for the end of the workgroup.
        waves: waves of the later operation.
        low, high: bytes [low, high) concerned.
    """

    kind: str
    earlier: int
    later: int
    waves: frozenset[int]
    low: int
    high: int

    def joined(self, other: Clash) -> Clash:
        """This fault and another of the same instructions as one."""
        waves = self.waves | other.waves
        return replace(self, waves=waves, low=min(self.low, other.low), high=max(self.high, other.high))


@dataclass(frozen=True, slots=True)
class Old:
    """A read of bytes that its waves have read before.

    Attributes:
        writer: record that wrote the youngest of them.
        before: record that read them last.
        read: the record that reads them now.
        mixed: it reads them together with others, written since they were read; else it reads no others.
    """

    writer: int
    before: int
    read: int
    mixed: bool


@dataclass(frozen=True, slots=True)
class Left:
    """What is left unread of a write at the end.

    Attributes:
        clash: the fault it would be.
        whole: nothing of the write was read.
        known: earlier contents of the place were.
    """

    clash: Clash
    whole: bool
    known: bool


@dataclass(slots=True)
class _Reread:
    """An instruction that read the same write twice: an example, and what wrote in between."""

    clash: Clash
    between: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Fate:
    """What became of the bytes of a write instruction.

    Attributes:
        read: some were read before they were overwritten.
        clashes: examples of lost ones, youngest last.
    """

    read: bool = False
    clashes: list[Clash] = field(default_factory=list)


class SlotWatch:
    """Collects the signs during a workgroup; `finish` weighs them."""

    def __init__(self, records: Records, report: Callable[[Clash], None]) -> None:
        self.records, self.report = records, report
        self.reset()

    def reset(self) -> None:
        """Forget everything, for the next workgroup."""
        self._rereads: dict[tuple[int, int], _Reread] = {}
        self._fates: dict[int, _Fate] = {}
        self._old: dict[int, list[Old]] = {}
        self._barriers: list[int] = []

    def barrier(self) -> None:
        """Waves have passed a barrier."""
        if not self._barriers or self._barriers[-1] != self.records.count:
            self._barriers.append(self.records.count)

    def read_old(self, old: Old) -> None:
        """Some instruction reads bytes that its waves have read before."""
        kept = self._old.setdefault(int(self.records.inst[old.read]), [])
        kept.append(old)
        del kept[:-_KEPT]

    def read_again(self, writer: int, previous: int, clash: Clash) -> None:
        """Waves of `clash` read what `writer` wrote, as they did at record `previous` with the same instruction."""
        key = (clash.later, int(self.records.inst[writer]))
        known = self._rereads.setdefault(key, _Reread(clash))
        tail = slice(previous + 1, self.records.count)
        bits = np.uint32(sum(1 << wave for wave in clash.waves))
        newer = (self.records.flags[tail] & WRITE != 0) & (self.records.seen[tail] & bits != 0)
        if newer.any():
            known.between.update(np.unique(self.records.inst[tail][newer]).tolist())
            known.clash = known.clash.joined(clash)

    def overwritten(self, last: Array, unread: Array, content: Array, span: Callable[[Array], Clash]) -> None:
        """Pieces whose last writes are the records `last` are overwritten.

        Args:
            unread: pieces nobody has read since.
            content: what they hold, one row a piece.
            span: makes a clash of the pieces marked.
        """
        visible = self.records.seen.take(last) & ~self.records.bits.take(np.maximum(self.records.wave.take(last), 0))
        lost = unread & (visible != 0)
        if not lost.any():
            return
        instructions = self.records.inst.take(last)
        for inst in np.unique(instructions[lost]).tolist():
            fate = self._fates.setdefault(inst, _Fate())
            mine, gone = instructions == inst, lost & (instructions == inst)
            read = bool((mine & ~unread).any())
            fate.read |= read
            if not is_fill(content[gone]):
                fate.clashes.append(span(gone))
                del fate.clashes[_KEPT:-_KEPT]

    def finish(self, left: dict[int, Left]) -> None:
        """The workgroup has ended; `left`: what nobody has read, by record, fills left out."""
        for (later, _), reread in self._rereads.items():
            if reread.between & self._feeders(later):
                self.report(reread.clash)
        for fate in self._fates.values():
            wanted = [clash for clash in fate.clashes if not fate.read or self._was_wanted(clash.earlier)]
            if wanted:
                self.report(wanted[0])
        reported: set[int] = set()
        for record, rest in left.items():
            inst = int(self.records.inst[record])
            if inst not in reported and (self._was_wanted(record) or self._was_whole(record, rest)):
                reported.add(inst)
                self.report(rest.clash)

    def _feeders(self, reader: int) -> set[int]:
        """Instructions whose writes instruction `reader` has read."""
        records = self.records
        own = records.inst[: records.count] == reader
        return set(np.unique(records.source[: records.count][own]).tolist()) - {-1}

    def _was_wanted(self, record: int) -> bool:
        """True if old bytes were read where those of this write, which nobody read, were there."""
        for olds in self._old.values():
            for old in olds:
                if not old.writer < record < old.read:
                    continue
                if old.before < record if old.mixed else self._barrier_between(old.writer, record):
                    return True
        return False

    def _was_whole(self, record: int, rest: Left) -> bool:
        """True if a write of which a part was read was to be read whole."""
        if rest.whole:
            return False
        records, count = self.records, self.records.count
        again = (records.inst[:count] == records.inst[record]) & (records.wave[:count] == records.wave[record])
        return bool(records.flags[record] & APART and rest.known) or int(again.sum()) > 1

    def _barrier_between(self, first: int, second: int) -> bool:
        at = bisect_right(self._barriers, first)
        return at < len(self._barriers) and self._barriers[at] <= second


def is_fill(content: Array) -> bool:
    """True if all the bytes are copies of one word of up to 4 bytes."""
    unit = min(4, content.shape[-1])
    words = content.reshape(-1, unit)
    return bool((words == words[0]).all())
