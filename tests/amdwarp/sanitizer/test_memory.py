"""Global and private memory: races between workgroups, reads of what nobody wrote, stray accesses."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from handmade import PROLOGUE, kinds, only, text_of

from amdwarp.sanitizer import check

DONE = "s_waitcnt vmcnt(0)"
#: s20: 1024 times the workgroup; v3: the thread's place in the workgroup's own kilobyte.
OWN = "s_lshl_b32 s20, s2, 10\nv_add_u32_e32 v3, s20, v1"


def found(*lines: str, grid: int = 2, **options: Any) -> list[str]:
    return kinds("\n".join((PROLOGUE, *lines)), grid=grid, **options)


def test_own_places_are_no_race() -> None:
    assert found(OWN, "global_store_dword v3, v0, s[6:7]", DONE) == []


def test_two_workgroups_store_to_one_place() -> None:
    store = "global_store_dword v1, v4, s[6:7]"
    finding = only("\n".join((PROLOGUE, "v_mov_b32_e32 v4, s2", store, DONE)), grid=2)
    assert finding.kind == "global-race" and finding.severity == "warning"
    assert finding.first is not None and finding.second is not None
    assert finding.first.inst.text == finding.second.inst.text == store
    assert finding.workgroup == (1, 0, 0)
    assert "bytes 0 to 511 of argument 1, written by another workgroup" in finding.problem
    # the same value from both
    assert found("v_mov_b32_e32 v4, 7", store, DONE) == []
    # within one workgroup it is not looked for
    assert found("v_mov_b32_e32 v4, s2", store, DONE, grid=1) == []


def test_one_workgroup_reads_what_another_writes() -> None:
    """Workgroup 1 stores where workgroup 0 has read, and the other way round."""
    read, write = "global_load_dword v5, v1, s[6:7]", "global_store_dword v1, v0, s[6:7]"
    pick = "s_cmp_eq_u32 s2, {}\ns_cbranch_scc1 writes\n" + f"{read}\ns_branch end\nwrites:\n{write}\nend:\n{DONE}"
    assert found(pick.format(1)) == ["global-race"]
    assert found(pick.format(0)) == ["global-race"]


def test_atomics_on_one_place_are_no_race() -> None:
    assert found("global_atomic_add v1, v0, s[6:7]", DONE) == []
    mixed = "global_atomic_add v1, v0, s[6:7]\ns_waitcnt vmcnt(0)\nglobal_load_dword v5, v1, s[6:7]\ns_waitcnt vmcnt(0)"
    assert found(mixed) == ["global-race"]


FLAG = """
v_mov_b32_e32 v8, 0x2000
v_mov_b32_e32 v9, 1
global_atomic_add v10, v8, v9, s[6:7] sc0
s_waitcnt vmcnt(0)
"""


def test_atomics_hand_over() -> None:
    """Workgroup 0 stores, then counts; workgroup 1 counts, then reads."""
    body = f"""
    s_cmp_eq_u32 s2, 0
    s_cbranch_scc0 second
    global_store_dword v1, v0, s[6:7]
    {DONE}
    second:
    {{flag}}
    s_cmp_eq_u32 s2, 1
    s_cbranch_scc0 end
    global_load_dword v5, v1, s[6:7]
    {DONE}
    end:
    """
    assert found(body.format(flag=FLAG)) == []
    assert found(body.format(flag="s_nop 0")) == ["global-race"]


def test_a_counter_in_plain_memory_behind_a_flag() -> None:
    """Each workgroup in turn reads a place and changes it, between two atomics on one flag."""
    change = f"global_load_dword v5, v1, s[6:7]\n{DONE}\nv_add_u32_e32 v5, 1, v5\nglobal_store_dword v1, v5, s[6:7]"
    assert found(FLAG, change, DONE, FLAG, grid=4) == []
    assert "global-race" in found(FLAG, change, DONE, grid=4)
    assert "global-race" in found(change, DONE, FLAG, grid=4)


def test_two_readers_in_no_order_before_a_write() -> None:
    """Workgroup 2 comes behind workgroup 1, but not behind workgroup 0."""
    body = f"""
    s_cmp_eq_u32 s2, 2
    s_cbranch_scc1 last
    global_load_dword v5, v1, s[6:7]
    {DONE}
    s_cmp_eq_u32 s2, 0
    s_cbranch_scc1 end
    {FLAG}
    s_branch end
    last:
    {FLAG}
    global_store_dword v1, v0, s[6:7]
    {DONE}
    end:
    """
    assert found(body, grid=3) == ["global-race"]


SWAP = """
global_load_dword v9, v1, s[6:7]{offset}
s_waitcnt vmcnt(0)
{between}
again:
v_add_u32_e32 v8, 1, v9
global_atomic_cmpswap v10, v1, v[8:9], s[6:7] sc0
s_waitcnt vmcnt(0)
v_cmp_eq_u32_e32 vcc, v10, v9
v_mov_b32_e32 v9, v10
s_andn2_b64 exec, exec, vcc
s_cbranch_execnz again
s_mov_b64 exec, -1
"""


def test_a_load_that_a_swap_confirms() -> None:
    """The loop that stands for an atomic which the target lacks."""
    assert found(SWAP.format(offset="", between="")) == []
    # another place, another value, or no swap on some way: nothing confirms what was read
    assert "global-race" in found(SWAP.format(offset=" offset:4", between=""))
    assert "global-race" in found(SWAP.format(offset="", between="v_add_u32_e32 v9, 0, v9"))
    assert "global-race" in found(SWAP.format(offset="", between="s_cmp_eq_u32 s2, -1\ns_cbranch_scc1 past") + "past:")


def test_a_load_that_a_swap_confirms_meets_a_plain_store() -> None:
    store = "global_store_dword v1, v0, s[6:7]"
    pick = f"s_cmp_eq_u32 s2, 0\ns_cbranch_scc0 swap\n{store}\n{DONE}\ns_branch end\nswap:\n"
    assert "global-race" in found(pick + SWAP.format(offset="", between="") + "end:")


def test_a_wide_access_that_the_range_check_cuts() -> None:
    """The last lane's 16 bytes reach beyond the buffer; the resource cuts them."""
    body = "v_add_u32_e32 v3, 0x3e00, v1\nbuffer_load_dwordx4 v[12:15], v3, s[8:11], 0 offen"
    assert found(body, DONE) == []


