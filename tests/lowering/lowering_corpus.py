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

import corpus_kernels as kernels
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction

WAVE_SIZE = {"gfx942": 64, "gfx950": 64, "gfx1250": 32}
CDNA = ("gfx942", "gfx950")
ALL = ("gfx942", "gfx950", "gfx1250")
STAGES = ("ttir", "glir", "ttgir")


@dataclass(frozen=True)
class Case:
    """A kernel and how to compile it.

    Attributes:
        kernel: the JIT function.
        signature: argument -> type, such as ``*fp16`` or ``i32``.
        constants: constexpr arguments; one that is callable is called with the arch.
        archs: targets it compiles for.
        num_warps: waves of a work group.
    """

    kernel: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    archs: tuple[str, ...] = ALL
    num_warps: int = 4
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.kernel.__name__)


def _mma(warps: list[int]) -> Callable[[str], Any]:
    def layout(arch: str) -> Any:
        version, k = {"gfx942": (3, 8), "gfx950": (4, 16)}[arch]
        return gl.amd.AMDMFMALayout(version=version, instr_shape=[32, 32, k], transposed=True, warps_per_cta=warps)

    return layout


def _wmma(_: str) -> Any:
    return gl.amd.AMDWMMALayout(version=3, transposed=True, warp_bases=[[0, 1], [1, 0]], instr_shape=[16, 16, 32])


_GEMM_ARGS = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "k": "i32"}
_STRIDES = {"stride_a": "i32", "stride_b": "i32", "stride_c": "i32"}
_KW: Callable[[str], int] = {"gfx942": 4, "gfx950": 8}.__getitem__
_TILE = {"MMA": _mma([2, 2]), "BM": 128, "BN": 128, "BK": 64, "WARPS": 4, "KW": _KW}
_TILE8 = {**_TILE, "MMA": _mma([2, 4]), "BM": 256, "BN": 128, "WARPS": 8}

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Case(kernels.vector_add, {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 1024}),
        Case(kernels.softmax, {"x": "*fp32", "out": "*fp32", "n": "i32", "stride": "i32"}, {"BLOCK": 1024}),
        Case(
            kernels.layer_norm,
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
        Case(
            kernels.matmul,
            {**_GEMM_ARGS, "m": "i32", "n": "i32", **_STRIDES},
            {"BM": 128, "BN": 128, "BK": 64},
        ),
        Case(
            kernels.attention,
            {"q": "*fp16", "k": "*fp16", "v": "*fp16", "out": "*fp16", "n": "i32", "stride": "i32", "scale": "fp32"},
            {"BM": 128, "BN": 64, "D": 64},
        ),
        Case(
            kernels.many_ops,
            {"x": "*fp32", "counts": "*i32", "out": "*fp32", "n": "i32", "limit": "i32"},
            {"BLOCK": 256},
            options={"debug": True},
        ),
        Case(
            kernels.descriptor_matmul,
            {"a": "*fp16", "b": "*fp16", "c": "*fp16", "m": "i32", "n": "i32", "k": "i32"},
            {"BM": 64, "BN": 64, "BK": 32},
        ),
        Case(
            kernels.scaled_matmul,
            {"a": "*fp8e4nv", "b": "*u8", "scale_a": "*u8", "scale_b": "*u8", "c": "*fp32", "k": "i32"},
            {"BM": 64, "BN": 64, "BK": 128},
            ("gfx950", "gfx1250"),
        ),
        Case(
            kernels.gluon_tdm,
            {"a": "*fp16", "b": "*fp16", "c": "*fp16", "m": "i32", "n": "i32", "k": "i32"},
            {"MMA": _wmma, "BM": 64, "BN": 64, "BK": 32},
            ("gfx1250",),
        ),
        Case(kernels.gluon_specialized, {"x": "*fp32", "out": "*fp32"}, {"BLOCK": 256}, ("gfx1250",)),
        Case(kernels.gluon_gemm_staged, {**_GEMM_ARGS, **_STRIDES}, _TILE, CDNA),
        Case(kernels.gluon_gemm_async, {**_GEMM_ARGS, **_STRIDES}, _TILE, ("gfx950",)),
        Case(kernels.gluon_warp_pipeline, {**_GEMM_ARGS, **_STRIDES}, _TILE8, ("gfx950",), 8),
        Case(kernels.gluon_persistent, {**_GEMM_ARGS, "tiles": "i32", **_STRIDES}, _TILE, CDNA),
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
