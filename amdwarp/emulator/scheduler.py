"""Runs the waves of one workgroup.

Waves at one pc run as a batch; where a branch divides them the batch splits, and neighbours that meet at one pc with
the same operations under way join again. Which batch runs next, and how far, is drawn from the seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from amdwarp.asm import Program
from amdwarp.emulator.memory import Fault
from amdwarp.emulator.state import AT_BARRIER, ENDED, RUNNING, STOP, Batch, Closure
from amdwarp.emulator.sync import SplitError
from amdwarp.errors import EmulatorError

#: Instructions of a turn are drawn up to this number (a barrier or the end cuts it short).
LONGEST_TURN = 2000
#: Without a seed, instructions after which another batch has its turn.
FAIR_TURN = 100_000


@dataclass
class Limits:
    """What ends a run that does not end by itself: instructions of one wave."""

    instructions: int


class Scheduler:
    """The waves of a workgroup until all have ended."""

    def __init__(
        self,
        program: Program,
        closures: Sequence[Closure],
        batches: list[Batch],
        rng: random.Random | None,
        limits: Limits,
    ) -> None:
        self.program, self.closures, self.rng, self.limits = program, closures, rng, limits
        self.batches = batches
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
                self._release()
                continue
            if self.rng is None:
                # The one furthest behind, so that batches meet again; long turns are cut so that none starves.
                batch, turn = min(runnable, key=lambda b: (b.count // FAIR_TURN, b.pc)), FAIR_TURN
            else:
                batch, turn = self.rng.choice(runnable), self.rng.randint(1, LONGEST_TURN)
            self._turn(batch, turn)

    def _release(self) -> None:
        """Let all waves that wait at a barrier go on."""
        waves: list[int] = []
        for b in self.batches:
            if b.state == AT_BARRIER:
                b.state = RUNNING
                waves += range(b.first, b.last)
        self._join_neighbours()
        recorder = self.batches[0].group.recorder
        if recorder is not None:
            recorder.barrier(tuple(waves))

    def _join_neighbours(self) -> None:
        joined = [self.batches[0]]
        for b in self.batches[1:]:
            if joined[-1].state == RUNNING and joined[-1].joins(b):
                joined[-1] = joined[-1].join(b)
            else:
                joined.append(b)
        self.batches = joined

    def _turn(self, b: Batch, turn: int) -> None:
        at = self.batches.index(b)
        around = [*self.batches[max(at - 1, 0) : at], *self.batches[at + 1 : at + 2]]
        near = {other.pc for other in around if other.state == RUNNING} - {b.pc}
        before = b.count
        try:
            if b.group.recorder is None:
                self._run(b, turn, near)
            else:
                self._run_observed(b, turn, near)
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
        if b.count > self.limits.instructions:
            raise EmulatorError(
                f"a wave has executed {b.count} instructions without an end; {self._positions()}",
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

    def _run_observed(self, b: Batch, turn: int, near: set[int]) -> None:
        """`_run` with an event after each instruction."""
        recorder = b.group.recorder
        assert recorder is not None
        code, instructions = self.closures, self.program.instructions
        for _ in range(turn):
            pc, mask, serial = b.pc, b.mask, b.group.serial
            try:
                following = code[pc](b)
            except SplitError:
                recorder.instruction(instructions[pc], b, mask, serial, pc)
                raise
            b.count += 1
            if following is None:
                b.pc = pc + 1
            elif following != STOP:
                b.pc = following
            recorder.instruction(instructions[pc], b, mask, serial, b.pc)
            if following == STOP or b.pc in near:
                return

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
        lane = "" if fault.wave is None else f" (wave {b.first + fault.wave}, lane {fault.lane})"
        return EmulatorError(f"'{inst.text}'{lane}: {fault.problem}", where=inst.where, remedy=fault.remedy)

    def _internal(self, b: Batch, problem: Exception) -> EmulatorError:
        inst = self.program.instructions[b.pc]
        return EmulatorError(
            f"'{inst.text}' failed in the emulator: {type(problem).__name__}: {problem}", where=inst.where
        )

    def _positions(self) -> str:
        places = []
        for b in self.batches:
            inst = self.program.instructions[min(b.pc, len(self.program.instructions) - 1)]
            waves = f"wave {b.first}" if b.n == 1 else f"waves {b.first}-{b.last - 1}"
            places.append(f"{waves} {b.state}, {inst.where}: '{inst.text}'")
        return "; ".join(places)
