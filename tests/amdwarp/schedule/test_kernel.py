"""``ws_op`` and ``annotate_ws_schedule`` as a kernel's author meets them."""

# ruff: noqa: PIE808 - what reads well in plain Python is not always taken by Triton's front end

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl
from amdwarp.lowering import bridge
from amdwarp.lowering.analysis.ws_kernel import ws_mark
from amdwarp.lowering.passes.mark_stages import MarkStages
from schedule_samples import gemm
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

import amdwarp
from amdwarp import UsageError
from amdwarp.emulator import launch

ROW = gl.BlockedLayout([1], [64], [4], [0])
SIGNATURE = {"x": "*fp32", "n": "i32"}


def line_of(mark: str) -> str:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = [i for i, line in enumerate(lines, start=1) if line.endswith(f"# at: {mark}")]
    return f"{__file__}:{number}"


@gluon.jit
def marked(x, n, S: gl.constexpr, HOW: gl.constexpr, ID: gl.constexpr, ROW: gl.constexpr):
    amdwarp.annotate_ws_schedule(S, HOW)  # at: annotation
    at = gl.arange(0, 256, ROW)
    for _ in range(0, n):
        with amdwarp.ws_op(ID):  # at: op
            gl.store(x + at, gl.load(x + at) + 1)


def build(*values: Any, arch: str = "gfx950") -> Any:
    names = ("S", "HOW", "ID")
    given = dict(zip(names, (gemm(), "none", "step"), strict=True)) | dict(zip(names, values, strict=False))
    return amdwarp.compile(amdwarp.jit(marked), SIGNATURE, {**given, "ROW": ROW}, arch, num_warps=4)


@pytest.mark.parametrize(
    ("values", "mark", "text"),
    [
        ((3,), "annotation", "annotate_ws_schedule ({line}): schedule must be a WSSchedule, not 3"),
        (
            (gemm(), "waves"),
            "annotation",
            "annotate_ws_schedule ({line}): realise must be one of 'tasks', 'inter_wave', 'pipeline', 'none', not",
        ),
        ((gemm(depth=0),), "annotation", "WSPipeline 'smem' ({line}): depth = 0; it needs at least one version"),
        ((gemm(roles=[]),), "annotation", "WSSchedule ({line}): it has no roles"),
        ((gemm(), "none", ""), "op", "ws_op ({line}): id must be one line of text, not ''"),
        ((gemm(), "none", 7), "op", "ws_op ({line}): id must be one line of text, not 7"),
        ((gemm(), "none", "ws.root"), "op", "ws_op 'ws.root' ({line}): the root scope has no op; take another id"),
    ],
    ids=range(7),
)
def test_refused_with_the_kernels_line(values: tuple[Any, ...], mark: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        build(*values)
    assert text.format(line=line_of(mark)) in str(caught.value)


def test_outside_of_a_kernel() -> None:
    with pytest.raises(UsageError, match="ws_op 'a': it has a meaning only inside a kernel"), amdwarp.ws_op("a"):
        pass
    with pytest.raises(UsageError, match="annotate_ws_schedule: it has a meaning only inside a kernel"):
        amdwarp.annotate_ws_schedule(gemm())


def test_a_kernel_that_runs_straight_through_keeps_no_mark() -> None:
    kernel = build()
    assert "amdwarp.ws" not in kernel.asm["amdwarp"]
    x = np.zeros(256, np.float32)
    launch(kernel.asm["amdgcn"], [x.view(np.uint8), 3], (1,), lds_bytes=0)
    assert (x == 3).all()


def test_on_a_bare_triton_the_kernel_means_the_same() -> None:
    constants = {"S": gemm(), "HOW": "tasks", "ID": "step", "ROW": ROW}
    types = {**SIGNATURE, **dict.fromkeys(constants, "constexpr")}
    values = {(list(types).index(name),): value for name, value in constants.items()}
    kernel = triton.compile(
        GluonASTSource(marked, types, values), target=GPUTarget("hip", "gfx950", 64), options={"num_warps": 4}
    )
    assert "amdwarp.ws" not in kernel.asm["ttgir"]


def test_the_schedule_enters_the_cache_key() -> None:
    keys = {build(gemm(depth=depth)).metadata.hash for depth in (2, 3, 3)}
    assert len(keys) == 2


@amdwarp.jit
def in_triton(x, n, S: tl.constexpr):
    amdwarp.annotate_ws_schedule(S, "pipeline")
    at = tl.arange(0, 256)
    for _ in range(0, n):
        with amdwarp.ws_op("step"):
            tl.store(x + at, tl.load(x + at) + 1)


amdwarp_in_triton = amdwarp.jit(triton.jit(in_triton.fn))


def test_marks_reach_ttgir_from_gluon_and_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    from amdwarp.lowering.passes import materialize_ws_schedule as module

    seen: list[list[str]] = []

    def look(mod: Any) -> None:
        marks = [op for op in mod.walk() if ws_mark(op)]
        assert all(op.name == "rocdl.sched.barrier" for op in marks)
        (loop,) = mod.ops("scf.for")
        assert loop.attributes["tt.num_stages"] == "1 : i32"
        seen.append([str(ws_mark(op)) for op in marks])
        raise UsageError("seen")

    monkeypatch.setattr(module, "find_ws_kernel", look)
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    with pytest.raises(UsageError, match="seen"):
        build(gemm(depth=4), "tasks", "seen")
    with pytest.raises(UsageError, match="seen"):
        amdwarp.compile(amdwarp_in_triton, SIGNATURE, {"S": gemm(depth=4)}, "gfx950", num_warps=4)
    assert seen == [["schedule", "begin", "end"]] * 2


def test_a_triton_kernel_has_no_buffers_to_name() -> None:
    with pytest.raises(amdwarp.LoweringError, match="no ws_op in the kernel has the id 'loop_k' of a scope; have step"):
        amdwarp.compile(amdwarp_in_triton, SIGNATURE, {"S": gemm()}, "gfx950", num_warps=4)


def test_marks_without_a_schedule_stay_dead() -> None:
    text = """
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, "ttg.threads-per-warp" = 64 : i32} {
  tt.func @k() {
    %0 = arith.constant {amdwarp.ws.begin = "a"} 0 : i32
    %1 = arith.constant {amdwarp.ws.end = "a"} 0 : i32
    tt.return
  }
}
"""
    module = bridge.read(bridge.parse_text(text, bridge.new_context()))
    MarkStages().run(module)
    assert not module.ops("rocdl.sched.barrier")
