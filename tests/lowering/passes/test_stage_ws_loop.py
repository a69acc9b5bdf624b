"""stage_ws_loop and unfold_scopes: the forms they make, and what the first refuses."""

from __future__ import annotations

import pytest
from amdwarp.lowering.bridge import filecheck, pretty
from amdwarp.lowering.passes.stage_ws_loop import StageWSLoop
from amdwarp.lowering.passes.unfold_scopes import UnfoldScopes
from amdwarp.lowering.spelling import mask_attribute
from snippets import TILE, module

from amdwarp import WSSchedule, WSScope
from amdwarp.errors import LoweringError

pytestmark = pytest.mark.usefixtures("needs_triton")

DOT = (
    "%d = tt.dot %a, %b, %acc : tensor<64x64xf16, #ttg.dot_op<{opIdx = 0, parent = #blocked}>> * "
    "tensor<64x64xf16, #ttg.dot_op<{opIdx = 1, parent = #blocked}>> -> tensor<64x64xf32, #blocked>"
)
OPERANDS = """
    %a = ttg.local_load %s : !ttg.memdesc<64x64xf16, #shared, #smem, mutable> -> \
tensor<64x64xf16, #ttg.dot_op<{opIdx = 0, parent = #blocked}>>
    %b = ttg.local_load %s : !ttg.memdesc<64x64xf16, #shared, #smem, mutable> -> \
tensor<64x64xf16, #ttg.dot_op<{opIdx = 1, parent = #blocked}>>
"""


def loop(before: str, after: str = "", dot: str = DOT) -> str:
    return f"""
    @buffer(s)
    %r = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %x) -> (tensor<64x64xf32, #blocked>) : i32 {{
      {before}
      {OPERANDS}
      {dot}
      {after}
      scf.yield {"%d" if "tt.dot" in dot else "%acc"} : tensor<64x64xf32, #blocked>
    }} {{amdwarp.ws.staged}}
"""


def test_memory_and_mfma_become_stages() -> None:
    mod = module(loop("@wait(1)\n@fence\n@copy(s)\n@commit"))
    StageWSLoop().run(mod)
    filecheck(
        pretty(mod),
        """
        CHECK: ttg.async_wait {num = 1 : i32}
        CHECK-NEXT: scf.for
        CHECK-NEXT: rocdl.sched.barrier {{.*}}begin = "memory", amdwarp.stage.priority = 1 : i32
        CHECK-NEXT: amdg.buffer_load_to_local
        CHECK-NEXT: ttg.async_commit_group
        CHECK-NEXT: ttg.local_load
        CHECK-NEXT: ttg.local_load
        CHECK-NEXT: rocdl.sched.barrier {{.*}}amdwarp.stage.end
        CHECK-NEXT: ttg.async_wait {num = 1 : i32}
        CHECK-NEXT: rocdl.sched.barrier {{.*}}begin = "multiply", amdwarp.stage.priority = 0 : i32
        CHECK-NEXT: tt.dot
        CHECK-NEXT: rocdl.sched.barrier {{.*}}amdwarp.stage.end
        CHECK-NEXT: scf.yield
        CHECK-NOT: ttg.barrier
        CHECK-NOT: amdwarp.ws.staged
        """,
    )


REFUSED = [
    (loop("@copy(s)\n@commit\n@wait(0)\n@fence"), "which reads what it has just copied, or refills what was just read"),
    (
        loop("@wait(1)\n@fence", "@copy(s)\n@commit"),
        "amdg.buffer_load_to_local stands behind an MFMA of the loop; run it",
    ),
    (loop("@wait(1)\n@fence", dot=""), "no loop of the schedule has an MFMA of its own; realise it as tasks"),
]


@pytest.mark.parametrize(("body", "text"), REFUSED, ids=["barrier inside", "memory behind", "no MFMA"])
def test_refused(body: str, text: str) -> None:
    with pytest.raises(LoweringError) as caught:
        StageWSLoop().run(module(body))
    assert text in str(caught.value)
    assert "ws_schedule (kernel.py:" in str(caught.value)


def test_a_loop_that_no_schedule_made_stays() -> None:
    mod = module(loop("@wait(1)\n@fence\n@copy(s)\n@commit").replace(" {amdwarp.ws.staged}", ""))
    before = pretty(mod)
    StageWSLoop().run(mod)
    assert pretty(mod) == before


def anchors(body: str) -> str:
    """The body with ``<id>`` and ``</id>`` as anchors of a typed schedule, and the schedule in front."""
    scopes = [WSScope("k", {}), WSScope(WSScope.ROOT, {})]
    text = WSSchedule(4, [], [], scopes).to_json().replace("\n", " ").replace('"', "\\22")
    wall = f'"rocdl.sched.barrier"() <{{mask = {mask_attribute(0)}}}>'
    for id in ("k", "op"):
        for tag, kind in ((f"<{id}>", "begin"), (f"</{id}>", "end")):
            body = body.replace(tag, f'{wall} {{amdwarp.ws.{kind} = "{id}"}} : () -> ()')
    return f'    {wall} {{amdwarp.ws.schedule = "{text}", amdwarp.ws.realise = "tasks"}} : () -> ()\n{body}'


def test_a_folded_loop_becomes_one_again() -> None:
    mod = module(
        anchors(f"""
    <k>
    %i = arith.addi %n, %c1 : i32
    <op>
    %w = arith.addf %v, %v : {TILE}
    </op>
    </k>
    @buffer(s)
    ttg.local_store %w, %s : {TILE} -> !ttg.memdesc<64x64xf16, #shared, #smem, mutable>
""")
    )
    UnfoldScopes().run(mod)
    filecheck(
        pretty(mod),
        """
        CHECK: begin = "k"
        CHECK: [[LOOP:%.*]] = scf.for {{.*}} iter_args(
        CHECK-NEXT: arith.addi
        CHECK-NEXT: begin = "op"
        CHECK-NEXT: [[W:%.*]] = arith.addf
        CHECK-NEXT: end = "op"
        CHECK-NEXT: scf.yield [[W]]
        CHECK-NEXT: }
        CHECK-NEXT: end = "k"
        CHECK: ttg.local_store [[LOOP]]
        """,
    )


def test_a_loop_that_is_there_stays() -> None:
    mod = module(
        anchors("""
    <k>
    scf.for %i = %c0 to %n step %c1 : i32 {
      <op>
      </op>
    }
    </k>
""")
    )
    before = pretty(mod)
    UnfoldScopes().run(mod)
    assert pretty(mod) == before
