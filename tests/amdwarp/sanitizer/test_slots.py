"""Uses of LDS slots: stale reads, writes that are lost."""

from __future__ import annotations

import pytest
from handmade import PROLOGUE, kinds, only

#: A ring of two slots of 512 bytes: s20 counts, s21 is where to write, s22 where to read.
RING = """
s_mov_b32 s20, 0
v_mov_b32_e32 v10, v0
ds_write_b32 v1, v10
s_waitcnt lgkmcnt(0)
s_barrier
again:
s_and_b32 s22, s20, 1
s_xor_b32 s21, s22, 1
s_lshl_b32 s21, s21, {write}
s_lshl_b32 s22, s22, {read}
v_add_u32_e32 v5, s21, v1
v_add_u32_e32 v6, s22, v2
v_add_u32_e32 v10, 17, v10
ds_write_b32 v5, v10
ds_read_b32 v7, v6
s_waitcnt lgkmcnt(0)
s_barrier
s_add_u32 s20, s20, 1
s_cmp_lt_u32 s20, 6
s_cbranch_scc1 again
"""


def test_a_ring_is_clean() -> None:
    assert kinds(PROLOGUE + RING.format(write=9, read=9)) == []


def test_a_reader_that_stays_in_one_slot() -> None:
    # the writer alternates between 0 and 512, the reader between 0 and 0: every other read is an old one
    body = RING.format(write=9, read=0).replace("s_lshl_b32 s22, s22, 0", "s_mov_b32 s22, 0")
    found = kinds(PROLOGUE + body)
    assert "lds-lost-write" in found or "lds-write-after-read" in found


def test_reading_the_same_slot_twice_behind_a_newer_write() -> None:
    """Three slots, so that no race hides the fault: the last read takes the slot before."""
    body = """
    s_mov_b32 s20, 0
    again:
    s_mul_i32 s21, s20, 0x200
    v_add_u32_e32 v5, s21, v1
    v_add_u32_e32 v10, s20, v0
    ds_write_b32 v5, v10
    s_waitcnt lgkmcnt(0)
    s_barrier
    s_min_u32 s22, s20, {last}
    s_mul_i32 s22, s22, 0x200
    v_add_u32_e32 v6, s22, v2
    ds_read_b32 v7, v6
    s_waitcnt lgkmcnt(0)
    s_add_u32 s20, s20, 1
    s_cmp_lt_u32 s20, 3
    s_cbranch_scc1 again
    """
    assert kinds(PROLOGUE + body.format(last=2)) == []
    finding = only(PROLOGUE + body.format(last=1))
    assert finding.kind == "lds-stale-read"
    assert finding.first is not None and finding.first.inst.text == "ds_write_b32 v5, v10"
    assert finding.second is not None and finding.second.inst.text == "ds_read_b32 v7, v6"
    assert finding.lds == (512, 1024)


def test_a_tile_that_stays_is_read_again() -> None:
    body = """
    ds_write_b32 v1, v0
    s_waitcnt lgkmcnt(0)
    s_barrier
    s_mov_b32 s20, 0
    again:
    s_mul_i32 s21, s20, 0x200
    v_add_u32_e32 v5, s21, v1
    ds_write_b32 v5, v0 offset:512
    ds_read_b32 v7, v2
    s_waitcnt lgkmcnt(0)
    s_barrier
    v_add_u32_e32 v6, s21, v2
    ds_read_b32 v8, v6 offset:512
    s_waitcnt lgkmcnt(0)
    s_add_u32 s20, s20, 1
    s_cmp_lt_u32 s20, 3
    s_cbranch_scc1 again
    """
    assert kinds(PROLOGUE + body) == []


