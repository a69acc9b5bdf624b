"""The ``amdwarp`` command."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from . import __version__
from .bench.commands import app as bench
from .check import check
from .choice import parse_shape
from .cycles.commands import cycles, timeline
from .cycles.zoo import KERNELS
from .errors import AmdwarpError, UsageError
from .explain import explain
from .verify import DTYPES, LLAMA3_8B, SAMPLED_WORKGROUPS, Case, load_inputs, verify_gemm
from .verify_attention import DEFAULT_SHAPES, verify_attention

USAGE_ERROR = 2

app = typer.Typer(
    help="Wave-scheduled kernels for AMD matrix GPUs, proved right without a GPU.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"amdwarp {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None: ...


@app.command()
def verify(
    kernel: Annotated[str, typer.Argument(help=", ".join(KERNELS))],
    arch: Annotated[str, typer.Option(help="GPU to compile for and to emulate.")] = "gfx950",
    dtype: Annotated[list[str] | None, typer.Option(help="fp16 or bf16; both by default; may repeat.")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            help="M,N,K, by default the layers of Llama 3 8B; of an attention rows,keys,head dim, by default "
            "4096,4096,128; may repeat."
        ),
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help="Name of a schedule; the kernel's own choice by default.")
    ] = None,
    workgroups: Annotated[str, typer.Option(help="How many to run, spread over the grid, or all.")] = str(
        SAMPLED_WORKGROUPS
    ),
    b_order: Annotated[
        str | None, typer.Option(help="nk (default): B as a linear layer's weight; kn: B row-major.")
    ] = None,
    a: Annotated[str | None, typer.Option(help="A.npy to use instead of random numbers; with --b.")] = None,
    b: Annotated[str | None, typer.Option(help="B.npy, (K, N).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Compile a kernel, run it in the emulator, compare it with a plain reference."""
    if kernel not in KERNELS:
        raise UsageError(f"unknown kernel {kernel!r}", remedy=f"use {' or '.join(KERNELS)}")
    common = {"arch": arch, "schedule": schedule, "workgroups": _workgroups(workgroups)}
    dtypes = dtype or list(DTYPES)
    shapes = [parse_shape(text, kernel) for text in shape or ()]
    if kernel == "gemm":
        cases = _products(dtypes, shapes, b_order, a, b, common)
        done = _run(verify_gemm, cases, quiet=as_json)
    else:
        given = {"--a": a, "--b": b, "--b-order": b_order}
        if alien := [name for name, value in given.items() if value is not None]:
            raise UsageError(f"{' and '.join(alien)} are for a product", remedy=f"drop {' and '.join(alien)}")
        common["causal"] = kernel == "attention_causal"
        sizes = shapes or DEFAULT_SHAPES
        cases = [common | {"shape": size, "dtype": one} for one in dtypes for size in sizes]
        done = _run(verify_attention, cases, quiet=as_json)
    ok = all(case.ok for case in done)
    if as_json:
        typer.echo(json.dumps({"ok": ok, "cases": [case.to_json() for case in done]}, allow_nan=False))
    else:
        _print(done)
    raise typer.Exit(0 if ok else 1)


def _products(
    dtypes: list[str],
    shapes: list[tuple[int, int, int]],
    b_order: str | None,
    a: str | None,
    b: str | None,
    common: dict[str, Any],
) -> list[dict[str, Any]]:
    """Arguments of `verify_gemm`, for each case."""
    if (a is None) != (b is None):
        raise UsageError("--a and --b go together", remedy="give both")
    if a is not None and (shapes or b_order):
        raise UsageError("--a and --b have a shape and an order of their own", remedy="drop --shape and --b-order")
    cases: list[dict[str, Any]] = []
    common = common | {"b_order": b_order or "nk"}
    for one in dtypes:
        if one not in DTYPES:
            raise UsageError(f"unknown dtype {one!r}", remedy=f"use one of {', '.join(DTYPES)}")
        if a is not None and b is not None:
            inputs = load_inputs(a, b, one)
            size = (inputs[0].shape[0], inputs[1].shape[1], inputs[0].shape[1])
            cases.append(common | {"shape": size, "dtype": one, "inputs": inputs})
        else:
            cases += [common | {"shape": size, "dtype": one} for size in shapes or LLAMA3_8B]
    return cases


