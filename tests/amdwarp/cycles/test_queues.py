"""The servers of the unit: their time is given away without gaps, and no clk twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amdwarp.cycles.queues import Slots

#: Clk since the request before, clk until it may begin, clk it takes.
REQUEST = st.tuples(st.integers(0, 6), st.integers(0, 40), st.sampled_from((0, 1, 1, 2, 4, 8, 16)))


@given(st.lists(REQUEST, max_size=60))
def test_who_asks_gets_the_first_clk_that_nobody_has(requests: list[tuple[int, int, int]]) -> None:
    slots, used, now = Slots(), set(), 0
    for since, ahead, clk in requests:
        now += since
        wanted: list[int] = []
        at = now + ahead
        while len(wanted) < clk:
            if at not in used:
                wanted.append(at)
            at += 1
        used.update(wanted)
        start, end = slots.take(now, now + ahead, clk)
        assert (start, end) == ((wanted[0], wanted[-1] + 1) if clk else (now + ahead, now + ahead))


def test_what_takes_long_is_served_between_what_is_there_already() -> None:
    """Half of the time is taken, in pieces of 8 clk; 16 passes do not wait for the end of all of them."""
    slots = Slots()
    for at in range(0, 400, 16):
        slots.take(0, at, 8)
    assert slots.take(0, 0, 16) == (8, 32)
