"""``amdwarp explain``: what the schedule of a kernel asked for, and what LLVM made of it.

Of each intra-wave window: prices, the order asked for and the one in the text, the longest run of matrix
instructions, waits and barriers inside. Of each inter-wave pipeline: stages, priorities, and the barriers in the text.
Of the kernel: registers, spills, LDS, and the waves that fit on a SIMD.

Everything is read from texts: the AMDGCN text, our scheduled TTGIR (``asm["amdwarp"]``) and the TTGIR before it
(``asm["ttgir"]``). Of an AMDGCN file those beside it are used, as Triton's cache names them.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from . import env
from .choice import Arch, BOrder, Dtype, Kernel, Schedule, Shape, ZooChoice, only_one
from .errors import UsageError
from .loops import LoopReport, by_letter, loops
from .resources import resources
from .target import Target, get_target
from .task_registers import METADATA
from .weave import shortened, windows_are

_GRANULE = 8  # vector registers are given out in eights
# what takes LDS; a permutation of lanes only goes through its crossbar
_LDS = re.compile(r"^\s*(?:ds_(?!b?permute|swizzle)\w+|\w+_lds\w*|\w+_load\w*\s.*\blds\b)", re.M)
_PLAIN: dict[str, Any] = {"box": None, "pad_edge": False, "padding": (0, 2, 0, 0)}


@dataclass(frozen=True)
class OpReport:
    """A priced operation: name, ``file:line``, and price."""

    name: str
    where: str
    price: str


@dataclass(frozen=True)
class WindowReport:
    """One window, or one copy of it.

    Attributes:
        number, label, where: which one; without TTGIR the label is "" and the place that of its first instruction.
        ops: its priced operations; none without TTGIR.
        priced: instructions a class, by letter, as asked for.
        asked, realised: its instructions in order, one letter each.
        anchors: memory and transcendental instructions.
        misplaced: anchors that stand elsewhere than asked for.
        longest_run: of matrix instructions with nothing woven in between, as realised.
        waits, barriers: inside it.
        ok: whether it counts as realised.
    """

    number: int
    label: str
    where: str | None
    ops: list[OpReport]
    priced: dict[str, int]
    asked: str
    realised: str
    anchors: int
    misplaced: int
    longest_run: int
    waits: int
    barriers: int
    ok: bool


@dataclass(frozen=True)
class StageReport:
    """A stage of a pipeline: label, ``s_setprio`` value or None, ``file:line``."""

    label: str
    priority: int | None
    where: str | None


@dataclass(frozen=True)
class PipelineReport:
    """An inter-wave pipeline as its source has it: a loop or straight code, phase gap, stages."""

    loop: bool
    gap: int
    stages: list[StageReport]


@dataclass(frozen=True)
class Explanation:
    """All of it, for one kernel.

    Attributes:
        name: of the kernel.
        target: arch.
        vgprs, agprs, sgprs, spills: registers a lane, and those put in memory.
        lds_bytes: of a workgroup; None where the text uses LDS and does not say how much.
        waves: of a workgroup.
        occupancy: waves a SIMD holds at once, by registers and, where it is known, LDS.
        tasks: what the compiled kernel's metadata says of its tasks; see ``task_registers.py``.
    """

    name: str
    target: str
    vgprs: int
    agprs: int
    sgprs: int
    spills: int
    lds_bytes: int | None
    waves: int
    occupancy: int
    windows: list[WindowReport]
    pipelines: list[PipelineReport] = field(default_factory=list)
    loops: list[LoopReport] = field(default_factory=list)
    tasks: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(window.ok for window in self.windows)

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def explain_kernel(compiled: Any) -> Explanation:
    """Explain a compiled kernel.

    Args:
        compiled: what ``amdwarp.compile`` or Triton returned.
    """
    asm = compiled.asm
    report = explain_texts(asm["amdgcn"], asm.get("amdwarp"), asm.get("ttgir"), int(compiled.metadata.shared))
    return replace(report, tasks=[*getattr(compiled.metadata, METADATA, ())])


def explain_texts(
    amdgcn: str, scheduled: str | None = None, before: str | None = None, lds_bytes: int | None = None
) -> Explanation:
    """Explain a kernel from its texts.

    Args:
        amdgcn: the AMDGCN text.
        scheduled: TTGIR after our passes, for prices and names of windows.
        before: TTGIR before them, for inter-wave stages.
        lds_bytes: LDS of a workgroup, where the text does not say; Triton leaves it to the launch.

    Raises:
        UsageError: the text is not for a target that is known.
        EmulatorError: it has no kernel metadata.
    """
    target = _target(amdgcn)
    used = resources(amdgcn)
    lds = _stated_lds(amdgcn, used.lds_bytes) if lds_bytes is None else lds_bytes
    waves = -(-_metadata(amdgcn, "max_flat_workgroup_size", 1024) // target.wave_size)
    return Explanation(
        name=_name(amdgcn),
        target=target.arch,
        vgprs=used.vgprs,
        agprs=used.agprs,
        sgprs=used.sgprs,
        spills=used.spills,
        lds_bytes=lds,
        waves=waves,
        occupancy=occupancy(target, used.vgprs, lds or 0, waves),
        windows=_windows(amdgcn, scheduled),
        pipelines=_pipelines(before) if before else [],
        loops=loops(amdgcn),
    )


def explain_file(path: str | Path) -> Explanation:
    """Explain an AMDGCN file, and what lies beside it with the suffixes ``.amdwarp``, ``.ttgir`` and ``.json``.

    Raises:
        UsageError: there is no such file, or it is not for a target that is known.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", remedy="give an AMDGCN text") from None
    beside = {suffix: file.with_suffix(suffix) for suffix in (".amdwarp", ".ttgir", ".json")}
    texts = {suffix: one.read_text(encoding="utf-8") for suffix, one in beside.items() if one.is_file()}
    shared = None
    if ".json" in texts:
        try:
            shared = json.loads(texts[".json"]).get("shared")
        except (ValueError, AttributeError):
            name = beside[".json"]
            raise UsageError(
                f"{name} is not the metadata of a kernel", remedy="remove it, or put the right one"
            ) from None
    return explain_texts(text, texts.get(".amdwarp"), texts.get(".ttgir"), shared)