#: One use of the slot is written by all lanes, the next with the upper lanes of each wave off.
MASKED = """
v_readfirstlane_b32 s12, v1
s_mov_b32 m0, s12
s_mov_b32 s20, 0
again:
s_cmp_eq_u32 s20, 1
s_cselect_b32 s23, {mask}, -1
s_mov_b32 exec_hi, s23
{fill}
buffer_load_dword v1, s[8:11], 0 offen lds
s_mov_b64 exec, -1
s_waitcnt vmcnt(0) lgkmcnt(0)
s_barrier
ds_read_b32 v7, v2
s_waitcnt lgkmcnt(0)
s_barrier
s_add_u32 s20, s20, 1
s_cmp_lt_u32 s20, 2
s_cbranch_scc1 again
"""


@pytest.mark.parametrize(("mask", "expected"), [("-1", []), ("0", ["lds-stale-read"]), ("0xffff", ["lds-stale-read"])])
def test_disabled_lanes_of_a_copy_leave_what_was_there(mask: str, expected: list[str]) -> None:
    body = PROLOGUE + MASKED.format(mask=mask, fill="s_nop 0")
    assert kinds(body) == expected
    if mask == "0":
        finding = only(body)
        assert finding.first is not None and finding.first.inst.text.endswith("lds")
        # lanes 32-63 of each wave
        assert finding.lds == (128, 512)


def test_a_fill_before_a_masked_copy() -> None:
    fill = "s_mov_b64 exec, -1\nds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\ns_mov_b32 exec_hi, s23"
    assert kinds(PROLOGUE + MASKED.format(mask="0", fill=fill)) == []


def test_bytes_that_are_overwritten_unread() -> None:
    write = "v_add_u32_e32 v9, 5, v0\nds_write_b32 v1, v9\ns_waitcnt lgkmcnt(0)\ns_barrier"
    finding = only("\n".join((PROLOGUE, write, "ds_write_b32 v1, v0", "s_waitcnt lgkmcnt(0)")))
    assert finding.kind == "lds-lost-write" and finding.severity == "warning"
    assert finding.lds == (0, 512) and "overwritten without having been read" in finding.problem


def test_a_fill_is_not_lost() -> None:
    write = "v_mov_b32_e32 v9, 0xff800000\nds_write_b32 v1, v9\ns_waitcnt lgkmcnt(0)\ns_barrier"
    assert kinds("\n".join((PROLOGUE, write, "ds_write_b32 v1, v0", "s_waitcnt lgkmcnt(0)"))) == []


def test_a_copy_ahead_of_the_last_step_is_not_lost() -> None:
    ahead = "v_add_u32_e32 v9, 5, v0\nds_write_b32 v1, v9 offset:2048\ns_waitcnt lgkmcnt(0)\ns_barrier"
    used = "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\ns_barrier\nds_read_b32 v7, v2\ns_waitcnt lgkmcnt(0)"
    assert kinds("\n".join((PROLOGUE, ahead, used))) == []


def test_a_table_that_is_read_in_part() -> None:
    body = "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\ns_barrier\nv_and_b32_e32 v3, 0xf8, v2\nds_read_b32 v7, v3"
    assert kinds(PROLOGUE + body + "\ns_waitcnt lgkmcnt(0)") == []


def test_an_old_slot_read_by_another_instruction() -> None:
    """The ring of three, its last step peeled off the loop: what it should have read is left at the end."""
    body = """
    s_mov_b32 s20, 0
    again:
    s_mul_i32 s21, s20, 0x200
    v_add_u32_e32 v5, s21, v1
    v_add_u32_e32 v10, s20, v0
    ds_write_b32 v5, v10
    s_waitcnt lgkmcnt(0)
    s_barrier
    s_cmp_eq_u32 s20, 2
    s_cbranch_scc1 last
    v_add_u32_e32 v6, s21, v2
    ds_read_b32 v7, v6
    s_waitcnt lgkmcnt(0)
    s_add_u32 s20, s20, 1
    s_branch again
    last:
    ds_read_b32 v7, v2 offset:{offset}
    s_waitcnt lgkmcnt(0)
    """
    assert kinds(PROLOGUE + body.format(offset=1024)) == []
    finding = only(PROLOGUE + body.format(offset=512))
    assert finding.kind == "lds-lost-write" and finding.second is None
    assert finding.lds == (1024, 1280) and "left at the end" in finding.problem
