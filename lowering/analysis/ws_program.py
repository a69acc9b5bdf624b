"""The programs that a typed schedule is carried out by: threads of steps, each with its iteration offset.

As tasks there is a thread a role. As one software pipeline there is a single thread that runs all roles: producers
first, waits ahead of them where the data is from an earlier iteration, so that copies are under way while the consumer
computes. What a thread waits for (groups of copies, barriers) is counted on its execution, for short and long loops.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import product

from amdwarp.schedule.execution import Execution, Stuck, run
from amdwarp.schedule.objects import WSOpRef, WSPipeline, WSSchedule, WSScope, WSSync, WSSyncKind
from amdwarp.schedule.programs import MOST_BEHIND, Entry, Event, entries, offsets

from ..dialect import Kind, kind_of
from .lds import is_memdesc
from .ws_kernel import WSKernel, WSRegion


class Act(Enum):
    RUN = "run"  # an op or a child scope
    ACQUIRE = "producer_acquire"
    CLOSE = "close"  # the copies of a span are one group from here on
    COMMIT = "producer_commit"
    WAIT = "consumer_wait"
    RELEASE = "consumer_release"


class Copies(Enum):
    """How copies into a buffer are waited for."""

    NONE = "stores"
    GROUPS = "async_wait"  # by commit groups
    TENSOR = "tdm_wait"  # by operations of the tensor data mover


_ACTS = {kind: Act(kind.value) for kind in WSSyncKind}
_KINDS = {act: kind for kind, act in _ACTS.items()}


@dataclass(frozen=True)
class Step:
    """One step of a thread's loop body.

    Attributes:
        act: what it does.
        offset: iterations it runs behind the first steps.
        role: whose step it is.
        id: of the op or scope to run.
        pipeline: of a synchronization point.
        copies: of CLOSE, COMMIT and WAIT: how the data arrives.
        operations: of CLOSE: copy operations in the span.
    """

    act: Act
    offset: int
    role: str
    id: str = ""
    pipeline: str = ""
    copies: Copies = Copies.NONE
    operations: int = 0


Phase = tuple[str, int]
"""Where in a pipelined loop a step is: ("prologue", t), ("steady", 0) or ("epilogue", j)."""


@dataclass
class Thread:
    """One program.

    Attributes:
        name: the role, or ``"all roles"``.
        roles: whose steps it has.
        bodies: scope id -> steps of one iteration.
        waits: (scope, phase, position) -> copies that may be outstanding there, for steps that wait for copies.
        fences: (scope, position) of the acquires that need a barrier of their own; single thread only.
    """

    name: str
    roles: tuple[str, ...]
    bodies: dict[str, list[Step]]
    waits: dict[tuple[str, Phase, int], int] = field(default_factory=dict)
    fences: set[tuple[str, int]] = field(default_factory=set)

    def depth(self, scope: str) -> int:
        """Iterations that the last step of a body runs behind the first."""
        return max((step.offset for step in self.bodies.get(scope, [])), default=0)


def role_threads(kernel: WSKernel) -> list[Thread]:
    """A thread for each role."""
    threads = []
    for role in kernel.schedule.roles:
        bodies = {}
        for scope in kernel.schedule.scopes:
            placed = [(e, o) for e, o in offsets(kernel.schedule, scope, role.name)]
            bodies[scope.id] = [step for e, o in placed for step in _steps(kernel, scope, role.name, e, o)]
        thread = Thread(role.name, (role.name,), bodies)
        _count(kernel, thread)
        threads.append(thread)
    return threads


def _steps(kernel: WSKernel, scope: WSScope, role: str, entry: Entry, offset: int) -> list[Step]:
    if isinstance(entry.instr, WSOpRef):
        return [Step(Act.RUN, offset, role, id=entry.instr.id)]
    assert isinstance(entry.instr, WSSync)
    sync = entry.instr
    act = _ACTS[sync.kind]
    if act is not Act.COMMIT:
        copies = _arrival(kernel, sync.pipeline) if act is Act.WAIT else Copies.NONE
        return [Step(act, offset, role, pipeline=sync.pipeline, copies=copies)]
    copies, operations = _span_copies(kernel, scope, role, sync.pipeline)
    commit = Step(Act.COMMIT, offset, role, pipeline=sync.pipeline, copies=copies)
    lag = kernel.schedule.pipeline(sync.pipeline).in_flight - 1
    close = Step(Act.CLOSE, offset - lag, role, pipeline=sync.pipeline, copies=copies, operations=operations)
    return [close, commit]


def _span_copies(kernel: WSKernel, scope: WSScope, role: str, pipeline: str) -> tuple[Copies, int]:
    """How a producer's span fills the buffers, and the copy operations in it."""
    found: Counter[Copies] = Counter()
    for entry in entries(scope, role):
        if isinstance(entry.instr, WSOpRef) and any(span.pipeline == pipeline for span in entry.spans):
            for region in _regions_under(kernel, entry.instr.id, role):
                found += _copies_of(kernel, region, pipeline)
    if len(found) > 1:
        raise kernel.error(
            f"the buffers of {pipeline!r} are filled by copies of two kinds in role {role!r}",
            "use one kind of copy a pipeline",
        )
    return next(iter(found.items()), (Copies.NONE, 0))


