"""How regular integers and pointers are along each dimension: what decides the width of a global memory access.

Of every tensor (a scalar counts as one dimension) three numbers a dimension are known, all powers of two times
something, all lower bounds:

* *contiguity*: elements come in runs of that length, each one more than the one before;
* *divisibility*: the first element of each run (for a pointer: its byte address) is a multiple of it;
* *constancy*: elements come in runs of that length that are equal.

The notions and the rules are those of Triton's ``AxisInfo`` analysis, which picks the width in code generation.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import gcd
from typing import Any

from ..ir import Block, Module, Op, Value
from ..location import split_top_level
from .alignment_rules import RULES
from .axis import Axis, join, lowest_bit
from .types import TensorType, parse_type

HINTS = {"tt.contiguity": "contiguity", "tt.divisibility": "divisibility", "tt.constancy": "constancy"}
MAX_ROUNDS = 16


class Alignment:
    """The facts of every value of a function, computed on construction."""

    def __init__(self, function: Op, module: Module) -> None:
        self.module = module
        self._facts: dict[Value, Axis] = {}
        entry = function.regions[0].blocks[0] if function.regions and function.regions[0].blocks else None
        if entry is None:
            return
        hints = _argument_hints(function)
        for index, arg in enumerate(entry.args):
            self._facts[arg] = _hinted(self.unknown(arg), hints[index] if index < len(hints) else {})
        for block in function.regions[0].blocks:
            self._block(block)

    def of(self, value: Value) -> Axis:
        """Facts of a value; nothing is known of one that was not reached."""
        return self._facts.get(value) or self.unknown(value)

    def unknown(self, value: Value) -> Axis:
        ones = (1,) * max(1, len(self.shape(value)))
        return Axis(ones, ones, ones)

    def shape(self, value: Value) -> tuple[int, ...]:
        tensor = self.tensor(value)
        return tensor.shape if tensor else ()

    def tensor(self, value: Value) -> TensorType | None:
        if not self.module.before.get(value.type, value.type).startswith("tensor<"):
            return None
        return parse_type(value.type, self.module)

    # ---- walking

    def _block(self, block: Block) -> None:
        for op in block.ops:
            if op.name == "scf.for":
                self._for(op)
            elif op.name == "scf.if":
                self._if(op)
            else:
                for region in op.regions:
                    for inner in region.blocks:
                        self._block(inner)
                self._op(op)

    def _for(self, op: Op) -> None:
        body = op.regions[0].block
        lower, step = self.of(op.operands[0]), self.of(op.operands[2])
        carried = body.args[1:]
        facts = [self.of(value) for value in op.operands[3:]]
        self._facts[body.args[0]] = Axis((1,), (gcd(lower.divisibility[0], step.divisibility[0]),), (1,))
        for _ in range(MAX_ROUNDS):
            self._facts.update(zip(carried, facts, strict=True))
            self._block(body)
            last = body.terminator
            yielded = [self.of(value) for value in last.operands] if last else []
            merged = [join(a, b) for a, b in zip(facts, yielded, strict=True)]
            if merged == facts:
                break
            facts = merged
        else:
            facts = [self.unknown(value) for value in carried]
            self._facts.update(zip(carried, facts, strict=True))
            self._block(body)
        self._facts.update(zip(op.results, facts, strict=True))

    def _if(self, op: Op) -> None:
        ends = []
        for region in op.regions:
            for block in region.blocks:
                self._block(block)
                if block.terminator is not None:
                    ends.append([self.of(value) for value in block.terminator.operands])
        for index, result in enumerate(op.results):
            facts = [end[index] for end in ends]
            self._facts[result] = join(*facts) if len(facts) == 2 else self.unknown(result)

    def _op(self, op: Op) -> None:
        if len(op.results) != 1:
            return
        rule = RULES.get(op.name)
        result = op.results[0]
        facts = rule(self, op) if rule else None
        if facts is None or facts.rank != max(1, len(self.shape(result))):
            facts = self.unknown(result)
        if facts.constant is not None:
            facts = self.constant(result, facts.constant)
        self._facts[result] = _hinted(facts, op.attributes)

    def constant(self, result: Value, value: int) -> Axis:
        shape = self.shape(result) or (1,)
        ones = (1,) * len(shape)
        return Axis(ones, (lowest_bit(value),) * len(shape), shape, value)


def _hinted(facts: Axis, attributes: dict[str, str]) -> Axis:
    for name, field in HINTS.items():
        if name in attributes:
            numbers = tuple(int(n) for n in re.findall(r"-?\d+", _hint_body(attributes[name])))
            if len(numbers) == facts.rank or len(set(numbers)) == 1:
                full: Any = numbers if len(numbers) == facts.rank else numbers[:1] * facts.rank
                facts = replace(facts, **{field: full})
    return facts


def _hint_body(text: str) -> str:
    """The numbers of ``16 : i32`` or ``dense<[1, 16]> : tensor<2xi32>``."""
    match = re.match(r"dense<(.*?)>\s*:", text)
    return match.group(1) if match else text.partition(":")[0]


def _argument_hints(function: Op) -> list[dict[str, str]]:
    text = function.properties.get("arg_attrs", "[]")
    hints = []
    for entry in split_top_level(text[1:-1]):
        pairs = (part.partition("=") for part in split_top_level(entry.strip()[1:-1]))
        hints.append({key.strip(): value.strip() for key, _, value in pairs})
    return hints
