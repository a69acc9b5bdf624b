"""count_barriers: barrier ops with the number of arriving waves in them, for targets without barrier objects.

On gfx1250 a barrier in LDS knows how many arrivals complete its phase. gfx942 and gfx950 get a plain counter instead
(``passes/lower_tasks.py``), and every op on it says how far it counts. ``N`` is the count of ``amdg.init_barrier`` in
waves: lanes divided by the wave size.

Before::

    amdg.init_barrier %b {count = 256}
    amdg.wait_barrier %b, %phase
    %p = amdg.arrive_barrier %b {count = 1}

After, for N = 4::

    amdg.init_barrier %b {count = 1}            // this stores zeros
    %code = (%phase & 1) | (N << 1)
    amdg.wait_barrier %b, %code
    %p = amdg.arrive_barrier %b {count = N}

Refuses when: a count is no multiple of the wave size; an arrival counts more than once; the allocation behind a barrier
cannot be seen, is not initialised, or is with different counts; the old phase that an arrival gives is used.
"""

from __future__ import annotations

from dataclasses import dataclass

from amdwarp.errors import LoweringError

from .. import spelling
from ..analysis.tasks import ARRIVE, INIT, WAIT, arrivals, arrivals_of
from ..ir import Module, Op
from ..rewriter import Builder


@dataclass(frozen=True)
class CountBarriers:
    """
    Attributes:
        wave_size: lanes of a wave of the target.
    """

    wave_size: int
    name: str = "count_barriers"

    def run(self, module: Module) -> None:
        counts = arrivals(module)
        for op in module.ops(ARRIVE, WAIT):
            waves = self._waves(op, arrivals_of(op, counts))
            if op.name == ARRIVE:
                self._check(op)
                op.properties["count"] = f"{waves} : i32"
            else:
                _give_count(op, waves)
        for op in module.ops(INIT):
            self._waves(op, int(op.properties["count"].split(":")[0]))
            op.properties["count"] = "1 : i32"

    def _waves(self, op: Op, lanes: int) -> int:
        if lanes % self.wave_size:
            raise LoweringError(
                f"the barrier counts {lanes} lanes, which are no whole waves of {self.wave_size}",
                remedy="give alloc_barriers the number of arriving waves",
                construct=op.name,
                where=op.where,
            )
        return lanes // self.wave_size

    def _check(self, op: Op) -> None:
        if int(op.properties["count"].split(":")[0]) != 1:
            raise LoweringError(
                "an arrival that counts more than once has no form on this target",
                remedy="arrive as often, or give the barrier a smaller count",
                construct=op.name,
                where=op.where,
            )
        if any(value.uses for value in op.results):
            raise LoweringError(
                "the phase that an arrival gives back has no form on this target",
                remedy="keep the phase in the loop: step // ring & 1",
                construct=op.name,
                where=op.where,
            )


def _give_count(op: Op, waves: int) -> None:
    build = Builder.before(op)
    one = build.value(spelling.constant(1))
    high = build.value(spelling.constant(waves << 1))
    parity = build.value(spelling.andi(op.operands[1], one))
    op.set_operand(1, build.value(spelling.addi(parity, high)))
