"""Races in LDS: each fault next to its clean counterpart, on two waves that write and read each other's bytes."""

from __future__ import annotations

import pytest
from handmade import PROLOGUE, PROLOGUE_GFX1250, kinds, only

WRITE = "ds_write_b32 v1, v0"
READ = "ds_read_b32 v3, v2"
DONE = "s_waitcnt lgkmcnt(0)"
COPY = "buffer_load_dword v1, s[8:11], 0 offen lds"
#: m0 is where the wave's own quarter kilobyte starts.
M0 = """
v_readfirstlane_b32 s12, v1
s_nop 3
s_mov_b32 m0, s12
s_nop 0
"""


def lds(*lines: str) -> list[str]:
    return kinds("\n".join((PROLOGUE, *lines)))


def test_write_wait_barrier_read_is_clean() -> None:
    assert lds(WRITE, DONE, "s_barrier", READ, DONE) == []


def test_read_without_a_barrier() -> None:
    finding = only("\n".join((PROLOGUE, WRITE, DONE, READ, DONE)))
    assert finding.kind == "lds-unpublished-read"
    assert finding.first is not None and finding.second is not None
    assert finding.first.inst.text == WRITE and finding.second.inst.text == READ
    assert finding.first.inst.line < finding.second.inst.line
    assert finding.first.waves | finding.second.waves == {0, 1}
    assert finding.lds == (0, 512)
    assert "no barrier stands between" in finding.problem and finding.remedy == "a barrier that both pass"


def test_read_of_a_write_that_was_not_waited_for() -> None:
    finding = only("\n".join((PROLOGUE, WRITE, "ds_read_b32 v4, v1 offset:2048", "s_barrier", READ, DONE))
                   .replace("offset:2048", ""))  # fmt: skip
    assert finding.kind == "lds-unpublished-read"
    assert "still under way" in finding.problem
    # one younger LDS operation stands between the write and the barrier
    assert finding.remedy.startswith("s_waitcnt lgkmcnt(1) in wave") and "then a barrier" in finding.remedy


def test_overwriting_what_another_wave_reads() -> None:
    before = (WRITE, DONE, "s_barrier", READ)
    assert lds(*before, DONE, "s_barrier", "ds_write_b32 v1, v2", DONE) == []
    assert lds(*before, DONE, "ds_write_b32 v1, v2", DONE) == ["lds-write-after-read"]


def test_a_read_that_is_not_waited_for_has_not_finished_at_a_barrier() -> None:
    body = (WRITE, DONE, "s_barrier", READ, "s_barrier", "ds_write_b32 v1, v2", DONE)
    finding = only("\n".join((PROLOGUE, *body)))
    assert finding.kind == "lds-write-after-read"
    assert "the read of wave" in finding.problem and "still under way" in finding.problem
    assert "s_waitcnt lgkmcnt(0)" in finding.remedy


def test_two_writes_without_an_order() -> None:
    fill = ("v_mov_b32_e32 v9, 7", "ds_write_b32 v1, v9", DONE)
    assert lds(*fill, "s_barrier", "ds_write_b32 v2, v0", DONE) == []
    assert lds(*fill, "ds_write_b32 v2, v0", DONE) == ["lds-write-write"]


def test_two_waves_write_in_one_instruction() -> None:
    same_place = ("v_and_b32_e32 v3, 0xff, v1", "ds_write_b32 v3, v0", DONE)
    assert lds(*same_place) == ["lds-write-write"]


def test_the_check_does_not_depend_on_the_run() -> None:
    body = "\n".join((PROLOGUE, WRITE, DONE, READ, DONE))
    for seed_count in (1, 6):
        assert kinds(body, options={"seeds": seed_count})[:1] == ["lds-unpublished-read"]


# Granularity


def test_neighbouring_bytes_are_no_race() -> None:
    bytes_of = ("v_lshlrev_b32_e32 v3, 1, v0", "v_lshrrev_b32_e32 v4, 6, v0", "v_and_b32_e32 v3, 0x7e, v3")
    apart = (*bytes_of, "v_add_u32_e32 v3, v3, v4", "ds_write_b8 v3, v0", DONE)
    assert lds(*apart) == []
    assert lds(*bytes_of, "ds_write_b8 v3, v0", DONE) == ["lds-write-write"]


def test_a_narrow_access_after_wide_ones() -> None:
    wide = ("v_lshlrev_b32_e32 v5, 4, v0", "v_mov_b32_e32 v6, 1", "ds_write_b128 v5, v[6:9]", DONE)
    # 1024 bytes of each wave; thread t reads byte 16 t + 3 of the other wave
    other = ("v_xor_b32_e32 v5, 0x400, v5", "ds_read_u8 v10, v5 offset:3", DONE)
    assert lds(*wide, "s_barrier", *other) == []
    finding = only("\n".join((PROLOGUE, *wide, *other)))
    assert finding.kind == "lds-unpublished-read" and finding.lds is not None
    assert finding.lds[0] % 16 == 3 and finding.lds[1] % 16 == 4


