"""Waits between waves through words in LDS: which arrivals a wave waits for when it polls.

A kernel made of tasks has no barrier in its loops: a wave adds to a word (``ds_inc``, or an arrival on an object)
and others read that word until enough have. How often they read depends on who is faster, so the rounds of a poll that
found nothing are left out of the record, and the last one is kept with what it needs: so many arrivals at that word.

As many arrivals complete a phase as the word counts up to half its range (``task_functions.py``), or as a barrier
object's reload count says. A poll that saw ``n`` arrivals needed the last whole phase of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from amdwarp.asm import Program
from amdwarp.emulator.events import CompletionEvent, InstructionEvent
from amdwarp.sanitizer.effects import effects_of
from amdwarp.sanitizer.polls import may_poll, polls

if TYPE_CHECKING:
    from amdwarp.cycles.trace import WaveTrace

_ARRIVALS = ("ds_inc_u32", "ds_inc_rtn_u32", "ds_atomic_barrier_arrive_rtn_b64")
_OBJECT = "ds_atomic_barrier_arrive_rtn_b64"


@dataclass
class _Word:
    """A word that waves arrive at: arrivals so far, the highest value seen, and lanes a phase of a barrier object."""

    arrivals: int = 0
    highest: int = 0
    lanes: int = 0

    def needed(self, seen: int, wave_size: int) -> int:
        phase = self.lanes // wave_size if self.lanes else (self.highest + 1) // 2
        return seen // phase * phase if phase else seen


@dataclass
class Flags:
    """Watches one emulation for arrivals and polls.

    Attributes:
        program: the kernel.
        inside: for each poll, by the index of its read, the instructions of a round.
    """

    program: Program
    inside: dict[int, frozenset[int]] = field(default_factory=dict)
    _words: dict[int, _Word] = field(default_factory=dict)
    _last: dict[int, tuple[int, int]] = field(default_factory=dict)
    _open: dict[int, list[tuple[WaveTrace, int, int]]] = field(default_factory=dict)
    _lds: Any = None

    def __post_init__(self) -> None:
        if may_poll(self.program):
            effects = [effects_of(inst, self.program.target) for inst in self.program.instructions]
            self.inside = {read: poll.inside for read, poll in polls(self.program, effects).items()}

    def workgroup(self) -> None:
        """Forget everything, for the next workgroup."""
        self._words, self._last, self._open = {}, {}, {}

    def issuing(self, event: InstructionEvent, waves: Sequence[WaveTrace]) -> None:
        """A read of a poll is about to be recorded: drop the round before it if that found nothing."""
        read = event.inst.index
        for number, wave in enumerate(waves, event.first):
            before, at = self._last.get(number, (-1, 0))
            if before == read and all(pc in self.inside[read] for pc in wave.pcs[at:]):
                del wave.pcs[at:], wave.touched[at:]
                wave.waits.pop(at, None)
            self._last[number] = read, len(wave.pcs)

    def issued(self, event: InstructionEvent, waves: Sequence[WaveTrace]) -> None:
        """An arrival, or a read of a poll, has been recorded as the last instruction of these waves."""
        self._lds = event.batch.group.lds.data
        access = event.accesses[0]
        found = []
        for row, wave in enumerate(waves):
            on = access.addresses[row] if access.mask is None else access.addresses[row][access.mask[row]]
            if on.size:
                found.append((wave, len(wave.pcs) - 1, int(on[0])))
        for serial in event.serials:
            self._open[serial] = found

    def complete(self, event: CompletionEvent) -> None:
        """The result of an arrival or poll is there."""
        for wave, at, address in self._open.pop(event.serial, ()):
            word = self._words.setdefault(address, _Word())
            if event.inst.index in self.inside:
                wave.waits[at] = address, word.arrivals
                continue
            word.arrivals += 1
            wave.arrivals[at] = address
            word.highest = max(word.highest, int(self._lds[address : address + 4].view("<u4")[0]))
            if event.inst.base == _OBJECT:
                word.lanes = int(self._lds[address + 4 : address + 6].view("<u2")[0]) + 1

    def finish(self, waves: Sequence[WaveTrace]) -> None:
        """A workgroup has ended: what each poll needed, now that the words are known."""
        size = 32 if self.program.descriptor.wave32 else 64
        for wave in waves:
            wave.waits = {
                at: (address, self._words[address].needed(seen, size)) for at, (address, seen) in wave.waits.items()
            }

    def concerns(self, event: InstructionEvent) -> bool:
        """Whether an instruction arrives or polls."""
        return event.inst.index in self.inside or (bool(self.inside) and event.inst.base in _ARRIVALS)
