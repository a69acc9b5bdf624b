"""What any model of a compute unit must respect, on random loops: less work is not slower, more delay is not faster.

Greedy issue has anomalies: taking work away can move everything behind it into a worse order, and where the oldest wave
goes first a barrier can help by keeping the younger one alongside. 3 % are allowed for that. The loops are drawn from
fixed seeds and recorded from the emulator; ``test_monotone.py`` draws others, and looks at what lies beyond the 3 %.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from amdwarp.cycles import Trace, load, record, simulate
from amdwarp.cycles.limits import work_of
from amdwarp.cycles.trace import GroupTrace, Touched, WaveTrace

ALLOWED = 1.03
#: Without the wandering round trip, which is drawn at moments that move when the program changes.
P = load("gfx950").replace(vmem_jitter_clk=0)

SETUP = [
    "s_load_dwordx2 s[4:5], s[0:1], 0x0",
    "s_mov_b32 s6, 0x40000",
    "s_mov_b32 s7, 0x27000",
    "v_lshlrev_b32 v1, 4, v0",
    "v_and_b32 v2, 0xfff, v1",
    "s_waitcnt lgkmcnt(0)",
    "s_and_b32 s5, s5, 0xffff",
    "s_mov_b32 m0, 0",
    "s_mov_b32 s10, {times}",
    "loop:",
]
END = ["s_sub_u32 s10, s10, 1", "s_cmp_lg_u32 s10, 0", "s_cbranch_scc1 loop", "s_waitcnt vmcnt(0) lgkmcnt(0)"]
TIMES = 12


def lines_of(kind: str, count: int) -> list[str]:
    """Instructions of one kind; registers turn so that they do not depend on each other."""
    forms: dict[str, Callable[[int], str]] = {
        "mfma": lambda i: "v_mfma_f32_16x16x32_f16 v[{0}:{1}], v[8:11], v[12:15], v[{0}:{1}]".format(
            32 + 4 * (i % 8), 35 + 4 * (i % 8)
        ),
        "valu": lambda i: f"v_add_f32 v{20 + i % 8}, v8, v9",
        "exp": lambda i: f"v_exp_f32 v{20 + i % 8}, v8",
        "salu": lambda i: "s_add_u32 s11, s12, 1",
        "read": lambda i: f"ds_read_b128 v[{64 + 4 * (i % 8)}:{67 + 4 * (i % 8)}], v2",
        "write": lambda i: "ds_write_b64 v2, v[8:9] offset:16384",
        "load": lambda i: f"buffer_load_dwordx4 v[{96 + 4 * (i % 4)}:{99 + 4 * (i % 4)}], v1, s[4:7], 0 offen",
        "copy": lambda i: "buffer_load_dwordx4 v1, s[4:7], 0 offen lds",
        "vmcnt": lambda i: "s_waitcnt vmcnt(6)",
        "lgkmcnt": lambda i: "s_waitcnt lgkmcnt(2)",
        "barrier": lambda i: "s_barrier",
    }
    return [forms[kind](at) for at in range(count)]


WORK = ("mfma", "valu", "exp", "salu", "read", "write", "load", "copy")
SYNC = ("vmcnt", "lgkmcnt", "barrier")
Loop = tuple[tuple[str, int], ...]


def random_loop(seed: int) -> tuple[Loop, int]:
    """Three to ten runs of instructions, waits and barriers; and the waves of a workgroup."""
    rng = random.Random(seed)
    while True:
        parts = [
            (rng.choice(SYNC), 1) if rng.random() < 0.25 else (rng.choice(WORK), rng.randint(1, 10))
            for _ in range(rng.randint(3, 10))
        ]
        if sum(count for _, count in parts) >= 8:
            return tuple(parts), rng.choice((4, 8))


@functools.cache
def trace_of(build: Callable[..., str], seed: int) -> Trace:
    loop, waves = random_loop(seed)
    body = [line for kind, count in loop for line in lines_of(kind, count)]
    text = build([line.format(times=TIMES) for line in SETUP] + body + END, waves=waves, pointers=1)
    return record(text, [np.zeros(1 << 18, np.uint8)], (1,))


def changed(trace: Trace, keep: Callable[[str], bool], touch: Callable[[Touched], Touched] = lambda one: one) -> Trace:
    """The trace without the instructions that `keep` refuses, and with other accesses."""
    texts = [inst.base for inst in trace.program.instructions]
    groups = []
    for group in trace.groups:
        waves = []
        for wave in group.waves:
            pairs = [pair for pair in zip(wave.pcs, wave.touched, strict=True) if keep(texts[pair[0]])]
            waves.append(WaveTrace([pc for pc, _ in pairs], [None if t is None else touch(t) for _, t in pairs]))
        groups.append(GroupTrace(group.index, waves))
    return replace(trace, groups=groups)


def total(trace: Trace, **values: float) -> int:
    return simulate(trace, P.replace(**values) if values else P).total_clk


@pytest.mark.parametrize("seed", range(60))
def test_taking_waits_or_barriers_away_does_not_slow_down(text_of: Any, seed: int) -> None:
    trace = trace_of(text_of, seed)
    whole = total(trace)
    assert total(changed(trace, lambda base: base != "s_barrier")) <= whole * ALLOWED
    assert total(changed(trace, lambda base: base != "s_waitcnt")) <= whole * ALLOWED


@pytest.mark.parametrize("factor", [2, 5, 16])
@pytest.mark.parametrize("seed", range(40))
def test_more_conflicts_do_not_speed_up(text_of: Any, seed: int, factor: int) -> None:
    trace = trace_of(text_of, seed)
    worse = changed(trace, lambda base: True, lambda one: replace(one, passes=one.passes * factor))
    assert total(worse) >= total(trace) / ALLOWED


@pytest.mark.parametrize("longer", [1.2, 2.0, 4.0])
@pytest.mark.parametrize("seed", range(40))
def test_a_longer_round_trip_does_not_speed_up(text_of: Any, seed: int, longer: float) -> None:
    trace = trace_of(text_of, seed)
    assert total(trace, vmem_round_trip_clk=1000 * longer) >= total(trace) / ALLOWED


@pytest.mark.parametrize("seed", range(40))
def test_no_loop_is_faster_than_its_limits(text_of: Any, seed: int) -> None:
    """Over a whole run the unit cannot do more than its resources allow."""
    trace = trace_of(text_of, seed)
    run = simulate(trace, P)
    limits = work_of(run, run.loops[0], P).limits()
    inside = max(wave.ended for wave in run.waves) - min(wave.marks[0].t for wave in run.waves)
    for name in ("MFMA", "LDS", "issue"):
        assert inside >= limits[name] * TIMES * 0.999, name


@pytest.mark.parametrize("seed", range(40))
def test_a_run_is_the_same_every_time_and_counts_all_its_clk(text_of: Any, seed: int) -> None:
    trace = trace_of(text_of, seed)
    first, second = simulate(trace, P), simulate(trace, P)
    assert first.total_clk == second.total_clk
    for wave in first.waves:
        # a wave either issues, a slot each, or is stalled for a cause
        slots = len(wave.stream) * P.issue_period_clk
        assert wave.base - wave.started == slots + sum(wave.stalls)
