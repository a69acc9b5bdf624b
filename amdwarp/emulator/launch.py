"""Launching a program: arguments, workgroups, initial registers."""

from __future__ import annotations

import mmap
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, overload

import numpy as np

from amdwarp.asm import Argument, Program, Register, parse
from amdwarp.asm.program import EXEC, TTMP0
from amdwarp.emulator.bind import bind
from amdwarp.emulator.events import Recorder
from amdwarp.emulator.memory import POISON, GlobalMemory, Lds
from amdwarp.emulator.modes import initial_mode
from amdwarp.emulator.scheduler import WIDTHS, Limits, Scheduler, UnmetBarrier, starts
from amdwarp.emulator.state import Batch, Closure, RegisterFile, Scalar, Workgroup, merge
from amdwarp.errors import EmulatorError, UsageError

#: Waves that run in lockstep at most.
LOCKSTEP = 8
#: Bytes behind a scratch pointer that the compiler appends to the kernel's own arguments.
_EXTRA_BYTES = 1 << 24
#: Targets the emulator knows, with the LDS of a compute unit in bytes.
TARGETS = {"gfx942": 64 * 1024, "gfx950": 160 * 1024, "gfx1250": 320 * 1024}


@dataclass(frozen=True)
class LaunchResult:
    """What a launch did.

    Attributes:
        instructions: wave-instructions executed.
        workgroups: workgroups run.
        seconds: wall time of the run, without reading and binding the program.
        unmet_barriers: barriers that released waves although others of their workgroup had ended without reaching
            them, one for each instruction, with the waves of the first time: legal on gfx9, but seldom meant.
    """

    instructions: int
    workgroups: int
    seconds: float
    unmet_barriers: tuple[UnmetBarrier, ...] = ()


def encode_scalar(value: Any, argument: Argument, index: int) -> bytes:
    """A scalar argument as the bytes of its entry.

    Raises:
        UsageError: the value does not fit.
    """
    size = argument.size
    if isinstance(value, np.generic):
        raw = value.tobytes()
        if len(raw) == size:
            return raw
        value = value.item()
    if isinstance(value, (bool, int)):
        number = int(value)
        if not -(1 << (8 * size - 1)) <= number < 1 << 8 * size:
            raise UsageError(f"argument {index}: {value} does not fit into {size} bytes")
        return (number & (1 << 8 * size) - 1).to_bytes(size, "little")
    if isinstance(value, float) and size in (2, 4, 8):
        kind = {2: np.float16, 4: np.float32, 8: np.float64}[size]
        return np.array(value, kind).tobytes()
    problem = f"argument {index} is a scalar of {size} bytes, got {type(value).__name__}"
    raise UsageError(problem, remedy="pass an int, float or numpy scalar")


def hidden_value(kind: str, grid: tuple[int, ...], threads: int) -> int:
    """What the runtime passes for a hidden argument; 0 for what a kernel without host calls does not read."""
    sizes = (*grid, 1, 1)[:3]
    table = {f"hidden_block_count_{axis}": size for axis, size in zip("xyz", sizes, strict=True)}
    table |= {"hidden_group_size_x": threads, "hidden_group_size_y": 1, "hidden_group_size_z": 1}
    table["hidden_grid_dims"] = len(grid)
    return table.get(kind, 0)


def _zeros(size: int) -> np.ndarray[Any, Any]:
    """Bytes of a mapping of their own: it costs nothing where it is not touched."""
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)


