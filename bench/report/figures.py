"""Charts of the page, made with Plotly: side by side, roofline, history."""

from __future__ import annotations

import html
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta, timezone
from typing import Any

import plotly.graph_objects as go
from plotly.colors import qualitative

from ..metrics import HARDWARE, METRICS, MODELLED, SOURCES, get_metric
from ..schema import Row
from . import FILTERS, badge
from .peaks import peak_of

_COLOURS = qualitative.D3
_DASHES = ("solid", "dot", "dash", "dashdot", "longdash")
_CONFIG = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["select2d", "lasso2d"]}
#: Short words in axis titles, so that a chart that was cut out of the page still says what it is.
_AXIS = {"hardware": "measured", "modelled": "MODELLED", "cpu": "measured on the CPU"}
#: Categories that a chart of half the page's width has room for.
_NARROW = 5
ELEMENT_BYTES = {"fp16": 2, "bf16": 2}


@dataclass(frozen=True)
class Card:
    """A chart with its heading.

    Attributes:
        section: ``side``, ``roof`` or ``history``.
        name: unique, for the page.
        heading: for people.
        row: one of its rows, for the badge.
        note: a sentence under the heading.
        figure: Plotly's.
        wide: takes a whole row of the page.
    """

    section: str
    name: str
    heading: str
    row: Row
    note: str
    figure: go.Figure
    wide: bool = False

    def html(self) -> str:
        """The card's part of the page."""
        chart = self.figure.to_html(full_html=False, include_plotlyjs=False, div_id=self.name, config=_CONFIG)
        note = f'<p class="note">{html.escape(self.note)}</p>' if self.note else ""
        head = f"<h3>{html.escape(self.heading)} {badge(self.row)}</h3>"
        kind = "card wide" if self.wide else "card"
        return f'<article class="{kind}" data-section="{self.section}">{head}{note}{chart}</article>'


def latest(rows: Iterable[Row]) -> list[Row]:
    """The newest row of each figure."""
    found: dict[tuple[str, ...], Row] = {}
    for row in rows:
        if row.key not in found or found[row.key].when <= row.when:
            found[row.key] = row
    return list(found.values())


def build_figures(rows: Sequence[Row]) -> list[Card]:
    """Every chart that these rows give."""
    colours = _colours(rows)
    newest = latest(rows)
    cards = [side_by_side(group, colours) for group in _groups(newest)]
    kinds = {key: list(part) for key, part in _split(newest, "source", "calibrated").items()}
    for key, build in (
        ((HARDWARE, ""), hardware_roofline),
        *(((MODELLED, c), modelled_roofline) for c in ("yes", "no")),
    ):
        if card := build(kinds.get(key, []), colours):
            cards.append(card)
    return cards + [history(group, colours) for group in _groups(rows)]


def _colours(rows: Sequence[Row]) -> dict[str, str]:
    variants = sorted({row.variant for row in rows})
    return {variant: _COLOURS[at % len(_COLOURS)] for at, variant in enumerate(variants)}


