"""Printer of generic-form MLIR, and the naming of values it needs. Use it through ``text.py``."""

from __future__ import annotations

import re

from .ir import Block, Module, Op, Region

ISOLATED = frozenset({"builtin.module", "tt.func", "llvm.func", "ttg.warp_specialize.partitions"})
"""Ops whose regions see no value from outside, so that names start afresh there."""

_BARE_KEY = re.compile(r"[A-Za-z_][\w$.]*")


def print_module(module: Module) -> str:
    """Generic-form text of a module. Values are renamed in place where their names clash or are missing."""
    assign_names(module.op)
    lines = [f"{name} = {body}" for name, body in module.before.items()]
    _print_op(module.op, "", lines)
    lines += [f"{name} = {body}" for name, body in module.after.items()]
    return "\n".join(lines) + module.trailer


def print_op(op: Op) -> str:
    """Generic-form text of one op and what is in it, for messages and tests; values must have names."""
    lines: list[str] = []
    _print_op(op, "", lines)
    return "\n".join(lines)


def format_dictionary(entries: dict[str, str]) -> str:
    """``{key = value, unit}``, in the order of the dictionary."""
    items = []
    for key, value in entries.items():
        name = key if _BARE_KEY.fullmatch(key) else f'"{key}"'
        items.append(name if value == "unit" else f"{name} = {value}")
    return "{" + ", ".join(items) + "}"


def _print_op(op: Op, indent: str, lines: list[str]) -> None:
    """Append the lines of ``op``; the first continues nothing, the last may be continued by the caller."""
    head = [indent]
    if op.results:
        groups = [base if count is None else f"{base}:{count}" for base, count in _result_groups(op)]
        head.append(", ".join(groups) + " = ")
    head.append(f'"{op.name}"({", ".join(v.name for v in op.operands)})')
    if op.successors:
        head.append(f"[{', '.join(b.label for b in op.successors)}]")
    if op.properties:
        head.append(f" <{format_dictionary(op.properties)}>")
    lines.append("".join(head))
    if op.regions:
        lines[-1] += " ("
        for index, region in enumerate(op.regions):
            lines[-1] += ", {" if index else "{"
            _print_region(region, indent, lines)
            lines.append(indent + "}")
        lines[-1] += ")"
    tail = f" {format_dictionary(op.attributes)}" if op.attributes else ""
    tail += f" : ({', '.join(v.type for v in op.operands)}) -> {_result_types(op)}"
    lines[-1] += tail if op.loc is None else f"{tail} loc({op.loc})"


def _result_types(op: Op) -> str:
    types = [v.type for v in op.results]
    # A function type needs its own brackets, or its arrow would read as this one's.
    return types[0] if len(types) == 1 and not types[0].startswith("(") else f"({', '.join(types)})"


def _print_region(region: Region, indent: str, lines: list[str]) -> None:
    for position, block in enumerate(region.blocks):
        if position or block.args or not block.ops:
            lines.append(indent + _block_header(block, position))
        for op in block.ops:
            _print_op(op, indent + "  ", lines)


def _block_header(block: Block, position: int) -> str:
    args = [f"{a.name}: {a.type}" + (f" loc({a.loc})" if a.loc is not None else "") for a in block.args]
    header = f"^bb{position}" + (f"({', '.join(args)})" if args else "") + ":"
    labels = [b.label for b in block.predecessors()]
    if len(labels) == 1:
        return f"{header}  // pred: {labels[0]}"
    if labels:
        return f"{header}  // {len(labels)} preds: {', '.join(labels)}"
    return f"{header}  // no predecessors" if position else header


# ---- names


def assign_names(root: Op) -> None:
    """Give every value under ``root`` a printable name, unique among those visible where it is.

    A name that is free is kept; a missing one becomes the next number, a clash gets a ``_N`` suffix.
    """
    numbers = [int(n[1:]) for op in root.walk() for v in op.results if (n := v.name.split("#")[0])[1:].isdigit()]
    namer = _Namer(max(numbers, default=-1) + 1)
    namer.op(root, set())


class _Namer:
    def __init__(self, next_number: int) -> None:
        self.next_number = next_number

    def op(self, op: Op, taken: set[str]) -> None:
        for region in op.regions:
            # MLIR's parser of the generic form gives partitions no scope of names of their own, isolated as they are.
            own = set() if op.name in ISOLATED and op.name != "ttg.warp_specialize.partitions" else set(taken)
            for block in region.blocks:
                for arg in block.args:
                    arg.name = self.fresh(arg.name.partition("#")[0], own)
                for inner in block.ops:
                    if inner.results:
                        self.results(inner, own)
            for block in region.blocks:
                for inner in block.ops:
                    if inner.regions:
                        self.op(inner, own)

    def results(self, op: Op, taken: set[str]) -> None:
        start = 0
        for base, count in _result_groups(op):
            name = self.fresh(base, taken)
            if count is None:
                op.results[start].name = name
            for offset in range(count or 0):
                op.results[start + offset].name = f"{name}#{offset}"
            start += count or 1

    def fresh(self, hint: str, taken: set[str]) -> str:
        if hint and not hint.startswith("%"):
            hint = "%" + hint
        name = hint
        if not hint or (hint in taken and hint[1:].isdigit()):
            name = f"%{self.next_number}"
            self.next_number += 1
        suffix = 0
        while name in taken:
            name = f"{hint}_{suffix}"
            suffix += 1
        taken.add(name)
        return name


def _result_groups(op: Op) -> list[tuple[str, int | None]]:
    """Results as printed before the ``=``: (name, None) for one, (base, n) for a pack ``%base:n``."""
    groups: list[tuple[str, int | None]] = []
    for value in op.results:
        base, _, number = value.name.partition("#")
        if not number:
            groups.append((base, None))
        elif groups and groups[-1] == (base, int(number)):
            groups[-1] = (base, int(number) + 1)
        else:
            # An incomplete pack, left by an edit: the first member starts a new one, any other loses its name.
            groups.append((base, 1) if number == "0" else ("", None))
    return [(base, None if count == 1 else count) for base, count in groups]
