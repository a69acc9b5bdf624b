"""The deadlock check against a simulation of its own: any order of roles, versions watched."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_samples import ROOT, gemm, roles

from amdwarp import UsageError, WSPipeline, WSSchedule, WSScope, WSSync, WSSyncKind
from amdwarp.schedule.checks.deadlock import MOST_STEPS, decisive, trip_counts
from amdwarp.schedule.execution import Execution, execute
from amdwarp.schedule.programs import Event

SEEDS = 8


@dataclass
class Version:
    """One version of a pipeline's buffers, with barriers that count arrivals as an mbarrier does."""

    full_phase: int = 0
    empty_phase: int = 0
    full_arrivals: int = 0
    empty_arrivals: int = 0
    writers: set[str] = field(default_factory=set)
    readers: set[str] = field(default_factory=set)


class Machine:
    """Roles that execute their instruction lists one at a time in a random order, with phases and arrival counts.

    It knows nothing of the check: stages are unrolled here from the definition, and a version is a slot that may be
    written only when no role reads it, and read only when no role writes it.
    """

    def __init__(self, schedule: WSSchedule, trips: Mapping[str, int], seed: int) -> None:
        self.schedule, self.trips, self.random = schedule, trips, random.Random(seed)
        self.depth = {p.name: p.depth for p in schedule.pipelines}
        self.slots = {p.name: [Version() for _ in range(p.depth)] for p in schedule.pipelines}
        self.sides = {p.name: schedule.sides(p.name) for p in schedule.pipelines}
        self.count: dict[tuple[str, str, str], int] = {}

    def program(self, role: str) -> list[WSSync]:
        root = next(scope for scope in self.schedule.scopes if scope.id == ROOT)
        return self._unrolled(root, role)

    def _unrolled(self, scope: WSScope, role: str) -> list[WSSync]:
        trips = 1 if scope.id == ROOT else self.trips[scope.id]
        body = dict(scope.bodies).get(role, ())
        late = {p.name: p.in_flight - 1 for p in self.schedule.pipelines}
        stages = [one.stage for one in body if isinstance(one, WSSync)]
        todo: list[tuple[int, int, list[WSSync]]] = []
        stage = min(stages, default=0)
        opened: list[int] = []
        for place, one in enumerate(body):
            if isinstance(one, WSSync):
                after = one.stage + (late[one.pipeline] if one.kind is WSSyncKind.PRODUCER_COMMIT else 0)
                todo += [(i + after, place, [one]) for i in range(trips)]
                opened = [*opened, one.stage] if one.kind.opens else opened[:-1]
            else:
                child = next((s for s in self.schedule.scopes if s.id == getattr(one, "id", None)), None)
                inside = self._unrolled(child, role) if child is not None else []
                todo += [(i + (opened[-1] if opened else stage), place, inside) for i in range(trips)]
        return [sync for _, _, syncs in sorted(todo, key=lambda item: item[:2]) for sync in syncs]

    def run(self) -> bool:
        """Whether every role gets to its end; an AssertionError where a version is misused."""
        left: dict[str, Sequence[WSSync]] = {role.name: self.program(role.name) for role in self.schedule.roles}
        while any(left.values()):
            ready = [role for role, program in left.items() if program and self.may(role, program[0])]
            if not ready:
                return False
            role = self.random.choice(ready)
            self.step(role, left[role][0])
            left[role] = left[role][1:]
        return True

    def slot(self, role: str, sync: WSSync) -> tuple[Version, int]:
        turn = self.count.get((role, sync.pipeline, sync.kind.name), 0)
        return self.slots[sync.pipeline][turn % self.depth[sync.pipeline]], turn // self.depth[sync.pipeline]

    def may(self, role: str, sync: WSSync) -> bool:
        version, phase = self.slot(role, sync)
        if sync.kind is WSSyncKind.PRODUCER_ACQUIRE:
            return version.empty_phase >= phase
        return sync.kind is not WSSyncKind.CONSUMER_WAIT or version.full_phase > phase

    def step(self, role: str, sync: WSSync) -> None:
        version, _ = self.slot(role, sync)
        producers, consumers = self.sides[sync.pipeline]
        match sync.kind:
            case WSSyncKind.PRODUCER_ACQUIRE:
                assert not version.readers, f"{role} overwrites {sync.pipeline} under {version.readers}"
                version.writers.add(role)
            case WSSyncKind.PRODUCER_COMMIT:
                version.writers.remove(role)
                version.full_arrivals += 1
                if version.full_arrivals == len(producers):
                    version.full_phase, version.full_arrivals = version.full_phase + 1, 0
            case WSSyncKind.CONSUMER_WAIT:
                assert not version.writers, f"{role} reads {sync.pipeline} before {version.writers} committed"
                assert version.full_phase == version.empty_phase + 1, "read of a version that is not there"
                version.readers.add(role)
            case WSSyncKind.CONSUMER_RELEASE:
                version.readers.remove(role)
                version.empty_arrivals += 1
                if version.empty_arrivals == len(consumers):
                    version.empty_phase, version.empty_arrivals = version.empty_phase + 1, 0
        key = (role, sync.pipeline, sync.kind.name)
        self.count[key] = self.count.get(key, 0) + 1


