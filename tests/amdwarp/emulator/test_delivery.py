"""When data arrive: a missing wait or barrier shows as a wrong number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amdwarp.emulator import POISON

LANE = np.arange(64, dtype=np.uint32)


def resource() -> list[str]:
    """s[96:99]: a buffer of 192 bytes over the first argument."""
    return [
        "s_load_dwordx4 s[4:7], s[0:1], 0x0",
        "s_waitcnt lgkmcnt(0)",
        "s_mov_b32 s96, s4",
        "s_and_b32 s97, s5, 0xffff",
        "s_mov_b32 s98, 0xc0",
        "s_mov_b32 s99, 0x27000",
        "v_lshlrev_b32_e32 v1, 2, v0",
    ]


STORE = ["global_store_dword v1, v20, s[6:7]"]


def values(run_text: Any, body: list[str], waves: int = 1, **options: Any) -> Any:
    """What the body leaves in v20, for 64 * waves lanes; the input holds lane + 1."""
    data, out = np.arange(1, 64 * waves + 1, dtype=np.uint32), np.zeros(64 * waves, np.uint32)
    run_text([*resource(), *body, *STORE], [data, out], waves=waves, **options)
    return out


def test_vector_load_arrives_at_its_wait(run_text: Any) -> None:
    load = ["global_load_dword v10, v1, s[4:5]", "global_load_dword v11, v1, s[4:5]"]
    early = values(run_text, [*load, "v_mov_b32_e32 v20, v10"])
    assert (early == POISON).all()
    partly = values(run_text, [*load, "s_waitcnt vmcnt(1)", "v_mov_b32_e32 v20, v10"])
    np.testing.assert_array_equal(partly, LANE + 1)
    second = values(run_text, [*load, "s_waitcnt vmcnt(1)", "v_mov_b32_e32 v20, v11"])
    assert (second == POISON).all()


def test_the_largest_count_waits_for_what_lies_beyond_it(run_text: Any) -> None:
    """64 loads: the counter holds 63, so vmcnt(63), which LLVM writes before the use of the first, covers that."""
    loads = ["global_load_dword v10, v1, s[4:5]", *["global_load_dword v11, v1, s[4:5]"] * 63]
    first = values(run_text, [*loads, "s_waitcnt vmcnt(63) expcnt(7) lgkmcnt(15)", "v_mov_b32_e32 v20, v10"])
    np.testing.assert_array_equal(first, LANE + 1)
    second = values(run_text, [*loads, "s_waitcnt vmcnt(63)", "v_mov_b32_e32 v20, v11"])
    assert (second == POISON).all()


def test_stores_count_in_vmcnt(run_text: Any) -> None:
    body = ["global_load_dword v10, v1, s[4:5]", "global_store_dword v1, v1, s[6:7]"]
    late = values(run_text, [*body, "s_waitcnt vmcnt(2)", "v_mov_b32_e32 v20, v10"])
    assert (late == POISON).all()
    np.testing.assert_array_equal(values(run_text, [*body, "s_waitcnt vmcnt(1)", "v_mov_b32_e32 v20, v10"]), LANE + 1)


def test_disabled_lanes_keep_their_value(run_text: Any) -> None:
    body = ["v_mov_b32_e32 v10, 77", "s_mov_b64 exec, 15", "global_load_dword v10, v1, s[4:5]", "s_mov_b64 exec, -1"]
    before = values(run_text, [*body, "v_mov_b32_e32 v20, v10"])
    np.testing.assert_array_equal(before, np.where(LANE < 4, POISON, 77))
    after = values(run_text, [*body, "s_waitcnt vmcnt(0)", "v_mov_b32_e32 v20, v10"])
    np.testing.assert_array_equal(after, np.where(LANE < 4, LANE + 1, 77))


def test_scalar_load_needs_a_wait_for_zero(run_text: Any) -> None:
    load = ["s_load_dword s20, s[4:5], 0x8", "s_load_dword s21, s[4:5], 0xc"]
    for wait, good in (("lgkmcnt(0)", True), ("lgkmcnt(1)", False), ("vmcnt(0)", False)):
        got = values(run_text, [*load, f"s_waitcnt {wait}", "v_mov_b32_e32 v20, s20"])
        assert (got == (3 if good else POISON)).all()


def test_lds_counts_in_order_and_not_through_scalar_loads(run_text: Any) -> None:
    base = ["ds_write_b32 v1, v1", "s_waitcnt lgkmcnt(0)", "ds_read_b32 v10, v1", "ds_read_b32 v11, v1"]
    good = values(run_text, [*base, "s_waitcnt lgkmcnt(1)", "v_mov_b32_e32 v20, v10"], lds=256)
    np.testing.assert_array_equal(good, 4 * LANE)
    mixed = [*base, "s_load_dword s20, s[4:5], 0x0", "s_waitcnt lgkmcnt(2)", "v_mov_b32_e32 v20, v10"]
    # Of three operations one has come back; it may have been the scalar load.
    assert (values(run_text, mixed, lds=256) == POISON).all()


def test_lds_write_is_seen_by_the_same_wave(run_text: Any) -> None:
    body = [
        "ds_write_b32 v1, v0",
        "ds_read_b32 v10, v1",
        "ds_write_b32 v1, v1",
        "ds_read_b32 v11, v1",
        "s_waitcnt lgkmcnt(0)",
    ]
    np.testing.assert_array_equal(values(run_text, [*body, "v_mov_b32_e32 v20, v10"], lds=256), LANE)
    np.testing.assert_array_equal(values(run_text, [*body, "v_mov_b32_e32 v20, v11"], lds=256), 4 * LANE)


OTHER = ["v_xor_b32_e32 v2, 0x100, v1"]  # the other of two waves, its LDS word of the same lane


@pytest.mark.parametrize("seed", [0, 1, 2, None])
def test_write_without_wait_before_the_barrier(run_text: Any, seed: int | None) -> None:
    """The write of a wave that did not wait for it is not there for another."""
    read = ["ds_read_b32 v20, v2", "s_waitcnt lgkmcnt(0)"]
    good = [*OTHER, "ds_write_b32 v1, v0", "s_waitcnt lgkmcnt(0)", "s_barrier", *read]
    np.testing.assert_array_equal(values(run_text, good, waves=2, lds=512, seed=seed), np.arange(128) ^ 64)
    bad = values(run_text, [*OTHER, "ds_write_b32 v1, v0", "s_barrier", *read], waves=2, lds=512, seed=seed, lockstep=1)
    assert (bad == POISON).sum() >= 64


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_read_that_is_overtaken_by_the_next_write(run_text: Any, seed: int) -> None:
    """A read not waited for before the barrier sees what the other wave writes behind it."""
    fill = [*OTHER, "ds_write_b32 v1, v0", "s_waitcnt lgkmcnt(0)", "s_barrier", "ds_read_b32 v20, v2"]
    write = ["v_mov_b32_e32 v5, 7", "s_barrier", "ds_write_b32 v1, v5", "s_waitcnt lgkmcnt(0)", "s_barrier"]
    bad = values(run_text, [*fill, *write], waves=2, lds=512, seed=seed, lockstep=1)
    assert (bad == 7).sum() >= 64
    good = values(run_text, [*fill, "s_waitcnt lgkmcnt(0)", *write], waves=2, lds=512, seed=seed, lockstep=1)
    np.testing.assert_array_equal(good, np.arange(128) ^ 64)


def to_lds(exec_mask: str = "-1", m0: str = "64") -> list[str]:
    return [
        f"s_mov_b32 m0, {m0}",
        f"s_mov_b64 exec, {exec_mask}",
        "buffer_load_dword v1, s[96:99], 0 offen lds",
        "s_mov_b64 exec, -1",
    ]


def read_lds(wait: str) -> list[str]:
    return [f"s_waitcnt {wait}", "ds_read_b32 v20, v1 offset:64", "s_waitcnt lgkmcnt(0)"]


def test_direct_to_lds_arrives_at_its_wait(run_text: Any) -> None:
    """Lane l writes at M0 + 4 l; lanes past the buffer's 192 bytes write zeros."""
    fill = ["ds_write_b32 v1, v0 offset:64", "s_waitcnt lgkmcnt(0)"]
    early = values(run_text, [*fill, *to_lds(), *read_lds("vmcnt(1)")], lds=512)
    assert (early == POISON).all()
    done = values(run_text, [*fill, *to_lds(), *read_lds("vmcnt(0)")], lds=512)
    np.testing.assert_array_equal(done, np.where(LANE < 48, LANE + 1, 0))
    masked = values(run_text, [*fill, *to_lds("0xff00"), *read_lds("vmcnt(0)")], lds=512)
    np.testing.assert_array_equal(masked, np.where((LANE >= 8) & (LANE < 16), LANE + 1, LANE))
    dropped = values(run_text, [*fill, *to_lds(m0="0x7fffffff"), *read_lds("vmcnt(0)")], lds=512)
    np.testing.assert_array_equal(dropped, LANE)