# Loads that write LDS themselves


def test_direct_to_lds_is_published_by_vmcnt() -> None:
    assert lds(M0, COPY, "s_waitcnt vmcnt(0)", "s_barrier", READ, DONE) == []
    finding = only("\n".join((PROLOGUE, M0, COPY, "s_waitcnt lgkmcnt(0)", "s_barrier", READ, DONE, "s_nop 0")))
    assert finding.kind == "lds-unpublished-read"
    assert finding.remedy.startswith("s_waitcnt vmcnt(0)")


def test_direct_to_lds_has_its_place_in_vmcnt() -> None:
    load = "buffer_load_dword v20, v1, s[8:11], 0 offen"
    assert lds(M0, COPY, load, "s_waitcnt vmcnt(1)", "s_barrier", READ, DONE) == []
    assert lds(M0, load, COPY, "s_waitcnt vmcnt(1)", "s_barrier", READ, DONE) == ["lds-unpublished-read"]


def test_a_wave_waits_for_its_own_copy() -> None:
    own = "ds_read_b32 v3, v1"
    assert lds(M0, COPY, "s_waitcnt vmcnt(0)", own, DONE) == []
    assert lds(M0, COPY, own, DONE) == ["lds-unpublished-read"]


def test_a_copy_does_not_wait_for_reads_of_its_wave() -> None:
    fill = (M0, WRITE, DONE, "s_barrier", "ds_read_b32 v3, v1")
    assert lds(*fill, DONE, COPY, "s_waitcnt vmcnt(0)") == []
    assert lds(*fill, COPY, DONE, "s_waitcnt vmcnt(0)") == ["lds-write-after-read"]


def test_copies_of_one_wave_come_back_in_order() -> None:
    assert lds(M0, COPY, COPY, "s_waitcnt vmcnt(0)", "s_barrier", READ, DONE) == []
    assert lds(M0, COPY, "ds_write_b32 v1, v2", "s_waitcnt vmcnt(0)", DONE) == ["lds-write-write"]


def test_the_lds_queue_of_one_wave_keeps_its_order() -> None:
    own = "ds_read_b32 v3, v1"
    assert lds(WRITE, own, "ds_write_b32 v1, v2", "s_waitcnt lgkmcnt(0)") == []


# Idioms that are no fault


def test_dropped_copies_and_stores() -> None:
    drop = ("s_mov_b32 m0, 0x7fffffff", "s_nop 0", COPY, "v_bfrev_b32_e32 v9, -2", "ds_write_b32 v9, v0")
    assert lds(WRITE, DONE, *drop, "s_barrier", READ, "s_waitcnt vmcnt(0) lgkmcnt(0)") == []


def test_the_same_value_from_several_waves() -> None:
    same = ("v_mov_b32_e32 v9, 7", "v_and_b32_e32 v8, 0xff, v1", "ds_write_b32 v8, v9", DONE, "s_barrier")
    assert lds(*same, "ds_read_b32 v3, v8", DONE) == []


def test_atomics_of_all_waves() -> None:
    zero = ("v_mov_b32_e32 v9, 0", "v_and_b32_e32 v8, 0xff, v1", "ds_write_b32 v8, v9", DONE, "s_barrier")
    add = "ds_add_u32 v8, v0"
    assert lds(*zero, add, DONE, "s_barrier", "ds_read_b32 v3, v8", DONE) == []
    assert lds(*zero, add, DONE, "ds_read_b32 v3, v8", DONE) == ["lds-unpublished-read"]
    assert lds(*zero, add, DONE, "ds_write_b32 v8, v9", DONE) == ["lds-write-write"]


def test_out_of_range_lanes_of_a_copy_write_zeros() -> None:
    assert lds("s_mov_b32 s10, 64", M0, COPY, "s_waitcnt vmcnt(0)", "s_barrier", READ, DONE) == []


# What was never written


def test_uninitialised_bytes() -> None:
    finding = only("\n".join((PROLOGUE, WRITE, DONE, "s_barrier", "ds_read_b32 v3, v2 offset:256", DONE)))
    assert finding.kind == "lds-uninitialised-read" and finding.first is None
    assert finding.second is not None and finding.second.waves == {0}
    assert finding.lds == (512, 768)


def test_access_outside_the_allocation() -> None:
    finding = only("\n".join((PROLOGUE, "ds_write_b32 v1, v0 offset:4000", DONE)))
    assert finding.kind == "lds-out-of-bounds"
    assert finding.second is not None and finding.second.inst.text == "ds_write_b32 v1, v0 offset:4000"
    assert "4096 bytes" in finding.problem


