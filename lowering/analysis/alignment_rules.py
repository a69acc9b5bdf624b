"""What each operation makes of the contiguity, divisibility and constancy of its operands; see ``alignment.py``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import gcd
from typing import TYPE_CHECKING

from ..ir import Op
from .axis import MOST, Axis, Dims, join, joined_divisibility, lowest_bit
from .types import element_bits, pointee

if TYPE_CHECKING:
    from .alignment import Alignment

Rule = Callable[["Alignment", Op], "Axis | None"]
Numbers = Callable[[Axis, Axis, int], int]


def _constant(facts: Alignment, op: Op) -> Axis | None:
    text = op.properties.get("value", "")
    match = re.match(r"(?:dense<)?(-?\d+|true|false)>?\s*(?::|$)", text)
    if match is None:
        return None
    word = match.group(1)
    value = int(word) if word not in ("true", "false") else int(word == "true")
    return facts.constant(op.result, value)


def _same(facts: Alignment, op: Op) -> Axis:
    return facts.of(op.operands[0])


def _make_range(facts: Alignment, op: Op) -> Axis:
    start, end = (int(op.properties[key].partition(":")[0]) for key in ("start", "end"))
    return Axis((end - start,), (lowest_bit(start),), (1,))


def _splat(facts: Alignment, op: Op) -> Axis:
    shape = facts.shape(op.result)
    scalar = facts.of(op.operands[0])
    return Axis((1,) * len(shape), scalar.divisibility[:1] * len(shape), shape, scalar.constant)


def _expand_dims(facts: Alignment, op: Op) -> Axis:
    source, axis = facts.of(op.operands[0]), int(op.properties["axis"].partition(":")[0])
    divisibility = 0
    for d in range(source.rank):
        divisibility = gcd(divisibility, 1 if source.contiguity[d] > 1 else source.divisibility[d])

    def widen(numbers: Dims, new: int) -> Dims:
        return (*numbers[:axis], new, *numbers[axis:])

    return Axis(
        widen(source.contiguity, 1),
        widen(source.divisibility, max(1, divisibility)),
        widen(source.constancy, 1),
        source.constant,
    )


def _broadcast(facts: Alignment, op: Op) -> Axis:
    source, old, new = facts.of(op.operands[0]), facts.shape(op.operands[0]), facts.shape(op.result)
    contiguity = tuple(1 if size == 1 else c for size, c in zip(old, source.contiguity, strict=True))
    constancy = tuple(n if o == 1 else c for o, n, c in zip(old, new, source.constancy, strict=True))
    return Axis(contiguity, source.divisibility, constancy, source.constant)


def _trans(facts: Alignment, op: Op) -> Axis:
    source = facts.of(op.operands[0])
    order = [int(n) for n in re.findall(r"\d+", op.properties["order"].partition(":")[2])]

    def permute(numbers: Dims) -> Dims:
        return tuple(numbers[d] for d in order)

    divisibility, constancy = permute(source.divisibility), permute(source.constancy)
    return Axis(permute(source.contiguity), divisibility, constancy, source.constant)


def _binary(
    contiguity: Numbers,
    divisibility: Numbers,
    constancy: Numbers | None = None,
    constant: Callable[[int, int], int | None] | None = None,
) -> Callable[[Alignment, Op], Axis]:
    def rule(facts: Alignment, op: Op) -> Axis:
        a, b = (facts.of(value) for value in op.operands[:2])
        known = None
        if constant is not None and a.constant is not None and b.constant is not None:
            known = constant(a.constant, b.constant)
        dims = range(a.rank)
        same = constancy or (lambda a, b, d: gcd(a.constancy[d], b.constancy[d]))
        return Axis(
            tuple(max(1, contiguity(a, b, d)) for d in dims),
            tuple(max(1, min(MOST, divisibility(a, b, d))) for d in dims),
            tuple(max(1, same(a, b, d)) for d in dims),
            known,
        )

    return rule


def _one(a: Axis, b: Axis, d: int) -> int:
    return 1


def _sum_contiguity(a: Axis, b: Axis, d: int) -> int:
    return max(gcd(a.constancy[d], b.contiguity[d]), gcd(a.contiguity[d], b.constancy[d]))


def _difference_contiguity(a: Axis, b: Axis, d: int) -> int:
    return gcd(a.contiguity[d], b.constancy[d])


def _sum_divisibility(scale: int, contiguity: Numbers) -> Numbers:
    def rule(a: Axis, b: Axis, d: int) -> int:
        first, second = a.divisibility[d], min(MOST, b.divisibility[d] * scale)
        if a.contiguity[d] > 1 and b.contiguity[d] > 1:
            return 2 if first % 2 == 0 and second % 2 == 0 else 1
        if a.contiguity[d] > 1 or b.contiguity[d] > 1:
            return gcd(first, second, contiguity(a, b, d) * scale)
        return gcd(first, second)

    return rule


def _addptr(facts: Alignment, op: Op) -> Axis:
    tensor = facts.tensor(op.operands[0])
    element = pointee(tensor.element if tensor else op.operands[0].type)
    bytes_ = max(1, element_bits(element) // 8)
    return _binary(_sum_contiguity, _sum_divisibility(bytes_, _sum_contiguity))(facts, op)


def _product_contiguity(a: Axis, b: Axis, d: int) -> int:
    return max(a.contiguity[d] if b.constant == 1 else 1, b.contiguity[d] if a.constant == 1 else 1)


def _product_divisibility(a: Axis, b: Axis, d: int) -> int:
    first = 1 if a.contiguity[d] > 1 and b.constant != 1 else a.divisibility[d]
    second = 1 if b.contiguity[d] > 1 and a.constant != 1 else b.divisibility[d]
    return first * second


def _divide(facts: Alignment, op: Op) -> Axis:
    shape = facts.shape(op.result)

    def constancy(a: Axis, b: Axis, d: int) -> int:
        plain = gcd(a.constancy[d], b.constancy[d])
        if shape and a.contiguity[d] == shape[d] and b.constancy[d] == shape[d]:
            return max(plain, gcd(a.contiguity[d], a.divisibility[d], b.divisibility[d]))
        return plain

    def divisibility(a: Axis, b: Axis, d: int) -> int:
        if a.constant == 0 or b.constant == 1:
            return a.divisibility[d]
        power = b.constant is not None and b.constant > 0 and not b.constant & (b.constant - 1)
        return max(1, a.divisibility[d] // b.constant) if power and b.constant and a.contiguity[d] == 1 else 1

    def contiguity(a: Axis, b: Axis, d: int) -> int:
        return a.contiguity[d] if b.constant == 1 else 1

    return _binary(contiguity, divisibility, constancy, lambda x, y: int(x / y) if y else None)(facts, op)


def _remainder(facts: Alignment, op: Op) -> Axis:
    shape = facts.shape(op.result)

    def contiguity(a: Axis, b: Axis, d: int) -> int:
        if shape and a.contiguity[d] == shape[d] and b.constancy[d] == shape[d]:
            return gcd(a.contiguity[d], a.divisibility[d], b.divisibility[d])
        return 1

    def divisibility(a: Axis, b: Axis, d: int) -> int:
        both = gcd(a.divisibility[d], b.divisibility[d])
        length = contiguity(a, b, d)
        return gcd(both, length) if max(a.contiguity[d], b.contiguity[d]) > length else both

    return _binary(contiguity, divisibility, None, lambda x, y: x - int(x / y) * y if y else None)(facts, op)


def _shift_left(facts: Alignment, op: Op) -> Axis:
    def divisibility(a: Axis, b: Axis, d: int) -> int:
        first = 1 if a.contiguity[d] > 1 and b.constant != 0 else a.divisibility[d]
        return first << min(b.constant, 60) if b.constant is not None else first

    return _binary(_kept_by_zero, divisibility, None, lambda x, y: x << y)(facts, op)


def _shift_right(facts: Alignment, op: Op) -> Axis:
    def divisibility(a: Axis, b: Axis, d: int) -> int:
        first = 1 if a.contiguity[d] > 1 and b.constant != 0 else a.divisibility[d]
        return max(1, first >> b.constant) if b.constant is not None else 1

    return _binary(_kept_by_zero, divisibility, None, lambda x, y: x >> y)(facts, op)


def _kept_by_zero(a: Axis, b: Axis, d: int) -> int:
    return a.contiguity[d] if b.constant == 0 else 1


# arith.cmpi predicates by number: those that can hold a whole run of the left, or of the right, side
_LEFT_RUNS, _RIGHT_RUNS = (2, 5, 6, 9), (3, 4, 7, 8)


def _compare(facts: Alignment, op: Op) -> Axis | None:
    shape = facts.shape(op.result)
    if not shape:
        return None
    predicate = int(op.properties["predicate"].partition(":")[0])

    def constancy(a: Axis, b: Axis, d: int) -> int:
        plain = gcd(a.constancy[d], b.constancy[d])
        both = gcd(a.divisibility[d], b.divisibility[d])
        if predicate in _RIGHT_RUNS and a.constancy[d] == shape[d]:
            return max(plain, gcd(b.contiguity[d], both))
        if predicate in _LEFT_RUNS and b.constancy[d] == shape[d]:
            return max(plain, gcd(a.contiguity[d], both))
        return plain

    return _binary(_one, _one, constancy)(facts, op)


def _select(facts: Alignment, op: Op) -> Axis:
    which, a, b = (facts.of(value) for value in op.operands)
    if which.constant is not None:
        return a if which.constant else b
    if not facts.shape(op.operands[0]):
        return join(a, b)
    contiguity = tuple(map(gcd, a.contiguity, b.contiguity, which.constancy))
    divisibility = tuple(gcd(joined_divisibility(a, b, d), contiguity[d]) for d in range(a.rank))
    return Axis(contiguity, divisibility, tuple(map(gcd, a.constancy, b.constancy, which.constancy)))


def _either(facts: Alignment, op: Op) -> Axis:
    return join(*(facts.of(value) for value in op.operands[:2]))


def _reshape(facts: Alignment, op: Op) -> Axis | None:
    """Only where ones are added or taken away; anything else is left unknown."""
    source, old, new = facts.of(op.operands[0]), facts.shape(op.operands[0]), facts.shape(op.result)
    if [n for n in old if n > 1] != [n for n in new if n > 1]:
        return None
    kept: Sequence[int] = [d for d, n in enumerate(old) if n > 1]
    places = iter(kept)
    picks = [next(places) if n > 1 else None for n in new]

    def pick(numbers: Dims) -> Dims:
        return tuple(1 if d is None else numbers[d] for d in picks)

    return Axis(pick(source.contiguity), pick(source.divisibility), pick(source.constancy), source.constant)


_bitwise = _binary(_one, _one)

RULES: dict[str, Rule] = {
    "arith.constant": _constant,
    "tt.make_range": _make_range,
    "tt.splat": _splat,
    "tt.expand_dims": _expand_dims,
    "tt.broadcast": _broadcast,
    "tt.trans": _trans,
    "tt.reshape": _reshape,
    "tt.addptr": _addptr,
    "arith.addi": _binary(_sum_contiguity, _sum_divisibility(1, _sum_contiguity), None, lambda x, y: x + y),
    "arith.subi": _binary(
        _difference_contiguity, _sum_divisibility(1, _difference_contiguity), None, lambda x, y: x - y
    ),
    "arith.muli": _binary(_product_contiguity, _product_divisibility, None, lambda x, y: x * y),
    "arith.cmpi": _compare,
    "arith.select": _select,
    **dict.fromkeys(("arith.divsi", "arith.divui"), _divide),
    **dict.fromkeys(("arith.remsi", "arith.remui"), _remainder),
    **dict.fromkeys(("arith.shrsi", "arith.shrui"), _shift_right),
    "arith.shli": _shift_left,
    **dict.fromkeys(("arith.andi", "arith.ori", "arith.xori"), _bitwise),
    **dict.fromkeys(("arith.minsi", "arith.maxsi", "arith.minui", "arith.maxui"), _either),
    **dict.fromkeys(
        ("arith.extsi", "arith.extui", "arith.trunci", "ttg.convert_layout", "gluon.set_auto_layout", "tt.bitcast"),
        _same,
    ),
}