@st.composite
def schedules(draw: Any) -> WSSchedule:
    """Schedules whose spans pair up and turn equally often; whether they get stuck is open."""
    names = [f"r{i}" for i in range(draw(st.integers(2, 4)))]
    bodies: dict[str, list[Any]] = {name: [] for name in names}
    outer: dict[str, list[Any]] = {name: [] for name in names}
    pipelines = []
    for number in range(draw(st.integers(1, 4))):
        depth = draw(st.integers(1, 4))
        pipeline = WSPipeline(f"p{number}", [f"b{number}"], depth, draw(st.integers(1, depth)))
        pipelines.append(pipeline)
        mixed = draw(st.permutations(names))
        cut = draw(st.integers(1, len(names) - 1))
        last = draw(st.integers(cut + 1, len(names)))
        turns, where = draw(st.integers(1, 2)), draw(st.sampled_from(["inner", "inner", "outer"]))
        for side, members in ((True, mixed[:cut]), (False, mixed[cut:last])):
            for role in members:
                stage = draw(st.integers(0, 3)) if where == "inner" else 0
                _insert(draw, (bodies if where == "inner" else outer)[role], pipeline.name, side, stage, turns)
    for name in names:
        outer[name].insert(draw(st.integers(0, len(outer[name]))), "inner")
    return WSSchedule(
        4 * len(names),
        roles(*names),
        pipelines,
        [WSScope("inner", bodies), WSScope("outer", outer), WSScope(ROOT, {name: ["outer"] for name in names})],
    )


def _insert(draw: Any, body: list[Any], pipeline: str, produces: bool, stage: int, turns: int) -> None:
    """Put spans of a pipeline into a body: one after the other, nested around what is there or between it."""
    first, second = (
        (WSSync.producer_acquire, WSSync.producer_commit)
        if produces
        else (WSSync.consumer_wait, WSSync.consumer_release)
    )
    at = draw(st.integers(0, len(body)))
    for _ in range(turns):
        body.insert(at, first(pipeline, stage))
        end = draw(st.integers(at + 1, len(body)))
        body.insert(end, second(pipeline, stage))
        at = draw(st.integers(end + 1, len(body)))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(schedules(), st.integers(0, 9), st.integers(0, 3))
def test_what_is_accepted_runs_to_its_end_and_keeps_versions_apart(
    schedule: WSSchedule, inner: int, outer: int
) -> None:
    try:
        schedule.check()
    except UsageError as error:
        assert "deadlock" in str(error)
        return
    for seed in range(SEEDS):
        assert Machine(schedule, {"inner": inner, "outer": outer}, seed).run()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(schedules())
