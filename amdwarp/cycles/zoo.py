"""Kernels of the zoo by name, compiled for a shape, with arguments to run them on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from amdwarp.errors import UsageError
from amdwarp.runtime import compile_for, emulate, memory_span

DTYPES: dict[str, Any] = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
#: Kernel to the shape it is modelled on, and to that of a timeline, whose picture holds few iterations.
DEFAULT_SHAPES = {"gemm": (4096, 4096, 4096), "attention": (8192, 8192, 128), "attention_causal": (8192, 8192, 128)}
SMALL_SHAPES = {"gemm": (2048, 2048, 2048), "attention": (2048, 2048, 128), "attention_causal": (2048, 2048, 128)}
#: Query and key heads of an attention: those of a 70-billion-parameter Llama 3.
HEADS, KEY_HEADS = 64, 8


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
        dtype: ``fp16`` or ``bf16``.
        schedule: name of a schedule, or None for the kernel's own choice.
        arch: the GPU.
        b_order: ``nk``: B as a linear layer's weight, ``kn``: row-major.

    Raises:
        UsageError: a shape, dtype, schedule or order that the kernel cannot take.
    """
    from amdwarp.kernels import gemm as family

    if dtype not in DTYPES:
        raise UsageError(f"unknown dtype {dtype!r}", remedy=f"use one of {', '.join(DTYPES)}")
    if b_order not in ("nk", "kn"):
        raise UsageError(f"unknown B order {b_order!r}", remedy="use nk or kn")
    m, n, k = shape
    a = np.zeros((m, k), DTYPES[dtype])
    b = np.zeros((n, k), DTYPES[dtype]).T if b_order == "nk" else np.zeros((k, n), DTYPES[dtype])
    with emulate(arch, workgroups=[0]) as emulation:
        family.matmul(a, b, schedule=schedule)
    launch, compiled, _ = emulation.records[-1]
    _, values = compile_for(launch, arch)
    args = [memory_span(value) if isinstance(value, np.ndarray) else value for value in values]
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
    rows, keys, dim = shape
    q = np.zeros((1, HEADS, rows, dim), DTYPES[dtype])
    k, v = np.zeros((2, 1, KEY_HEADS, keys, dim), DTYPES[dtype])
    with emulate(arch, workgroups=[0]) as emulation:
        family(q, k, v, causal=causal, schedule=schedule)
    launch, compiled, _ = emulation.records[-1]
    _, values = compile_for(launch, arch)
    args = [memory_span(value) if isinstance(value, np.ndarray) else value for value in values]
    kind = "ping_pong" if "ping_pong" in launch.kernel.__module__ else "plain"
    name = f"attention {rows}x{keys}x{dim} {'causal ' if causal else ''}{dtype} {kind}"
    return ZooLaunch(name, compiled, args, launch.grid)


#: Name to the function that builds a launch.
KERNELS: dict[str, Callable[..., ZooLaunch]] = {
    "gemm": gemm,
    "attention": attention,
    "attention_causal": functools.partial(attention, causal=True),
}
