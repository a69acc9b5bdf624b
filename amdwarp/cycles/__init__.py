"""Cycle model of a compute unit: what a compiled kernel would cost, without a GPU. Every figure is modelled.

>>> from amdwarp import cycles
>>> one = cycles.estimate(compiled, args, grid)
>>> one.loops[0].clk_per_iteration, one.loops[0].mfma_busy, one.loops[0].bound

The emulator executes the kernel and records each wave's instructions with their addresses; a compute unit that issues
them by the rules of the hardware is then run over the record. See ``docs/cycle-model.md``.
"""

from amdwarp.cycles.estimate import Comparison, Variation, compare, estimate, estimate_trace, sensitivity
from amdwarp.cycles.parameters import Parameters, load
from amdwarp.cycles.report import Estimate, LoopReport
from amdwarp.cycles.trace import Trace, record
from amdwarp.cycles.unit import Run, simulate

__all__ = [
    "Comparison",
    "Estimate",
    "LoopReport",
    "Parameters",
    "Run",
    "Trace",
    "Variation",
    "compare",
    "estimate",
    "estimate_trace",
    "load",
    "record",
    "sensitivity",
    "simulate",
]