def test_reading_a_buffer_that_holds_nothing() -> None:
    read = "global_load_dword v5, v3, s[6:7]"
    report = check(
        text_of("\n".join((PROLOGUE, OWN, "global_store_dword v3, v0, s[6:7]", DONE, read, DONE))),
        [np.zeros(4096, np.uint32), np.zeros(4096, np.uint32)], (2,), uninitialised=[1],
    )  # fmt: skip
    assert report.ok
    bare = text_of("\n".join((PROLOGUE, OWN, read, DONE)))
    assert check(bare, [np.zeros(4096, np.uint32) for _ in "ab"], (1,)).ok
    (finding,) = check(bare, [np.zeros(4096, np.uint32) for _ in "ab"], (1,), uninitialised=[1]).findings
    assert finding.kind == "uninitialised-read"
    assert "bytes 0 to 511 of argument 1" in finding.problem


def test_outside_every_buffer() -> None:
    finding = only("\n".join((PROLOGUE, "global_load_dword v5, v1, s[4:5] offset:-8", DONE)))
    assert finding.kind == "out-of-bounds"
    assert finding.second is not None and finding.second.waves == {0}
    assert finding.problem.startswith("lane 0: 4 bytes at") and "outside every buffer" in finding.problem


def test_the_range_of_a_resource_is_no_fault() -> None:
    assert found("buffer_load_dword v5, v1, s[8:11], 0 offen offset:4092", "s_mov_b32 s10, 4", DONE) == []


def test_private_memory() -> None:
    store, load = "scratch_store_dword off, v0, off offset:4", "scratch_load_dword v5, off, off offset:4"
    assert found(store, load, DONE, scratch=16) == []
    assert found(load, DONE, scratch=16) == ["uninitialised-read"]
    assert found(store, load.replace("dword ", "dwordx2 ").replace("v5", "v[6:7]"), DONE, scratch=16) == [
        "uninitialised-read"
    ]


@pytest.mark.usefixtures("garbage_as_usual")
def test_memory_does_not_grow_with_the_workgroups() -> None:
    """The same pages are touched whether 300 or 1500 workgroups run."""
    body = text_of("\n".join((PROLOGUE, "global_load_dword v5, v1, s[4:5]", DONE)))
    peaks = []
    for grid in (300, 1500):
        tracemalloc.start()
        assert check(body, [np.zeros(4096, np.uint32) for _ in "ab"], (grid,)).ok
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]
