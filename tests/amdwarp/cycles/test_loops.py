"""Loops of a program, and their figures in steady state."""

from __future__ import annotations

from typing import Any

import pytest

from amdwarp.asm import parse
from amdwarp.cycles import load
from amdwarp.cycles.loops import find_loops, innermost
from amdwarp.cycles.occupancy import Occupancy
from amdwarp.cycles.report import build_estimate, steady_state, visits

COUNT = ["s_sub_u32 s{0}, s{0}, 1", "s_cmp_lg_u32 s{0}, 0", "s_cbranch_scc1 {1}"]


def counted(register: int, label: str, times: int, body: list[str]) -> list[str]:
    return [f"s_mov_b32 s{register}, {times}", f"{label}:", *body, *[line.format(register, label) for line in COUNT]]


def figures(timed: Any, body: list[str], waves: int = 4, **values: float) -> Any:
    run = timed(body, waves=waves, **values)
    explain = lambda loop: "barrier"  # noqa: E731
    return build_estimate(run.run, run.trace, load("gfx950"), Occupancy(1, 1, 1), None, explain)


def test_nested_loops(text_of: Any) -> None:
    inner = counted(5, "inner", 2, ["v_add_f32 v1, v2, v3"])
    program = parse(text_of(counted(4, "outer", 3, ["s_nop 0", *inner, "s_nop 1"])))
    small, large = find_loops(program)
    assert (small.label, large.label) == ("inner", "outer")
    assert small.body < large.body
    regions = innermost(program, [small, large])
    assert regions[small.header] == 0 and regions[large.header] == 1
    assert regions[0] == 2 and regions[-1] == 2


def test_a_loop_is_called_by_the_label_of_its_block(text_of: Any) -> None:
    body = [".Ltmp1:", ".LBB0_1:", ".Ltmp2:", "s_nop 0", "s_cbranch_scc1 .LBB0_1"]
    assert [loop.label for loop in find_loops(parse(text_of(body)))] == [".LBB0_1"]


def test_a_jump_back_to_the_epilogue_is_no_loop(text_of: Any) -> None:
    body = ["s_cmp_lg_u32 s4, 0", "s_cbranch_scc1 rare", "last:", "s_endpgm", "rare:", "s_nop 0", "s_branch last"]
    assert find_loops(parse(text_of(body))) == []


def test_a_loop_with_two_ways_back(text_of: Any) -> None:
    body = ["again:", "s_cmp_lg_u32 s4, 0", "s_cbranch_scc1 again", "s_cmp_lg_u32 s5, 0", "s_cbranch_scc1 again"]
    (loop,) = find_loops(parse(text_of(body)))
    assert len(loop.tails) == 2


def test_clk_and_stalls_of_a_simple_loop(timed: Any) -> None:
    """Ten instructions, three that count, and a taken branch."""
    one = figures(timed, counted(4, "loop", 20, ["v_add_f32 v1, v2, v3"] * 10)).loops[0]
    assert (one.label, one.iterations) == ("loop", 20)
    assert one.clk_per_iteration == 4 * 12 + 8
    assert one.stalls == {"branch": 4}
    assert one.limits == {"MFMA": 0, "LDS": 0, "TCP": 0, "issue": 52}
    assert one.bound == "issue" and one.distance == pytest.approx(56 / 52 - 1)
    assert one.steady and one.mfma_busy == 0


def test_matrix_loop_is_bound_by_the_matrix_unit(timed: Any) -> None:
    mfma = [f"v_mfma_f32_16x16x32_f16 v[{c}:{c + 3}], v[0:3], v[4:7], v[{c}:{c + 3}]" for c in (16, 20, 24, 28)] * 8
    one = figures(timed, counted(4, "loop", 20, mfma)).loops[0]
    assert one.limits["MFMA"] == 512
    assert one.bound == "MFMA" and one.mfma_busy > 0.97
    assert one.mfma_busy_simd == pytest.approx([one.mfma_busy] * 4)
    assert one.clk_per_iteration * one.mfma_busy == pytest.approx(512)


def test_parts_add_up(timed: Any) -> None:
    body = ["v_add_f32 v1, v2, v3"] * 25 + counted(4, "loop", 10, ["v_add_f32 v1, v2, v3"] * 10) + ["s_nop 3"] * 5
    one = figures(timed, body, waves=1)
    assert one.prologue_clk == 4 * 26
    assert one.prologue_clk + one.loop_clk + one.epilogue_clk == one.total_clk
    assert one.loop_clk == pytest.approx(10 * 56, abs=8)


def test_inner_loop_is_measured_within_one_visit(timed: Any) -> None:
    inner = counted(5, "inner", 9, ["v_add_f32 v1, v2, v3"] * 10)
    run = timed(counted(4, "outer", 4, [*["s_nop 15"] * 4, *inner]))
    loop = next(loop for loop in run.run.loops if loop.label == "inner")
    wave = run.run.waves[0]
    assert [len(one) for one in visits(wave, loop)] == [9] * 4
    state = steady_state(wave, loop)
    assert state is not None and state.period == 56


def test_a_loop_whose_last_block_stands_in_front(timed: Any) -> None:
    """LLVM puts the last block of an outer loop right before its first one, which it falls into."""
    body = ["s_mov_b32 s4, 6", "s_branch first", "last:", "s_sub_u32 s4, s4, 1", "s_cmp_lg_u32 s4, 0"]
    body += ["s_cbranch_scc0 out", "first:", *["v_add_f32 v1, v2, v3"] * 10, "s_cmp_lg_u32 s4, 99"]
    one = figures(timed, [*body, "s_cbranch_scc1 last", "out:", "s_nop 0"]).loops[0]
    assert (one.label, one.iterations) == ("first", 6)
    assert one.clk_per_iteration == 4 * 14 + 8


def test_work_that_changes_is_not_called_steady(timed: Any) -> None:
    slow = ["s_cmp_lt_u32 s4, 10", "s_cbranch_scc0 skip", *["s_nop 15"] * 6, "skip:"]
    assert not figures(timed, counted(4, "loop", 20, slow)).loops[0].steady


def test_a_loop_gone_through_once_is_left_out(timed: Any) -> None:
    assert figures(timed, counted(4, "loop", 1, ["s_nop 0"])).loops == ()


def test_a_round_that_falls_into_the_header(timed: Any) -> None:
    """LLVM may put the end of a loop before its header; the waves then come to the header from just above."""
    turn = ["s_branch head", "latch:", *["v_add_f32 v1, v2, v3"] * 10, "head:"]
    one = figures(timed, ["s_mov_b32 s4, 20", *turn, *[line.format(4, "latch") for line in COUNT]]).loops[0]
    assert (one.label, one.iterations) == ("head", 20)
    assert one.clk_per_iteration == 4 * 12 + 8
