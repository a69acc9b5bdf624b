"""Modelled figures of a matrix product: a launch through the cycle model, and its loop in work done per clk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amdwarp.cycles import Estimate, LoopReport, estimate
from amdwarp.errors import AmdwarpError
from amdwarp.resources import resources

from .registry import Modelled


@dataclass(frozen=True)
class TileWork:
    """What a workgroup does in a loop over K.

    Attributes:
        tile: M, N and K extent of a step.
        k: extent of the whole sum.
        element_bytes: of the operands.
    """

    tile: tuple[int, int, int]
    k: int
    element_bytes: float

    def steps_an_iteration(self, iterations: int) -> int:
        """K steps in one iteration of the compiled loop, which may be unrolled, and peeled at either end."""
        return max(1, round(-(-self.k // self.tile[2]) / iterations))

    def flops(self, iterations: int) -> float:
        """Floating-point operations of one iteration of the compiled loop."""
        m, n, step = self.tile
        return 2.0 * m * n * step * self.steps_an_iteration(iterations)

    def bytes(self, iterations: int) -> float:
        """Bytes of both operands that one iteration loads."""
        m, n, step = self.tile
        return float(m + n) * step * self.element_bytes * self.steps_an_iteration(iterations)


def model(compiled: Any, args: Sequence[Any], grid: tuple[int, ...], work: TileWork, config: str = "") -> Modelled:
    """Model a launch; without a loop over K, as where LLVM has written out its few iterations, of the whole alone.

    Raises:
        AmdwarpError: the emulator or the model does not take it.
    """
    one = estimate(compiled, args, grid)
    loop = _main_loop(one)
    used = resources(compiled.asm["amdgcn"])
    figures = {"kernel_clk": float(one.kernel_clk)}
    notes = {"config": config, "bound": "", "waves": str(one.resident), "steady": ""}
    if loop is not None:
        figures |= _of_the_loop(loop, work, one.resident)
        notes |= {"bound": loop.bound, "steady": "" if loop.steady else "no"}
    compiled_figures = {"vgprs": float(used.vgprs), "spills": float(used.spills)}
    return Modelled(one.parameters, one.calibrated, figures, compiled_figures, notes)


def _of_the_loop(loop: LoopReport, work: TileWork, resident: int) -> dict[str, float]:
    # an iteration is one of each workgroup that shares the compute unit
    flops, loaded = work.flops(loop.iterations) * resident, work.bytes(loop.iterations) * resident
    return {
        "clk_per_iteration": loop.clk_per_iteration,
        "mfma_busy": 100 * loop.mfma_busy,
        # not from the clk of an iteration, during which workgroups that drift apart do not do one each
        "flop_per_clk": loop.mfma_busy * flops / loop.limits["MFMA"],
        "flop_per_byte": flops / loaded,
        "mfma_limit": loop.limits["MFMA"],
        "load_limit": loop.limits["TCP"],
    }


def _main_loop(one: Estimate) -> LoopReport | None:
    """The loop that takes most of the time, among those that multiply."""
    return next((loop for loop in one.loops if loop.limits["MFMA"]), None)


def main_loop(one: Estimate) -> LoopReport:
    """The same of a kernel that has one.

    Raises:
        AmdwarpError: it has none.
    """
    loop = _main_loop(one)
    if loop is not None:
        return loop
    raise AmdwarpError(
        f"{one.kernel} has no loop that multiplies and runs more than once", remedy="take a larger K, or a smaller step"
    )
