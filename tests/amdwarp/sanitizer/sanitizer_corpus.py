"""Cases of clean kernels: how to compile and launch each. Importing this imports Triton."""

# ruff: noqa: E501 - one case a line or two reads better than ten
# fmt: off

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # 3.9 warns when it is not set

import ml_dtypes
import numpy as np
import sanitizer_gfx1250 as gfx1250
import sanitizer_kernels as kernels
import sanitizer_tasks as tasks
import triton
from amdwarp.kernels.gemm import SCHEDULES, Access, matmul
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

import amdwarp
from amdwarp.runtime import compile_for, memory_span

F16, BF16, F32, I32, I8 = np.float16, ml_dtypes.bfloat16, np.float32, np.int32, np.int8
LANES = {"gfx942": 64, "gfx950": 64, "gfx1250": 32}
TYPE_NAMES: dict[Any, str] = {
    np.dtype(F16): "fp16",
    np.dtype(BF16): "bf16",
    np.dtype(F32): "fp32",
    np.dtype(np.float64): "fp64",
    np.dtype(I32): "i32",
    np.dtype(np.int64): "i64",
    np.dtype(I8): "i8",
    np.dtype(np.uint8): "u8",
    np.dtype(ml_dtypes.float8_e4m3fn): "fp8e4nv",
    np.dtype(ml_dtypes.float8_e5m2): "fp8e5",
    np.dtype(ml_dtypes.float8_e4m3fnuz): "fp8e4b8",
}


@dataclass(frozen=True)
class Run:
    """A compiled kernel with what `amdwarp.sanitizer.check` takes."""

    text: str
    lds_bytes: int
    args: list[Any]
    grid: tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A kernel of ``sanitizer_kernels.py``.

    Attributes:
        name: unique with the arch.
        kernel: name of the function.
        arch: target.
        args: makes the run-time arguments from a generator.
        grid: workgroups.
        constants: constexpr arguments.
        options: of the compilation.
    """

    name: str
    kernel: str
    arch: str
    args: Callable[[np.random.Generator], list[Any]]
    grid: tuple[int, ...]
    constants: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def build(self) -> Run:
        """Compile it and make its arguments."""
        function = getattr(kernels, self.kernel, None) or getattr(gfx1250, self.kernel)
        args = self.args(np.random.default_rng(0))
        names = [name for name in function.arg_names if name not in self.constants]
        types, attributes = dict.fromkeys(self.constants, "constexpr"), {}
        for name, value in zip(names, args, strict=True):
            at = (function.arg_names.index(name),)
            if isinstance(value, np.ndarray):
                types[name] = "*" + TYPE_NAMES[value.dtype]
                attributes[at] = [["tt.divisibility", 16], ["tt.pointer_range", 32]]
            else:
                types[name] = "fp32" if isinstance(value, float) else "i32"
                if not isinstance(value, float) and value % 16 == 0:
                    attributes[at] = [["tt.divisibility", 16]]
        types = {name: types[name] for name in function.arg_names}
        values = {(function.arg_names.index(name),): value for name, value in self.constants.items()}
        source = (GluonASTSource if function.is_gluon() else ASTSource)(function, types, values, attributes)
        compiled = triton.compile(
            source, target=GPUTarget("hip", self.arch, LANES[self.arch]), options=dict(self.options)
        )
        return Run(compiled.asm["amdgcn"], compiled.metadata.shared, args, self.grid)


@dataclass(frozen=True)
class ZooCase:
    """One tile of the library's own GEMM."""

    name: str
    schedule: str
    order: str
    k: int
    arch: str

    def build(self) -> Run:
        """Compile it and make its arguments."""
        schedule = SCHEDULES[self.schedule]
        rng = np.random.default_rng(0)
        a = rng.standard_normal((schedule.tile_m, self.k)).astype(F16)
        b = rng.standard_normal((schedule.tile_n, self.k)).astype(F16)
        b = b.T if self.order == "nk" else np.ascontiguousarray(b.T)
        out = np.zeros((schedule.tile_m, schedule.tile_n), F16)
        with amdwarp.emulate(self.arch) as emulation:
            matmul(a, b, out=out, schedule=self.schedule)
        compiled, values = compile_for(emulation.records[0][0], self.arch)
        args = [memory_span(value) if isinstance(value, np.ndarray) else value for value in values]
        return Run(compiled.asm["amdgcn"], compiled.metadata.shared, args, (1,))