# gfx1250


@pytest.mark.parametrize("wait", ["s_wait_dscnt 0x0", "s_wait_idle", "s_wait_loadcnt_dscnt 0x3f00"])
def test_split_barrier(wait: str) -> None:
    write, read = "ds_store_b32 v1, v0", "ds_load_b32 v3, v2"
    barrier = ("s_barrier_signal -1", "s_barrier_wait -1")

    def found(*lines: str) -> list[str]:
        return kinds("\n".join((PROLOGUE_GFX1250, *lines)), target="gfx1250")

    assert found(write, wait, *barrier, read, "s_wait_dscnt 0x0") == []
    assert found(write, *barrier, read, "s_wait_dscnt 0x0") == ["lds-unpublished-read"]
    assert found(write, wait, read, "s_wait_dscnt 0x0") == ["lds-unpublished-read"]
    # what happens between the halves is not passed on
    between = (barrier[0], write, wait, barrier[1], read, "s_wait_dscnt 0x0")
    assert found(*between) == ["lds-unpublished-read"]
    assert found(write, "s_wait_loadcnt 0x0", *barrier, read, "s_wait_dscnt 0x0") == ["lds-unpublished-read"]


def test_async_copy_is_published_by_asynccnt() -> None:
    copy, read = "global_load_async_to_lds_b32 v1, v1, s[4:5]", ("ds_load_b32 v3, v2", "s_wait_dscnt 0x0")
    barrier = ("s_barrier_signal -1", "s_barrier_wait -1")

    def found(*lines: str) -> list[str]:
        return kinds("\n".join((PROLOGUE_GFX1250, *lines)), target="gfx1250")

    assert found(copy, "s_wait_asynccnt 0x0", *barrier, *read) == []
    assert found(copy, "s_wait_loadcnt 0x0", *barrier, *read) == ["lds-unpublished-read"]
    assert found(copy, copy, "s_wait_asynccnt 0x1", *barrier, *read) == ["lds-unpublished-read"]


BARRIER_OBJECT = """
v_mov_b32_e32 v8, 31
v_mov_b32_e32 v9, 31
v_mov_b32_e32 v10, 0x800
v_readfirstlane_b32 s12, v1
s_cmp_eq_u32 s12, 0
s_cbranch_scc0 ready
ds_store_b64 v10, v[8:9]
s_wait_dscnt 0x0
ready:
s_barrier_signal -1
s_barrier_wait -1
s_cmp_eq_u32 s12, 0
s_cbranch_scc0 poll
ds_store_b32 v1, v0
{arrive}
s_branch end
poll:
s_sleep 1
ds_load_b32 v5, v10
s_wait_dscnt 0x0
v_readfirstlane_b32 s20, v5
s_bitcmp1_b32 s20, 29
s_cbranch_scc0 {leave}
ds_load_b32 v3, v2
s_wait_dscnt 0x0
end:
"""


def test_arrivals_on_a_barrier_object_publish() -> None:
    """Wave 0 stores and arrives with all lanes; wave 1 polls the object until its phase has changed, then reads."""
    arrive = """
    v_mov_b32_e32 v12, 1
    v_mov_b32_e32 v13, 0
    ds_atomic_barrier_arrive_rtn_b64 v[14:15], v10, v[12:13]
    s_wait_dscnt 0x0
    """
    body = PROLOGUE_GFX1250 + BARRIER_OBJECT
    assert kinds(body.format(arrive=arrive, leave="poll"), target="gfx1250") == []
    # a reader that does not look at the object has no order
    hasty = body.format(arrive=arrive, leave="poll").replace("ds_load_b32 v5, v10", "v_bfrev_b32_e32 v5, 4")
    assert "lds-unpublished-read" in kinds(hasty, target="gfx1250") or "lds-uninitialised-read" in kinds(
        hasty, target="gfx1250"
    )


def test_named_barrier() -> None:
    """Wave 0 writes and signals; wave 1 has joined and waits."""
    body = """
    s_mov_b32 m0, 0x20001
    s_barrier_init m0
    s_barrier_signal -1
    s_barrier_wait -1
    s_barrier_join 1
    ds_store_b32 v1, v0
    {wait}
    s_barrier_signal 1
    s_barrier_wait 1
    ds_load_b32 v3, v2
    s_wait_dscnt 0x0
    """
    assert kinds(PROLOGUE_GFX1250 + body.format(wait="s_wait_dscnt 0x0"), target="gfx1250") == []
    assert kinds(PROLOGUE_GFX1250 + body.format(wait="s_nop 0"), target="gfx1250") == ["lds-unpublished-read"]
