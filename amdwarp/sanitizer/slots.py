"""Uses of LDS slots: data that are read once too often, and data that are never read.

Races are decided by order alone. A wrong slot may be in perfect order: the bytes were written, by an earlier use, and
everybody passed a barrier since. Two things give it away.

* A *stale read*: an instruction of one wave reads bytes that it has read before, although, visibly to it, an
  instruction that feeds it has written again in between. (A tile that stays in LDS for the whole loop is read again and
  again too, but what feeds its reads writes once.)
* A *lost write*: bytes that others could see are overwritten, or left at the end, without ever having been read, while
  the rest of the same write was read; or every execution of a write is lost. A whole write that is left over,
  such as a copy ahead of the last step, is none; nor is one value for all bytes, which fills. (A table that a gather
  reads in part is written once, and what is read of it was not read before.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from amdwarp.emulator.memory import Array
from amdwarp.sanitizer.order import APART, ARRIVE, NO_WRITE, WRITE, Records

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
        partly: of one access some were, and others were not.
        clash: an example.
    """

    read: bool = False
    partly: bool = False
    clash: Clash | None = None


class SlotWatch:
    """Collects the signs during a workgroup; `finish` weighs them."""

    def __init__(self, records: Records, report: Callable[[Clash], None]) -> None:
        self.records, self.report = records, report
        self.reset()

    def reset(self) -> None:
        """Forget everything, for the next workgroup."""
        self._rereads: dict[tuple[int, int], _Reread] = {}
        self._fates: dict[int, _Fate] = {}
        self._old: dict[int, list[tuple[int, int, bool]]] = {}

    def read_old(self, previous: int, record: int, inst: int, mixed: bool) -> None:
        """Record `record`, of `inst`, reads bytes that its waves have read before, at record `previous` last.

        Args:
            mixed: it reads them together with others that were written since; else it reads no others.
        """
        kept = self._old.setdefault(inst, [])
        kept.append((previous, record, mixed))
        del kept[:-_KEPT]

    def read_again(self, writer: int, previous: int, clash: Clash) -> None:
        """Waves of `clash` read what `writer` wrote, as they did at record `previous` with the same instruction."""
        key = (clash.later, int(self.records.inst[writer]))
        known = self._rereads.setdefault(key, _Reread(clash))
        tail = slice(previous + 1, self.records.count)
        bits = np.uint32(sum(1 << wave for wave in clash.waves))
        newer = (self.records.flags[tail] & WRITE != 0) & (self.records.seen[tail] & bits != 0)
        if newer.any():
            more = set(np.unique(self.records.inst[tail][newer]).tolist())
            if more - known.between:
                known.between |= more
                known.clash = clash

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
            if not _is_fill(content[gone]):
                fate.partly |= read
                fate.clash = fate.clash or span(gone)

    def finish(self, written: Array, unread: Array, known: Array, span: Callable[[Array], Clash]) -> None:
        """The workgroup has ended.

        Args:
            written: record that wrote each granule last.
            unread: granules nobody has read since.
            known: granules that somebody has read ever.
            span: makes a clash of the granules marked.
        """
        for (later, _), reread in self._rereads.items():
            if reread.between & self._feeders(later):
                self.report(reread.clash)
        for fate in self._fates.values():
            if fate.clash is not None and (fate.partly or not fate.read):
                self.report(fate.clash)
        self._left_over(written, unread, known, span)

    def _feeders(self, reader: int) -> set[int]:
        """Instructions whose writes instruction `reader` has read."""
        records = self.records
        own = records.inst[: records.count] == reader
        return set(np.unique(records.source[: records.count][own]).tolist()) - {-1}

    def _left_over(self, written: Array, unread: Array, known: Array, span: Callable[[Array], Clash]) -> None:
        """Writes that were never read, in part or whole, where something shows that they were to be."""
        records = self.records
        left = unread & (written != NO_WRITE) & (records.flags.take(written) & ARRIVE == 0)
        reported: set[int] = set()
        for record in np.unique(written[left]).tolist():
            inst, mine = int(records.inst[record]), written == record
            whole = not (~left & mine).any()
            if inst not in reported and self._was_wanted(record, whole, bool((known & left & mine).any())):
                reported.add(inst)
                self.report(span(left & mine))

    def _was_wanted(self, record: int, whole: bool, known: bool) -> bool:
        """True if a write that was not read was to be.

        Args:
            whole: nothing of it was read.
            known: earlier contents of the same place were.
        """
        records = self.records
        if any(
            before < record < read and (mixed or not whole)
            for pairs in self._old.values()
            for before, read, mixed in pairs
        ):
            return True
        if whole:
            return False
        same = (records.inst[: records.count] == records.inst[record]) & (
            records.wave[: records.count] == records.wave[record]
        )
        return bool(records.flags[record] & APART and known) or int(same.sum()) > 1


def _is_fill(content: Array) -> bool:
    """True if all the bytes are copies of one word of up to 4 bytes."""
    unit = min(4, content.shape[-1])
    words = np.unique(content.reshape(-1, unit), axis=0)
    return len(words) == 1
