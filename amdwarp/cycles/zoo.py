"""Kernels of the zoo by name, compiled for a shape, with arguments to run them on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from amdwarp.errors import UsageError
from amdwarp.runtime import compile_for, emulate, memory_span

DTYPES: dict[str, Any] = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
DEFAULT_SHAPE = (4096, 4096, 4096)


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
    shape: tuple[int, int, int] = DEFAULT_SHAPE,
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


#: Name to the function that builds a launch.
KERNELS = {"gemm": gemm}
