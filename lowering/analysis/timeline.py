"""A bounded walk of a kernel as its two wave groups run it: LDS accesses with the barriers before and after each.

Both groups run the same program, except that a conditional barrier is executed by one of them. The k-th barrier that
one group executes meets the k-th of the other. So an access is described by two *epochs* per group: how many barriers
that group had executed when the access started, and how many when it was known to be finished. An access of group g is
over before one of group h starts if and only if ``finish[g] < start[h]``: some barrier lies between them.

The walk runs scalar code (``scalars.py``), follows loops for every trip count up to a bound that covers each ring and
its edges, and follows both sides of a condition it cannot decide. What finishes an access:

* a copy into LDS: a wait that covers its commit group;
* a read: the next fencing barrier (it waits for lgkmcnt), or the MFMA that consumes the data;
* a store: the next fencing barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..dialect import Kind, kind_of
from ..ir import Block, Op, Value
from .lds import ASYNC_WAITS, COMMITS, SCRATCH, VIEWS, Access, Region, accesses, allocate, shape_of, view
from .pipelines import anchor_of
from .scalars import Lin, Scalar, Scalars, add, difference

Epochs = tuple[int, int]
NEVER: Epochs = (1 << 60, 1 << 60)
LOW, HIGH = 0, 1
MAX_STEPS = 200_000
PLAIN_BARRIERS = ("rocdl.s.barrier",)


class NotFollowedError(Exception):
    """The walk met something it cannot run; carries the op."""

    def __init__(self, op: Op, why: str) -> None:
        super().__init__(why)
        self.op = op
        self.why = why


@dataclass(eq=False)
class Event:
    """One LDS access on one path.

    Attributes:
        op: the op that makes it.
        access, region: what it does, and where.
        stage: opening anchor of the stage it is in, or None outside of every pipeline.
        start, finish: epochs of the two groups.
        group: index of its commit group, for a copy.
        barriers: barriers that all waves passed since, each with the epochs before it.
        waited: the wait that finished it, for a copy.
    """

    op: Op
    access: Access
    region: Region
    stage: Op | None
    start: Epochs
    finish: Epochs = NEVER
    group: int | None = None
    barriers: list[tuple[Op, Epochs]] = field(default_factory=list)
    waited: Op | None = None


Listener = Callable[["Walk", Event], None]


class Walk:
    """One path through a function.

    Args:
        listener: called with each access as it starts, before it joins ``live``.
        scalars: the path's integers.
        trips: how many iterations, at most, a loop of unknown length is followed for.

    Attributes:
        live: accesses that some later one may still have to wait for.
        unfenced: accesses since the last fencing barrier, which is what stock barrier insertion looks at.
        seen_slots: (allocation, slot) pairs that something was written to.
    """

    def __init__(self, listener: Listener, scalars: Scalars, trips: int) -> None:
        self.listener = listener
        self.scalars = scalars
        self.trips = trips
        self.epochs: Epochs = (0, 0)
        self.stage: Op | None = None
        self.live: list[Event] = []
        self.unfenced: list[Event] = []
        self.seen_slots: set[tuple[Value, int | None]] = set()
        self.committed = 0
        self._ints: dict[Value, Scalar] = {}
        self._regions: dict[Value, Region] = {}
        self._reads: dict[Value, frozenset[Event]] = {}
        self._steps = 0
        self._handlers: dict[str, Callable[[Op], None]] = {
            "arith.constant": self._constant,
            "scf.for": self._for,
            "scf.if": self._if,
            "scf.execute_region": self._execute_region,
            "ttg.local_alloc": self._alloc,
        }

    def run(self, function: Op) -> None:
        block: Block | None = function.regions[0].blocks[0]
        while block is not None:
            self._block(block)
            block = self._branch(block)

    def _branch(self, block: Block) -> Block | None:
        last = block.terminator
        if last is None or not last.successors:
            return None
        if last.name == "cf.br":
            target, values = last.successors[0], last.operands
        elif last.name == "cf.cond_br":
            target, values = self._cond_branch(last)
        else:
            raise NotFollowedError(last, "the branch cannot be followed")
        for arg, value in zip(target.args, values, strict=True):
            self._copy(value, arg)
        return target

    def _cond_branch(self, op: Op) -> tuple[Block, Sequence[Value]]:
        sizes = [int(n) for n in op.properties["operandSegmentSizes"].split(":")[1].strip(" >").split(",")]
        condition = self.int_of(op.operands[0])
        taken = bool(condition) if isinstance(condition, int) else self.scalars.choices.pick(2) == 0
        first = op.operands[1 : 1 + sizes[1]]
        return (op.successors[0], first) if taken else (op.successors[1], op.operands[1 + sizes[1] :])

    # ---- values

    def int_of(self, value: Value) -> Scalar:
        if value not in self._ints:
            self._ints[value] = self.scalars.fresh()
        return self.scalars.resolve(self._ints[value])

    def _copy(self, source: Value, target: Value) -> None:
        for table in (self._regions, self._reads):
            table.pop(target, None)  # type: ignore[attr-defined]
        if source in self._regions:
            self._regions[target] = self._regions[source]
        if source in self._reads:
            self._reads[target] = self._reads[source]
        self._ints[target] = self.int_of(source)

    # ---- ops

    def _block(self, block: Block) -> None:
        for op in block.ops:
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise NotFollowedError(op, f"more than {MAX_STEPS} operations on one path")
            self._op(op)

    def _op(self, op: Op) -> None:
        anchor = anchor_of(op)
        if anchor:
            self.stage = op if anchor == "begin" else None
            return
        if op.name in self._handlers:
            self._handlers[op.name](op)
        elif op.name in VIEWS:
            self._view(op)
        elif op.name in COMMITS:
            self._commit()
        elif op.name in ASYNC_WAITS:
            self._wait(op)
        elif kind_of(op) is Kind.BARRIER:
            self._barrier(op)
        elif op.regions and any(touches_lds(inner) for inner in op.walk()):
            raise NotFollowedError(op, f"{op.name} holds shared-memory operations")
        else:
            self._plain(op)

    def _plain(self, op: Op) -> None:
        self._access(op)
        if kind_of(op) is Kind.MFMA:
            for value in op.operands:
                for event in self._reads.get(value, ()):
                    event.finish = min(event.finish, self.epochs)
        reads = frozenset(e for value in op.operands for e in self._reads.get(value, ()))
        for result in op.results:
            self._ints.pop(result, None)
            if reads and kind_of(op) is not Kind.MFMA:
                self._reads[result] = self._reads.get(result, frozenset()) | reads
        if len(op.results) == 1 and op.name.startswith("arith.") and _is_integer(op.result.type):
            predicate = op.properties.get("predicate", "").split(":")[0].strip()
            operands = [self.int_of(value) for value in op.operands]
            self._ints[op.result] = self.scalars.apply(op.name, operands, predicate)

    def _constant(self, op: Op) -> None:
        text = op.properties.get("value", "").split(":")[0].strip()
        text = {"true": "1", "false": "0"}.get(text, text)
        if text.lstrip("-").isdigit():
            self._ints[op.result] = int(text)

    def _alloc(self, op: Op) -> None:
        self._regions[op.result] = allocate(op)
        self._access(op)

    def _view(self, op: Op) -> None:
        source = self._regions.get(op.operands[0])
        if source is None:
            raise NotFollowedError(op, "the shared-memory view has an unknown source")
        index = self.int_of(op.operands[1]) if op.name == "ttg.memdesc_index" else None
        self._regions[op.result] = view(op, source, index)

    def _access(self, op: Op) -> None:
        if op.name in SCRATCH:
            self._start(op, Access.WRITE, Region(op.results[0], "scratch memory"))
            return
        for access, region in accesses(op, self._regions):
            event = self._start(op, access, region)
            if not access.writes and op.results:
                self._reads[op.results[0]] = frozenset((event,))

    def _start(self, op: Op, access: Access, region: Region) -> Event:
        event = Event(op, access, region, self.stage, self.epochs)
        if access is Access.ASYNC_WRITE:
            event.group = self.committed
        self.listener(self, event)
        event.start = self.epochs  # the listener may have put a barrier first
        self.live = [e for e in self.live if not all(c < min(self.epochs) for c in e.finish)]
        self.live.append(event)
        self.unfenced.append(event)
        if access.writes:
            self.seen_slots.add((region.alloc, region.slot))
        return event

    # ---- synchronisation

    def _commit(self) -> None:
        self.committed += 1

    def _wait(self, op: Op) -> None:
        outstanding = int(op.properties.get("num", "0").split(":")[0])
        for event in self.live:
            if event.group is not None and event.group < self.committed - outstanding and event.finish == NEVER:
                event.finish = self.epochs
                event.waited = op
        following = _next_op(op)
        if self.stage is None and (following is None or kind_of(following) not in (Kind.WAIT, Kind.BARRIER)):
            self.fence()  # stock code generation puts a barrier after a wait that has none

    def _barrier(self, op: Op) -> None:
        if op.name == "amdg.cond_barrier":
            self._arrive((int(self._is_low(op)), int(not self._is_low(op))))
            return
        for event in {*self.live, *self.unfenced}:
            event.barriers.append((op, self.epochs))
        if op.name in PLAIN_BARRIERS:
            self._arrive((1, 1))
        else:
            self.fence()

    def fence(self) -> None:
        """A barrier that waits for the LDS operations of its wave (lgkmcnt), all groups."""
        self.unfenced = []
        for event in self.live:
            if event.access is not Access.ASYNC_WRITE and event.finish == NEVER:
                event.finish = self.epochs
        self._arrive((1, 1))

    def _arrive(self, step: Epochs) -> None:
        self.epochs = (self.epochs[LOW] + step[LOW], self.epochs[HIGH] + step[HIGH])

    def _is_low(self, op: Op) -> bool:
        comparison = op.operands[0].op
        if comparison is None or comparison.name != "arith.cmpi":
            raise NotFollowedError(op, "the condition of the barrier is not a comparison of the wave group with 0")
        return comparison.properties["predicate"].split(":")[0].strip() == "0"

    # ---- control flow

    def _yield_to(self, block: Block, targets: Sequence[Value]) -> None:
        last = block.terminator
        values = last.operands if last is not None else ()
        sources = [(self._regions.get(v), self._reads.get(v), self.int_of(v)) for v in values]
        for target, (region, reads, number) in zip(targets, sources, strict=False):
            self._ints[target] = number
            for table, entry in ((self._regions, region), (self._reads, reads)):
                if entry is None:
                    table.pop(target, None)  # type: ignore[attr-defined]
                else:
                    table[target] = entry  # type: ignore[index]

    def _execute_region(self, op: Op) -> None:
        body = op.regions[0].block
        self._block(body)
        self._yield_to(body, op.results)

    def _if(self, op: Op) -> None:
        relevant = any(touches_lds(inner) or anchor_of(inner) for inner in op.walk() if inner is not op)
        condition = self.int_of(op.operands[0])
        if not isinstance(condition, int):
            if not relevant and not any(_is_integer(r.type) or "memdesc" in r.type for r in op.results):
                self._skip(op)
                return
            condition = 1 - self.scalars.choices.pick(2)
        taken = op.regions[0] if condition else op.regions[1]
        if taken.blocks:
            self._block(taken.block)
            self._yield_to(taken.block, op.results)

    def _skip(self, op: Op) -> None:
        for result in op.results:
            self._ints.pop(result, None)
            self._reads.pop(result, None)

    def _for(self, op: Op) -> None:
        body = op.regions[0].block
        if not any(touches_lds(inner) or anchor_of(inner) for inner in body.walk()):
            self._skip(op)
            return
        lower, upper, step = (self.int_of(value) for value in op.operands[:3])
        initial = op.operands[3:]
        for target, value in zip(body.args[1:], initial, strict=True):
            self._copy(value, target)
        count = self._trip_count(op, lower, upper, step)
        for i in range(count):
            distance = i * step if isinstance(step, int) else 0
            self._ints[body.args[0]] = add(lower, distance) if isinstance(step, int) else self.scalars.fresh()
            self._block(body)
            self._yield_to(body, body.args[1:])
        for target, value in zip(op.results, body.args[1:], strict=True):
            self._copy(value, target)

    def _trip_count(self, op: Op, lower: Scalar, upper: Scalar, step: Scalar) -> int:
        distance = difference(upper, lower)
        if isinstance(step, int) and step > 0:
            if distance is not None:
                return max(0, -(-distance // step))
            nested = any(anchor_of(inner) for inner in op.walk() if inner.parent is not op.regions[0].block)
            most = 2 if nested else self.trips
            pick = self.scalars.choices.pick(most + 1 + self.trips // 2)
            # the picks past the last count are the ways of running no iteration: upper is at or below lower
            reach = pick if pick <= most else most - pick
            if isinstance(upper, Lin):
                self.scalars.bind(upper, add(lower, reach * step))
            elif isinstance(lower, Lin):
                self.scalars.bind(lower, upper - reach * step)
            return max(0, reach)
        return self.scalars.choices.pick(self.trips + 1)


def touches_lds(op: Op) -> bool:
    """Whether an op reads, writes, views or orders shared memory."""
    if op.name in (*VIEWS, *COMMITS, *ASYNC_WAITS, *SCRATCH) or kind_of(op) is Kind.BARRIER:
        return True
    return any("!ttg.memdesc" in value.type for value in (*op.operands, *op.results))


def ring_depth(function: Op) -> int:
    """The largest leading dimension of an allocation that is indexed, at least 1."""
    depths = [1]
    for op in function.walk():
        if op.name == "ttg.memdesc_index":
            depths.append(shape_of(op.operands[0].type)[0])
    return max(depths)


def _is_integer(type_text: str) -> bool:
    return type_text == "index" or (type_text[:1] == "i" and type_text[1:].isdigit())


def _next_op(op: Op) -> Op | None:
    """The next op in the block that is not arithmetic or a scheduling wall."""
    block = op.block
    for following in block.ops[block.index(op) + 1 :]:
        if following.name.startswith(("rocdl.sched", "rocdl.s.setprio", "arith.")):
            continue
        return following
    return None
