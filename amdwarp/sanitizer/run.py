"""`check`: run a kernel under the sanitizer."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdwarp.asm import Program, parse
from amdwarp.emulator import launch
from amdwarp.emulator.launch import check_sizes, choose_workgroups
from amdwarp.emulator.scheduler import EndlessError, ExecutionError
from amdwarp.errors import UsageError
from amdwarp.runtime import is_tensor, memory_span
from amdwarp.sanitizer.observer import Sanitizer
from amdwarp.sanitizer.polls import may_poll
from amdwarp.sanitizer.redundant import redundancies
from amdwarp.sanitizer.report import Collector, Finding, Report, Site
from amdwarp.sanitizer.spin import SpinError

#: Instructions of one wave before a run is taken for endless.
MAX_INSTRUCTIONS = 2_000_000


def check(
    compiled: Any,
    args: Sequence[Any],
    grid: tuple[int, ...],
    *,
    workgroups: int | Sequence[int | tuple[int, ...]] | None = None,
    seeds: int = 1,
    lds_bytes: int | None = None,
    uninitialised: Collection[int] = (),
    redundant: bool = False,
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
        uninitialised: positions of arguments whose arrays hold nothing: reading before writing is reported.
        redundant: also list the barriers and waits that no dependence of this run needed.
        max_instructions: of one wave, before the run is taken for endless.
        progress: called with (workgroups done, workgroups in total), for each seed.

    Raises:
        UsageError: the arguments or the grid are wrong.
        EmulatorError: the text is not known.
    """
    program = program_of(compiled)
    check_sizes(program)
    _check_options(args, seeds, max_instructions, uninitialised)
    choose_workgroups(grid, workgroups)
    if lds_bytes is None:
        lds_bytes = _lds_of(compiled)
    values = [_bytes_of(value) if isinstance(value, np.ndarray) or is_tensor(value) else value for value in args]
    started = [value.copy() if isinstance(value, np.ndarray) else value for value in values] if seeds > 1 else []
    names = frozenset(f"argument {at}" for at in uninitialised)
    job = _Job(program, grid, workgroups, lds_bytes, max_instructions, progress, names, redundant)
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


def _check_options(args: Any, seeds: Any, max_instructions: Any, uninitialised: Any) -> None:
    """Refuse what `check` cannot use."""
    if not isinstance(args, (list, tuple)):
        raise UsageError(f"args is a {type(args).__name__}", remedy="pass the arguments as a list")
    for name, value in (("seeds", seeds), ("max_instructions", max_instructions)):
        if not isinstance(value, (int, np.integer)) or value < 1:
            raise UsageError(f"{name} = {value!r} must be at least 1")
    for at, value in enumerate(args):
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            raise UsageError(f"argument {at} is an array of Python objects", remedy="pass one of numbers")
    if not isinstance(uninitialised, Collection) or isinstance(uninitialised, str):
        raise UsageError(f"uninitialised = {uninitialised!r} is no list", remedy="pass the arguments' positions")
    for at in uninitialised:
        if not isinstance(at, (int, np.integer)) or not 0 <= at < len(args):
            raise UsageError(f"uninitialised has {at!r}, and there are {len(args)} arguments, counted from 0")
        if not isinstance(args[at], np.ndarray) and not is_tensor(args[at]):
            raise UsageError(f"uninitialised has {at}, and argument {at} is no array")


def _bytes_of(value: Any) -> Any:
    """The memory of an array or tensor as flat bytes, not copied."""
    if isinstance(value, np.ndarray) and value.flags.c_contiguous:
        return value.reshape(-1).view(np.uint8)
    return memory_span(value)


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
    asm: Any = getattr(compiled, "asm", None)
    if asm is None:
        what = type(compiled).__name__
        raise UsageError(f"a {what} is no compiled kernel", remedy="pass a Triton kernel or its AMDGCN text")
    try:
        return parse(asm["amdgcn"])
    except KeyError:
        raise UsageError("the compiled kernel has no AMDGCN text", remedy="compile it for an AMD GPU") from None


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
    uninitialised: frozenset[str]
    redundant: bool

    def run(self, args: list[Any], seed: int, collector: Collector, report: Report) -> bool:
        """Run once; False if the launch did not come to its end."""
        several = len(choose_workgroups(self.grid, self.workgroups)) > 1
        sanitizer = Sanitizer(self.program, collector, self.uninitialised, several, self.redundant and seed == 0)
        # What a wave that polls comes after is followed change by change, so the waves run one by one.
        lockstep = 1 if may_poll(self.program) else None
        try:
            result = launch(
                self.program, args, self.grid, workgroups=self.workgroups, seed=seed, progress=self.progress,
                observer=sanitizer, lds_bytes=self.lds_bytes, max_instructions=self.max_instructions, lockstep=lockstep,
            )  # fmt: skip
        except ExecutionError as error:
            _fault(sanitizer, collector, error)
            ended = False
        except (SpinError, EndlessError) as error:
            _deadlock(sanitizer, collector, error)
            ended = False
        else:
            report.instructions += result.instructions
            report.workgroups += result.workgroups
            ended = True
        sanitizer.finish()
        if sanitizer.needs is not None:
            report.redundant = redundancies(self.program, sanitizer.effects, sanitizer.needs) if ended else []
        report.deadlock |= any(finding.kind == "deadlock" for finding in collector.found.values())
        return ended


#: Words of the emulator's faults: kind of finding.
_FAULTS = {"outside every buffer": "out-of-bounds", "outside the workgroup's": "lds-out-of-bounds"}


def _fault(sanitizer: Sanitizer, collector: Collector, error: ExecutionError) -> None:
    """The finding of an operation that could not be carried out."""
    waves = range(sanitizer.waves) if error.wave is None else (error.wave,)
    if error.inst.index in sanitizer.static.suspects and sanitizer.check_registers(error.inst, waves):
        return
    kind = next((kind for words, kind in _FAULTS.items() if words in error.what), "fault")
    lane = "" if error.lane is None else f"lane {error.lane}: "
    site = Site(error.inst, set() if error.wave is None else {error.wave})
    collector.add(Finding(kind, lane + error.what, error.remedy, None, site))


def _deadlock(sanitizer: Sanitizer, collector: Collector, error: SpinError | EndlessError) -> None:
    """The finding of waves that do not come to an end."""
    where = sanitizer.wording.positions(sanitizer.position)
    problem = error.problem
    if isinstance(error, EndlessError):
        problem, where = error.what, error.positions
    site = Site(sanitizer.program.instructions[min(sanitizer.position)], set())
    collector.add(Finding("deadlock", f"{problem}: {where}", error.remedy, None, site))


def _compare(first: list[Any], second: list[Any], seed: int, collector: Collector) -> None:
    for at, (mine, its) in enumerate(zip(first, second, strict=True)):
        if isinstance(mine, np.ndarray) and not np.array_equal(mine.view(np.uint8), its.view(np.uint8)):
            byte = int(np.flatnonzero(mine.view(np.uint8) != its.view(np.uint8))[0])
            problem = f"argument {at} differs from byte {byte} on between the interleavings 0 and {seed}"
            collector.add(Finding("nondeterminism", problem))
