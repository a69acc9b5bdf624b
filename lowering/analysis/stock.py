"""What the stock compiler behind our passes makes of barriers and waits, by version.

Triton's barrier insertion (membar) remembers the accesses since the last local barrier, and puts a barrier before an op
that may conflict with one of them. It leaves some pairs to the kernel's waits. Each row was read off the wheel of that
version, by running its passes over pairs of accesses:

=========================  ===========  ====================
pair, in this order        3.7 and 3.8  3.9
=========================  ===========  ====================
copy, relaxed read         left alone   left alone
relaxed read, copy         left alone   barrier
copy, copy                 barrier      left alone
two slots of one ring      barrier      barrier, unless it proves their indices different within one iteration
=========================  ===========  ====================

LLVM turns ``ttg.async_wait`` into a counter wait for the newest group that it covers. Up to Triton 3.8 it waits for
nothing if that group holds no copy, whatever older groups hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .lds import Access

_COPY, _RELAXED = Access.ASYNC_WRITE, Access.RELAXED_READ


class Hazard(Enum):
    """What membar makes of a pair of accesses with no local barrier between them."""

    NONE = "no barrier"
    MAYBE = "a barrier, unless it can tell that the two are apart"
    SURE = "a barrier"


@dataclass(frozen=True)
class Stock:
    """One version's rules.

    Attributes:
        ignored: (earlier, later) pairs it leaves to the kernel's waits.
        tells_slots: it may tell two slots of a ring apart.
        waits_past_empty: a wait whose newest group is empty still waits for the older ones.
    """

    ignored: frozenset[tuple[Access, Access]]
    tells_slots: bool
    waits_past_empty: bool

    def sees(self, earlier: Access, later: Access) -> bool:
        """Whether it looks at such a pair at all."""
        return (earlier.writes or later.writes) and (earlier, later) not in self.ignored

    def hazard(self, earlier: Access, later: Access, same: bool, overlap: bool, share: bool) -> Hazard:
        """What it makes of two accesses.

        Args:
            same: to one allocation.
            overlap: to parts of it that certainly meet.
            share: to two allocations that may share memory.
        """
        if not self.sees(earlier, later) or not (same or share):
            return Hazard.NONE
        return Hazard.SURE if same and (overlap or not self.tells_slots) else Hazard.MAYBE


_BEFORE_3_9 = Stock(frozenset({(_COPY, _RELAXED), (_RELAXED, _COPY)}), tells_slots=False, waits_past_empty=False)
_SINCE_3_9 = Stock(frozenset({(_COPY, _RELAXED), (_COPY, _COPY)}), tells_slots=True, waits_past_empty=True)


def stock_of(version: tuple[int, int]) -> Stock:
    """The rules of a Triton version."""
    return _BEFORE_3_9 if version < (3, 9) else _SINCE_3_9
