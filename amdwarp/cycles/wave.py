"""State of the compute unit: workgroups, waves, SIMDs."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from amdwarp.cycles.issue import DS, LGKM, VECTOR_COUNTERS, Op
from amdwarp.cycles.trace import Touched

_LONG_AGO = -(1 << 40)


class Group:
    """What the waves of a workgroup share: who is alive, who has arrived at the barrier."""

    def __init__(self, number: int, live: int) -> None:
        self.number, self.live = number, live
        self.arrived = 0
        self.waiting: list[tuple[Wave, Op, int]] = []
        self.generation = 0
        self.released = 0
        self.flags: dict[int, list[int]] = {}  # LDS address -> when waves have arrived there


@dataclass(frozen=True, slots=True)
class Mark:
    """A wave at the first instruction of a loop.

    Attributes:
        header: index of the instruction.
        t: clk of its issue.
        again: it came from the loop, not from before it.
        mfma_clk: clk for which the SIMD's matrix unit had been given work so far.
        stalls: the wave's stall counters so far.
    """

    header: int
    t: int
    again: bool
    mfma_clk: int
    stalls: tuple[int, ...]


class Wave:
    """One wave: where it is in its stream, and what it has under way."""

    __slots__ = (
        "age",
        "arrivals",
        "at",
        "base",
        "boards",
        "ended",
        "group",
        "last_issue",
        "lds",
        "line",
        "marks",
        "number",
        "op",
        "priority",
        "ready",
        "results",
        "scalar",
        "signalled",
        "simd",
        "stalls",
        "started",
        "stream",
        "tails",
        "touched",
        "vector",
        "waits",
    )

    def __init__(
        self, number: int, group: Group, simd: Simd, stream: list[Op], touched: Sequence[Touched | None], start: int
    ) -> None:
        self.number = self.age = number
        self.group, self.simd = group, simd
        self.stream, self.touched = stream, touched
        self.at, self.op = 0, stream[0]
        self.ready = self.base = self.started = start
        self.priority = 0
        self.last_issue = 0
        self.ended = 0
        self.line = -1
        self.vector: list[deque[int]] = [deque() for _ in range(VECTOR_COUNTERS)]
        self.lds: deque[int] = deque()
        self.scalar: list[int] = []
        self.boards: list[list[int]] = []
        self.results: dict[tuple[int, int], int] = {}
        self.stalls: list[int] = []
        self.marks: list[Mark] = []
        self.tails: dict[int, int] = {}
        self.signalled = 0
        self.waits: dict[int, tuple[int, int]] = {}
        self.arrivals: dict[int, int] = {}

    def done(self, counter: int, left: int) -> int:
        """When at most `left` of the operations of a counter are under way."""
        if counter < VECTOR_COUNTERS:
            queue = self.vector[counter]
        elif counter == DS or (counter == LGKM and not self.scalar):
            queue = self.lds
        else:
            # scalar loads come back in any order
            ends = sorted((*self.lds, *self.scalar)) if counter == LGKM else sorted(self.scalar)
            if left == 0:
                self.scalar.clear()
            return ends[len(ends) - left - 1] if len(ends) > left else 0
        return queue[len(queue) - left - 1] if len(queue) > left else 0

    def lgkm_limit(self, t: int, room: int) -> int:
        """When the counter can count one more; 0 if it can at `t`."""
        queue = self.lds
        while queue and queue[0] <= t:
            queue.popleft()
        if len(queue) + len(self.scalar) < room:
            return 0
        self.scalar = [end for end in self.scalar if end > t]
        ends = sorted((*queue, *self.scalar))
        return ends[len(ends) - room] if len(ends) >= room else 0


class Simd:
    """One SIMD and its waves, in the order in which they are asked."""

    def __init__(self, number: int, pair: int, period: int) -> None:
        self.number, self.pair = number, pair
        self.phase, self.period = number % period, period
        self.waves: list[Wave] = []
        self.valu_free = 0
        self.mfma_free = _LONG_AGO
        self.mfma_clk = 0
        self.holder: Wave | None = None

    def order(self, wave: Wave) -> tuple[int, int]:
        """Smaller goes first."""
        return -wave.priority, wave.age

    def sort(self) -> None:
        """Put the waves in order after a priority has changed."""
        self.waves = sorted(self.waves, key=self.order)

    def on_grid(self, t: int) -> int:
        """The first clk from `t` on at which this SIMD is looked at."""
        return t + (self.phase - t) % self.period
