"""Waves: divergence, barriers, interleaving, runs that do not end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amdwarp.errors import EmulatorError

HEAD = [
    "s_load_dwordx2 s[6:7], s[0:1], 0x0",
    "v_lshlrev_b32_e32 v1, 2, v0",
    "v_readfirstlane_b32 s10, v0",
    "s_lshr_b32 s10, s10, 6",
]
HEAD += ["s_waitcnt lgkmcnt(0)"]
STORE = ["global_store_dword v1, v20, s[6:7]"]
SEEDS = [None, 0, 1, 2, 3]


def lanes_of(run_text: Any, body: list[str], waves: int, **options: Any) -> Any:
    out = np.zeros(64 * waves, np.uint32)
    result = run_text([*HEAD, *body, *STORE], [out], waves=waves, **options)
    return out.reshape(waves, 64), result


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("lockstep", [1, 3, 8])
def test_waves_take_different_branches(run_text: Any, seed: int | None, lockstep: int) -> None:
    body = [
        "v_mov_b32_e32 v20, 0",
        "s_mov_b32 s11, 0",
        "s_cmp_gt_u32 s10, 4",
        "s_cbranch_scc1 .LBB0_2",
        ".LBB0_1:",
        "v_add_u32_e32 v20, 1, v20",
        "s_add_i32 s11, s11, 1",
        "s_cmp_le_u32 s11, s10",
        "s_cbranch_scc1 .LBB0_1",
        "s_branch .LBB0_3",
        ".LBB0_2:",
        "v_mov_b32_e32 v20, 100",
        ".LBB0_3:",
        "v_add_u32_e32 v20, 1000, v20",
    ]
    out, result = lanes_of(run_text, body, 8, seed=seed, lockstep=lockstep)
    expected = [1001 + wave if wave <= 4 else 1100 for wave in range(8)]
    np.testing.assert_array_equal(out, np.repeat(expected, 64).reshape(8, 64))
    counts = [9 + 4 * (wave + 1) + 1 if wave <= 4 else 9 + 1 for wave in range(8)]
    assert result.instructions == sum(counts) + 8 * 3


@pytest.mark.parametrize("seed", SEEDS)
def test_branches_on_vcc_and_exec(run_text: Any, seed: int | None) -> None:
    body = [
        "v_mov_b32_e32 v20, 5",
        "v_cmp_lt_u32_e32 vcc, 127, v0",
        "s_cbranch_vccz .LBB0_1",
        "v_mov_b32_e32 v20, 6",
        ".LBB0_1:",
        "v_cmp_eq_u32_e32 vcc, 200, v0",
        "s_and_saveexec_b64 s[12:13], vcc",
        "s_cbranch_execz .LBB0_2",
        "v_mov_b32_e32 v20, 7",
        ".LBB0_2:",
        "s_mov_b64 exec, s[12:13]",
    ]
    out, _ = lanes_of(run_text, body, 4, seed=seed)
    lane = np.arange(256)
    np.testing.assert_array_equal(out.reshape(-1), np.where(lane == 200, 7, np.where(lane > 127, 6, 5)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("lockstep", [1, 8])
def test_half_of_the_waves_one_stage_behind(run_text: Any, seed: int | None, lockstep: int) -> None:
    """Waves 4-7 pass one more barrier before the loop, waves 0-3 one more behind it; LDS is handed over in turn."""
    body = [
        "v_mov_b32_e32 v20, 0",
        "s_mov_b32 s11, 0",
        "v_and_b32_e32 v2, 0xff, v0",
        "v_lshlrev_b32_e32 v2, 2, v2",
        "s_cmp_lt_u32 s10, 4",
        "s_cbranch_scc1 .LBB0_1",
        "s_barrier",
        ".LBB0_1:",
        "s_barrier",
        "ds_add_u32 v2, v20",
        "v_add_u32_e32 v20, 1, v20",
        "s_waitcnt lgkmcnt(0)",
        "s_barrier",
        "s_add_i32 s11, s11, 1",
        "s_cmp_lt_u32 s11, 6",
        "s_cbranch_scc1 .LBB0_1",
        "s_cmp_ge_u32 s10, 4",
        "s_cbranch_scc1 .LBB0_2",
        "s_barrier",
        ".LBB0_2:",
        "s_barrier",
        "ds_read_b32 v20, v2",
        "s_waitcnt lgkmcnt(0)",
    ]
    clear = [
        "v_mov_b32_e32 v3, 0",
        "v_lshlrev_b32_e32 v2, 2, v0",
        "ds_write_b32 v2, v3",
        "s_waitcnt lgkmcnt(0)",
        "s_barrier",
    ]
    out, _ = lanes_of(run_text, [*clear, *body], 8, lds=2048, seed=seed, lockstep=lockstep)
    assert (out == 2 * sum(range(6))).all()


def test_ended_waves_do_not_hold_a_barrier(run_text: Any) -> None:
    body = [
        "v_mov_b32_e32 v20, 1",
        "s_cmp_eq_u32 s10, 2",
        "s_cbranch_scc0 .LBB0_1",
        "s_endpgm",
        ".LBB0_1:",
        "s_barrier",
    ]
    out, _ = lanes_of(run_text, body, 4)
    np.testing.assert_array_equal(out[:, 0], [1, 1, 0, 1])


def test_endless_loop_is_an_error(run_text: Any) -> None:
    body = ["s_cmp_lt_u32 s10, 2", "s_cbranch_scc1 .LBB0_1", "s_barrier", ".LBB0_1:", "s_branch .LBB0_1"]
    with pytest.raises(EmulatorError) as caught:
        lanes_of(run_text, body, 4, max_instructions=5000)
    text = str(caught.value)
    assert "without an end" in text and "waves 2-3 at a barrier" in text and "waves 0-1 running" in text
    assert "'s_branch .LBB0_1'" in text


@pytest.mark.parametrize("seed", SEEDS)
def test_the_limit_on_instructions_is_exact(run_text: Any, seed: int | None) -> None:
    """A wave that ends with the last instruction it may execute has come to its end."""
    body = ["v_mov_b32_e32 v20, 1", "s_nop 0"]
    count = len(HEAD) + len(body) + len(STORE) + 1
    _, result = lanes_of(run_text, body, 2, seed=seed, max_instructions=count)
    assert result.instructions == 2 * count
    with pytest.raises(EmulatorError, match=f"has executed {count - 1} instructions without an end"):
        lanes_of(run_text, body, 2, seed=seed, max_instructions=count - 1)


@pytest.mark.parametrize("lockstep", [1, 2, 8])
def test_waiting_for_another_wave_in_memory(run_text: Any, lockstep: int) -> None:
    """A wave that polls LDS until another has written does not starve it."""
    body = [
        "v_mov_b32_e32 v2, 0",
        "v_mov_b32_e32 v3, 0",
        "ds_write_b32 v2, v3",
        "s_waitcnt lgkmcnt(0)",
        "s_barrier",
        "s_cmp_eq_u32 s10, 3",
        "s_cbranch_scc1 .LBB0_2",
        ".LBB0_1:",
        "ds_read_b32 v20, v2",
        "s_waitcnt lgkmcnt(0)",
        "v_readfirstlane_b32 s12, v20",
        "s_cmp_eq_u32 s12, 0",
        "s_cbranch_scc1 .LBB0_1",
        "s_branch .LBB0_3",
        ".LBB0_2:",
        "v_mov_b32_e32 v20, 9",
        "ds_write_b32 v2, v20",
        "s_waitcnt lgkmcnt(0)",
        ".LBB0_3:",
    ]
    for seed in (None, 0, 1):
        out, _ = lanes_of(run_text, body, 4, lds=64, seed=seed, lockstep=lockstep)
        assert (out == 9).all()


def test_seed_decides_the_order(run_text: Any) -> None:
    """Waves that race for a counter: one seed gives one order, several seeds several."""
    body = [
        "v_mov_b32_e32 v2, 0",
        "v_mov_b32_e32 v3, 1",
        "s_mov_b64 exec, 1",
        "global_atomic_add v20, v2, v3, s[6:7] offset:2048 sc0",
    ]
    body += ["s_waitcnt vmcnt(0)"]

    def order(seed: int) -> tuple[int, ...]:
        out = np.zeros(1024, np.uint32)
        run_text([*HEAD, *body, *STORE], [out], waves=4, lockstep=1, seed=seed)
        return tuple(int(out[64 * wave]) for wave in range(4))

    assert order(3) == order(3)
    assert all(sorted(order(seed)) == [0, 1, 2, 3] for seed in range(4))
    assert len({order(seed) for seed in range(20)}) > 3


def test_pending_operations_survive_split_and_join(run_text: Any) -> None:
    """Loads under way when waves part and meet again deliver to the right lanes."""
    body = [
        "s_load_dwordx2 s[4:5], s[0:1], 0x8",
        "s_waitcnt lgkmcnt(0)",
        "ds_write_b32 v1, v0",
        "global_load_dword v10, v1, s[4:5]",
        "ds_read_b32 v11, v1",
        "s_load_dword s20, s[4:5], 0x14",
        "s_cmp_gt_u32 s10, 1",
        "s_cbranch_scc1 .LBB0_1",
        "v_mov_b32_e32 v12, 5",
        "s_branch .LBB0_2",
        ".LBB0_1:",
        "v_mov_b32_e32 v12, 6",
        ".LBB0_2:",
        "s_nop 0",
        "s_waitcnt vmcnt(0) lgkmcnt(0)",
        "v_add3_u32 v20, v10, v11, v12",
        "v_add_u32_e32 v20, s20, v20",
    ]
    data, out = np.arange(1000, 1256, dtype=np.uint32), np.zeros(256, np.uint32)
    for seed in SEEDS:
        run_text([*HEAD, *body, *STORE], [out, data], waves=4, lds=1024, seed=seed)
        lane = np.arange(256)
        np.testing.assert_array_equal(out, data + lane + np.where(lane >= 128, 6, 5) + 1005)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("lockstep", [1, 8])
def test_an_arrival_that_its_wave_does_not_wait_for(run_text: Any, seed: int | None, lockstep: int) -> None:
    """Waves 0-3 change a counter in LDS and stand at a barrier, which the others reach when the count is there."""
    body = [
        "v_mov_b32_e32 v2, 0",
        "v_mov_b32_e32 v3, 1",
        "ds_write_b32 v2, v2",
        "s_waitcnt lgkmcnt(0)",
        "s_barrier",
        "s_cmp_gt_u32 s10, 3",
        "s_cbranch_scc1 .LBB0_1",
        "ds_add_u32 v2, v3",
        "s_barrier",
        "s_branch .LBB0_2",
        ".LBB0_1:",
        "s_sleep 1",
        "ds_read_b32 v20, v2",
        "s_waitcnt lgkmcnt(0)",
        "v_cmp_ne_u32_e32 vcc, 0x100, v20",
        "s_cbranch_vccnz .LBB0_1",
        "s_barrier",
        ".LBB0_2:",
        "ds_read_b32 v20, v2",
        "s_waitcnt lgkmcnt(0)",
    ]
    out, result = lanes_of(run_text, body, 8, seed=seed, lockstep=lockstep, max_instructions=100_000)
    assert (out == 256).all()
    assert result.instructions < 100_000
