"""mark_stages: dead constants become anchors, and loops around them are kept from stock software pipelining."""

from __future__ import annotations

import pytest
from amdwarp.lowering.bridge import filecheck, pretty
from amdwarp.lowering.passes.mark_stages import MarkStages
from snippets import module

pytestmark = pytest.mark.usefixtures("needs_triton")


def test_marks_become_anchors_and_their_loop_is_kept() -> None:
    mod = module("""
    scf.for %i = %c0 to %n step %c1 : i32 {
      @mark(begin, load, priority = 1 : i32)
      %a = arith.addi %i, %n : i32
      @mark(end)
      scf.yield
    } {tt.num_stages = 3 : i32}
""")
    MarkStages().run(mod)
    filecheck(
        pretty(mod),
        """
        CHECK-NOT: arith.constant {amdwarp
        CHECK: scf.for
        CHECK-NEXT: rocdl.sched.barrier {{.*}}begin = "load"{{.*}}priority = 1 : i32{{.*}}scope = "inter_wave"
        CHECK-NEXT: arith.addi
        CHECK-NEXT: rocdl.sched.barrier {{.*}}amdwarp.stage.end = ""
        CHECK-NEXT: } {tt.num_stages = 1 : i32}
        """,
    )
    before = pretty(mod)
    MarkStages().run(mod)
    assert pretty(mod) == before


def test_an_anchor_has_the_place_of_its_mark() -> None:
    mod = module("""
    @mark(begin, load)
    @mark(end)
""")
    MarkStages().run(mod)
    assert [op.where for op in mod.ops("rocdl.sched.barrier")] == ["kernel.py:2", "kernel.py:3"]


def test_loops_around_a_call_of_a_marked_function_are_kept() -> None:
    mod = module(
        """
    scf.for %i = %c0 to %n step %c1 : i32 {
      %r = tt.call @outer(%i) : (i32) -> i32
    }
    scf.for %j = %c0 to %n step %c1 : i32 {
      scf.for %k = %c0 to %n step %c1 : i32 {
        %r = tt.call @plain(%k) : (i32) -> i32
      }
    } {here}
""",
        functions="""
  tt.func private @inner(%y: i32) -> i32 {
    %mark = arith.constant {amdwarp.stage.begin = "load", amdwarp.stage.scope = "inter_wave"} 0 : i32
    %stop = arith.constant {amdwarp.stage.end = ""} 0 : i32
    tt.return %y : i32
  }
  tt.func private @outer(%y: i32) -> i32 {
    %r = tt.call @inner(%y) : (i32) -> i32
    tt.return %r : i32
  }
  tt.func private @plain(%y: i32) -> i32 {
    tt.return %y : i32
  }
""",
    )
    MarkStages().run(mod)
    filecheck(
        pretty(mod),
        """
        CHECK: tt.call @outer
        CHECK-NEXT: } {tt.num_stages = 1 : i32}
        CHECK: tt.call @plain
        CHECK-NEXT: }
        CHECK-NEXT: } {here}
        """,
    )


def test_every_loop_around_a_mark_is_kept() -> None:
    mod = module("""
    scf.for %i = %c0 to %n step %c1 : i32 {
      scf.for %j = %c0 to %n step %c1 : i32 {
        scf.if %flag {
          @mark(begin, load)
          @mark(end)
        }
      }
    }
""")
    MarkStages().run(mod)
    assert [op.attributes.get("tt.num_stages") for op in mod.ops("scf.for")] == ["1 : i32", "1 : i32"]


def test_a_module_without_marks_stays_as_it_is() -> None:
    mod = module("""
    scf.for %i = %c0 to %n step %c1 : i32 {
      %a = arith.addi %i, %n : i32
    } {tt.num_stages = 3 : i32}
    %k = arith.constant {other.attribute = "x"} 0 : i32
""")
    before = pretty(mod)
    MarkStages().run(mod)
    assert pretty(mod) == before
