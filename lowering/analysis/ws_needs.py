"""What a thread's share of a loop needs: which loop-carried values for each offset, and which values from outside.

Steps at different offsets are at different iterations at once, so each offset has the loop-carried values it needs for
itself. A value that an op at a lower offset computes is carried until the op that uses it is at the same iteration.
Values of ops never cross from one role to another: that is what pipelines are for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..ir import Block, Op, Value
from .ws_kernel import WSKernel, WSRegion
from .ws_program import Act, Thread


@dataclass
class LoopNeeds:
    """
    Attributes:
        args: offset -> positions of the loop-carried values that its steps need, in ascending order.
        results: position of a loop result -> the offset whose steps compute it.
        outer: values from outside of the loop.
        carried: value of an op -> the offset that computes it, and the most iterations until it is used.
    """

    args: dict[int, list[int]] = field(default_factory=dict)
    results: dict[int, int] = field(default_factory=dict)
    outer: dict[Value, None] = field(default_factory=dict)
    carried: dict[Value, tuple[int, int]] = field(default_factory=dict)


def loop_of(kernel: WSKernel, scope: str) -> tuple[WSRegion, Op, Block]:
    """A scope's region, its loop and the loop's body."""
    region = kernel.regions[scope]
    assert region.loop is not None
    return region, region.loop, region.loop.regions[0].block


def free_operands(ops: Iterable[Op]) -> Iterator[Value]:
    """Values that the ops, with all that is inside them, take from outside."""
    todo = list(ops)
    inside = {op for one in todo for op in one.walk()}
    for op in inside:
        for value in op.operands:
            owner = value.op
            around = value.block.parent_op if owner is None and value.block is not None else None
            if owner not in inside and around not in inside:
                yield value


def loop_needs(kernel: WSKernel, thread: Thread, scope: str) -> LoopNeeds:
    """What the thread's steps in a scope's loop need.

    Raises:
        LoweringError: a value of an op that this thread does not run at the same offset.
    """
    _, loop, body = loop_of(kernel, scope)
    steps = thread.bodies.get(scope, [])
    needs = LoopNeeds()
    offset_of = {step.id: step.offset for step in steps if step.act is Act.RUN}
    for offset in sorted({step.offset for step in steps}):
        mine = {step.id for step in steps if step.act is Act.RUN and step.offset == offset}
        roots = [v for id in mine for v in _roots(kernel, thread, id)]
        needs.args[offset] = sorted(_close(kernel, body, roots, offset, offset_of, needs, mine))
    _results(kernel, loop, body, offset_of, needs)
    for position in {p for positions in needs.args.values() for p in positions}:
        needs.outer[loop.operands[3 + position]] = None
    for bound in loop.operands[:3]:
        needs.outer[bound] = None
    return needs


def _roots(kernel: WSKernel, thread: Thread, id: str) -> Iterator[Value]:
    region = kernel.regions[id]
    if region.loop is not None:
        if thread.bodies.get(id):
            yield from loop_needs(kernel, thread, id).outer
    else:
        yield from free_operands(region.ops)
    for guard, _ in region.guards:
        yield guard.operands[0]


def _close(
    kernel: WSKernel,
    body: Block,
    roots: Iterable[Value],
    offset: int,
    offset_of: dict[str, int],
    needs: LoopNeeds,
    mine: set[str],
) -> set[int]:
    """Loop-carried values behind ``roots``, those outside of the loop going to ``needs``."""
    args: set[int] = set()
    seen: set[Value] = set()
    todo = list(roots)
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        if value in body.args:
            if value.index:
                args.add(value.index - 1)
                todo.append(body.ops[-1].operands[value.index - 1])
        elif value.op is None or value.op.ancestor_in(body) is None:
            needs.outer[value] = None
        elif (region := kernel.owner.get(value.op)) is not None:
            if region.id not in offset_of:
                raise region.error(
                    f"{_name(value)} is used by op {_user(kernel, value, mine)!r} of another role",
                    "pass it on through a buffer of a pipeline, or let one role run both",
                )
            made = offset_of[region.id]
            if made > offset:
                raise region.error(
                    f"{_name(value)} is used by op {_user(kernel, value, mine)!r} at an earlier stage",
                    "give the op that uses a value at least the stage of the one that computes it",
                )
            if made < offset:
                needs.carried[value] = (made, max(offset - made, needs.carried.get(value, (0, 0))[1]))
        else:
            todo += free_operands([value.op])
    return args


def _name(value: Value) -> str:
    location = value.op.location() if value.op is not None else None
    named = location.name if location is not None else None
    return f"its value {named!r}" if named else "its value"


def _user(kernel: WSKernel, value: Value, mine: set[str]) -> str:
    users = [kernel.owner[op].id for op in value.users if op in kernel.owner]
    return next((id for id in users if id in mine), next(iter(sorted(mine)), "?"))


def _results(kernel: WSKernel, loop: Op, body: Block, offset_of: dict[str, int], needs: LoopNeeds) -> None:
    """Which offset computes which loop result; results of ops that other threads run are left out."""
    for position, result in enumerate(loop.results):
        if not result.uses:
            continue
        owners = set(_owners(kernel, body, body.ops[-1].operands[position]))
        if not owners <= set(offset_of):
            continue
        offset = max((offset_of[id] for id in owners), default=min(needs.args, default=0))
        if not needs.args:
            continue
        mine = {id for id, at in offset_of.items() if at == offset}
        more = _close(kernel, body, [body.args[1 + position]], offset, offset_of, needs, mine)
        needs.args[offset] = sorted({*needs.args[offset], *more})
        needs.results[position] = offset


def _owners(kernel: WSKernel, body: Block, value: Value) -> Iterator[str]:
    seen: set[Value] = set()
    todo = [value]
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        if one in body.args:
            if one.index:
                todo.append(body.ops[-1].operands[one.index - 1])
        elif one.op is not None and one.op.ancestor_in(body) is not None:
            region = kernel.owner.get(one.op)
            if region is not None:
                yield region.id
            else:
                todo += free_operands([one.op])
