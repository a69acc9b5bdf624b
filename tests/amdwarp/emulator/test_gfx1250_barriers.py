"""Split and named barriers of gfx1250."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amdwarp.emulator.scheduler import EndlessError
from amdwarp.errors import EmulatorError

SEEDS = [None, 0, 1, 2]
#: Puts the pointer to s[4:5], the work item to v0, 4 times it to v1 and the wave's number to s8.
HEAD = [
    "s_load_b64 s[4:5], s[0:1], 0x0 nv",
    "v_lshlrev_b32_e32 v1, 2, v0",
    "s_bfe_u32 s8, ttmp8, 0x50019",
    "s_wait_kmcnt 0x0",
]
STORE = ["ds_load_b32 v3, v2", "s_wait_dscnt 0x0", "global_store_b32 v1, v3, s[4:5]"]


@pytest.fixture(scope="session")
def launch(run_text: Any) -> Any:
    """Function that runs a body with 4 waves and returns the 128 dwords it wrote."""

    def call(body: list[str], **kw: Any) -> Any:
        out = np.zeros(128, np.uint32)
        run_text([*HEAD, *body], [out], arch="gfx1250", waves=4, lds=1024, lockstep=1, **kw)
        return out

    return call


def _exchange(signal: list[str], wait: list[str]) -> list[str]:
    """Every wave writes its work items' numbers and reads those of the wave before it."""
    return [
        "ds_store_b32 v1, v0",
        "s_wait_dscnt 0x0",
        *signal,
        "v_subrev_nc_u32_e32 v2, 32, v0",
        "v_and_b32_e32 v2, 0x7f, v2",
        "v_lshlrev_b32_e32 v2, 2, v2",
        *wait,
        *STORE,
    ]


EXPECTED = (np.arange(128) - 32) % 128


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("number", [-1, -3])
def test_workgroup(launch: Any, seed: int | None, number: int) -> None:
    out = launch(_exchange([f"s_barrier_signal {number}"], [f"s_barrier_wait {number}"]), seed=seed)
    np.testing.assert_array_equal(out, EXPECTED)


def test_a_missing_wait_shows(launch: Any) -> None:
    """With the signal alone some interleaving reads what is not there yet."""
    outs = [launch(_exchange(["s_barrier_signal -1"], []), seed=seed) for seed in range(6)]
    assert any((out != EXPECTED).any() for out in outs)


@pytest.mark.parametrize("seed", SEEDS)
def test_many_phases(launch: Any, seed: int | None) -> None:
    """Waves that run ahead between signal and wait do not mix up completions."""
    loop = [
        "s_mov_b32 s9, 0",
        "v_mov_b32_e32 v4, v0",
        "v_mov_b32_e32 v6, v1",
        "v_subrev_nc_u32_e32 v5, 32, v0",
        "v_and_b32_e32 v5, 0x7f, v5",
        "v_lshlrev_b32_e32 v5, 2, v5",
        ".LBB0_1:",
        "ds_store_b32 v6, v4",
        "s_wait_dscnt 0x0",
        "s_barrier_signal -1",
        "s_add_co_i32 s9, s9, 1",
        "s_barrier_wait -1",
        "ds_load_b32 v4, v5",
        "s_wait_dscnt 0x0",
        "v_xor_b32_e32 v5, 0x200, v5",
        "v_xor_b32_e32 v6, 0x200, v6",
        "s_cmp_lt_u32 s9, 6",
        "s_cbranch_scc1 .LBB0_1",
        "global_store_b32 v1, v4, s[4:5]",
    ]
    np.testing.assert_array_equal(launch(loop, seed=seed), (np.arange(128) - 6 * 32) % 128)


