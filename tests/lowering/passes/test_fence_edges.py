"""fence_edges: fences where an LDS dependence needs one, and nowhere else."""

from __future__ import annotations

import pytest
from amdwarp.lowering.bridge import pretty
from amdwarp.lowering.ir import Module
from amdwarp.lowering.passes import FenceEdges, InterWave
from amdwarp.lowering.passes.fence_edges import make_fence
from snippets import module

pytestmark = pytest.mark.usefixtures("needs_triton")


def edges(mod: Module) -> list[str]:
    """The ops that stand for the edges of the pipeline in ``mod``, lowered and fenced."""
    InterWave().run(mod)
    FenceEdges().run(mod)
    found = [op for op in mod.walk() if "amdwarp.edge" in op.attributes]
    return [op.name for op in found[1:]]


def test_no_fence_without_shared_memory() -> None:
    mod = module("""
    scf.for %i = %c0 to %n step %c1 : i32 {
      @begin(one)
      %a = arith.addi %i, %n : i32
      @end
      @begin(two)
      @end
    }
""")
    assert edges(mod) == ["rocdl.s.barrier", "rocdl.s.barrier"]


def test_a_store_is_fenced_at_the_edge_itself_where_the_next_but_one_stage_reads_it() -> None:
    mod = module("""
    @buffer(r)
    @begin(store)
    @store(r)
    @end
    @begin(rest)
    @end
    @begin(read)
    @load(a, r)
    @end
""")
    assert edges(mod) == ["ttg.barrier", "rocdl.s.barrier"]


def test_any_one_fence_serves_dependences_that_are_farther_apart() -> None:
    mod = module("""
    @buffer(r)
    @buffer(q)
    @begin(first)
    @store(r)
    @end
    @begin(second)
    @store(q)
    @end
    @begin(third)
    @end
    @begin(fourth)
    @load(a, r)
    @load(b, q)
    @end
""")
    assert edges(mod) == ["rocdl.s.barrier", "ttg.barrier", "rocdl.s.barrier"]


def test_the_back_edge_of_a_loop_is_fenced() -> None:
    mod = module("""
    @ring(r, 3)
    @slot(z, r, c0, 3)
    @store(z)
    @slot(o, r, c1, 3)
    @store(o)
    scf.for %i = %c0 to %n step %c1 : i32 {
      %j = arith.addi %i, %c2 : i32
      %ri = arith.remsi %i, %c3 : i32
      %rj = arith.remsi %j, %c3 : i32
      @begin(read)
      @slot(s, r, ri, 3)
      @load(a, s)
      @end
      @begin(mfma)
      @end
      @begin(store)
      @slot(t, r, rj, 3)
      @store(t)
      @end
    }
""")
    assert edges(mod) == ["rocdl.s.barrier", "ttg.barrier", "ttg.barrier"]


def test_stock_insertion_that_cannot_tell_slots_apart_gets_its_fence() -> None:
    body = """
    @ring(r, 2)
    @begin(store)
    @slot(s, r, c0, 2)
    @store(s)
    @end
    @begin(other)
    @slot(t, r, c1, 2)
    @store(t)
    @end
"""
    assert edges(module(body)) == ["ttg.barrier"], "two stores into one ring, even into two slots"
    two_rings = body.replace("@slot(t, r", "@slot(t, q").replace("@ring(r, 2)", "@ring(r, 2)\n    @ring(q, 2)")
    assert edges(module(two_rings)) == ["rocdl.s.barrier"]


def test_a_fenced_module_stays_as_it_is() -> None:
    mod = module("""
    @buffer(r)
    @begin(store)
    @store(r)
    @end
    @begin(rest)
    @end
    @begin(read)
    @load(a, r)
    @end
""")
    edges(mod)
    before = pretty(mod)
    FenceEdges().run(mod)
    assert pretty(mod) == before


def test_functions_without_stages_are_left_alone() -> None:
    mod = module("""
    @buffer(r)
    @copy(r)
    @load(a, r)
""")
    before = pretty(mod)
    FenceEdges().run(mod)
    assert pretty(mod) == before


@pytest.mark.parametrize(
    ("barrier", "fence"),
    [
        ("rocdl.s.barrier", "ttg.barrier local"),
        ("ttg.barrier global_read", "ttg.barrier local|global_read"),
        ("ttg.barrier local", "ttg.barrier local"),
    ],
)
def test_a_barrier_made_a_fence_keeps_what_it_is(barrier: str, fence: str) -> None:
    mod = module(f"    {barrier}\n")
    (old,) = mod.ops("rocdl.s.barrier", "ttg.barrier")
    old.attributes["why"] = "unit"
    made = make_fence(old)
    assert made.attributes == {"why": "unit"}
    assert made.where == "kernel.py:1"
    assert pretty(mod).count(f"    {fence}\n") == 1
    assert make_fence(made) is made
