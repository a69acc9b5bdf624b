"""Drawn loops: what takes work or delay away from a loop does not slow it down, but for the order of greedy issue.

Loops of kernels and of no kernel, 4 to 16 waves, one to eight of them on a SIMD, one to four workgroups. Where the one
with less to do is slower by more than 3 %, it must not be in the other one's order. ``monotone.py`` searches as many
loops as wanted; docs/cycle-model.md says what it found.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from monotone import ALLOWED, TIMES, Change, P, Version, changes, draw, one_of_each

from amdwarp.cycles import simulate
from amdwarp.cycles.report import report_loop


def check(seed: int) -> None:
    for change in one_of_each(seed):
        assert change.ratio <= ALLOWED or change.replayed() <= 1, change.name


@pytest.mark.parametrize("seed", range(40))
def test_less_to_do_is_not_slower(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40, 600))
def test_less_to_do_is_not_slower_in_many_loops(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", [2, 12, 16, 19, 50, 78, 280])
def test_anomalies_come_from_the_order_alone(seed: int) -> None:
    """Loops that a search found: in the order of the slower version none of them takes a clk more."""
    found = [change for change in changes(draw(seed)) if change.ratio > ALLOWED]
    assert found
    assert all(change.replayed() <= 1 for change in found)


def test_a_replay_sees_a_rule_that_makes_less_work_slower() -> None:
    """A unit whose barriers release later where there are fewer of them is at fault in every order."""
    change = next(c for seed in range(0, 40, 2) for c in changes(draw(seed)) if c.name.startswith("without barrier "))
    less = Version(change.less.loop, change.less.trace, P.replace(barrier_clk=400))
    worse = Change(change.kind, change.name, less, change.more)
    assert worse.replayed() > ALLOWED


@pytest.mark.parametrize("seed", [0, 2, 47, 58, 64, 90, 94, 95])
def test_no_loop_is_reported_faster_than_its_limits(seed: int) -> None:
    """Also where the oldest waves run ahead and the youngest make their iterations alone."""
    loop = draw(seed)
    loop.times = 4 * TIMES
    trace = loop.trace()
    run = simulate(trace, P, resident=loop.resident)
    report = report_loop(run, run.loops[0], trace.program, P, lambda: "")
    assert report is not None
    assert report.distance >= -0.04
