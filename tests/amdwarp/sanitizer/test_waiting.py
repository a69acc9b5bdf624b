"""Barriers of LDS counters and polling loops: what they order, and every way to get them wrong."""

from __future__ import annotations

import pytest
from handmade import PROLOGUE, kinds, run

#: Two producer waves and two consumer waves hand one slot of 512 bytes back and forth, six times.
#: LDS: the slot at 0, "full" at 2048, "empty" at 2056; each counts arrivals of waves.
#: v5, v6: addresses of "full" and "empty"; s20: the step; s21: arrivals that are waited for; v3: own part of the slot,
#: v4: the other half, which the other producer wrote.
HANDOVER = (
    PROLOGUE
    + """
    v_mov_b32_e32 v5, 0x800
    v_mov_b32_e32 v6, 0x808
    v_mov_b32_e32 v7, 0
    v_mov_b32_e32 v8, 1
    v_and_b32_e32 v3, 0x1ff, v1
    v_xor_b32_e32 v4, 0x100, v3
    v_readfirstlane_b32 s12, v1
    s_mov_b64 s[16:17], exec
    s_cmp_lg_u32 s12, 0
    s_cbranch_scc1 ready
    s_mov_b64 exec, 1
    ds_write_b32 v5, v7
    ds_write_b32 v6, v7
    s_mov_b64 exec, s[16:17]
    s_waitcnt lgkmcnt(0)
    ready:
    s_barrier
    s_mov_b32 s20, 0
    s_mov_b32 s21, 0
    s_cmp_ge_u32 s12, 0x200
    s_cbranch_scc1 consumer
    producer:
    empty_wait:
    ds_read_b32 v10, v6
    s_waitcnt lgkmcnt(0)
    v_readfirstlane_b32 s22, v10
    s_cmp_ge_u32 s22, s21
    s_cbranch_scc1 produce
    s_sleep 1
    s_branch empty_wait
    produce:
    s_mov_b32 m0, s12
    s_nop 1
    buffer_load_dword v1, s[8:11], 0 offen lds
    s_waitcnt vmcnt(0)
    s_mov_b64 exec, 1
    ds_add_u32 v5, v8
    s_mov_b64 exec, s[16:17]
    s_add_u32 s21, s21, 2
    s_add_u32 s20, s20, 1
    s_cmp_lt_u32 s20, 6
    s_cbranch_scc1 producer
    s_endpgm
    consumer:
    s_add_u32 s21, s21, 2
    ds_read_b32 v10, v5
    s_waitcnt lgkmcnt(0)
    v_cmp_gt_u32_e32 vcc, s21, v10
    s_cbranch_vccz consume
    full_wait:
    s_sleep 1
    ds_read_b32 v10, v5
    s_waitcnt lgkmcnt(0)
    v_cmp_gt_u32_e32 vcc, s21, v10
    s_cbranch_vccnz full_wait
    consume:
    ds_read_b32 v11, v3
    ds_read_b32 v12, v4
    s_waitcnt lgkmcnt(0)
    v_add_u32_e32 v13, v11, v12
    global_store_dword v1, v13, s[6:7]
    s_mov_b64 exec, 1
    ds_add_u32 v6, v8
    s_mov_b64 exec, s[16:17]
    s_add_u32 s20, s20, 1
    s_cmp_lt_u32 s20, 6
    s_cbranch_scc1 consumer
    """
)


def _mutant(old: str, new: str, at: int = 0) -> str:
    """`HANDOVER` with the occurrence `at` of a line changed."""
    parts = HANDOVER.split(f"    {old}\n")
    assert len(parts) > at + 1
    return f"    {old}\n".join(parts[: at + 1]) + f"    {new}\n" + f"    {old}\n".join(parts[at + 1 :])


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_in_order(target: str) -> None:
    report = run(HANDOVER, waves=4, target=target, options={"seeds": 5})
    assert report.findings == []


RACES = {"lds-unpublished-read", "lds-write-after-read", "lds-write-write"}
_MUTANTS = {
    "the producer arrives before its copy is there": ("s_waitcnt vmcnt(0)", "s_nop 0", 0),
    "a counter is not cleared behind a barrier": ("s_barrier", "s_nop 0", 0),
    "the producers do not wait": ("s_cbranch_scc1 produce", "s_branch produce", 0),
    "the producers wait for one arrival less": ("s_add_u32 s21, s21, 2", "s_add_u32 s21, s21, 1", 0),
    "the consumers do not wait": ("v_cmp_gt_u32_e32 vcc, s21, v10", "v_cmp_gt_u32_e32 vcc, 0, v10", 0),
    "the consumers go on whatever the counter holds": ("s_cbranch_vccz consume", "s_branch consume", 0),
    "the consumers wait for one arrival less": ("s_add_u32 s21, s21, 2", "s_add_u32 s21, s21, 1", 1),
    "a consumer arrives before it has read": (
        "consume:",
        "consume:\n    s_mov_b64 exec, 1\n    ds_add_u32 v6, v8\n    s_mov_b64 exec, s[16:17]",
        0,
    ),
    "a producer arrives twice": ("ds_add_u32 v5, v8", "ds_add_u32 v5, v8\n    ds_add_u32 v5, v8", 0),
    "all lanes of a consumer arrive": ("s_mov_b64 exec, 1", "s_nop 0", 2),
}


@pytest.mark.parametrize("what", _MUTANTS)
def test_mutants(what: str) -> None:
    found = set(kinds(_mutant(*_MUTANTS[what]), waves=4))
    assert found & RACES, found


