"""``amdwarp cycles`` and ``amdwarp timeline``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from amdwarp.arguments import read_arguments
from amdwarp.asm import parse
from amdwarp.choice import Arch, BOrder, Dtype, Kernel, Schedule, Shape, ZooChoice, only_one, refuse
from amdwarp.cycles.estimate import check_clock, compare, estimate_trace, sensitivity
from amdwarp.cycles.parameters import WHOLE, Parameters, load
from amdwarp.cycles.report import Estimate, LoopReport
from amdwarp.cycles.trace import Trace, record
from amdwarp.cycles.zoo import SMALL_SHAPES
from amdwarp.errors import UsageError
from amdwarp.files import check_writable, write_whole
from amdwarp.runtime import memory_span

Schedules = Annotated[
    list[str] | None, typer.Option("--schedule", help="Name of a schedule; the kernel's own by default; may repeat.")
]
Args = Annotated[str | None, typer.Option("--args", help="JSON file with the arguments of an AMDGCN text.")]
Grid = Annotated[str | None, typer.Option(help="X[,Y[,Z]] workgroups of an AMDGCN text.")]
Lds = Annotated[int | None, typer.Option(help="Bytes of LDS of a workgroup, where an AMDGCN text does not say.")]
Workgroup = Annotated[int, typer.Option(help="Flat index of the workgroup whose instructions are taken.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE replaces a parameter; may repeat.")]


@dataclass(frozen=True)
class _Case:
    """A launch to be timed: name, AMDGCN text, record, parameters."""

    name: str
    text: str
    trace: Trace
    parameters: Parameters


def cycles(
    kernel: Kernel,
    arch: Arch = None,
    shape: Shape = None,
    dtype: Dtype = None,
    schedule: Schedules = None,
    b_order: BOrder = None,
    args: Args = None,
    grid: Grid = None,
    lds: Lds = None,
    workgroup: Workgroup = 0,
    clock: Annotated[float | None, typer.Option(help="MHz for the modelled time; the highest by default.")] = None,
    values: Set = None,
    vary: Annotated[bool, typer.Option("--sensitivity", help="Move the uncertain parameters, one at a time.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Model what a kernel costs on a compute unit: clk an iteration, stalls by cause, what bounds it."""
    check_clock(clock)
    choice = ZooChoice(kernel, arch, shape, dtype, schedule, b_order)
    cases = _cases(choice, _FileOptions(args, grid, lds), workgroup, values)
    done = [(case, estimate_trace(case.trace, case.parameters, clock_mhz=clock)) for case in cases]
    if as_json:
        typer.echo(json.dumps(_json(done, vary)))
        return
    console = Console()
    for case, one in done:
        _print(console, case, one)
        if vary:
            _print_sensitivity(console, case, one)
    for case, one in done[1:]:
        _print_comparison(console, done[0], (case, one))


