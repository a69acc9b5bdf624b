"""The IR that passes edit: modules of operations in MLIR's shape, with opaque types and attributes.

Types, attribute values and locations are kept as the text MLIR printed (bracket-balanced strings). A pass that needs
to look inside one parses it then; everything else goes back exactly as it came. The reader and printer are in
``text.py``; this file holds the objects, their links and the use lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from amdwarp.errors import LoweringError

from .location import SourceLocation, resolve_location


class IRError(LoweringError):
    """A pass broke a structural rule of the IR, such as erasing a value that is still used."""


@dataclass(frozen=True, slots=True)
class Use:
    """One operand slot: ``op.operands[index]`` is the value."""

    op: Op
    index: int


class Value:
    """An SSA value: the result of an op, or the argument of a block.

    Attributes:
        name: printed name with its sigil, ``%x`` or ``%x#1``; a hint that the printer makes unique.
        type: MLIR type as text.
        owner: the defining op, or the block whose argument this is.
        index: position among the owner's results or arguments.
        uses: operand slots that hold this value, in no meaningful order.
        loc: location of a block argument; None for a result, whose location is its op's.
    """

    __slots__ = ("index", "loc", "name", "owner", "type", "uses")

    def __init__(self, owner: Op | Block, index: int, type: str, name: str = "", loc: str | None = None) -> None:
        self.owner = owner
        self.index = index
        self.type = type
        self.name = name
        self.loc = loc
        self.uses: list[Use] = []

    @property
    def op(self) -> Op | None:
        """The defining op, or None for a block argument."""
        return self.owner if isinstance(self.owner, Op) else None

    @property
    def block(self) -> Block | None:
        """The block the value is defined in, or None while its op is detached."""
        return self.owner.parent if isinstance(self.owner, Op) else self.owner

    @property
    def users(self) -> list[Op]:
        """Ops that use the value, each once, in order of first use slot."""
        return list(dict.fromkeys(use.op for use in self.uses))

    def replace_all_uses_with(self, other: Value, *, except_for: Iterable[Op] = ()) -> None:
        """Point every use at ``other``, leaving alone the operands of the ops in ``except_for``."""
        if other is self:
            return
        kept = set(except_for)
        for use in list(self.uses):
            if use.op not in kept:
                use.op.set_operand(use.index, other)

    def __repr__(self) -> str:
        return f"<Value {self.name or '%?'} : {self.type}>"


class Op:
    """One operation in generic form.

    Attributes:
        name: full op name, ``arith.addi``.
        properties: inherent attributes, printed ``<{…}>``; a value of ``"unit"`` prints the bare name.
        attributes: discardable attributes, printed ``{…}``; the same.
        results: values it defines.
        regions: its regions.
        successors: blocks a terminator branches to.
        loc: location without its ``loc(…)`` wrapper, e.g. ``#loc12`` or ``"f.py":3:4``; None prints none.
        parent: the block that holds it, or None while detached.
        module: the module whose outermost op this is; None for every other op.
    """

    __slots__ = (
        "_operands",
        "attributes",
        "loc",
        "module",
        "name",
        "parent",
        "properties",
        "regions",
        "results",
        "successors",
    )

    def __init__(
        self,
        name: str,
        operands: Sequence[Value] = (),
        result_types: Sequence[str] = (),
        *,
        properties: Mapping[str, str] | None = None,
        attributes: Mapping[str, str] | None = None,
        regions: Sequence[Region] = (),
        successors: Sequence[Block] = (),
        loc: str | None = None,
        result_names: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.properties = dict(properties or {})
        self.attributes = dict(attributes or {})
        self.loc = loc
        self.parent: Block | None = None
        self.module: Module | None = None
        self.successors = list(successors)
        self.regions: list[Region] = []
        for region in regions:
            self.add_region(region)
        names = list(result_names) or [""] * len(result_types)
        self.results = [Value(self, i, t, n) for i, (t, n) in enumerate(zip(result_types, names, strict=True))]
        self._operands: list[Value] = []
        for value in operands:
            self.append_operand(value)

    # ---- operands and results

    @property
    def operands(self) -> tuple[Value, ...]:
        return tuple(self._operands)

    @property
    def result(self) -> Value:
        """The only result; an error for an op with none or several."""
        if len(self.results) != 1:
            raise IRError(f"{self.name} has {len(self.results)} results where one was expected", where=self.where)
        return self.results[0]

    def set_operand(self, index: int, value: Value) -> None:
        self._operands[index].uses.remove(Use(self, index))
        self._operands[index] = value
        value.uses.append(Use(self, index))

    def append_operand(self, value: Value) -> None:
        value.uses.append(Use(self, len(self._operands)))
        self._operands.append(value)

    def set_operands(self, values: Sequence[Value]) -> None:
        """Replace the whole operand list. ``operandSegmentSizes``, where the op has it, is the caller's to update."""
        self.drop_operands()
        for value in values:
            self.append_operand(value)

    def drop_operands(self) -> None:
        for index, value in enumerate(self._operands):
            value.uses.remove(Use(self, index))
        self._operands = []

    def append_result(self, type: str, name: str = "") -> Value:
        """Add a result at the end (a loop that gains an iteration argument, for one)."""
        value = Value(self, len(self.results), type, name)
        self.results.append(value)
        return value

    def erase_operand(self, index: int) -> None:
        self.set_operands([v for i, v in enumerate(self._operands) if i != index])

    def erase_result(self, index: int) -> None:
        """Remove a result that has no uses."""
        _erase_unused(self.results, index)

    def add_region(self, region: Region) -> Region:
        region.parent = self
        self.regions.append(region)
        return region

    # ---- place in the tree

    @property
    def parent_op(self) -> Op | None:
        region = self.parent.parent if self.parent else None
        return region.parent if region else None

    def ancestors(self) -> Iterator[Op]:
        """The enclosing ops, innermost first, without this one."""
        op = self.parent_op
        while op is not None:
            yield op
            op = op.parent_op

    def ancestor_in(self, block: Block) -> Op | None:
        """The op of ``block`` that is this op or encloses it, or None if this op is not under ``block``."""
        op: Op | None = self
        while op is not None and op.parent is not block:
            op = op.parent_op
        return op

    @property
    def block(self) -> Block:
        """The block that holds this op; an error while it is detached."""
        if self.parent is None:
            raise IRError(f"{self.name} is not in a block", where=self.where)
        return self.parent

    def is_before(self, other: Op) -> bool:
        """Whether this op stands before ``other`` in the block both are in."""
        if self.block is not other.parent:
            raise IRError(f"{self.name} and {other.name} are in different blocks", where=self.where)
        return self.block.index(self) < self.block.index(other)

    def insert_before(self, anchor: Op) -> Op:
        """Put this detached op right before ``anchor``; returns it."""
        return anchor.block.insert(anchor.block.index(anchor), self)

    def insert_after(self, anchor: Op) -> Op:
        """Put this detached op right after ``anchor``; returns it."""
        return anchor.block.insert(anchor.block.index(anchor) + 1, self)

    def move_before(self, anchor: Op) -> None:
        if anchor is not self:
            self.detach().insert_before(anchor)

    def move_after(self, anchor: Op) -> None:
        if anchor is not self:
            self.detach().insert_after(anchor)

    def detach(self) -> Op:
        """Take the op out of its block, its uses and operands untouched; returns it."""
        self.block.ops.remove(self)
        self.parent = None
        return self

    def erase(self) -> None:
        """Remove the op and everything in it. An error if a result still has uses outside of the op."""
        inside = set(self.walk())
        for op in inside:
            for value in (*op.results, *(arg for region in op.regions for b in region.blocks for arg in b.args)):
                for use in value.uses:
                    if use.op not in inside:
                        raise IRError(
                            f"cannot erase {self.name}: {value.name or 'its result'} is still used by {use.op.name}",
                            where=self.where,
                        )
        for op in inside:
            op.drop_operands()
        if self.parent is not None:
            self.detach()

    # ---- whole-op helpers

    def walk(self) -> Iterator[Op]:
        """This op, then the ops under it, in text order. Safe against edits of the op just yielded."""
        yield self
        for region in list(self.regions):
            for block in list(region.blocks):
                for op in list(block.ops):
                    yield from op.walk()

    def clone(self, mapping: dict[Value, Value] | None = None) -> Op:
        """A detached deep copy.

        Args:
            mapping: old value -> new value; operands found in it are replaced, and every value the copy defines is
                added. A value that is not in it is used as it is.
        """
        values = mapping if mapping is not None else {}
        return _clone(self, values, {})

    def location(self) -> SourceLocation | None:
        """File, line, column and name of the op's source, following location aliases; None if there is none."""
        return resolve_location(self.loc, self._aliases())

    @property
    def where(self) -> str | None:
        """``file:line`` of the kernel for an error message: the op's own, else that of the op around it."""
        for op in (self, *self.ancestors()):
            if location := op.location():
                return location.where
        return None

    def _aliases(self) -> Mapping[str, str]:
        op: Op | None = self
        while op is not None and op.module is None:
            op = op.parent_op
        return op.module.aliases if op is not None and op.module is not None else {}

    def __repr__(self) -> str:
        results = ", ".join(v.name or "%?" for v in self.results)
        operands = ", ".join(v.name or "%?" for v in self._operands)
        return f"<Op {results + ' = ' if results else ''}{self.name}({operands})>"


