"""Deadlock: the roles' programs are executed against the barrier model, for short and long loops."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from amdwarp.errors import UsageError
from amdwarp.target import Target

from ..execution import Stuck, execute
from ..objects import WSInstr, WSOpRef, WSSchedule, WSScope, WSSync
from ..programs import offsets

NESTED_TRIPS = (0, 1, 2, 3)
MOST_STEPS = 500_000
"""Steps that the check executes at most: some seconds."""


def check(schedule: WSSchedule, target: Target | None) -> None:
    """Raise ``UsageError`` for a schedule that gets stuck, with the cycle, or that is too large to tell."""
    if not schedule.pipelines:
        return
    _check_size(schedule)
    for trips in decisive(schedule):
        if stuck := execute(schedule, trips):
            stuck = _smallest(schedule, stuck) if _is_monotone(schedule) else stuck
            counts = ", ".join(f"{count} of {scope!r}" for scope, count in stuck.trips.items())
            raise UsageError(
                f"deadlock: {stuck}" + (f" (iterations: {counts})" if counts else ""),
                remedy=_remedy(stuck),
                construct="WSSchedule",
            )


def _remedy(stuck: Stuck) -> str:
    if any(event.sync.kind.produces for _, event, _ in stuck.cycle):
        return "reorder the spans, raise a depth, or lower a stage"
    return (
        "reorder the spans so that a producer commits before it waits, or lower the producer's stage; all wait for "
        "data, which no depth brings"
    )


def trip_counts(schedule: WSSchedule) -> Iterator[dict[str, int]]:
    """Every trip count up to where a longer loop repeats what a shorter one has shown.

    A loop is in its steady state once every pipeline's versions and every stage are in use. A role may run ahead of one
    that stands still by the versions of all pipelines on the way between them, so their sum is taken. With several
    scopes that count is taken for each alone, and all combinations of few iterations.
    """
    loops, longest = _loops(schedule), _longest(schedule)
    if len(loops) == 1:
        yield from ({loops[0]: count} for count in range(longest + 1))
        return
    for counts in product(NESTED_TRIPS, repeat=len(loops)):
        yield dict(zip(loops, counts, strict=True))
    if loops:
        yield from _one_long(loops, longest)


def _loops(schedule: WSSchedule) -> list[str]:
    return [scope.id for scope in schedule.scopes if scope.id != WSScope.ROOT]


def _one_long(loops: list[str], longest: int) -> Iterator[dict[str, int]]:
    yield from ({loop: longest if loop == long else 2 for loop in loops} for long in loops)


def _longest(schedule: WSSchedule) -> int:
    depths = sum(pipeline.depth for pipeline in schedule.pipelines)
    behind = sum(
        max((offset for scope in schedule.scopes for _, offset in offsets(schedule, scope, role.name)), default=0)
        for role in schedule.roles
    )
    return 2 * (depths + behind) + 2


def _is_monotone(schedule: WSSchedule) -> bool:
    """Whether what gets stuck gets stuck with more iterations too: each pipeline is turned in one scope only.

    The points of a run with fewer iterations are then some of a longer run's, in its order. A wait stands for the
    commit of the same iteration in both, and between an acquire and the release it waits for are no more turns.
    """
    return all(
        sum(any(_is_of(one, p.name) for _, body in scope.bodies for one in body) for scope in schedule.scopes) == 1
        for p in schedule.pipelines
    )


def _is_of(instr: WSInstr, pipeline: str) -> bool:
    return isinstance(instr, WSSync) and instr.pipeline == pipeline


def decisive(schedule: WSSchedule) -> Iterator[dict[str, int]]:
    """The trip counts to execute: of ``trip_counts`` only the largest where these decide for all."""
    loops, longest = _loops(schedule), _longest(schedule)
    if not _is_monotone(schedule):
        yield from trip_counts(schedule)
    elif len(loops) > 1:
        yield dict.fromkeys(loops, NESTED_TRIPS[-1])
        yield from _one_long(loops, longest)
    else:
        yield dict.fromkeys(loops, longest)


def _smallest(schedule: WSSchedule, stuck: Stuck) -> Stuck:
    """The same with as few iterations of each loop as get stuck, by bisection."""
    for loop in stuck.trips:
        low, high = 0, stuck.trips[loop]
        while low < high:
            middle = (low + high) // 2
            if found := execute(schedule, {**stuck.trips, loop: middle}):
                stuck, high = found, middle
            else:
                low = middle + 1
    return stuck


def _check_size(schedule: WSSchedule) -> None:
    loops, longest = _loops(schedule), _longest(schedule)
    if len(loops) > 1:
        short = 1 if _is_monotone(schedule) else len(NESTED_TRIPS) ** len(loops)
        steps = short * _steps(schedule, dict.fromkeys(loops, NESTED_TRIPS[-1]))
        steps += sum(_steps(schedule, trips) for trips in _one_long(loops, longest))
    else:
        steps = _steps(schedule, dict.fromkeys(loops, longest))
        steps *= 1 if _is_monotone(schedule) else longest // 2
    if steps > MOST_STEPS:
        deepest = max(schedule.pipelines, key=lambda pipeline: pipeline.depth)
        raise UsageError(
            f"to tell whether it gets stuck takes {steps} steps, and at most {MOST_STEPS} are executed",
            remedy=f"lower a depth ({deepest.name!r} has {deepest.depth}) or a stage, or take fewer scopes",
            construct="WSSchedule",
        )


def _steps(schedule: WSSchedule, trips: dict[str, int]) -> int:
    """Instructions that all roles execute, those that find nothing to do at the ends of a loop included."""
    root = schedule.scope(WSScope.ROOT)
    return sum(_steps_of(schedule, root, role.name, trips) for role in schedule.roles) if root is not None else 0


def _steps_of(schedule: WSSchedule, scope: WSScope, role: str, trips: dict[str, int]) -> int:
    count = trips.get(scope.id, 1)
    body = offsets(schedule, scope, role)
    children = [schedule.scope(e.instr.id) for e, _ in body if isinstance(e.instr, WSOpRef)]
    inside = sum(_steps_of(schedule, child, role, trips) for child in children if child is not None)
    return len(body) * (count + 1 + max((offset for _, offset in body), default=0)) + count * inside
