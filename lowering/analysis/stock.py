"""What Triton's own barrier insertion (membar), which runs after our passes, will do between two LDS accesses.

It remembers the accesses since the last local barrier and puts one before an op that may conflict with them. It leaves
some pairs to the kernel's waits, and which ones depends on the version. Each row was read off the wheel of that
version, by running its passes over pairs of accesses:

=========================  ===========  ====================
pair, in this order        3.7 and 3.8  3.9
=========================  ===========  ====================
copy, relaxed read         left alone   left alone
relaxed read, copy         left alone   barrier
copy, copy                 barrier      left alone
two slots of one ring      barrier      barrier, unless it proves their indices different within one iteration
=========================  ===========  ====================
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
class StockBarriers:
    """One version's rules.

    Attributes:
        ignored: (earlier, later) pairs it leaves to the kernel's waits.
        tells_slots: it may tell two slots of a ring apart.
    """

    ignored: frozenset[tuple[Access, Access]]
    tells_slots: bool

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


_BEFORE_3_9 = StockBarriers(frozenset({(_COPY, _RELAXED), (_RELAXED, _COPY)}), tells_slots=False)
_SINCE_3_9 = StockBarriers(frozenset({(_COPY, _RELAXED), (_COPY, _COPY)}), tells_slots=True)


def stock_barriers(version: tuple[int, int]) -> StockBarriers:
    """The rules of a Triton version."""
    return _BEFORE_3_9 if version < (3, 9) else _SINCE_3_9
