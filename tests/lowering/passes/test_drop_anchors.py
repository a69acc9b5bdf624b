"""drop_anchors: nothing of ours is left in the module."""

from __future__ import annotations

import pytest
from amdwarp.lowering.bridge import filecheck, pretty
from amdwarp.lowering.passes import SCHEDULE, DropAnchors, InterWave
from snippets import module

pytestmark = pytest.mark.usefixtures("needs_triton")

BODY = """
    scf.for %i = %c0 to %n step %c1 : i32 {
      @begin(one, priority = 1 : i32)
      %a = arith.addi %i, %n : i32
      @end
      @begin(two)
      @end
    }
"""


def test_anchors_and_notes_go() -> None:
    mod = module(BODY)
    InterWave().run(mod)
    assert "amdwarp." in pretty(mod)
    DropAnchors().run(mod)
    text = pretty(mod)
    assert "amdwarp." not in text
    filecheck(
        text,
        """
        CHECK: scf.for
        CHECK-NEXT: arith.addi
        CHECK-NEXT: rocdl.s.setprio 0
        CHECK-NEXT: rocdl.sched.barrier
        CHECK-NEXT: rocdl.s.barrier
        CHECK-NEXT: rocdl.sched.barrier
        CHECK-NEXT: rocdl.s.setprio 1
        CHECK-NEXT: rocdl.sched.barrier
        CHECK-NEXT: rocdl.s.barrier
        CHECK-NEXT: rocdl.sched.barrier
        CHECK-NEXT: }
        """,
    )


def test_what_the_author_wrote_stays() -> None:
    mod = module("    rocdl.s.barrier {mine}\n    @fence\n")
    before = pretty(mod)
    DropAnchors().run(mod)
    assert pretty(mod) == before


def test_the_whole_schedule_leaves_nothing_to_do() -> None:
    mod = module(BODY)
    for step in SCHEDULE:
        step.run(mod)
    before = pretty(mod)
    for step in SCHEDULE:
        step.run(mod)
    assert pretty(mod) == before
