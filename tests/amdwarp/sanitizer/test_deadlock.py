"""Waves that do not come to an end."""

from __future__ import annotations

from handmade import PROLOGUE, PROLOGUE_GFX1250, run

#: scc is 1 in wave 0 and 0 in wave 1.
WAVE0 = "v_readfirstlane_b32 s12, v1\ns_cmp_eq_u32 s12, 0"


def test_a_spin_that_cannot_end() -> None:
    report = run(PROLOGUE + "again:\ns_sleep 1\ns_branch again")
    assert report.deadlock
    (finding,) = report.findings
    assert finding.kind == "deadlock" and "repeat themselves" in finding.problem
    assert "waves 0-1 at line" in finding.problem and "'s_branch again'" in finding.problem


def test_a_lock_that_nobody_frees() -> None:
    body = """
    v_mov_b32_e32 v8, 0
    v_mov_b32_e32 v10, 5
    v_mov_b32_e32 v11, 0
    again:
    global_atomic_cmpswap v12, v8, v[10:11], s[6:7] sc0
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s20, v12
    s_cmp_lg_u32 s20, 0
    s_cbranch_scc1 again
    """
    assert not run(PROLOGUE + body, waves=1).deadlock
    report = run(
        PROLOGUE + body.replace("v_mov_b32_e32 v11, 0", "v_mov_b32_e32 v11, 99") + body.replace("again", "second")
    )
    assert report.deadlock


def test_one_wave_spins_and_the_other_waits_at_a_barrier() -> None:
    report = run(PROLOGUE + WAVE0 + "\ns_cbranch_scc1 meet\nagain:\ns_nop 0\ns_branch again\nmeet:\ns_barrier")
    assert report.deadlock
    problem = report.findings[0].problem
    assert "wave 0 at line" in problem and "'s_barrier'" in problem
    assert "wave 1 at line" in problem and "'s_branch again'" in problem


def test_a_wave_that_waits_for_another_is_no_deadlock() -> None:
    """Wave 1 polls LDS until wave 0, which works for long, has written; seeds differ in who runs first."""
    body = """
    v_mov_b32_e32 v8, 0
    v_mov_b32_e32 v9, 0
    ds_write_b32 v8, v9
    s_waitcnt lgkmcnt(0)
    s_barrier
    v_readfirstlane_b32 s12, v1
    s_cmp_eq_u32 s12, 0
    s_cbranch_scc0 poll
    s_mov_b32 s20, 0x1000
    work:
    s_sub_u32 s20, s20, 1
    s_cmp_lg_u32 s20, 0
    s_cbranch_scc1 work
    v_mov_b32_e32 v9, 1
    ds_write_b32 v8, v9
    s_waitcnt lgkmcnt(0)
    s_branch end
    poll:
    ds_read_b32 v3, v8
    s_waitcnt lgkmcnt(0)
    s_nop 1
    v_readfirstlane_b32 s21, v3
    s_cmp_eq_u32 s21, 0
    s_cbranch_scc1 poll
    end:
    """
    report = run(PROLOGUE + body, options={"seeds": 3})
    assert not report.deadlock and report.instructions > 3 * 4096
    assert report.findings == []


def test_waves_that_pass_fewer_barriers() -> None:
    report = run(PROLOGUE + "s_barrier\n" + WAVE0 + "\ns_cbranch_scc1 end\ns_barrier\nend:")
    assert report.deadlock
    (finding,) = report.findings
    assert finding.kind == "deadlock"
    assert finding.problem == "wave 1 stand at a barrier that wave 0, which ended, never reach"
    assert finding.first is not None and finding.second is not None
    assert finding.first.waves == {0} and finding.first.inst.base == "s_endpgm"
    assert finding.second.waves == {1} and finding.second.inst.base == "s_barrier"


def test_a_run_that_is_too_long() -> None:
    body = "s_mov_b32 s20, 0\nagain:\ns_add_u32 s20, s20, 1\ns_branch again"
    report = run(PROLOGUE + body, options={"max_instructions": 3000})
    assert report.deadlock and "3" in report.findings[0].problem


def test_a_split_barrier_that_never_completes() -> None:
    once = WAVE0 + "\ns_cbranch_scc1 rest\ns_barrier_signal -1\nrest:\ns_barrier_wait -1"
    report = run(PROLOGUE_GFX1250 + once, target="gfx1250")
    assert report.deadlock and "s_barrier_wait" in report.findings[0].problem


def test_a_barrier_signalled_twice() -> None:
    body = "s_barrier_signal -1\ns_barrier_signal -1\ns_barrier_wait -1"
    (finding,) = run(PROLOGUE_GFX1250 + body, target="gfx1250").findings
    assert finding.kind == "barrier-misuse" and finding.second is not None
    assert finding.second.waves == {0, 1} and finding.remedy == "s_barrier_wait before it"
