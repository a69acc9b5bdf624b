"""``amdwarp check``: races, missing waits and stray accesses of a compiled kernel, found without a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from .arguments import read_launch
from .asm import Program, parse
from .errors import UsageError
from .sanitizer import MAX_INSTRUCTIONS, Report
from .sanitizer import check as run_check

#: Workgroups that one run takes at most.
MOST_WORKGROUPS = 1_000_000
FINDINGS = 1


def check(
    file: Annotated[str, typer.Argument(metavar="FILE.amdgcn", help="AMDGCN text of one kernel.")],
    grid: Annotated[str, typer.Option(metavar="X[,Y[,Z]]", help="Workgroups of the launch.")],
    args: Annotated[str | None, typer.Option(metavar="ARGS.json", help="The kernel's arguments.")] = None,
    workgroups: Annotated[
        int | None, typer.Option(help="How many to run, spread over the grid; all by default.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Interleavings of the waves to run.")] = 1,
    lds: Annotated[int | None, typer.Option(help="Bytes of LDS of a workgroup, where the text does not say.")] = None,
    redundant: Annotated[bool, typer.Option("--redundant", help="Also list waits and barriers nothing needs.")] = False,
    dump: Annotated[str | None, typer.Option(metavar="OUT.npz", help="Save the buffers as the run left them.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    max_instructions: Annotated[
        int, typer.Option(help="Instructions of one wave before the run is taken for endless.")
    ] = MAX_INSTRUCTIONS,
) -> None:
    """Run a compiled kernel in the emulator and report races, missing waits and stray accesses."""
    program = read_program(file)
    sizes = parse_grid(grid, workgroups)
    values, poisoned = read_launch(args) if args is not None else ([], [])
    match_arguments(program, values)
    if lds is not None and lds < 0:
        raise UsageError(f"{lds} bytes of LDS are no size")
    if max_instructions < 1:
        raise UsageError(f"{max_instructions} instructions are no limit", remedy="give a positive number")
    if dump is not None:
        check_writable(dump)
    with _progress(quiet=as_json) as progress:
        report = run_check(
            program, values, sizes, workgroups=workgroups, seeds=seeds, lds_bytes=lds, redundant=redundant,
            uninitialised=poisoned, max_instructions=max_instructions, progress=progress,
        )  # fmt: skip
    print_report(report, as_json)
    if dump is not None:
        save(dump, values)
    raise typer.Exit(0 if report.ok else FINDINGS)


def read_program(file: str) -> Program:
    """The program in a text file.

    Raises:
        UsageError: the file cannot be read, or is no text.
        EmulatorError: the text is not one kernel's AMDGCN assembly.
    """
    return parse(read_text(file))


def read_text(file: str) -> str:
    """What stands in a text file.

    Raises:
        UsageError: the file cannot be read, or is no text.
    """
    try:
        raw = Path(file).read_bytes()
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}", remedy="give a file of AMDGCN text") from None
    if raw.startswith(b"\x7fELF"):
        raise _no_text(file, "an ELF binary")
    if b"\0" in raw:
        raise _no_text(file, "no text")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _no_text(file, "no text") from None


def _no_text(file: str, what: str) -> UsageError:
    return UsageError(f"{file} is {what}", remedy="give the assembly text, kernel.asm['amdgcn']")


def parse_grid(text: str, workgroups: int | None) -> tuple[int, ...]:
    """``X[,Y[,Z]]`` as sizes.

    Raises:
        UsageError: it is none, or more workgroups than a run takes.
    """
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if not 1 <= len(sizes) <= 3 or any(size < 1 for size in sizes):
        raise UsageError(f"grid {text!r} is not X[,Y[,Z]]", remedy="write it like --grid 64 or --grid 8,8")
    if workgroups is not None and workgroups < 1:
        raise UsageError(f"{workgroups} workgroups show nothing", remedy="give a positive number")
    total = 1
    for size in sizes:
        if size >= 1 << 31:
            raise UsageError(f"grid {text} is larger than a launch can be")
        total *= size
    if min(total, total if workgroups is None else workgroups) > MOST_WORKGROUPS:
        raise UsageError(f"{text} are {total} workgroups", remedy=f"run at most {MOST_WORKGROUPS} with --workgroups N")
    return sizes


def match_arguments(program: Program, values: list[Any]) -> None:
    """Refuse arguments whose number, kind or size is not the kernel's.

    Raises:
        UsageError: which one, and what the kernel takes.
    """
    wanted = [argument for argument in program.metadata.arguments if not argument.is_hidden]
    for at, (argument, value) in enumerate(zip(wanted, values, strict=False)):
        is_buffer = isinstance(value, np.ndarray)
        name = f"argument {at}" + (f" ('{argument.name}')" if argument.name else "")
        if argument.is_pointer != is_buffer:
            has, takes = ("a buffer", "a scalar") if is_buffer else ("a scalar", "a pointer")
            raise UsageError(f"{name} is {has}, and the kernel takes {takes}", remedy="check the order in the file")
        if not is_buffer and value.itemsize != argument.size:
            problem = f"{name} has {value.itemsize} bytes, and the kernel takes {argument.size}"
            raise UsageError(problem, remedy="choose a type of that size")
    left_over = wanted[len(values) :]
    # Triton appends two scratch pointers of its own.
    if len(values) > len(wanted) or len(left_over) > 2 or not all(argument.is_pointer for argument in left_over):
        kinds = ", ".join("pointer" if argument.is_pointer else f"{argument.size}-byte scalar" for argument in wanted)
        raise UsageError(
            f"kernel '{program.name}' takes {len(wanted)} arguments ({kinds}), and the file has {len(values)}",
            remedy="leave out constexpr arguments; the last two pointers are scratch that may be left out",
        )


def save(path: str, values: list[Any]) -> None:
    """Write the buffers to an ``.npz`` file, each under ``arg`` and its position.

    Raises:
        UsageError: the file cannot be written.
    """
    buffers = {f"arg{at}": _plain(value) for at, value in enumerate(values) if isinstance(value, np.ndarray)}
    try:
        with open(path, "wb") as file:
            np.savez(file, **buffers)  # type: ignore[arg-type]
    except OSError as error:
        raise UsageError(f"the buffers cannot be saved in {path}: {error}") from None


def _plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array that numpy can load again: raw bytes for the elements that only ``ml_dtypes`` knows."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"V{array.itemsize}")


def check_writable(path: str) -> None:
    """Refuse, before a long run, a file that cannot be written; one that exists keeps its content.

    Raises:
        UsageError: the file cannot be written.
    """
    is_new = not Path(path).exists()
    try:
        with open(path, "ab"):
            pass
        if is_new:
            Path(path).unlink()
    except (OSError, ValueError) as error:
        raise UsageError(f"the buffers cannot be saved in {path}: {error}") from None


def print_report(report: Report, as_json: bool) -> None:
    """Print a report as text or JSON."""
    typer.echo(json.dumps(report.to_json()) if as_json else str(report))


class _progress:
    """A progress bar on a terminal's stderr; gives a callback of workgroups done and in total, or None."""

    def __init__(self, quiet: bool) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("checking"), BarColumn(), TextColumn("{task.completed}/{task.total} workgroups"))
        self.bar = None
        if console.is_terminal and not quiet:
            self.bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)

    def __enter__(self) -> Callable[[int, int], None] | None:
        if self.bar is None:
            return None
        bar = self.bar
        bar.start()
        task = bar.add_task("", total=None)
        return lambda done, total: bar.update(task, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