def _named(number: int, members: int) -> list[str]:
    return [
        f"s_mov_b32 m0, {number}",
        "s_barrier_join m0",
        f"s_mov_b32 m0, {members << 16 | number:#x}",
        "s_barrier_signal m0",
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_named_pairs(launch: Any, seed: int | None) -> None:
    """Waves 0 and 1 meet at barrier 1, waves 2 and 3 at barrier 2."""
    body = [
        "ds_store_b32 v1, v0",
        "s_wait_dscnt 0x0",
        "s_cmp_gt_u32 s8, 1",
        "s_cbranch_scc1 .LBB0_1",
        *_named(1, 2),
        "s_branch .LBB0_2",
        ".LBB0_1:",
        *_named(2, 2),
        ".LBB0_2:",
        "s_barrier_wait 1",
        "v_xor_b32_e32 v2, 0x80, v1",
        *STORE,
    ]
    np.testing.assert_array_equal(launch(body, seed=seed), np.arange(128) ^ 32)


def test_initialised_by_constant(launch: Any) -> None:
    body = [
        "s_mov_b32 m0, 0x40000",
        "s_barrier_init 3",
        *_exchange(["s_barrier_join 3", "s_barrier_signal 3"], ["s_barrier_wait 1"]),
    ]
    np.testing.assert_array_equal(launch(body), EXPECTED)


def test_first_to_signal(launch: Any) -> None:
    body = [
        "s_barrier_signal_isfirst -1",
        "s_cselect_b32 s9, 1, 0",
        "s_barrier_wait -1",
        "v_mov_b32_e32 v3, s9",
        "global_store_b32 v1, v3, s[4:5]",
    ]
    assert launch(body, seed=3).reshape(4, 32).sum(axis=0).tolist() == [1] * 32


def test_ended_waves_are_no_members(launch: Any) -> None:
    body = [
        "s_cmp_eq_u32 s8, 2",
        "s_cbranch_scc1 .LBB0_1",
        "s_barrier_signal -1",
        "s_barrier_wait -1",
        "global_store_b32 v1, v0, s[4:5]",
        ".LBB0_1:",
    ]
    out = launch(body).reshape(4, 32)
    assert (out[[0, 1, 3]] == np.arange(128).reshape(4, 32)[[0, 1, 3]]).all() and (out[2] == 0).all()


def test_deadlock(launch: Any) -> None:
    skip = ["s_cmp_eq_u32 s8, 2", "s_cbranch_scc1 .LBB0_1", "s_barrier_signal -1", ".LBB0_1:", "s_barrier_wait -1"]
    with pytest.raises(EndlessError, match=r"never completes.*wave 2 waiting for a barrier.*s_barrier_wait -1"):
        launch(skip)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (["s_barrier_wait 1"], "joined none"),
        (["s_mov_b32 m0, 2", "s_barrier_signal m0"], "no member count"),
        ([*_named(1, 1), "s_mov_b32 m0, 3", "s_barrier_join m0", "s_barrier_signal 1"], None),
        (["s_mov_b32 m0, 0x20001", "s_barrier_signal m0", "s_barrier_signal 1"], None),
    ],
)
def test_faults(launch: Any, body: list[str], problem: str | None) -> None:
    if problem is None:
        launch(body)
        return
    with pytest.raises(EmulatorError, match=problem):
        launch(body)


def test_events(run_text: Any) -> None:
    """Every signal and every departure is reported, with the number of completions before and after."""

    class Observer:
        def __init__(self) -> None:
            self.seen: list[tuple[Any, ...]] = []

        def arrive(self, *fields: int) -> None:
            self.seen.append(("arrive", *fields))

        def leave(self, *fields: int) -> None:
            self.seen.append(("leave", *fields))

    observer = Observer()
    body = ["s_barrier_signal -1", "s_barrier_wait -1", "s_barrier_signal -1", "s_barrier_wait -1"]
    run_text(body, [np.zeros(4, np.uint32)], arch="gfx1250", waves=2, lockstep=1, seed=None, observer=observer)
    arrivals = sorted(item for item in observer.seen if item[0] == "arrive")
    leaves = sorted(item for item in observer.seen if item[0] == "leave")
    assert arrivals == [("arrive", -1, wave, wave + 1, phase) for wave in (0, 1) for phase in (0, 1)]
    assert leaves == [("leave", -1, wave, wave + 1, phase) for wave in (0, 1) for phase in (1, 2)]