def _groups(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows that share a chart: one kernel, one metric or family, one source; in the order of ``METRICS``.

    Bounds of an uncalibrated target have charts of their own: the axis and the heading say what they are.
    """
    found: dict[tuple[int, str, int, str], list[Row]] = {}
    order = list(METRICS)
    for row in rows:
        metric = get_metric(row.metric)
        if metric.shown:
            key = (SOURCES.index(row.source), row.kernel, order.index(metric.name), _bound(row))
            found.setdefault(key, []).append(row)
    return [found[key] for key in sorted(found)]


def _split(rows: Iterable[Row], *names: str) -> dict[tuple[str, ...], list[Row]]:
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(getattr(row, name) for name in names), []).append(row)
    return dict(sorted(found.items()))


def _name(section: str, row: Row) -> str:
    """Name of a chart's element; whatever a kernel is called, it is one word, and another kernel's is another."""
    word = re.sub(r"\W", "_", row.kernel, flags=re.ASCII)
    if word != row.kernel:
        word += f"_{zlib.crc32(row.kernel.encode()):x}"
    return f"{section}-{row.source}-{word}-{get_metric(row.metric).name.rstrip('.')}{_bound(row)}"


def _bound(row: Row) -> str:
    return "-uncalibrated" if row.calibrated == "no" else ""


def _heading(row: Row) -> str:
    words = get_metric(row.metric).title
    if words.lower().startswith(row.kernel):
        return words
    return f"{row.kernel}: " + (words if words[1].isupper() else words[0].lower() + words[1:])


def _better(rows: Sequence[Row]) -> str:
    metric = get_metric(rows[0].metric)
    texts = ("More is better." if metric.higher else "Less is better.", metric.note)
    return " ".join(text for text in texts if text) + _mixed(rows)


def _mixed(rows: Iterable[Row]) -> str:
    """What to know where modelled figures of a target rest on different parameters, or ""."""
    digests: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.parameters:
            digests.setdefault(row.target, {})[row.parameters] = None
    texts = (f"{target} with parameters {', '.join(found)}" for target, found in digests.items() if len(found) > 1)
    return "".join(f" Modelled for {text}: figures of different parameters do not compare." for text in texts)


def _axis(row: Row) -> str:
    return f"{row.unit}, {_AXIS[row.source]}" + (", uncalibrated" if row.calibrated == "no" else "")


def _meta(row: Row) -> dict[str, str]:
    return {name: getattr(row, name) for name in FILTERS}


def _hover(row: Row) -> str:
    origin = row.gpu or row.cpu or f"parameters {row.parameters}"
    lines = (
        row.case,
        f"{row.metric}: {row.p50:,.6g} {row.unit} ({row.p20:,.6g} to {row.p80:,.6g})",
        f"{_axis(row)}; {origin}",
        f"commit {row.commit or 'unknown'}, Triton {row.triton}, {row.time}",
    )
    return "<br>".join(map(html.escape, lines))


def _spread(rows: Sequence[Row]) -> dict[str, Any]:
    above, below = [row.p80 - row.p50 for row in rows], [row.p50 - row.p20 for row in rows]
    return {"type": "data", "array": above, "arrayminus": below, "symmetric": False, "visible": any(above + below)}


def _value(row: Row) -> str:
    """What stands above a bar: a bar of 0 is not seen. Nothing where the error bar is."""
    if row.p20 != row.p80:
        return ""
    return f"{row.p50:.4g}" if row.p50 < 1000 else f"{row.p50:,.0f}"


def _layout(figure: go.Figure, x_title: str, y_title: str, height: int = 380) -> None:
    figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 70, "r": 40, "t": 40, "b": 60},
        modebar={"orientation": "v"},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0},
        hoverlabel={"align": "left"},
        bargap=0.25,
        xaxis={"title": {"text": x_title}, "automargin": True},
        yaxis={"title": {"text": y_title}, "automargin": True},
    )


def side_by_side(rows: Sequence[Row], colours: dict[str, str]) -> Card:
    """Bars: the variants of a kernel beside each other. Modelled ones are hatched."""
    figure = go.Figure()
    first = rows[0]
    pattern = {"shape": "/", "solidity": 0.35} if first.source == MODELLED else {}
    for (variant, _, _), part in _split(rows, "variant", "dtype", "target").items():
        figure.add_bar(
            name=html.escape(variant),
            legendgroup=variant,
            x=[_category(row) for row in part],
            y=[row.p50 for row in part],
            error_y=_spread(part),
            marker={"color": colours[variant], "pattern": pattern},
            text=[_value(row) for row in part],
            textposition="outside",
            cliponaxis=False,
            hovertext=[_hover(row) for row in part],
            hoverinfo="text",
            meta=_meta(part[0]),
            offsetgroup=variant,
        )
    _layout(figure, "", html.escape(_axis(first)))
    figure.update_layout(barmode="group")
    figure.update_xaxes(tickangle=0, tickfont={"size": 11})
    figure.update_yaxes(rangemode="tozero")
    wide = len({_category(row) for row in rows}) > _NARROW
    return Card("side", _name("side", first), _heading(first), first, _better(rows), figure, wide)


def _category(row: Row) -> str:
    lines = (row.metric.partition(".")[2], row.shape, f"{row.dtype} {row.target}".strip())
    return "<br>".join(html.escape(line) for line in lines if line)


def history(rows: Sequence[Row], colours: dict[str, str]) -> Card:
    """Lines over time, one for each case and part."""
    figure = go.Figure()
    first = rows[0]
    fields = ("variant", "shape", "dtype", "target", "metric")
    several = [name for name in fields if len({getattr(row, name) for row in rows}) > 1]
    dashes: dict[str, int] = {}
    for values, part in _split(rows, *fields).items():
        ordered = sorted(part, key=lambda row: row.when)
        words = [value for name, value in zip(fields, values, strict=True) if name in several]
        name = " ".join(word.partition(".")[2] or word for word in words) or first.variant
        dash = dashes[values[0]] = dashes.get(values[0], -1) + 1
        figure.add_scatter(
            name=html.escape(name),
            x=[row.when.astimezone(timezone.utc).isoformat() for row in ordered],
            y=[row.p50 for row in ordered],
            error_y=_spread(ordered),
            mode="lines+markers",
            line={"color": colours[values[0]], "dash": _DASHES[dash % len(_DASHES)]},
            marker={"symbol": dash % 16, "size": 8},
            hovertext=[_hover(row) for row in ordered],
            hoverinfo="text",
            meta=_meta(first) | _meta(ordered[0]),
        )
    lines = len(figure.data)
    _layout(figure, "time of the run (UTC)", html.escape(_axis(first)), min(900, max(400, 140 + 19 * lines)))
    figure.update_layout(
        legend={"orientation": "v", "y": 1, "x": 1.02, "yanchor": "top", "font": {"size": 11}},
        modebar={"orientation": "h"},
    )
    figure.update_xaxes(type="date")
    times = sorted(row.when.astimezone(timezone.utc) for row in rows)
    if times[0] == times[-1]:
        day = timedelta(hours=12)
        figure.update_xaxes(range=[(times[0] - day).isoformat(), (times[0] + day).isoformat()])
    figure.update_yaxes(rangemode="tozero")
    wide = lines > _NARROW
    return Card("history", _name("history", first), _heading(first), first, _better(rows), figure, wide)


# Rooflines


def _point(figure: go.Figure, row: Row, x: float, y: float, text: str, colours: dict[str, str]) -> None:
    figure.add_scatter(
        name=html.escape(row.variant),
        legendgroup=row.variant,
        x=[x],
        y=[y],
        mode="markers",
        marker={"color": colours[row.variant], "size": 11, "line": {"width": 1, "color": "white"}},
        hovertext=[f"{_hover(row)}<br>{html.escape(text)}"],
        hoverinfo="text",
        meta=_meta(row),
    )


def _roof(
    figure: go.Figure, name: str, peak: float, slope: float, reach: Sequence[float], meta: dict[str, str]
) -> None:
    dash = _DASHES[sum("roof" in trace.meta for trace in figure.data) % len(_DASHES)]
    ridge = peak / slope
    low, high = min(*reach, ridge) / 2, max(*reach, ridge) * 2
    figure.add_scatter(
        name=html.escape(name),
        x=[low, ridge, high],
        y=[low * slope, peak, peak],
        mode="lines",
        line={"color": "#555", "width": 2, "dash": dash},
        hoverinfo="name",
        meta=meta | {"roof": "yes"},
    )


def _log(figure: go.Figure, x_title: str, y_title: str) -> None:
    _layout(figure, x_title, y_title, 440)
    ticks = [digit * 10.0**power for power in range(-3, 7) for digit in (1, 1.5, 2, 3, 5, 7)]
    axis = {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:,.6g}" for tick in ticks]}
    figure.update_xaxes(axis)
    figure.update_yaxes(axis)


def hardware_roofline(rows: Sequence[Row], colours: dict[str, str]) -> Card | None:
    """Measured throughput against the peaks of the GPU's data sheet."""
    points = [(row, _intensity(row)) for row in rows if row.metric == "tflops"]
    known = [(row, x) for row, x in points if x is not None]
    if not known:
        return None
    figure = go.Figure()
    for row, x in known:
        _point(figure, row, x, row.p50, f"{x:.4g} FLOP for each byte of the operands and the result", colours)
    for gpu in dict.fromkeys(row.gpu for row, _ in known):
        if peak := peak_of(gpu):
            own = [(row, x) for row, x in known if row.gpu == gpu]
            name = f"{gpu}: {peak.tflops:g} TFLOP/s, {peak.tbytes:g} TB/s (data sheet)"
            meta = {"source": HARDWARE, "target": own[0][0].target}
            _roof(figure, name, peak.tflops, peak.tbytes, [x for _, x in own], meta)
    _log(figure, "FLOP/byte of memory, each operand read once", "TFLOP/s, measured")
    note = "Peaks are dense 16-bit ones at the highest clock; a GPU runs dense MFMA code below it."
    return Card("roof", "roof-hardware", "Roofline of the GPU", known[0][0], note, figure)


def _intensity(row: Row) -> float | None:
    extents = [int(part) for part in row.shape.split("x") if part]
    if len(extents) != 3 or row.dtype not in ELEMENT_BYTES:
        return None
    m, n, k = extents
    return 2.0 * m * n * k / (ELEMENT_BYTES[row.dtype] * (m * k + n * k + m * n))


def modelled_roofline(rows: Sequence[Row], colours: dict[str, str]) -> Card | None:
    """Modelled work of a compute unit a clk, against what the model allows MFMA and global loads."""
    cases = _split(rows, "kernel", "variant", "shape", "dtype", "target")
    figure = go.Figure()
    roofs: dict[str, list[tuple[float, float, float]]] = {}
    shown = None
    for part in cases.values():
        values = {row.metric: row.p50 for row in part}
        if not values.keys() >= {"flop_per_clk", "flop_per_byte", "mfma_busy", "mfma_limit", "load_limit"}:
            continue
        if not values["mfma_busy"] or not values["load_limit"]:
            continue
        peak = 100 * values["flop_per_clk"] / values["mfma_busy"]
        slope = peak * values["mfma_limit"] / values["flop_per_byte"] / values["load_limit"]
        shown = next(row for row in part if row.metric == "flop_per_clk")
        text = f"{values['flop_per_byte']:.4g} FLOP/byte; its loads alone: {slope:.3g} byte/clk"
        _point(figure, shown, values["flop_per_byte"], values["flop_per_clk"], text, colours)
        roofs.setdefault(shown.target, []).append((peak, slope, values["flop_per_byte"]))
    if shown is None:
        return None
    for target, found in roofs.items():
        peak, slope = max(one[0] for one in found), max(one[1] for one in found)
        name = f"{target}: {peak:.0f} FLOP/clk, {slope:.0f} byte/clk"
        _roof(figure, name, peak, slope, [one[2] for one in found], {"source": MODELLED, "target": target})
    _log(figure, "FLOP/byte that the loop loads, MODELLED", "FLOP/clk of a compute unit, MODELLED")
    note = "In clk: no clock rate is in it. The slope is the best rate that the model gives the loads of one of these."
    note += _mixed(rows)
    return Card("roof", f"roof-modelled{_bound(shown)}", "Roofline of a compute unit", shown, note, figure)