def _regions_under(kernel: WSKernel, id: str, role: str) -> Iterator[WSRegion]:
    scope = kernel.schedule.scope(id)
    if scope is None:
        yield kernel.regions[id]
        return
    for one in scope.body(role):
        if isinstance(one, WSOpRef):
            yield from _regions_under(kernel, one.id, role)


def _copies_of(kernel: WSKernel, region: WSRegion, pipeline: str) -> Counter[Copies]:
    found: Counter[Copies] = Counter()
    for op in region.walk():
        if kind_of(op) is Kind.COPY and any(
            kernel.pipeline_of(v) == pipeline for v in op.operands if is_memdesc(v.type)
        ):
            found[Copies.TENSOR if ".async_tdm" in op.name else Copies.GROUPS] += 1
    return found


def _arrival(kernel: WSKernel, pipeline: str) -> Copies:
    """How a pipeline's data arrives, whoever produces it."""
    kinds = {
        kind
        for scope in kernel.schedule.scopes
        for role, body in scope.bodies
        if any(isinstance(one, WSSync) and one.kind.produces and one.pipeline == pipeline for one in body)
        for kind in [_span_copies(kernel, scope, role, pipeline)[0]]
        if kind is not Copies.NONE
    }
    if len(kinds) > 1:
        raise kernel.error(f"the buffers of {pipeline!r} are filled by copies of two kinds", "use one kind a pipeline")
    return next(iter(kinds), Copies.NONE)


# ---- one thread for all roles


def single_thread(kernel: WSKernel) -> Thread:
    """One thread that runs all roles.

    Raises:
        LoweringError: in no order of the roles' steps does it get to its end.
    """
    bodies = {scope.id: _merged(kernel, scope) for scope in kernel.schedule.scopes}
    thread = Thread("all roles", tuple(role.name for role in kernel.schedule.roles), bodies)
    if (behind := max(map(thread.depth, bodies))) > MOST_BEHIND:
        raise kernel.error(
            f"as one software pipeline its last steps run {behind} iterations behind the first, and at most "
            f"{MOST_BEHIND} are written out",
            "bring the roles' stages closer together, or realise it as tasks",
        )
    for trips in _trips(kernel, thread):
        if stuck := _execute(kernel, thread, trips):
            raise _never_ends(kernel, stuck)
    _fence(kernel, thread)
    _count(kernel, thread)
    return thread


def _never_ends(kernel: WSKernel, stuck: Stuck) -> Exception:
    (_, event, producer), *_rest = stuck.cycle
    remedy = "raise the pipeline's depth above the distance of its stages, or realise it as tasks"
    if not event.sync.kind.produces:
        remedy = (
            f"role {producer!r} has not committed this iteration: move its commit before the wait, lower its stage, or "
            f"raise that of {event.role!r}, or realise it as tasks; no depth brings the data"
        )
    return kernel.error(
        f"as one software pipeline it gets stuck in {event.sync.kind.value} of {event.sync.pipeline!r}, iteration "
        f"{event.iteration}: what it waits for comes later in the same thread",
        remedy,
    )


def _merged(kernel: WSKernel, scope: WSScope) -> list[Step]:
    """The roles' steps of one iteration in one order: a topological sort with producers first and waits at once."""
    chains: list[list[Step]] = []
    placed = {role: entries(scope, role) for role, _ in scope.bodies}
    staged = {role for role, body in placed.items() if any(e.spans or e.stage for e in body)}
    lowest = min((e.stage for role in staged for e in placed[role]), default=0)
    for role, body in placed.items():
        chain: list[Step] = []
        for entry in body:
            behind = entry.stage - lowest if role in staged else 0
            chain += [replace(step, offset=behind) for step in _steps(kernel, scope, role, entry, behind)]
        chains.append(chain)
    steps, before = _graph(kernel, scope, chains)
    return _sorted(kernel, scope, steps, before)


