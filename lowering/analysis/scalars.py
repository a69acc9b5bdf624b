"""Integers as far as a compile-time walk of a kernel knows them: a number, a symbol plus a number, or a choice.

A walk (``timeline.py``) runs the kernel's scalar code once per *path*. What the compiler cannot know (an argument, a
program id, a quotient of one) is a symbol. A symbol remembers the op that made it, so it becomes a number as soon as
its operands do. Where a decision needs a number that is not there (``(i + start) % depth`` for an unknown ``start``),
the path chooses one of the possible answers, keeps to it, and the walk is repeated for each of the others.

Arithmetic does not wrap around: indices and trip counts are far below their types' limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

MAX_DEPTH = 100  # of the chain of symbols behind one; a longer one stays a symbol


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


@dataclass(frozen=True)
class _Definition:
    op: str
    operands: tuple[Scalar, ...]
    predicate: str


class Scalars:
    """Symbols of one path, what the path assumed of them, and integer arithmetic on them.

    Args:
        choices: the path's decisions.
        reach: how far below a bound a value is followed that ``max`` or ``min`` cut off.
    """

    def __init__(self, choices: Choices, reach: int = 4) -> None:
        self.choices = choices
        self.reach = reach
        self._count = 0
        self._bound: dict[int, Scalar] = {}
        self._residue: dict[tuple[int, int], int] = {}
        self._made_by: dict[int, _Definition] = {}
        self._known: dict[_Definition, Lin] = {}
        self._tried: dict[int, int] = {}  # symbol -> len(_bound) when it was last tried

    def fresh(self) -> Lin:
        self._count += 1
        return Lin(self._count)

    def resolve(self, value: Scalar, depth: int = 0) -> Scalar:
        """What is known of ``value`` by now, without a choice."""
        while isinstance(value, Lin):
            if value.symbol not in self._bound and not self._settle(value.symbol, depth):
                break
            value = add(self._bound[value.symbol], value.offset)
        return value

    def _settle(self, symbol: int, depth: int) -> bool:
        made_by = self._made_by.get(symbol)
        if made_by is None or depth > MAX_DEPTH or self._tried.get(symbol) == len(self._bound):
            return False
        self._tried[symbol] = len(self._bound)
        operands = [self.resolve(v, depth + 1) for v in made_by.operands]
        result = self._evaluate(made_by.op, operands, made_by.predicate)
        if result is None or result == Lin(symbol):
            return False
        self._bound[symbol] = result
        return True

    def force(self, value: Scalar, depth: int = 0) -> Scalar:
        """``value`` as a number if choosing residues makes it one; a symbol where that does not help."""
        value = self.resolve(value)
        while isinstance(value, Lin) and (made_by := self._made_by.get(value.symbol)) and depth <= MAX_DEPTH:
            operands = [self.force(v, depth + 1) for v in made_by.operands]
            result = self._evaluate(made_by.op, operands, made_by.predicate, choose=True)
            if result is None:
                break
            self._bound.setdefault(value.symbol, result)
            value = self.resolve(value)
        return value

    def bind(self, value: Lin, to: Scalar) -> None:
        """Assume that ``value`` equals ``to`` on this path, and so what it was made of."""
        number = add(to, -value.offset)
        self._bound[value.symbol] = number
        made_by = self._made_by.get(value.symbol)
        if made_by is None or made_by.op not in _CUTS or not isinstance(number, int):
            return
        values = [self.resolve(v) for v in made_by.operands]
        symbols = [v for v in values if isinstance(v, Lin)]
        limits = [v for v in values if isinstance(v, int)]
        if len(symbols) == len(limits) == 1:
            cut = self.choices.pick(self.reach + 1) if number == limits[0] else 0
            self.bind(symbols[0], number - _CUTS[made_by.op] * cut)

    def apply(self, op: str, operands: Sequence[Scalar], predicate: str = "") -> Scalar:
        """The result of an integer op of the ``arith`` dialect; the symbol that stands for it where it is not known."""
        values = tuple(self.resolve(v) for v in operands)
        result = self._evaluate(op, values, predicate)
        if result is not None:
            return result
        definition = _Definition(op, values, predicate)
        if definition not in self._known:
            self._known[definition] = self.fresh()
            self._made_by[self._known[definition].symbol] = definition
        return self._known[definition]

    def _evaluate(self, op: str, values: Sequence[Scalar], predicate: str, choose: bool = False) -> Scalar | None:
        if op in ("arith.remsi", "arith.remui"):
            return self._remainder(values[0], values[1], op == "arith.remsi", choose)
        if op in _COPIES:
            return values[0]
        if op == "arith.select":
            condition, yes, no = values
            if isinstance(condition, int):
                return yes if condition else no
            return yes if yes == no else None
        if op == "arith.cmpi":
            return _compare(predicate, values[0], values[1])
        if op == "arith.addi":
            a, b = values
            if isinstance(b, int):
                return add(a, b)
            return add(b, a) if isinstance(a, int) else None
        if op == "arith.subi":
            a, b = values
            return add(a, -b) if isinstance(b, int) else difference(a, b)
        if op in _NUMERIC:
            return _numeric(op, [v for v in values if isinstance(v, int)], len(values))
        return None

    def _remainder(self, value: Scalar, modulus: Scalar, signed: bool, choose: bool) -> Scalar | None:
        """``value % modulus``; an unknown value counts as non-negative, and its residue is chosen if asked for."""
        if isinstance(modulus, Lin) or modulus <= 0:
            return None
        if isinstance(value, int):
            if value < 0:
                return -(-value % modulus) if signed else None
            return value % modulus
        key = value.symbol, modulus
        if key not in self._residue:
            if not choose:
                return None
            self._residue[key] = self.choices.pick(modulus)
        return (self._residue[key] + value.offset) % modulus


def _numeric(op: str, numbers: list[int], count: int) -> int | None:
    divides = op in _DIVISIONS and len(numbers) == 2 and numbers[1] == 0
    unsigned = op in _UNSIGNED and any(n < 0 for n in numbers)
    shifts = op in _SHIFTS and len(numbers) == 2 and not 0 <= numbers[1] < 64
    return None if len(numbers) != count or divides or unsigned or shifts else _NUMERIC[op](*numbers)


def _compare(predicate: str, a: Scalar, b: Scalar) -> int | None:
    delta = difference(a, b)
    test = _COMPARISONS.get(predicate)
    if delta is None or test is None:
        return None
    if predicate in _UNSIGNED_PREDICATES and delta:
        if not isinstance(a, int) or not isinstance(b, int):
            return None
        if (a < 0) != (b < 0):  # as unsigned numbers the negative one is the larger
            delta = -delta
    return int(test(delta))


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
_CUTS = {"arith.maxsi": 1, "arith.minsi": -1}
_DIVISIONS = ("arith.divsi", "arith.divui", "arith.ceildivsi", "arith.floordivsi")
_SHIFTS = ("arith.shli", "arith.shrsi", "arith.shrui")
_UNSIGNED = ("arith.divui", "arith.minui", "arith.maxui", "arith.shrui")
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
# arith.cmpi predicates by number, as generic form prints them (``0 : i64``): eq ne, signed and unsigned lt le gt ge.
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
_UNSIGNED_PREDICATES = ("6", "7", "8", "9")
