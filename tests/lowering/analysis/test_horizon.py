"""How far a loop of unknown length is followed."""

from __future__ import annotations

import pytest
from amdwarp.lowering.analysis.horizon import MAX_TRIPS, horizon
from amdwarp.lowering.analysis.lds import NotFollowedError
from snippets import module

pytestmark = pytest.mark.usefixtures("needs_triton")


def trips(body: str) -> int:
    (function,) = module(body).functions()
    return horizon(function)


def ring_loop(index: str, depth: int = 3, before: str = "") -> str:
    return f"""
    @ring(r, {depth})
    {before}
    scf.for %i = %c0 to %n step %c1 : i32 {{
      %depth = arith.constant {depth} : i32
      {index}
      @slot(s, r, k, {depth})
      @load(a, s)
    }}
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    @fence\n", 2 * 1 + 2),
        (ring_loop("%k = arith.remsi %i, %depth : i32"), 2 * 3 + 2),
        (ring_loop("%k = arith.remsi %i, %depth : i32", depth=4), 2 * 4 + 2),
        (ring_loop("%h = arith.divsi %i, %c2 : i32\n      %k = arith.remsi %h, %depth : i32"), 2 * 6 + 2),
        (ring_loop("%h = arith.andi %i, %c3 : i32\n      %k = arith.minsi %h, %c2 : i32"), 2 + 2 * 12 + 2),
        (ring_loop("%h = arith.shrsi %i, %c2 : i32\n      %k = arith.remsi %h, %depth : i32"), 2 * 12 + 2),
    ],
    ids=["no ring", "a ring of 3", "a ring of 4", "every other iteration", "a mask", "a shift"],
)
def test_the_ring_and_what_its_index_is_divided_by(body: str, expected: int) -> None:
    assert trips(body) == expected


def test_a_number_that_is_compared_with_delays() -> None:
    wrap = """%next = arith.addi %i, %c1 : i32
      %at = arith.constant 20 : i32
      %now = arith.cmpi eq, %next, %at : i32
      %k = arith.select %now, %c0, %c1 : i32"""
    assert trips(ring_loop(wrap)) == 20 + 2 * 3 + 2


def test_what_does_not_change_from_iteration_to_iteration_does_not_count() -> None:
    before = "%size = arith.constant 77 : i32\n    %tiles = arith.divsi %m, %size : i32"
    outside = ring_loop("%j = arith.addi %i, %tiles : i32\n      %k = arith.remsi %j, %depth : i32", before=before)
    assert trips(outside) == 2 * 3 + 2


def test_what_has_no_part_in_a_slot_index_does_not_count() -> None:
    other = "%size = arith.constant 77 : i32\n      %z = arith.remsi %i, %size : i32\n      "
    assert trips(ring_loop(other + "%k = arith.remsi %i, %depth : i32")) == 2 * 3 + 2


def test_conditions_around_shared_memory_count() -> None:
    def text(inside: str) -> str:
        return f"""
    @buffer(r)
    scf.for %i = %c0 to %n step %c1 : i32 {{
      %every = arith.constant 7 : i32
      %turn = arith.remsi %i, %every : i32
      %now = arith.cmpi eq, %turn, %c0 : i32
      scf.if %now {{
        {inside}
      }}
    }}
"""

    assert trips(text("@store(r)")) == 2 * 7 + 2
    assert trips(text("%z = arith.addi %i, %n : i32")) == 2 * 1 + 2


def test_a_carried_count_counts() -> None:
    text = """
    @ring(r, 3)
    %five = arith.constant 5 : i32
    %end = scf.for %i = %c0 to %n step %c1 iter_args(%count = %m) -> (i32) : i32 {
      %next = arith.addi %count, %c1 : i32
      %k = arith.remsi %count, %c3 : i32
      @slot(s, r, k, 3)
      @load(a, s)
      scf.yield %next : i32
    }
    %l = arith.remsi %end, %five : i32
    %j = arith.minsi %l, %c2 : i32
    @slot(t, r, j, 3)
    @load(b, t)
"""
    assert trips(text) == 2 + 2 * 15 + 2


def test_too_far() -> None:
    far = f"%size = arith.constant {MAX_TRIPS} : i32\n      %h = arith.divsi %i, %size : i32\n      "
    with pytest.raises(NotFollowedError, match="repeats only after 480 iterations"):
        trips(ring_loop(far + "%k = arith.remsi %h, %depth : i32"))


@pytest.mark.parametrize("step", [16, 64])
def test_steps_of_the_loop_count(step: int) -> None:
    """A loop over k in steps, and an offset carried in steps, divided by the step again."""
    index = f"%size = arith.constant {step} : i32\n      %h = arith.divsi @OF@, %size : i32\n      "
    index += "%k = arith.remsi %h, %depth : i32"
    over = ring_loop(index.replace("@OF@", "%i"), before=f"%step = arith.constant {step} : i32")
    assert trips(over.replace("step %c1", "step %step")) == 2 * 3 + 2
    carried = over.replace("scf.for %i", "%end = scf.for %i").replace(
        "step %c1", "step %c1 iter_args(%at = %c0) -> (i32)"
    )
    carried = carried.replace("%i, %size", "%at, %size").replace(
        "      @load(a, s)\n", "      @load(a, s)\n      %on = arith.addi %at, %size : i32\n      scf.yield %on : i32\n"
    )
    assert trips(carried) == 2 * 3 + 2
