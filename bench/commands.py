"""``amdwarp bench run``, ``list``, ``report`` and ``peers``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from amdwarp.errors import UsageError
from amdwarp.files import check_writable

from .metrics import HARDWARE, LABELS, SOURCES
from .peers.__main__ import main as peers
from .registry import select
from .schema import Row, read, suffix_of, write

#: Columns that the longest line of figures takes.
WIDTH = 140

app = typer.Typer(help="Run benchmarks, list them, and make a page of their results.", no_args_is_help=True)

Cases = Annotated[
    list[str] | None, typer.Argument(help="Names, or patterns like 'gemm/*/fp16/gfx950'; all by default.")
]


@app.command("list")
def list_cases(cases: Cases = None) -> None:
    """List the cases, and where each one's figures can come from."""
    for case in select(cases or []):
        typer.echo(f"{case.name}  {', '.join(case.sources)}")


@app.command()
def run(
    cases: Cases = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", help=".json or .csv; only a table without it.")
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(help="hardware, modelled or cpu; by default what this machine has; may repeat."),
    ] = None,
    append: Annotated[bool, typer.Option("--append", help="Keep the figures that the file has.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Drop them at the first new figure.")] = False,
) -> None:
    """Run cases: timed on an AMD GPU where there is one, modelled elsewhere; host work is timed on the CPU."""
    from .machine import this_machine
    from .run import run_cases, sources_for

    wanted = source or []
    for one in wanted:
        if one not in SOURCES:
            raise UsageError(f"unknown source {one!r}", remedy=f"use one of {', '.join(SOURCES)}")
    before = _before(output, append, replace)
    chosen = select(cases or [])
    machine = this_machine()
    runs = sum(len(sources_for(case, machine.gpu, wanted)) for case in chosen)
    if not runs and HARDWARE not in wanted:
        raise UsageError("none of these cases can run here", remedy="amdwarp bench list says what each one needs")
    errors = Console(stderr=True)
    done = iter(range(1, runs + 1))

    def say(text: str) -> None:
        errors.print(f"{next(done)}/{runs} {text}", markup=False, highlight=False)

    kept: list[Row] = []

    def keep(rows: Sequence[Row]) -> None:
        kept[:] = rows
        if output is not None:
            write([*before, *kept], output)

    try:
        results = run_cases(chosen, machine, wanted, say, keep)
    except KeyboardInterrupt:
        if kept:
            _print(kept)
        place = f"in {output}" if kept and output is not None else "in no file"
        errors.print(f"broken off; {len(kept)} figures so far, {place}", style="red", markup=False, highlight=False)
        raise
    for name, where, why in results.missing:
        errors.print(f"{name}: no {where} figure: {' '.join(why.split())}", style="red", markup=False, highlight=False)
    if output is not None and not results.rows:
        errors.print(f"no figures: {output} was not written", style="red", markup=False, highlight=False)
    _print(results.rows)
    raise typer.Exit(1 if results.missing else 0)


@app.command()
def report(
    results: Annotated[list[str], typer.Argument(help="Result files, .json or .csv; several make a history.")],
    output: Annotated[str, typer.Option("-o", "--output", help="Folder for the page.")] = "site",
) -> None:
    """Write a static page: history, baselines side by side, roofline. It works offline, from the file."""
    from .report import write_site

    rows = [row for path in results for row in read(path)]
    page = write_site(rows, Path(output))
    counts = Counter(row.source for row in rows)
    parts = ", ".join(f"{count} {LABELS[source]}" for source, count in counts.items())
    typer.echo(f"{page}: {len(rows)} figures ({parts})")


def _before(output: str | None, append: bool, replace: bool) -> list[Row]:
    """Figures that the result file keeps. What it has may be hours of work, so they go only if that is asked for."""
    if append and replace:
        raise UsageError("--append and --replace are both given", remedy="give one of them")
    if output is None:
        if append or replace:
            raise UsageError(f"--{'append' if append else 'replace'} says nothing without a file", remedy="add -o FILE")
        return []
    suffix_of(output)
    check_writable(output)
    if replace or not Path(output).exists():
        return []
    if append:
        return read(output)
    raise UsageError(f"{output} is there already", remedy="--append adds to its figures, --replace drops them")


app.command("peers")(peers)


def _print(rows: list[Row]) -> None:
    plain: dict[str, Any] = {"box": None, "pad_edge": False, "padding": (0, 2, 0, 0)}
    table = Table(**plain)
    for column in ("figure", "p20", "p50", "p80", "unit", "source"):
        table.add_column(column, justify="right" if column.startswith("p") else "left", no_wrap=True)
    last = ""
    for row in rows:
        if (name := row.case) != last:
            table.add_row(f"[bold]{escape(name)}[/]")
            last = name
        values = [f"{value:.6g}" for value in (row.p20, row.p50, row.p80)]
        label = LABELS[row.source] + (", uncalibrated" if row.calibrated == "no" else "")
        table.add_row(f"  {row.metric}", *values, row.unit, label)
    console = Console()
    # a cut line would hide where a figure comes from
    console.width = max(console.width, WIDTH)
    console.print(table)
