"""Where a kernel runs: on the GPU that its tensors are on, or in the emulator inside ``with amdwarp.emulate(arch)``.

Both ways start from one ``Launch``. On a GPU it goes through Triton's own launcher; in the emulator it is specialised
as that launcher would (an integer of 1 becomes a constant; alignment and size become hints), compiled for the arch
asked for, and its text executed.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .compiler import compile as compile_kernel
from .errors import EmulatorError, UsageError
from .target import Target, get_target

TYPE_NAMES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "i1",
}


@dataclass(frozen=True)
class Launch:
    """One launch of one kernel.

    Attributes:
        kernel: an ``amdwarp.jit`` kernel.
        grid: workgroups along x, y, z; one to three positive integers.
        args: run-time arguments by parameter name: numpy arrays, torch tensors, integers, floats.
        constexprs: compile-time arguments by parameter name.
        options: backend options such as ``num_warps``.
    """

    kernel: Any
    grid: tuple[int, ...]
    args: Mapping[str, Any]
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Emulation:
    """Settings and results of one ``emulate`` block.

    Attributes:
        target: the GPU that is emulated.
        workgroups: None for all of a grid, a number to sample, or a sequence of indices.
        seed: chooses the interleaving of waves.
        progress: called with (workgroups done, workgroups to do).
        sanitize: run under the sanitizer too.
        execute: run what was compiled; otherwise records have no result.
        records: (launch, compiled kernel, emulator result) of every launch in the block.
    """

    target: Target
    workgroups: int | Sequence[int] | None = None
    seed: int = 0
    progress: Callable[[int, int], None] | None = None
    sanitize: bool = False
    execute: bool = True
    records: list[tuple[Launch, Any, Any]] = field(default_factory=list)


_current: ContextVar[Emulation | None] = ContextVar("amdwarp_emulation", default=None)


@contextlib.contextmanager
def emulate(
    arch: str | Target = "gfx950",
    *,
    workgroups: int | Sequence[int] | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    sanitize: bool = False,
    execute: bool = True,
) -> Iterator[Emulation]:
    """Run this package's kernels on numpy arrays and CPU tensors in the emulator, inside the block.

    Args:
        arch: the GPU to emulate.
        workgroups: how many workgroups of a grid to run, spread over it, or which; all by default.
        seed: chooses the interleaving of waves.
        progress: called with (workgroups done, workgroups to do).
        sanitize: run every launch under the sanitizer, and raise where it finds an error; `records` then hold its
            reports.
        execute: False compiles every launch for the arch and runs none: outputs keep what they hold.

    Raises:
        UsageError: unknown arch, a choice of workgroups that is none, a flag that is no bool, or a sanitizer for
            what is not run.
    """
    for name, flag in (("sanitize", sanitize), ("execute", execute)):
        if not isinstance(flag, bool):
            raise UsageError(f"{name} = {flag!r} is no bool", remedy="pass True or False", construct="emulate")
    if sanitize and not execute:
        problem = "sanitize = True with execute = False: the sanitizer watches a run"
        raise UsageError(problem, remedy="leave one of them out", construct="emulate")
    emulation = Emulation(get_target(arch), _choice(workgroups), seed, progress, sanitize, execute)
    token = _current.set(emulation)
    try:
        yield emulation
    finally:
        _current.reset(token)


def _choice(workgroups: Any) -> int | Sequence[Any] | None:
    """None, a positive number, or a sequence of workgroups, each of them once: indices, or (x, y, z)."""
    if workgroups is None:
        return None
    try:
        if isinstance(workgroups, str | bool):
            raise TypeError
        if not isinstance(workgroups, Iterable):
            chosen: int | list[Any] = operator.index(workgroups)
        else:
            chosen = [
                tuple(map(operator.index, one)) if isinstance(one, tuple) else operator.index(one) for one in workgroups
            ]
    except TypeError:
        raise UsageError(
            f"workgroups = {workgroups!r} is not understood", remedy="give a number, a list of indices, or None for all"
        ) from None
    if not chosen or (isinstance(chosen, int) and chosen < 1):
        raise UsageError(f"workgroups = {workgroups!r} runs nothing", remedy="give at least one, or None for all")
    return list(dict.fromkeys(chosen)) if isinstance(chosen, list) else chosen


def current_emulation() -> Emulation | None:
    """The innermost ``emulate`` block of this thread or task, or None."""
    return _current.get()


def run(launch: Launch) -> None:
    """Run a launch where its arguments are; outputs are written in place.

    Raises:
        UsageError: CPU arguments outside of ``emulate``, or a GPU tensor inside of it.
        EmulatorError: the emulated program does something undefined.
    """
    emulation = _current.get()
    on_gpu = [name for name, value in launch.args.items() if _is_gpu_tensor(value)]
    if emulation is not None:
        if on_gpu:
            raise UsageError(
                f"argument {on_gpu[0]!r} is on a GPU inside amdwarp.emulate",
                remedy="pass CPU tensors or numpy arrays, or leave the block",
            )
        _emulate(launch, emulation)
        return
    arrays = [name for name, value in launch.args.items() if _is_array(value)]
    if off := [name for name in arrays if name not in on_gpu]:
        raise UsageError(
            f"argument {off[0]!r} is in CPU memory",
            remedy='move it to an AMD GPU, or run inside `with amdwarp.emulate("gfx950"):`',
        )
    _launch_on_gpu(launch)


def _launch_on_gpu(launch: Launch) -> None:  # untested on hardware; tests run it against a stand-in driver
    import torch

    device = next(value.device for value in launch.args.values() if _is_gpu_tensor(value))
    with torch.cuda.device(device):
        launch.kernel[launch.grid](**launch.args, **launch.constexprs, **launch.options)


def _emulate(launch: Launch, emulation: Emulation) -> None:
    from .emulator import launch as run_text

    compiled, values = compile_for(launch, emulation.target)
    arguments = [memory_span(value) if _is_array(value) else value for value in values]
    if not emulation.execute:
        emulation.records.append((launch, compiled, None))
        return
    if emulation.sanitize:
        emulation.records.append((launch, compiled, _sanitize(compiled, arguments, launch, emulation)))
        return
    result = run_text(
        compiled.asm["amdgcn"],
        arguments,
        launch.grid,
        workgroups=emulation.workgroups,
        seed=emulation.seed,
        progress=emulation.progress,
        lds_bytes=compiled.metadata.shared,
    )
    emulation.records.append((launch, compiled, result))


def _sanitize(compiled: Any, arguments: list[Any], launch: Launch, emulation: Emulation) -> Any:
    from .sanitizer import check

    report = check(
        compiled, arguments, launch.grid, workgroups=emulation.workgroups, progress=emulation.progress
    )  # fmt: skip
    if not report.ok:
        raise EmulatorError(f"the sanitizer reports of {launch.kernel.__name__}:\n{report}")
    return report


def compile_for(launch: Launch, target: str | Target) -> tuple[Any, list[Any]]:
    """Compile a launch as Triton's launcher would specialise it.

    Returns:
        the compiled kernel, and the run-time arguments that its text takes, in order.

    Raises:
        UsageError: an argument that is missing, that the kernel does not have, or of a type that no kernel takes.
    """
    signature, hints, constexprs = _specialised(launch)
    compiled = compile_kernel(launch.kernel, signature, constexprs, target, attrs=hints, **launch.options)
    return compiled, [launch.args[name] for name in signature]


def text_arguments(launch: Launch) -> list[Any]:
    """The run-time arguments that the text of a launch takes, in order.

    Raises:
        UsageError: as for `compile_for`.
    """
    return [launch.args[name] for name in _specialised(launch)[0]]


def _specialised(launch: Launch) -> tuple[dict[str, str], dict[str, str], dict[str, Any]]:
    """Types of the run-time arguments, what is known of their values, and the arguments that are constants."""
    constexprs = dict(launch.constexprs)
    if unknown := [name for name in launch.args if name not in launch.kernel.arg_names]:
        names = ", ".join(launch.kernel.arg_names)
        raise UsageError(f"argument {unknown[0]!r} is no parameter of the kernel", remedy=f"have {names}")
    signature: dict[str, str] = {}
    hints: dict[str, str] = {}
    fixed = {one.name for one in launch.kernel.params if one.do_not_specialize}
    for name in launch.kernel.arg_names:
        if name in constexprs or name not in launch.args:
            continue  # compile knows of defaults
        value = launch.args[name]
        if name in fixed and isinstance(value, int):
            signature[name] = _describe(name, value)[0]
            continue
        if isinstance(value, int) and not isinstance(value, bool) and value == 1:
            constexprs[name] = 1
            continue
        signature[name], hints[name] = _describe(name, value)
    return signature, hints, constexprs


def _describe(name: str, value: Any) -> tuple[str, str]:
    """Triton type and specialisation letters of an argument."""
    if _is_array(value):
        array = as_numpy(value)
        type_name = _type_name(value)
        aligned = "D" if array.__array_interface__["data"][0] % 16 == 0 else ""
        return f"*{type_name}", aligned + ("S" if memory_span(value).nbytes < 2**31 else "")
    if isinstance(value, bool):
        return "i1", ""
    if isinstance(value, int):
        wide = not -(2**31) <= value < 2**31
        return "i64" if wide else "i32", "D" if value % 16 == 0 else ""
    if isinstance(value, float):
        return "fp32", ""
    raise UsageError(
        f"argument {name!r} is a {type(value).__name__}", remedy="pass arrays, tensors, integers or floats"
    )


def _type_name(value: Any) -> str:
    name = str(value.dtype).removeprefix("torch.")
    if name not in TYPE_NAMES:
        raise UsageError(f"dtype {name} has no kernel type", remedy=f"use one of {', '.join(TYPE_NAMES)}")
    return TYPE_NAMES[name]


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or is_tensor(value)


def is_tensor(value: Any) -> bool:
    """Whether a value is a torch tensor, of a subclass too; does not import torch."""
    of_torch = any(base.__module__.split(".")[0] == "torch" for base in type(value).__mro__)
    return of_torch and hasattr(value, "untyped_storage")


def _is_gpu_tensor(value: Any) -> bool:
    return is_tensor(value) and value.device.type != "cpu"


def as_numpy(value: Any) -> np.ndarray[Any, Any]:
    """The memory of an array or CPU tensor as a numpy array of the same shape and strides; no copy.

    A dtype that numpy lacks comes as unsigned integers of its width.

    Raises:
        UsageError: a tensor on another device, or on none.
    """
    if isinstance(value, np.ndarray):
        return value
    import torch

    tensor = value.detach()
    if tensor.device.type != "cpu":
        raise UsageError(f"a tensor on {tensor.device} has no memory here", remedy="pass tensor.cpu()")
    try:
        return np.asarray(tensor.numpy())
    except TypeError:
        width = {1: torch.uint8, 2: torch.int16}[tensor.element_size()]
        return np.asarray(tensor.view(width).numpy())


def memory_span(value: Any) -> np.ndarray[Any, Any]:
    """The bytes from the first to the last element of an array, strides and all, as a flat writable view.

    Raises:
        UsageError: a negative stride, which no kernel here takes.
    """
    array = as_numpy(value)
    if any(stride < 0 for stride in array.strides):
        raise UsageError("an array with a negative stride has no kernel form", remedy="pass a copy of it")
    last = sum((n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True))
    size = last + array.itemsize if array.size else 0
    flat = array.view(np.uint8) if array.ndim and array.flags.c_contiguous else _bytes_at(array)
    return np.lib.stride_tricks.as_strided(flat.reshape(-1), (size,), (1,), writeable=array.flags.writeable)


def _bytes_at(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """One-byte view at the address of an array's first element, keeping the array alive."""
    # as_strided goes through the array interface, which does not know ml_dtypes' element types
    raw = array.view(f"V{array.itemsize}")
    first = np.lib.stride_tricks.as_strided(raw, (1,), (array.itemsize,))
    return first.view(np.uint8)
