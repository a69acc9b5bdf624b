"""The peer: a plain ``tl.dot`` matrix product as Triton's tutorials write it, and how it is compiled and launched."""

# The kernel language has no types of its own for tensors.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from triton.compiler import ASTSource

from amdwarp.target import get_target

from .kinds import kind_of

PINGPONG = "TRITON_HIP_USE_BLOCK_PINGPONG"
SCALARS = ("m", "n", "k", "stride_am", "stride_bn", "stride_cm")


def matmul(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    stride_am,
    stride_bn,
    stride_cm,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    EVEN_K: tl.constexpr,
    SUM: tl.constexpr = tl.float32,
):
    """C = A @ B; A and C row-major, K contiguous in B, as a linear layer's weight stores it.

    EVEN_K says that BK divides K, so that no load needs a mask. SUM is the type of the sums.
    """
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
    in_group = GROUP * tiles_n
    first = program // in_group * GROUP
    rows = min(tiles_m - first, GROUP)
    tile_m, tile_n = first + program % in_group % rows, program % in_group // rows
    row = (tile_m * BM + tl.arange(0, BM)) % m
    column = (tile_n * BN + tl.arange(0, BN)) % n
    step = tl.arange(0, BK)
    a = a_ptr + row[:, None] * stride_am + step[None, :]
    b = b_ptr + step[:, None] + column[None, :] * stride_bn
    acc = tl.zeros((BM, BN), SUM)
    for at in range(tl.cdiv(k, BK)):
        if EVEN_K:
            left, right = tl.load(a), tl.load(b)
        else:
            left = tl.load(a, mask=step[None, :] < k - at * BK, other=0.0)
            right = tl.load(b, mask=step[:, None] < k - at * BK, other=0.0)
        acc = tl.dot(left, right, acc, out_dtype=SUM)
        a += BK
        b += BK
    row = tile_m * BM + tl.arange(0, BM)
    column = tile_n * BN + tl.arange(0, BN)
    where = (row[:, None] < m) & (column[None, :] < n)
    tl.store(c_ptr + row[:, None] * stride_cm + column[None, :], acc.to(c_ptr.dtype.element_ty), mask=where)


def matmul_mx(
    a_ptr,
    b_ptr,
    c_ptr,
    a_scale_ptr,
    b_scale_ptr,
    m,
    n,
    k,
    stride_am,
    stride_bn,
    stride_cm,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    """The same of fp4 elements, two a byte along K, with E8M0 scales in rows, one for 32 elements. BK divides K."""
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
    in_group = GROUP * tiles_n
    first = program // in_group * GROUP
    rows = min(tiles_m - first, GROUP)
    tile_m, tile_n = first + program % in_group % rows, program % in_group // rows
    row = (tile_m * BM + tl.arange(0, BM)) % m
    column = (tile_n * BN + tl.arange(0, BN)) % n
    step = tl.arange(0, BK // 2)
    scale = tl.arange(0, BK // 32)
    a = a_ptr + row[:, None] * stride_am + step[None, :]
    b = b_ptr + step[:, None] + column[None, :] * stride_bn
    a_scale = a_scale_ptr + row[:, None] * (k // 32) + scale[None, :]
    b_scale = b_scale_ptr + column[:, None] * (k // 32) + scale[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(tl.cdiv(k, BK)):
        acc = tl.dot_scaled(tl.load(a), tl.load(a_scale), "e2m1", tl.load(b), tl.load(b_scale), "e2m1", acc)
        a += BK // 2
        b += BK // 2
        a_scale += BK // 32
        b_scale += BK // 32
    row = tile_m * BM + tl.arange(0, BM)
    column = tile_n * BN + tl.arange(0, BN)
    where = (row[:, None] < m) & (column[None, :] < n)
    tl.store(c_ptr + row[:, None] * stride_cm + column[None, :], acc.to(c_ptr.dtype.element_ty), mask=where)


matmul_kernel = triton.jit(matmul)
matmul_mx_kernel = triton.jit(matmul_mx)


@dataclass(frozen=True)
class Config:
    """One point of the space that is searched: tile, step, grouping, and backend options."""

    bm: int
    bn: int
    bk: int
    warps: int
    stages: int
    mfma: int
    kpack: int = 1
    group: int = 4

    def __str__(self) -> str:
        text = f"{self.bm}x{self.bn}x{self.bk} warps {self.warps} stages {self.stages} mfma {self.mfma}"
        return text + (f" kpack {self.kpack}" if self.kpack > 1 else "")

    @property
    def constexprs(self) -> dict[str, int]:
        """Compile-time arguments of the kernel."""
        return {"BM": self.bm, "BN": self.bn, "BK": self.bk, "GROUP": self.group}

    @property
    def options(self) -> dict[str, Any]:
        """Backend options."""
        options = {"num_warps": self.warps, "num_stages": self.stages, "matrix_instr_nonkdim": self.mfma}
        return options | ({"kpack": self.kpack} if self.kpack > 1 else {})

    def grid(self, m: int, n: int) -> tuple[int]:
        """Workgroups of a product."""
        return (-(-m // self.bm) * -(-n // self.bn),)


@contextlib.contextmanager
def pingpong(setting: bool | None) -> Iterator[None]:
    """Stock block ping-pong off, on, or as this Triton has it by default, for what compiles inside the block.

    The variable is part of Triton's cache key; the knob of the same meaning is not.
    """
    before = os.environ.pop(PINGPONG, None)
    if setting is not None:
        os.environ[PINGPONG] = str(int(setting))
    try:
        yield
    finally:
        os.environ.pop(PINGPONG, None)
        if before is not None:
            os.environ[PINGPONG] = before


def compile_stock(config: Config, dtype: str, target: str, setting: bool | None, even_k: bool = True) -> Any:
    """Compile the peer with stock Triton, for arguments that are all divisible by 16, as a launch would see them.

    Args:
        config: tile and backend options.
        dtype: one of ``kinds.KINDS``.
        target: arch.
        setting: of stock ping-pong.
        even_k: the step along K divides K.
    """
    kind = kind_of(dtype)
    scaled = dtype == "mxfp4"
    element = "u8" if scaled else kind.operand(target)
    pointers = {"a_ptr": f"*{element}", "b_ptr": f"*{element}", "c_ptr": f"*{kind.out}"}
    constants: dict[str, Any] = dict(config.constexprs)
    if scaled:
        pointers |= {"a_scale_ptr": "*u8", "b_scale_ptr": "*u8"}
    else:
        constants |= {"EVEN_K": even_k, "SUM": tl.int32 if dtype == "int8" else tl.float32}
    types = pointers | dict.fromkeys(SCALARS, "i32") | dict.fromkeys(constants, "constexpr")
    whole = ["tt.divisibility", 16]
    hints: dict[Any, Any] = {(at,): [list(whole)] for at in range(len(pointers) + len(SCALARS))}
    for at in range(len(pointers)):
        hints[(at,)].append(["tt.pointer_range", 32])
    source = ASTSource(matmul_mx_kernel if scaled else matmul_kernel, types, constants, hints)
    record = get_target(target)
    with pingpong(setting):
        return triton.compile(source, target=record.gpu_target, options=config.options | {"enable_fp_fusion": True})


def has_pingpong(compiled: Any) -> bool:
    """Whether stock Triton's ping-pong pass did anything: it gives priorities, or lets half of the waves wait."""
    return any(word in compiled.asm["ttgir"] for word in ("cond_barrier", "setprio"))