def _graph(kernel: WSKernel, scope: WSScope, chains: list[list[Step]]) -> tuple[list[Step], dict[int, set[int]]]:
    """Steps, shared ones once, and for each the steps that must precede it in an iteration."""
    steps: list[Step] = []
    before: dict[int, set[int]] = defaultdict(set)
    shared: dict[str, int] = {}
    for chain in sorted(chains, key=lambda chain: (min((s.offset for s in chain), default=0), _consumes(chain))):
        last = None
        for step in chain:
            if step.act is Act.RUN and step.id in shared:
                here = shared[step.id]
                if steps[here].offset != step.offset:
                    raise kernel.regions[step.id].error(
                        f"roles {steps[here].role!r} and {step.role!r} run it at two stages",
                        "one thread runs it once: give both roles one stage, or realise the schedule as tasks",
                    )
            else:
                here = len(steps)
                steps.append(step)
                if step.act is Act.RUN:
                    shared[step.id] = here
            if last is not None:
                before[here].add(last)
            last = here
    for at, step in enumerate(steps):
        if step.act is Act.WAIT:
            ready = [i for i, s in enumerate(steps) if s.act is Act.COMMIT and s.pipeline == step.pipeline]
            before[at] |= {i for i in ready if steps[i].offset >= step.offset}
    return steps, before


def _consumes(chain: list[Step]) -> bool:
    return any(step.act is Act.WAIT for step in chain) and not any(step.act is Act.ACQUIRE for step in chain)


def _sorted(kernel: WSKernel, scope: WSScope, steps: list[Step], before: dict[int, set[int]]) -> list[Step]:
    left, order = set(range(len(steps))), []
    done: set[int] = set()
    while left:
        ready = [i for i in left if before[i] <= done]
        if not ready:
            raise kernel.error(
                f"no order of the roles' steps in {scope.id!r} suits one thread: each waits for another's commit",
                "lower a stage, or realise the schedule as tasks",
            )
        at = min(ready, key=lambda i: (steps[i].act is not Act.WAIT, i))
        left.discard(at)
        done.add(at)
        order.append(steps[at])
    return order


# ---- execution of threads


@dataclass(frozen=True)
class Point:
    """A step as a thread executes it."""

    scope: str
    phase: Phase
    position: int
    step: Step
    iteration: int


def execution(thread: Thread, scopes: set[str], scope: str, trips: Mapping[str, int]) -> Iterator[Point]:
    """Every step that a thread executes in one visit of a scope, in order."""
    body, behind, count = thread.bodies.get(scope, []), thread.depth(scope), trips[scope]
    for turn in range(count + behind):
        phase: Phase = ("steady", 0)
        if scope != WSScope.ROOT and turn < min(behind, count):
            phase = ("prologue", turn)
        elif scope != WSScope.ROOT:
            phase = ("steady", 0) if turn < count else ("epilogue", turn - count)
        for position, step in enumerate(body):
            iteration = turn - step.offset
            if not 0 <= iteration < count:
                continue
            if step.act is Act.RUN and step.id in scopes:
                yield from execution(thread, scopes, step.id, trips)
            else:
                yield Point(scope, phase, position, step, iteration)


def _trips(kernel: WSKernel, thread: Thread) -> Iterator[dict[str, int]]:
    """Trip counts that show every phase of every loop."""
    loops = [scope.id for scope in kernel.schedule.scopes if scope.id != WSScope.ROOT]
    depth = max((pipeline.depth for pipeline in _near(kernel, thread).pipelines), default=1)
    longest = [2 * (thread.depth(loop) + depth) + 2 for loop in loops]
    choices = [range(count + 1) if len(loops) == 1 else sorted({0, 1, 2, count}) for count in longest]
    for counts in product(*choices):
        yield {WSScope.ROOT: 1, **dict(zip(loops, counts, strict=True))}


