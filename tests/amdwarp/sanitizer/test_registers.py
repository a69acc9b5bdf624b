"""Registers used or overwritten before the wait that covers their load."""

from __future__ import annotations

import pytest
from handmade import PROLOGUE, PROLOGUE_GFX1250, kinds, only

LOAD = "global_load_dword v10, v1, s[4:5]"
OTHER = "global_load_dword v11, v1, s[4:5]"
USE = "v_add_u32_e32 v20, v10, v10"


def found(*lines: str, **options: object) -> list[str]:
    return kinds("\n".join((PROLOGUE, *lines)), **options)  # type: ignore[arg-type]


def test_the_finding_names_both_instructions_and_the_wait() -> None:
    finding = only("\n".join((PROLOGUE, LOAD, OTHER, OTHER, USE)))
    assert finding.kind == "register-early-read" and finding.severity == "error"
    assert finding.first is not None and finding.second is not None
    assert finding.first.inst.text == LOAD and finding.second.inst.text == USE
    assert finding.first.waves == finding.second.waves == {0, 1}
    assert finding.problem.startswith("v10 read") and finding.remedy == "s_waitcnt vmcnt(2) between them"


@pytest.mark.parametrize(("left", "clean"), [(0, True), (1, True), (2, False)])
def test_a_wait_covers_all_but_the_youngest(left: int, clean: bool) -> None:
    assert found(LOAD, OTHER, f"s_waitcnt vmcnt({left})", USE) == ([] if clean else ["register-early-read"])


def test_the_largest_count_covers_what_lies_beyond_it() -> None:
    assert found(LOAD, *[OTHER] * 63, "s_waitcnt vmcnt(63)", USE) == []
    assert found(LOAD, *[OTHER] * 62, "s_waitcnt vmcnt(63)", USE) == ["register-early-read"]


def test_stores_count_and_their_data_may_be_overwritten() -> None:
    store = "global_store_dword v1, v12, s[6:7]"
    assert found(LOAD, store, "s_waitcnt vmcnt(1)", USE) == []
    assert found("v_mov_b32_e32 v12, 1", store, "v_mov_b32_e32 v12, 2") == []
    assert found("ds_write_b32 v1, v12", "v_mov_b32_e32 v12, 2") == []


@pytest.mark.parametrize("touch", ["v_mov_b32_e32 v10, 0", "ds_read_b32 v10, v1", "v_readfirstlane_b32 s20, v10"])
def test_overwritten_or_read_on_the_way(touch: str) -> None:
    ready = ("ds_write_b32 v1, v0", "s_waitcnt lgkmcnt(0)")
    expected = "register-early-read" if "readfirst" in touch else "register-early-write"
    assert found(*ready, LOAD, touch, "s_waitcnt vmcnt(0) lgkmcnt(0)") == [expected]
    assert found(*ready, LOAD, "s_waitcnt vmcnt(0)", touch, "s_waitcnt lgkmcnt(0)") == []


def test_loads_of_one_queue_may_share_a_register() -> None:
    assert found(LOAD, LOAD, "s_waitcnt vmcnt(0)", USE) == []
    assert found(LOAD, LOAD, "s_waitcnt vmcnt(1)", USE) == ["register-early-read"]


def test_lds_reads() -> None:
    ready = ("ds_write_b32 v1, v0", "s_waitcnt lgkmcnt(0)")
    reads = ("ds_read_b32 v10, v1", "ds_read_b32 v11, v1")
    assert found(*ready, *reads, "s_waitcnt lgkmcnt(1)", USE, "s_waitcnt lgkmcnt(0)") == []
    assert found(*ready, *reads, "s_waitcnt vmcnt(0)", USE) == ["register-early-read"]


def test_scalar_loads_come_back_in_any_order() -> None:
    loads = ("s_load_dword s20, s[4:5], 0x0", "s_load_dword s21, s[4:5], 0x4")
    use = "s_add_u32 s22, s20, s20"
    assert found(*loads, "s_waitcnt lgkmcnt(0)", use) == []
    finding = only("\n".join((PROLOGUE, *loads, "s_waitcnt lgkmcnt(1)", use)))
    assert finding.kind == "register-early-read" and finding.problem.startswith("s20 read")
    assert finding.remedy == "s_waitcnt lgkmcnt(0) between them"


