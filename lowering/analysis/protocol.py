"""The protocol check: no wave may touch an LDS slot that another may still be filling, reading or storing to.

The rules, on the epochs of ``timeline.py``; ``x`` comes before ``y`` in the program, both touch overlapping parts of
one allocation, and at least one of them writes:

=====================  =========================================================================================
x copy, y read         the wait that covers x stands before a barrier that both groups pass before y starts
x read, y copy/store   x was waited for (a fence, or the MFMA that consumed it) before such a barrier
x store, y any         a fence stands on the way, and both groups pass it before y starts
x copy, y copy/store   as x copy, y read
y read                 something was written to that slot on every path
=====================  =========================================================================================

and no two accesses that stock barrier insertion would separate may be left without a fence inside a pipeline, or it
would put its barrier inside a stage.
"""

from __future__ import annotations

from amdwarp.errors import ProtocolError
from amdwarp.stage import BEGIN

from ..ir import Op
from .lds import Access
from .scalars import Scalars, TooManyPathsError, paths
from .timeline import NEVER, PLAIN_BARRIERS, Event, NotFollowedError, Walk, ring_depth

PASS = "check_protocol"
EDGE = "amdwarp.edge"
MAX_PATHS = 4000


def check_function(function: Op) -> set[Op]:
    """Check a lowered function whose stage anchors still stand.

    Returns:
        Plain barriers that have to become fences for the rules to hold; empty when they hold as it is.

    Raises:
        ProtocolError: a dependence that no fence can mend.
    """
    mends: set[Op] = set()
    trips = 2 * ring_depth(function) + 2
    try:
        for choices in paths(MAX_PATHS):
            Walk(lambda walk, event: _on_access(walk, event, mends), Scalars(choices), trips).run(function)
    except NotFollowedError as error:
        raise ProtocolError(
            f"the shared-memory use of this kernel cannot be checked: {error.why}",
            remedy="keep shared memory, waits and barriers in straight code, scf.for and scf.if",
            construct="warp_pipeline_stage",
            where=error.op.where,
            pass_name=PASS,
        ) from None
    except TooManyPathsError:
        raise ProtocolError(
            f"the kernel has more than {MAX_PATHS} distinct paths through its shared-memory use",
            remedy="use fewer conditions and unknown ring positions around the staged loop",
            construct="warp_pipeline_stage",
            where=function.where,
            pass_name=PASS,
        ) from None
    return mends


def _on_access(walk: Walk, event: Event, mends: set[Op]) -> None:
    _stock_barrier(walk, event, mends)
    start = walk.epochs
    for earlier in walk.live:
        if not _conflict(earlier, event) or _left_to_stock(earlier, event):
            continue
        if max(earlier.finish) < min(start):
            continue
        barrier = _mending_barrier(earlier, min(start)) if earlier.access is not Access.ASYNC_WRITE else None
        if barrier is None:
            raise _violation(earlier, event, min(start))
        mends.add(barrier)
    if event.op.name == "ttg.local_load" and event.stage is not None:
        region = event.region
        if not {(region.alloc, region.slot), (region.alloc, None)} & walk.seen_slots:
            raise _error(
                event,
                f"{event.region} is read before anything was copied into it",
                "fill every ring slot that the first iterations read before the loop",
            )


def _conflict(x: Event, y: Event) -> bool:
    if "scratch memory" in (x.region.name, y.region.name):
        # scratch may be laid over a ring whose copies are still under way; stock code generation orders the rest
        return x.access is Access.ASYNC_WRITE and x.finish == NEVER
    return (x.access.writes or y.access.writes) and x.region.overlaps(y.region)


def _left_to_stock(x: Event, y: Event) -> bool:
    """Outside of every pipeline stock barrier insertion orders what it sees."""
    return x.stage is None and y.stage is None and not _hidden_from_stock(x, y) and x.access is not Access.ASYNC_WRITE


def _hidden_from_stock(x: Event, y: Event) -> bool:
    """Pairs that stock barrier insertion leaves to the kernel's own waits."""
    kinds = {x.access, y.access}
    return kinds == {Access.ASYNC_WRITE} or kinds == {Access.ASYNC_WRITE, Access.RELAXED_READ}


def _stock_barrier(walk: Walk, event: Event, mends: set[Op]) -> None:
    """What stock barrier insertion does here: outside of a stage it fences; inside one it must find no reason to."""
    for earlier in walk.unfenced:
        same = earlier.region.alloc is event.region.alloc
        if not same or not (earlier.access.writes or event.access.writes) or _hidden_from_stock(earlier, event):
            continue
        if event.stage is None:
            walk.fence()
            return
        plain = [op for op, _ in earlier.barriers if op.name in PLAIN_BARRIERS]
        if not plain:
            raise _error(
                event,
                f"{event.op.name} needs a barrier inside the stage: {_describe(earlier)} touches the same memory",
                "put the two in different stages, or use one allocation for each and loads marked as synchronised "
                "(load_shared_relaxed)",
            )
        mends.add(plain[-1])


def _mending_barrier(event: Event, limit: int) -> Op | None:
    """The last plain barrier that, made a fence, would finish ``event`` in time."""
    fitting = [op for op, epochs in event.barriers if op.name in PLAIN_BARRIERS and max(epochs) < limit]
    return fitting[-1] if fitting else None


def _violation(x: Event, y: Event, limit: int) -> ProtocolError:
    where = _deadline(x, limit)
    if x.access is Access.ASYNC_WRITE:
        what = f"{_verb(y)} {y.region} while the {_describe(x)} may not have landed"
        if x.waited is None:
            problem = f"{what}: no wait covers it"
        else:
            problem = f"{what} for every wave: its wait ({x.waited.where}) comes too late"
        if where is None:
            return _error(y, problem, "deepen the ring, or put the copy a stage earlier: no barrier that both wave "
                          "groups pass lies between the two")
        return _error(y, problem, f"the copy must be committed, and a wait that covers it must stand {where}")
    problem = f"{_verb(y)} {y.region} while the other wave group may still be at the {_describe(x)}"
    remedy = "deepen the ring by one slot, or move one of the two so that both wave groups pass a barrier between them"
    return _error(y, problem, remedy)


def _deadline(x: Event, limit: int) -> str | None:
    """Where the wait for ``x`` has to stand: before the last barrier that is early enough."""
    fitting = [op for op, epochs in x.barriers if max(epochs) < limit]
    if not fitting:
        return None
    edge = fitting[-1].attributes.get(EDGE)
    return f"before the barrier {edge.strip(chr(34))}" if edge else f"before the barrier at {fitting[-1].where}"


def _verb(event: Event) -> str:
    return {
        Access.ASYNC_WRITE: "it refills",
        Access.WRITE: "it stores to",
        Access.READ: "it reads",
        Access.RELAXED_READ: "it reads",
    }[event.access]


def _stage_name(anchor: Op | None) -> str:
    if anchor is None:
        return "outside the stages"
    label = anchor.attributes[BEGIN].strip('"')
    return f"in stage {label!r}" if label else "in a stage without label"


def _describe(event: Event) -> str:
    return f"{event.access.value} {event.region} {_stage_name(event.stage)} ({event.op.where})"


def _error(event: Event, problem: str, remedy: str) -> ProtocolError:
    label = event.stage.attributes[BEGIN].strip('"') if event.stage is not None else ""
    construct = f"warp_pipeline_stage {label!r}" if event.stage is not None else event.op.name
    return ProtocolError(problem, remedy=remedy, construct=construct, where=event.op.where, pass_name=PASS)
