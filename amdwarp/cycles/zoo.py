"""Kernels of the zoo by name, compiled for a shape, with arguments to run them on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from amdwarp.errors import UsageError
from amdwarp.runtime import emulate, memory_span, text_arguments

DTYPES: dict[str, Any] = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
#: Kernel to the shape it is modelled on, and to that of a timeline, whose picture holds few iterations.
DEFAULT_SHAPES = {"gemm": (4096, 4096, 4096), "attention": (8192, 8192, 128), "attention_causal": (8192, 8192, 128)}
SMALL_SHAPES = {"gemm": (2048, 2048, 2048), "attention": (2048, 2048, 128), "attention_causal": (2048, 2048, 128)}
#: Query and key heads of an attention: those of a 70-billion-parameter Llama 3.
HEADS, KEY_HEADS = 64, 8
#: Operands of a byte or less: fp8 (e4m3, as the GPU has it), int8, and fp4 with E8M0 scales.
NARROW = ("fp8", "i8", "mxfp4")


@dataclass(frozen=True)
class ZooLaunch:
    """A launch of a kernel of the zoo.

    Attributes:
        name: of the variant, for people.
        compiled: what Triton's compile returned.
        args: run-time arguments in order.
        grid: workgroups along x, y, z.
    """

    name: str
    compiled: Any
    args: list[Any]
    grid: tuple[int, ...]


def gemm(
    shape: tuple[int, int, int] = DEFAULT_SHAPES["gemm"],
    *,
    dtype: str = "fp16",
    schedule: str | None = None,
    arch: str = "gfx950",
    b_order: str = "nk",
) -> ZooLaunch:
    """``amdwarp.kernels.gemm.matmul`` on zeros: its timing does not depend on the numbers.

    Args:
        shape: M, N, K.
        dtype: ``fp16``, ``bf16``, or one of ``NARROW``, which is ``scaled_matmul`` and ``int8_matmul``.
        schedule: name of a schedule, or None for the kernel's own choice.
        arch: the GPU.
        b_order: ``nk``: B as a linear layer's weight, ``kn``: row-major.

    Raises:
        UsageError: a shape, dtype, schedule or order that the kernel cannot take.
    """
    from amdwarp.kernels import gemm as family

    if dtype not in DTYPES and dtype not in NARROW:
        raise UsageError(f"unknown dtype {dtype!r}", remedy=f"use one of {', '.join((*DTYPES, *NARROW))}")
    if b_order not in ("nk", "kn"):
        raise UsageError(f"unknown B order {b_order!r}", remedy="use nk or kn")
    m, n, k = shape
    _check_extents(shape)
    if dtype in NARROW:
        return _narrow(shape, dtype, schedule, arch, b_order)
    a = np.zeros((m, k), DTYPES[dtype])
    b = np.zeros((n, k), DTYPES[dtype]).T if b_order == "nk" else np.zeros((k, n), DTYPES[dtype])
    with emulate(arch, workgroups=[0]) as emulation:
        family.matmul(a, b, schedule=schedule)
    launch, compiled, _ = emulation.records[-1]
    args = [memory_span(value) if isinstance(value, np.ndarray) else value for value in text_arguments(launch)]
    name = f"gemm {m}x{n}x{k} {dtype} {family.schedule_name(launch.constexprs['S'])}"
    return ZooLaunch(name, compiled, args, launch.grid)


def attention(
    shape: tuple[int, int, int] = DEFAULT_SHAPES["attention"],
    *,
    dtype: str = "fp16",
    schedule: str | None = None,
    arch: str = "gfx950",
    b_order: str = "nk",
    causal: bool = False,
) -> ZooLaunch:
    """``amdwarp.kernels.attention.attention`` of one sequence, 64 query heads over 8 key heads, on zeros.

    Zeros never make a maximum grow, so that nothing is rescaled after the first block; random numbers rarely do.

    Args:
        shape: rows, keys, elements of a head.
        dtype: ``fp16`` or ``bf16``.
        schedule: name of a schedule, or None for the kernel's own choice.
        arch: the GPU.
        b_order: of a GEMM; ``nk`` here.
        causal: mask keys behind a row.

    Raises:
        UsageError: a shape, dtype or schedule that the kernel cannot take.
    """
    from amdwarp.kernels.attention import attention as family

    if dtype not in DTYPES:
        raise UsageError(f"unknown dtype {dtype!r}", remedy=f"use one of {', '.join(DTYPES)}")
    if b_order != "nk":
        raise UsageError(f"attention has no B order, and {b_order!r} was given", remedy="drop --b-order")
    _check_extents(shape)
    rows, keys, dim = shape
    q = np.zeros((1, HEADS, rows, dim), DTYPES[dtype])
    k, v = np.zeros((2, 1, KEY_HEADS, keys, dim), DTYPES[dtype])
    with emulate(arch, workgroups=[0]) as emulation:
        family(q, k, v, causal=causal, schedule=schedule)
    launch, compiled, _ = emulation.records[-1]
    args = [memory_span(value) if isinstance(value, np.ndarray) else value for value in text_arguments(launch)]
    of = launch.kernel.__module__
    kind = launch.constexprs["S"].title if "scheduled" in of else "tasks" if "tasks" in of else "plain"
    name = f"attention {rows}x{keys}x{dim} {'causal ' if causal else ''}{dtype} {kind}"
    return ZooLaunch(name, compiled, args, launch.grid)


def _check_extents(shape: tuple[int, int, int]) -> None:
    text = ",".join(map(str, shape))
    if min(shape) < 1:
        raise UsageError(f"shape {text} has no work in it", remedy="give three positive numbers")
    if max(shape) >= 2**31:
        raise UsageError(f"shape {text} has an extent of 2**31 or more", remedy="give smaller ones")


def _narrow(shape: tuple[int, int, int], dtype: str, schedule: str | None, arch: str, b_order: str) -> ZooLaunch:
    """The scheduled kernel of narrow operands, planned and compiled; nothing is run."""
    import amdwarp
    from amdwarp.kernels.gemm import Matrix, plan, schedule_name
    from amdwarp.kernels.gemm.dtypes import FNUZ_TARGETS
    from amdwarp.kernels.gemm.scales import shuffle_scales

    m, n, k = shape
    mx = dtype == "mxfp4"
    if mx and k % 32:
        raise UsageError(f"K = {k} is no multiple of 32, the elements of a scale", remedy="give another --shape")
    if b_order == "kn":
        raise UsageError(f"{dtype} takes B with K contiguous only", remedy="drop --b-order")
    width = k // 2 if mx else k  # bytes
    a, b, c = (np.zeros(extents, kind) for extents, kind in (((m, width), "u1"), ((n, width), "u1"), ((m, n), "u4")))
    names = {"fp8": "fp8e4b8" if arch in FNUZ_TARGETS else "fp8e4nv"}
    made = plan(
        Matrix(m, width, width, 1, element_bytes=1),
        Matrix(width, n, 1, width, element_bytes=1),
        Matrix(m, n, n, 1, element_bytes=2 if dtype != "i8" else 4),
        names.get(dtype, dtype),
        schedule,
        target=arch,
    )
    signature, constants = made.signature, made.constexprs
    compiled = amdwarp.compile(made.function(), signature, constants, arch, attrs=made.hints, **made.options)
    scales = [shuffle_scales(np.full((rows, k // 32), 127, "u1")) for rows in (m, n)] if mx else []
    args = [*(memory_span(array) for array in (a, b, c, *scales)), *made.arguments.values()]
    return ZooLaunch(f"gemm {m}x{n}x{k} {dtype} {schedule_name(made.schedule)}", compiled, args, made.grid)


#: Name to the function that builds a launch.
KERNELS: dict[str, Callable[..., ZooLaunch]] = {
    "gemm": gemm,
    "attention": attention,
    "attention_causal": functools.partial(attention, causal=True),
}