def test_a_scalar_load_does_not_stand_in_the_way_of_an_lds_count() -> None:
    ready = ("ds_write_b32 v1, v0", "s_waitcnt lgkmcnt(0)", "ds_read_b32 v10, v1")
    # one of two is back: it may be the scalar load
    assert found(*ready, "s_load_dword s20, s[4:5], 0x0", "s_waitcnt lgkmcnt(1)", USE) == ["register-early-read"]


def test_accumulation_registers() -> None:
    load = "global_load_dwordx4 a[0:3], v1, s[4:5]"
    use = "v_accvgpr_read_b32 v20, a2"
    assert found(load, "s_waitcnt vmcnt(0)", use) == []
    finding = only("\n".join((PROLOGUE, load, use)))
    assert finding.kind == "register-early-read" and finding.problem.startswith("a2 read")


def test_a_buffer_resource_on_its_way() -> None:
    load = "s_load_dwordx4 s[20:23], s[4:5], 0x0"
    assert found(load, "buffer_store_dword v1, v1, s[20:23], 0 offen")[0] == "register-early-read"


def test_results_of_atomics() -> None:
    atomic = "global_atomic_add v10, v1, v0, s[6:7] sc0"
    assert found(atomic, "s_waitcnt vmcnt(0)", USE) == []
    assert found(atomic, USE) == ["register-early-read"]
    assert found("global_atomic_add v1, v0, s[6:7]", "v_mov_b32_e32 v0, 0") == []
    returned = "buffer_atomic_add v10, v1, s[8:11], 0 offen sc0"
    assert found("v_mov_b32_e32 v10, 1", returned, USE) == ["register-early-read"]


def test_only_the_path_that_runs_counts() -> None:
    """The load is waited for on the path that is taken; the other would use it too early."""
    body = (
        *("s_cmp_eq_u32 s2, 0", LOAD, "s_cbranch_scc0 skip", "s_waitcnt vmcnt(0)", "skip:", USE),
        "s_waitcnt vmcnt(0)",
    )
    assert found(*body) == []
    assert found(*body, grid=2) == ["register-early-read"]


def test_around_a_loop() -> None:
    loop = (
        *("s_mov_b32 s20, 3", LOAD, "again:", "s_waitcnt vmcnt({})", USE, LOAD),
        *("s_sub_u32 s20, s20, 1", "s_cmp_lg_u32 s20, 0", "s_cbranch_scc1 again", "s_waitcnt vmcnt(0)"),
    )
    assert found(*(line.format(0) for line in loop)) == []
    assert found(*(line.format(1) for line in loop)) == ["register-early-read", "register-early-read"]


def test_a_load_that_cannot_be_carried_out_for_a_missing_wait() -> None:
    """Its address is still on the way: that is the fault, not where the address points."""
    first = "global_load_dword v10, v1, s[4:5]"
    findings = kinds("\n".join((PROLOGUE, first, "global_load_dword v11, v10, s[4:5]")))
    assert findings == ["register-early-read"]


@pytest.mark.parametrize(
    ("load", "wait", "use"),
    [
        ("global_load_b32 v10, v1, s[4:5]", "s_wait_loadcnt 0x0", "v_mov_b32_e32 v20, v10"),
        ("s_load_b32 s20, s[4:5], 0x0", "s_wait_kmcnt 0x0", "v_mov_b32_e32 v20, s20"),
        ("ds_load_b32 v10, v1", "s_wait_dscnt 0x0", "v_mov_b32_e32 v20, v10"),
        ("ds_load_b32 v10, v1", "s_wait_storecnt_dscnt 0x3f00", "v_mov_b32_e32 v20, v10"),
        ("global_load_b32 v10, v1, s[4:5]", "s_wait_idle", "v_dual_mov_b32 v20, v10 :: v_dual_mov_b32 v21, 0"),
    ],
)
def test_split_counters(load: str, wait: str, use: str) -> None:
    ready = ("ds_store_b32 v1, v0", "s_wait_dscnt 0x0")

    def gfx1250(*lines: str) -> list[str]:
        return kinds("\n".join((PROLOGUE_GFX1250, *ready, *lines)), target="gfx1250")

    assert gfx1250(load, wait, use) == []
    assert gfx1250(load, "s_wait_storecnt 0x0", use) == ["register-early-read"]
