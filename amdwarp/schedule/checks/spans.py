"""Spans: acquire with commit, wait with release, at one stage; and as many turns of a pipeline on both its sides."""

from __future__ import annotations

from collections import Counter

from amdwarp.errors import UsageError
from amdwarp.target import Target

from ..objects import WSOpRef, WSSchedule, WSScope, WSSync
from ..programs import MOST_BEHIND, body_error, entries, offsets


def check(schedule: WSSchedule, target: Target | None) -> None:
    """Raise ``UsageError`` for the first span that breaks a rule."""
    for scope in schedule.scopes:
        for role, body in scope.bodies:
            for one in body:
                if isinstance(one, (WSSync, WSOpRef)) and (one.stage or 0) < 0:
                    what = f"{one.kind.value} of {one.pipeline!r}" if isinstance(one, WSSync) else f"op {one.id!r}"
                    raise body_error(scope, role, f"{what} is at stage {one.stage}", "stages are counted from 0")
            entries(scope, role)
            _check_behind(schedule, scope, role)
    for pipeline in schedule.pipelines:
        _check_balance(schedule, pipeline.name)


def _check_behind(schedule: WSSchedule, scope: WSScope, role: str) -> None:
    """Each iteration behind is code of its own."""
    if (behind := max((offset for _, offset in offsets(schedule, scope, role)), default=0)) > MOST_BEHIND:
        raise body_error(
            scope,
            role,
            f"its last steps run {behind} iterations behind the first, and at most {MOST_BEHIND} are written out",
            "lower a stage or an in_flight",
        )


def _check_balance(schedule: WSSchedule, pipeline: str) -> None:
    """Each role turns the pipeline equally often in the same scopes, or its phase is lost at some trip count."""
    turns: dict[str, Counter[str]] = {}
    for scope in schedule.scopes:
        for role, body in scope.bodies:
            for one in body:
                if isinstance(one, WSSync) and one.pipeline == pipeline and one.kind.opens:
                    turns.setdefault(role, Counter())[scope.id] += 1
    first, *others = turns
    for other in others:
        if turns[first] != turns[other]:
            raise UsageError(
                f"its phase is lost: {first!r} turns it {_said(turns[first])}, {other!r} {_said(turns[other])}",
                remedy="let all its roles turn it equally often in the same scopes",
                construct=f"WSPipeline {pipeline!r}",
            )


def _said(turns: Counter[str]) -> str:
    return " and ".join(f"{count} time{'s' * (count > 1)} in {scope!r}" for scope, count in sorted(turns.items()))
