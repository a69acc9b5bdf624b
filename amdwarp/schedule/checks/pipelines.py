"""Pipelines: named once, with buffers of their own, at least one version, and two sides that no role shares."""

from __future__ import annotations

from amdwarp.errors import UsageError
from amdwarp.target import Target

from ..objects import WSPipeline, WSSchedule, WSSync


def check(schedule: WSSchedule, target: Target | None) -> None:
    """Raise ``UsageError`` for the first pipeline that breaks a rule."""
    names = [pipeline.name for pipeline in schedule.pipelines]
    owners: dict[str, str] = {}
    for pipeline in schedule.pipelines:
        if names.count(pipeline.name) > 1:
            raise _error(pipeline.name, "two pipelines have this name", "rename one")
        _check_versions(pipeline)
        for buffer in pipeline.buffers:
            if pipeline.buffers.count(buffer) > 1:
                raise _error(pipeline.name, f"it names the buffer {buffer!r} twice", "drop one")
            if buffer in owners:
                raise _error(
                    pipeline.name,
                    f"the buffer {buffer!r} is protected by {owners[buffer]!r} already",
                    "give each buffer to one pipeline",
                )
            owners[buffer] = pipeline.name
    _check_known(schedule, names)
    for pipeline in schedule.pipelines:
        _check_sides(schedule, pipeline)


def _error(name: str, problem: str, remedy: str) -> UsageError:
    return UsageError(problem, remedy=remedy, construct=f"WSPipeline {name!r}")


def _check_versions(pipeline: WSPipeline) -> None:
    if not pipeline.buffers:
        raise _error(pipeline.name, "it protects no buffer", "name the buffers, or drop the pipeline")
    if pipeline.depth < 1:
        raise _error(pipeline.name, f"depth = {pipeline.depth}", "it needs at least one version of its buffers")
    if not 1 <= pipeline.in_flight <= pipeline.depth:
        raise _error(
            pipeline.name,
            f"in_flight = {pipeline.in_flight} with depth = {pipeline.depth}",
            "copies of 1 to depth versions can be under way",
        )


def _check_known(schedule: WSSchedule, names: list[str]) -> None:
    for scope in schedule.scopes:
        for role, body in scope.bodies:
            for one in body:
                if isinstance(one, WSSync) and one.pipeline not in names:
                    raise UsageError(
                        f"{one.kind.value} names an unknown pipeline {one.pipeline!r}",
                        remedy=f"have {', '.join(names) or 'none'}",
                        construct=f"WSScope {scope.id!r}, role {role!r}",
                    )


def _check_sides(schedule: WSSchedule, pipeline: WSPipeline) -> None:
    producers, consumers = schedule.sides(pipeline.name)
    if not producers:
        raise _error(pipeline.name, "it has no producer", "add producer_acquire and producer_commit to a role")
    if not consumers:
        raise _error(pipeline.name, "it has no consumer", "add consumer_wait and consumer_release to a role")
    if both := [name for name in producers if name in consumers]:
        raise _error(
            pipeline.name,
            f"role {both[0]!r} is both a producer and a consumer of it",
            "a role that waits for itself needs no pipeline: split the role, or drop the points",
        )
