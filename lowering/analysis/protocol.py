"""The protocol check: no wave may touch an LDS slot that another may still be filling, reading or storing to.

The rules, on the epochs of ``timeline.py``; ``x`` comes before ``y`` in the program, both touch overlapping parts of
one allocation (or of two that may share memory), and at least one of them writes:

=====================  =========================================================================================
x copy, y any          the wait that covers x stands before a barrier that both groups pass before y starts
x read, y copy/store   a fence stands on the way, and both groups pass it before y starts
x store, y any         as x read, y copy/store
y read in a stage      something was written to that slot on every path
=====================  =========================================================================================

and no two accesses that stock barrier insertion would separate (``stock.py``) may be left without a fence inside a
pipeline, or it would put its barrier inside a stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from amdwarp.errors import ProtocolError
from amdwarp.stage import BEGIN

from .. import bridge
from ..ir import Op
from .events import NEVER, Event, is_fence
from .horizon import horizon
from .lds import Access, NotFollowedError, OutOfRingError, site
from .lifetimes import Lifetimes
from .pipelines import text_of
from .scalars import Scalars, TooManyPathsError, paths
from .stock import Hazard, Stock, stock_of
from .timeline import Program, Walk

PASS = "check_protocol"
EDGE = "amdwarp.edge"
MAX_PATHS = 4000


def check_function(function: Op, version: tuple[int, int] | None = None) -> set[Op]:
    """Check a lowered function whose stage anchors still stand.

    Args:
        version: (major, minor) of the Triton that will compile it, the installed one by default.

    Returns:
        Plain barriers that have to become fences for the rules to hold; empty when they hold as it is.

    Raises:
        ProtocolError: a dependence that no fence can mend.
    """
    stock = stock_of(version or bridge.triton_version())
    check = _Check(stock, Lifetimes(function))
    try:
        trips = horizon(function)
        program = Program(function)
        for choices in paths(MAX_PATHS):
            Walk(program, stock, check.on_access, Scalars(choices, trips // 2), trips).run()
    except NotFollowedError as error:
        outside = isinstance(error, OutOfRingError)
        raise _refusal(
            error.why if outside else f"the shared-memory use of this kernel cannot be checked: {error.why}",
            "" if outside else "keep shared memory, waits and barriers in straight code, scf.for and scf.if",
            site(error.op),
        ) from None
    except TooManyPathsError:
        raise _refusal(
            f"the kernel has more distinct paths through its shared-memory use than can be followed ({MAX_PATHS})",
            "use fewer conditions and unknown ring positions around the staged loop",
            function.where,
        ) from None
    return _fewest(check.needs, {op: i for i, op in enumerate(function.walk())})


def _fewest(needs: set[frozenset[Op]], position: dict[Op, int]) -> set[Op]:
    """A small set of barriers that has one of each need: the one that most needs have first, of equals the latest."""
    chosen: set[Op] = set()
    while left := [need for need in needs if not need & chosen]:
        counts = Counter(op for need in left for op in need)
        chosen.add(max(counts, key=lambda op: (counts[op], position[op])))
    return chosen


def _refusal(problem: str, remedy: str, where: str | None) -> ProtocolError:
    return ProtocolError(problem, remedy=remedy, construct="warp_pipeline_stage", where=where, pass_name=PASS)


@dataclass
class _Check:
    """The rules, applied to the accesses of one path after the other.

    Attributes:
        needs: sets of plain barriers, of each of which one must become a fence.
    """

    stock: Stock
    lifetimes: Lifetimes
    needs: set[frozenset[Op]] = field(default_factory=set)

    def on_access(self, walk: Walk, event: Event) -> None:
        if event.region is None:
            self._scratch(walk, event)
            return
        if event.stage is None:
            self._stock_fence(walk, event)
        self._rules(walk, event)
        if event.stage is not None:
            self._stock_barrier(walk, event)

    def _rules(self, walk: Walk, event: Event) -> None:
        limit = min(walk.epochs)
        for earlier in walk.live:
            if max(earlier.finish) < limit or not self._conflict(earlier, event) or self._left_to_stock(earlier, event):
                continue
            barriers = _mending_barriers(earlier, limit)
            if not barriers:
                raise _violation(earlier, event, limit)
            self.needs.add(barriers)
        if event.stage is not None and not event.access.writes:
            _check_filled(walk, event)

    def _scratch(self, walk: Walk, event: Event) -> None:
        """Scratch memory may lie over a dead buffer; stock barriers order it, except after copies under way."""
        for earlier in walk.live:
            under_way = earlier.access is Access.ASYNC_WRITE and earlier.finish == NEVER
            if under_way and earlier.region is not None and self.lifetimes.dead_at(event.op, earlier.region.alloc):
                raise _error(
                    event,
                    f"its scratch memory may lie over {earlier.region.name}, which is not used any more, while the "
                    f"{_describe(earlier)} may not have landed",
                    "wait for the last copies, or make none that nothing reads",
                )

    def _conflict(self, x: Event, y: Event) -> bool:
        assert x.region is not None and y.region is not None
        if not (x.access.writes or y.access.writes):
            return False
        if x.region.alloc is y.region.alloc:
            return x.region.overlaps(y.region)
        return self.lifetimes.apart(x.region.alloc, y.region.alloc)

    def _left_to_stock(self, x: Event, y: Event) -> bool:
        """Before an access outside of every pipeline stock barrier insertion fences, for what it sees, all waves."""
        return y.stage is None and x.access is not Access.ASYNC_WRITE and self.stock.sees(x.access, y.access)

    def _hazards(self, walk: Walk, event: Event) -> Iterator[tuple[Event, Hazard]]:
        """Accesses since the last fence that stock barrier insertion may put one between."""
        for earlier in walk.unfenced:
            assert earlier.region is not None and event.region is not None
            same = earlier.region.alloc is event.region.alloc
            meets = same and earlier.region.meets(event.region)
            share = not same and self.lifetimes.apart(earlier.region.alloc, event.region.alloc)
            hazard = self.stock.hazard(earlier.access, event.access, same, meets, share)
            if hazard is not Hazard.NONE:
                yield earlier, hazard

    def _stock_fence(self, walk: Walk, event: Event) -> None:
        """Outside of the stages stock barrier insertion puts a fence where it is sure to find a reason."""
        if any(hazard is Hazard.SURE for _, hazard in self._hazards(walk, event)):
            walk.fence()

    def _stock_barrier(self, walk: Walk, event: Event) -> None:
        """Inside of a stage it must find no reason to put a barrier."""
        for earlier, hazard in self._hazards(walk, event):
            plain = frozenset(op for op, _ in earlier.barriers if not is_fence(op))
            if plain:
                self.needs.add(plain)
            elif hazard is Hazard.SURE:
                # where it may find that the two are apart, the produced text tells (membar.py)
                raise _error(
                    event,
                    f"{event.op.name} needs a barrier inside the stage: the {_describe(earlier)} is of the same memory",
                    "put the two in different stages, or use one allocation for each and loads marked as synchronised "
                    "(load_shared_relaxed)",
                )


def _check_filled(walk: Walk, event: Event) -> None:
    region = event.region
    assert region is not None
    filled = {slot for alloc, slot in walk.seen_slots if alloc is region.alloc}
    if not filled or (region.slot is not None and not filled & {region.slot, None}):
        raise _error(
            event,
            f"{region} is read before anything was copied into it",
            "fill every ring slot that the first iterations read before the loop",
        )


def _mending_barriers(event: Event, limit: int) -> frozenset[Op]:
    """The plain barriers of which any, made a fence, would finish ``event`` in time; a copy needs a wait instead."""
    if event.access is Access.ASYNC_WRITE:
        return frozenset()
    return frozenset(op for op, epochs in event.barriers if not is_fence(op) and max(epochs) < limit)


def _violation(x: Event, y: Event, limit: int) -> ProtocolError:
    if x.access is Access.ASYNC_WRITE:
        return _late_copy(x, y, limit)
    if not x.barriers:
        problem = f"{_verb(y)} {y.region} with no barrier since the {_describe(x)}, which other waves may still be at"
        remedy = "deepen the ring by one slot, or let the two stand in different stages"
        if x.op.name == "ttg.local_alloc":
            remedy = "an operand that Triton itself passes through shared memory cannot be staged: fill a ring of "
            remedy += "buffers in one stage and read it in another, in Gluon"
        return _error(y, problem, remedy)
    problem = f"{_verb(y)} {y.region} while the other wave group may still be at the {_describe(x)}"
    return _error(
        y,
        problem,
        f"both wave groups must have passed the barrier {_place(x.barriers[0][0])} before it starts: deepen the ring "
        "by one slot, or let this access stand a stage later",
    )


def _late_copy(x: Event, y: Event, limit: int) -> ProtocolError:
    what = f"{_verb(y)} {y.region} while the {_describe(x)} may not have landed"
    if x.waited is None:
        problem = f"{what}: no wait covers it"
    elif x.finish == NEVER:
        problem = f"{what}: its wait ({x.waited.where}) waits for nothing, as the newest group that it covers is empty"
        return _error(y, problem, "commit no group without a copy in it; Triton before 3.9 does not wait past one")
    else:
        problem = f"{what} for every wave: its wait ({x.waited.where}) comes too late"
    fitting = [op for op, epochs in x.barriers if max(epochs) < limit]
    if fitting:
        need = (
            f"the copy must be committed, and a wait that covers it must stand before the barrier {_place(fitting[-1])}"
        )
    else:
        need = "no barrier that both wave groups pass lies between: deepen the ring, or put the copy a stage earlier"
    return _error(y, problem, need)


def _place(barrier: Op) -> str:
    edge = barrier.attributes.get(EDGE)
    return text_of(edge) if edge else f"at {barrier.where}"


def _verb(event: Event) -> str:
    return {Access.ASYNC_WRITE: "it refills", Access.WRITE: "it stores to"}.get(event.access, "it reads")


def _stage_name(anchor: Op | None) -> str:
    if anchor is None:
        return "outside the stages"
    label = text_of(anchor.attributes[BEGIN])
    return f"in stage {label!r}" if label else "in a stage without label"


def _describe(event: Event) -> str:
    return f"{event.access.value} {event.region} {_stage_name(event.stage)} ({site(event.op)})"


def _error(event: Event, problem: str, remedy: str) -> ProtocolError:
    label = text_of(event.stage.attributes[BEGIN]) if event.stage is not None else ""
    construct = f"warp_pipeline_stage {label!r}" if event.stage is not None else event.op.name
    return ProtocolError(problem, remedy=remedy, construct=construct, where=site(event.op), pass_name=PASS)
