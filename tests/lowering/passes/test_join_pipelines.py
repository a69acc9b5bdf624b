"""join_pipelines: back-to-back pipelines keep their phase where that is safe."""

from __future__ import annotations

import pytest
from amdwarp.lowering.bridge import filecheck, pretty
from amdwarp.lowering.passes import FenceEdges, InterWave, JoinPipelines
from snippets import module

pytestmark = pytest.mark.usefixtures("needs_triton")

FIRST = """
    @buffer(r)
    @buffer(q)
    @store(r)
    scf.for %i = %c0 to %n step %c1 : i32 {
      @begin(one, priority = 1 : i32@GAP1@)
      @end
      @begin(two)
      @IN_LAST@
      @end
    }
"""
SECOND = """
    scf.for %j = %c0 to %m step %c1 : i32 {
      @begin(three, priority = 3 : i32@GAP2@)
      @IN_FIRST@
      @end
      @begin(four)
      @end
    }
"""


def joined(between: str = "", gap1: str = "", gap2: str = "", last: str = "", first: str = "") -> str:
    text = FIRST.replace("@IN_LAST@", last).replace("@GAP1@", gap1)
    text += between + SECOND.replace("@IN_FIRST@", first).replace("@GAP2@", gap2)
    mod = module(text)
    for step in (InterWave(), FenceEdges(), JoinPipelines()):
        step.run(mod)
    return pretty(mod)


@pytest.mark.parametrize("between", ["", "    %y = arith.addi %m, %n : i32\n"])
def test_the_rejoin_between_goes(between: str) -> None:
    filecheck(
        joined(between),
        """
        CHECK: amdg.cond_barrier {{.*}}high
        CHECK: rocdl.s.setprio 1
        CHECK-NEXT: scf.for
        CHECK: scf.for
        CHECK-COUNT-2: rocdl.s.barrier
        CHECK-NEXT: rocdl.sched.barrier
        CHECK-NEXT: }
        CHECK-NEXT: rocdl.s.setprio 0
        CHECK-NEXT: amdg.cond_barrier {{.*}}low
        CHECK-NOT: amdg.cond_barrier
        """,
    )
    middle = joined(between).partition("scf.for")[2].partition("\n    }\n")[2].partition("scf.for")[0]
    assert "barrier" not in middle
    assert "setprio 0" not in middle
    assert "setprio 3" in middle


def test_a_gap_of_two_is_joined_with_a_gap_of_two() -> None:
    assert joined(gap1=", phase_gap = 2 : i32", gap2=", phase_gap = 2 : i32").count("cond_barrier") == 4


@pytest.mark.parametrize("gaps", [{"gap1": ", phase_gap = 2 : i32"}, {"gap2": ", phase_gap = 2 : i32"}])
def test_different_gaps_stay_apart(gaps: dict[str, str]) -> None:
    assert joined(**gaps).count("cond_barrier") == 6


@pytest.mark.parametrize(
    "between",
    [
        "    @wait(0)\n",
        "    @fence\n",
        "    @store(q)\n",
        "    %w = ttg.convert_layout %v : tensor<64x64xf16, #blocked> -> "
        "tensor<64x64xf16, #ttg.slice<{dim = 2, parent = #ttg.blocked<{sizePerThread = [1, 1, 1], "
        "threadsPerWarp = [8, 8, 1], warpsPerCTA = [1, 8, 1], order = [0, 1, 2]}>}>>\n",
    ],
)
def test_what_is_no_arithmetic_keeps_them_apart(between: str) -> None:
    assert joined(between).count("cond_barrier") == 4


def test_a_dependence_keeps_them_apart_where_it_needs_the_rejoin() -> None:
    assert joined(last="@load(a, r)").count("cond_barrier") == 2
    text = joined(last="@load(a, r)", first="@store(r)")
    assert text.count("cond_barrier") == 4
    assert text.count("ttg.barrier local") >= 2


def test_nothing_to_join() -> None:
    mod = module(FIRST.replace("@IN_LAST@", "").replace("@GAP1@", ""))
    for step in (InterWave(), FenceEdges()):
        step.run(mod)
    before = pretty(mod)
    JoinPipelines().run(mod)
    assert pretty(mod) == before