@pytest.mark.parametrize("line", ["ds_add_u32 v5, v8", "ds_add_u32 v6, v8"])
def test_an_arrival_that_is_missing_is_a_deadlock(line: str) -> None:
    report = run(_mutant(line, "s_nop 0"), waves=4)
    assert report.deadlock
    (finding,) = [finding for finding in report.findings if finding.kind == "deadlock"]
    assert "s_cbranch_vccnz" in finding.problem or "s_branch empty_wait" in finding.problem


def test_the_wait_that_is_too_short_names_both_sides() -> None:
    report = run(_mutant("s_add_u32 s21, s21, 2", "s_add_u32 s21, s21, 1", 1), waves=4)
    finding = next(finding for finding in report.findings if finding.kind == "lds-unpublished-read")
    assert finding.first is not None and finding.first.inst.base == "buffer_load_dword"
    assert finding.second is not None and finding.second.inst.base == "ds_read_b32"


#: What a compiler makes of ``while not ready: sleep``: the jump that looks at what was read stays within the loop.
STRUCTURED = """
    s_branch look
    meet:
    s_and_b64 s[22:23], s[22:23], exec
    s_cselect_b32 s22, 1, 0
    s_cmp_lg_u32 s22, 1
    s_cbranch_scc0 consume
    look:
    ds_read_b32 v10, v5
    s_waitcnt lgkmcnt(0)
    v_readfirstlane_b32 s22, v10
    s_cmp_ge_u32 s22, s21
    s_mov_b64 s[22:23], -1
    s_cbranch_scc1 meet
    s_sleep 1
    s_mov_b64 s[22:23], 0
    s_branch meet
    consume:
"""


def _structured(arrivals: int) -> str:
    head, rest = HANDOVER.split("    consumer:\n")
    tail = rest[rest.index("consume:") + len("consume:") :]
    return head + f"    consumer:\n    s_add_u32 s21, s21, {arrivals}" + STRUCTURED + tail


def test_a_loop_with_a_flag() -> None:
    assert kinds(_structured(2), waves=4) == []
    assert set(kinds(_structured(1), waves=4)) & RACES


def test_a_search_in_lds_is_no_wait() -> None:
    """Each wave follows a chain of addresses that the other has written, without a barrier between."""
    body = """
    v_mov_b32_e32 v4, 0
    ds_write_b32 v1, v4
    s_waitcnt lgkmcnt(0)
    s_barrier
    ds_write_b32 v1, v1
    s_waitcnt lgkmcnt(0)
    v_mov_b32_e32 v4, v2
    s_mov_b32 s20, 0
    again:
    ds_read_b32 v4, v4
    s_waitcnt lgkmcnt(0)
    v_readfirstlane_b32 s21, v4
    s_add_u32 s20, s20, 1
    s_cmp_lt_u32 s20, s21
    s_cbranch_scc1 again
    """
    assert "lds-unpublished-read" in kinds(PROLOGUE + body)
    assert "lds-unpublished-read" not in kinds(
        PROLOGUE + body.replace("v_mov_b32_e32 v4, v2", "s_barrier\nv_mov_b32_e32 v4, v2")
    )


@pytest.mark.parametrize("at", [1, 2])
def test_a_poll_without_its_wait_comes_to_an_end(at: int) -> None:
    """The read is under way for ever more often; the run must not take ever longer for it."""
    report = run(_mutant("s_waitcnt lgkmcnt(0)", "s_nop 0", at), waves=4)
    assert "register-early-read" in {finding.kind for finding in report.findings}
    assert report.instructions < 100_000


#: The last of four waves to arrive reads what all have written.
LAST = (
    PROLOGUE
    + """
    v_mov_b32_e32 v5, 0x800
    v_mov_b32_e32 v7, 0
    v_mov_b32_e32 v8, 1
    v_xor_b32_e32 v4, 0x300, v1
    v_readfirstlane_b32 s12, v1
    s_mov_b64 s[16:17], exec
    s_cmp_lg_u32 s12, 0
    s_cbranch_scc1 ready
    s_mov_b64 exec, 1
    ds_write_b32 v5, v7
    s_mov_b64 exec, s[16:17]
    s_waitcnt lgkmcnt(0)
    ready:
    s_barrier
    ds_write_b32 v1, v0
    s_mov_b64 exec, 1
    ds_add_rtn_u32 v10, v5, v8
    s_mov_b64 exec, s[16:17]
    s_waitcnt lgkmcnt(0)
    v_readfirstlane_b32 s22, v10
    s_cmp_lg_u32 s22, 3
    s_cbranch_scc1 end
    ds_read_b32 v11, v2
    ds_read_b32 v12, v4
    s_waitcnt lgkmcnt(0)
    v_add_u32_e32 v13, v11, v12
    global_store_dword v1, v13, s[6:7]
    end:
    """
)


def test_the_last_to_arrive_goes_on() -> None:
    assert kinds(LAST, waves=4) == []


@pytest.mark.parametrize(
    ("old", "new"), [("s_cmp_lg_u32 s22, 3", "s_cmp_lg_u32 s22, 1"), ("s_cbranch_scc1 end", "s_nop 0")]
)
def test_a_wave_that_is_not_the_last(old: str, new: str) -> None:
    found = set(kinds(LAST.replace(f"    {old}\n", f"    {new}\n"), waves=4))
    assert found & {"lds-unpublished-read", "lds-uninitialised-read"}, found
