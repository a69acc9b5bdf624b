"""Waits, barriers, branches and ends: instructions that hold or steer their wave (others: `issue.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amdwarp.asm import Instruction
from amdwarp.cycles.issue import BRANCH, LGKMCNT, NOP, PORT_BRANCH, PORT_NONE, VECTOR_COUNTERS, VMCNT, Op
from amdwarp.cycles.queues import FAR

if TYPE_CHECKING:
    from amdwarp.cycles.unit import Unit
    from amdwarp.cycles.wave import Simd, Wave


class WaitOp(Op):
    """Wait until at most so many operations are under way.

    Attributes:
        limits: pairs of a counter and how many it may still count.
    """

    __slots__ = ("limits",)

    def __init__(self, inst: Instruction, limits: tuple[tuple[int, int], ...]) -> None:
        super().__init__(inst, "wait", PORT_NONE)
        self.limits = limits

    def issue(self, unit: Unit, simd: Simd, wave: Wave, t: int) -> int:
        until, cause = 0, VMCNT
        for counter, left in self.limits:
            done = wave.done(counter, left)
            if done > until:
                until, cause = done, VMCNT if counter < VECTOR_COUNTERS else LGKMCNT
        after = t + unit.period
        if until > after:
            until = simd.on_grid(until)
            wave.stalls[self.stalls + cause] += until - after
            after = until
        wave.ready = wave.base = unit.until = after
        return 0


class BarrierOp(Op):
    """Barrier: arrive, then stay until the last wave of the workgroup has arrived."""

    __slots__ = ()

    def __init__(self, inst: Instruction) -> None:
        super().__init__(inst, "barrier", PORT_NONE)

    def issue(self, unit: Unit, simd: Simd, wave: Wave, t: int) -> int:
        wave.base, wave.ready = t + unit.period, FAR
        unit.until = FAR
        unit.arrive(wave, self, t)
        return 0


class SignalOp(BarrierOp):
    """Arrive at a split barrier, and go on."""

    __slots__ = ()

    def issue(self, unit: Unit, simd: Simd, wave: Wave, t: int) -> int:
        wave.ready = wave.base = t + unit.period
        unit.signal(wave, t)
        return 0


class BarrierWaitOp(BarrierOp):
    """Stay until the split barrier this wave arrived at has released."""

    __slots__ = ()

    def issue(self, unit: Unit, simd: Simd, wave: Wave, t: int) -> int:
        wave.base, wave.ready = t + unit.period, FAR
        unit.until = FAR
        unit.await_signal(wave, self, t)
        return 0


class NopOp(Op):
    """Issue slots that pass with nothing in them."""

    __slots__ = ("extra",)

    def __init__(self, inst: Instruction, extra: int) -> None:
        super().__init__(inst, "other", PORT_NONE)
        self.extra = extra

    def issue(self, unit: Unit, simd: Simd, wave: Wave, t: int) -> int:
        wave.ready = wave.base = t + unit.period + self.extra
        wave.stalls[self.stalls + NOP] += self.extra
        return 0


class PriorityOp(Op):
    """s_setprio."""

    __slots__ = ("value",)

    def __init__(self, inst: Instruction, value: int) -> None:
        super().__init__(inst, "other", PORT_NONE)
        self.value = value

    def issue(self, unit: Unit, simd: Simd, wave: Wave, t: int) -> int:
        wave.ready = wave.base = t + unit.period
        if wave.priority != self.value:
            wave.priority = self.value
            simd.sort()
        return 0


class BranchOp(Op):
    """Branch; whether it is taken is in the wave's stream."""

    __slots__ = ()

    def __init__(self, inst: Instruction) -> None:
        super().__init__(inst, "other", PORT_BRANCH)

    def issue(self, unit: Unit, simd: Simd, wave: Wave, t: int) -> int:
        after = t + unit.period
        if wave.stream[wave.at + 1].index != self.index + 1 and unit.branch_clk > unit.period:
            wave.stalls[self.stalls + BRANCH] += unit.branch_clk - unit.period
            after = t + unit.branch_clk
        wave.ready = wave.base = after
        return 0


class EndOp(Op):
    """End of the wave, once its stores are acknowledged."""

    __slots__ = ()

    def __init__(self, inst: Instruction) -> None:
        super().__init__(inst, "other", PORT_BRANCH)

    def issue(self, unit: Unit, simd: Simd, wave: Wave, t: int) -> int:
        wave.ready = FAR
        wave.base = t + unit.period
        wave.ended = max(t + unit.period, *(wave.done(counter, 0) for counter in range(VECTOR_COUNTERS)))
        unit.until = wave.ended
        unit.end(wave, simd, t)
        return 0
