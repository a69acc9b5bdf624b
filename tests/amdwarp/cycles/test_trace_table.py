"""Times of single waves that thread traces of a gfx950 show (minimum and maximum over what was decoded), modelled."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

SETUP = ["s_load_dwordx2 s[4:5], s[0:1], 0x0", "v_lshlrev_b32 v1, 4, v0", "s_waitcnt lgkmcnt(0)"]
ONE_LANE = ["s_mov_b64 exec, 1"]


@pytest.fixture
def memory() -> Any:
    return np.zeros(4096, np.uint8)


def between(run: Any, first: str, second: str, *, last: bool = False) -> int:
    """Clk from the issue of one instruction to that of another."""
    return int(run.starts(second)[0] - run.starts(first)[-1 if last else 0])


def test_dependent_vector_add(timed: Any) -> None:
    run = timed(["v_add_f32 v1, v1, v2"] * 10)
    starts = run.starts("v_add")
    assert all(0 <= b - a <= 12 for a, b in pairwise(starts))
    assert starts[-1] - starts[0] == 4 * 9


def test_ten_dependent_adds_with_two_satisfied_waits(timed: Any) -> None:
    add = ["v_add_f32 v1, v1, v2"]
    run = timed([*add * 4, "s_waitcnt lgkmcnt(0)", *add * 3, "s_waitcnt lgkmcnt(0)", *add * 4])
    starts = run.starts("v_add")
    assert 3 <= (starts[-1] - starts[0]) / 10 <= 5


def test_dependent_add_across_a_satisfied_wait(timed: Any) -> None:
    run = timed(["v_add_f32 v1, v1, v2", "s_waitcnt lgkmcnt(0)", "v_mul_f32 v1, v1, v2"])
    assert 4 <= between(run, "v_add", "v_mul") <= 8


def test_packed_multiplication_nop_add(timed: Any) -> None:
    run = timed(["v_pk_mul_f32 v[2:3], v[4:5], v[6:7]", "s_nop 0", "v_add_f32 v1, v2, v3"])
    assert 4 <= between(run, "v_pk", "v_add") <= 8


def test_dependent_scalar_instructions(timed: Any) -> None:
    starts = timed(["s_add_u32 s4, s4, 1"] * 8).starts("s_add")
    assert all(0 <= b - a <= 4 for a, b in pairwise(starts))


def test_scalar_and_vector_in_turn(timed: Any) -> None:
    run = timed(["s_add_u32 s4, s4, 1", "v_add_f32 v1, v2, v3"] * 6)
    starts = sorted(run.starts("s_add") + run.starts("v_add"))
    assert all(0 <= b - a <= 8 for a, b in pairwise(starts))


def test_vector_result_to_lds_write(timed: Any) -> None:
    run = timed(["v_lshlrev_b32 v1, 2, v0", "v_add_f32 v2, v3, v4", "ds_write_b32 v1, v2"])
    assert 8 <= between(run, "v_add", "ds_write") <= 16


def test_global_loads_back_to_back(timed: Any, memory: Any) -> None:
    run = timed([*SETUP, *["global_load_dword v8, v1, s[4:5]"] * 3], args=[memory])
    starts = run.starts("global_load")
    assert all(0 <= b - a <= 4 for a, b in pairwise(starts))


def test_lds_reads_back_to_back(timed: Any) -> None:
    reads = [f"ds_read_b128 v[{8 + 4 * at}:{11 + 4 * at}], v1" for at in range(4)]
    starts = timed(["v_lshlrev_b32 v1, 4, v0", *ONE_LANE, *reads]).starts("ds_read")
    assert all(1 <= b - a <= 4 for a, b in pairwise(starts))


def test_lds_write_to_the_wait_behind_it(timed: Any) -> None:
    run = timed(["v_lshlrev_b32 v1, 2, v0", "ds_write_b32 v1, v2", "s_waitcnt lgkmcnt(0)", "v_add_f32 v3, v4, v5"])
    assert 40 <= between(run, "ds_write", "v_add") <= 52


def test_first_of_four_lds_reads_to_its_use(timed: Any) -> None:
    reads = [f"ds_read_b128 v[{8 + 4 * at}:{11 + 4 * at}], v1" for at in range(4)]
    run = timed(["v_lshlrev_b32 v1, 4, v0", *ONE_LANE, *reads, "s_waitcnt lgkmcnt(3)", "v_add_f32 v3, v8, v9"])
    assert 32 <= between(run, "ds_read", "v_add") <= 60


def test_first_scalar_load(timed: Any, memory: Any) -> None:
    run = timed(["s_load_dword s4, s[0:1], 0x0", "s_waitcnt lgkmcnt(0)", "s_add_u32 s5, s4, 1"], args=[memory])
    assert 736 <= between(run, "s_load", "s_add") <= 776


def test_first_global_loads(timed: Any, memory: Any) -> None:
    loads = ["global_load_dword v8, v1, s[4:5]", "global_load_dword v9, v1, s[4:5]"]
    run = timed([*SETUP, *loads, "s_waitcnt vmcnt(0)", "v_add_f32 v3, v8, v9"], args=[memory])
    assert 1792 <= between(run, "global_load", "v_add", last=True) <= 1904


def test_global_store_to_the_end(timed: Any, memory: Any) -> None:
    run = timed([*SETUP, "global_store_dword v1, v2, s[4:5]"], args=[memory])
    assert 184 <= run.run.total_clk - run.starts("global_store")[0] <= 280