class Block:
    """A list of ops with arguments. ``parent`` is its region, or None while detached."""

    __slots__ = ("args", "ops", "parent")

    def __init__(self, arg_types: Sequence[str] = ()) -> None:
        self.args: list[Value] = []
        self.ops: list[Op] = []
        self.parent: Region | None = None
        for type in arg_types:
            self.add_arg(type)

    @property
    def parent_op(self) -> Op | None:
        return self.parent.parent if self.parent else None

    @property
    def terminator(self) -> Op | None:
        """The last op, which a verified block ends with; None in an empty block."""
        return self.ops[-1] if self.ops else None

    @property
    def label(self) -> str:
        """``^bbN``, N being the position in the region, as MLIR numbers blocks."""
        return f"^bb{self.parent.blocks.index(self)}" if self.parent else "^bb?"

    def add_arg(self, type: str, name: str = "", loc: str | None = None) -> Value:
        arg = Value(self, len(self.args), type, name, loc)
        self.args.append(arg)
        return arg

    def erase_arg(self, index: int) -> None:
        """Remove an argument that has no uses."""
        _erase_unused(self.args, index)

    def append(self, op: Op) -> Op:
        return self.insert(len(self.ops), op)

    def insert(self, index: int, op: Op) -> Op:
        if op.parent is not None:
            raise IRError(f"{op.name} already is in a block", where=op.where)
        op.parent = self
        self.ops.insert(index, op)
        return op

    def index(self, op: Op) -> int:
        """Position of an op that is directly in this block."""
        return self.ops.index(op)

    def walk(self) -> Iterator[Op]:
        """Every op in the block and under it, in text order."""
        for op in list(self.ops):
            yield from op.walk()

    def predecessors(self) -> list[Block]:
        """Blocks that branch here, in region order, once for each branch."""
        blocks = self.parent.blocks if self.parent else []
        return [b for b in blocks if b.ops for target in b.ops[-1].successors if target is self]