@dataclass(frozen=True)
class TaskCase:
    """The kernel of ``sanitizer_tasks.py``: waves of the task that loads, slots of the ring."""

    name: str
    arch: str
    waves: int
    ring: int

    def build(self) -> Run:
        """Compile it and make its arguments."""
        size, steps = 512, 7
        constants = {"LANES": LANES[self.arch], "SIZE": size, "WAVES": self.waves, "RING": self.ring}
        signature = {"x": "*fp32", "y": "*fp32", "steps": "i32"}
        compiled = amdwarp.compile(tasks.ring_of_slots, signature, constants, self.arch, num_warps=4)
        x = np.random.default_rng(0).standard_normal(steps * size).astype(F32)
        args = [x, np.zeros((steps + 1) * size, F32), steps]
        return Run(compiled.asm["amdgcn"], compiled.metadata.shared, args, (1,))


def _normal(shape: tuple[int, ...], dtype: Any = F32) -> Callable[[np.random.Generator], Any]:
    return lambda rng: rng.standard_normal(shape).astype(dtype)


def _args(*makers: Any) -> Callable[[np.random.Generator], list[Any]]:
    """Arguments from values and from functions of the generator."""
    return lambda rng: [
        make(rng) if callable(make) else make.copy() if hasattr(make, "copy") else make for make in makers
    ]


def _integers(high: int, shape: tuple[int, ...], dtype: Any = I32) -> Callable[[np.random.Generator], Any]:
    return lambda rng: rng.integers(0, high, shape).astype(dtype)


def _elementwise(arch: str) -> list[Case]:
    cases = [
        Case(f"vector_add-{TYPE_NAMES[np.dtype(dtype)]}", "vector_add", arch,
             _args(_normal((3000,), dtype), _normal((3000,), dtype), np.zeros(3000, dtype), 3000), (3,), {"BLOCK": 1024})
        for dtype in (F32, F16, BF16, np.float64)
    ]  # fmt: skip
    pair = [_normal((1000,)), _normal((1000,)), np.zeros(1000, F32), 1000]
    cases += [
        Case("division", "division", arch, _args(*pair), (2,), {"BLOCK": 512}),
        Case("integer_division", "integer_division", arch,
             _args(_integers(9999, (512,)), _integers(99, (512,)), np.zeros(512, I32)), (1,), {"BLOCK": 512}),
        Case("rope", "rope", arch, _args(_normal((32, 128), F16), _normal((32, 64), F16), _normal((32, 64), F16),
             np.zeros((32, 128), F16)), (2,), {"HALF": 64, "ROWS": 16}),
        Case("atomics", "atomics", arch, _args(np.zeros(8, I32), np.zeros(8, F32), np.zeros(8, I32), _normal((1000,)), 1000),
             (4,), {"BLOCK": 256}),
        Case("last_reduces", "last_reduces", arch,
             _args(_normal((4, 256)), np.zeros(4, F32), np.zeros(1, I32), np.zeros(1, F32)), (4,), {"BLOCK": 256, "PARTS": 4}),
    ]  # fmt: skip
    return cases


