"""Matrix instructions and what runs beside them."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

MFMA32 = "v_mfma_f32_32x32x16_f16 v[64:79], v[0:3], v[4:7], v[64:79]"


def gaps(starts: list[int]) -> list[int]:
    return [b - a for a, b in pairwise(starts)]


def independent(shape: str, registers: int, operands: int, count: int) -> list[str]:
    """Matrix instructions that take four accumulators in turn."""
    lines = []
    for at in range(count):
        c = 32 + at % 4 * registers
        span = f"v[{c}:{c + registers - 1}]"
        lines.append(f"v_mfma_f32_{shape} {span}, v[0:{operands - 1}], v[8:{7 + operands}], {span}")
    return lines


@pytest.mark.parametrize(
    ("target", "shape", "registers", "operands", "clk"),
    [
        ("gfx950", "16x16x32_f16", 4, 4, 16),
        ("gfx950", "32x32x16_f16", 16, 4, 32),
        ("gfx950", "16x16x32_bf16", 4, 4, 16),
        ("gfx950", "16x16x32_fp8_fp8", 4, 2, 16),
        ("gfx942", "16x16x16_f16", 4, 2, 16),
        ("gfx942", "32x32x8_f16", 16, 2, 32),
    ],
)
def test_back_to_back(timed: Any, target: str, shape: str, registers: int, operands: int, clk: int) -> None:
    run = timed(independent(shape, registers, operands, 40), target=target)
    assert set(gaps(run.starts("v_mfma"))) == {clk}


def test_accumulating_into_the_same_registers_costs_nothing(timed: Any) -> None:
    run = timed(["v_mfma_f32_16x16x32_f16 v[32:35], v[0:3], v[4:7], v[32:35]"] * 30)
    assert set(gaps(run.starts("v_mfma"))) == {16}


def test_result_as_c_of_another_shape_waits(timed: Any) -> None:
    first = "v_mfma_f32_16x16x32_f16 v[32:35], v[0:3], v[4:7], v[32:35]"
    second = "v_mfma_f32_32x32x16_f16 v[48:63], v[0:3], v[4:7], v[32:47]"
    run = timed([first, second])
    # 4 passes + 1 wait states between the two
    assert run.starts("v_mfma_f32_32x32x16")[0] - run.starts("v_mfma_f32_16x16x32")[0] == 4 * (4 + 1 + 1)


def test_result_read_by_the_vector_alu_waits(timed: Any) -> None:
    mfma = "v_mfma_f32_16x16x32_f16 v[32:35], v[0:3], v[4:7], v[32:35]"
    run = timed([mfma, "v_add_f32 v1, v32, v33"])
    assert run.starts("v_add")[0] - run.starts("v_mfma")[0] == 4 * (4 + 3 + 1)
    padded = timed([mfma, "s_nop 6", "v_add_f32 v1, v32, v33"])
    assert padded.starts("v_add")[0] - padded.starts("v_mfma")[0] == 4 * (4 + 3 + 1)


@pytest.mark.parametrize(
    ("formats", "clk"), [("", 32), (" cbsz:4", 32), (" cbsz:4 blgp:4", 16), (" cbsz:2 blgp:3", 16)]
)
def test_8_bit_operands_halve_the_rate_of_f8f6f4(timed: Any, formats: str, clk: int) -> None:
    widths = {0: 8, 1: 8, 2: 6, 3: 6, 4: 4}
    a, b = ((int(formats.split(name + ":")[1][0]) if name in formats else 0) for name in ("cbsz", "blgp"))
    spans = f"v[8:{7 + widths[a]}], v[16:{15 + widths[b]}]"
    run = timed([f"v_mfma_f32_16x16x128_f8f6f4 v[32:35], {spans}, v[32:35]{formats}"] * 12)
    assert set(gaps(run.starts("v_mfma"))) == {clk}


# The law of co-issue: M instructions of 32 clk and N units of fp32 arithmetic take T* at best


def law(m: int, n: int) -> int:
    k = max(0, n - 6 * m)
    return 32 * m + (4 * k if k <= 3 else 4 * k - 4 * ((k - 3) // 2))


class Registers:
    """Registers that follow each other, so that nothing depends on anything."""

    def __init__(self) -> None:
        self.at = 0

    def unit(self) -> str:
        self.at = (self.at + 1) % 16
        return f"v_add_f32 v{16 + self.at}, v8, v9"

    def packed(self) -> str:
        self.at = (self.at + 1) % 7
        return f"v_pk_mul_f32 v[{16 + 2 * self.at}:{17 + 2 * self.at}], v[8:9], v[10:11]"


def best_schedule(m: int, n: int) -> list[str]:
    """Six units beside each MFMA, three behind the last, the rest packed."""
    make, left, lines = Registers(), n, []
    for _ in range(m):
        lines.append(MFMA32)
        hidden = min(6, left)
        lines += [make.unit() for _ in range(hidden)]
        left -= hidden
    tail = min(3, left)
    left -= tail
    return lines + [make.unit() for _ in range(tail + left % 2)] + [make.packed() for _ in range(left // 2)]


def period(timed: Any, lines: list[str], repeats: int = 12) -> float:
    run = timed(lines * repeats)
    starts = run.starts("v_mfma")
    m = sum(line.startswith("v_mfma") for line in lines)
    return (starts[-m] - starts[2 * m]) / (repeats - 3)


@pytest.mark.parametrize("m", [1, 2, 4])
def test_co_issue_law(timed: Any, m: int) -> None:
    for n in range(41):
        assert abs(period(timed, best_schedule(m, n)) - law(m, n)) <= 4, (m, n)


@settings(max_examples=25, deadline=None)
@given(m=st.integers(1, 3), n=st.integers(0, 40), packed=st.integers(0, 20), seed=st.integers(0, 1 << 30))
def test_no_schedule_beats_the_law(timed: Any, m: int, n: int, packed: int, seed: int) -> None:
    make, pairs = Registers(), min(packed, n // 2)
    lines = [make.packed() for _ in range(pairs)] + [make.unit() for _ in range(n - 2 * pairs)] + [MFMA32] * (m - 1)
    random.Random(seed).shuffle(lines)
    assert period(timed, [MFMA32, *lines]) >= law(m, n) - 4


def test_three_exponentials_fill_the_shadow(timed: Any) -> None:
    exps = [f"v_exp_f32 v{20 + at}, v8" for at in range(4)]
    assert period(timed, [MFMA32, *exps[:3]]) == 32
    assert period(timed, [MFMA32, *exps]) > 32


def test_read_phase_is_one_clk_an_operand_register(timed: Any) -> None:
    run = timed([MFMA32, "v_add_f32 v1, v8, v9"])
    assert run.starts("v_add")[0] - run.starts("v_mfma")[0] == 8
    half = timed(["v_mfma_f32_32x32x8_f16 v[64:79], v[0:1], v[4:5], v[64:79]", "v_add_f32 v1, v8, v9"])
    assert half.starts("v_add")[0] - half.starts("v_mfma")[0] == 4


def test_packed_arithmetic_gets_through_beside_the_matrix_code_of_another_wave(timed: Any) -> None:
    """Waves 0 to 3 run packed arithmetic, waves 4 to 7 an unbroken run of MFMA on the same SIMDs."""
    body = [
        "v_readfirstlane_b32 s4, v0",
        "s_cmp_lt_u32 s4, 256",
        "s_cbranch_scc0 matrix",
        *["s_add_u32 s5, s6, 1"] * 30,
        *["v_pk_mul_f32 v[16:17], v[8:9], v[10:11]"] * 20,
        "s_endpgm",
        "matrix:",
        *[MFMA32] * 60,
    ]
    run = timed(body, waves=8)
    assert run.starts("v_pk")[-1] < run.starts("v_mfma", wave=4)[-1]
    starving = timed(body, waves=8, packed_holds_matrix=0)
    assert starving.starts("v_pk")[0] > starving.starts("v_mfma", wave=4)[-1]


# Two waves on a SIMD


def ping_pong(barriers: bool, memory: list[str], priorities: tuple[int, int] = (0, 0)) -> list[str]:
    """Two groups of four waves; each alternates 16 MFMA with a memory stage, one stage apart."""
    edge = ["s_barrier"] if barriers else []
    low, high = ([f"s_setprio {value}"] if any(priorities) else [] for value in priorities)
    return [
        "v_readfirstlane_b32 s4, v0",
        "s_mov_b32 s7, 12",
        "s_cmp_lt_u32 s4, 256",
        "s_cbranch_scc1 loop",
        *(["s_barrier"] if barriers else ["s_nop 15"] * 4),
        "loop:",
        *low,
        *independent("16x16x32_f16", 4, 4, 16),
        *high,
        *edge,
        *memory,
        "s_sub_u32 s7, s7, 1",
        "s_cmp_lg_u32 s7, 0",
        *edge,
        "s_cbranch_scc1 loop",
        *(["s_cmp_lt_u32 s4, 256", "s_cbranch_scc0 last", "s_barrier", "last:"] if barriers else []),
    ]


SCALAR = ["s_add_u32 s5, s6, 1"] * 30
ADDRESSES = [f"v_add_u32 v{16 + at}, v12, v13" for at in range(12)] + ["s_add_u32 s5, s6, 1"] * 12


def busy(run: Any, wave: int) -> float:
    first, last = run.waves[wave].marks[3], run.waves[wave].marks[-2]
    return (last.mfma_clk - first.mfma_clk) / (last.t - first.t)


@pytest.mark.parametrize(("barriers", "values"), [(False, {}), (True, {"barrier_clk": 0})])
def test_perfect_ping_pong_keeps_the_matrix_unit_busy(timed: Any, barriers: bool, values: dict[str, float]) -> None:
    run = timed(ping_pong(barriers, SCALAR), waves=8, **values).run
    # without barriers the older group takes what it wants, and the younger one is left alone in the end
    waves = range(8) if barriers else range(4)
    assert [busy(run, wave) for wave in waves] == [1.0] * len(waves)


def test_barriers_of_a_ping_pong_cost_what_the_release_takes(timed: Any) -> None:
    """Both groups stay one stage apart, and a stage lasts as long as its MFMA and the release of its barrier."""
    run = timed(ping_pong(True, SCALAR), waves=8).run
    assert 256 / (256 + 36) <= busy(run, 0) <= 256 / (256 + 20)
    early, late = run.waves[0].marks, run.waves[4].marks
    stage = (early[-2].t - early[3].t) / (len(early) - 5) / 2
    assert late[5].t - early[5].t == pytest.approx(stage, rel=0.1)


def test_vector_instructions_of_higher_priority_take_slots_from_the_matrix_code(timed: Any) -> None:
    """Two fit beside a 16-clk MFMA; a third goes first if its wave has the priority, and waits if it has not."""
    behind = timed(ping_pong(True, ADDRESSES, (1, 0)), waves=8, barrier_clk=0).run
    ahead = timed(ping_pong(True, ADDRESSES, (0, 1)), waves=8, barrier_clk=0).run
    assert busy(ahead, 0) < busy(behind, 0)
