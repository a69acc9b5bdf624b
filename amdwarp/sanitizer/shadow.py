"""Shadow of a workgroup's LDS: who wrote and read each piece last, and the checks of each new access against that.

The shadow is kept in *granules*: as many bytes as every access so far was a multiple of, in size and address. A
narrower access splits them. So the checks are exact to the byte, and a kernel that moves 16 bytes a lane pays for a
sixteenth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from amdwarp.emulator.events import Access
from amdwarp.emulator.memory import Array, gather_block, scatter_block
from amdwarp.sanitizer.order import APART, ARRIVE, ATOMIC, FINISHED, NO_READ, NO_WRITE, TENSOR, Records
from amdwarp.sanitizer.redundant import Needs
from amdwarp.sanitizer.slots import Clash, Left, Old, SlotWatch, is_fill

#: Widest granule: what one lane moves at most.
_WIDEST = 16
#: Content of bytes that are not followed.
_UNKNOWN = 0xA7


@dataclass(slots=True)
class Pieces:
    """An access in granules: parallel arrays, [waves, pieces] or [pieces].

    Attributes:
        at: granule.
        wave: wave, broadcastable to `at`.
        bit: bit of the wave.
        record: record of the access, broadcastable to `at`.
    """

    at: Array
    wave: Array
    bit: Array
    record: Array

    def where(self, bad: Array) -> tuple[Array, Array]:
        """Granules and waves of the pieces marked."""
        return self.at[bad], np.broadcast_to(self.wave, self.at.shape)[bad]


class LdsShadow:
    """The shadow of one workgroup.

    Args:
        size: bytes of LDS.
        records: the operations.
        report: called with each fault.
        needs: told what each access owes its order to, or None.
    """

    def __init__(
        self, size: int, records: Records, report: Callable[[Clash], None], needs: Needs | None = None
    ) -> None:
        self.size, self.records, self.report = (size + _WIDEST - 1) // _WIDEST * _WIDEST, records, report
        self.content: Array = np.zeros(self.size, np.uint8)
        self.slots = SlotWatch(records, report)
        self.needs = needs
        self.inst = -1
        self._make(_WIDEST)

    def _make(self, granule: int) -> None:
        self.granule, self.shift = granule, granule.bit_length() - 1
        self.count = self.size // granule
        self.written: Array = np.full(self.count, NO_WRITE, np.int32)
        self.read_by: Array = np.full((self.records.waves, self.count), NO_READ, np.int32)
        self.atomic_by: Array | None = None
        self.skipped: Array | None = None
        self.kept: Array | None = None
        self._steps: dict[int, Array] = {}

    def reset(self) -> None:
        """Forget everything, for the next workgroup."""
        self.written[:] = NO_WRITE
        self.read_by[:] = NO_READ
        self.atomic_by = self.skipped = self.kept = None
        self.slots.reset()

    def finish(self) -> None:
        """The workgroup has ended: judge what its slots were used for."""
        self.inst = -1
        unread = np.asarray((self.read_by < self.written).all(axis=0))
        if self.atomic_by is not None:
            unread &= (self.atomic_by == NO_READ).all(axis=0)
        at = np.flatnonzero(unread & (self.written != NO_WRITE))
        content = self.content.reshape(self.count, -1)
        left: dict[int, Left] = {}
        for record in np.unique(self.written[at]).tolist():
            mine = at[self.written[at] == record]
            if not self.records.flags[record] & ARRIVE and not is_fill(content[mine]):
                clash = self._make_clash("lds-lost-write", record, np.empty(0, np.int64), mine)
                known = bool((self.read_by[:, mine] != NO_READ).any())
                left[record] = Left(clash, len(mine) == int((self.written == record).sum()), known)
        self.slots.finish(left)

    def _split(self, granule: int) -> None:
        """Go on with narrower granules; what is known of a granule holds for its parts."""
        times = self.granule // granule
        old = (self.written, self.read_by, self.atomic_by, self.skipped, self.kept)
        self._make(granule)
        parts = [None if array is None else np.repeat(array, times, axis=-1) for array in old]
        assert parts[0] is not None and parts[1] is not None
        self.written, self.read_by, self.atomic_by, self.skipped, self.kept = parts[0], parts[1], *parts[2:]

    def _pieces(self, access: Access, addresses: Array, first: int, base: int) -> Pieces:
        """The active lanes' granules; splits the granules where the access needs it."""
        mask = access.mask
        rows = None
        if mask is not None:
            rows, lanes = np.nonzero(mask)
            addresses = addresses[rows, lanes]
        low = int(np.bitwise_or.reduce(addresses, axis=None)) | access.size
        if low & (self.granule - 1):
            self._split(low & -low)
        at = addresses >> self.shift
        each = access.size >> self.shift
        if each > 1:
            steps = self._steps.setdefault(each, np.arange(each))
            at = at[..., None] + steps
        if rows is None:
            count = at.shape[0]
            at = at.reshape(count, -1)
            wave = np.arange(first, first + count)[:, None]
        else:
            wave = np.repeat(rows, each) if each > 1 else rows
            wave = wave + first
            at = at.reshape(-1)
        return Pieces(at, wave, self.records.bits[wave], wave + (base - first))

    # Reads

    def read(self, access: Access, inst: int, first: int, base: int) -> None:
        """Check and note a read of instruction `inst` by waves from `first` on, whose records start at `base`."""
        self.inst = inst
        pieces = self._pieces(access, access.addresses, first, base)
        if pieces.at.size == 0:
            return
        last = self.written.take(pieces.at)
        self.records.source[base : self.records.count] = self.records.inst[last.flat[0]]
        unseen = (self.records.seen.take(last) & pieces.bit) == 0
        if unseen.any():
            # Reading a barrier object is how a wave waits for the others.
            unseen &= (self.records.flags.take(last) & ARRIVE) == 0
            self._bad_read(pieces, last, unseen)
        if self.needs is not None:
            self.needs.used(last, np.broadcast_to(pieces.bit, last.shape))
        if self.atomic_by is not None:
            self._against_all(pieces, self.atomic_by, "lds-unpublished-read", None)
        place = pieces.wave * self.count + pieces.at
        flat = self.read_by.reshape(-1)
        again = flat.take(place) > last
        if again.any():
            self._read_again(pieces, last, flat.take(place), again)
        if self.skipped is not None:
            self._skipped_read(pieces)
        flat[place] = pieces.record

    def _bad_read(self, pieces: Pieces, last: Array, unseen: Array) -> None:
        if not unseen.any():
            return
        nobody = unseen & (last == NO_WRITE)
        if nobody.any():
            at, waves = pieces.where(nobody)
            self._clash("lds-uninitialised-read", NO_WRITE, waves, at)
        self._each("lds-unpublished-read", pieces, last, unseen & ~nobody)

    def _read_again(self, pieces: Pieces, last: Array, before: Array, again: Array) -> None:
        """Pieces that the wave has read since they were written: note those it read with the same instruction."""
        fresh, seen_at = last[~again], int(before[again].max())
        # One word for all lanes, or the same instruction again, may be a wave that waits.
        place = self._make_clash("", 0, pieces.wave.reshape(-1), pieces.at)
        polls = place.high - place.low <= _WIDEST or (self.records.inst.take(before[again]) == self.inst).all()
        if not polls and (fresh.size == 0 or int(fresh.max()) > seen_at):
            record = int(pieces.record.flat[0])
            self.slots.read_old(Old(int(last[again].max()), seen_at, record, fresh.size > 0))
        again &= self.records.inst.take(before) == self.inst
        if not again.any():
            return
        found, waves = last[again], np.broadcast_to(pieces.wave, pieces.at.shape)[again]
        at, before = pieces.at[again], before[again]
        instructions = self.records.inst.take(found)
        for inst in np.unique(instructions).tolist():
            for wave in np.unique(waves[instructions == inst]).tolist():
                same = (instructions == inst) & (waves == wave)
                clash = self._make_clash("lds-stale-read", int(found[same][0]), waves[same], at[same])
                self.slots.read_again(clash.earlier, int(before[same].min()), clash)

    def _skipped_read(self, pieces: Pieces) -> None:
        assert self.skipped is not None
        skip = self.skipped.take(pieces.at)
        bad = skip > self.written.take(pieces.at)
        if bad.any():
            self._each("lds-stale-read", pieces, skip, bad)

    # Writes

    def write(self, access: Access, inst: int, first: int, base: int, flags: int) -> None:
        """Check and note a write or atomic of `inst` by waves from `first` on, whose records start at `base`."""
        self.inst = inst
        if access.mask is not None and flags & (APART | TENSOR) == APART:
            self._note_skipped(access, first, base)
        pieces = self._pieces(access, access.addresses, first, base)
        if pieces.at.size == 0:
            return
        last = self.written.take(pieces.at)
        clash = ((self.records.seen.take(last) & pieces.bit) == 0) & (last != NO_WRITE)
        if self.needs is not None:
            self.needs.used(last, np.broadcast_to(pieces.bit, last.shape))
        if clash.any():
            self._write_write(access, pieces, last, clash, flags)
        if flags & ARRIVE:
            self.written[pieces.at] = pieces.record
            return
        self._against_all(pieces, self.read_by, "lds-write-after-read", access)
        if not flags & ATOMIC:
            self._overwritten(pieces, last)
        if flags & APART:
            self._own_reads(pieces)
        if self.atomic_by is not None and not flags & ATOMIC:
            self._against_all(pieces, self.atomic_by, "lds-write-write", access)
        self.written[pieces.at] = pieces.record
        if flags & ATOMIC:
            self._note_atomic(pieces)
        else:
            self._content(access, pieces)
        if self.kept is not None:
            self.kept[pieces.at] = False

    def _overwritten(self, pieces: Pieces, last: Array) -> None:
        """Tell `SlotWatch` of written pieces that nobody has read."""
        unread = (self.read_by[:, pieces.at] < last).all(axis=0) & (last != NO_WRITE)
        if self.atomic_by is not None:
            unread &= (self.atomic_by[:, pieces.at] < last).all(axis=0)
        if not unread.any():
            return
        content = self.content.reshape(self.count, -1)[pieces.at]

        def span(lost: Array) -> Clash:
            at, waves = pieces.where(lost)
            return self._make_clash("lds-lost-write", int(last[lost][0]), waves, at)

        self.slots.overwritten(last, unread, content, span)

    def _write_write(self, access: Access, pieces: Pieces, last: Array, clash: Array, flags: int) -> None:
        records = self.records
        before = records.flags.take(last)
        if flags & ATOMIC:
            clash &= (before & ATOMIC) == 0
        if flags & APART:
            # Copies of one wave come back in order, those of one kind.
            same = APART | TENSOR
            clash &= ((before & same) != flags & same) | (records.wave.take(last) != pieces.wave)
        if clash.any() and not flags & ATOMIC:
            clash &= ~self._same_value(access, pieces)
        self._each("lds-write-write", pieces, last, clash)

    def _same_value(self, access: Access, pieces: Pieces) -> Array:
        """Pieces whose new bytes are those that the last write left: in either order the result is the same."""
        assert access.values is not None
        old = gather_block(self.content, access.addresses, access.size, access.mask)
        return self._spread((old == _low_bytes(access.values, access.size)).all(axis=-1), access, pieces)

    def _spread(self, lanes: Array, access: Access, pieces: Pieces) -> Array:
        """A truth value of each lane for each of its pieces."""
        each = access.size >> self.shift
        flat = lanes if access.mask is None else lanes[access.mask]
        return np.repeat(flat, each, axis=-1).reshape(pieces.at.shape)

    def _against_all(self, pieces: Pieces, table: Array, kind: str, access: Access | None) -> None:
        """Check an access against the last operation that every wave has in `table`."""
        known = table[:, pieces.at]
        if self.needs is not None:
            self.needs.used(known, np.broadcast_to(pieces.bit, known.shape))
        seen = self.records.seen.take(known)
        bad = (np.bitwise_and.reduce(seen, axis=0) & pieces.bit) == 0
        if not bad.any():
            return
        if access is not None and access.values is not None:
            bad &= ~self._same_value(access, pieces)
        for wave in range(self.records.waves):
            unseen = bad & ((seen[wave] & pieces.bit) == 0)
            self._each(kind, pieces, known[wave], unseen)

    def _own_reads(self, pieces: Pieces) -> None:
        """A load that writes LDS itself does not wait for its wave's own reads."""
        own = self.read_by.reshape(-1).take(pieces.wave * self.count + pieces.at)
        bad = ((self.records.flags.take(own) & FINISHED) == 0) & (own != NO_READ)
        if bad.any():
            self._each("lds-write-after-read", pieces, own, bad)

    def _note_atomic(self, pieces: Pieces) -> None:
        if self.atomic_by is None:
            self.atomic_by = np.full_like(self.read_by, NO_READ)
        self.atomic_by.reshape(-1)[pieces.wave * self.count + pieces.at] = pieces.record
        # What an atomic leaves is not followed; a write of this value is unlikely.
        self.content.reshape(self.count, -1)[pieces.at] = _UNKNOWN

    def _content(self, access: Access, pieces: Pieces) -> None:
        """Note the bytes, and look for lanes of different waves that have just written different ones."""
        assert access.values is not None
        scatter_block(self.content, access.addresses, access.values, access.size, access.mask)
        winner = self.written.take(pieces.at)
        lost = winner != pieces.record
        if lost.any():
            lost &= ~self._same_value(access, pieces)
            self._each("lds-write-write", pieces, winner, lost)

    def _note_skipped(self, access: Access, first: int, base: int) -> None:
        """Bytes that disabled lanes of a load to LDS leave as they are.

        Bytes that were written since they were last read are taken for a fill that belongs to this use.
        """
        assert access.mask is not None
        mask = access.mask.any(axis=1, keepdims=True) & ~access.mask
        if not mask.any():
            return
        inside = mask & (access.addresses >= 0) & (access.addresses + access.size <= self.size)
        hidden = Access("lds", "write", access.addresses, access.size, inside)
        pieces = self._pieces(hidden, access.addresses, first, base)
        if self.skipped is None or self.kept is None:
            self.skipped, self.kept = np.zeros(self.count, np.int32), np.zeros(self.count, bool)
        last = self.written.take(pieces.at)
        fresh = (self.read_by[:, pieces.at] < last).all(axis=0) & (last != NO_WRITE)
        kept = self.kept.take(pieces.at) | fresh
        self.kept[pieces.at] = kept
        # The first record of the instruction, so that other waves of it that do write here count as later.
        self.skipped[pieces.at] = np.where(kept, 0, base)

    # Reports

    def _each(self, kind: str, pieces: Pieces, earlier: Array, bad: Array) -> None:
        """A fault for each earlier record among the pieces marked."""
        if not bad.any():
            return
        at, waves = pieces.where(bad)
        records = np.broadcast_to(earlier, pieces.at.shape)[bad]
        instructions = self.records.inst.take(records)
        for inst in np.unique(instructions).tolist():
            same = instructions == inst
            for record in np.unique(records[same]).tolist():
                own = same & (records == record)
                self._clash(kind, record, waves[own], at[own])

    def _clash(self, kind: str, earlier: int, waves: Array, at: Array) -> None:
        self.report(self._make_clash(kind, earlier, waves, at))

    def _make_clash(self, kind: str, earlier: int, waves: Array, at: Array) -> Clash:
        low, high = int(at.min()) * self.granule, (int(at.max()) + 1) * self.granule
        return Clash(kind, earlier, self.inst, frozenset(np.unique(waves).tolist()), low, high)


def _low_bytes(values: Array, size: int) -> Array:
    """Registers of which `size` bytes are written, the rest cleared."""
    return values if size >= 4 else values & np.uint32((1 << 8 * size) - 1)
