"""The model's calls: estimate a launch, compare two, vary the parameters."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from amdwarp.asm import Program, parse
from amdwarp.cycles.loops import Loop
from amdwarp.cycles.occupancy import occupancy
from amdwarp.cycles.parameters import Parameters, describe, load, span, varied
from amdwarp.cycles.report import TIE, Estimate, build_estimate, loop_clk
from amdwarp.cycles.trace import Trace, record
from amdwarp.cycles.unit import Run, simulate
from amdwarp.errors import UsageError

#: What a loop would be without one kind of delay: the answer to what bounds it where no resource is saturated.
RELIEF: dict[str, dict[str, float]] = {
    "LDS": {
        "lds_pass_clk": 0,
        "lds_input_bytes_per_clk": 1 << 20,
        "lds_return_bytes_per_clk": 1 << 20,
        "lds_fifo": 1 << 20,
    },
    "TCP": {
        "vmem_credit_bytes": 1 << 40,
        "vmem_queue": 1 << 20,
        "tcp_line_clk": 0,
        "tcp_clk_4": 0,
        "tcp_clk_8": 0,
        "tcp_clk_16": 0,
    },
    "latency": {
        "vmem_round_trip_clk": 0,
        "vmem_jitter_clk": 0,
        "vmem_cold_clk": 0,
        "lds_pipe_clk": 0,
        "smem_clk": 0,
        "smem_cold_clk": 0,
    },
    "barrier": {"barrier_clk": 0},
}
#: How far a sensitivity run moves a parameter: a figure with a source by a fifth, a default by a factor of two.
_KNOWN, _UNKNOWN = (0.8, 1.2), (0.5, 2.0)


def estimate(
    compiled: Any,
    args: Sequence[Any],
    grid: tuple[int, ...],
    *,
    workgroups: int | Sequence[int | tuple[int, ...]] = (0,),
    lds_bytes: int | None = None,
    clock_mhz: float | None = None,
    parameters: Parameters | Mapping[str, float] | None = None,
) -> Estimate:
    """Model a launch on one compute unit.

    The kernel is run in the emulator first, for the instructions and addresses of its waves; outputs are written.

    Args:
        compiled: what Triton's compile returned, an AMDGCN text, or a program that was read from one.
        args: run-time arguments in order: numpy arrays, integers, floats; as for `amdwarp.emulator.launch`.
        grid: workgroups along x, y, z.
        workgroups: those whose instructions are taken; where more are resident, they are taken in turn.
        lds_bytes: LDS of a workgroup; by default what `compiled` states.
        clock_mhz: for `Estimate.time_us`; by default the target's highest engine clock.
        parameters: of the target, or values that replace some of them.

    Raises:
        UsageError: wrong arguments, an unknown parameter, a clock that is none, or a workgroup that fits on no compute
            unit.
        EmulatorError: a text that is not known, or an execution that cannot go on.
    """
    check_clock(clock_mhz)
    program, stated = _program(compiled)
    chosen = _parameters(program, parameters)
    trace = record(
        program,
        args,
        grid,
        workgroups=workgroups,
        lds_bytes=stated if lds_bytes is None else lds_bytes,
        parameters=chosen,
    )
    return estimate_trace(trace, chosen, clock_mhz=clock_mhz)


def estimate_trace(trace: Trace, parameters: Parameters | None = None, *, clock_mhz: float | None = None) -> Estimate:
    """The same from a record, so that parameters can be varied without running the kernel again."""
    check_clock(clock_mhz)
    chosen = _parameters(trace.program, parameters)
    shares = occupancy(trace.program, trace.lds_bytes, trace.workgroups, chosen)
    run = simulate(trace, chosen, resident=shares.resident)

    @functools.cache
    def relieved(kind: str) -> Run:
        return simulate(trace, chosen.replace(**RELIEF[kind]), resident=shares.resident)

    def explain(loop: Loop) -> str:
        now = _period(run, loop)
        gains = {kind: now - _period(relieved(kind), loop) for kind in RELIEF}
        best = max(gains, key=lambda kind: gains[kind])
        return best if gains[best] >= TIE * now else "issue"

    return build_estimate(run, trace, chosen, shares, clock_mhz, explain)


def check_clock(mhz: float | None) -> None:
    """Raise `UsageError` for what is no clock; None is the target's own."""
    number = isinstance(mhz, Real) and not isinstance(mhz, bool)
    if mhz is not None and not (number and 0 < mhz < math.inf):
        text = f"{mhz:g}" if number else repr(mhz)
        raise UsageError(f"a clock of {text} MHz is none", remedy="give a positive number of MHz")


def _program(compiled: Any) -> tuple[Program, int | None]:
    """The program and, where it is known, the LDS of a workgroup."""
    if isinstance(compiled, Program):
        return compiled, None
    if isinstance(compiled, str):
        return parse(compiled), None
    text = getattr(compiled, "asm", {}).get("amdgcn")
    if not isinstance(text, str):
        raise UsageError(
            f"{type(compiled).__name__} holds no AMDGCN text",
            remedy="pass a kernel compiled for an AMD GPU, or its text",
        )
    return parse(text), int(compiled.metadata.shared)