def test_what_is_refused_gets_stuck_in_every_order(schedule: WSSchedule) -> None:
    for trips in trip_counts(schedule):
        if stuck := execute(schedule, trips):
            for seed in range(SEEDS):
                assert not Machine(schedule, trips, seed).run()
            links = [role for role, *_ in stuck.cycle]
            assert [other for *_, other in stuck.cycle[:-1]] == links[1:]
            return
    for seed in range(SEEDS):
        assert Machine(schedule, {"inner": 5, "outer": 2}, seed).run()


def test_the_property_test_sees_both_kinds() -> None:
    seen = {True: 0, False: 0}

    @settings(max_examples=100, deadline=None, database=None, derandomize=True)
    @given(schedules())
    def count(schedule: WSSchedule) -> None:
        seen[any(execute(schedule, trips) for trips in trip_counts(schedule))] += 1

    count()
    assert min(seen.values()) >= 10


def chain(depth: int) -> WSSchedule:
    """Roles that pass data on by three pipelines; the last one starts when the first one has left its loop."""
    spans = [
        ([WSSync.producer_acquire(name), f"make {name}", WSSync.producer_commit(name)],
         [WSSync.consumer_wait(name), f"use {name}", WSSync.consumer_release(name)])
        for name in ("p", "q", "r", "end")
    ]  # fmt: skip
    (first, p), (q_in, q), (r_in, r), (ends, ended) = spans
    loop = {"a": first, "b": [*p, *q_in], "c": [*q, *r_in], "d": r}
    root = {"a": ["loop", *ends], "b": ["loop"], "c": ["loop"], "d": [*ended, "loop"]}
    pipelines = [WSPipeline(name, [f"{name}_tile"], depth) for name in "pqr"]
    return WSSchedule(
        16,
        roles("a", "b", "c", "d"),
        [*pipelines, WSPipeline("end", ["end_tile"], 1)],
        [WSScope("loop", loop), WSScope(ROOT, root)],
    )


@pytest.mark.parametrize("depth", [1, 4, 9])
def test_versions_of_all_pipelines_on_the_way_are_filled(depth: int) -> None:
    """A role runs ahead by the sum of the depths, and only then gets stuck."""
    stuck = 3 * depth + 3
    with pytest.raises(UsageError, match=rf"deadlock: 'a' waits in .* \(iterations: {stuck} of 'loop'\)"):
        chain(depth).check()
    for seed in range(SEEDS):
        assert Machine(chain(depth), {"loop": stuck - 1}, seed).run()
        assert not Machine(chain(depth), {"loop": stuck}, seed).run()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(schedules())
def test_the_largest_trip_counts_decide_for_all(schedule: WSSchedule) -> None:
    every = any(execute(schedule, trips) for trips in trip_counts(schedule))
    assert every == any(execute(schedule, trips) for trips in decisive(schedule))


@pytest.mark.parametrize("depth", [1_000, 10_000, 10**6, 10**12])
def test_any_depth_is_judged_by_few_steps(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    done = 0
    take = Execution.take

    def counted(self: Execution, event: Event) -> None:
        nonlocal done
        done += 1
        take(self, event)

    monkeypatch.setattr(Execution, "take", counted)
    if depth < 10**6:
        gemm(depth=depth).check()
        assert depth < done <= MOST_STEPS
        return
    with pytest.raises(UsageError) as caught:
        gemm(depth=depth).check()
    assert not done
    assert re.fullmatch(
        rf"WSSchedule: to tell whether it gets stuck takes \d+ steps, and at most {MOST_STEPS} are executed; lower a "
        rf"depth \('smem' has {depth}\) or a stage, or take fewer scopes",
        str(caught.value),
    )


def test_the_machine_notices_a_version_overwritten_too_early() -> None:
    machine = Machine(gemm(), {"loop_k": 3}, 0)
    machine.may = lambda role, sync: True  # type: ignore[method-assign]
    misused = 0
    for seed in range(20):
        machine = Machine(gemm(depth=1), {"loop_k": 4}, seed)
        machine.may = lambda role, sync: True  # type: ignore[method-assign]
        try:
            machine.run()
        except (AssertionError, KeyError):
            misused += 1
    assert misused
