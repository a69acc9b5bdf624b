"""GEMM for CDNA4 (gfx950): fp16 and bf16 operands, fp32 accumulation, two wave groups one stage apart.

>>> from amdwarp.kernels.gemm import matmul
>>> c = matmul(a, b)                # torch tensors on the GPU
>>> with amdwarp.emulate("gfx950"):
...     c = matmul(a, b)            # numpy arrays or CPU tensors, in the emulator
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amdwarp.errors import UsageError
from amdwarp.runtime import Launch, current_emulation, is_tensor, run
from amdwarp.target import TARGETS, Target, get_target

from .configs import SCHEDULES, Access, GemmSchedule, choose
from .plan import GemmPlan, Matrix, plan, product_extents
from .tasks import TASKS, TasksSchedule

DTYPE_NAMES = {"float16": "fp16", "bfloat16": "bf16"}


def matmul(a: Any, b: Any, *, out: Any = None, schedule: str | GemmSchedule | None = None) -> Any:
    """A @ B with fp32 accumulation, rounded once to the operands' dtype. No gradient is recorded.

    Args:
        a: (M, K) fp16 or bf16, row-major; rows may lie apart. A torch tensor or a numpy array
            (bf16 as ``ml_dtypes.bfloat16``).
        b: (K, N) of the same kind and dtype, in either order: row-major, or the transposed view ``weight.T`` of a
            (N, K) weight.
        out: (M, N) row-major of that dtype, written and returned; a new one if None. It may not lie over a or b.
        schedule: a name in ``SCHEDULES``, a ``GemmSchedule``, or None or ``"inter_wave"`` for the default of the shape.

    Raises:
        UsageError: operands or a schedule that the kernel cannot take, before anything is launched.
        UnsupportedTritonError: no Triton, or one of a version this package was not tried with.
    """
    dtype = _check_pair(a, b)
    left, right = _matrix("a", a), _matrix("b", b)
    target, compute_units = _device(a)
    m, n, _ = product_extents(left, right)
    if out is None:
        out = _empty_like(a, m, n)
    else:
        _check_out(out, a)
    product = _matrix("out", out)
    launch = plan(left, right, product, dtype, schedule, target=target, compute_units=compute_units)
    if current_emulation() is None and _place(a) == "cpu":
        raise _error("a is in CPU memory", 'move it to an AMD GPU, or run inside `with amdwarp.emulate("gfx950"):`')
    arguments = {"a_ptr": a, "b_ptr": b, "c_ptr": out} | launch.arguments
    run(Launch(launch.function(), launch.grid, arguments, launch.constexprs, launch.options))
    return out


def schedule_name(schedule: GemmSchedule) -> str:
    """The name of a schedule in ``SCHEDULES``, or its repr for any other."""
    return next((name for name, known in (SCHEDULES | TASKS).items() if known == schedule), repr(schedule))


def _error(problem: str, remedy: str) -> UsageError:
    return UsageError(problem, remedy=remedy, construct="matmul")


def _kind(value: Any) -> str:
    """What must agree between operands, in words."""
    if is_tensor(value):
        return f"{_dtype(value)} tensor on {value.device}"
    return f"{_dtype(value)} array" if isinstance(value, np.ndarray) else type(value).__name__


def _dtype(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")


def _check_pair(a: Any, b: Any) -> str:
    for name, value in (("a", a), ("b", b)):
        if not is_tensor(value) and not isinstance(value, np.ndarray):
            raise _error(f"{name} is a {type(value).__name__}", "pass torch tensors or numpy arrays")
        _check_memory(name, value)
    if _kind(a) != _kind(b):
        raise _error(f"a is a {_kind(a)} and b is a {_kind(b)}", "convert or move one of them")
    if _dtype(a) not in DTYPE_NAMES:
        raise _error(f"dtype {_dtype(a)} is not supported", f"convert to {' or '.join(DTYPE_NAMES)}")
    return DTYPE_NAMES[_dtype(a)]


def _check_memory(name: str, value: Any) -> None:
    """Refuse what has a shape and a dtype, but more to it than the numbers at its address."""
    if is_tensor(value) and str(value.layout) != "torch.strided":
        raise _error(f"{name} has layout {value.layout}", f"pass {name}.to_dense()")
    if isinstance(value, np.ma.MaskedArray):
        raise _error(f"{name} is a masked array, whose mask no kernel sees", f"pass {name}.filled(0)")


def _check_out(out: Any, a: Any) -> None:
    if _kind(out) != _kind(a):
        raise _error(f"out is a {_kind(out)} and a is a {_kind(a)}", "pass an out like a, or none")
    _check_memory("out", out)
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise _error("out is read-only", "pass a writeable one, or none")


def _matrix(name: str, value: Any) -> Matrix:
    if len(value.shape) != 2:
        raise _error(f"{name} has {len(value.shape)} dimensions, not 2", "reshape it")
    rows, columns = map(int, value.shape)
    if is_tensor(value):
        return Matrix(rows, columns, value.stride(0), value.stride(1), value.data_ptr())
    if any(stride % value.itemsize for stride in value.strides):
        raise _error(f"{name} has strides of {value.strides} bytes, no whole elements", f"copy {name}")
    row_stride, column_stride = (stride // value.itemsize for stride in value.strides)
    return Matrix(rows, columns, row_stride, column_stride, value.__array_interface__["data"][0])


def _empty_like(a: Any, rows: int, columns: int) -> Any:
    if is_tensor(a):
        return a.new_empty((rows, columns))
    return np.empty((rows, columns), a.dtype)


def _place(a: Any) -> str:
    """``cpu``, ``cuda`` (an AMD GPU's name in torch, too), or another of torch's device types."""
    return str(a.device.type) if is_tensor(a) else "cpu"


def _device(a: Any) -> tuple[Target, int]:
    """The GPU that will run it, and its compute units; gfx950 where the operands are on none."""
    emulation, place = current_emulation(), _place(a)
    if place not in ("cpu", "cuda"):
        raise _error(f"a is on device {a.device}", "move it to an AMD GPU, or to the CPU inside amdwarp.emulate")
    if emulation is not None and place != "cpu":
        raise _error("a is on a GPU inside amdwarp.emulate", "pass CPU tensors or numpy arrays, or leave the block")
    if place == "cpu":
        target = emulation.target if emulation is not None else get_target("gfx950")
        return target, target.compute_units
    import torch

    properties = torch.cuda.get_device_properties(a.device)
    arch = getattr(properties, "gcnArchName", properties.name)
    if arch.split(":")[0] not in TARGETS:
        raise _error(f"a is on a {arch}, which is none of {', '.join(TARGETS)}", "use amdwarp.emulate, or such a GPU")
    return get_target(arch), properties.multi_processor_count


__all__ = [
    "SCHEDULES",
    "TASKS",
    "Access",
    "GemmPlan",
    "GemmSchedule",
    "Matrix",
    "TasksSchedule",
    "choose",
    "matmul",
    "plan",
    "product_extents",
    "schedule_name",
]