def _run(verify_one: Callable[..., Case], cases: list[dict[str, Any]], quiet: bool) -> list[Case]:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} workgroups"))
    console = Console(stderr=True)
    hidden = quiet or not console.is_terminal
    done: list[Case] = []
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True, disable=hidden) as bar:
        for case in cases:
            size = "x".join(map(str, case["shape"]))
            task = bar.add_task(f"{size} {case['dtype']}", total=None)

            def progress(finished: int, total: int, task: Any = task) -> None:
                bar.update(task, completed=finished, total=total)

            done.append(verify_one(case.pop("shape"), progress=progress, **case))
            bar.remove_task(task)
    return done


_COLUMNS = ("dtype", "schedule", "wg", "rel.err", "VGPR", "spill", "LDS", "s", "")
_LEFT = ("dtype", "schedule", "")
_PLAIN: dict[str, Any] = {"box": None, "pad_edge": False, "padding": (0, 1, 0, 0)}


def _print(cases: list[Case]) -> None:
    arch = ", ".join(dict.fromkeys(case.arch for case in cases))
    kernel = cases[0].kernel
    shape, reference = ("M,N,K", "fp32") if kernel == "gemm" else ("rows,keys,dim", "float64")
    table = Table(**_PLAIN)
    table.add_column(shape, no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in _LEFT else "right", no_wrap=True)
    for case in cases:
        error = "-" if case.rel_error is None else f"{case.rel_error:.1e}"
        numbers = (case.workgroups, error, case.vgprs, case.spills, case.lds_bytes, f"{case.seconds:.1f}")
        verdict = "[green]ok[/]" if case.ok else "[red]FAILED[/]"
        table.add_row(_size(case), case.dtype, case.schedule, *map(str, numbers), verdict)
    # never narrower than the table: a line that wraps is better than one that ends in dots
    console = Console(width=max(Console().width, 120))
    console.print(f"{kernel} on {arch}: computed by the emulator, reference in {reference}", style="italic")
    console.print(table)
    for case in cases:
        if case.problem:
            console.print(f"{_size(case)} {case.dtype}: {case.problem}", style="red", markup=False)


def _size(case: Case) -> str:
    return ",".join(map(str, case.shape))


def _workgroups(text: str) -> int | None:
    if text == "all":
        return None
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"workgroups {text!r} is not understood", remedy="give a positive number or all") from None


app.command()(check)
app.command()(cycles)
app.command()(timeline)
app.command()(explain)
app.add_typer(bench, name="bench")

_INTERRUPTED = 130


def main(argv: list[str] | None = None) -> None:
    """Run the command line; every expected error is one line on stderr and exit code 2."""
    try:
        code = app(args=argv, standalone_mode=False)
    except AmdwarpError as error:
        code = _complain(str(error))
    except (KeyboardInterrupt, typer.Abort):  # typer makes the second, or the code, of the first
        code = _INTERRUPTED
    except (OSError, MemoryError) as error:
        code = _complain(str(error) or "out of memory")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "amdwarp":
            raise
        code = _complain(f"this needs {error.name}, which is not installed; pip install {error.name}")
    except Exception as error:
        # typer raises its own kind for a wrong flag; anything else is a fault of ours and keeps its traceback
        if not hasattr(error, "format_message"):
            raise
        # without a message, the help of a command without its words has been printed
        text = error.format_message().rstrip(".")
        code = _complain(f"{text}; see amdwarp --help") if text else USAGE_ERROR
    if code == _INTERRUPTED:
        _complain("interrupted")
    sys.exit(code or 0)


def _complain(text: str) -> int:
    if sys.stderr is not None:
        print(f"amdwarp: {' '.join(text.split())}", file=sys.stderr)
    return USAGE_ERROR


def _flush(stream: TextIO | None) -> int:
    """Write out what a stream holds back; the exit code that it leads to. A closed stream is None."""
    try:
        if stream is not None:
            stream.flush()
    except BrokenPipeError:
        return 1
    except OSError as error:
        return _complain(str(error))
    return 0


def script() -> None:
    """Entry point of the installed command.

    It ends the process without tearing the interpreter down: the Triton 3.9 wheel prints pages about its own leaked
    objects there.
    """
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
        unwritten = _flush(sys.stdout), _flush(sys.stderr)
        os._exit(code or max(unwritten))


if __name__ == "__main__":
    script()
