"""A run of the model as lanes of slices: what each wave did when, and what the units behind it were busy with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from amdwarp.asm import Instruction
from amdwarp.cycles.issue import WaitOp
from amdwarp.cycles.report import steady_state
from amdwarp.cycles.trace import Trace
from amdwarp.cycles.unit import Event, Run, Wave

#: Lanes of a wave, in the order in which they are shown.
LANES = ("stage", "mfma", "valu", "salu", "lds", "vmem", "wait", "barrier")
#: Kinds of instructions that have a lane of their own; the rest is on ``salu``.
_OWN = frozenset(("mfma", "valu", "lds", "vmem", "wait", "barrier"))


@dataclass(frozen=True, slots=True)
class Slice:
    """Something that lasted.

    Attributes:
        simd: the SIMD.
        wave: number of the wave on the CU, or None on a lane of the SIMD itself (``mfma``: its matrix unit).
        lane: one of `LANES`.
        start, end: clk.
        name: what it says.
        index: the instruction, or None for a stage.
    """

    simd: int
    wave: int | None
    lane: str
    start: int
    end: int
    name: str
    index: int | None = None


@dataclass(frozen=True)
class Timeline:
    """Slices of a part of a run.

    Attributes:
        slices: in order of their start.
        start, end: the part, clk.
        waves: (number, SIMD) of the waves, by SIMD.
        title: kernel, target and parameters.
    """

    slices: list[Slice]
    start: int
    end: int
    waves: list[tuple[int, int]]
    title: str

    def lane(self, simd: int, wave: int | None, lane: str) -> list[Slice]:
        """The slices of one lane."""
        return [one for one in self.slices if (one.simd, one.wave, one.lane) == (simd, wave, lane)]


def build_timeline(
    run: Run,
    trace: Trace,
    names: Sequence[str | None],
    *,
    title: str,
    iterations: int | None = None,
) -> Timeline:
    """The lanes of a run that was made with ``keep_log``.

    Args:
        run: the run.
        trace: what it timed.
        names: for each instruction its stage, or None (`amdwarp.cycles.stages.stage_names`).
        title: for the head of the picture.
        iterations: only so many iterations of the largest loop, in steady state; None for everything.
    """
    start, end = _window(run, iterations)
    simds = {wave.number: wave.simd.number for wave in run.waves}
    by_wave: dict[int, list[Event]] = {wave.number: [] for wave in run.waves}
    for event in sorted(run.events, key=lambda event: event.start):
        by_wave[event.wave].append(event)
    program = trace.program.instructions
    slices: list[Slice] = []
    for wave in run.waves:
        simd = simds[wave.number]
        for event in by_wave[wave.number]:
            if event.start < end and event.end > start:
                slices += _of_event(run, simd, event, program[event.index])
        stages = _stages(run, wave, by_wave[wave.number], names, simd)
        slices += [one for one in stages if one.start < end and one.end > start]
    order = sorted(((number, simd) for number, simd in simds.items()), key=lambda pair: (pair[1], pair[0]))
    return Timeline(sorted(slices, key=lambda one: (one.start, one.end)), start, end, order, title)


def _window(run: Run, iterations: int | None) -> tuple[int, int]:
    if iterations is None:
        return 0, run.total_clk
    best: tuple[float, int, int] | None = None
    for loop in run.loops:
        states = [state for wave in run.waves if (state := steady_state(wave, loop)) is not None]
        if states:
            state = states[0]
            weight = state.period * state.count
            if best is None or weight > best[0]:
                shown = min(iterations, state.count)
                best = (weight, state.first.t, state.first.t + round(shown * state.period))
    return (0, run.total_clk) if best is None else best[1:]


def _of_event(run: Run, simd: int, event: Event, inst: Instruction) -> list[Slice]:
    """A wave's lane, and for a matrix instruction the matrix unit as well."""
    op = run.decoded.ops[event.index]
    lane = op.name if op.name in _OWN else "salu"
    slot = event.start + simd_period(run)
    # what a wave does to go on is its slot; only memory and waits last until they are done
    end = event.end if lane in ("lds", "vmem", "wait", "barrier") else slot
    name = inst.text if lane in ("wait", "barrier") else inst.base
    found = [Slice(simd, event.wave, lane, event.start, end, name, event.index)]
    if lane == "mfma":
        found[0] = Slice(simd, event.wave, lane, event.start, event.end, name, event.index)
        found.append(Slice(simd, None, "mfma", event.start, event.end, f"wave {event.wave}", event.index))
    return found


def simd_period(run: Run) -> int:
    """Clk of an issue slot."""
    return run.simds[0].period


def _stages(run: Run, wave: Wave, events: list[Event], names: Sequence[str | None], simd: int) -> list[Slice]:
    """What lies between two barriers is one stage, named by most of its instructions that have a name."""
    found: list[Slice] = []
    part: list[Event] = []
    loops = {index for loop in run.loops for index in loop.body}
    for event in events:
        op = run.decoded.ops[event.index]
        if op.name == "barrier":
            found += _stage(run, wave, part, names, simd, loops)
            part = []
        else:
            part.append(event)
    return found + _stage(run, wave, part, names, simd, loops)


def _stage(
    run: Run, wave: Wave, part: list[Event], names: Sequence[str | None], simd: int, loops: set[int]
) -> list[Slice]:
    if not part:
        return []
    votes = Counter(name for event in part if (name := names[event.index]) is not None)
    if votes:
        name = votes.most_common(1)[0][0]
    elif any(event.index in loops for event in part):
        kinds = Counter(run.decoded.ops[event.index].name for event in part)
        name = "MFMA" if kinds["mfma"] else "memory" if kinds["lds"] or kinds["vmem"] else "other"
    else:
        return []
    last = part[-1]
    waits = isinstance(run.decoded.ops[last.index], WaitOp)
    end = last.end if waits else last.start + simd_period(run)
    return [Slice(simd, wave.number, "stage", part[0].start, max(end, part[0].start + 1), name)]
