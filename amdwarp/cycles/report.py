"""From a run of the unit to figures: clk an iteration, stalls by cause, what bounds a loop, time of the kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from amdwarp.asm import Program
from amdwarp.cycles.issue import CAUSES
from amdwarp.cycles.limits import work_of
from amdwarp.cycles.loops import Loop
from amdwarp.cycles.occupancy import Occupancy
from amdwarp.cycles.parameters import Parameters
from amdwarp.cycles.trace import Trace
from amdwarp.cycles.unit import Run
from amdwarp.cycles.wave import Mark, Wave

#: A resource that is busy for this share of an iteration bounds the loop.
SATURATED = 0.85
#: Differences below this share are ties.
TIE = 0.03
#: Iterations left out before the steady state, and after it.
_WARM_UP, _COOL_DOWN = 3, 1
#: Waves whose measured iterations overlap for this share of their time go through the loop together.
_TOGETHER = 0.8


@dataclass(frozen=True)
class LoopReport:
    """One loop in steady state, modelled.

    Attributes:
        label: label of its first instruction.
        line: line of that label's first instruction in the text.
        source: ``file:line`` of the kernel it came from, or "".
        iterations: times a wave went through it.
        clk_per_iteration: clk in which each of the waves makes one iteration.
        mfma_busy: share of the clk for which the matrix units had work, mean over the SIMDs.
        mfma_busy_simd: the same for each SIMD.
        bound: what holds the loop: MFMA, LDS, TCP, issue, latency or barrier.
        limits: clk an iteration needs on MFMA, LDS, TCP and issue slots alone.
        distance: clk_per_iteration over the largest of `limits`, minus 1.
        stalls: clk an iteration in which a wave could not issue, by cause, mean over the waves.
        steady: the two halves of the measured iterations differ by less than a tie.
    """

    label: str
    line: int
    source: str
    iterations: int
    clk_per_iteration: float
    mfma_busy: float
    mfma_busy_simd: tuple[float, ...]
    bound: str
    limits: dict[str, float]
    distance: float
    stalls: dict[str, float]
    steady: bool

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "label": self.label,
            "line": self.line,
            "source": self.source,
            "iterations": self.iterations,
            "clk_per_iteration": round(self.clk_per_iteration, 2),
            "mfma_busy": round(self.mfma_busy, 4),
            "mfma_busy_simd": [round(x, 4) for x in self.mfma_busy_simd],
            "bound": self.bound,
            "limits": {name: round(clk, 2) for name, clk in self.limits.items()},
            "distance": round(self.distance, 4),
            "stalls": {cause: round(clk, 2) for cause, clk in self.stalls.items()},
            "steady": self.steady,
        }


@dataclass(frozen=True)
class Estimate:
    """A launch on one compute unit, modelled. Nothing in it was measured.

    Attributes:
        kernel: name of the kernel.
        target: the GPU's architecture.
        calibrated: the parameters of this target rest on measurements; where not, take `LoopReport.limits` only.
        parameters: digest of the parameters.
        loops: the loops that were gone through more than once, the one with most clk first.
        total_clk: from the first instruction to the end of the last wave, for the workgroups that share a CU.
        prologue_clk, loop_clk, epilogue_clk: before, in and after the first of `loops`, mean over its waves.
        workgroups: of the launch.
        fitting, resident, rounds: see `amdwarp.cycles.occupancy.Occupancy`.
        kernel_clk: `total_clk` times `rounds`.
        clock_mhz: the clock that `time_us` is for.
        wave_instructions: issued in the model.
        trace: the record it was computed from.
    """

    kernel: str
    target: str
    calibrated: bool
    parameters: str
    loops: tuple[LoopReport, ...]
    total_clk: int
    prologue_clk: float
    loop_clk: float
    epilogue_clk: float
    workgroups: int
    fitting: int
    resident: int
    rounds: int
    kernel_clk: int
    clock_mhz: float
    wave_instructions: int
    trace: Trace = field(repr=False, compare=False)

    @property
    def time_us(self) -> float:
        """Modelled time at `clock_mhz`."""
        return self.kernel_clk / self.clock_mhz

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "modelled": True,
            "kernel": self.kernel,
            "target": self.target,
            "calibrated": self.calibrated,
            "parameters": self.parameters,
            "loops": [loop.to_json() for loop in self.loops],
            "total_clk": self.total_clk,
            "prologue_clk": round(self.prologue_clk, 1),
            "loop_clk": round(self.loop_clk, 1),
            "epilogue_clk": round(self.epilogue_clk, 1),
            "workgroups": self.workgroups,
            "resident": self.resident,
            "rounds": self.rounds,
            "kernel_clk": self.kernel_clk,
            "clock_mhz": self.clock_mhz,
            "time_us": round(self.time_us, 2),
        }


@dataclass(frozen=True)
class Steady:
    """Steady state of a loop on one wave: the marks it lies between, and the iterations between them."""

    first: Mark
    last: Mark
    count: int
    even: bool

    @property
    def period(self) -> float:
        """Clk an iteration."""
        return (self.last.t - self.first.t) / self.count


def visits(wave: Wave, loop: Loop) -> list[list[Mark]]:
    """The wave's marks at the loop's header, one list for each time it came to the loop from outside."""
    found: list[list[Mark]] = []
    for mark in wave.marks:
        if mark.header == loop.header:
            if mark.again and found:
                found[-1].append(mark)
            else:
                found.append([mark])
    return found


def steady_state(wave: Wave, loop: Loop) -> Steady | None:
    """The middle of the wave's longest visit to a loop, or None if it went through it at most once."""
    marks = max(visits(wave, loop), key=len, default=[])
    intervals = len(marks) - 1
    if intervals < 1:
        return None
    first, last = 0, intervals
    if intervals >= 2 * (_WARM_UP + _COOL_DOWN):
        first, last = _WARM_UP, intervals - _COOL_DOWN
        # rings of two slots repeat every other iteration
        first += (last - first) % 2
    elif intervals >= 2:
        first = 1
    middle = (first + last) // 2
    even = True
    if first < middle < last:
        early = (marks[middle].t - marks[first].t) / (middle - first)
        late = (marks[last].t - marks[middle].t) / (last - middle)
        even = abs(late - early) < TIE * early
    return Steady(marks[first], marks[last], last - first, even)


