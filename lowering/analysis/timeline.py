"""A bounded walk of a kernel as its two wave groups run it: LDS accesses with the barriers before and after each.

Both groups run the same program, except that a conditional barrier is executed by one of them. The k-th barrier that
one group executes meets the k-th of the other. So an access is described by two *epochs* per group: how many barriers
that group had executed when the access started, and how many when it was known to be finished. An access of group g is
over before one of group h starts if and only if ``finish[g] < start[h]``: some barrier lies between them. A barrier
that the walk does not know of makes nothing unsafe, as it only adds such order.

The walk runs scalar code (``scalars.py``), follows loops for every trip count up to a bound that covers each ring and
its edges (``horizon.py``), and follows both sides of a condition it cannot decide. What finishes an access:

* a copy into LDS: a wait that covers its commit group;
* a read or a store: the next fencing barrier (it waits for lgkmcnt). The MFMA that consumes a read does wait for it,
  but nothing keeps LLVM from moving that MFMA, and the wait with it, behind a plain barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..dialect import Kind, kind_of
from ..ir import Block, Op, Value
from .calls import touches_lds_anywhere
from .events import HIGH, LOW, NEVER, Epochs, Event, alike, is_fence, is_integer, next_op
from .lds import (
    ASYNC_WAITS,
    COMMITS,
    COUNTED_COPIES,
    PASS_ON,
    VIEWS,
    Access,
    NotFollowedError,
    OutOfRingError,
    Region,
    accesses,
    allocate,
    is_memdesc,
    touches_lds,
    uses_scratch,
    view,
)
from .pipelines import HIGH_WAVES, LOW_WAVES, PHASE, anchor_of
from .scalars import Lin, Scalar, Scalars, TooManyPathsError, add, difference
from .stock import Stock

MAX_STEPS = 200_000  # of one path; about a second
MAX_WALKED = 1_500_000  # of all paths of a kernel
MAX_BARRIERS = 256  # remembered after one access; of more, those in the middle are left out


Listener = Callable[["Walk", Event], None]


class Walk:
    """One path through a function.

    Args:
        program: the function.
        stock: what the compiler behind our passes makes of its waits.
        listener: called with each access as it starts, before it joins ``live``.
        scalars: the path's integers.
        trips: how many iterations, at most, a loop of unknown length is followed for.

    Attributes:
        live: accesses that some later one may still have to wait for.
        unfenced: accesses since the last fencing barrier, which is what stock barrier insertion looks at.
        seen_slots: (allocation, slot) pairs that something was written to.
    """

    def __init__(self, program: Program, stock: Stock, listener: Listener, scalars: Scalars, trips: int) -> None:
        self.program = program
        self.stock = stock
        self.listener = listener
        self.scalars = scalars
        self.trips = trips
        self.epochs: Epochs = (0, 0)
        self.stage: Op | None = None
        self.live: list[Event] = []
        self.unfenced: list[Event] = []
        self.seen_slots: set[tuple[Value, int | None]] = set()
        self._groups: list[int] = [0]  # copies in each commit group, the open one last
        self._cut_short = False
        self._ints: dict[Value, Scalar] = {}
        self._regions: dict[Value, Region] = {}
        self._tokens: dict[Value, int] = {}
        self._steps = 0

    def run(self) -> None:
        block: Block | None = self.program.function.regions[0].blocks[0]
        try:
            while block is not None:
                self._block(block)
                block = self._branch(block)
        except OutOfRingError:
            # a loop that is shorter than the kernel is made for is its caller's affair
            if not self._cut_short:
                raise

    def _branch(self, block: Block) -> Block | None:
        last = block.terminator
        if last is None or not last.successors:
            return None
        blocks = block.parent.blocks if block.parent is not None else []
        if any(blocks.index(target) <= blocks.index(block) for target in last.successors):
            raise NotFollowedError(last, "a loop is not in the form of scf.for")
        if last.name == "cf.br":
            target, values = last.successors[0], list(last.operands)
        elif last.name == "cf.cond_br":
            target, values = self._cond_branch(last)
        else:
            raise NotFollowedError(last, f"{last.name} is not followed")
        self._pass_on(values, target.args)
        return target

    def _cond_branch(self, op: Op) -> tuple[Block, list[Value]]:
        sizes = [int(n) for n in op.properties["operandSegmentSizes"].split(":")[1].strip(" >").split(",")]
        first = list(op.operands[1 : 1 + sizes[1]])
        taken = self._decide(op.operands[0])
        return (op.successors[0], first) if taken else (op.successors[1], list(op.operands[1 + sizes[1] :]))

    # ---- values

    def int_of(self, value: Value) -> Scalar:
        if value not in self._ints:
            self._ints[value] = self.scalars.fresh()
        return self.scalars.resolve(self._ints[value])

    def _decide(self, value: Value) -> bool:
        """A condition: known, or chosen once for this path."""
        condition = self.scalars.force(self.int_of(value))
        if isinstance(condition, Lin):
            answer = 1 - self.scalars.choices.pick(2)
            self.scalars.bind(condition, answer)
            return bool(answer)
        return bool(condition)

    def _pass_on(self, sources: Sequence[Value], targets: Sequence[Value]) -> None:
        """The targets become the sources, all at once."""
        known = [(self._regions.get(v), self._tokens.get(v), self.int_of(v)) for v in sources[: len(targets)]]
        self._forget(targets)
        for target, (region, token, number) in zip(targets, known, strict=True):
            self._ints[target] = number
            if region is not None:
                self._regions[target] = region
            if token is not None:
                self._tokens[target] = token

    def _forget(self, values: Sequence[Value]) -> None:
        for value in values:
            self._ints.pop(value, None)
            self._regions.pop(value, None)
            self._tokens.pop(value, None)

    # ---- ops

    def _block(self, block: Block) -> None:
        for step, op in self.program.steps(block):
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise NotFollowedError(op, f"it has more than {MAX_STEPS} operations on one path")
            self.program.walked += 1
            if self.program.walked > MAX_WALKED:
                raise TooManyPathsError
            step(self, op)

    def _anchor(self, op: Op) -> None:
        self.stage = op if anchor_of(op) == "begin" else None

    def _refuse(self, op: Op) -> None:
        raise NotFollowedError(op, f"{op.name} holds shared-memory operations")

    def _unknown(self, op: Op) -> None:
        self._forget(op.results)

    def _arithmetic(self, op: Op) -> None:
        name, predicate = self.program.arithmetic(op)
        operands = [self.int_of(value) for value in op.operands]
        if name == "arith.extsi" and op.operands[0].type == "i1":
            name, operands = "arith.subi", [0, *operands]  # true is -1
        self._ints[op.result] = self.scalars.apply(name, operands, predicate)

    def _constant(self, op: Op) -> None:
        text = op.properties.get("value", "").split(":")[0].strip()
        text = {"true": "1", "false": "0"}.get(text, text)
        if text.lstrip("-").isdigit():
            self._ints[op.result] = int(text)

    def _call(self, op: Op) -> None:
        if touches_lds_anywhere(op):
            raise NotFollowedError(op, "a function that is not inlined uses shared memory or waits")
        self._forget(op.results)

    def _alloc(self, op: Op) -> None:
        self._access(op)
        self._regions[op.result] = allocate(op)

    def _view(self, op: Op) -> None:
        source = self._regions.get(op.operands[0])
        if source is None:
            raise NotFollowedError(op, "which allocation the buffer is part of is not known")
        index = self.scalars.force(self.int_of(op.operands[1])) if op.name == "ttg.memdesc_index" else None
        self._regions[op.result] = view(op, source, index)

    def _access(self, op: Op) -> None:
        for access, region in accesses(op, self._regions):
            self._start(op, access, region)
        self._forget(op.results)

    def _scratch(self, op: Op) -> None:
        self.listener(self, Event(op, Access.WRITE, None, self.stage, self.epochs))
        self._access(op)

    def _start(self, op: Op, access: Access, region: Region) -> None:
        event = Event(op, access, region, self.stage, self.epochs)
        if op.name in COUNTED_COPIES:
            event.group = len(self._groups) - 1
            self._groups[-1] += 1
        self.listener(self, event)
        event.start = self.epochs  # the listener may have put a barrier first
        # of two alike that are both under way, the later one has the stricter demands
        now = min(self.epochs)
        self.live = [e for e in self.live if max(e.finish) >= now and not (e.finish == NEVER and alike(e, event))]
        self.live.append(event)
        self.unfenced = [e for e in self.unfenced if not alike(e, event)]
        self.unfenced.append(event)
        if access.writes:
            self.seen_slots.add((region.alloc, region.slot))

    # ---- synchronisation

    def _commit(self, op: Op) -> None:
        self._tokens.update(dict.fromkeys(op.results, len(self._groups) - 1))
        self._groups.append(0)

    def _wait(self, op: Op) -> None:
        outstanding = int(op.properties.get("num", "0").split(":")[0])
        covered = len(self._groups) - 1 - outstanding
        if op.operands:  # tokens take precedence over the number
            tokens = [self._tokens.get(value) for value in op.operands]
            covered = max((token + 1 for token in tokens if token is not None), default=0)
        void = covered > 0 and self._groups[covered - 1] == 0 and not self.stock.waits_past_empty
        for event in self.live:
            if event.group is not None and event.group < covered and event.finish == NEVER:
                event.waited = op
                if not void:
                    event.finish = self.epochs
        following = next_op(op)
        if self.stage is None and (following is None or kind_of(following) not in (Kind.WAIT, Kind.BARRIER)):
            self.fence()  # stock code generation puts a barrier after a wait that has none

    def _barrier(self, op: Op) -> None:
        if op.name == "amdg.cond_barrier":
            phase = op.attributes.get(PHASE)
            if phase not in (LOW_WAVES, HIGH_WAVES):
                raise NotFollowedError(op, "the kernel has a conditional barrier of its own")
            self._arrive((1, 0) if phase == LOW_WAVES else (0, 1))
            return
        if op.name not in ("rocdl.s.barrier", "ttg.barrier", "gpu.barrier", "rocdl.barrier"):
            raise NotFollowedError(op, f"{op.name} is not followed")
        for event in {*self.live, *self.unfenced}:
            event.barriers.append((op, self.epochs))
            if len(event.barriers) > MAX_BARRIERS:
                del event.barriers[MAX_BARRIERS // 4 : -MAX_BARRIERS // 4]
        if is_fence(op):
            self.fence()
        else:
            self._arrive((1, 1))

    def fence(self) -> None:
        """A barrier that waits for the LDS operations of its wave (lgkmcnt), all groups."""
        self.unfenced = []
        for event in self.live:
            if event.access is not Access.ASYNC_WRITE and event.finish == NEVER:
                event.finish = self.epochs
        self._arrive((1, 1))

    def _arrive(self, step: Epochs) -> None:
        self.epochs = (self.epochs[LOW] + step[LOW], self.epochs[HIGH] + step[HIGH])

    # ---- control flow

    def _execute_region(self, op: Op) -> None:
        self._inside(op.regions[0].block, op.results)

    def _inside(self, body: Block, results: Sequence[Value]) -> None:
        self._block(body)
        last = body.terminator
        self._pass_on(last.operands if last is not None else (), results)

    def _if(self, op: Op) -> None:
        if not self.program.matters(op) and not any(is_integer(r.type) or is_memdesc(r.type) for r in op.results):
            self._forget(op.results)
            return
        taken = op.regions[0 if self._decide(op.operands[0]) else 1]
        if taken.blocks:
            self._inside(taken.block, op.results)

    def _for(self, op: Op) -> None:
        body = op.regions[0].block
        if not self.program.matters(op):
            self._forget(op.results)
            return
        lower, upper, step = (self.int_of(value) for value in op.operands[:3])
        self._pass_on(op.operands[3:], body.args[1:])
        for i in range(self._trip_count(op, lower, upper, step)):
            self._ints[body.args[0]] = add(lower, i * step) if isinstance(step, int) else self.scalars.fresh()
            self._inside(body, body.args[1:])
        self._pass_on(body.args[1:], op.results)

    def _trip_count(self, op: Op, lower: Scalar, upper: Scalar, step: Scalar) -> int:
        distance = difference(upper, lower)
        if not isinstance(step, int) or step <= 0:
            return self.scalars.choices.pick(self.trips + 1)
        if distance is not None:
            return max(0, -(-distance // step))
        most = 2 if self.program.holds_pipelines(op) else self.trips
        pick = self.scalars.choices.pick(most + 1 + self.trips // 2)
        # the picks past the last count are the ways of running no iteration: upper is at or below lower
        reach = pick if pick <= most else most - pick
        self._cut_short = self._cut_short or reach < 0
        distance = reach * step
        if step > 1 and reach > 0:
            distance -= self.scalars.choices.pick(2)  # the last iteration may be a part of a step
        if isinstance(upper, Lin):
            self.scalars.bind(upper, add(lower, distance))
        elif isinstance(lower, Lin):
            self.scalars.bind(lower, upper - distance)
        return max(0, reach)


Step = Callable[[Walk, Op], None]
_STEPS: dict[str, Step] = {
    "arith.constant": Walk._constant,
    "scf.for": Walk._for,
    "scf.if": Walk._if,
    "scf.execute_region": Walk._execute_region,
    "ttg.local_alloc": Walk._alloc,
    "tt.call": Walk._call,
    **dict.fromkeys(VIEWS, Walk._view),
    **dict.fromkeys(COMMITS, Walk._commit),
    **dict.fromkeys(ASYNC_WAITS, Walk._wait),
}


class Program:
    """A function and what each of its ops means to a walk, looked up once for all paths.

    Attributes:
        walked: ops that the walks so far looked at.
    """

    def __init__(self, function: Op) -> None:
        self.function = function
        self.walked = 0
        self._blocks: dict[Block, list[tuple[Step, Op]]] = {}
        self._arithmetic: dict[Op, tuple[str, str]] = {}
        self._matters: dict[Op, bool] = {}
        self._pipelines: dict[Op, bool] = {}

    def steps(self, block: Block) -> list[tuple[Step, Op]]:
        """The ops that a walk has to look at, each with what it does there."""
        if block not in self._blocks:
            self._blocks[block] = [(step, op) for op in block.ops if (step := self._step(op)) is not None]
        return self._blocks[block]

    def arithmetic(self, op: Op) -> tuple[str, str]:
        """Name and predicate of an integer op."""
        if op not in self._arithmetic:
            self._arithmetic[op] = op.name, op.properties.get("predicate", "").split(":")[0].strip()
        return self._arithmetic[op]

    def matters(self, op: Op) -> bool:
        """Whether something in the regions of ``op`` touches shared memory or belongs to a stage."""
        if op not in self._matters:
            inside = (inner for inner in op.walk() if inner is not op)
            self._matters[op] = any(touches_lds(inner) or anchor_of(inner) for inner in inside)
        return self._matters[op]

    def holds_pipelines(self, loop: Op) -> bool:
        """Whether stages stand somewhere in the loop other than right in its body."""
        if loop not in self._pipelines:
            body = loop.regions[0].block
            self._pipelines[loop] = any(anchor_of(inner) for inner in loop.walk() if inner.parent is not body)
        return self._pipelines[loop]

    def _step(self, op: Op) -> Step | None:
        if anchor_of(op):
            return Walk._anchor
        if op.name in _STEPS:
            return _STEPS[op.name]
        if kind_of(op) is Kind.BARRIER:
            return Walk._barrier
        if op.regions and self.matters(op):
            return Walk._refuse
        if uses_scratch(op):
            return Walk._scratch
        if any(is_memdesc(value.type) for value in op.operands) and op.name not in PASS_ON:
            return Walk._access
        if len(op.results) == 1 and op.name.startswith("arith.") and is_integer(op.result.type):
            return Walk._arithmetic
        known = any(is_integer(r.type) or is_memdesc(r.type) or r.type.startswith("!ttg.async") for r in op.results)
        return Walk._unknown if known else None
