"""gfx1250: its instructions are timed by the figures that are public, and every result says it is uncalibrated."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from amdwarp import cli, cycles
from amdwarp.emulator.launch import TARGETS

if "gfx1250" not in TARGETS:
    pytest.skip("the emulator has no gfx1250", allow_module_level=True)

WMMA = "v_wmma_f32_16x16x32_f16 v[{0}:{1}], v[0:7], v[8:15], v[{0}:{1}]"


def wmma(count: int) -> list[str]:
    return [WMMA.format(32 + 8 * (at % 4), 39 + 8 * (at % 4)) for at in range(count)]


def gaps(starts: list[int]) -> list[int]:
    return [b - a for a, b in pairwise(starts)]


def test_wmma_back_to_back(timed: Any) -> None:
    run = timed(wmma(20), target="gfx1250")
    assert set(gaps(run.starts("v_wmma"))) == {8}


def test_a_wmma_hides_two_vector_instructions(timed: Any) -> None:
    beside = [f"v_add_f32 v{64 + at}, v80, v81" for at in range(3)]
    for count, clk in ((2, 8), (3, 9)):
        run = timed([*wmma(1), *beside[:count]] * 10, target="gfx1250")
        assert set(gaps(run.starts("v_wmma"))) == {clk}


def test_vector_instruction_a_clk_and_five_to_the_next_that_needs_it(timed: Any) -> None:
    free = timed([f"v_add_f32 v{at}, v80, v81" for at in range(10)], target="gfx1250")
    assert set(gaps(free.starts("v_add"))) == {1}
    chain = timed(["v_add_f32 v1, v1, v2"] * 10, target="gfx1250")
    assert set(gaps(chain.starts("v_add"))) == {5}


def test_split_counters(timed: Any) -> None:
    """A wait for LDS does not wait for global memory."""
    import numpy as np

    body = [
        "s_load_b64 s[4:5], s[0:1], 0x0",
        "v_lshlrev_b32 v1, 2, v0",
        "s_wait_kmcnt 0x0",
        "global_load_b32 v2, v1, s[4:5]",
        "ds_load_b32 v3, v1",
        "s_wait_dscnt 0x0",
        "v_add_f32 v4, v3, v3",
        "s_wait_loadcnt 0x0",
        "v_mul_f32 v5, v2, v2",
    ]
    run = timed(body, target="gfx1250", args=[np.zeros(64, np.float32)])
    issued = run.starts("global_load")[0]
    assert run.starts("v_add")[0] - issued < 60
    assert run.starts("v_mul")[0] - issued > 900


def test_split_barrier_hides_what_lies_between(timed: Any) -> None:
    between = ["v_add_f32 v1, v1, v2"] * 30
    apart = timed(["s_barrier_signal -1", *between, "s_barrier_wait -1", "s_nop 0"], waves=4, target="gfx1250")
    together = timed(["s_barrier_signal -1", "s_barrier_wait -1", *between, "s_nop 0"], waves=4, target="gfx1250")
    assert apart.run.total_clk + 20 < together.run.total_clk


def test_results_say_that_they_are_uncalibrated(
    text_of: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = [
        "s_mov_b32 s7, 20",
        "loop:",
        *wmma(8),
        "s_sub_co_u32 s7, s7, 1",
        "s_cmp_lg_u32 s7, 0",
        "s_cbranch_scc1 loop",
    ]
    text = text_of(loop, waves=4, target="gfx1250")
    one = cycles.estimate(text, [], (1,))
    assert not one.calibrated and one.to_json()["calibrated"] is False
    assert one.loops[0].limits["MFMA"] == 64
    path = tmp_path / "kernel.amdgcn"
    path.write_text(text)
    with pytest.raises(SystemExit):
        cli.main(["cycles", str(path), "--grid", "1"])
    assert "uncalibrated" in capsys.readouterr().out


def test_waves_of_a_simd(text_of: Any) -> None:
    """LLVM assumes 16; what registers allow is more here."""
    from amdwarp.asm import parse
    from amdwarp.cycles import load
    from amdwarp.cycles.occupancy import occupancy

    base = load("gfx1250")
    program = parse(text_of(["s_nop 0"], waves=4, target="gfx1250", vgprs=16))
    assert occupancy(program, 0, 1 << 20, base).fitting == base.waves_a_simd == 16
    assert occupancy(program, 0, 1 << 20, base.replace(waves_a_simd=10)).fitting == 10
    assert occupancy(parse(text_of(["s_nop 0"], waves=4, target="gfx1250", vgprs=128)), 0, 1 << 20, base).fitting == 8
