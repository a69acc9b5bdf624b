"""inter_wave: barriers, phase shift and priorities of loops and of straight code."""

from __future__ import annotations

import pytest
from amdwarp.lowering.bridge import filecheck, pretty
from amdwarp.lowering.passes import InterWave
from snippets import module

pytestmark = pytest.mark.usefixtures("needs_triton")

PREFIX = """
        CHECK: ttg.barrier local
        CHECK: %[[TID:.*]] = rocdl.workitem.id.x
        CHECK: %[[GROUP:.*]] = arith.divsi %[[TID]], %c256
        CHECK: %[[LOW:.*]] = arith.cmpi eq, %[[GROUP]]
        CHECK: %[[HIGH:.*]] = arith.cmpi ne, %[[GROUP]]
        CHECK-NEXT: amdg.cond_barrier %[[HIGH]] {amdwarp.phase = "high"}
"""


def lowered(body: str, **options: int) -> str:
    mod = module(body, **options)
    InterWave().run(mod)
    return pretty(mod)


def test_a_loop() -> None:
    text = lowered("""
    scf.for %i = %c0 to %n step %c1 : i32 {
      @begin(load, priority = 2 : i32)
      %a = arith.addi %i, %n : i32
      @end
      @wait(1)
      @begin(mfma)
      %b = arith.subi %i, %n : i32
      @end
    }
""")
    filecheck(
        text,
        f"""
        {PREFIX}
        CHECK-NEXT: rocdl.s.setprio 2
        CHECK-NEXT: scf.for
        CHECK-NEXT: rocdl.sched.barrier {{{{.*}}}}begin = "load"
        CHECK-NEXT: arith.addi
        CHECK-NEXT: rocdl.sched.barrier {{{{.*}}}}end
        CHECK-NEXT: rocdl.s.setprio 0
        CHECK-NEXT: rocdl.sched.barrier
        CHECK-NEXT: ttg.async_wait {{num = 1 : i32}}
        CHECK-NEXT: ttg.barrier local
        CHECK-NEXT: rocdl.sched.barrier
        CHECK-NEXT: rocdl.sched.barrier {{{{.*}}}}begin = "mfma"
        CHECK-NEXT: arith.subi
        CHECK-NEXT: rocdl.sched.barrier {{{{.*}}}}end
        CHECK-NEXT: rocdl.s.setprio 2
        CHECK-NEXT: rocdl.sched.barrier
        CHECK-NEXT: rocdl.s.barrier {{amdwarp.edge = "between stage 'mfma' and stage 'load'"}}
        CHECK-NEXT: rocdl.sched.barrier
        CHECK-NEXT: }}
        CHECK-NEXT: rocdl.s.setprio 0
        CHECK-NEXT: amdg.cond_barrier %[[LOW]] {{amdwarp.phase = "low"}}
        CHECK-NEXT: tt.return
        """,
    )


def test_straight_code_has_no_edge_after_its_last_stage() -> None:
    text = lowered("""
    @begin(one)
    %a = arith.addi %m, %n : i32
    @end
    @begin(two)
    %b = arith.subi %m, %n : i32
    @end
""")
    filecheck(
        text,
        f"""
        {PREFIX}
        CHECK-NEXT: rocdl.sched.barrier {{{{.*}}}}begin = "one"
        CHECK: rocdl.sched.barrier {{{{.*}}}}end
        CHECK-NEXT: rocdl.sched.barrier
        CHECK-NEXT: rocdl.s.barrier
        CHECK-NEXT: rocdl.sched.barrier
        CHECK-NEXT: rocdl.sched.barrier {{{{.*}}}}begin = "two"
        CHECK-NEXT: arith.subi
        CHECK-NEXT: rocdl.sched.barrier {{{{.*}}}}end
        CHECK-NEXT: amdg.cond_barrier %[[LOW]] {{amdwarp.phase = "low"}}
        CHECK-NEXT: tt.return
        """,
    )


def test_no_priorities_where_no_stage_has_one() -> None:
    text = lowered("""
    @begin(one)
    @end
    @begin(two)
    @end
""")
    assert "setprio" not in text


def test_a_gap_of_two_shifts_by_two_barriers() -> None:
    text = lowered("""
    scf.for %i = %c0 to %n step %c1 : i32 {
      @begin(one, phase_gap = 2 : i32)
      @end
      @begin(two)
      @end
    }
""")
    filecheck(
        text,
        f"""
        {PREFIX}
        CHECK-NEXT: amdg.cond_barrier %[[HIGH]]
        CHECK-NEXT: scf.for
        CHECK-COUNT-2: rocdl.s.barrier
        CHECK-NEXT: rocdl.sched.barrier
        CHECK-NEXT: }}
        CHECK-NEXT: amdg.cond_barrier %[[LOW]]
        CHECK-NEXT: amdg.cond_barrier %[[LOW]]
        CHECK-NEXT: tt.return
        """,
    )


