"""The parameter file: complete, sourced, and identified by its digest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from amdwarp.cycles import load
from amdwarp.cycles.parameters import FILE, describe, varied
from amdwarp.errors import UsageError
from amdwarp.target import TARGETS

CONTENT: dict[str, Any] = json.loads(FILE.read_text())


@pytest.mark.parametrize("target", TARGETS)
def test_every_value_says_where_it_comes_from(target: str) -> None:
    for name, value, unit, evidence, source, text in describe(target):
        assert evidence in CONTENT["evidence"], name
        assert unit and text, name
        assert isinstance(value, (int, float)), name
        cited = [key.strip() for key in source.split(",") if key.strip()]
        assert all(key in CONTENT["sources"] for key in cited), name
        if evidence != "unknown":
            assert cited, name


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_unknown_is_varied_or_off(target: str) -> None:
    """A default that nobody has measured is moved by a sensitivity run, unless the whole target is uncalibrated."""
    unknown = {row[0] for row in describe(target) if row[3] == "unknown"}
    left = unknown - set(varied(target))
    if load(target).calibrated:
        assert all(name.startswith(("packed_", "extra_")) for name in left), left
    assert {"vmem_round_trip_clk", "barrier_clk"} <= set(varied(target))


def test_all_values_have_the_type_the_model_expects() -> None:
    for target in TARGETS:
        p = load(target)
        assert p.issue_period_clk in (1, 4)
        assert p.target.arch == target
        assert len(p.digest) == 12


def test_calibrated_targets() -> None:
    assert [load(target).calibrated for target in ("gfx942", "gfx950", "gfx1250")] == [True, True, False]


def test_digest_follows_the_values() -> None:
    base = load("gfx950")
    moved = base.replace(barrier_clk=31)
    assert moved.barrier_clk == 31 and moved.digest != base.digest
    assert moved.replace(barrier_clk=base.barrier_clk).digest == base.digest
    assert base.replace(barrier_clk=30.0).digest == base.digest
    assert len({load(target).digest for target in TARGETS}) == 3


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown parameter 'nonsense'"):
        load("gfx950").replace(nonsense=1)
    with pytest.raises(UsageError, match="unknown arch"):
        load("gfx90a")


@pytest.mark.parametrize("target", TARGETS)
def test_values_that_no_model_can_run_with_are_refused(target: str) -> None:
    base = load(target)
    for name, _, unit, *_ in describe(target):
        for value in (-1, float("nan"), float("inf"), 1e13):
            with pytest.raises(UsageError, match=f"parameter {name} = "):
                base.replace(**{name: value})
        if unit == "flag":
            with pytest.raises(UsageError, match="is neither 0 nor 1"):
                base.replace(**{name: 0.5})


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_every_matrix_instruction_of_the_reader_has_a_time(target: str) -> None:
    from amdwarp.asm.table import TABLE, Format

    shapes = [name for name, info in TABLE.items() if info.format is Format.MFMA and name.startswith("v_mfma")]
    missing = [name for name in shapes if load(target).matrix_row(name) is None]
    # the shapes that came with gfx950
    new = ("f8f6f4", "32x32x16_f16", "16x16x32_f16", "32x32x16_bf16", "16x16x32_bf16", "16x16x64_i8", "32x32x32_i8")
    if target == "gfx942":
        assert all(name.endswith(new) for name in missing)
    else:
        assert all(name.endswith("xf32") for name in missing)


@pytest.mark.parametrize("target", TARGETS)
def test_phases_cover_each_lane_once(target: str) -> None:
    p = load(target)
    for (access, width), one in p.lds.items():
        lanes = sorted(lane for phase in one.phases for lane in phase)
        assert lanes == list(range(p.target.wave_size)), (access, width)
        assert max(map(len, one.phases)) * max(width, 4) <= one.banks * 4, (access, width)


@pytest.mark.parametrize(
    ("target", "mnemonic", "clk"),
    [
        ("gfx942", "v_mfma_f32_16x16x16_f16", 16),
        ("gfx942", "v_mfma_f32_32x32x16_fp8_bf8", 32),
        ("gfx942", "v_mfma_f64_16x16x4_f64", 32),
        ("gfx942", "v_mfma_f32_32x32x4_2b_bf16", 64),
        ("gfx950", "v_mfma_f64_16x16x4_f64", 64),
        ("gfx950", "v_mfma_f32_32x32x2_f32", 64),
        ("gfx950", "v_mfma_i32_32x32x32_i8", 32),
        ("gfx950", "v_mfma_scale_f32_32x32x64_f8f6f4", 32),
        ("gfx1250", "v_wmma_f32_16x16x32_bf16", 8),
        ("gfx1250", "v_wmma_i32_16x16x64_iu8", 16),
    ],
)
def test_clk_of_matrix_instructions(target: str, mnemonic: str, clk: int) -> None:
    row = load(target).matrix_row(mnemonic)
    assert row is not None and row.clk == clk


def test_peak_rates_follow() -> None:
    """Flop a clk and CU: 2048 of gfx942 and 4096 of gfx950 in fp16."""
    for target, mnemonic, flop, peak in (
        ("gfx942", "v_mfma_f32_16x16x16_f16", 2 * 16**3, 2048),
        ("gfx950", "v_mfma_f32_16x16x32_f16", 2 * 16 * 16 * 32, 4096),
        ("gfx950", "v_mfma_f32_16x16x32_fp8_fp8", 2 * 16 * 16 * 32, 4096),
    ):
        row = load(target).matrix_row(mnemonic)
        assert row is not None
        assert 4 * flop / row.clk == peak
