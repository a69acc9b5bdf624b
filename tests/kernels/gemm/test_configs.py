"""Schedules: the named ones are legal, and each rule refuses what breaks it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from amdwarp.kernels.gemm import SCHEDULES, Access, choose, schedule_name
from amdwarp.kernels.gemm.configs import GemmSchedule

from amdwarp.errors import UsageError

QUARTERS, WHOLE, WOVEN = (SCHEDULES[name] for name in ("inter_wave_256", "inter_wave_128", "intra_wave"))


@pytest.mark.parametrize("name", SCHEDULES)
def test_named_schedules_are_legal(name):
    assert SCHEDULES[name].constraints(SCHEDULES[name].arch) == []
    assert schedule_name(SCHEDULES[name]) == name


@pytest.mark.parametrize(
    ("schedule", "complaint"),
    [
        (replace(QUARTERS, tile_m=192), "tile_m = 192 is no power of two"),
        (replace(QUARTERS, tile_m=256.0), "tile_m = 256.0 is no int"),
        (replace(QUARTERS, tile_n="256"), "tile_n = '256' is no int"),
        (replace(QUARTERS, group_m=2.5), "group_m = 2.5 is no int"),
        (replace(QUARTERS, quarters=1), "quarters = 1 is no bool"),
        (replace(QUARTERS, mfma=(16, 16, 16)), "none of"),
        (replace(QUARTERS, group_m=0), "group_m = 0"),
        (replace(QUARTERS, waves_n=2), "woven = False has 8 waves, not 4"),
        (replace(WOVEN, waves_n=4), "woven = True has 4 waves, not 8"),
        (replace(WOVEN, quarters=True), "takes the tile whole"),
        (replace(WOVEN, ring=3), "must be one of \\(2,\\)"),
        (replace(WOVEN, woven=1), "woven = 1 is no bool"),
        (replace(QUARTERS, ring=3), "must be one of \\(2,\\)"),
        (replace(WHOLE, ring=2), "must be one of \\(3, 4\\)"),
        (replace(WHOLE, tile_k=16), "less than one MFMA"),
        (replace(WHOLE, tile_m=32, waves_m=4, waves_n=2), "tile_m = 32 leaves waves without an MFMA"),
        (replace(WHOLE, tile_m=256, tile_n=512), "accumulator registers"),
        (replace(WHOLE, tile_m=256, tile_n=256), "bytes of LDS, gfx950 has 163840"),
        (replace(WHOLE, tile_m=32, tile_n=128, tile_k=32), "each of 8 waves"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_rule_refuses_what_breaks_it(schedule, complaint):
    with pytest.raises(UsageError, match=complaint):
        schedule.check("gfx950")


def test_other_archs_are_refused():
    assert "made for gfx950, not for gfx942" in QUARTERS.constraints("gfx942")[0]
    assert "made for gfx950, not for gfx1250" in QUARTERS.constraints("gfx1250")[0]
    assert "runs on gfx942, gfx950, not on gfx1250" in replace(QUARTERS, arch="gfx1250").constraints("gfx1250")[0]
    with pytest.raises(UsageError, match="unknown arch"):
        QUARTERS.check("gfx000")


def test_quarters_need_aligned_operands():
    assert QUARTERS.constraints("gfx950", Access(True)) == []
    for access in (Access(True, a_direct=False), Access(False, b_direct=False)):
        assert "16-byte aligned" in QUARTERS.constraints("gfx950", access)[0]
        assert WHOLE.constraints("gfx950", access) == []


def test_only_what_goes_straight_to_lds_makes_a_group():
    assert [Access(True, a, b).groups for a, b in ((True, True), (True, False), (False, True), (False, False))] == [
        2,
        1,
        1,
        0,
    ]


def test_more_shapes_of_tiles_are_legal():
    assert GemmSchedule(tile_m=256, tile_n=128, quarters=False, ring=3).constraints() == []
    assert replace(WHOLE, ring=3).constraints() == []
    assert replace(QUARTERS, mfma=(32, 32, 16)).constraints() == []


def test_the_large_tile_waits_until_it_fills_the_chip():
    assert choose(4096, 4096, 4096) is QUARTERS
    assert choose(2048, 2048, 8192) is WHOLE
    assert choose(1, 1, 1) is WHOLE
    assert choose(2048, 2048, 8192, compute_units=64) is QUARTERS
    assert choose(2048, 4096, 4096) is SCHEDULES["inter_wave_256x128"]


def test_registers_and_lds_are_counted():
    assert QUARTERS.accumulator_registers == 128
    assert WHOLE.accumulator_registers == 32
    # 2 halves of A and of B, each 2 slots of 16 KiB with 31 times 16 bytes between their bursts
    assert QUARTERS.lds_bytes() == 4 * (2 * 16384 + 31 * 16)
    assert WHOLE.lds_bytes() == 2 * (4 * 16384 + 63 * 32)