def timeline(
    kernel: Kernel,
    output: Annotated[list[str], typer.Option("-o", "--output", help=".pftrace, .png or .svg; may repeat.")],
    arch: Arch = None,
    shape: Shape = None,
    dtype: Dtype = None,
    schedule: Schedule = None,
    b_order: BOrder = None,
    args: Args = None,
    grid: Grid = None,
    lds: Lds = None,
    workgroup: Workgroup = 0,
    values: Set = None,
    iterations: Annotated[
        int | None,
        typer.Option(help="Of the innermost loop with most clk; a picture: 1 by default, a trace: all."),
    ] = None,
    simd: Annotated[int, typer.Option(help="The SIMD whose waves a picture shows.")] = 0,
) -> None:
    """Write the model's timeline as a Perfetto trace or a picture."""
    from amdwarp.cycles.perfetto import trace_bytes
    from amdwarp.cycles.picture import draw
    from amdwarp.cycles.stages import stage_names
    from amdwarp.cycles.timeline import build_timeline
    from amdwarp.cycles.unit import simulate

    for path in output:
        if Path(path).suffix not in (".pftrace", ".png", ".svg"):
            raise UsageError(f"{path!r} is no known kind of file", remedy="use .pftrace, .png or .svg")
        check_writable(path)
    if iterations is not None and iterations < 1:
        raise UsageError(f"{iterations} iterations show nothing", remedy="give --iterations a positive number")
    choice = ZooChoice(kernel, arch, shape, dtype, only_one("--schedule", schedule, "timeline"), b_order)
    (case,) = _cases(choice, _FileOptions(args, grid, lds), workgroup, values, SMALL_SHAPES.get(kernel))
    if not 0 <= simd < case.parameters.target.simds:
        raise UsageError(f"there is no SIMD {simd}", remedy=f"have 0 to {case.parameters.target.simds - 1}")
    one = estimate_trace(case.trace, case.parameters)
    run = simulate(case.trace, case.parameters, resident=one.resident, keep_log=True)
    title = f"{case.name}: modelled, {one.target}, parameters {one.parameters}"
    if not one.calibrated:
        title += ", uncalibrated"
    names = stage_names(case.text, case.trace.program)
    for path in output:
        shown = iterations if iterations is not None or path.endswith(".pftrace") else 1
        lanes = build_timeline(run, case.trace, names, title=title, iterations=shown)
        if path.endswith(".pftrace"):
            write_whole(path, trace_bytes(lanes, case.trace.program))
        else:
            draw(lanes, path, simd)
        typer.echo(f"{path}: {len(lanes.slices)} slices, clk {lanes.start} to {lanes.end}, modelled")


# Launches


@dataclass(frozen=True)
class _FileOptions:
    """Options that only an AMDGCN text takes; None where one was not given."""

    args: str | None
    grid: str | None
    lds: int | None


def _cases(
    choice: ZooChoice,
    options: _FileOptions,
    workgroup: int,
    values: Sequence[str] | None,
    shape: tuple[int, int, int] | None = None,
) -> list[_Case]:
    replaced = dict(_assignment(text) for text in values or ())
    if not choice.of_the_zoo:
        return [_file_case(choice.file(), options, workgroup, replaced)]
    given = {"--args": options.args, "--grid": options.grid, "--lds": options.lds}
    refuse(f"{choice.kernel} is a kernel of the zoo, which has its own", given, "an AMDGCN text")
    cases = []
    for one in choice.launches(shape):
        text, shared = one.compiled.asm["amdgcn"], int(one.compiled.metadata.shared)
        cases.append(_case(one.name, text, one.args, one.grid, shared, workgroup, replaced))
    return cases


def _file_case(path: Path, options: _FileOptions, workgroup: int, replaced: dict[str, float]) -> _Case:
    from amdwarp.check import parse_grid, read_text

    if options.grid is None:
        raise UsageError("an AMDGCN text needs --grid", remedy="give --grid X[,Y[,Z]]")
    sizes = parse_grid(options.grid, 1)
    if options.lds is not None and options.lds < 0:
        raise UsageError(f"{options.lds} bytes of LDS are no size", remedy="give --lds 0 or more")
    return _case(path.name, read_text(str(path)), _arguments(options.args), sizes, options.lds, workgroup, replaced)


def _arguments(path: str | None) -> list[Any]:
    if path is None:
        return []
    return [memory_span(value) if isinstance(value, np.ndarray) else value for value in read_arguments(path)]


def _case(
    name: str,
    text: str,
    args: Sequence[Any],
    grid: tuple[int, ...],
    lds: int | None,
    workgroup: int,
    replaced: dict[str, float],
) -> _Case:
    program = parse(text)
    parameters = load(program.target)
    if replaced:
        parameters = parameters.replace(**replaced)
    trace = record(program, args, grid, workgroups=[workgroup], lds_bytes=lds, parameters=parameters)
    return _Case(name, text, trace, parameters)


