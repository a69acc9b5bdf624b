"""What each role does, step by step: entries with their spans and stages, and the events they amount to.

One statement of how stages become iteration offsets, for the checks, the passes and the simulation alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from amdwarp.errors import UsageError

from .objects import WSInstr, WSOpRef, WSSchedule, WSScope, WSSync

MOST_BEHIND = 64
"""Iterations that a step may run behind the first: each has code of its own before and behind the loop, and 60 of them
take 15 s of CPU to compile (one load and one addition, tasks or one thread)."""


@dataclass(frozen=True)
class Entry:
    """One instruction of a role's body.

    Attributes:
        instr: the instruction.
        stage: of the spans around it; the body's lowest where it is in none.
        spans: the points that opened the spans it is in, outermost first; a point is in its own span only, an op with a
            stage of its own only in those of that stage.
    """

    instr: WSInstr
    stage: int
    spans: tuple[WSSync, ...]


@dataclass(frozen=True)
class Event:
    """One synchronization point as a role executes it.

    Attributes:
        role: name of the role.
        sync: the point.
        iteration: iteration of its scope, counted from 0.
    """

    role: str
    sync: WSSync
    iteration: int


def body_error(scope: WSScope, role: str, problem: str, remedy: str) -> UsageError:
    return UsageError(problem, remedy=remedy, construct=f"WSScope {scope.id!r}, role {role!r}")


def entries(scope: WSScope, role: str) -> list[Entry]:
    """The body of a role with spans matched and stages assigned.

    Raises:
        UsageError: spans that do not pair up, or whose stages disagree.
    """
    opened: list[WSSync] = []
    found: list[tuple[WSInstr, tuple[WSSync, ...]]] = []
    for instr in scope.body(role):
        if not isinstance(instr, WSSync):
            found.append((instr, tuple(opened)))
        elif instr.kind.opens:
            opened.append(_opening(scope, role, instr, opened))
            found.append((instr, (instr,)))
        else:
            opening = _closed(scope, role, instr, opened)
            opened.remove(opening)
            found.append((instr, (opening,)))
    if opened:
        left, name = opened[0], opened[0].pipeline
        word = left.kind.partner.value
        raise body_error(
            scope, role, f"{left.kind.value} of {name!r} is still open at the end", f"add WSSync.{word}({name!r})"
        )
    found = [(one, tuple(s for s in spans if _own_stage(one) in (None, s.stage))) for one, spans in found]
    own = [stage for one, _ in found if (stage := _own_stage(one)) is not None]
    lowest = min([*own, *(one.stage for _, spans in found for one in spans)], default=0)
    made = [Entry(instr, _stage(scope, role, instr, spans, lowest), spans) for instr, spans in found]
    _one_stage_a_pipeline(scope, role, made)
    return made


def _own_stage(instr: WSInstr) -> int | None:
    return instr.stage if isinstance(instr, WSOpRef) else None


def _opening(scope: WSScope, role: str, sync: WSSync, opened: list[WSSync]) -> WSSync:
    if any(one.pipeline == sync.pipeline for one in opened):
        raise body_error(
            scope, role, f"{sync.kind.value} of {sync.pipeline!r} stands twice in a row", "close the first span before"
        )
    return sync


def _closed(scope: WSScope, role: str, sync: WSSync, opened: list[WSSync]) -> WSSync:
    wanted = sync.kind.partner
    mine = next((one for one in opened if one.pipeline == sync.pipeline and one.kind is wanted), None)
    if mine is None:
        raise body_error(
            scope,
            role,
            f"{sync.kind.value} of {sync.pipeline!r} stands where no span of it is open",
            f"put WSSync.{wanted.value}({sync.pipeline!r}) before it",
        )
    if mine.stage != sync.stage:
        raise body_error(
            scope,
            role,
            f"{wanted.value} of {sync.pipeline!r} is at stage {mine.stage} and {sync.kind.value} at stage {sync.stage}",
            "give both ends of a span one stage",
        )
    return mine


def _stage(scope: WSScope, role: str, instr: WSInstr, spans: tuple[WSSync, ...], lowest: int) -> int:
    if (own := _own_stage(instr)) is not None:
        return own
    stages = {one.stage for one in spans}
    if len(stages) > 1:
        assert isinstance(instr, WSOpRef)
        both = " and ".join(f"{one.pipeline!r} at stage {one.stage}" for one in spans)
        remedy = "give them one stage, or close one span before"
        raise body_error(scope, role, f"op {instr.id!r} is in spans of {both}", remedy)
    return stages.pop() if stages else lowest


def _one_stage_a_pipeline(scope: WSScope, role: str, made: list[Entry]) -> None:
    stages: dict[str, int] = {}
    for entry in made:
        if isinstance(entry.instr, WSSync):
            sync = entry.instr
            if stages.setdefault(sync.pipeline, sync.stage) != sync.stage:
                raise body_error(
                    scope,
                    role,
                    f"{sync.pipeline!r} has spans at stages {stages[sync.pipeline]} and {sync.stage}",
                    "give all spans of a pipeline in one body one stage",
                )


def offsets(schedule: WSSchedule, scope: WSScope, role: str) -> list[tuple[Entry, int]]:
    """Each entry of a role's body and how many iterations it runs behind the role's first ones.

    Equal stages cancel: a role whose spans all have one stage runs without an offset. A commit runs ``in_flight - 1``
    iterations behind its acquire.
    """
    body = entries(scope, role)
    lowest = min((entry.stage for entry in body), default=0)
    return [(entry, entry.stage - lowest + lag(schedule, entry.instr)) for entry in body]


def lag(schedule: WSSchedule, instr: WSInstr) -> int:
    """Iterations by which a commit runs behind its span; 0 for anything else."""
    if isinstance(instr, WSSync) and instr.kind.produces and not instr.kind.opens:
        return schedule.pipeline(instr.pipeline).in_flight - 1
    return 0


def events(schedule: WSSchedule, role: str, trips: Mapping[str, int]) -> Iterator[Event]:
    """What a role synchronizes on, in order, from the start of the kernel to its end.

    Args:
        trips: scope id -> iterations each time the scope is entered; the root runs once.
    """
    root = schedule.scope(WSScope.ROOT)
    if root is not None:
        yield from _scope_events(schedule, root, role, {WSScope.ROOT: 1, **trips})


def _scope_events(schedule: WSSchedule, scope: WSScope, role: str, trips: Mapping[str, int]) -> Iterator[Event]:
    body = offsets(schedule, scope, role)
    count = trips[scope.id]
    for step in range(count + max((offset for _, offset in body), default=0)):
        for entry, offset in body:
            iteration = step - offset
            if not 0 <= iteration < count:
                continue
            if isinstance(entry.instr, WSSync):
                yield Event(role, entry.instr, iteration)
            elif isinstance(entry.instr, WSOpRef) and (child := schedule.scope(entry.instr.id)) is not None:
                yield from _scope_events(schedule, child, role, trips)
