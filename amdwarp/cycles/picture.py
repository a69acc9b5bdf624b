"""A timeline as a picture, drawn with matplotlib."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from amdwarp.cycles.timeline import Slice, Timeline
from amdwarp.errors import UsageError
from amdwarp.files import write_whole

#: Lane to its colour, from the palette of Okabe and Ito, which people with any colour vision can tell apart.
COLOURS = {
    "mfma": "#009E73",
    "valu": "#0072B2",
    "salu": "#9FB8C8",
    "lds": "#E69F00",
    "vmem": "#CC79A7",
    "wait": "#D55E00",
    "barrier": "#999999",
}
TITLES = {
    "stage": "stage",
    "mfma": "MFMA",
    "valu": "vector ALU",
    "salu": "scalar",
    "lds": "LDS, issue to data",
    "vmem": "VMEM, issue to data",
    "wait": "s_waitcnt",
    "barrier": "s_barrier",
}
_SHOWN = ("stage", "mfma", "valu", "salu", "lds", "vmem", "wait", "barrier")
_STAGE_COLOURS = ("#E8F1F8", "#FCEFD9")
_LANE = 0.32
#: So many slices one beside the other can have edges.
_EDGES = 500


def draw(timeline: Timeline, path: str | Path, simd: int = 0) -> None:
    """Draw the waves of one SIMD lane by lane, and below them the matrix units of the SIMDs that use theirs.

    Args:
        timeline: what to draw.
        path: ends in ``.png`` or ``.svg``.
        simd: the SIMD whose waves are shown.

    Raises:
        UsageError: matplotlib is not installed, or the SIMD has no wave.
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        raise UsageError("a picture needs the package matplotlib", remedy='pip install "amdwarp[viz]"') from None
    waves = [wave for wave, where in timeline.waves if where == simd]
    if not waves:
        raise UsageError(f"SIMD {simd} has no wave", remedy=f"have {sorted({where for _, where in timeline.waves})}")
    # lanes that nothing is on are left out, unless nothing is on any
    shown = [lane for lane in _SHOWN if any(timeline.lane(simd, wave, lane) for wave in waves)] or list(_SHOWN)
    simds = sorted({where for _, where in timeline.waves if timeline.lane(where, None, "mfma")})
    lanes = len(waves) * (len(shown) + 1) + len(simds)
    figure, axes = plt.subplots(figsize=(18, 1.6 + _LANE * lanes))
    at, ticks = 0.0, []
    for wave in waves:
        for lane in shown:
            _draw_lane(axes, timeline, timeline.lane(simd, wave, lane), lane, at)
            ticks.append((at, f"wave {wave}  {TITLES[lane]}" if lane == shown[0] else TITLES[lane]))
            at += 1
        at += 1
    for number in simds:
        _draw_lane(axes, timeline, timeline.lane(number, None, "mfma"), "mfma", at, edges=True)
        ticks.append((at, f"matrix unit of SIMD {number}"))
        at += 1
    _finish(axes, timeline, ticks, at)
    figure.tight_layout()
    # the same picture is the same file: no date, and ids of its parts that are not drawn at random
    kind = Path(path).suffix[1:]
    date = {"Date": None} if kind == "svg" else {}
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "amdwarp"}):
        figure.savefig(content, format=kind, dpi=110, metadata=date)
    plt.close(figure)
    write_whole(path, content.getvalue())


def _draw_lane(axes: Any, timeline: Timeline, slices: list[Slice], lane: str, at: float, edges: bool = False) -> None:
    low, high = timeline.start, timeline.end
    spans = [(max(one.start, low), min(one.end, high)) for one in slices]
    spans = [(start, end) for start, end in spans if end > start]
    if lane == "stage":
        _draw_stages(axes, timeline, slices, at)
        return
    overlapping = lane in ("lds", "vmem")
    # white edges tell one MFMA from the next, and leave nothing of those that are a few points wide
    wide = sum(end - start for start, end in spans) * _EDGES > (high - low) * len(spans)
    axes.broken_barh(
        [(start, end - start) for start, end in spans],
        (at - 0.4, 0.8),
        facecolors=COLOURS[lane],
        alpha=0.35 if overlapping else 1.0,
        edgecolor="white" if wide and (lane == "mfma" or edges) else "none",
        linewidth=0.4,
    )
    if overlapping:
        # where instructions are issued shows through their time under way
        ticks = [one.start for one in slices if low <= one.start < high]
        axes.broken_barh([(start, 4) for start in ticks], (at - 0.4, 0.8), facecolors=COLOURS[lane])


def _draw_stages(axes: Any, timeline: Timeline, slices: list[Slice], at: float) -> None:
    width = timeline.end - timeline.start
    for one in slices:
        start, end = max(one.start, timeline.start), min(one.end, timeline.end)
        matrix = timeline.lane(one.simd, one.wave, "mfma")
        computes = any(one.start <= other.start < one.end for other in matrix)
        box = {"facecolors": _STAGE_COLOURS[not computes], "edgecolor": "#666666", "lw": 0.6}
        axes.broken_barh([(start, end - start)], (at - 0.45, 0.9), **box)
        # a letter takes about 1/260 of the picture
        room = int((end - start) / width * 260)
        if room >= 3:
            label = one.name if len(one.name) <= room else one.name[: room - 1] + "…"
            axes.text((start + end) / 2, at, label, ha="center", va="center", fontsize=6.5)


def _finish(axes: Any, timeline: Timeline, ticks: list[tuple[float, str]], rows: float) -> None:
    axes.set_yticks([at for at, _ in ticks], [name for _, name in ticks], fontsize=7)
    axes.set_ylim(rows - 0.3, -0.8)
    axes.set_xlim(timeline.start, timeline.end)
    axes.set_xlabel("clk, modelled")
    axes.set_title(timeline.title, fontsize=9, loc="left")
    axes.grid(axis="x", lw=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
