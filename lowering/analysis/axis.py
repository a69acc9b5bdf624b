"""Contiguity, divisibility and constancy of one value; see ``alignment.py``."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

MOST = 1 << 60

Dims = tuple[int, ...]


@dataclass(frozen=True)
class Axis:
    """The three facts, one number a dimension, and the value where it is one compile-time constant."""

    contiguity: Dims
    divisibility: Dims
    constancy: Dims
    constant: int | None = None

    @property
    def rank(self) -> int:
        return len(self.contiguity)


def join(a: Axis, b: Axis) -> Axis:
    """What holds whichever of the two a value is."""
    return Axis(
        tuple(map(gcd, a.contiguity, b.contiguity)),
        tuple(joined_divisibility(a, b, d) for d in range(a.rank)),
        tuple(map(gcd, a.constancy, b.constancy)),
        a.constant if a.constant == b.constant else None,
    )


def joined_divisibility(a: Axis, b: Axis, d: int) -> int:
    both = gcd(a.divisibility[d], b.divisibility[d])
    # a shorter run starts inside a longer one, so it can start at any multiple of the shorter length
    return both if a.contiguity[d] == b.contiguity[d] else gcd(both, a.contiguity[d], b.contiguity[d])


def lowest_bit(value: int) -> int:
    """The largest power of two that divides ``value``."""
    return value & -value if value else MOST