def report_loop(
    run: Run, loop: Loop, program: Program, parameters: Parameters, explain: Callable[[], str]
) -> LoopReport | None:
    """Figures of one loop, or None if no wave went through it more than once.

    Args:
        run, loop, program, parameters: what it is about.
        explain: says what bounds a loop in which no resource is saturated.
    """
    found = _steady_waves(run, loop)
    if not found:
        return None
    clk = _clk_together(found, loop)
    busy: dict[int, float] = {}
    for wave, state in found:
        spent = state.last.t - state.first.t
        busy.setdefault(wave.simd.number, (state.last.mfma_clk - state.first.mfma_clk) / spent)
    stalls = {}
    for number, cause in enumerate(CAUSES):
        each = [_stalled(state, number) / state.count for _, state in found]
        if any(each):
            stalls[cause] = sum(each) / len(each)
    limits = work_of(run, loop, parameters).limits()
    top = max(limits, key=lambda name: limits[name])
    inst = program.instructions[loop.header]
    rates = tuple(busy[number] for number in sorted(busy))
    return LoopReport(
        label=loop.label,
        line=inst.line,
        source=str(inst.source or ""),
        iterations=max(sum(len(one) for one in visits(wave, loop)) for wave, _ in found),
        clk_per_iteration=clk,
        mfma_busy=sum(rates) / len(rates),
        mfma_busy_simd=rates,
        bound=top if limits[top] >= SATURATED * clk else explain(),
        limits=limits,
        distance=clk / limits[top] - 1,
        stalls=stalls,
        steady=all(state.even for _, state in found),
    )