def test_wide_direct_to_lds_with_offset(run_text: Any) -> None:
    """Sixteen bytes a lane; the immediate moves both the global and the LDS address."""
    body = ["v_lshlrev_b32_e32 v2, 3, v0", "s_mov_b32 m0, 0", "s_mov_b32 s98, 0x1000", "s_mov_b64 exec, 0xf"]
    body += ["buffer_load_dwordx4 v2, s[96:99], 0 offen offset:16 lds", "s_mov_b64 exec, -1", "s_waitcnt vmcnt(0)"]
    body += ["ds_read_b32 v20, v1", "s_waitcnt lgkmcnt(0)"]
    got = values(run_text, body, lds=2048)
    expected = np.full(64, POISON, np.uint32)
    for lane in range(4):
        expected[4 + 4 * lane : 8 + 4 * lane] = np.arange(4) + 4 + 2 * lane + 1
    np.testing.assert_array_equal(got, expected)


def test_own_pending_read_precedes_a_direct_load(run_text: Any) -> None:
    """A wave's read that is under way does not see its own later load to the same place."""
    fill = ["ds_write_b32 v1, v0 offset:64", "s_waitcnt lgkmcnt(0)", "ds_read_b32 v20, v1 offset:64"]
    got = values(run_text, [*fill, *to_lds(), "s_waitcnt vmcnt(0) lgkmcnt(0)"], lds=512)
    np.testing.assert_array_equal(got, LANE)


def test_end_completes_everything(run_text: Any) -> None:
    out = values(run_text, ["v_mov_b32_e32 v20, v0"])
    np.testing.assert_array_equal(out, LANE)


def test_no_more_operations_are_under_way_than_a_counter_can_tell_apart(run_text: Any) -> None:
    """Hardware issues the 65th load when the first is back; the second is still on its way."""
    out = np.zeros(64, np.uint32)
    body = [
        "s_load_dwordx2 s[6:7], s[0:1], 0x0",
        "v_lshlrev_b32_e32 v1, 2, v0",
        "s_waitcnt lgkmcnt(0)",
        "ds_write_b32 v1, v0",
        "s_waitcnt lgkmcnt(0)",
        *(f"ds_read_b32 v{10 + at}, v1" for at in range(65)),
        "v_add_u32_e32 v2, v10, v11",
        "v_sub_u32_e32 v2, v2, v11",
        "v_cmp_eq_u32_e32 vcc, v11, v0",
        "v_cndmask_b32_e64 v3, 0, 1, vcc",
        "v_lshl_or_b32 v2, v3, 16, v2",
        "global_store_dword v1, v2, s[6:7]",
    ]
    run_text(body, [out], lds=256)
    np.testing.assert_array_equal(out, np.arange(64))