def occupancy(target: Target, vgprs: int, lds_bytes: int, waves: int) -> int:
    """Waves of a kernel that one SIMD holds at once."""
    granted = -(-max(1, vgprs) // _GRANULE) * _GRANULE
    limit = min(target.vgprs // granted, target.max_waves)
    groups = (
        limit * target.simds // waves
        if lds_bytes == 0
        else min(limit * target.simds // waves, target.lds_bytes // lds_bytes)
    )
    return -(-groups * waves // target.simds)


def _stated_lds(amdgcn: str, declared: int) -> int | None:
    """LDS of a workgroup as the text alone has it."""
    return None if declared == 0 and _LDS.search(amdgcn) else declared


def _target(amdgcn: str) -> Target:
    match = re.search(r'\.amdgcn_target\s+"[^"]*-(gfx\w+)', amdgcn)
    if match is None:
        raise UsageError("the text names no target", remedy="give the AMDGCN text of a kernel")
    return get_target(match.group(1))


def _name(amdgcn: str) -> str:
    match = re.search(r"^\s*\.globl\s+(\S+)", amdgcn, re.M)
    return match.group(1) if match else "?"


def _metadata(amdgcn: str, key: str, default: int) -> int:
    match = re.search(rf"^\s*(?:- )?\.{key}:\s*(\d+)", amdgcn, re.M)
    return int(match.group(1)) if match else default


# ---- windows


def _windows(amdgcn: str, scheduled: str | None) -> list[WindowReport]:
    from .lowering import bridge
    from .lowering.analysis.realised import Asked, asked, copies_of, realised, stretches
    from .lowering.analysis.windows import price_text

    found = stretches(amdgcn)
    if scheduled is not None:
        wanted = asked(bridge.read(bridge.parse_text(scheduled, bridge.new_context())))
    else:
        numbers = sorted({number for stretch in found for number in stretch.groups})
        wanted = [
            Asked(number, "", _place(stretch), (), tuple(stretch.groups[number]))
            for number in numbers
            for stretch in [next(one for one in found if number in one.groups)]
        ]
    reports = []
    for one in realised([window for window in wanted if copies_of(window, found)], found):
        window = one.asked
        ops = [OpReport(op.name, f"{op.file}:{op.line}", price_text(op.prices)) for op in window.ops]
        reports.append(
            WindowReport(
                number=window.number,
                label=window.label,
                where=window.where,
                ops=ops,
                priced=by_letter(Counter(window.order)),
                asked=window.order,
                realised=one.order,
                anchors=one.anchors,
                misplaced=one.misplaced,
                longest_run=one.longest_run,
                waits=one.waits,
                barriers=one.barriers,
                ok=one.ok,
            )
        )
    return reports + [_lost(window) for window in wanted if not copies_of(window, found)]


def _lost(window: Any) -> WindowReport:
    """A window that the text does not contain."""
    anchors = sum(letter != "M" for letter in window.order)
    counts = by_letter(Counter(window.order))
    return WindowReport(
        window.number, window.label, window.where, [], counts, window.order, "", anchors, anchors, 0, 0, 0, False
    )


def _place(stretch: Any) -> str | None:
    where = next((one.where for one in stretch.instructions if one.where), None)
    return f"{where[0]}:{where[1]}" if where else None


# ---- stages


def _pipelines(before: str) -> list[PipelineReport]:
    from .lowering import bridge
    from .lowering.analysis.pipelines import find_pipelines
    from .lowering.passes import DropWindows

    module = bridge.read(bridge.parse_text(before, bridge.new_context()))
    DropWindows().run(module)
    reports = []
    for function in module.functions():
        for pipeline in find_pipelines(function):
            stages = [StageReport(stage.label, stage.priority, stage.where) for stage in pipeline.stages]
            reports.append(PipelineReport(pipeline.loop is not None, pipeline.gap, stages))
    return reports


# ---- the command


def explain(
    kernel: Kernel,
    arch: Arch = None,
    shape: Shape = None,
    dtype: Dtype = None,
    schedule: Schedule = None,
    b_order: BOrder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    check: Annotated[bool, typer.Option(help="Exit with 1 if LLVM did not realise a window.")] = False,
) -> None:
    """Show what a kernel's schedule asked for and what LLVM made of it."""
    choice = ZooChoice(kernel, arch, shape, dtype, only_one("--schedule", schedule, "explain"), b_order)
    if choice.of_the_zoo:
        # windows that were not realised are there to be shown, unless the environment says what becomes of them
        with contextlib.nullcontext() if env.WINDOWS.is_set() else windows_are("off"):
            (launch,) = choice.launches()
        report = explain_kernel(launch.compiled)
    else:
        report = explain_file(choice.file())
    if as_json:
        typer.echo(json.dumps(report.to_json()))
    else:
        _print(report)
    raise typer.Exit(1 if check and not report.ok else 0)


def _print(report: Explanation) -> None:
    console = Console(width=max(Console().width, 120), soft_wrap=True, highlight=False)
    console.print(
        f"{report.name} on {report.target}: {report.vgprs} VGPRs ({report.agprs} of them for accumulation), "
        f"{report.sgprs} SGPRs, {report.spills} spills, {_lds_text(report)}, {report.waves} waves a workgroup, "
        f"{'at most ' * (report.lds_bytes is None)}{report.occupancy} a SIMD at once",
        markup=False,
    )
    for task in report.tasks:
        console.print(_task_text(task), markup=False)
    for number, pipeline in enumerate(report.pipelines):
        _print_pipeline(console, number, pipeline)
    for loop in report.loops:
        _print_loop(console, loop)
    for window in report.windows:
        _print_window(console, window)
    if not report.windows:
        console.print("no intra-wave window")


def _task_text(task: dict[str, Any]) -> str:
    last = task["start"] + task["waves"] - 1
    waves = f"wave {last}" if task["waves"] == 1 else f"waves {task['start']} to {last}"
    asked = "" if task["asked"] is None else f", asked for {task['asked']}"
    budget = "no budget" if task["budget"] is None else f"a budget of {task['budget']}{asked}"
    return (
        f"{task['name']} ({task['file']}:{task['first']}), {waves}: takes {task['needs']} registers, {budget}; "
        f"allocated to every wave: {task['allocated']}"
    )


def _lds_text(report: Explanation) -> str:
    if report.lds_bytes is None:
        return "LDS of unknown size (the text does not state it, and there is no .json beside it)"
    return f"{report.lds_bytes} bytes of LDS"


def _print_pipeline(console: Console, number: int, pipeline: PipelineReport) -> None:
    kind = "loop" if pipeline.loop else "straight code"
    console.print(
        f"\ninter-wave pipeline {number} ({kind}, groups {pipeline.gap} stage{'s' * (pipeline.gap > 1)} apart)",
        markup=False,
    )
    table = Table(**_PLAIN)
    for column in ("stage", "priority", "source"):
        table.add_column(column, no_wrap=True)
    for stage in pipeline.stages:
        table.add_row(stage.label or "-", "-" if stage.priority is None else str(stage.priority), stage.where or "-")
    console.print(table)


def _print_loop(console: Console, loop: LoopReport) -> None:
    priorities = ", ".join(map(str, loop.priorities)) or "none set"
    console.print(f"\nloop {loop.label}: {loop.barriers} barriers, priorities {priorities}; between barriers:")
    for part in loop.parts:
        console.print("  " + (", ".join(f"{count} {letter}" for letter, count in part.items()) or "nothing"))


def _print_window(console: Console, window: WindowReport) -> None:
    verdict = "realised" if window.ok else f"NOT realised: {window.misplaced} of {window.anchors} anchors elsewhere"
    name = f"{window.label!r}" if window.label else f"#{window.number}"
    console.print(f"\nintra-wave window {name} ({window.where or '?'}): {verdict}", markup=False)
    for op in window.ops:
        console.print(f"  {op.price:<16} {op.name} {op.where}", markup=False)
    counts = ", ".join(f"{count} {letter}" for letter, count in window.priced.items())
    console.print(f"  priced     {counts}", markup=False)
    console.print(f"  asked      {shortened(window.asked, 4000)}", markup=False)
    console.print(f"  realised   {shortened(window.realised, 4000)}", markup=False)
    console.print(
        f"  longest run of MFMA {window.longest_run}, waits inside {window.waits}, barriers inside {window.barriers}"
    )
