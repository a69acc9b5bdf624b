"""The page: a folder that a browser opens from the file, with no server and no network."""

from __future__ import annotations

import html
import importlib.util
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template

from amdwarp.errors import UsageError
from amdwarp.files import write_whole

from ..metrics import LABELS, get_metric, title
from ..schema import Row, check

#: Fields that can be filtered by, as they are called on the page.
FILTERS = {"source": "source", "kernel": "kernel", "variant": "variant", "dtype": "dtype", "target": "target"}
_HERE = Path(__file__).parent


def write_site(rows: Sequence[Row], folder: Path) -> Path:
    """Write ``index.html`` and Plotly's script into a folder.

    Returns:
        the page.

    Raises:
        UsageError: no rows or wrong ones, Plotly is not installed, or the folder cannot be written.
    """
    if not rows:
        raise UsageError("there are no figures to show", remedy="amdwarp bench run -o results.json makes some")
    check(rows)
    if importlib.util.find_spec("plotly") is None:
        raise UsageError("plotly is not installed", remedy='pip install "amdwarp[bench]"')
    from plotly.offline import get_plotlyjs

    page = folder / "index.html"
    text = render(list(dict.fromkeys(rows)))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "plotly.min.js", get_plotlyjs())
        write_whole(page, text)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}") from error
    return page


def render(rows: Sequence[Row]) -> str:
    """The page's text."""
    from .figures import build_figures, latest

    cards = build_figures(rows)
    newest = sorted(latest(rows), key=lambda row: (row.source, row.case, row.metric))
    sections = {name: [card for card in cards if card.section == name] for name in ("side", "roof", "history")}
    parts = {
        "css": (_HERE / "page.css").read_text(encoding="utf-8"),
        "js": (_HERE / "page.js").read_text(encoding="utf-8"),
        "facts": _facts(rows),
        "legend": "".join(f"<li>{badge(row)} {html.escape(text)}</li>" for row, text in _origins(rows)),
        "filters": "".join(_filter(name, label, rows) for name, label in FILTERS.items()),
        "rows": "".join(map(_table_row, newest)),
        "total": str(len(newest)),
    }
    for name, found in sections.items():
        parts[name] = "".join(card.html() for card in found) or '<p class="none">No figures for this.</p>'
    return Template((_HERE / "page.html").read_text(encoding="utf-8")).substitute(parts)


def badge(row: Row) -> str:
    """Where a figure comes from, in a coloured frame."""
    return f'<span class="badge {row.source}">{html.escape(source_words(row))}</span>'


def source_words(row: Row) -> str:
    """Where a figure comes from, in words."""
    return LABELS[row.source] + (", uncalibrated target: a bound only" if row.calibrated == "no" else "")


def _origins(rows: Iterable[Row]) -> list[tuple[Row, str]]:
    """One row of each kind of origin, with what it was obtained on."""
    found: dict[tuple[str, str], tuple[Row, list[str]]] = {}
    for row in rows:
        name = {
            "hardware": f"{row.gpu} ({row.target}), ROCm {row.rocm}",
            "modelled": f"{row.target}, parameters {row.parameters}",
            "cpu": row.cpu,
        }[row.source]
        names = found.setdefault((row.source, row.calibrated), (row, []))[1]
        if name not in names:
            names.append(name)
    return [(row, "; ".join(names)) for row, names in found.values()]


def _facts(rows: Sequence[Row]) -> str:
    ordered = sorted(rows, key=lambda row: row.when)
    triton = ", ".join(sorted({row.triton for row in rows}))
    commits = ", ".join(dict.fromkeys(_short(row.commit) for row in ordered))
    text = f"{ordered[0].time} to {ordered[-1].time} · Triton {triton} · commits {commits}"
    return html.escape(text)


def _short(commit: str) -> str:
    name, dash, dirty = commit.partition("-")
    return name[:10] + dash + dirty if name else "unknown"


def _filter(name: str, label: str, rows: Sequence[Row]) -> str:
    values = list(dict.fromkeys(getattr(row, name) for row in rows if getattr(row, name)))
    buttons = "".join(
        f'<button type="button" data-filter="{name}" data-value="{html.escape(value)}">{html.escape(value)}</button>'
        for value in values
    )
    every = f'<button type="button" class="on" data-filter="{name}" data-value="">all</button>'
    return f'<div class="filter"><span>{label}</span>{every}{buttons}</div>'


def _table_row(row: Row) -> str:
    metric = get_metric(row.metric)
    origin = {"hardware": row.gpu, "modelled": f"parameters {row.parameters}", "cpu": row.cpu}[row.source]
    texts = (row.kernel, row.variant, row.shape, row.dtype, row.target, title(row.metric))
    numbers = tuple(f"{value:,.6g}" for value in (row.p20, row.p50, row.p80))
    cells = "".join(f"<td>{html.escape(text)}</td>" for text in texts)
    cells += "".join(f'<td class="number">{html.escape(text)}</td>' for text in numbers)
    cells += f"<td>{html.escape(metric.unit)}</td><td>{badge(row)}</td>"
    cells += "".join(f"<td>{html.escape(text)}</td>" for text in (origin, _short(row.commit), row.time))
    meta = html.escape(json.dumps({name: getattr(row, name) for name in FILTERS}), quote=True)
    return f'<tr data-meta="{meta}">{cells}</tr>'
