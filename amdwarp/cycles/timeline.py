"""A run of the model as lanes of slices: what each wave did when, and what the units behind it were busy with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from amdwarp.asm import Instruction
from amdwarp.cycles.issue import MatrixOp
from amdwarp.cycles.report import steady_state
from amdwarp.cycles.sync import WaitOp
from amdwarp.cycles.trace import Trace
from amdwarp.cycles.unit import Event, Run
from amdwarp.cycles.wave import Wave

#: Lanes of a wave, in the order in which they are shown.
LANES = ("stage", "mfma", "valu", "salu", "lds", "vmem", "wait", "barrier")
#: Share of the named instructions between two barriers that makes a stage, and of a stage's own that may stray.
_SHARE, _STRAY = 0.1, 0.05
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
        iterations: only so many iterations, in steady state, of the innermost loop that takes most of the time, one
            that multiplies if there is any; None for everything.
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
    found = []
    for loop in run.loops:
        states = [state for wave in run.waves if (state := steady_state(wave, loop)) is not None]
        if states:
            found.append((loop, states[0]))
    # a loop around others is not what anybody wants to see one iteration of
    inner = [(loop, state) for loop, state in found if not any(other.body < loop.body for other, _ in found)]
    if not inner:
        return 0, run.total_clk
    multiplies = {op.index for op in run.decoded.ops if isinstance(op, MatrixOp)}
    _, state = max(inner, key=lambda one: (not multiplies.isdisjoint(one[0].body), one[1].period * one[1].count))
    return state.first.t, state.first.t + round(min(iterations, state.count) * state.period)


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
    """The stages between each two barriers."""
    found: list[Slice] = []
    part: list[Event] = []
    loops = {index for loop in run.loops for index in loop.body}
    for event in events:
        if run.decoded.ops[event.index].name != "barrier":
            part.append(event)
            continue
        found += _between(run, wave, part, names, simd, loops)
        part = []
    return found + _between(run, wave, part, names, simd, loops)


def _between(
    run: Run, wave: Wave, part: list[Event], names: Sequence[str | None], simd: int, loops: set[int]
) -> list[Slice]:
    """Stages that follow each other are told apart; stages that are woven into each other are shown as one."""
    if not part:
        return []
    # priorities and waits at the edge of a stage carry the line of the next one
    works = [run.decoded.ops[event.index].name not in ("wait", "other") for event in part]
    groups = _groups([names[event.index] if work else None for event, work in zip(part, works, strict=True)])
    if not groups and any(event.index in loops for event in part):
        kinds = Counter(run.decoded.ops[event.index].name for event in part)
        name = "MFMA" if kinds["mfma"] else "memory" if kinds["lds"] or kinds["vmem"] else "other"
        groups = [(0, name)]
    if not groups:
        return []
    slices = []
    firsts = [0, *(first for first, _ in groups[1:]), len(part)]
    for (_, name), (first, behind) in zip(groups, pairwise(firsts), strict=True):
        last = part[behind - 1]
        waits = isinstance(run.decoded.ops[last.index], WaitOp)
        end = last.end if waits else last.start + simd_period(run)
        slices.append(Slice(simd, wave.number, "stage", part[first].start, end, name))
    return slices


def _groups(names: list[str | None]) -> list[tuple[int, str]]:
    """(position of the first, name) of runs of names; names whose positions mix form one run.

    A name with less than a tenth of the positions does not count: the compiler moves single instructions.
    """
    places: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        if name is not None:
            places.setdefault(name, []).append(at)
    total = sum(map(len, places.values()))
    spans = []
    for name, where in places.items():
        if len(where) >= _SHARE * total:
            edge = int(len(where) * _STRAY)
            spans.append((where[edge], where[-1 - edge], where[0], name))
    groups: list[tuple[int, int, str]] = []
    for low, high, first, name in sorted(spans):
        if groups and low <= groups[-1][1]:
            start, end, together = groups[-1]
            groups[-1] = (start, max(end, high), f"{together} + {name}")
        else:
            groups.append((max(first, groups[-1][1] + 1) if groups else first, high, name))
    return [(start, name) for start, _, name in groups]
