"""split_conditions: a condition around ops of a typed schedule that gives values becomes one inside each op.

Roles run ops one by one, so that a value must not leave an op by way of a condition that holds several, or none, of a
role's. Before::

    %r = scf.if %c {
      {ws_op a} %x = …
      %y = arith.addf %x, %x
      {ws_op b} %z = … %y
      scf.yield %z
    } else { scf.yield %old }

After::

    {ws_op a} %x = scf.if %c { … ; scf.yield … } else { scf.yield poison } {amdwarp.ws.guard}
    %y = arith.addf %x, %x
    {ws_op b} %z = scf.if %c { … %y ; scf.yield … } else { scf.yield %old } {amdwarp.ws.guard}

and ``%z`` for ``%r``. Conditions that give nothing, and whose ops use nothing of each other, stay: they are opened
around each op as it is written. A value that no op computes is selected.

Refuses nothing: a condition that holds a scope, or an effect of no op, stays too, and ``materialize_ws_schedule``
refuses it if it gives a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from amdwarp.schedule.kernel import OP_BEGIN, SCHEDULE
from amdwarp.schedule.objects import WSSchedule

from ..analysis.pipelines import text_of
from ..analysis.ws_kernel import GUARD, is_free, is_sync, ws_mark
from ..ir import Block, Module, Op, Region, Value
from ..rewriter import Builder

Piece = list[Op]
"""An op of no ws_op, or the anchors of a ws_op with what is between them."""


@dataclass(frozen=True)
class SplitConditions:
    name: str = "split_conditions"

    def run(self, module: Module) -> None:
        marks = [op for op in module.walk() if ws_mark(op) == "schedule"]
        if not marks:
            return
        scopes = {scope.id for scope in WSSchedule.from_json(text_of(marks[0].attributes[SCHEDULE])).scopes}
        conditions = [op for op in module.walk() if op.name == "scf.if" and any(map(ws_mark, op.walk()))]
        wanted = {op for op in conditions if _gives(op)}
        wanted |= {op for op in conditions if any(around in wanted for around in op.ancestors())}
        for op in reversed(conditions):  # inner ones first
            if op in wanted and _can_be_split(op, scopes):
                _split(op)


def _pieces(block: Block) -> Iterator[Piece]:
    """What stands in a branch, up to its yield; a ws_op is one piece."""
    piece: Piece = []
    depth = 0
    for op in block.ops[:-1]:
        depth += {"begin": 1, "end": -1}.get(ws_mark(op) or "", 0)
        piece.append(op)
        if not depth:
            yield piece
            piece = []
    if piece:
        yield piece


def _gives(op: Op) -> bool:
    """Whether values leave a ws_op in the condition, or the condition itself."""
    if op.results:
        return True
    return any(
        _escapes(value, piece)
        for region in op.regions
        for block in region.blocks
        for piece in _pieces(block)
        if ws_mark(piece[0])
        for one in piece
        for value in one.results
    )


def _escapes(value: Value, piece: Piece) -> bool:
    inside = {inner for op in piece for inner in op.walk()}
    return any(user not in inside for user in value.users)


def _can_be_split(op: Op, scopes: set[str]) -> bool:
    for value in op.results:
        if value.type.startswith("!ttg"):
            return False
    for region in op.regions:
        for block in region.blocks:
            for piece in _pieces(block):
                first = piece[0]
                if ws_mark(first) is None and not is_free(first) and not is_sync(first):
                    return False
                if ws_mark(first) and (ws_mark(piece[-1]) != "end" or len(piece) < 2):
                    return False
                if any(ws_mark(one) == "begin" and text_of(one.attributes[OP_BEGIN]) in scopes for one in piece):
                    return False
    return True


def _split(op: Op) -> None:
    condition = op.operands[0]
    blocks = [region.blocks[0] if region.blocks else None for region in op.regions]
    yields = [list(block.ops[-1].operands) if block else [] for block in blocks]
    results: dict[int, Value] = {}
    for branch, block in enumerate(blocks):
        for piece in list(_pieces(block)) if block else ():
            if ws_mark(piece[0]):
                results |= _guard(op, condition, branch, piece, yields)
            elif is_sync(piece[0]):
                piece[0].erase()  # the schedule's synchronization takes its place
            else:
                piece[0].move_before(op)
    build = Builder.before(op)
    for at, old in enumerate(op.results):
        new = results.get(at)
        if new is None:
            new = build.value(Op("arith.select", [condition, yields[0][at], yields[1][at]], [old.type]))
        old.replace_all_uses_with(new)
    for block in blocks:
        if block:
            block.ops[-1].erase()
    op.erase()


def _guard(op: Op, condition: Value, branch: int, piece: Piece, yields: list[list[Value]]) -> dict[int, Value]:
    """Move a ws_op ahead of the condition, with a condition of its own inside; the results it gives, by position."""
    begin, *inside, end = piece
    begin.move_before(op)
    escaping = [value for one in inside for value in one.results if _escapes(value, piece)]
    gives: list[tuple[Value, Value | None, int]] = []  # what, what it is otherwise, of which result
    for value in escaping:
        places = [at for at, one in enumerate(yields[branch]) if one is value]
        known = [(value, yields[1 - branch][at], at) for at in places if _is_known(yields[1 - branch][at], op)]
        gives += known or [(value, None, -1)]
    build = Builder.before(op)
    otherwise = [
        other or build.value(Op("ub.poison", result_types=[value.type], properties={"value": "#ub.poison"}))
        for value, other, _ in gives
    ]
    mine, others = Block(), Block()
    made = Op(
        "scf.if",
        [condition],
        [value.type for value, *_ in gives],
        attributes={GUARD: "unit"},
        regions=[Region([block]) for block in ((mine, others) if branch == 0 else (others, mine))],
        loc=op.loc,
    )
    build.insert(made)
    for one in inside:
        mine.append(one.detach())
    end.move_before(op)
    new = {value: result for (value, *_), result in reversed(list(zip(gives, made.results, strict=True)))}
    for value, result in new.items():
        moved = {inner for one in inside for inner in one.walk()}
        value.replace_all_uses_with(result, except_for=moved)
        for side in yields:
            side[:] = [result if one is value else one for one in side]
    mine.append(Op("scf.yield", [value for value, *_ in gives], loc=op.loc))
    others.append(Op("scf.yield", otherwise, loc=op.loc))
    return {at: result for (*_, at), result in zip(gives, made.results, strict=True) if at >= 0}


def _is_known(value: Value, op: Op) -> bool:
    """Whether a value is there ahead of a condition."""
    around = value.op.ancestor_in(op.block) if value.op is not None else None
    if value.op is None:
        return value.block is not None and op not in _parents(value.block)
    return around is None or (around is not op and op.block.index(around) < op.block.index(op))


def _parents(block: Block) -> Iterator[Op]:
    parent = block.parent_op
    while parent is not None:
        yield parent
        parent = parent.parent_op