def _rows(arch: str) -> list[Case]:
    cases = [
        Case(f"softmax-{columns}", "softmax", arch, _args(_normal((2, columns)), np.zeros((2, columns), F32), columns), (2,),
             {"BLOCK": 1 << (columns - 1).bit_length()})
        for columns in (61, 1000, 4096)
    ]  # fmt: skip
    cases += [
        Case(f"layer_norm-{warps}", "layer_norm", arch, _args(_normal((2, 640), F16), np.zeros((2, 640), F16), _normal((640,)),
             _normal((640,)), 640, 1e-5), (2,), {"BLOCK": 1024}, {"num_warps": warps})
        for warps in (1, 4, 8)
    ]  # fmt: skip
    cases.append(Case("layer_norm_loop", "layer_norm_loop", arch, _args(_normal((2, 1300)), np.zeros((2, 1300), F32), 1300),
                      (2,), {"BLOCK": 512}))  # fmt: skip
    for warps in (1, 4):
        cases.append(Case(f"reductions-{warps}", "reductions", arch, _args(_normal((16, 128)), np.zeros(16, F32),
                          np.zeros(128, F32), np.zeros(16, I32), np.zeros((16, 128), F32)), (1,),
                          {"ROWS": 16, "COLUMNS": 128}, {"num_warps": warps}))  # fmt: skip
    cases += [
        Case("scan", "scan", arch, _args(_normal((256, 32)), np.zeros((256, 32), F32)), (1,), {"ROWS": 256, "COLUMNS": 32}),
        Case("histogram", "histogram", arch, _args(_integers(64, (1024,)), np.zeros(64, I32)), (1,),
             {"BLOCK": 1024, "BINS": 64}),
        Case("sort", "sort", arch, _args(_normal((1024,)), np.zeros(1024, F32)), (1,), {"BLOCK": 1024}),
        Case("gather", "gather", arch, _args(_normal((512,)), _integers(512, (512,)), np.zeros(512, F32)), (1,),
             {"BLOCK": 512}),
        Case("transpose", "transpose", arch, _args(_normal((128, 64), F16), np.zeros((64, 128), F16)), (1,),
             {"ROWS": 128, "COLUMNS": 64}),
        Case("transpose-8", "transpose", arch, _args(_integers(99, (128, 64), I8), np.zeros((64, 128), I8)), (1,),
             {"ROWS": 128, "COLUMNS": 64}),
    ]  # fmt: skip
    return cases


def _matmul(
    name: str,
    arch: str,
    dtype: Any,
    out: Any,
    tile: tuple[int, int, int],
    *,
    order: str,
    steps: int = 4,
    **options: Any,
) -> Case:
    bm, bn, bk = tile
    k = steps * bk
    constants = {"BM": bm, "BN": bn, "BK": bk}
    make = _integers(9, (bm, k), dtype) if dtype is I8 else _normal((bm, k), dtype)
    other = (k, bn) if order == "nn" else (bn, k)
    right = _integers(9, other, dtype) if dtype is I8 else _normal(other, dtype)
    c = np.zeros((bm, bn), out)
    if order == "nn":
        return Case(name, "matmul", arch, _args(make, right, c, bm, bn, k), (1, 1), constants, options)
    return Case(name, "matmul_nt", arch, _args(make, right, c, bn, k), (1, 1), constants, options)