def _parameters(program: Program, given: Parameters | Mapping[str, float] | None) -> Parameters:
    if given is None:
        return load(program.target)
    if isinstance(given, Mapping):
        return load(program.target).replace(**given)
    if not isinstance(given, Parameters):
        raise UsageError(
            f"parameters = {given!r} are neither a target's nor values by name",
            remedy='pass amdwarp.cycles.load("gfx950"), or {"barrier_clk": 40}',
        )
    if given.target.arch != program.target:
        raise UsageError(f"the parameters are those of {given.target.arch}, the program is for {program.target}")
    return given


def _period(run: Run, loop: Loop) -> float:
    clk = loop_clk(run, loop)
    assert clk is not None  # what is asked about has been reported, and a wave's path does not depend on parameters
    return clk


# Comparing


@dataclass(frozen=True)
class Comparison:
    """Two estimates of the same work.

    Attributes:
        winner: ``first``, ``second``, or ``tie`` where they differ by less than 3 %.
        ratio: clk of the second over clk of the first, for the whole kernel.
    """

    winner: str
    ratio: float


def compare(first: Estimate, second: Estimate) -> Comparison:
    """Which of two kernels takes fewer clk for its whole grid.

    Raises:
        UsageError: they were computed for different targets or with different parameters, or the target is not
            calibrated: its figures are bounds, and rank nothing.
    """
    for one in (first, second):
        if not isinstance(one, Estimate):
            raise UsageError(
                f"{type(one).__name__} is no estimate", remedy="pass what amdwarp.cycles.estimate returned"
            )
    if (first.target, first.parameters) != (second.target, second.parameters):
        raise UsageError(
            f"{first.target} with parameters {first.parameters} and {second.target} with {second.parameters} "
            "do not compare",
            remedy="estimate both with the same",
        )
    if not first.calibrated:
        raise UsageError(
            f"{first.target} is not calibrated: its figures are bounds, and do not compare",
            remedy="read the limits of each",
        )
    ratio = second.kernel_clk / first.kernel_clk
    if max(ratio, 1 / ratio) - 1 < TIE:
        return Comparison("tie", ratio)
    return Comparison("first" if ratio > 1 else "second", ratio)


# Varying


@dataclass(frozen=True)
class Variation:
    """One parameter moved down and up.

    Attributes:
        name: of the parameter.
        value, low, high: as the file states it, and moved.
        clk, clk_low, clk_high: an iteration of the first loop with each; of the kernel where there is no loop.
    """

    name: str
    value: float
    low: float
    high: float
    clk: float
    clk_low: float
    clk_high: float

    @property
    def spread(self) -> float:
        """Largest change of the clk, as a share."""
        return max(abs(self.clk_low - self.clk), abs(self.clk_high - self.clk)) / self.clk


def sensitivity(estimate: Estimate, parameters: Parameters | None = None, names: Sequence[str] = ()) -> list[Variation]:
    """Move the parameters that are unknown, derived or dependent on circumstances, one at a time.

    Those with a source move by a fifth, defaults by a factor of two, flags are turned. The largest effect comes first.

    Args:
        estimate: whose launch is timed again.
        parameters: the ones it was computed with, if not the file's.
        names: parameters to move; by default all that the file marks.

    Raises:
        UsageError: a name that the file does not have, or other parameters than those of the estimate.
    """
    trace = estimate.trace
    base = _parameters(trace.program, parameters)
    if base.digest != estimate.parameters:
        raise UsageError(
            f"the estimate was computed with parameters {estimate.parameters}, and these are {base.digest}",
            remedy="pass the ones it was computed with",
        )
    label = estimate.loops[0].label if estimate.loops else None
    clk = _clk(trace, base, label)
    rows = []
    for name in names or varied(base.target):
        low, high = moved(base, name)
        each = [_clk(trace, base.replace(**{name: x}), label) for x in (low, high)]
        rows.append(Variation(name, getattr(base, name), low, high, clk, *each))
    return sorted(rows, key=lambda row: -row.spread)


def moved(parameters: Parameters, name: str) -> tuple[float, float]:
    """Where a sensitivity run moves a parameter; not beyond what it can be."""
    stated = {row[0]: row for row in describe(parameters.target)}
    if name not in stated:
        raise UsageError(f"unknown parameter {name!r}", remedy=f"known are {', '.join(sorted(stated))}")
    _, _, unit, evidence, *_ = stated[name]
    value = getattr(parameters, name)
    if unit == "flag":
        return 1 - value, 1 - value
    least, most = span(name, unit)
    if not value:
        return 0, min(4 * parameters.issue_period_clk, most)
    down, up = _UNKNOWN if evidence == "unknown" else _KNOWN
    return max(value * down, least), min(value * up, most)


def _clk(trace: Trace, parameters: Parameters, label: str | None) -> float:
    shares = occupancy(trace.program, trace.lds_bytes, trace.workgroups, parameters)
    run = simulate(trace, parameters, resident=shares.resident)
    loop = next((loop for loop in run.loops if loop.label == label), None)
    return _period(run, loop) if loop is not None else float(run.total_clk)
