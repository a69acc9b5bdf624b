"""Finding waves that go round for ever.

A wave that comes back to the same jump with the same registers, and finds memory as it was, will do the same again
unless another wave changes something: it is *stuck*. Once every wave is stuck, at a barrier or ended, and memory is
still what each of them saw, nobody ever will.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from amdwarp.emulator.events import InstructionEvent
from amdwarp.emulator.state import Batch, Workgroup
from amdwarp.errors import EmulatorError

#: Rounds before the registers are looked at; from there on they are at each power of two.
_FIRST_ROUND = 1 << 6


class SpinError(EmulatorError):
    """All waves that are left wait for something that does not come."""


@dataclass(slots=True)
class _Loop:
    """What is known of one jump back by one batch."""

    rounds: int = 0
    registers: Any = None
    memory: int | None = None


class SpinWatch:
    """Counts the rounds of loops and compares the state at some of them."""

    def __init__(self, waves: int) -> None:
        self.waves = waves
        self.reset()

    def reset(self) -> None:
        """Forget everything, for the next workgroup."""
        self._loops: dict[tuple[int, int, int], _Loop] = {}
        self._stuck: dict[int, int] = {}
        self._idle: set[int] = set()

    def idle(self, waves: Iterable[int]) -> None:
        """These waves have ended, or wait at a barrier."""
        self._idle.update(waves)

    def released(self, waves: Iterable[int]) -> None:
        """A barrier lets these waves go on."""
        self._idle.difference_update(waves)

    def round(self, event: InstructionEvent) -> None:
        """A batch goes back to the start of a loop.

        Raises:
            SpinError: no wave can go on.
        """
        loop = self._loops.setdefault((event.inst.index, event.first, event.last), _Loop())
        loop.rounds += 1
        if loop.rounds < _FIRST_ROUND or loop.rounds & (loop.rounds - 1):
            return
        registers, before = _registers(event.batch), loop.memory
        same = registers == loop.registers
        loop.registers = registers
        loop.memory = _memory(event.batch.group) if same else None
        for wave in range(event.first, event.last):
            self._stuck.pop(wave, None)
            if loop.memory is not None and loop.memory == before:
                self._stuck[wave] = loop.memory
        if len(self._stuck.keys() | self._idle) < self.waves:
            return
        if all(memory == loop.memory for wave, memory in self._stuck.items() if wave not in self._idle):
            raise SpinError("the waves that have not ended repeat themselves")


def _registers(batch: Batch) -> tuple[Any, ...]:
    """Everything in the waves that decides what they do next."""
    return tuple(batch.s), batch.scc, batch.u.tobytes(), len(batch.vm), len(batch.ds), len(batch.sm)


def _memory(group: Workgroup) -> int:
    """A checksum of LDS and every buffer."""
    total = zlib.adler32(group.lds.data.data)
    for buffer in group.memory.buffers:
        total = zlib.adler32(buffer.data.data, total)
    return total
