"""Happens-before between the LDS operations of a workgroup.

Each operation of each wave is a *record*. Its `seen` mask has the bit of a wave once everything that wave does from
then on happens after the operation, in every interleaving of the same control flow: for its own wave that is so behind
the wait that covers it (for an operation of the LDS queue at once, since that queue keeps its order), for the others
behind a barrier that the owner reaches after that wait. The masks are the columns of the vector clocks one would keep
instead, one bit for each pair of record and wave.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from amdwarp.emulator.memory import Array

#: Records that stand for "nobody has read this" (all waves come after it) and "nobody has written this" (none does).
NO_READ, NO_WRITE = 0, 1
#: Flags of a record: `APART` for an access past the queue of LDS operations, `TENSOR` for one by a tensor copy,
#: `ARRIVE` for an arrival on a barrier object.
ATOMIC, APART, FINISHED, WRITE, TENSOR, ARRIVE = 1, 2, 4, 8, 16, 32
#: Waves that a mask has room for.
MAX_WAVES = 32


class Records:
    """Operations by number: who issued them, and which waves come after them.

    Attributes:
        seen: uint32, bit w: wave w comes after the operation.
        inst: index of the instruction.
        wave: the owner.
        flags: `ATOMIC`, `APART`, `FINISHED` (waited for), `WRITE`, `TENSOR`, `ARRIVE`.
        source: of a read: index of an instruction that wrote what it read, else -1.
    """

    def __init__(self, waves: int) -> None:
        self.waves = waves
        self.all = (1 << waves) - 1
        self.seen: Array = np.zeros(1 << 12, np.uint32)
        self.inst: Array = np.zeros(1 << 12, np.int32)
        self.wave: Array = np.zeros(1 << 12, np.int16)
        self.flags: Array = np.zeros(1 << 12, np.uint8)
        self.source: Array = np.full(1 << 12, -1, np.int32)
        self._offsets = np.arange(MAX_WAVES, dtype=np.int16)
        self._bits = (1 << np.arange(MAX_WAVES, dtype=np.uint64)).astype(np.uint32)
        self.bits: Array = self._bits[:waves]
        self._open: list[int] = []
        self._signalled: dict[tuple[int, int], list[Array]] = {}
        self.count = 0
        self.reset()

    def reset(self) -> None:
        """Forget everything, for the next workgroup."""
        self.seen[NO_READ], self.seen[NO_WRITE] = self.all, 0
        self.inst[:2] = self.wave[:2] = -1
        self.flags[:2] = 0
        self.source[:2] = -1
        self.count = 2
        self._open = []
        self._signalled = {}

    def issue(self, inst: int, first: int, last: int, flags: int) -> int:
        """Records for waves [first, last); returns the number of the first, the others follow."""
        base, end = self.count, self.count + last - first
        if end > len(self.seen):
            arrays = (self.seen, self.inst, self.wave, self.flags, self.source)
            grown = (np.concatenate((array, np.zeros_like(array))) for array in arrays)
            self.seen, self.inst, self.wave, self.flags, self.source = grown
        self.count = end
        self.seen[base:end] = 0 if flags & APART else self._bits[first:last]
        self.inst[base:end] = inst
        self.wave[base:end] = self._offsets[first:last]
        self.flags[base:end] = flags
        self.source[base:end] = -1
        return base

    def finish(self, records: Sequence[int], waves: Sequence[int]) -> None:
        """The owners have waited for these records."""
        at = np.array(records)
        self.seen[at] |= self._bits[np.array(waves)]
        self.flags[at] |= np.uint8(FINISHED)
        self._open += records

    def barrier(self, waves: Iterable[int], ended: Iterable[int] = ()) -> None:
        """A barrier that `waves` have reached: each comes after what any of them, or of the `ended`, came after.

        An ended wave counts as having reached every later barrier.
        """
        if not self._open:
            return
        into = sum(1 << wave for wave in waves)
        at = np.array(self._open)
        gone = sum(1 << wave for wave in ended)
        if into | gone == self.all:
            self.seen[at] = self.all
            self._open = []
            return
        reached = at[(self.seen[at] & np.uint32(into | gone)) != 0]
        self.seen[reached] |= np.uint32(into)
        self._open = at[self.seen[at] != self.all].tolist()

    def arrive(self, completion: tuple[int, int], waves: Iterable[int]) -> None:
        """Waves have signalled for a completion (number of the barrier, of the completion) and go on.

        What they come after now, and not what they do until they wait, is passed on.
        """
        at = np.array(self._open, np.int64)
        bits = np.uint32(sum(1 << wave for wave in waves))
        self._signalled.setdefault(completion, []).append(at[(self.seen[at] & bits) != 0])

    def leave(self, completion: tuple[int, int], waves: Iterable[int], ended: Iterable[int] = ()) -> None:
        """Waves go on behind this completion: they come after what was passed on for it or an earlier one."""
        barrier, number = completion
        passed = [
            part
            for (which, at), parts in self._signalled.items()
            if which == barrier and at <= number
            for part in parts
        ]
        at = np.array(self._open, np.int64)
        gone = np.uint32(sum(1 << wave for wave in ended))
        passed.append(at[(self.seen[at] & gone) != 0])
        self.seen[np.concatenate(passed)] |= np.uint32(sum(1 << wave for wave in waves))
        self._open = at[self.seen[at] != self.all].tolist()
        old = [key for key in self._signalled if key[0] == barrier and key[1] < number - 1]
        for key in old:
            del self._signalled[key]

    def known_to(self, wave: int) -> Array:
        """Records that a wave comes after, and that not every wave is known to come after."""
        at = np.array(self._open, np.int64)
        known: Array = at[(self.seen[at] & self._bits[wave]) != 0]
        return known

    def come_after(self, records: Array, wave: int) -> None:
        """A wave comes after these records from here on."""
        self.seen[records] |= self._bits[wave]
        left = records[self.seen[records] != self.all]
        self._open = sorted({*self._open, *left.tolist()})