def _dots(arch: str) -> list[Case]:
    fp8 = ml_dtypes.float8_e4m3fnuz if arch == "gfx942" else ml_dtypes.float8_e4m3fn
    rows: list[tuple[Any, Any, tuple[int, int, int], dict[str, Any]]] = [
        (F16, F16, (128, 128, 32), {"num_stages": 2}),
        (F16, F32, (64, 64, 64), {"num_stages": 1, "matrix_instr_nonkdim": 16}),
        (F16, F16, (128, 64, 64), {"num_stages": 2, "matrix_instr_nonkdim": 32, "num_warps": 8}),
        (BF16, F32, (64, 128, 32), {"num_stages": 3, "matrix_instr_nonkdim": 32}),
        (F32, F32, (64, 64, 32), {"num_stages": 2, "matrix_instr_nonkdim": 16}),
        (fp8, F32, (64, 64, 128), {"num_stages": 2, "matrix_instr_nonkdim": 16}),
        (fp8, F32, (64, 64, 128), {"num_stages": 2, "matrix_instr_nonkdim": 32}),
        (I8, I32, (64, 64, 64), {"num_stages": 2}),
        (F16, F32, (32, 32, 32), {"num_stages": 2, "num_warps": 1}),
    ]
    cases = []
    for order in ("nn", "nt"):
        for at, (dtype, out, tile, options) in enumerate(rows):
            if dtype is I8 and order == "nn":
                continue
            name = f"dot-{order}-{at}-{TYPE_NAMES[np.dtype(dtype)]}"
            cases.append(_matmul(name, arch, dtype, out, tile, order=order, **options))
    cases.append(_matmul("dot-long-fp16", arch, F16, F16, (128, 128, 32), order="nn", steps=10, num_stages=2))
    cases.append(_matmul("dot-long-bf16", arch, BF16, F32, (64, 128, 32), order="nn", steps=10, num_stages=3))
    cases.append(_matmul("dot-spills", arch, F16, F16, (256, 256, 32), order="nn", num_warps=4, num_stages=2))
    half = _normal((64, 100), F16)
    cases += [
        Case("dot-masked", "matmul", arch, _args(_normal((90, 128), F16), _normal((128, 72), F16), np.zeros((90, 72), F16),
             90, 72, 128), (2, 2), {"BM": 64, "BN": 64, "BK": 32}),
        Case("dot-masked-k", "matmul_masked_k", arch, _args(half, _normal((100, 64), F16), np.zeros((64, 64), F32), 64, 100),
             (1,), {"BM": 64, "BN": 64, "BK": 32}),
        Case("dot-persistent", "matmul_persistent", arch, _args(_normal((256, 128), F16), _normal((128, 64), F16),
             np.zeros((256, 64), F32), 64, 128, 4), (2,), {"BM": 64, "BN": 64, "BK": 64}),
        Case("dot-split-k", "matmul_split_k", arch, _args(_normal((64, 256), F16), _normal((256, 64), F16),
             np.zeros((64, 64), F32), 64, 256), (2,), {"BM": 64, "BN": 64, "BK": 64, "SPLIT": 2}),
        Case("dot-chained", "chained_dots", arch, _args(_normal((64, 64), F16), _normal((64, 64), F16), _normal((64, 64), F16),
             np.zeros((64, 64), F32)), (1,), {"BM": 64, "BK": 64, "BN": 64}),
    ]  # fmt: skip
    return cases


def _attention(arch: str) -> list[Case]:
    return [
        Case(f"attention-{TYPE_NAMES[np.dtype(dtype)]}-{'causal' if causal else 'full'}", "attention", arch,
             _args(*[_normal((1, 128, 64), dtype)] * 3, np.zeros((1, 128, 64), dtype), 128, 0.18), (2, 1),
             {"BM": 64, "BN": 32, "D": 64, "CAUSAL": causal}, options)
        for dtype, causal, options in (
            (F16, False, {}), (F16, True, {"num_stages": 1}), (BF16, True, {"num_warps": 8}), (BF16, False, {"num_stages": 3}),
        )
    ]  # fmt: skip