def build_arguments(
    program: Program, args: Sequence[Any], memory: GlobalMemory, grid: tuple[int, ...] = (1,)
) -> np.ndarray[Any, Any]:
    """The argument segment: uint8 [kernarg size].

    Pointers that the compiler appends behind the kernel's own arguments get a block of zeros.

    Raises:
        UsageError: number or type of an argument is wrong.
    """
    wanted = [argument for argument in program.metadata.arguments if not argument.is_hidden]
    extra = wanted[len(args) :]
    if len(args) > len(wanted) or not all(argument.is_pointer for argument in extra) or len(extra) > 2:
        kinds = ", ".join("pointer" if argument.is_pointer else f"{argument.size}-byte scalar" for argument in wanted)
        raise UsageError(
            f"kernel '{program.name}' takes {len(wanted)} arguments ({kinds}), got {len(args)}",
            remedy="pass them without constexpr ones; the last two pointers are scratch that may be left out",
        )
    segment = np.zeros(max(program.metadata.kernarg_size, 4), np.uint8)
    for argument in program.metadata.arguments:
        if argument.is_hidden:
            number = hidden_value(argument.kind, grid, program.metadata.max_workgroup_size)
            raw = (number & (1 << 8 * argument.size) - 1).to_bytes(argument.size, "little")
            segment[argument.offset : argument.offset + argument.size] = np.frombuffer(raw, np.uint8)
    pointers: list[tuple[Argument, Any, str]] = []
    for index, (argument, value) in enumerate(zip(wanted, args, strict=False)):
        if isinstance(value, np.ndarray):
            if not argument.is_pointer and value.ndim == 0:
                raw = encode_scalar(value[()], argument, index)
                segment[argument.offset : argument.offset + argument.size] = np.frombuffer(raw, np.uint8)
                continue
            if not argument.is_pointer:
                raise UsageError(f"argument {index} is a scalar of {argument.size} bytes, got an array")
            if value.dtype.hasobject:
                raise UsageError(f"argument {index} is an array of Python objects", remedy="pass one of numbers")
            pointers.append((argument, value, f"argument {index}"))
        elif argument.is_pointer and value is not None:
            raise UsageError(f"argument {index} is a pointer, got {type(value).__name__}", remedy="pass a numpy array")
        elif not argument.is_pointer:
            raw = encode_scalar(value, argument, index)
            segment[argument.offset : argument.offset + argument.size] = np.frombuffer(raw, np.uint8)
    pointers += [(argument, _zeros(_EXTRA_BYTES), "compiler scratch") for argument in extra]
    bases = memory.add_all([(array, name) for _, array, name in pointers])
    for (argument, _, _), base in zip(pointers, bases, strict=True):
        segment[argument.offset : argument.offset + 8] = np.frombuffer(base.to_bytes(8, "little"), np.uint8)
    return segment


class Places(Sequence[tuple[int, int, int]]):
    """Workgroups of a grid as (x, y, z), in the order of their flat numbers; made when they are asked for."""

    def __init__(self, flats: Sequence[int], nx: int, ny: int) -> None:
        self.flats, self.nx, self.ny = flats, nx, ny

    def __len__(self) -> int:
        return len(self.flats)

    @overload
    def __getitem__(self, at: int) -> tuple[int, int, int]: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[tuple[int, int, int]]: ...

    def __getitem__(self, at: int | slice) -> tuple[int, int, int] | Sequence[tuple[int, int, int]]:
        if isinstance(at, slice):
            return Places(self.flats[at], self.nx, self.ny)
        flat = self.flats[at]
        return flat % self.nx, flat // self.nx % self.ny, flat // (self.nx * self.ny)