class Region:
    """A list of blocks, the first being the entry. ``parent`` is its op, or None while detached."""

    __slots__ = ("blocks", "parent")

    def __init__(self, blocks: Sequence[Block] = ()) -> None:
        self.blocks: list[Block] = []
        self.parent: Op | None = None
        for block in blocks:
            self.append(block)

    def append(self, block: Block) -> Block:
        block.parent = self
        self.blocks.append(block)
        return block

    @property
    def block(self) -> Block:
        """The only block; an error for a region with none or several."""
        if len(self.blocks) != 1:
            raise IRError(f"a region has {len(self.blocks)} blocks where one was expected")
        return self.blocks[0]

    def clone(self, mapping: dict[Value, Value] | None = None) -> Region:
        """A detached deep copy; ``mapping`` as in :meth:`Op.clone`."""
        return _clone_region(self, mapping if mapping is not None else {}, {})

    def walk(self) -> Iterator[Op]:
        """Every op in the region, in text order."""
        for block in list(self.blocks):
            yield from block.walk()


class Module:
    """A ``builtin.module`` op with the alias definitions printed around it.

    Attributes:
        op: the module op.
        before: alias name with sigil (``#blocked``, ``#loc1``, ``!t``) -> its text, defined before the module.
        after: the same, defined after it. MLIR resolves an op's own ``loc(#locN)`` late, so those may stand here; an
            alias used *inside* another attribute or location must be defined earlier in the text.
        trailer: text after the last definition, such as a resource section; usually empty.
    """

    def __init__(
        self, op: Op, before: Mapping[str, str] | None = None, after: Mapping[str, str] | None = None, trailer: str = ""
    ) -> None:
        self.op = op
        self.before = dict(before or {})
        self.after = dict(after or {})
        self.trailer = trailer
        op.module = self

    @property
    def aliases(self) -> dict[str, str]:
        return {**self.before, **self.after}

    @property
    def attributes(self) -> dict[str, str]:
        """Attributes of the module op, e.g. ``ttg.num-warps``."""
        return self.op.attributes

    @property
    def body(self) -> Block:
        return self.op.regions[0].block

    def functions(self) -> list[Op]:
        """The function ops at the top of the module, of whichever dialect."""
        return [op for op in self.body.ops if op.name in ("tt.func", "llvm.func")]

    def walk(self) -> Iterator[Op]:
        """Every op under the module op, in text order, without the module op itself."""
        yield from self.op.regions[0].walk()

    def ops(self, *names: str) -> list[Op]:
        """Every op with one of the given names, in text order."""
        return [op for op in self.walk() if op.name in names]

    def resolve(self, text: str) -> str:
        """The text an alias stands for (``#blocked`` -> ``#ttg.blocked<…>``); any other text as it is."""
        seen = text
        for _ in range(64):
            body = self.before.get(seen, self.after.get(seen))
            if body is None:
                return seen
            seen = body
        raise IRError(f"alias {text} is defined through itself")

    def clone(self) -> Module:
        return Module(self.op.clone(), self.before, self.after, self.trailer)