def _scaled(arch: str) -> list[Case]:
    forms = [("e4m3", "e4m3"), ("e2m1", "e2m1"), ("e4m3", "e2m1")]
    cases = []
    for left, right in forms:
        pack = [2 if form == "e2m1" else 1 for form in (left, right)]
        args = _args(
            _integers(100, (64, 256 // pack[0]), np.uint8), _integers(100, (64, 256 // pack[1]), np.uint8),
            np.zeros((64, 64), F32), _integers(130, (64, 8), np.uint8), _integers(130, (64, 8), np.uint8), 256,
        )  # fmt: skip
        constants = {"BM": 64, "BN": 64, "BK": 128, "FA": left, "FB": right, "PA": pack[0], "PB": pack[1]}
        cases.append(Case(f"scaled-{left}-{right}", "matmul_scaled", arch, args, (1,), constants))
    return cases


def _gluon(arch: str) -> list[Case]:
    version, depth, width = (4, 16, 8) if arch == "gfx950" else (3, 8, 4)
    cases = []
    for warps in (4, 8):
        shape = [2, warps // 2]
        mma = gl.amd.AMDMFMALayout(version, instr_shape=[32, 32, depth], transposed=True, warps_per_cta=shape)
        constants = {"MMA": mma, "BM": 128, "BN": 128, "BK": 64, "WARPS": warps, "KW": width}
        args = _args(_normal((128, 256), F16), _normal((256, 128), F16), np.zeros((128, 128), F16), 128, 256)
        names = ["gluon_staged"] + (["gluon_async", "gluon_async_ring"] if arch == "gfx950" else [])
        if arch == "gfx942":
            constants |= {"BK": 32}
        cases += [Case(f"{name}-{warps}", name, arch, args, (1, 1), constants, {"num_warps": warps}) for name in names]
    args = _args(_normal((64, 64)), np.zeros((64, 64), F32))
    cases.append(Case("gluon_convert", "gluon_convert", arch, args, (1,), {"ROWS": 64, "COLUMNS": 64, "WARPS": 4}))
    return cases


def _gfx1250() -> list[Case]:
    arch, half = "gfx1250", np.zeros((64, 64), F16)
    wmma = gl.amd.AMDWMMALayout(3, True, [[0, 1], [1, 0]], [], [16, 16, 32])
    tile = {"WMMA": wmma, "BM": 64, "BN": 64, "BK": 32}
    a, b = _normal((64, 256), F16), _normal((256, 64), F16)
    return [
        Case("async_ring", "async_ring", arch, _args(a, b, half, 64, 256), (1, 1), tile),
        Case("tensor_ring", "tensor_ring", arch, _args(a, b, half, 64, 64, 256), (1, 1), tile),
        Case("copy_through_lds", "copy_through_lds", arch, _args(_normal((1000,)), np.zeros(1000, F32), 1000), (2,),
             {"BLOCK": 512}),
        Case("copy_with_arrival", "copy_with_arrival", arch, _args(_normal((512,)), np.zeros(512, F32)), (1,),
             {"BLOCK": 512}),
        Case("specialised", "specialised", arch, _args(_normal((96, 64)), np.zeros((96, 64), F32), 3), (1,),
             {"BM": 32, "BN": 64}),
    ]  # fmt: skip


def _all() -> dict[str, Any]:
    cases: list[Any] = []
    for arch in ("gfx950", "gfx942"):
        cases += [*_elementwise(arch), *_rows(arch), *_dots(arch), *_attention(arch), *_gluon(arch)]
    cases += [*_elementwise("gfx1250"), *_rows("gfx1250"), *_dots("gfx1250"), *_attention("gfx1250"), *_gfx1250()]
    cases += [*_scaled("gfx950"), *_scaled("gfx1250")]
    cases += [
        ZooCase(f"zoo-{name}-{order}", name, order, 328, schedule.arch)
        for name, schedule in SCHEDULES.items()
        for order in ("nk", "kn")
        if schedule.operand == "f16" and not schedule.constraints(schedule.arch, Access(b_k_contiguous=order == "nk"))
    ]
    cases += [
        TaskCase(f"tasks-{waves}-{ring}", arch, waves, ring)
        for arch in ("gfx950", "gfx942", "gfx1250")
        for waves, ring in ((1, 1), (2, 3), (4, 2))
    ]
    return {f"{case.arch}/{case.name}": case for case in cases}


#: Every case by ``arch/name``.
CASES: dict[str, Any] = _all()

#: Kernels that ``mutations.py`` breaks, with the bytes of a slot of each LDS ring.
MUTATED: dict[str, tuple[int, ...]] = {
    "gfx950/zoo-inter_wave_256-nk": (16896,),
    "gfx950/zoo-inter_wave_128-nk": (16896,),
    "gfx950/dot-long-fp16": (8320, 8704),
    "gfx950/gluon_async-4": (16384,),
    "gfx942/dot-long-bf16": (4096, 8192),
    "gfx942/gluon_staged-4": (),
    "gfx942/tasks-2-3": (2048,),
    "gfx1250/async_ring": (5120,),
    "gfx1250/tensor_ring": (5120,),
    "gfx1250/tasks-1-1": (),
}
