"""Waits by polling a word in LDS: what is recorded of them, and when they end."""

from __future__ import annotations

from typing import Any

SETUP = """
v_lshrrev_b32 v1, 6, v0
v_readfirstlane_b32 s4, v1
v_mov_b32 v2, 0
v_mov_b32 v5, 0
v_mov_b32 v3, {last}
ds_write_b32 v2, v5
s_waitcnt lgkmcnt(0)
s_barrier
s_cmp_lg_u32 s4, 0
s_cbranch_scc1 poll
"""
ARRIVE = """
s_mov_b64 exec, 1
ds_inc_u32 v2, v3
s_waitcnt lgkmcnt(0)
s_branch over
"""
POLL = """
poll:
ds_read_b32 v4, v2
s_waitcnt lgkmcnt(0)
v_readfirstlane_b32 s5, v4
s_cmp_lg_u32 s5, 0
s_cbranch_scc1 seen
s_sleep 1
s_branch poll
seen:
v_mul_f32 v7, v7, v7
over:
s_nop 0
"""


def program(work: int, last: int = 1) -> str:
    """Wave 0 computes and arrives, the others wait for it."""
    return SETUP.format(last=last) + "v_add_f32 v6, v6, v6\n" * work + ARRIVE + POLL


def test_rounds_that_find_nothing_are_left_out(timed: Any) -> None:
    one = timed(program(2000), waves=3)
    text = one.trace.program.instructions
    for wave in one.trace.groups[0].waves[1:]:
        assert [text[pc].base for pc in wave.pcs].count("ds_read_b32") == 1
        assert not any(text[pc].base == "s_sleep" for pc in wave.pcs)
        assert list(wave.waits.values()) == [(0, 1)]
    assert list(one.trace.groups[0].waves[0].arrivals.values()) == [0]


def test_a_wait_ends_a_round_behind_the_arrival_at_the_latest(timed: Any) -> None:
    for work in (0, 100, 2000):
        one = timed(program(work), waves=2)
        arrived = one.ends("ds_inc_u32", wave=0)[0]
        (seen,) = one.starts("v_mul_f32", wave=1)
        assert arrived < seen <= arrived + 400, work
        stalled = one.run.waves[1].stalls
        assert work < 1000 or max(stalled) > 4 * work * 0.8


def test_a_wait_for_two_arrivals(timed: Any) -> None:
    """Waves 0 and 1 arrive, the second late; wave 2 waits until the word counts two of its four."""
    text = program(1000, last=3).replace("s_cmp_lg_u32 s4, 0", "s_cmp_gt_u32 s4, 1", 1)
    late = "s_cmp_lg_u32 s4, 1\ns_cbranch_scc1 now\n" + "v_sub_f32 v6, v6, v6\n" * 1500 + "now:\n"
    text = text.replace("s_mov_b64 exec, 1", late + "s_mov_b64 exec, 1").replace(
        "s_cmp_lg_u32 s5, 0", "s_cmp_gt_u32 s5, 1"
    )
    one = timed(text, waves=3)
    first, second = one.ends("ds_inc_u32", wave=0)[0], one.ends("ds_inc_u32", wave=1)[0]
    assert second > first + 4000
    assert one.starts("v_mul_f32", wave=2)[0] > second


def test_programs_without_polls_are_recorded_as_before(timed: Any) -> None:
    one = timed(["v_mov_b32 v2, 0", "ds_read_b32 v4, v2", "s_waitcnt lgkmcnt(0)"], waves=1)
    wave = one.trace.groups[0].waves[0]
    assert not wave.waits and not wave.arrivals