def _near(kernel: WSKernel, thread: Thread) -> WSSchedule:
    """The schedule with no more versions than a single thread can tell apart.

    An acquire of turn ``t`` concerns the release of turn ``t - depth``. With ``turns`` of a pipeline in an iteration
    and steps up to ``behind`` iterations late, ``depth > turns * (behind + 1) + 1`` puts that release, and the wait of
    the next turn, before the acquire: no version more changes what the thread waits for.
    """
    schedule = kernel.schedule
    behind = max((thread.depth(scope.id) for scope in schedule.scopes), default=0)
    bodies = [body for scope in schedule.scopes for _, body in scope.bodies]

    def near(pipeline: WSPipeline) -> WSPipeline:
        points = (sum(isinstance(one, WSSync) and one.pipeline == pipeline.name for one in body) for body in bodies)
        return replace(pipeline, depth=min(pipeline.depth, max(points) // 2 * (behind + 1) + 2))

    return replace(schedule, pipelines=tuple(map(near, schedule.pipelines)))


def _points(kernel: WSKernel, thread: Thread, trips: Mapping[str, int]) -> list[Point]:
    return list(execution(thread, {scope.id for scope in kernel.schedule.scopes}, WSScope.ROOT, trips))


def _execute(kernel: WSKernel, thread: Thread, trips: Mapping[str, int]) -> Stuck | None:
    program = [
        Event(p.step.role, WSSync(_KINDS[p.step.act], p.step.pipeline), p.iteration)
        for p in _points(kernel, thread, trips)
        if p.step.act in _KINDS
    ]
    return run(Execution(_near(kernel, thread)), {thread.name: program}, trips)


def _fence(kernel: WSKernel, thread: Thread) -> None:
    """Find the acquires whose version was released behind the last barrier: every wait has one, and so do these."""
    runs = [_points(kernel, thread, trips) for trips in _trips(kernel, thread)]
    while True:
        found = {site for points in runs for site in _unfenced(kernel, thread, points)}
        if not found:
            return
        thread.fences |= found


def _unfenced(kernel: WSKernel, thread: Thread, points: list[Point]) -> Iterator[tuple[str, int]]:
    released: dict[str, list[int]] = defaultdict(list)
    turns: Counter[tuple[str, str]] = Counter()
    barrier = -1
    consumers = {p.name: len(kernel.schedule.sides(p.name)[1]) for p in kernel.schedule.pipelines}
    depths = {p.name: p.depth for p in _near(kernel, thread).pipelines}
    for now, point in enumerate(points):
        step, site = point.step, (point.scope, point.position)
        if step.act is Act.WAIT or site in thread.fences:
            barrier = now
        if step.act is Act.RELEASE:
            released[step.pipeline].append(now)
        if step.act is Act.ACQUIRE:
            turn = turns[step.role, step.pipeline] - depths[step.pipeline]
            turns[step.role, step.pipeline] += 1
            if turn >= 0 and released[step.pipeline][(turn + 1) * consumers[step.pipeline] - 1] > barrier:
                yield site


def _count(kernel: WSKernel, thread: Thread) -> None:
    """How many copies may be outstanding where a thread waits for some: those started behind the ones waited for.

    A task waits before it commits, a single thread where the consumer waits. The smallest count of all trip counts is
    taken; a smaller one waits for more, which is safe.
    """
    waiting = Act.COMMIT if len(thread.roles) == 1 else Act.WAIT
    for trips in _trips(kernel, thread):
        closed: dict[str, list[int]] = defaultdict(list)
        started: Counter[Copies] = Counter()
        turns: Counter[str] = Counter()
        for point in _points(kernel, thread, trips):
            step = point.step
            if step.act is Act.CLOSE and step.copies is not Copies.NONE:
                started[step.copies] += step.operations if step.copies is Copies.TENSOR else 1
                closed[step.pipeline].append(started[step.copies])
            if step.act is not waiting or step.copies is Copies.NONE:
                continue
            producers = 1 if waiting is Act.COMMIT else _closers(kernel, thread, step.pipeline)
            waiters = 1 if waiting is Act.COMMIT else len(kernel.schedule.sides(step.pipeline)[1])
            turn = turns[step.pipeline] // waiters
            turns[step.pipeline] += 1
            outstanding = started[step.copies] - closed[step.pipeline][(turn + 1) * producers - 1]
            site = (point.scope, point.phase, point.position)
            thread.waits[site] = min(thread.waits.get(site, outstanding), outstanding)


def _closers(kernel: WSKernel, thread: Thread, pipeline: str) -> int:
    steps = (step for body in thread.bodies.values() for step in body)
    return len({s.role for s in steps if s.act is Act.CLOSE and s.copies is not Copies.NONE and s.pipeline == pipeline})
