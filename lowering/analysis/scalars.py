"""Integers as far as a compile-time walk of a kernel knows them: a number, a symbol plus a number, or a choice.

A walk (``timeline.py``) runs the kernel's scalar code once per *path*. Whatever the compiler cannot know (an argument, a
program id, a quotient of one) is a symbol. Where a decision needs more (``(i + start) % depth`` for an unknown
``start``), the path chooses one of the possible answers, keeps to it, and the walk is repeated for each of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Lin:
    """``symbol + offset`` for an integer the compiler does not know."""

    symbol: int
    offset: int = 0


Scalar = int | Lin


class TooManyPathsError(Exception):
    """The kernel has more distinct paths than the walk is willing to follow."""


class Choices:
    """The decisions of one path, replayed by ``paths``."""

    def __init__(self, script: list[int]) -> None:
        self.script = script
        self.sizes: list[int] = []

    def pick(self, options: int) -> int:
        position = len(self.sizes)
        self.sizes.append(options)
        if position == len(self.script):
            self.script.append(0)
        return self.script[position]


def paths(limit: int) -> Iterator[Choices]:
    """Every sequence of decisions, depth first.

    Raises:
        TooManyPathsError: after ``limit`` paths.
    """
    script: list[int] = []
    for _ in range(limit):
        choices = Choices(script)
        yield choices
        script = script[: len(choices.sizes)]
        while script and script[-1] + 1 >= choices.sizes[len(script) - 1]:
            script.pop()
        if not script:
            return
        script[-1] += 1
    raise TooManyPathsError


class Scalars:
    """Symbols of one path, what the path assumed of them, and integer arithmetic on them."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self._count = 0
        self._bound: dict[int, Scalar] = {}
        self._residue: dict[tuple[int, int], int] = {}

    def fresh(self) -> Lin:
        self._count += 1
        return Lin(self._count)

    def resolve(self, value: Scalar) -> Scalar:
        while isinstance(value, Lin) and value.symbol in self._bound:
            value = add(self._bound[value.symbol], value.offset)
        return value

    def bind(self, value: Lin, to: Scalar) -> None:
        """Assume that ``value`` equals ``to`` on this path."""
        self._bound[value.symbol] = add(to, -value.offset)

    def remainder(self, value: Scalar, modulus: Scalar) -> Scalar:
        """``value % modulus`` of a non-negative value; chooses the residue of an unknown symbol."""
        value, modulus = self.resolve(value), self.resolve(modulus)
        if isinstance(modulus, Lin) or modulus <= 0:
            return self.fresh()
        if isinstance(value, int):
            return value % modulus if value >= 0 else -(-value % modulus)
        key = value.symbol, modulus
        if key not in self._residue:
            self._residue[key] = self.choices.pick(modulus)
        return (self._residue[key] + value.offset) % modulus

    def apply(self, op: str, operands: Sequence[Scalar], predicate: str = "") -> Scalar:
        """The result of an integer op of the ``arith`` dialect; a fresh symbol where it is not known."""
        values = [self.resolve(v) for v in operands]
        if op in ("arith.remsi", "arith.remui"):
            return self.remainder(values[0], values[1])
        if op in _COPIES:
            return values[0]
        if op == "arith.select":
            condition, yes, no = values
            if isinstance(condition, int):
                return yes if condition else no
            return yes if yes == no else self.fresh()
        if op == "arith.cmpi":
            return self._compare(predicate, values[0], values[1])
        if op == "arith.addi":
            a, b = values
            if isinstance(b, int):
                return add(a, b)
            return add(b, a) if isinstance(a, int) else self.fresh()
        if op == "arith.subi":
            a, b = values
            if isinstance(b, int):
                return add(a, -b)
            return difference(a, b) if difference(a, b) is not None else self.fresh()  # type: ignore[return-value]
        numbers = [v for v in values if isinstance(v, int)]
        if op in _NUMERIC and len(numbers) == len(values) and not (op in _DIVISIONS and numbers[1] == 0):
            return _NUMERIC[op](*numbers)
        return self.fresh()

    def _compare(self, predicate: str, a: Scalar, b: Scalar) -> Scalar:
        delta = difference(a, b)
        if delta is None or predicate not in _COMPARISONS:
            return self.fresh()
        return int(_COMPARISONS[predicate](delta))


def add(value: Scalar, number: int) -> Scalar:
    return Lin(value.symbol, value.offset + number) if isinstance(value, Lin) else value + number


def difference(a: Scalar, b: Scalar) -> int | None:
    """``a - b`` where both hang on the same symbol or on none, else None."""
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    if isinstance(a, Lin) and isinstance(b, Lin) and a.symbol == b.symbol:
        return a.offset - b.offset
    return None


_COPIES = ("arith.extsi", "arith.extui", "arith.index_cast", "arith.index_castui", "arith.bitcast", "arith.trunci")
_DIVISIONS = ("arith.divsi", "arith.divui", "arith.ceildivsi", "arith.floordivsi")
_NUMERIC: dict[str, Callable[..., int]] = {
    "arith.muli": lambda a, b: a * b,
    "arith.divsi": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "arith.divui": lambda a, b: a // b,
    "arith.ceildivsi": lambda a, b: -(-a // b),
    "arith.floordivsi": lambda a, b: a // b,
    "arith.minsi": min,
    "arith.maxsi": max,
    "arith.minui": min,
    "arith.maxui": max,
    "arith.andi": lambda a, b: a & b,
    "arith.ori": lambda a, b: a | b,
    "arith.xori": lambda a, b: a ^ b,
    "arith.shli": lambda a, b: a << b,
    "arith.shrsi": lambda a, b: a >> b,
    "arith.shrui": lambda a, b: a >> b,
}
# arith.cmpi predicates by number, as generic form prints them (``0 : i64``). The unsigned ones are read as signed:
# both sides of an index comparison are non-negative.
_COMPARISONS: dict[str, Callable[[int], bool]] = {
    "0": lambda d: d == 0,
    "1": lambda d: d != 0,
    "2": lambda d: d < 0,
    "3": lambda d: d <= 0,
    "4": lambda d: d > 0,
    "5": lambda d: d >= 0,
    "6": lambda d: d < 0,
    "7": lambda d: d <= 0,
    "8": lambda d: d > 0,
    "9": lambda d: d >= 0,
}
