"""Edits that passes make. Every op inserted here takes its anchor's location, so that the text stays the same from
run to run (MLIR gives an op without one the path of a temporary file) and line tables name the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .dialect import is_pure
from .ir import Block, IRError, Op, Region, Value


class Builder:
    """An insertion point. Ops inserted one after the other stand in that order.

    Args:
        block: where to insert.
        before: insert right before this op of the block; at the end of the block if None.
        loc: location for ops that have none.
    """

    def __init__(self, block: Block, before: Op | None, loc: str | None) -> None:
        self.block = block
        self.anchor = before
        self.loc = loc

    @classmethod
    def before(cls, anchor: Op) -> Builder:
        return cls(anchor.block, anchor, anchor.loc)

    @classmethod
    def after(cls, anchor: Op) -> Builder:
        """Right after ``anchor``, ahead of what stands there now."""
        block = anchor.block
        rest = block.ops[block.index(anchor) + 1 :]
        return cls(block, rest[0] if rest else None, anchor.loc)

    @classmethod
    def at_start(cls, block: Block) -> Builder:
        """Ahead of every op of ``block``; the location is that of its first op, else of the op around it."""
        return cls(block, block.ops[0] if block.ops else None, _loc_of(block))

    @classmethod
    def at_end(cls, block: Block) -> Builder:
        """Behind every op of ``block``, its terminator included if there is one."""
        return cls(block, None, block.ops[-1].loc if block.ops else _loc_of(block))

    def insert(self, op: Op) -> Op:
        """Insert a detached op; it and the ops inside it take the anchor's location where they have none."""
        for inner in op.walk():
            if inner.loc is None:
                inner.loc = self.loc
        position = len(self.block.ops) if self.anchor is None else self.block.index(self.anchor)
        return self.block.insert(position, op)

    def value(self, op: Op) -> Value:
        """Insert an op and return its only result."""
        return self.insert(op).result

    def create(
        self,
        name: str,
        operands: Sequence[Value] = (),
        result_types: Sequence[str] = (),
        *,
        properties: Mapping[str, str] | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> Op:
        """Make an op and insert it."""
        return self.insert(Op(name, operands, result_types, properties=properties, attributes=attributes))

    def clone(self, op: Op, mapping: dict[Value, Value] | None = None) -> Op:
        """Insert a copy of ``op``; operands go through ``mapping``, which gains the copy's values."""
        return self.insert(op.clone(mapping))


def _loc_of(block: Block) -> str | None:
    if block.ops:
        return block.ops[0].loc
    return block.parent_op.loc if block.parent_op else None


def insert_before(anchor: Op, op: Op) -> Op:
    return Builder.before(anchor).insert(op)


def insert_after(anchor: Op, op: Op) -> Op:
    return Builder.after(anchor).insert(op)


def replace(op: Op, new: Op | Sequence[Value]) -> None:
    """Point all uses of ``op`` at the values of ``new`` and erase ``op``.

    Args:
        op: the op to replace.
        new: values, one for each result; or an op, which is inserted before ``op`` if it is detached.
    """
    if isinstance(new, Op):
        if new.parent is None:
            insert_before(op, new)
        values: Sequence[Value] = new.results
    else:
        values = new
    if len(values) != len(op.results):
        raise IRError(f"{op.name} has {len(op.results)} results, its replacement {len(values)}", where=op.where)
    for old, value in zip(op.results, values, strict=True):
        if old.type != value.type:
            raise IRError(f"{op.name} gives a {old.type}, its replacement a {value.type}", where=op.where)
        old.replace_all_uses_with(value)
    op.erase()


def erase(op: Op) -> None:
    """Erase ``op``; an error if a result is still used."""
    op.erase()


def erase_dead(block: Block) -> int:
    """Erase ops of ``block`` that are pure and whose results nobody uses, last first; returns how many."""
    count = 0
    for op in reversed(list(block.ops)):
        if op.results and not any(v.uses for v in op.results) and is_pure(op):
            op.erase()
            count += 1
    return count


def clone_region(region: Region, mapping: dict[Value, Value] | None = None) -> Region:
    """A detached deep copy of a region; ``mapping`` as in :meth:`Op.clone`."""
    return region.clone(mapping)


def inline_block(block: Block, before: Op, args: Sequence[Value]) -> list[Value]:
    """Move the ops of ``block`` ahead of ``before``, its arguments becoming ``args``; the terminator is erased.

    Returns:
        what the terminator passed on, such as a loop body's yielded values.
    """
    if len(args) != len(block.args):
        raise IRError(f"a block of {len(block.args)} arguments is given {len(args)}", where=before.where)
    for old, new in zip(block.args, args, strict=True):
        old.replace_all_uses_with(new)
    last = block.terminator
    if last is None:
        return []
    passed = list(last.operands)
    last.erase()
    for op in list(block.ops):
        op.move_before(before)
    return passed
