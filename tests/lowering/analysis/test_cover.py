"""How matrix instructions are dealt out to the instructions they hide."""

from __future__ import annotations

from fractions import Fraction

import pytest
from amdwarp.lowering.analysis.cover import Anchor, anchor_clocks, anchors, deal, matrix_clocks, plan
from amdwarp.lowering.analysis.pricing import Price, Slot
from hypothesis import given, settings
from hypothesis import strategies as st

weights = st.lists(st.fractions(Fraction(1, 8), Fraction(8), max_denominator=8), min_size=1, max_size=40)


@settings(deadline=None)
@given(weights, st.integers(0, 300))
def test_all_of_it_is_dealt_out(found: list[Fraction], total: int) -> None:
    covers = deal(found, total)
    assert len(covers) == len(found)
    assert sum(covers) == total
    assert min(covers) >= 0


@settings(deadline=None)
@given(weights, st.integers(0, 200))
def test_enough_of_it_hides_everything_and_the_rest_is_spread_evenly(found: list[Fraction], extra: int) -> None:
    needed = [-(-weight.numerator // weight.denominator) for weight in found]
    covers = deal(found, sum(needed) + extra)
    surplus = [cover - need for cover, need in zip(covers, needed, strict=True)]
    assert min(surplus) >= 0
    assert max(surplus) - min(surplus) <= 1


def test_too_little_of_it_goes_by_weight() -> None:
    assert deal([Fraction(1), Fraction(1), Fraction(4), Fraction(4)], 5) == [0, 1, 2, 2]
    assert deal([Fraction(1)] * 8, 4) == [0, 1, 0, 1, 0, 1, 0, 1]
    assert deal([], 3) == []


@pytest.mark.parametrize(
    ("arch", "instruction", "bits", "clocks"),
    [
        ("gfx942", [16, 16, 16], 16, 16),
        ("gfx942", [32, 32, 8], 16, 32),
        ("gfx942", [16, 16, 32], 8, 16),
        ("gfx942", [16, 16, 4], 32, 32),
        ("gfx942", [16, 16, 4], 64, 32),
        ("gfx950", [16, 16, 32], 16, 16),
        ("gfx950", [16, 16, 16], 16, 16),
        ("gfx950", [32, 32, 16], 16, 32),
        ("gfx950", [16, 16, 128], 8, 32),
        ("gfx950", [16, 16, 128], 4, 16),
        ("gfx950", [32, 32, 64], 8, 64),
        ("gfx950", [16, 16, 4], 64, 64),
        ("gfx1250", [16, 16, 32], 16, 8),
        ("gfx1250", [16, 16, 64], 8, 8),
        ("gfx1250", [16, 16, 128], 8, 16),
        ("gfx1250", [16, 16, 128], 4, 8),
        ("gfx1250", [16, 16, 4], 32, 16),
    ],
)
def test_clocks_of_matrix_instructions(arch: str, instruction: list[int], bits: int, clocks: int) -> None:
    assert matrix_clocks(arch, instruction, bits) == clocks


@pytest.mark.parametrize(
    ("arch", "slot", "bits", "clocks"),
    [
        ("gfx942", Slot.DS_READ, 128, 32),
        ("gfx942", Slot.DS_READ, 64, 16),
        ("gfx950", Slot.DS_READ, 128, 16),
        ("gfx950", Slot.DS_READ, 64, 8),
        ("gfx950", Slot.DS_WRITE, 128, 32),
        ("gfx950", Slot.DS_READ, 8, 4),
        ("gfx950", Slot.VMEM_READ, 128, 64),
        ("gfx950", Slot.COPY, 32, 16),
        ("gfx950", Slot.TRANS, 0, 8),
        ("gfx942", Slot.TRANS, 0, 16),
        ("gfx1250", Slot.DS_READ, 128, 4),
        ("gfx1250", Slot.VMEM_READ, 128, 32),
    ],
)
def test_clocks_of_anchors(arch: str, slot: Slot, bits: int, clocks: int) -> None:
    assert anchor_clocks(arch, slot, bits) == clocks


def test_a_plan_in_order() -> None:
    found = anchors("gfx950", [Price(Slot.DS_READ, 2, 128), Price(Slot.VALU, 9), Price(Slot.VMEM_READ, 1, 128)])
    assert [anchor.slot for anchor in found] == [Slot.DS_READ, Slot.DS_READ, Slot.VMEM_READ]
    groups = plan(found, 6, 16, 0)
    assert groups == [
        (Slot.DS_READ, 1),
        (Slot.MFMA, 1),
        (Slot.DS_READ, 1),
        (Slot.MFMA, 1),
        (Slot.VMEM_READ, 1),
        (Slot.MFMA, 4),
    ]


def test_vector_work_is_spread_beside_matrix_work() -> None:
    found = [Anchor(Slot.TRANS, 8)] * 4
    assert plan(found, 2, 16, 8) == [
        (Slot.TRANS, 2),
        (Slot.MFMA, 1),
        (Slot.VALU, 3),
        (Slot.TRANS, 2),
        (Slot.MFMA, 1),
        (Slot.VALU, 3),
    ]
    assert (Slot.VALU, 1) in plan(found, 8, 16, 2)