def _erase_unused(values: list[Value], index: int) -> None:
    value = values[index]
    if value.uses:
        raise IRError(f"cannot erase {value.name or 'a value'}: {value.uses[0].op.name} still uses it")
    del values[index]
    for position, kept in enumerate(values):
        kept.index = position


def _clone(op: Op, values: dict[Value, Value], blocks: dict[Block, Block]) -> Op:
    copy = Op(
        op.name,
        [values.get(v, v) for v in op.operands],
        [v.type for v in op.results],
        properties=op.properties,
        attributes=op.attributes,
        successors=[blocks.get(b, b) for b in op.successors],
        loc=op.loc,
        result_names=[v.name for v in op.results],
    )
    values.update(zip(op.results, copy.results, strict=True))
    for region in op.regions:
        copy.add_region(_clone_region(region, values, blocks))
    return copy


def _clone_region(region: Region, values: dict[Value, Value], blocks: dict[Block, Block]) -> Region:
    copy = Region()
    for block in region.blocks:
        new = copy.append(Block())
        blocks[block] = new
        for arg in block.args:
            values[arg] = new.add_arg(arg.type, arg.name, arg.loc)
    for block in region.blocks:
        for op in block.ops:
            blocks[block].append(_clone(op, values, blocks))
    # An operand may be defined in a block that stands later in the text: point those at the copies now.
    for op, new_op in zip(region.walk(), copy.walk(), strict=True):
        for index, value in enumerate(op.operands):
            if new_op.operands[index] is not values.get(value, value):
                new_op.set_operand(index, values[value])
    return copy
