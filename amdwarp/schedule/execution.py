"""The barrier model: do the roles' programs run to their end?

A role blocks at an acquire until every consumer has released the version, and at a wait until every producer has
committed it. Conditions only ever become true, so the order in which roles run does not matter: one that is stuck in
one order is stuck in all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .objects import WSSchedule, WSSyncKind
from .programs import Event, events


@dataclass(frozen=True)
class Stuck:
    """A deadlock.

    Attributes:
        cycle: (role, event it blocks at, role it waits for), each waiting for the next, the last for the first; or
            ending at a role that has no further events.
        trips: the trip counts it happens with.
    """

    cycle: tuple[tuple[str, Event, str], ...]
    trips: Mapping[str, int]

    def __str__(self) -> str:
        parts = []
        for role, event, other in self.cycle:
            what = "release" if event.sync.kind.produces else "commit"
            parts.append(
                f"{role!r} waits in {event.sync.kind.value}({event.sync.pipeline!r}), iteration {event.iteration}, "
                f"for a {what} by {other!r}"
            )
        return ", and ".join(parts)


class Execution:
    """The state of all barriers while roles execute.

    Attributes:
        done: (role, pipeline, kind) -> how often it was executed.
    """

    def __init__(self, schedule: WSSchedule) -> None:
        self.schedule = schedule
        self.sides = {pipeline.name: schedule.sides(pipeline.name) for pipeline in schedule.pipelines}
        self.done: Counter[tuple[str, str, WSSyncKind]] = Counter()

    def missing(self, event: Event) -> str | None:
        """The role whose signal an event waits for, or None where it may go on."""
        name, kind = event.sync.pipeline, event.sync.kind
        if not kind.opens:
            return None
        producers, consumers = self.sides[name]
        mine = self.done[event.role, name, kind]
        if kind is WSSyncKind.PRODUCER_ACQUIRE:
            others, signal = consumers, WSSyncKind.CONSUMER_RELEASE
            needed = mine + 1 - self.schedule.pipeline(name).depth
        else:
            others, signal, needed = producers, WSSyncKind.PRODUCER_COMMIT, mine + 1
        return next((other for other in others if self.done[other, name, signal] < needed), None)

    def take(self, event: Event) -> None:
        self.done[event.role, event.sync.pipeline, event.sync.kind] += 1


def execute(schedule: WSSchedule, trips: Mapping[str, int]) -> Stuck | None:
    """Run every role to its end under the barrier model; the deadlock if there is one."""
    programs = {role.name: list(events(schedule, role.name, trips)) for role in schedule.roles}
    return run(Execution(schedule), programs, trips)


def run(state: Execution, programs: Mapping[str, Sequence[Event]], trips: Mapping[str, int]) -> Stuck | None:
    """As :func:`execute`, for programs given by thread; an event's role need not be the thread's name."""
    at = dict.fromkeys(programs, 0)
    moved = True
    while moved:
        moved = False
        for thread, program in programs.items():
            while at[thread] < len(program) and state.missing(program[at[thread]]) is None:
                state.take(program[at[thread]])
                at[thread] += 1
                moved = True
    blocked = {thread: program[at[thread]] for thread, program in programs.items() if at[thread] < len(program)}
    return Stuck(_cycle(state, blocked), dict(trips)) if blocked else None


def _cycle(state: Execution, blocked: Mapping[str, Event]) -> tuple[tuple[str, Event, str], ...]:
    edges: dict[str, tuple[str, Event, str]] = {}
    for event in blocked.values():
        other = state.missing(event)
        assert other is not None
        edges.setdefault(event.role, (event.role, event, other))
    path: list[str] = []
    role = next(iter(edges))
    while role in edges and role not in path:
        path.append(role)
        role = edges[role][2]
    start = path.index(role) if role in path else 0
    return tuple(edges[one] for one in path[start:])
