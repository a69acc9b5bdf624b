"""Vector memory: queue, TCP, bytes in flight, round trip, counters."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from amdwarp.cycles import load
from amdwarp.cycles.queues import Gate

#: v1 holds 16 bytes times the lane; the buffer's descriptor stands in s[4:7]. The first load warms the CU up.
SETUP = [
    "s_load_dwordx2 s[4:5], s[0:1], 0x0",
    "s_mov_b32 s6, 0x40000",
    "s_mov_b32 s7, 0x27000",
    "v_lshlrev_b32 v1, 4, v0",
    "s_waitcnt lgkmcnt(0)",
    "s_and_b32 s5, s5, 0xffff",
    "buffer_load_dwordx4 v[4:7], v1, s[4:7], 0 offen",
    "s_waitcnt vmcnt(0)",
]
WIDE = "buffer_load_dwordx4 v[8:11], v1, s[4:7], 0 offen offset:1024"


@pytest.fixture
def memory() -> Any:
    return np.zeros(1 << 18, np.uint8)


def test_round_trip(timed: Any, memory: Any) -> None:
    run = timed([*SETUP, WIDE, "s_waitcnt vmcnt(0)", "v_add_f32 v2, v8, v9"], args=[memory], vmem_jitter_clk=0)
    assert run.ends("buffer_load")[1] - run.starts("buffer_load")[1] == 1000
    assert 1000 <= run.starts("v_add")[0] - run.starts("buffer_load")[1] <= 1004


def test_queue_then_tcp(timed: Any, memory: Any) -> None:
    """Four waves: the first few loads of a wave issue at once, the next ones every 4 x 16 clk."""
    run = timed([*SETUP, "s_barrier", *[WIDE] * 9], waves=4, args=[memory], vmem_jitter_clk=0)
    for wave in range(4):
        starts = run.starts("buffer_load", wave)[1:]
        gaps = [b - a for a, b in pairwise(starts)]
        assert gaps[:2] == [4, 4]
        assert gaps[4:7] == [64, 64, 64]


@pytest.mark.parametrize(
    ("tail", "registers", "clk"), [("dword", "v8", 4), ("dwordx2", "v[8:9]", 16), ("dwordx4", "v[8:11]", 16)]
)
def test_tcp_time_of_a_width(timed: Any, memory: Any, tail: str, registers: str, clk: int) -> None:
    shift = {"dword": 2, "dwordx2": 3, "dwordx4": 4}[tail]
    one = f"buffer_load_{tail} {registers}, v1, s[4:7], 0 offen"
    setup = [line.replace("v1, 4, v0", f"v1, {shift}, v0") for line in SETUP]
    starts = timed([*setup, *[one] * 30], waves=1, args=[memory], vmem_jitter_clk=0).starts(one.split(",")[0])
    assert starts[-3] - starts[-4] == clk


def test_bytes_in_flight_bound_a_stream(timed: Any, memory: Any) -> None:
    """A full TCP and queue pass 32 + 12 KB in one round trip, whatever the loads ask for."""
    run = timed([*SETUP, *[WIDE] * 200], waves=4, args=[memory], vmem_jitter_clk=0)
    starts = run.starts("buffer_load")
    rate = 4 * 1024 * (150 / (starts[180] - starts[30]))
    assert rate == pytest.approx(44 * 1024 / 1000, rel=0.03)


def test_longer_round_trip_halves_it(timed: Any, memory: Any) -> None:
    run = timed([*SETUP, *[WIDE] * 200], waves=4, args=[memory], vmem_jitter_clk=0, vmem_round_trip_clk=2000)
    starts = run.starts("buffer_load")
    assert 4 * 1024 * (150 / (starts[180] - starts[30])) == pytest.approx(22 * 1024 / 1000, rel=0.03)


@pytest.mark.parametrize(("mfma", "clk"), [(4, 727), (8, 1024)])
def test_tile_that_asks_for_more_than_may_be_in_flight(timed: Any, memory: Any, mfma: int, clk: int) -> None:
    """Four waves load 32 KB an iteration, spread evenly: 32 KB * 1000 / 44 KB clk, or the MFMA if they last longer."""
    matrix = [f"v_mfma_f32_16x16x32_f16 v[{c}:{c + 3}], v[0:3], v[4:7], v[{c}:{c + 3}]" for c in (32, 36, 40, 44)]
    part = [WIDE.replace("v[8:11]", "v[16:19]"), *(matrix * 2)[:mfma]]
    count = ["s_sub_u32 s9, s9, 1", "s_cmp_lg_u32 s9, 0", "s_cbranch_scc1 loop"]
    body = [*SETUP, "s_mov_b32 s9, 24", "loop:", *part * 8, "s_waitcnt vmcnt(24)", *count]
    marks = timed(body, waves=4, args=[memory], vmem_jitter_clk=0).run.waves[0].marks
    assert (marks[-2].t - marks[6].t) / (len(marks) - 8) == pytest.approx(clk, rel=0.03)


def test_scattered_lanes_take_tcp_time_by_lines(timed: Any, memory: Any) -> None:
    """Rows of 64 bytes: 16 lines an instruction instead of 8, twice the time."""
    rows = ["v_and_b32 v2, 3, v0", "v_lshrrev_b32 v3, 2, v0", "v_lshlrev_b32 v3, 7, v3", "v_lshl_add_u32 v1, v2, 4, v3"]
    run = timed(
        [*SETUP, *rows, *[WIDE.replace(" offset:1024", "")] * 30],
        args=[memory],
        vmem_jitter_clk=0,
        vmem_credit_bytes=1 << 30,
    )
    starts = run.starts("buffer_load")
    assert starts[-3] - starts[-4] == 32


def test_vmcnt_counts_to_63(timed: Any, memory: Any) -> None:
    run = timed(
        [*SETUP, *["buffer_load_dword v8, v1, s[4:7], 0 offen"] * 90],
        args=[memory],
        vmem_jitter_clk=0,
        vmem_round_trip_clk=5000,
    )
    spans = list(zip(run.starts("buffer_load_dword "), run.ends("buffer_load_dword "), strict=True))
    assert max(sum(start <= t < end for start, end in spans) for t, _ in spans) == 63
    assert sum(run.run.waves[0].stalls) > 0


def test_lgkmcnt_counts_to_15(timed: Any, memory: Any) -> None:
    run = timed(["s_load_dword s4, s[0:1], 0x0"] * 40, args=[memory], vmem_jitter_clk=0)
    spans = list(zip(run.starts("s_load"), run.ends("s_load"), strict=True))
    assert max(sum(start <= t < end for start, end in spans) for t, _ in spans) == 15


def test_waits_count_in_order(timed: Any, memory: Any) -> None:
    """vmcnt(1) covers the older of two loads: 1000 clk from its own issue."""
    body = [*SETUP, WIDE, "s_nop 15", "s_nop 15", WIDE, "s_waitcnt vmcnt(1)", "v_add_f32 v2, v8, v9"]
    run = timed(body, args=[memory], vmem_jitter_clk=0)
    assert 1000 <= run.starts("v_add")[0] - run.starts("buffer_load")[1] <= 1004


def test_scalar_and_lds_share_a_counter(timed: Any, memory: Any) -> None:
    body = [
        "v_lshlrev_b32 v1, 2, v0",
        "s_load_dword s4, s[0:1], 0x0",
        "ds_read_b32 v2, v1",
        "s_waitcnt lgkmcnt(0)",
        "v_add_f32 v3, v2, v2",
    ]
    run = timed(body, args=[memory], vmem_jitter_clk=0)
    assert run.starts("v_add")[0] - run.starts("s_load")[0] >= 736


def test_direct_to_lds_counts_as_vector_memory(timed: Any, memory: Any) -> None:
    body = [
        *SETUP,
        "s_mov_b32 m0, 0",
        "s_nop 0",
        "buffer_load_dwordx4 v1, s[4:7], 0 offen lds",
        "s_waitcnt vmcnt(0)",
        "v_add_f32 v2, v2, v3",
    ]
    run = timed(body, args=[memory], vmem_jitter_clk=0)
    span = run.starts("v_add")[0] - run.starts("buffer_load_dwordx4 v1")[0]
    assert 1000 + 1024 // load("gfx950").lds_copy_bytes_per_clk <= span <= 1016


# The queues by themselves


def test_gate_keeps_places_in_the_order_of_asking() -> None:
    gate = Gate(2)
    first, second, third = object(), object(), object()
    for until in (10, 20):
        assert gate.admit(object(), 0) == 0  # type: ignore[arg-type]
        gate.enter(until)
    assert gate.admit(first, 1) == 10  # type: ignore[arg-type]
    assert gate.admit(second, 2) == 20  # type: ignore[arg-type]
    assert gate.admit(third, 12) == 20  # type: ignore[arg-type]
    assert gate.admit(first, 12) == 0  # type: ignore[arg-type]
    gate.enter(30)
    assert gate.admit(second, 20) == 0  # type: ignore[arg-type]
