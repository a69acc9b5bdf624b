"""Kernels that compile for AMD GPUs without one, and a way to edit their modules between the stages.

Importing this imports Triton: do so in a child process (``children.py``), since a fault in the wheel aborts its
process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # 3.9 warns when it is not set

import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction

WAVE_SIZE = {"gfx942": 64, "gfx950": 64, "gfx1250": 32}
CDNA = ("gfx942", "gfx950")
ALL = ("gfx942", "gfx950", "gfx1250")
STAGES = ("ttir", "glir", "ttgir")


# ---- stock Triton


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@triton.jit
def softmax(x, out, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + columns, mask=columns < n, other=-float("inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * stride + columns, value / tl.sum(value, 0), mask=columns < n)


@triton.jit
def layer_norm(x, weight, bias, out, n, stride, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * stride + columns, mask=columns < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / n
    square = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * stride + columns, mask=columns < n, other=0.0).to(tl.float32)
        value = tl.where(columns < n, value - mean, 0.0)
        square += value * value
    scale = 1 / tl.sqrt(tl.sum(square, 0) / n + eps)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < n
        value = tl.load(x + row * stride + columns, mask=mask, other=0.0).to(tl.float32)
        value = (value - mean) * scale * tl.load(weight + columns, mask=mask) + tl.load(bias + columns, mask=mask)
        tl.store(out + row * stride + columns, value, mask=mask)


@triton.jit
def matmul(
    a, b, c, m, n, k, stride_a, stride_b, stride_c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    at_a = a + rows[:, None] * stride_a + depth[None, :]
    at_b = b + depth[:, None] * stride_b + columns[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(tl.cdiv(k, BK)):
        acc = tl.dot(tl.load(at_a), tl.load(at_b), acc)
        at_a += BK
        at_b += BK * stride_b
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * stride_c + columns[None, :], acc.to(tl.float16), mask=mask)


@triton.jit
def attention(q, k, v, out, n, stride, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    dims = tl.arange(0, D)
    query = tl.load(q + rows[:, None] * stride + dims[None, :])
    highest = tl.full((BM,), -float("inf"), tl.float32)
    norm = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, n, BN):
        columns = start + tl.arange(0, BN)
        key = tl.load(k + columns[None, :] * stride + dims[:, None])
        score = tl.dot(query, key) * scale
        score = tl.where(rows[:, None] >= columns[None, :], score, -float("inf"))
        new = tl.maximum(highest, tl.max(score, 1))
        weight = tl.exp2(score - new[:, None])
        decay = tl.exp2(highest - new)
        norm = norm * decay + tl.sum(weight, 1)
        value = tl.load(v + columns[:, None] * stride + dims[None, :])
        acc = tl.dot(weight.to(tl.float16), value, acc * decay[:, None])
        highest = new
    tl.store(out + rows[:, None] * stride + dims[None, :], (acc / norm[:, None]).to(tl.float16))


@triton.jit
def helper(x, limit):
    if x > limit:
        return x * 2
    return x + limit


@triton.jit(noinline=True)
def outlined(x):
    return x * x + 1


@triton.jit
def first_and_sum(a, i, b, j):
    return a + b, i + j


@triton.jit
def many_ops(x, counts, out, n, limit, BLOCK: tl.constexpr):
    """Control flow with several blocks, regions with several results, atomics, scans, inline assembly."""
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    total, position = tl.reduce((value, offsets), 0, first_and_sum)
    running = tl.associative_scan((value, offsets), 0, first_and_sum)
    if n > limit:
        if n == 7:
            return
        tl.atomic_add(counts + offsets, position + offsets)
    i = 0
    while i < n:
        i += helper(i, limit)
    twice = tl.inline_asm_elementwise("v_mov_b32 $0, $1", "=v,v", [value], dtype=tl.float32, is_pure=True, pack=1)
    tl.device_assert(n < 1000, "n is large")
    bins = tl.histogram(offsets % 16, BLOCK)
    order = tl.sort(running[0])
    tl.store(counts + offsets, bins + tl.cumsum(offsets, 0))
    tl.store(out + offsets, twice + total + order + running[1] + outlined(i))


# ---- Gluon


@gluon.jit
def gluon_gemm_staged(
    a, b, c, k, stride_a, stride_b, stride_c,
    MMA: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, WARPS: gl.constexpr, KW: gl.constexpr,
):  # fmt: skip
    """Through registers: buffer_load, local_store, local_load, MFMA."""
    load_a: gl.constexpr = gl.BlockedLayout([1, 8], [8, 8], [WARPS, 1], [1, 0])
    load_b: gl.constexpr = gl.BlockedLayout([1, 8], [4, 16], [WARPS, 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(8, 1, 8, [1, 0])
    smem_a = gl.allocate_shared_memory(gl.float16, [BM, BK], shared)
    smem_b = gl.allocate_shared_memory(gl.float16, [BK, BN], shared)
    rows = gl.program_id(0) * BM + gl.arange(0, BM, gl.SliceLayout(1, load_a))
    columns = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(0, load_b))
    at_a = rows[:, None] * stride_a + gl.arange(0, BK, gl.SliceLayout(0, load_a))[None, :]
    at_b = gl.arange(0, BK, gl.SliceLayout(1, load_b))[:, None] * stride_b + columns[None, :]
    acc = gl.zeros((BM, BN), gl.float32, MMA)
    for _ in range(0, k, BK):
        smem_a.store(gl.amd.cdna3.buffer_load(a, at_a))
        smem_b.store(gl.amd.cdna3.buffer_load(b, at_b))
        left = smem_a.load(gl.DotOperandLayout(0, MMA, KW))
        right = smem_b.load(gl.DotOperandLayout(1, MMA, KW))
        acc = gl.amd.cdna3.mfma(left, right, acc)
        at_a += BK
        at_b += BK * stride_b
    store_tile(c, acc, stride_c, MMA, BM, BN)


@gluon.jit
def store_tile(c, acc, stride_c, MMA: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr):
    rows = gl.program_id(0) * BM + gl.arange(0, BM, gl.SliceLayout(1, MMA))
    columns = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(0, MMA))
    gl.amd.cdna3.buffer_store(acc.to(gl.float16), c, rows[:, None] * stride_c + columns[None, :])


@gluon.jit
def gluon_gemm_async(
    a, b, c, k, stride_a, stride_b, stride_c,
    MMA: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, WARPS: gl.constexpr, KW: gl.constexpr,
):  # fmt: skip
    """Direct to LDS, two buffers: buffer_load_to_shared, commit, wait, MFMA."""
    load_a: gl.constexpr = gl.BlockedLayout([1, 8], [8, 8], [WARPS, 1], [1, 0])
    load_b: gl.constexpr = gl.BlockedLayout([1, 8], [4, 16], [WARPS, 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    smem_a = gl.allocate_shared_memory(gl.float16, [2, BM, BK], shared)
    smem_b = gl.allocate_shared_memory(gl.float16, [2, BK, BN], shared)
    rows = gl.program_id(0) * BM + gl.arange(0, BM, gl.SliceLayout(1, load_a))
    columns = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(0, load_b))
    at_a = rows[:, None] * stride_a + gl.arange(0, BK, gl.SliceLayout(0, load_a))[None, :]
    at_b = gl.arange(0, BK, gl.SliceLayout(1, load_b))[:, None] * stride_b + columns[None, :]
    gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_a.index(0), a, at_a)
    gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_b.index(0), b, at_b)
    gl.amd.cdna4.async_copy.commit_group()
    acc = gl.zeros((BM, BN), gl.float32, MMA)
    slot = 0
    for _ in range(0, k - BK, BK):
        at_a += BK
        at_b += BK * stride_b
        gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_a.index(1 - slot), a, at_a)
        gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_b.index(1 - slot), b, at_b)
        gl.amd.cdna4.async_copy.commit_group()
        gl.amd.cdna4.async_copy.wait_group(1)
        left = smem_a.index(slot).load(gl.DotOperandLayout(0, MMA, KW))
        right = smem_b.index(slot).load(gl.DotOperandLayout(1, MMA, KW))
        acc = gl.amd.cdna4.mfma(left, right, acc)
        slot = 1 - slot
    gl.amd.cdna4.async_copy.wait_group(0)
    left = smem_a.index(slot).load(gl.DotOperandLayout(0, MMA, KW))
    right = smem_b.index(slot).load(gl.DotOperandLayout(1, MMA, KW))
    store_tile(c, gl.amd.cdna4.mfma(left, right, acc), stride_c, MMA, BM, BN)


@gluon.jit
def gluon_warp_pipeline(
    a, b, c, k, stride_a, stride_b, stride_c,
    MMA: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, WARPS: gl.constexpr, KW: gl.constexpr,
):  # fmt: skip
    """Stock two-stage pipelining of two wave groups."""
    load_a: gl.constexpr = gl.BlockedLayout([1, 8], [8, 8], [WARPS, 1], [1, 0])
    load_b: gl.constexpr = gl.BlockedLayout([1, 8], [4, 16], [WARPS, 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    smem_a = gl.allocate_shared_memory(gl.float16, [3, BM, BK], shared)
    smem_b = gl.allocate_shared_memory(gl.float16, [3, BK, BN], shared)
    rows = gl.program_id(0) * BM + gl.arange(0, BM, gl.SliceLayout(1, load_a))
    columns = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(0, load_b))
    at_a = rows[:, None] * stride_a + gl.arange(0, BK, gl.SliceLayout(0, load_a))[None, :]
    at_b = gl.arange(0, BK, gl.SliceLayout(1, load_b))[:, None] * stride_b + columns[None, :]
    for i in gl.static_range(2):
        gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_a.index(i), a, at_a + i * BK)
        gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_b.index(i), b, at_b + i * BK * stride_b)
        gl.amd.cdna4.async_copy.commit_group()
    acc = gl.zeros((BM, BN), gl.float32, MMA)
    gl.amd.cdna4.async_copy.wait_group(1)
    for step in range(k // BK - 2):
        with gl.amd.warp_pipeline_stage("load", priority=1):
            left = smem_a.index(step % 3).load(gl.DotOperandLayout(0, MMA, KW))
            right = smem_b.index(step % 3).load(gl.DotOperandLayout(1, MMA, KW))
            ahead = step + 2
            gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_a.index(ahead % 3), a, at_a + ahead * BK)
            gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_b.index(ahead % 3), b, at_b + ahead * BK * stride_b)
            gl.amd.cdna4.async_copy.commit_group()
        gl.amd.cdna4.async_copy.wait_group(1)
        with gl.amd.warp_pipeline_stage("mfma", priority=0):
            acc = gl.amd.cdna4.mfma(left, right, acc)
    store_tile(c, acc, stride_c, MMA, BM, BN)


@gluon.jit
def gluon_persistent(
    a, b, c, k, tiles, stride_a, stride_b, stride_c,
    MMA: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, WARPS: gl.constexpr, KW: gl.constexpr,
):  # fmt: skip
    """A loop over tiles around the loop over K."""
    load_a: gl.constexpr = gl.BlockedLayout([1, 8], [8, 8], [WARPS, 1], [1, 0])
    load_b: gl.constexpr = gl.BlockedLayout([1, 8], [4, 16], [WARPS, 1], [1, 0])
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        rows = tile * BM + gl.arange(0, BM, gl.SliceLayout(1, load_a))
        at_a = rows[:, None] * stride_a + gl.arange(0, BK, gl.SliceLayout(0, load_a))[None, :]
        at_b = gl.arange(0, BK, gl.SliceLayout(1, load_b))[:, None] * stride_b
        at_b += gl.arange(0, BN, gl.SliceLayout(0, load_b))[None, :]
        acc = gl.zeros((BM, BN), gl.float32, MMA)
        for step in range(0, k, BK):
            left = gl.convert_layout(gl.amd.cdna3.buffer_load(a, at_a + step), gl.DotOperandLayout(0, MMA, KW))
            right = gl.amd.cdna3.buffer_load(b, at_b + step * stride_b)
            acc = gl.amd.cdna3.mfma(left, gl.convert_layout(right, gl.DotOperandLayout(1, MMA, KW)), acc)
        out = (tile * BM + gl.arange(0, BM, gl.SliceLayout(1, MMA)))[:, None] * stride_c
        out += gl.arange(0, BN, gl.SliceLayout(0, MMA))[None, :]
        gl.amd.cdna3.buffer_store(acc.to(gl.float16), c, out)


# ---- cases


@dataclass(frozen=True)
class Case:
    """A kernel and how to compile it.

    Attributes:
        name: unique.
        kernel: the JIT function.
        signature: argument -> type, such as ``*fp16`` or ``i32``.
        constants: constexpr arguments; one that is callable is called with the arch.
        archs: targets it compiles for.
        num_warps: waves of a work group.
    """

    name: str
    kernel: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    archs: tuple[str, ...] = ALL
    num_warps: int = 4
    options: Mapping[str, Any] = field(default_factory=dict)


def _mma(warps: list[int]) -> Callable[[str], Any]:
    def layout(arch: str) -> Any:
        version, k = {"gfx942": (3, 8), "gfx950": (4, 16)}[arch]
        return gl.amd.AMDMFMALayout(version=version, instr_shape=[32, 32, k], transposed=True, warps_per_cta=warps)

    return layout


_GEMM_ARGS = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "k": "i32"}
_STRIDES = {"stride_a": "i32", "stride_b": "i32", "stride_c": "i32"}
_KW: Callable[[str], int] = {"gfx942": 4, "gfx950": 8}.__getitem__
_TILE = {"MMA": _mma([2, 2]), "BM": 128, "BN": 128, "BK": 64, "WARPS": 4, "KW": _KW}
_TILE8 = {**_TILE, "MMA": _mma([2, 4]), "BM": 256, "BN": 128, "WARPS": 8}

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Case("vector_add", vector_add, {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 1024}),
        Case("softmax", softmax, {"x": "*fp32", "out": "*fp32", "n": "i32", "stride": "i32"}, {"BLOCK": 1024}),
        Case(
            "layer_norm",
            layer_norm,
            {
                "x": "*fp16",
                "weight": "*fp16",
                "bias": "*fp16",
                "out": "*fp16",
                "n": "i32",
                "stride": "i32",
                "eps": "fp32",
            },
            {"BLOCK": 512},
        ),
        Case("matmul", matmul, {**_GEMM_ARGS, "m": "i32", "n": "i32", **_STRIDES}, {"BM": 128, "BN": 128, "BK": 64}),
        Case(
            "attention",
            attention,
            {"q": "*fp16", "k": "*fp16", "v": "*fp16", "out": "*fp16", "n": "i32", "stride": "i32", "scale": "fp32"},
            {"BM": 128, "BN": 64, "D": 64},
        ),
        Case(
            "many_ops",
            many_ops,
            {"x": "*fp32", "counts": "*i32", "out": "*fp32", "n": "i32", "limit": "i32"},
            {"BLOCK": 256},
            options={"debug": True},
        ),
        Case("gluon_gemm_staged", gluon_gemm_staged, {**_GEMM_ARGS, **_STRIDES}, _TILE, CDNA),
        Case("gluon_gemm_async", gluon_gemm_async, {**_GEMM_ARGS, **_STRIDES}, _TILE, ("gfx950",)),
        Case("gluon_warp_pipeline", gluon_warp_pipeline, {**_GEMM_ARGS, **_STRIDES}, _TILE8, ("gfx950",), 8),
        Case("gluon_persistent", gluon_persistent, {**_GEMM_ARGS, "tiles": "i32", **_STRIDES}, _TILE, CDNA),
    )
}

Stage = Callable[[Any], Any]


def compile_case(case: Case, arch: str, edit: Mapping[str, Stage] | None = None) -> dict[str, Any]:
    """Compile a case and return its ``asm`` texts by extension.

    Args:
        case: what to compile.
        arch: for which target.
        edit: stage name (of :data:`STAGES`) -> function from the stage's wheel module to the module that goes on.
    """
    edits = dict(edit or {})

    def hook(*args: Any, **_: Any) -> tuple[str, str] | None:
        if not args:
            return "lowering-corpus", "lowering-corpus"
        stages = args[1]
        for name, function in edits.items():
            if name in stages:
                stages[name] = _after(stages[name], function)
            elif name == "glir" and "ttir" not in stages:  # before 3.9 Gluon has no stage of that name
                stages["ttgir"] = _before(stages["ttgir"], function)
        return None

    names = case.kernel.arg_names
    constants = {n: v(arch) if callable(v) else v for n, v in case.constants.items()}
    signature = {n: "constexpr" if n in constants else case.signature[n] for n in names}
    attributes = {(i,): _attributes(signature[n]) for i, n in enumerate(names) if _attributes(signature[n])}
    is_gluon = isinstance(case.kernel, GluonJITFunction)
    source = (GluonASTSource if is_gluon else ASTSource)(case.kernel, signature, constants, attributes)
    saved = knobs.runtime.add_stages_inspection_hook, knobs.compilation.always_compile
    knobs.runtime.add_stages_inspection_hook, knobs.compilation.always_compile = hook, True
    try:
        target = GPUTarget("hip", arch, WAVE_SIZE[arch])
        return dict(triton.compile(source, target, {"num_warps": case.num_warps, **case.options}).asm)
    finally:
        knobs.runtime.add_stages_inspection_hook, knobs.compilation.always_compile = saved


def _after(stage: Callable[[Any, Any], Any], function: Stage) -> Callable[[Any, Any], Any]:
    return lambda module, metadata: function(stage(module, metadata))


def _before(stage: Callable[[Any, Any], Any], function: Stage) -> Callable[[Any, Any], Any]:
    return lambda module, metadata: stage(function(module), metadata)


def _attributes(type: str) -> list[list[Any]]:
    """What a launch with 16-byte aligned buffers below 2 GB would tell the compiler."""
    if type.startswith("*"):
        return [["tt.divisibility", 16], ["tt.pointer_range", 32]]
    return [["tt.divisibility", 16]] if type == "i32" else []
