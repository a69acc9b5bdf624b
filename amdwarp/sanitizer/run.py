"""`check`: run a kernel under the sanitizer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdwarp.asm import Program, parse
from amdwarp.emulator import launch
from amdwarp.emulator.scheduler import EndlessError, ExecutionError
from amdwarp.errors import UsageError
from amdwarp.runtime import is_tensor, memory_span
from amdwarp.sanitizer.observer import Sanitizer
from amdwarp.sanitizer.report import Collector, Finding, Report, Site
from amdwarp.sanitizer.spin import SpinError

#: Instructions of one wave before a run is taken for endless.
MAX_INSTRUCTIONS = 5_000_000


def check(
    compiled: Any,
    args: Sequence[Any],
    grid: tuple[int, ...],
    *,
    workgroups: int | Sequence[int | tuple[int, ...]] | None = None,
    seeds: int = 1,
    lds_bytes: int | None = None,
    max_instructions: int = MAX_INSTRUCTIONS,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Run a kernel and report races, missing waits and stray accesses.

    Args:
        compiled: a Triton kernel (with ``asm["amdgcn"]``), its AMDGCN text, or a `Program`.
        args: what the text takes: numpy arrays or CPU tensors for pointers, ints, floats or numpy scalars for scalars,
            without constexpr arguments. Pointers that the compiler appended may be left out. Arrays are written to.
        grid: workgroups along x, y, z.
        workgroups: None for all, a number for that many spread over the grid, or a list of flat indices or (x, y, z).
        seeds: how many interleavings of the waves to run. The checks hold for all of them; further runs show whether
            results depend on it.
        lds_bytes: LDS of a workgroup; by default what the kernel says, or all there is where only the text is known.
        max_instructions: of one wave, before the run is taken for endless.
        progress: called with (workgroups done, workgroups in total), for each seed.

    Raises:
        UsageError: the arguments or the grid are wrong.
        EmulatorError: the text is not known.
    """
    program = program_of(compiled)
    if seeds < 1:
        raise UsageError(f"seeds = {seeds} must be at least 1")
    if lds_bytes is None:
        lds_bytes = _lds_of(compiled)
    values = [memory_span(value) if isinstance(value, np.ndarray) or is_tensor(value) else value for value in args]
    started = [value.copy() if isinstance(value, np.ndarray) else value for value in values] if seeds > 1 else []
    job = _Job(program, grid, workgroups, lds_bytes, max_instructions, progress)
    collector = Collector()
    report = Report([])
    began = time.perf_counter()
    for seed in range(seeds):
        mine = values if seed == 0 else [v.copy() if isinstance(v, np.ndarray) else v for v in started]
        if not job.run(mine, seed, collector, report):
            break
        if seed:
            _compare(values, mine, seed, collector)
    report.findings = collector.ordered()
    report.seconds = time.perf_counter() - began
    return report


def program_of(compiled: Any) -> Program:
    """The program of a compiled kernel or a text.

    Raises:
        UsageError: `compiled` is none of what `check` takes.
        EmulatorError: the text is not known.
    """
    if isinstance(compiled, Program):
        return compiled
    if isinstance(compiled, str):
        return parse(compiled)
    asm = getattr(compiled, "asm", None)
    if isinstance(asm, dict) or hasattr(asm, "__getitem__"):
        try:
            return parse(asm["amdgcn"])
        except KeyError:
            raise UsageError("the compiled kernel has no AMDGCN text", remedy="compile it for an AMD GPU") from None
    raise UsageError(
        f"a {type(compiled).__name__} is no compiled kernel", remedy="pass a Triton kernel or its AMDGCN text"
    )


def _lds_of(compiled: Any) -> int | None:
    shared = getattr(getattr(compiled, "metadata", None), "shared", None)
    return shared if isinstance(shared, int) else None


@dataclass
class _Job:
    """One launch, to be repeated with other seeds."""

    program: Program
    grid: tuple[int, ...]
    workgroups: int | Sequence[int | tuple[int, ...]] | None
    lds_bytes: int | None
    max_instructions: int
    progress: Callable[[int, int], None] | None

    def run(self, args: list[Any], seed: int, collector: Collector, report: Report) -> bool:
        """Run once; False if the launch did not come to its end."""
        sanitizer = Sanitizer(self.program, collector)
        try:
            result = launch(
                self.program, args, self.grid, workgroups=self.workgroups, seed=seed, progress=self.progress,
                observer=sanitizer, lds_bytes=self.lds_bytes, max_instructions=self.max_instructions,
            )  # fmt: skip
        except ExecutionError as error:
            _fault(sanitizer, collector, error)
            ended = False
        except (SpinError, EndlessError) as error:
            where = error.positions if isinstance(error, EndlessError) else sanitizer.positions()
            first = Site(self.program.instructions[min(sanitizer.position)], set())
            collector.add(Finding("deadlock", f"{error.problem.split(';')[0]}: {where}", "", None, first))
            ended = False
        else:
            report.instructions += result.instructions
            report.workgroups += result.workgroups
            ended = True
        sanitizer.finish()
        report.deadlock |= any(finding.kind == "deadlock" for finding in collector.found.values())
        return ended


def _fault(sanitizer: Sanitizer, collector: Collector, error: ExecutionError) -> None:
    """The finding of an operation that could not be carried out."""
    if sanitizer.fault_registers(error.inst, error.wave):
        return
    kind = "fault"
    if "outside every buffer" in error.what:
        kind = "out-of-bounds"
    elif "outside the workgroup's" in error.what:
        kind = "lds-out-of-bounds"
    waves = set() if error.wave is None else {error.wave}
    lane = "" if error.lane is None else f"lane {error.lane}: "
    collector.add(Finding(kind, lane + error.what, "", None, Site(error.inst, waves)))


def _compare(first: list[Any], second: list[Any], seed: int, collector: Collector) -> None:
    for at, (mine, its) in enumerate(zip(first, second, strict=True)):
        if isinstance(mine, np.ndarray) and not np.array_equal(mine.view(np.uint8), its.view(np.uint8)):
            byte = int(np.flatnonzero(mine.view(np.uint8) != its.view(np.uint8))[0])
            problem = f"argument {at} differs from byte {byte} on between the interleavings 0 and {seed}"
            collector.add(Finding("nondeterminism", problem))