def loop_clk(run: Run, loop: Loop) -> float | None:
    """`LoopReport.clk_per_iteration` of a loop, or None if no wave went through it more than once."""
    found = _steady_waves(run, loop)
    return _clk_together(found, loop) if found else None


def _steady_waves(run: Run, loop: Loop) -> list[tuple[Wave, Steady]]:
    return [(wave, state) for wave in run.waves if (state := steady_state(wave, loop)) is not None]


def _clk_together(found: Sequence[tuple[Wave, Steady]], loop: Loop) -> float:
    """Clk in which all waves make one iteration.

    That is the period of a wave, where all go through the loop at the same time. Where the oldest run ahead and the
    youngest wait for them to end, it is the time over the iterations that all made together, for each wave one.
    """
    start, end = (max(s.first.t for _, s in found), min(s.last.t for _, s in found))
    if end - start >= _TOGETHER * max(s.last.t - s.first.t for _, s in found):
        return sum(state.period for _, state in found) / len(found)
    start = min(s.first.t for _, s in found)
    made = sum(_made(wave, loop, start, end) for wave, _ in found)
    return len(found) * (end - start) / made


def _made(wave: Wave, loop: Loop, start: int, end: int) -> float:
    """Iterations of a wave's longest visit between two times, the parts of iterations counted by their clk."""
    marks = [mark.t for mark in max(visits(wave, loop), key=len)]
    spans = ((max(a, start), min(b, end), b - a) for a, b in pairwise(marks))
    return sum((last - first) / clk for first, last, clk in spans if last > first)


def _stalled(state: Steady, cause: int) -> int:
    """Clk of a cause between the marks, over all regions of the program: nothing else ran in between."""
    step = len(CAUSES)
    return sum(state.last.stalls[cause::step]) - sum(state.first.stalls[cause::step])


def build_estimate(
    run: Run,
    trace: Trace,
    parameters: Parameters,
    shares: Occupancy,
    clock_mhz: float | None,
    explain: Callable[[Loop], str],
) -> Estimate:
    """The figures of a run."""
    program = trace.program
    reports = []
    for loop in run.loops:
        one = report_loop(run, loop, program, parameters, lambda loop=loop: explain(loop))  # type: ignore[misc]
        if one is not None:
            reports.append((one, loop))
    reports.sort(key=lambda pair: -pair[0].clk_per_iteration * pair[0].iterations)
    prologue, inside, epilogue = _parts(run.waves, reports[0][1] if reports else None)
    return Estimate(
        kernel=program.name,
        target=program.target,
        calibrated=parameters.calibrated,
        parameters=parameters.digest,
        loops=tuple(one for one, _ in reports),
        total_clk=run.total_clk,
        prologue_clk=prologue,
        loop_clk=inside,
        epilogue_clk=epilogue,
        workgroups=trace.workgroups,
        fitting=shares.fitting,
        resident=shares.resident,
        rounds=shares.rounds,
        kernel_clk=run.total_clk * shares.rounds,
        clock_mhz=parameters.clock_mhz if clock_mhz is None else clock_mhz,
        wave_instructions=run.issued,
        trace=trace,
    )


def _parts(waves: Sequence[Wave], loop: Loop | None) -> tuple[float, float, float]:
    """Clk of a wave before, in and after the loop, mean over the waves that enter it; without a loop all is before."""
    found = []
    for wave in waves:
        starts = [mark.t for mark in wave.marks if loop is not None and mark.header == loop.header]
        if starts and loop is not None:
            end = max(wave.tails.get(tail, starts[-1]) for tail in loop.tails)
            found.append((starts[0] - wave.started, end - starts[0], wave.ended - end))
    if not found:
        return sum(wave.ended - wave.started for wave in waves) / len(waves), 0.0, 0.0
    before, inside, after = (sum(clk) / len(found) for clk in zip(*found, strict=True))
    return before, inside, after
