"""Reader and printer of generic-form MLIR.

``parse(text)`` gives a :class:`~amdwarp.lowering.ir.Module`; ``print_module(module)`` gives text back. A module read
and printed without an edit is the same text, byte for byte, if MLIR printed it. The reader takes only generic form:
``"dialect.op"(operands) <{properties}> ({regions}) {attributes} : (types) -> types loc(…)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from amdwarp.errors import LoweringError

from .ir import Block, Module, Op, Region, Value
from .printer import ISOLATED as ISOLATED
from .printer import assign_names as assign_names
from .printer import format_dictionary as format_dictionary
from .printer import print_module as print_module
from .printer import print_op as print_op

_SPACE = re.compile(r"(?:\s+|//[^\n]*)*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_VALUE = re.compile(r"%[\w$.\-]+(?:#\d+)?")
_RESULT = re.compile(r"(%[\w$.\-]+)(?::(\d+))?")
_LABEL = re.compile(r"\^[\w$.\-]+")
_ALIAS = re.compile(r"([#!][\w$.\-]+)\s*=\s*")
_BARE_KEY = re.compile(r"[A-Za-z_][\w$.]*")
_SCAN = re.compile(r'"(?:[^"\\]|\\.)*"|->|[<>]=|[<>()\[\]{},\n]|//[^\n]*| loc\(')
_PAIRS = {"<": ">", "(": ")", "[": "]", "{": "}"}
_CLOSERS = frozenset(_PAIRS.values())


def parse(text: str) -> Module:
    """Read a module in generic form.

    Raises:
        ParseError: the text is malformed, or is MLIR's pretty form; it carries line and column.
    """
    return _Parser(text).module()


class ParseError(LoweringError):
    """Text that is not generic-form MLIR; ``line`` and ``column`` are 1-based positions in it."""

    def __init__(self, problem: str, source: str, offset: int) -> None:
        self.line = source.count("\n", 0, offset) + 1
        self.column = offset - source.rfind("\n", 0, offset)
        excerpt = source.splitlines()[self.line - 1][:120].strip() if offset < len(source) else "end of text"
        super().__init__(f"{problem} at line {self.line}, column {self.column}: {excerpt}")


class _Scope:
    """Names of one region. Lookup goes outward; a use that nothing defines yet waits for its definition."""

    def __init__(self, parent: _Scope | None) -> None:
        self.parent = parent
        self.values: dict[str, Value] = {}
        self.blocks: dict[str, Block] = {}
        self.pending: list[_Pending] = []

    def find(self, name: str) -> Value | None:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        return None


class _Pending:
    """A use read before its definition: operand ``index`` of ``op`` holds a stand-in of the right type."""

    __slots__ = ("index", "name", "offset", "op")

    def __init__(self, name: str, op: Op, index: int, offset: int) -> None:
        self.name, self.op, self.index, self.offset = name, op, index, offset


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self.scope = _Scope(None)

    # ---- tokens

    def error(self, problem: str, offset: int | None = None) -> ParseError:
        return ParseError(problem, self.text, self.pos if offset is None else offset)

    def skip(self) -> None:
        match = _SPACE.match(self.text, self.pos)
        assert match is not None  # the pattern matches the empty string
        self.pos = match.end()

    def at(self, token: str) -> bool:
        self.skip()
        return self.text.startswith(token, self.pos)

    def take(self, token: str) -> bool:
        if self.at(token):
            self.pos += len(token)
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.take(token):
            raise self.error(f"expected '{token}'")

    def match(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        self.skip()
        found = pattern.match(self.text, self.pos)
        if found is None:
            raise self.error(f"expected {what}")
        self.pos = found.end()
        return found

    def opaque(self, stops: str) -> str:
        """Text up to the first of ``stops`` that is in no bracket and no string; brackets must balance.

        A space before ``loc(`` and the end of the line stop it too where they are among ``stops`` (as ``L`` and
        a newline).
        """
        self.skip()
        start = self.pos
        open_: list[str] = []
        for match in _SCAN.finditer(self.text, start):
            token = match.group()
            if token in _PAIRS:
                open_.append(_PAIRS[token])
            elif not open_ and (token in stops or (token == " loc(" and "L" in stops) or token[:2] == "//"):
                self.pos = match.start()
                return self.text[start : self.pos].rstrip()
            elif token == " loc(":
                open_.append(")")
            elif token in _CLOSERS and (not open_ or open_.pop() != token):
                raise self.error(f"unbalanced '{token}'", match.start())
        if open_:
            raise self.error(f"expected '{open_[-1]}' before the end of the text", start)
        self.pos = len(self.text)
        return self.text[start:].rstrip()

    # ---- pieces

    def separated(self, close: str, item: Callable[[], None]) -> None:
        """``item, item, … close``, the opening bracket being read already."""
        if self.take(close):
            return
        item()
        while self.take(","):
            item()
        self.expect(close)

    def dictionary(self) -> dict[str, str]:
        """``{key = value, unit}`` with its braces; a unit attribute has the value ``"unit"``."""
        entries: dict[str, str] = {}

        def entry() -> None:
            self.skip()
            key = self.match(_STRING, "a name").group()[1:-1] if self.at('"') else self.match(_BARE_KEY, "a name")[0]
            entries[key] = self.opaque(",}") if self.take("=") else "unit"

        self.expect("{")
        self.separated("}", entry)
        return entries

    def location(self) -> str | None:
        end = self.pos
        if not self.at("loc("):
            self.pos = end
            return None
        self.pos += len("loc(")
        text = self.opaque(")")
        self.expect(")")
        return text

    def types(self) -> list[tuple[str, int]]:
        """``(type, type)`` or one bare type, each with its offset."""
        found: list[tuple[str, int]] = []

        def item() -> None:
            self.skip()
            offset = self.pos
            text = self.opaque(",)")
            if not text:
                raise self.error("expected a type")
            found.append((text, offset))

        if self.take("("):
            self.separated(")", item)
        else:
            self.skip()
            offset = self.pos
            found.append((self.opaque("L\n,})"), offset))
        return found

    # ---- structure

    def module(self) -> Module:
        before = self.aliases()
        start = self.pos
        op = self.op()
        if op.name != "builtin.module":
            raise self.error(f"expected builtin.module, found {op.name}", start)
        after = self.aliases()
        rest = self.text[self.pos :]
        if rest.strip() and not rest.lstrip().startswith("{-#"):
            raise self.error("expected the end of the module")
        return Module(op, before, after, rest)

    def aliases(self) -> dict[str, str]:
        found: dict[str, str] = {}
        while True:
            checkpoint = self.pos
            self.skip()
            match = _ALIAS.match(self.text, self.pos)
            if match is None:
                self.pos = checkpoint
                return found
            self.pos = match.end()
            found[match.group(1)] = self.opaque("\n")

    def op(self) -> Op:
        result_names = self.result_list()
        self.skip()
        start = self.pos
        name = self.match(_STRING, "an op name in quotes (the text must be in generic form)").group()[1:-1]
        op = Op(name)
        uses: list[tuple[str, int]] = []

        def operand() -> None:
            match = self.match(_VALUE, "a value")
            uses.append((match.group(), match.start()))

        self.expect("(")
        self.separated(")", operand)
        if self.take("["):
            self.separated("]", lambda: op.successors.append(self.block_named(self.match(_LABEL, "a block").group())))
        if self.take("<"):
            op.properties = self.dictionary()
            self.expect(">")
        if self.at("("):
            self.take("(")
            self.separated(")", lambda: self.region(op))
        if self.at("{"):
            op.attributes = self.dictionary()
        self.signature(op, uses, result_names, start)
        op.loc = self.location()
        return op

    def result_list(self) -> list[tuple[str, int]]:
        """``%a, %b:2 =`` as printed value names with their offsets; empty where the op has no results."""
        names: list[tuple[str, int]] = []
        if not self.at("%"):
            return names
        while True:
            match = self.match(_RESULT, "a result name")
            base, count = match.group(1), match.group(2)
            names += [(f"{base}#{i}", match.start()) for i in range(int(count))] if count else [(base, match.start())]
            if not self.take(","):
                break
        self.expect("=")
        return names

    def signature(self, op: Op, uses: list[tuple[str, int]], names: list[tuple[str, int]], start: int) -> None:
        self.expect(":")
        if not self.at("("):
            raise self.error("expected '(' and the operand types")
        operand_types = self.types()
        self.expect("->")
        result_types = self.types()
        if len(operand_types) != len(uses):
            raise self.error(f"{op.name} has {len(uses)} operands and {len(operand_types)} operand types", start)
        if len(result_types) != len(names) and names:
            raise self.error(f"{op.name} has {len(names)} results and {len(result_types)} result types", start)
        for (name, offset), (type, type_offset) in zip(uses, operand_types, strict=True):
            value = self.scope.find(name)
            if value is None:
                value = Value(op, -1, type, name)
                self.scope.pending.append(_Pending(name, op, len(op.operands), offset))
            elif value.type != type:
                raise self.error(f"{name} is a {value.type}, not a {type}", type_offset)
            op.append_operand(value)
        for index, (type, _) in enumerate(result_types):
            name, offset = names[index] if names else ("", start)
            self.define(name, op.append_result(type, name), offset)

    def define(self, name: str, value: Value, offset: int) -> None:
        if not name:
            return
        if self.scope.find(name) is not None:
            raise self.error(f"{name} is defined twice", offset)
        self.scope.values[name] = value

    def region(self, op: Op) -> None:
        self.expect("{")
        # Module and function bodies cannot see the values around them, and their names start afresh.
        outer = self.scope
        self.scope = _Scope(None if op.name in ISOLATED else outer)
        region = op.add_region(Region())
        block: Block | None = None
        while not self.at("}"):
            if self.at("^"):
                block = self.block_header(region)
                continue
            if self.pos >= len(self.text):
                raise self.error("expected '}' at the end of a region")
            if block is None:
                block = region.append(Block())
            block.append(self.op())
        self.expect("}")
        self.close_scope(outer)

    def block_header(self, region: Region) -> Block:
        label = self.match(_LABEL, "a block").group()
        block = self.block_named(label)
        if block.parent is not None:
            raise self.error(f"{label} is defined twice")
        region.append(block)

        def argument() -> None:
            match = self.match(_VALUE, "a block argument")
            self.expect(":")
            type = self.opaque("L,)")
            self.define(match.group(), block.add_arg(type, match.group(), self.location()), match.start())

        if self.take("("):
            self.separated(")", argument)
        self.expect(":")
        return block

    def block_named(self, label: str) -> Block:
        return self.scope.blocks.setdefault(label, Block())

    def close_scope(self, outer: _Scope) -> None:
        scope, self.scope = self.scope, outer
        for label, block in scope.blocks.items():
            if block.parent is None:
                raise self.error(f"a branch goes to {label}, which is not defined")
        for use in scope.pending:
            value = scope.values.get(use.name)
            if value is not None:
                stand_in = use.op.operands[use.index]
                if value.type != stand_in.type:
                    raise self.error(f"{use.name} is a {value.type}, not a {stand_in.type}", use.offset)
                use.op.set_operand(use.index, value)
            elif scope.parent is None:
                raise self.error(f"{use.name} is used but not defined", use.offset)
            else:
                scope.parent.pending.append(use)
