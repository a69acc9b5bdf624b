"""Runs the waves of one workgroup.

Waves at one pc run as a batch; where a branch divides them the batch splits, and neighbours that meet at one pc with
the same operations under way join again. Which batch runs next, and how far, is drawn from the seed; seeds other than
0 also draw how many waves run in lockstep, and split batches at random places, so that waves of one batch come to pass
a wait at different times.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from amdwarp.asm import Instruction, Program
from amdwarp.emulator.memory import Fault
from amdwarp.emulator.state import AT_BARRIER, ENDED, RUNNING, STOP, WAITING, Batch, Closure, SplitError
from amdwarp.errors import EmulatorError

#: Instructions of a turn are drawn up to this number (a barrier or the end cuts it short).
LONGEST_TURN = 2000
#: One turn in so many splits its batch, where interleavings are explored.
SPLIT_EVERY = 8
#: Waves in lockstep that are drawn from.
WIDTHS = (1, 2, 3, 4, 8)
#: Without a seed, instructions after which another batch has its turn.
FAIR_TURN = 100_000


class ExecutionError(EmulatorError):
    """An access or operation that the running program may not do.

    Args:
        inst: what was executed.
        problem: what is wrong with it.
        wave, lane: of the workgroup, or None where all waves of the batch are concerned.
    """

    def __init__(self, inst: Instruction, problem: str, remedy: str, wave: int | None, lane: int | None) -> None:
        at = "" if wave is None else f" (wave {wave}, lane {lane})"
        super().__init__(f"'{inst.text}'{at}: {problem}", where=inst.where, remedy=remedy)
        self.inst, self.what, self.wave, self.lane = inst, problem, wave, lane


class EndlessError(EmulatorError):
    """Waves that do not come to an end; `positions` says where each is."""

    def __init__(self, problem: str, positions: str, remedy: str = "") -> None:
        super().__init__(f"{problem}; {positions}", remedy=remedy)
        self.what, self.positions = problem, positions


@dataclass
class Limits:
    """What ends a run that does not end by itself: instructions of one wave."""

    instructions: int


@dataclass(frozen=True, slots=True)
class UnmetBarrier:
    """A barrier that released waves although others of the workgroup had ended without it: suspicious on gfx9.

    Attributes:
        inst: the barrier.
        waiting, ended: the waves at the first such release.
    """

    inst: Instruction
    waiting: tuple[int, ...]
    ended: tuple[int, ...]


def starts(waves: int, lockstep: int, rng: random.Random | None) -> list[int]:
    """First waves of the batches at the start; with `rng` the first batch has a random width."""
    first = 0 if rng is None else rng.randrange(lockstep)
    return [0, *(at for at in range(first or lockstep, waves, lockstep) if at)]


class Scheduler:
    """The waves of a workgroup until all have ended.

    Attributes:
        unmet: barriers that some waves never reached, by instruction.
    """

    def __init__(
        self,
        program: Program,
        closures: Sequence[Closure],
        batches: list[Batch],
        rng: random.Random | None,
        limits: Limits,
        lockstep: int,
        explores: bool = False,
    ) -> None:
        self.program, self.closures, self.rng, self.limits = program, closures, rng, limits
        self.lockstep, self.explores = lockstep, explores
        self.unmet: dict[int, UnmetBarrier] = {}
        self.batches = batches
        batches[0].group.scheduler = self
        self.executed = 0

    def run(self) -> int:
        """Run everything; returns the wave-instructions executed.

        Raises:
            EmulatorError: an instruction cannot be carried out, the waves wait for each other for ever, or the
                instruction limit is reached.
        """
        while True:
            runnable = [b for b in self.batches if b.state == RUNNING]
            if not runnable:
                if all(b.state == ENDED for b in self.batches):
                    return self.executed
                if any(b.state == WAITING for b in self.batches):
                    raise EndlessError("the waves wait for a barrier that never completes", self._positions())
                self._release()
                continue
            if self.rng is None:
                # The one furthest behind, so that batches meet again; long turns and sleep let others go first.
                batch, turn = min(runnable, key=lambda b: (b.slept + b.count // FAIR_TURN, b.pc)), FAIR_TURN
            else:
                batch, turn = self.rng.choice(runnable), self.rng.randint(1, LONGEST_TURN)
                if self.explores and batch.n > 1 and self.rng.randrange(SPLIT_EVERY) == 0:
                    batch = self._divide(batch, self.rng)
            self._turn(batch, turn)

    def _divide(self, b: Batch, rng: random.Random) -> Batch:
        """Split a batch at a random wave; returns one of the halves."""
        cut = rng.randrange(1, b.n)
        at = self.batches.index(b)
        parts = b.split([0] * cut + [1] * (b.n - cut))
        self.batches[at : at + 1] = parts
        return rng.choice(parts)

    def _release(self) -> None:
        """Let all waves that wait at a barrier go on."""
        recorder = self.batches[0].group.recorder
        waiting = [b for b in self.batches if b.state == AT_BARRIER]
        waves = tuple(wave for b in waiting for wave in range(b.first, b.last))
        ended = tuple(wave for b in self.batches if b.state == ENDED for wave in range(b.first, b.last))
        if ended:
            unmet = UnmetBarrier(self.program.instructions[waiting[0].pc - 1], waves, ended)
            if self.unmet.setdefault(unmet.inst.index, unmet) is unmet and recorder is not None:
                recorder.unmet(unmet.inst, waves, ended)
        for b in waiting:
            b.state = RUNNING
        self._join_neighbours()
        if recorder is not None:
            recorder.barrier(waves)

    def _join_neighbours(self) -> None:
        joined = [self.batches[0]]
        for b in self.batches[1:]:
            if joined[-1].state == RUNNING and joined[-1].n + b.n <= self.lockstep and joined[-1].joins(b):
                joined[-1] = joined[-1].join(b)
            else:
                joined.append(b)
        self.batches = joined

    def _turn(self, b: Batch, turn: int) -> None:
        at = self.batches.index(b)
        around = [*self.batches[max(at - 1, 0) : at], *self.batches[at + 1 : at + 2]]
        near = {x.pc for x in around if x.state == RUNNING and x.n + b.n <= self.lockstep} - {b.pc}
        before = b.count
        try:
            self._run(b, min(turn, self.limits.instructions - before), near)
        except SplitError as split:
            b.count += 1
            self._split(b, split.targets, before)
            return
        except Fault as fault:
            raise self._located(b, fault) from None
        except EmulatorError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError) as problem:
            raise self._internal(b, problem) from problem
        self.executed += (b.count - before) * b.n
        if b.count >= self.limits.instructions and b.state != ENDED:
            raise EndlessError(
                f"a wave has executed {b.count} instructions without an end",
                self._positions(),
                remedy="if the kernel is that long, raise max_instructions",
            )
        if b.state == RUNNING:
            self._join_neighbours()

    def _run(self, b: Batch, turn: int, near: set[int]) -> None:
        """Execute until the turn is over, the batch stops or it reaches a neighbour's pc."""
        code, pc, done = self.closures, b.pc, 0
        try:
            while done < turn:
                following = code[pc](b)
                done += 1
                if following is None:
                    pc += 1
                elif following == STOP:
                    pc = b.pc
                    break
                else:
                    pc = following
                if pc in near:
                    break
        finally:
            b.pc = pc
            b.count += done

    def _split(self, b: Batch, targets: list[int], before: int) -> None:
        at = self.batches.index(b)
        self.executed += (b.count - before) * b.n
        parts = b.split(targets)
        for part in parts:
            part.pc = targets[part.first - b.first]
        self.batches[at : at + 1] = parts

    # Errors

    def _located(self, b: Batch, fault: Fault) -> EmulatorError:
        inst = self.program.instructions[b.pc]
        wave = None if fault.wave is None else b.first + fault.wave
        return ExecutionError(inst, fault.problem, fault.remedy, wave, fault.lane)

    def _internal(self, b: Batch, problem: Exception) -> EmulatorError:
        if b.pc >= len(self.program.instructions):
            return EmulatorError("the program runs on behind its last instruction", remedy="end it with s_endpgm")
        inst = self.program.instructions[b.pc]
        return EmulatorError(
            f"'{inst.text}' failed in the emulator: {type(problem).__name__}: {problem}", where=inst.where
        )

    def _positions(self) -> str:
        places = []
        for b in self.batches:
            pc = b.pc - 1 if b.state == WAITING else b.pc
            inst = self.program.instructions[min(pc, len(self.program.instructions) - 1)]
            waves = f"wave {b.first}" if b.n == 1 else f"waves {b.first}-{b.last - 1}"
            places.append(f"{waves} {b.state}, {inst.where}: '{inst.text}'")
        return "; ".join(places)
