"""Deadlock: the roles' programs are executed against the barrier model, for short and long loops."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from amdwarp.errors import UsageError
from amdwarp.target import Target

from ..execution import execute
from ..objects import WSSchedule, WSScope, WSSync
from ..programs import offsets

NESTED_TRIPS = (0, 1, 2, 3)


def check(schedule: WSSchedule, target: Target | None) -> None:
    """Raise ``UsageError`` for a schedule that gets stuck, with the cycle."""
    for trips in trip_counts(schedule):
        if stuck := execute(schedule, trips):
            counts = ", ".join(f"{count} of {scope!r}" for scope, count in stuck.trips.items())
            raise UsageError(
                f"deadlock: {stuck}" + (f" (iterations: {counts})" if counts else ""),
                remedy="reorder the spans, raise a depth, or lower a stage",
                construct="WSSchedule",
            )


def trip_counts(schedule: WSSchedule) -> Iterator[dict[str, int]]:
    """The trip counts tried: every one up to where a longer loop repeats what a shorter one has shown.

    A loop is in its steady state once every pipeline's versions and every stage are in use: after the largest depth and
    the largest offset. With several scopes that count is taken for each alone, and all combinations of few iterations.
    """
    loops = [scope for scope in schedule.scopes if scope.id != WSScope.ROOT]
    depth = max((pipeline.depth for pipeline in schedule.pipelines), default=1)
    behind = max(
        (
            offset
            for scope in schedule.scopes
            for role in schedule.roles
            for _, offset in offsets(schedule, scope, role.name)
        ),
        default=0,
    )
    turns = max((sum(isinstance(one, WSSync) for one in body) for s in loops for _, body in s.bodies), default=0)
    longest = 2 * (depth + behind) + 2 if turns else 0
    if not loops:
        yield {}
    elif len(loops) == 1:
        yield from ({loops[0].id: count} for count in range(longest + 1))
    else:
        for counts in product(NESTED_TRIPS, repeat=len(loops)):
            yield dict(zip((scope.id for scope in loops), counts, strict=True))
        for long in loops:
            yield {scope.id: longest if scope is long else 2 for scope in loops}
