"""LDS: bank conflicts from addresses, the measured layouts, queues and buses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amdwarp.cycles import load
from amdwarp.cycles.lds import PassCounter, conflict_factor, passes

LANES = np.arange(64)

#: Padding of a 16-row tile, bytes between two reads of a wave when one wave reads, and when four do: measured.
LAYOUTS = [
    ("1024+16", 8, 32),
    ("1024+32", 8, 32),
    ("1024+64", 8, 32),
    ("1024+128", 16, 64),
    ("1024+256", 32, 128),
    ("1024+4", 64, 256),
    ("1024+16,2048+32", 8, 16),
]


def row_starts(padding: str) -> list[int]:
    """Byte address of each of 16 rows of 1024 bytes with padding inserted at every multiple of an interval."""
    rules = [tuple(map(int, rule.split("+"))) for rule in padding.split(",")]
    return [1024 * row + sum(1024 * row // interval * added for interval, added in rules) for row in range(16)]


def operand_read(padding: str) -> list[str]:
    """Instructions that leave in v1 the address of an operand read: lane l takes row l % 16, byte 32 * (l // 16)."""
    starts = row_starts(padding)
    odd, even = starts[1], starts[2]
    return [
        "v_and_b32 v2, 15, v0",
        "v_and_b32 v3, 48, v0",
        "v_lshlrev_b32 v3, 1, v3",
        f"s_movk_i32 s4, {odd}",
        "v_mul_lo_u32 v4, v2, s4",
        "v_lshrrev_b32 v2, 1, v2",
        f"s_movk_i32 s4, {even - 2 * odd}",
        "v_mul_lo_u32 v2, v2, s4",
        "v_add3_u32 v1, v4, v2, v3",
    ]


def steady_interval(timed: Any, setup: list[str], instruction: str, waves: int, target: str = "gfx950") -> float:
    """Clk between two reads of a wave once all queues are full."""
    reads = [instruction.format(f"v[{8 + 4 * (at % 12)}:{11 + 4 * (at % 12)}]") for at in range(60)]
    run = timed([*setup, *reads, "s_waitcnt lgkmcnt(0)"], waves=waves, target=target)
    starts = [run.starts(instruction.split()[0], wave)[-25:] for wave in range(waves)]
    return float(np.mean([(one[-1] - one[0]) / 24 for one in starts]))


@pytest.mark.parametrize(("padding", "one", "four"), LAYOUTS)
def test_measured_layouts(timed: Any, padding: str, one: int, four: int) -> None:
    setup = operand_read(padding)
    assert steady_interval(timed, setup, "ds_read_b128 {}, v1", 1) == one
    assert steady_interval(timed, setup, "ds_read_b128 {}, v1", 4) == four


def test_the_program_reads_the_rows_that_the_padding_means(timed: Any) -> None:
    """The addresses that reach the record are those of the padded tile, so the conflicts are not assumed."""
    for padding, *_ in LAYOUTS:
        run = timed([*operand_read(padding), "ds_read_b128 v[8:11], v1"])
        starts = row_starts(padding)
        addresses = np.array([starts[lane % 16] + lane // 16 * 32 for lane in range(64)])
        recorded = next(one for one in run.trace.groups[0].waves[0].touched if one is not None)
        assert recorded.passes == passes(addresses, None, 16, "read", load("gfx950"))


@pytest.mark.parametrize(
    ("target", "instruction", "clk"),
    [
        ("gfx950", "ds_read_b128 {}, v1", 16),
        ("gfx942", "ds_read_b128 {}, v1", 32),
    ],
)
def test_four_waves_without_conflicts(timed: Any, target: str, instruction: str, clk: int) -> None:
    assert steady_interval(timed, ["v_lshlrev_b32 v1, 4, v0"], instruction, 4, target) == clk


def test_b64_takes_half_of_b128(timed: Any) -> None:
    reads = [f"ds_read_b64 v[{8 + 2 * (at % 20)}:{9 + 2 * (at % 20)}], v1" for at in range(60)]
    run = timed(["v_lshlrev_b32 v1, 3, v0", *reads], waves=4)
    starts = run.starts("ds_read_b64")[-25:]
    assert (starts[-1] - starts[0]) / 24 == 8


def test_store_of_128_bits_on_gfx942(timed: Any) -> None:
    """Address and data share the 64-byte input port of a SIMD pair: 20 clk, 8 for a 32-bit store."""
    for wide, shift, data, clk in (("b128", 4, "v[8:11]", 20), ("b32", 2, "v8", 8)):
        body = [f"v_lshlrev_b32 v1, {shift}, v0", *[f"ds_write_{wide} v1, {data}"] * 40]
        starts = timed(body, target="gfx942").starts("ds_write")[-11:]
        assert (starts[-1] - starts[0]) / 10 == clk


def test_first_instructions_of_a_burst_issue_at_once(timed: Any) -> None:
    reads = [f"ds_read_b128 v[{8 + 4 * at}:{11 + 4 * at}], v1" for at in range(12)]
    run = timed(["v_lshlrev_b32 v1, 4, v0", *reads], waves=8)
    starts = run.starts("ds_read")
    assert starts[3] - starts[0] == 12
    assert 50 <= run.ends("ds_read")[0] - starts[0] <= 70
    assert starts[-1] - starts[-2] > 4


def test_copies_go_before_writes(timed: Any) -> None:
    """Data of direct-to-LDS loads that arrive while a write waits are taken in first."""
    memory = np.zeros(1 << 16, np.uint8)
    load_all = [
        "s_load_dwordx2 s[4:5], s[0:1], 0x0",
        "s_mov_b32 s6, 0x10000",
        "s_mov_b32 s7, 0x27000",
        "v_lshlrev_b32 v1, 4, v0",
    ]
    copy = [
        line
        for at in range(8)
        for line in (f"s_mov_b32 m0, {1024 * at}", "s_nop 0", "buffer_load_dwordx4 v1, s[4:7], 0 offen lds")
    ]
    wait = ["s_waitcnt lgkmcnt(0)", "s_and_b32 s5, s5, 0xffff", *copy, "s_waitcnt vmcnt(0)"]
    writes = ["ds_write_b128 v1, v[8:11] offset:16384"] * 12 + ["s_waitcnt lgkmcnt(0)"]

    def last_write(lines: list[str], **values: float) -> int:
        run = timed([*load_all, *wait, *lines, *writes], args=[memory], vmem_jitter_clk=0, **values)
        return int(run.ends("ds_write")[-1] - run.starts("ds_write")[0])

    # 1000 clk after their issue the copies arrive; the writes are there by then
    busy = last_write([*copy, "s_sleep 15"], lds_copy_bytes_per_clk=4)
    assert busy > last_write(["s_sleep 15"], lds_copy_bytes_per_clk=4) + 400


# Conflicts


def test_every_lane_at_one_word_is_free() -> None:
    for target in ("gfx942", "gfx950"):
        for size in (4, 8, 16):
            assert conflict_factor(np.zeros(64, np.int64), size, "read", load(target)) == 1


@pytest.mark.parametrize(
    ("target", "stride", "size", "factor"),
    [
        ("gfx950", 4, 4, 1),
        ("gfx950", 8, 8, 1),
        ("gfx950", 16, 16, 1),
        ("gfx950", 256, 4, 64),
        ("gfx950", 8, 4, 2),
        ("gfx942", 8, 4, 2),
        ("gfx942", 128, 4, 32),
        ("gfx942", 16, 16, 1),
        ("gfx942", 128, 16, 8),
    ],
)
def test_strides(target: str, stride: int, size: int, factor: int) -> None:
    assert conflict_factor(LANES * stride, size, "read", load(target)) == factor


def test_64_bit_write_of_gfx950_uses_32_banks() -> None:
    p = load("gfx950")
    assert passes(LANES * 8, None, 8, "write", p) == 4
    assert passes(LANES * 8, None, 8, "read", p) == 2


def test_only_active_lanes_count() -> None:
    p = load("gfx950")
    on = LANES < 2
    assert passes(LANES * 256, on, 4, "read", p) == 2
    assert passes(LANES * 256, np.zeros(64, bool), 4, "read", p) == 0


def test_lanes_that_meet_in_an_atomic_follow_each_other() -> None:
    p = load("gfx950")
    same = np.zeros(64, np.int64)
    assert passes(same, None, 4, "read", p, atomic=True) == 64 * p.lds_atomic_factor


@given(
    start=st.integers(0, 4000),
    rows=st.lists(st.integers(0, 2000), min_size=64, max_size=64),
    size=st.sampled_from([4, 8, 16]),
    shift=st.integers(0, 15),
)
def test_conflicts_repeat_every_256_bytes(start: int, rows: list[int], size: int, shift: int) -> None:
    p = load("gfx950")
    addresses = np.array(rows, np.int64) * size + start * 16
    direct = passes(addresses, None, size, "read", p)
    assert passes(addresses + 256 * shift, None, size, "read", p) == direct
    assert PassCounter(p).count(addresses[None], None, size, "read") == [direct]
    assert direct >= len(p.lds["read", size].phases)


@given(rows=st.lists(st.integers(0, 4000), min_size=64, max_size=64), size=st.sampled_from([4, 8, 16]))
def test_agrees_with_the_model_that_the_kernels_choose_layouts_by(rows: list[int], size: int) -> None:
    """Written apart from this one, on integers; it takes the worst phase for all of them."""
    from amdwarp.kernels.gemm.layouts import pass_factor

    addresses = np.array(rows, np.int64) * size
    phases = len(load("gfx950").lds["read", size].phases)
    mine, theirs = passes(addresses, None, size, "read", load("gfx950")), pass_factor(addresses.tolist(), size)
    assert theirs <= mine <= theirs * phases
