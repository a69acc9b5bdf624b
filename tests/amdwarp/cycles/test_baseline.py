"""The model against the sum of issue slots, on all points that are measured or proved."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdwarp.cycles import load
from amdwarp.cycles.limits import issue_slot_sum
from amdwarp.cycles.report import steady_state

P = load("gfx950")
#: Bytes of padding behind each row of 1024: clk between two 128-bit operand reads of a wave, for one wave and for four.
LDS_POINTS = {16: (8, 32), 32: (8, 32), 64: (8, 32), 128: (16, 64), 256: (32, 128), 4: (64, 256)}
COUNT = ["s_sub_u32 s7, s7, 1", "s_cmp_lg_u32 s7, 0", "s_cbranch_scc1 loop"]


def both(timed: Any, setup: list[str], body: list[str], waves: int) -> tuple[float, float]:
    """Clk of an iteration, by the model and by the sum of issue slots."""
    run = timed(["s_mov_b32 s7, 12", *setup, "loop:", *body, *COUNT], waves=waves).run
    (loop,) = run.loops
    states = [steady_state(wave, loop) for wave in run.waves]
    return float(np.mean([state.period for state in states if state is not None])), issue_slot_sum(run, loop, P)


def co_issue(m: int, n: int) -> tuple[list[str], int]:
    """The best order of M MFMA and N units, and the clk it takes."""
    k = max(0, n - 6 * m)
    clk = 32 * m + (4 * k if k <= 3 else 4 * k - 4 * ((k - 3) // 2))
    units = [f"v_add_f32 v{16 + at % 16}, v8, v9" for at in range(n)]
    lines, left = [], n
    for _ in range(m):
        hidden = min(6, left)
        lines.append("v_mfma_f32_32x32x16_f16 v[64:79], v[0:3], v[4:7], v[64:79]")
        lines += units[left - hidden : left]
        left -= hidden
    tail = min(3, left)
    left -= tail
    lines += units[: tail + left % 2]
    return lines + ["v_pk_mul_f32 v[40:41], v[8:9], v[10:11]"] * (left // 2), clk


def errors(timed: Any) -> list[tuple[str, float, float]]:
    """(point, relative error of the model, relative error of the sum of issue slots)."""
    points: list[tuple[str, float, float, float]] = []
    for padding, wanted in LDS_POINTS.items():
        address = ["v_and_b32 v2, 15, v0", "v_and_b32 v3, 48, v0", "v_lshlrev_b32 v3, 1, v3"]
        address += [f"s_movk_i32 s4, {1024 + padding}", "v_mul_lo_u32 v2, v2, s4", "v_add_u32 v1, v2, v3"]
        reads = [f"ds_read_b128 v[{16 + 4 * (at % 16)}:{19 + 4 * (at % 16)}], v1" for at in range(64)]
        for waves, clk in zip((1, 4), wanted, strict=True):
            model, plain = both(timed, address, reads, waves)
            points.append((f"LDS 1024+{padding}, {waves} waves", 64 * clk, model, plain))
    for m in (1, 2, 4):
        for n in range(0, 41, 5):
            lines, clk = co_issue(m, n)
            model, plain = both(timed, [], lines * 6, 1)
            points.append((f"{m} MFMA, {n} units", 6 * clk, model, plain))
    return [(name, abs(model / clk - 1), abs(plain / clk - 1)) for name, clk, model, plain in points]


def test_beats_the_sum_of_issue_slots(timed: Any) -> None:
    found = errors(timed)
    model, plain = (np.mean([one[at] for one in found]) for at in (1, 2))
    assert model < 0.05
    assert model < plain / 5
    for kind in ("LDS", "MFMA"):
        mine, theirs = (np.mean([one[at] for one in found if kind in one[0]]) for at in (1, 2))
        assert mine < theirs, kind
