"""``scheduling_wall``: what it keeps apart, where it is refused, what bare Triton makes of it."""

from __future__ import annotations

from typing import Any

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

import amdwarp
from amdwarp.errors import LoweringError, UsageError
from amdwarp.wall import scheduling_wall

SIGNATURE = {"x": "*fp32", "y": "*fp32"}
ROW = gl.BlockedLayout([1], [64], [8], [0])
ACC = gl.amd.AMDMFMALayout(version=4, instr_shape=[32, 32, 16], transposed=True, warps_per_cta=[4, 2])


def two_loads(x, y, WALL: gl.constexpr):
    at = gl.arange(0, 512, ROW)
    first = gl.load(x + at)
    second = gl.load(x + 512 + at)
    gl.store(y + at, gl.exp2(first))
    if WALL:
        scheduling_wall()
    gl.store(y + 512 + at, gl.exp2(second))


def woven(x, y):
    at = gl.arange(0, 512, ROW)
    a = gl.full([128, 64], 1.0, gl.float16, gl.DotOperandLayout(0, ACC, 8))
    b = gl.full([64, 64], 1.0, gl.float16, gl.DotOperandLayout(1, ACC, 8))
    acc = gl.zeros([128, 64], gl.float32, ACC)
    with amdwarp.warp_pipeline_stage("one", scope="intra_wave"):
        value = gl.load(x + at)
        scheduling_wall()
        acc = gl.amd.cdna4.mfma(a, b, acc)
    gl.store(y + at, value + gl.sum(gl.sum(acc, 0), 0))


two_loads_ours = amdwarp.jit(two_loads)
woven_ours = amdwarp.jit(woven)
two_loads_bare = gluon.jit(two_loads)


def order(text: str) -> str:
    """E an exponential, S a store, in the order of the text."""
    marks = {"v_exp_f32": "E", "global_store": "S", "buffer_store": "S"}
    lines = (line.split()[0] for line in text.splitlines() if line.startswith("\t"))
    return "".join(next((mark for start, mark in marks.items() if line.startswith(start)), "") for line in lines)


def compiled(kernel: Any, constants: dict[str, Any]) -> str:
    return str(amdwarp.compile(kernel, SIGNATURE, constants, "gfx950", num_warps=8).asm["amdgcn"])


def test_nothing_is_scheduled_across_a_wall() -> None:
    """Without one the second exponential stands ahead of the first store."""
    assert order(compiled(two_loads_ours, {"WALL": True})) == "ESES"
    assert order(compiled(two_loads_ours, {"WALL": False})) == "EESS"


def test_bare_triton_ignores_it() -> None:
    texts = []
    for wall in (True, False):
        source = GluonASTSource(two_loads_bare, SIGNATURE | {"WALL": "constexpr"}, {"WALL": wall})
        made = triton.compile(source, target=GPUTarget("hip", "gfx950", 64), options={"num_warps": 8})
        texts.append(order(made.asm["amdgcn"]))
    assert texts[0] == texts[1]


def test_a_window_refuses_one() -> None:
    with pytest.raises(LoweringError, match="it holds a scheduling operation"):
        amdwarp.compile(woven_ours, SIGNATURE, {}, "gfx950", num_warps=8)


def test_outside_of_a_kernel() -> None:
    with pytest.raises(UsageError, match="scheduling_wall: it has a meaning only inside a kernel"):
        scheduling_wall()
