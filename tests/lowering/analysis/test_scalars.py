"""Integers of a walk: arithmetic against Python's, symbols that become numbers, choices that are kept to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from amdwarp.lowering.analysis.scalars import Choices, Lin, Scalar, Scalars, TooManyPathsError, add, difference, paths
from hypothesis import given
from hypothesis import strategies as st

SMALL = st.integers(-40, 40)
EQ, LT, LE, GT, GE, ULT, UGT = "0", "2", "3", "4", "5", "6", "8"


def scalars(reach: int = 4) -> Scalars:
    return Scalars(Choices([]), reach)


def each_path(run: Callable[[Scalars], object], reach: int = 4) -> list[object]:
    return [run(Scalars(choices, reach)) for choices in paths(1000)]


# ---- numbers


def truncated(a: int, b: int) -> int:
    return int(a / b)


PYTHON: dict[str, Callable[[int, int], int]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.divsi": truncated,
    "arith.remsi": lambda a, b: a - b * truncated(a, b),
    "arith.floordivsi": lambda a, b: a // b,
    "arith.ceildivsi": lambda a, b: -(-a // b),
    "arith.minsi": min,
    "arith.maxsi": max,
    "arith.andi": lambda a, b: a & b,
    "arith.ori": lambda a, b: a | b,
    "arith.xori": lambda a, b: a ^ b,
}


@pytest.mark.parametrize("op", PYTHON)
@given(a=SMALL, b=SMALL)
def test_arithmetic(op: str, a: int, b: int) -> None:
    found = scalars().apply(op, [a, b])
    if b == 0 and ("div" in op or "rem" in op):
        assert isinstance(found, Lin)
    elif op == "arith.remsi" and b < 0:
        assert isinstance(found, Lin) or found == PYTHON[op](a, b)
    else:
        assert found == PYTHON[op](a, b)


@given(a=SMALL, b=SMALL)
def test_comparisons(a: int, b: int) -> None:
    tests = [a == b, a != b, a < b, a <= b, a > b, a >= b]
    assert [scalars().apply("arith.cmpi", [a, b], str(i)) for i in range(6)] == [int(t) for t in tests]
    ua, ub = a % 2**32, b % 2**32
    unsigned = [ua < ub, ua <= ub, ua > ub, ua >= ub]
    assert [scalars().apply("arith.cmpi", [a, b], str(i)) for i in range(6, 10)] == [int(t) for t in unsigned]


@pytest.mark.parametrize("op", ["arith.divui", "arith.remui", "arith.shrui", "arith.maxui"])
def test_unsigned_arithmetic_on_a_negative_number_is_not_known(op: str) -> None:
    assert isinstance(scalars().apply(op, [-1, 3]), Lin)
    assert isinstance(scalars().apply(op, [7, 3]), int)


def test_a_shift_by_too_much_is_not_known() -> None:
    assert isinstance(scalars().apply("arith.shli", [1, 64]), Lin)
    assert isinstance(scalars().apply("arith.shli", [1, -1]), Lin)
    assert scalars().apply("arith.shli", [3, 2]) == 12


def test_what_is_not_in_the_tables_is_not_known() -> None:
    assert isinstance(scalars().apply("arith.mulsi_extended", [1, 2]), Lin)
    assert isinstance(scalars().apply("arith.cmpi", [1, 2], "17"), Lin)


# ---- symbols


def test_sums_of_a_symbol() -> None:
    values = scalars()
    x = values.fresh()
    y = values.apply("arith.addi", [x, 5])
    assert y == Lin(x.symbol, 5)
    assert values.apply("arith.addi", [2, y]) == Lin(x.symbol, 7)
    assert values.apply("arith.subi", [y, x]) == 5
    assert values.apply("arith.cmpi", [x, y], LT) == 1
    assert values.apply("arith.cmpi", [y, x], GE) == 1
    assert isinstance(values.apply("arith.cmpi", [x, y], ULT), Lin), "the sum may have passed zero"
    assert add(x, 3) == Lin(x.symbol, 3)
    assert difference(x, 3) is None


def test_one_expression_has_one_symbol() -> None:
    values = scalars()
    x, y = values.fresh(), values.fresh()
    assert values.apply("arith.muli", [x, y]) == values.apply("arith.muli", [x, y])
    assert values.apply("arith.muli", [x, y]) != values.apply("arith.muli", [y, x])
    assert values.apply("arith.cmpi", [x, y], LT) != values.apply("arith.cmpi", [x, y], GT)


def test_a_symbol_becomes_known_with_its_operands() -> None:
    values = scalars()
    n = values.fresh()
    tiles = values.apply("arith.ceildivsi", [n, 64])
    below = values.apply("arith.subi", [tiles, 2])
    low = values.apply("arith.maxsi", [below, 0])
    last = values.apply("arith.cmpi", [tiles, 5], EQ)
    assert isinstance(low, Lin)
    values.bind(n, 300)
    assert values.resolve(low) == 3
    assert values.resolve(last) == 1


def test_a_bound_symbol_hands_on_to_what_it_was_made_of() -> None:
    values = scalars()
    n = values.fresh()
    low = values.apply("arith.maxsi", [add(n, -2), 0])
    assert isinstance(low, Lin)
    values.bind(low, 5)
    assert values.resolve(n) == 7


def test_a_maximum_at_its_limit_leaves_several_values() -> None:
    def run(values: Scalars) -> Scalar:
        n = values.fresh()
        low = values.apply("arith.maxsi", [add(n, -2), 0])
        assert isinstance(low, Lin)
        values.bind(low, 0)
        return values.resolve(n)

    assert each_path(run, reach=3) == [2, 1, 0, -1]


def test_a_minimum_at_its_limit_leaves_several_values() -> None:
    def run(values: Scalars) -> Scalar:
        n = values.fresh()
        high = values.apply("arith.minsi", [n, 8])
        assert isinstance(high, Lin)
        values.bind(high, 8)
        return values.resolve(n)

    assert each_path(run, reach=2) == [8, 9, 10]


def test_a_long_chain_of_symbols_ends() -> None:
    values = scalars()
    x = values.fresh()
    value: Scalar = x
    for _ in range(400):
        value = values.apply("arith.xori", [value, 1])
    assert isinstance(values.force(value), (int, Lin))
    values.bind(x, 0)
    assert isinstance(values.resolve(value), (int, Lin))


# ---- choices


def test_residues_are_chosen_once_and_kept_to() -> None:
    def run(values: Scalars) -> tuple[Scalar, ...]:
        start = values.fresh()
        slots = [values.apply("arith.remsi", [add(start, i), 3]) for i in range(5)]
        return tuple(values.force(slot) for slot in slots)

    assert each_path(run) == [(0, 1, 2, 0, 1), (1, 2, 0, 1, 2), (2, 0, 1, 2, 0)]


def test_a_residue_is_not_chosen_before_it_is_needed() -> None:
    values = scalars()
    start = values.fresh()
    slot = values.apply("arith.remsi", [start, 3])
    assert isinstance(values.resolve(slot), Lin)
    assert values.choices.sizes == []
    values.bind(start, 7)
    assert values.force(slot) == 1
    assert values.choices.sizes == []


def test_a_carried_slot_that_wraps_around() -> None:
    def run(values: Scalars) -> tuple[Scalar, ...]:
        slot: Scalar = values.apply("arith.remsi", [values.fresh(), 3])
        seen = []
        for _ in range(4):
            seen.append(values.force(slot))
            after = values.apply("arith.addi", [slot, 1])
            wraps = values.apply("arith.cmpi", [after, 3], EQ)
            slot = values.apply("arith.select", [wraps, 0, after])
        return tuple(seen)

    assert each_path(run) == [(0, 1, 2, 0), (1, 2, 0, 1), (2, 0, 1, 2)]


def test_a_selection_of_two_equal_values_needs_no_condition() -> None:
    values = scalars()
    assert values.apply("arith.select", [values.fresh(), 4, 4]) == 4
    assert values.apply("arith.select", [1, 4, 5]) == 4
    assert values.apply("arith.select", [0, 4, 5]) == 5


def test_every_combination_of_choices_is_taken_once() -> None:
    seen = [(c.pick(2), c.pick(3) if c.script[0] else 0) for c in paths(100)]
    assert seen == [(0, 0), (1, 0), (1, 1), (1, 2)]


def test_too_many_paths() -> None:
    with pytest.raises(TooManyPathsError):
        for choices in paths(10):
            choices.pick(11)