def _assignment(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        raise UsageError(f"{text!r} is not NAME=VALUE", remedy="write it like --set vmem_round_trip_clk=1500") from None
    if name in WHOLE and number % 1:
        raise UsageError(f"{text!r}: {name} is a whole number")
    return name, number


# Output


def _json(done: list[tuple[_Case, Estimate]], vary: bool) -> dict[str, Any]:
    objects = []
    for case, one in done:
        content = {"case": case.name} | one.to_json()
        if vary:
            content["sensitivity"] = [vars(row) for row in sensitivity(one, case.parameters)]
        objects.append(content)
    if len(objects) == 1:
        return objects[0]
    first = done[0][1]
    ranked = done[1:] if first.calibrated else []
    against = [{"case": case.name} | vars(compare(first, one)) for case, one in ranked]
    return {"modelled": True, "cases": objects, "compared_with_the_first": against}


def _print(console: Console, case: _Case, one: Estimate) -> None:
    trust = "" if one.calibrated else ", an uncalibrated target: only the limits say something, as bounds"
    lines = [case.name, f"modelled, not measured: {one.target}{trust}; parameters {one.parameters}"]
    for loop in one.loops:
        lines += _loop_lines(loop)
    if not one.loops:
        lines.append("no loop that a wave goes through more than once")
    fits = f"{one.fitting} fit" + ("s" if one.fitting == 1 else "")
    parts = f": prologue {one.prologue_clk:.0f}, loop {one.loop_clk:.0f}, epilogue {one.epilogue_clk:.0f}"
    count = f"{one.workgroups} workgroup" + ("" if one.workgroups == 1 else "s")
    lines += [
        f"workgroup: {one.total_clk} clk{parts * bool(one.loops)}",
        f"launch: {count}, {one.resident} a compute unit at a time ({fits}), rounds: {one.rounds}",
        f"  {one.kernel_clk} clk, {one.time_us:.1f} us at {one.clock_mhz:.0f} MHz, modelled",
    ]
    for line in lines:
        console.print(line, markup=False, highlight=False)


def _loop_lines(loop: LoopReport) -> list[str]:
    top = max(loop.limits, key=lambda name: loop.limits[name])
    others = ", ".join(f"{name} {clk:.0f}" for name, clk in loop.limits.items() if name != top)
    place = f"line {loop.line}" + (f", {Path(loop.source).name}" if loop.source else "")
    stalls = sorted(loop.stalls.items(), key=lambda pair: -pair[1])
    clk = f"{loop.clk_per_iteration:.1f} clk an iteration" + ("" if loop.steady else ", not steady")
    return [
        f"loop {loop.label} ({place}), {loop.iterations} iterations",
        f"  {clk}, MFMA busy {loop.mfma_busy:.1%}, bound: {loop.bound}",
        f"  {loop.distance:.1%} over the limit of {top}, {loop.limits[top]:.0f} clk ({others})",
        "  a wave is stalled for: " + ", ".join(f"{cause} {clk:.0f}" for cause, clk in stalls),
    ]


def _print_sensitivity(console: Console, case: _Case, one: Estimate) -> None:
    title = "modelled clk of an iteration when a parameter moves" if one.loops else "modelled clk"
    table = Table(title=title, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("parameter", "value", "moved to", "clk", "clk moved", "change"):
        table.add_column(column, justify="left" if column == "parameter" else "right")
    for row in sensitivity(one, case.parameters):
        moved, clk = f"{row.low:.4g}, {row.high:.4g}", f"{row.clk_low:.0f}, {row.clk_high:.0f}"
        table.add_row(row.name, f"{row.value:.4g}", moved, f"{row.clk:.0f}", clk, f"{row.spread:.1%}")
    console.print(table)


def _print_comparison(console: Console, first: tuple[_Case, Estimate], second: tuple[_Case, Estimate]) -> None:
    names = f"{second[0].name} / {first[0].name}"
    if not first[1].calibrated:
        console.print(f"{names}: not compared, {first[1].target} is not calibrated", markup=False, highlight=False)
        return
    outcome = compare(first[1], second[1])
    if outcome.winner == "tie":
        text = "a tie: less than 3 % apart"
    else:
        better = first if outcome.winner == "first" else second
        text = f"{better[0].name} takes fewer clk"
    console.print(f"{names}: {outcome.ratio:.3f} modelled, {text}", markup=False)
