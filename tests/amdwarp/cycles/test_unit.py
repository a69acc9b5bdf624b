"""Ports, priorities, barriers, several workgroups, instruction cache."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from amdwarp.cycles import issue
from amdwarp.cycles.encoding import encoded_bytes
from amdwarp.errors import EmulatorError, UsageError

#: The second half of a workgroup goes to `other`.
SPLIT = ["v_readfirstlane_b32 s4, v0", "s_cmp_lt_u32 s4, 256", "s_cbranch_scc0 other"]


def split(first: list[str], second: list[str]) -> list[str]:
    return [*SPLIT, *first, "s_endpgm", "other:", *second]


def gaps(starts: list[int]) -> list[int]:
    return [b - a for a, b in pairwise(starts)]


def test_two_waves_share_the_vector_port(timed: Any) -> None:
    one = timed(["v_add_f32 v1, v2, v3"] * 40, waves=4)
    two = timed(["v_add_f32 v1, v2, v3"] * 40, waves=8)
    assert one.run.total_clk == pytest.approx(160, abs=12)
    assert two.run.total_clk == pytest.approx(320, abs=12)


def test_ports_of_different_kinds_work_at_the_same_time(timed: Any) -> None:
    body = split(["v_add_f32 v1, v2, v3"] * 40, ["s_add_u32 s5, s6, 1"] * 40)
    assert timed(body, waves=8).run.total_clk == pytest.approx(160 + 20, abs=12)


def test_the_oldest_goes_first(timed: Any) -> None:
    body = split(["v_add_f32 v1, v2, v3"] * 40, ["v_mul_f32 v1, v2, v3"] * 40)
    run = timed(body, waves=8)
    assert run.starts("v_add")[-1] < run.starts("v_mul", wave=4)[4]
    fair = timed(body, waves=8, oldest_first=0)
    assert abs(fair.starts("v_add")[-1] - fair.starts("v_mul", wave=4)[-1]) < 24


def test_priority_goes_before_age(timed: Any) -> None:
    raised = ["s_setprio 2", *["v_mul_f32 v1, v2, v3"] * 40]
    run = timed(split(["v_add_f32 v1, v2, v3"] * 60, raised), waves=8)
    assert gaps(run.starts("v_mul", wave=4)) == [4] * 39
    assert run.starts("v_add")[-1] > run.starts("v_mul", wave=4)[-1]
    lost = issue.CAUSES.index("priority")
    assert run.run.waves[0].stalls[lost :: len(issue.CAUSES)] != [0]


def test_lds_and_vector_memory_share_a_port(timed: Any) -> None:
    reads = [f"ds_read_b32 v{8 + at % 20}, v1" for at in range(20)]
    body = ["v_lshlrev_b32 v1, 2, v0", *split(reads, ["buffer_inv sc1"] * 20)]
    shared = timed(body, waves=8)
    slots = sorted(shared.starts("ds_read") + shared.starts("buffer_inv", wave=4))
    assert min(gaps(slots)) == 4


def test_nop_and_sleep_take_time(timed: Any) -> None:
    run = timed(["v_add_f32 v1, v2, v3", "s_nop 7", "v_mul_f32 v1, v2, v3", "s_sleep 2", "v_sub_f32 v1, v2, v3"])
    assert run.starts("v_mul")[0] - run.starts("v_add")[0] == 4 * (1 + 8)
    assert run.starts("v_sub")[0] - run.starts("v_mul")[0] == 4 + 4 + 128


def test_transcendental_and_quarter_rate(timed: Any) -> None:
    for target, exp in (("gfx950", 8), ("gfx942", 16)):
        exps = timed([f"v_exp_f32 v{at}, v40" for at in range(8)], target=target)
        assert set(gaps(exps.starts("v_exp"))) == {exp}
        products = timed([f"v_mul_lo_u32 v{at}, v40, v41" for at in range(8)], target=target)
        assert set(gaps(products.starts("v_mul"))) == {16}


# Barriers


def test_barrier_waits_for_the_last_wave(timed: Any) -> None:
    body = split(["s_barrier", "v_add_f32 v1, v2, v3"], ["s_nop 15"] * 5 + ["s_barrier", "v_add_f32 v1, v2, v3"])
    run = timed(body, waves=8)
    arrived = run.starts("s_barrier", wave=4)[0]
    for wave in range(8):
        assert arrived + 30 <= run.starts("v_add", wave)[0] <= arrived + 40


def test_barrier_of_waves_in_step_costs_the_release(timed: Any) -> None:
    run = timed(["v_add_f32 v1, v2, v3", "s_barrier"] * 20, waves=4)
    cost = [b - a - 4 for a, b in zip(run.starts("v_add")[1:], run.starts("v_add")[2:], strict=False)]
    # measured on gfx942 with the waves a little apart: 37 to 65 clk
    assert all(20 <= clk <= 65 for clk in cost)


def test_waves_that_have_ended_are_not_waited_for(timed: Any) -> None:
    run = timed(split(["s_nop 0"], ["s_nop 3", "s_barrier", "v_add_f32 v1, v2, v3"]), waves=8)
    assert run.starts("v_add", wave=4)


def test_workgroups_do_not_wait_for_each_other(timed: Any) -> None:
    body = ["s_barrier", *["v_add_f32 v1, v2, v3"] * 10]
    both = timed(body, waves=4, resident=2, workgroup_gap_clk=2000)
    assert both.ends("s_barrier")[0] < 100
    assert both.run.waves[4].started == 2000


# Several workgroups


def test_waves_go_to_simds_in_turn(timed: Any) -> None:
    run = timed(["v_add_f32 v1, v2, v3"], waves=8, resident=2).run
    assert [wave.simd.number for wave in run.waves] == [0, 1, 2, 3] * 4
    assert [wave.simd.pair for wave in run.waves[:4]] == [0, 0, 1, 1]
    single = timed(["v_add_f32 v1, v2, v3"], waves=1, resident=4).run
    assert [wave.simd.number for wave in single.waves] == [0, 1, 2, 3]


def test_a_second_workgroup_fills_gaps(timed: Any) -> None:
    body = ["v_lshlrev_b32 v1, 4, v0"]
    body += ["ds_read_b128 v[8:11], v1", "s_waitcnt lgkmcnt(0)", *["v_mul_f32 v5, v2, v3"] * 8] * 20
    one, two = (timed(body, waves=4, resident=n).run.total_clk for n in (1, 2))
    assert one < two < 1.5 * one


def test_occupancy(text_of: Any) -> None:
    from amdwarp.asm import parse
    from amdwarp.cycles import load
    from amdwarp.cycles.occupancy import occupancy

    p = load("gfx950")
    program = parse(text_of("s_nop 0", waves=4, vgprs=128))
    assert occupancy(program, 16384, 100000, p).fitting == 4
    assert occupancy(program, 80 << 10, 100000, p).fitting == 2
    assert occupancy(parse(text_of("s_nop 0", waves=4, vgprs=129)), 0, 100000, p).fitting == 3
    assert occupancy(parse(text_of("s_nop 0", waves=4, vgprs=32)), 0, 100000, p).fitting == 8
    few = occupancy(program, 16384, 300, p)
    assert (few.resident, few.rounds) == (2, 1)
    many = occupancy(program, 16384, 256 * 9, p)
    assert (many.resident, many.rounds) == (4, 3)
    with pytest.raises(UsageError, match="does not fit"):
        occupancy(program, 200 << 10, 1, p)


# Instruction cache


def test_a_loop_beyond_the_cache_misses(timed: Any) -> None:
    body = ["s_mov_b32 s7, 6", "loop:", *["v_fma_f32 v1, v2, v3, v4"] * 600]
    body += ["s_sub_u32 s7, s7, 1", "s_cmp_lg_u32 s7, 0", "s_cbranch_scc1 loop"]
    fits = timed(body, icache_bytes=8192)
    beyond = timed(body, icache_bytes=4096)
    assert fits.run.total_clk < beyond.run.total_clk
    missed = issue.CAUSES.index("icache")
    assert sum(beyond.run.waves[0].stalls[missed :: len(issue.CAUSES)]) >= 4 * 64
    assert timed(body).run.total_clk == fits.run.total_clk


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("s_add_u32 s1, s2, 64", 4),
        ("s_add_u32 s1, s2, 65", 8),
        ("s_movk_i32 s1, 0x1234", 4),
        ("s_waitcnt vmcnt(0)", 4),
        ("v_add_f32_e32 v1, v2, v3", 4),
        ("v_add_f32_e32 v1, 0x40490fdb, v3", 8),
        ("v_add_f32_e32 v1, 1.0, v3", 4),
        ("v_add_f32_e64 v1, v2, v3", 8),
        ("v_fma_f32 v1, v2, v3, v4", 8),
        ("v_mfma_f32_16x16x32_f16 v[0:3], v[4:7], v[8:11], v[0:3]", 8),
        ("ds_read_b32 v1, v2", 8),
        ("s_load_dword s1, s[2:3], 0x0", 8),
    ],
)
def test_sizes_of_instructions(text: str, size: int) -> None:
    from amdwarp.asm import parse_instruction

    assert encoded_bytes(parse_instruction(text)) == size


def test_size_of_a_compiled_kernel() -> None:
    """LLVM states it in a comment; the first block is filled up to 256 bytes."""
    pytest.importorskip("triton")
    import re

    from amdwarp.asm import parse
    from amdwarp.cycles.zoo import gemm

    text = gemm((256, 256, 256), schedule="inter_wave_128").compiled.asm["amdgcn"]
    stated = re.search(r"codeLenInByte = (\d+)", text)
    assert stated is not None
    sizes = [encoded_bytes(inst) for inst in parse(text)]
    first = next(at for at, inst in enumerate(parse(text)) if inst.base == "s_branch")
    assert sum(sizes) + -sum(sizes[: first + 1]) % 256 == int(stated[1])


def test_a_stream_that_does_not_end_is_an_error(timed: Any) -> None:
    from amdwarp.cycles import load, simulate

    run = timed(["v_add_f32 v1, v2, v3"] * 3)
    trace = run.trace
    trace.groups[0].waves[0].pcs.pop()
    trace.groups[0].waves[0].touched.pop()
    with pytest.raises(EmulatorError, match="not at s_endpgm"):
        simulate(trace, load("gfx950"))