def test_a_wait_that_ends_a_stage_moves_to_the_edge() -> None:
    text = lowered("""
    @begin(one)
    @commit
    @wait(2)
    %a = arith.addi %m, %n : i32
    @wait(1)
    @end
    @begin(two)
    @end
""")
    filecheck(
        text,
        """
        CHECK: ttg.async_commit_group
        CHECK-NEXT: arith.addi
        CHECK-NEXT: rocdl.sched.barrier {{.*}}end
        CHECK-NEXT: rocdl.sched.barrier
        CHECK-NEXT: ttg.async_wait {num = 2 : i32}
        CHECK-NEXT: ttg.async_wait {num = 1 : i32}
        CHECK-NEXT: ttg.barrier local
        CHECK-NEXT: rocdl.sched.barrier
        CHECK-NEXT: rocdl.sched.barrier {{.*}}begin = "two"
        """,
    )


@pytest.mark.parametrize("edge", ["@fence\n", "@fence\n    @fence\n", "@fence\n    %y = arith.addi %m, %n : i32\n"])
def test_the_last_barrier_of_the_author_serves_as_the_edge(edge: str) -> None:
    text = lowered(f"""
    @begin(one)
    @end
    {edge}
    @begin(two)
    @end
""")
    filecheck(
        text.partition('begin = "one"')[2],
        """
        CHECK: rocdl.sched.barrier {{.*}}end
        CHECK-NEXT: rocdl.sched.barrier
        CHECK-NOT: s.barrier
        CHECK-COUNT-1: ttg.barrier local
        CHECK-NOT: barrier local
        CHECK-NOT: s.barrier
        CHECK: rocdl.sched.barrier {{.*}}begin = "two"
        """,
    )


@pytest.mark.parametrize("barrier", ["@fence", "rocdl.s.barrier", "ttg.barrier global_read"])
def test_the_barrier_of_the_author_moves_behind_a_wait_and_fences(barrier: str) -> None:
    text = lowered(f"""
    @begin(one)
    @end
    {barrier}
    @wait(0)
    %y = arith.addi %m, %n : i32
    @begin(two)
    @end
""")
    filecheck(
        text.partition('begin = "one"')[2],
        """
        CHECK: rocdl.sched.barrier {{.*}}end
        CHECK-NEXT: rocdl.sched.barrier
        CHECK-NEXT: ttg.async_wait
        CHECK-NEXT: ttg.barrier local
        CHECK-NEXT: arith.addi
        CHECK-NEXT: rocdl.sched.barrier
        CHECK-NEXT: rocdl.sched.barrier {{.*}}begin = "two"
        """,
    )


def test_barriers_say_which_edge_they_are() -> None:
    mod = module("""
    scf.for %i = %c0 to %n step %c1 : i32 {
      @begin(one)
      @end
      @wait(0)
      @begin()
      @end
    }
""")
    InterWave().run(mod)
    assert [op.attributes["amdwarp.edge"] for op in mod.walk() if "amdwarp.edge" in op.attributes] == [
        '"before the pipeline"',
        "\"between stage 'one' and stage #1\"",
        "\"between stage #1 and stage 'one'\"",
    ]


def test_what_is_inserted_has_the_place_of_a_stage() -> None:
    mod = module("""
    @begin(one, priority = 1 : i32)
    @end
    @begin(two)
    @end
""")
    known = set(mod.walk())
    InterWave().run(mod)
    added = [op for op in mod.walk() if op not in known]
    assert len(added) > 10
    assert {op.where for op in added} <= {"kernel.py:2", "kernel.py:4"}


def test_nothing_happens_without_anchors_and_anchors_are_lowered_once() -> None:
    mod = module("""
    %a = arith.addi %m, %n : i32
    @fence
""")
    before = pretty(mod)
    InterWave().run(mod)
    assert pretty(mod) == before


def test_straight_stages_apart_are_pipelines_of_their_own() -> None:
    text = lowered("""
    @begin(one)
    @end
    @begin(two)
    @end
    @buffer(r)
    @store(r)
    @begin(three)
    @end
    @begin(four)
    @end
""")
    assert text.count("amdg.cond_barrier") == 4
    assert text.count("rocdl.s.barrier") == 2
