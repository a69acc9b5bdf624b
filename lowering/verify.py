"""Structural checks on a module: links, use lists, dominance, terminators, and the few typing rules passes can break.

The wheel verifies each op when the module goes back (``bridge.write``). These checks find what a pass got wrong while
it is still known which pass, in terms of the kernel's lines.
"""

from __future__ import annotations

import re

from amdwarp.errors import LoweringError

from .dialect import TERMINATORS, is_known
from .ir import Block, Module, Op, Region, Use, Value
from .text import ISOLATED

_SEGMENTS = re.compile(r"array<i32(?:: ([\d, ]+))?>")


class VerifyError(LoweringError):
    """A module whose structure is broken."""


def verify_module(module: Module) -> None:
    """Check the whole module.

    Raises:
        VerifyError: the first fault found, with the kernel's file and line.
    """
    aliases = module.aliases
    _check_op(module.op)
    for op in module.walk():
        _check_op(op)
        if op.loc is not None and re.fullmatch(r"#[\w$.-]+", op.loc) and op.loc not in aliases:
            raise _fault(op, f"its location {op.loc} is defined nowhere")
        check = _TYPING.get(op.name)
        if check is not None:
            check(op)
        _check_operands(op)
    for op in (module.op, *module.walk()):
        for region in op.regions:
            _check_region(op, region)


def _fault(op: Op, problem: str) -> VerifyError:
    return VerifyError(problem, construct=op.name, where=op.where)


def _check_op(op: Op) -> None:
    for index, value in enumerate(op.results):
        _check_value(op, value, op, index)
    for index, operand in enumerate(op.operands):
        if operand.uses.count(Use(op, index)) != 1:
            raise _fault(op, f"operand {index} ({operand.name}) does not know of this use")
    for region in op.regions:
        if region.parent is not op:
            raise _fault(op, "a region of it belongs to another op")
        for block in region.blocks:
            if block.parent is not region:
                raise _fault(op, "a block of it belongs to another region")
            for index, arg in enumerate(block.args):
                _check_value(op, arg, block, index)
            for inner in block.ops:
                if inner.parent is not block:
                    raise _fault(inner, "it is listed in a block that is not its parent")
    for key, values in (("operandSegmentSizes", op.operands), ("resultSegmentSizes", op.results)):
        match = _SEGMENTS.fullmatch(op.properties.get(key, ""))
        if match is not None:
            total = sum(int(size) for size in (match.group(1) or "0").split(","))
            if total != len(values):
                raise _fault(op, f"{key} adds up to {total}, but there are {len(values)}")


def _check_value(op: Op, value: Value, owner: Op | Block, index: int) -> None:
    if value.owner is not owner or value.index != index:
        raise _fault(op, f"{value.name or 'a value'} does not know its owner or position")
    if not value.type:
        raise _fault(op, f"{value.name or 'a value'} has no type")
    for use in value.uses:
        operands = use.op.operands
        if use.index >= len(operands) or operands[use.index] is not value:
            raise _fault(op, f"{value.name or 'a value'} lists a use in {use.op.name} that is not there")


# ---- blocks and dominance


def _check_region(op: Op, region: Region) -> None:
    for block in region.blocks:
        for inner in block.ops[:-1]:
            if inner.name in TERMINATORS:
                raise _fault(inner, "a terminator stands before the end of its block")
        last = block.terminator
        if op.name != "builtin.module" and is_known(op.name) and (last is None or last.name not in TERMINATORS):
            raise _fault(op, f"a block of it ends with {last.name if last else 'nothing'}, which is no terminator")
        for inner in block.ops:
            for target in inner.successors:
                if target.parent is not region:
                    raise _fault(inner, "it branches to a block of another region")
    if len(region.blocks) > 1:
        _check_across_blocks(region)


def _check_operands(op: Op) -> None:
    """Each operand is defined before ``op`` in the same block, or in a block around it, or in another block of such a
    region, which :func:`_check_across_blocks` checks."""
    for operand in op.operands:
        home = operand.block
        if home is None:
            raise _fault(op, f"its operand {operand.name or '%?'} is defined by an op that is in no block")
        here = _enclosing_op(op, home)
        if here is None:
            raise _fault(op, f"its operand {operand.name} is not visible here")
        definer = operand.op
        if definer is not None and here.parent is home and (definer is here or not definer.is_before(here)):
            raise _fault(op, f"its operand {operand.name} is defined after it")


def _enclosing_op(op: Op, home: Block) -> Op | None:
    """``op`` or the op around it that stands in ``home``'s region; None if ``op`` cannot see values of ``home``."""
    current: Op | None = op
    while current is not None:
        if current.parent is not None and current.parent.parent is home.parent:
            return current
        current = current.parent_op
        if current is not None and current.name in ISOLATED:
            return None
    return None


def _check_across_blocks(region: Region) -> None:
    dominators = _dominators(region)
    for block in region.blocks:
        for op in block.walk():
            for operand in op.operands:
                home = operand.block
                if home is not None and home.parent is region and home not in dominators[block]:
                    raise _fault(op, f"its operand {operand.name} is not defined on every path that leads here")


def _dominators(region: Region) -> dict[Block, set[Block]]:
    """Blocks that each block is dominated by, itself included; an unreachable block by every block."""
    entry, everything = region.blocks[0], set(region.blocks)
    dominators = {block: {block} if block is entry else set(everything) for block in region.blocks}
    changed = True
    while changed:
        changed = False
        for block in region.blocks[1:]:
            incoming = [dominators[p] for p in block.predecessors()]
            new = set.intersection(*incoming) | {block} if incoming else set(everything)
            if new != dominators[block]:
                dominators[block], changed = new, True
    return dominators


# ---- typing rules of the ops that passes rebuild


def _same_types(op: Op, what: str, left: list[Value], right: list[Value]) -> None:
    if [v.type for v in left] != [v.type for v in right]:
        shown = f"({', '.join(v.type for v in left)}) and ({', '.join(v.type for v in right)})"
        raise _fault(op, f"{what} differ: {shown}")


def _check_for(op: Op) -> None:
    body = op.regions[0].block
    inits = list(op.operands[3:])
    _same_types(op, "initial values and results", inits, op.results)
    _same_types(op, "initial values and body arguments", inits, body.args[1:])
    if body.terminator is not None:
        _same_types(op, "yielded values and results", list(body.terminator.operands), op.results)


def _check_if(op: Op) -> None:
    for region in op.regions:
        for block in region.blocks:
            if block.terminator is not None and block.terminator.name == "scf.yield":
                _same_types(op, "yielded values and results", list(block.terminator.operands), op.results)


_TYPING = {"scf.for": _check_for, "scf.if": _check_if}