def _is_count(value: Any) -> bool:
    """True for a positive whole number."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 1


def choose_workgroups(
    grid: tuple[int, ...], workgroups: int | Sequence[int | tuple[int, ...]] | None
) -> Sequence[tuple[int, int, int]]:
    """The workgroups to run, as (x, y, z), x running fastest.

    Raises:
        UsageError: grid or choice is wrong.
    """
    if not isinstance(grid, (tuple, list)) or not 1 <= len(grid) <= 3 or not all(_is_count(n) for n in grid):
        raise UsageError(f"grid {grid!r} must have one to three positive sizes", remedy="write it like (64,) or (8, 8)")
    nx, ny, nz = (*(int(n) for n in grid), 1, 1)[:3]
    total = nx * ny * nz
    if workgroups is None:
        return Places(range(total), nx, ny)
    if not isinstance(workgroups, Sequence) or isinstance(workgroups, str):
        if not _is_count(workgroups):
            raise UsageError(f"workgroups = {workgroups!r} must be at least 1, or a list of workgroups")
        count = min(workgroups, total)
        if count == total:
            return Places(range(total), nx, ny)
        flats = {round(at * (total - 1) / max(count - 1, 1)) for at in range(count)}
        return Places(sorted(flats), nx, ny)
    chosen = []
    for item in workgroups:
        if not all(isinstance(part, (int, np.integer)) for part in (item if isinstance(item, tuple) else (item,))):
            raise UsageError(f"workgroup {item!r} is neither a number nor (x, y, z)")
        if isinstance(item, tuple):
            found = (*item, 0, 0)[:3]
        else:
            found = Places([int(item)], nx, ny)[0] if 0 <= int(item) < total else (nx, 0, 0)
        if not (0 <= found[0] < nx and 0 <= found[1] < ny and 0 <= found[2] < nz):
            raise UsageError(f"workgroup {item!r} is outside the grid {grid!r}")
        chosen.append((int(found[0]), int(found[1]), int(found[2])))
    return chosen


#: The most threads of a workgroup, and the most private memory of a lane in bytes that is taken for meant.
_MOST_THREADS, _MOST_SCRATCH = 1024, 1 << 20


def check_sizes(program: Program) -> None:
    """Refuse what no workgroup of the target can be.

    Raises:
        EmulatorError: the target is not known, or lanes of a wave, threads, LDS, private memory or arguments are no
            sizes that it can have.
    """
    if program.target not in TARGETS:
        raise EmulatorError(f"target {program.target} is not known", remedy=f"known are {', '.join(TARGETS)}")
    meta, descriptor, lds = program.metadata, program.descriptor, TARGETS[program.target]
    lanes = 32 if program.target.startswith("gfx12") else 64
    wanted = (
        ("lanes in a wave", meta.wave_size, lanes, lanes),
        ("threads in a workgroup", meta.max_workgroup_size, 1, _MOST_THREADS),
        ("bytes of LDS", max(descriptor.lds_bytes, meta.lds_bytes), 0, lds),
        ("bytes of private memory in a lane", max(descriptor.scratch_bytes, meta.scratch_bytes), 0, _MOST_SCRATCH),
        ("bytes of arguments", meta.kernarg_size, 0, 1 << 16),
    )
    for what, value, low, high in wanted:
        if not low <= value <= high:
            raise EmulatorError(f"{value} {what} are not possible on {program.target}", construct="kernel metadata")
    for argument in meta.arguments:
        inside = 0 <= argument.offset < argument.offset + argument.size <= meta.kernarg_size
        if argument.is_pointer and argument.size != 8:
            raise EmulatorError(f"a pointer argument of {argument.size} bytes", construct="kernel metadata")
        if not inside:
            problem = f"an argument of {argument.size} bytes at {argument.offset} lies outside the argument segment"
            raise EmulatorError(problem, construct="kernel metadata")


@lru_cache(maxsize=8)
def bound(program: Program, thread: int) -> tuple[int, int, list[Closure]]:
    """Vector and accumulation registers of a program and the closures of its instructions.

    Kept for the programs used last. A closure may note the wave's mode while it runs, so each `thread` has its own.
    """
    vectors, accumulators = registers_used(program)
    return vectors, accumulators, [bind(program, inst, vectors) for inst in program.instructions]


class Machine:
    """A program bound and ready to run workgroups one after another; its memory does not grow with their number."""

    def __init__(self, program: Program, lockstep: int | None = LOCKSTEP, lds_bytes: int | None = None) -> None:
        check_sizes(program)
        self.program, self.lockstep = program, lockstep
        self.unmet: dict[int, UnmetBarrier] = {}
        vectors, accumulators, self.closures = bound(program, threading.get_ident())
        self.waves, self.lanes = program.waves, program.wave_size
        self.registers = RegisterFile(vectors + accumulators, self.waves, self.lanes)
        fixed = max(program.descriptor.lds_bytes, program.metadata.lds_bytes)
        # Triton allocates LDS at launch: the text says 0.
        self.lds = Lds(max(fixed, lds_bytes) if lds_bytes is not None else fixed or TARGETS[program.target])
        scratch = max(program.descriptor.scratch_bytes, program.metadata.scratch_bytes)
        self.scratch = np.empty((self.waves, self.lanes, scratch), np.uint8)

    def run(
        self,
        memory: GlobalMemory,
        kernarg: int,
        arguments: np.ndarray[Any, Any],
        index: tuple[int, int, int],
        rng: random.Random | None,
        recorder: Recorder | None,
        limits: Limits,
    ) -> int:
        """Run one workgroup; returns its wave-instructions. Without a `lockstep` its width is drawn."""
        self.registers.reset()
        self.lds.reset()
        if self.scratch.size:
            self.scratch.reshape(-1).view(np.uint32)[:] = POISON
        group = Workgroup(self.registers, self.lds, memory, self.scratch, self.lanes, recorder)
        group.split_counters = self.program.target == "gfx1250"
        self._work_items()
        explorer = rng if self.lockstep is None else None
        width = self.lockstep or (rng.choice(WIDTHS) if rng is not None else LOCKSTEP)
        batches, cuts = [], [*starts(self.waves, width, explorer), self.waves]
        for first, last in pairwise(cuts):
            scalars = self._scalars(kernarg, arguments, index)
            if group.split_counters:
                self._trap_registers(scalars, index, range(first, last))
            batch = Batch(group, first, last, scalars, self.program.entry)
            batch.mode = initial_mode(self.program)
            batches.append(batch)
        scheduler = Scheduler(self.program, self.closures, batches, rng, limits, width, explorer is not None)
        executed = scheduler.run()
        self.unmet = scheduler.unmet | self.unmet
        return executed

    def _work_items(self) -> None:
        """v0 holds the work-item number (x in bits 0-9; workgroups are one-dimensional)."""
        count = self.waves * self.lanes
        self.registers.data[0] = np.arange(count, dtype=np.uint32).reshape(self.waves, self.lanes)

    def _trap_registers(self, scalars: list[Scalar], index: tuple[int, int, int], waves: range) -> None:
        """gfx1250 passes the workgroup's place in ttmp9 and ttmp7 and the wave's number in bits 25-29 of ttmp8."""
        scalars[TTMP0 + 9], scalars[TTMP0 + 7] = index[0], index[1] | index[2] << 16
        scalars[TTMP0 + 8] = merge([wave << 25 for wave in waves])

    def _scalars(self, kernarg: int, arguments: np.ndarray[Any, Any], index: tuple[int, int, int]) -> list[Scalar]:
        descriptor = self.program.descriptor
        scalars: list[Scalar] = [POISON] * 128
        scalars[EXEC], scalars[EXEC + 1] = 0xFFFFFFFF, 0xFFFFFFFF if self.lanes == 64 else 0
        at = descriptor.kernarg_sgpr
        if at is not None:
            scalars[at], scalars[at + 1] = kernarg & 0xFFFFFFFF, kernarg >> 32
        length, offset = descriptor.kernarg_preload
        words = arguments[: len(arguments) // 4 * 4].view(np.uint32)
        for step in range(length):
            value = int(words[offset + step]) if offset + step < len(words) else POISON
            scalars[descriptor.preload_sgpr + step] = value
        at = descriptor.user_sgprs
        if self.program.target == "gfx1250":
            return scalars
        for axis, position in zip("xyz", index, strict=True):
            if descriptor.get(f"system_sgpr_workgroup_id_{axis}"):
                scalars[at] = position
                at += 1
        return scalars


def registers_used(program: Program) -> tuple[int, int]:
    """Vector and accumulation registers that the text names."""
    top = {"v": 1, "a": 0, "s": 0}
    for inst in program.instructions:
        for half in (inst, inst.second):
            for op in half.operands if half is not None else ():
                if isinstance(op, Register):
                    top[op.kind] = max(top[op.kind], op.index + op.count)
    return top["v"], top["a"]


def launch(
    program: Program | str,
    args: Sequence[Any],
    grid: tuple[int, ...],
    *,
    workgroups: int | Sequence[int | tuple[int, ...]] | None = None,
    seed: int | None = 0,
    progress: Callable[[int, int], None] | None = None,
    observer: Any = None,
    lockstep: int | None = None,
    lds_bytes: int | None = None,
    max_instructions: int = 50_000_000,
) -> LaunchResult:
    """Run a kernel.

    Args:
        program: the kernel, or its AMDGCN text.
        args: numpy arrays for pointers (changed in place, never copied), ints, floats or numpy scalars for scalars.
            Pointers that the compiler appended may be left out.
        grid: workgroups along x, y, z.
        workgroups: which to run: None for all, a number for that many spread evenly (first and last included), or a
            list of flat indices or (x, y, z).
        seed: draws the interleaving of the waves; None runs the batch that is furthest behind. Seeds other than 0 also
            draw how many waves run in lockstep and divide batches at random, unless `lockstep` is given.
        progress: called with (workgroups done, workgroups in total).
        observer: see `amdwarp.emulator.events`.
        lockstep: waves that run as one batch at most (None: 8 with seed 0 or None). Waves of one batch pass a wait
            together, so that a fault between them may not show; 1 interleaves single waves, which shows most and takes
            several times as long.
        lds_bytes: LDS of a workgroup (``kernel.metadata.shared``), beyond which an access is an error; None for all
            that the text says, or where it says 0 for all that the compute unit has.
        max_instructions: of one wave, before the run is taken for endless.

    Raises:
        UsageError: the arguments or the grid are wrong.
        EmulatorError: the text is not known, or the execution cannot go on.
    """
    if isinstance(program, str):
        program = parse(program)
    chosen = choose_workgroups(grid, workgroups)
    check_sizes(program)
    most = TARGETS[program.target]
    if lds_bytes is not None and not 0 <= lds_bytes <= most:
        problem = f"lds_bytes = {lds_bytes}: a workgroup has between 0 and {most} bytes of LDS on {program.target}"
        raise UsageError(problem, remedy="give what the kernel's metadata says (kernel.metadata.shared)")
    memory = GlobalMemory()
    segment = build_arguments(program, args, memory, tuple(int(size) for size in grid))
    kernarg = memory.add(segment, "the argument segment")
    if lockstep is None and not seed:
        lockstep = LOCKSTEP
    machine = Machine(program, None if lockstep is None else max(1, lockstep), lds_bytes)
    recorder = None if observer is None else Recorder(observer, program.instructions)
    if recorder is not None:
        code = zip(program.instructions, machine.closures, strict=True)
        machine.closures = [recorder.observed(inst, closure) for inst, closure in code]
    executed, start = 0, time.perf_counter()
    with np.errstate(all="ignore"):
        for done, index in enumerate(chosen):
            rng = None if seed is None else random.Random(f"{seed} {index}")
            if recorder is not None:
                recorder.workgroup(index)
            executed += machine.run(memory, kernarg, segment, index, rng, recorder, Limits(max_instructions))
            if recorder is not None:
                recorder.workgroup_end(index)
            if progress is not None:
                progress(done + 1, len(chosen))
    seconds = time.perf_counter() - start
    return LaunchResult(executed, len(chosen), seconds, tuple(machine.unmet.values()))
