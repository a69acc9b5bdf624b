"""LDS and vector memory of a compute unit, as queues in front of servers.

Every queue here is first in, first out, so the moment an operation will be done is known when it is issued, and no
event has to be scheduled for it. Each method gets the clk of an issue; the calls come in order of that clk.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from amdwarp.cycles.parameters import Parameters

if TYPE_CHECKING:
    from amdwarp.cycles.wave import Wave

#: A time that never comes.
FAR = 1 << 60


class Gate:
    """The places of a queue that several waves want: who finds it full gets the next place that nobody else waits for.

    Attributes:
        leave: when each of the instructions in the queue leaves it, in order.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._booked: dict[Wave, int] = {}
        self.leave: deque[int] = deque()

    def admit(self, wave: Wave, t: int) -> int:
        """0 if `wave` may enter at `t`, else when it may; its place is then kept for it."""
        leave, booked = self.leave, self._booked
        while leave and leave[0] <= t:
            leave.popleft()
        if not booked and len(leave) < self._room:
            return 0
        mine = booked.get(wave)
        if mine is None:
            free, ahead = self._room - len(leave), len(booked)
            if free > ahead:
                return 0
            mine = booked[wave] = leave[min(ahead - free, len(leave) - 1)]
        elif mine <= t:
            if len(leave) < self._room:
                del booked[wave]
                return 0
            mine = booked[wave] = leave[0]
        return mine

    def enter(self, until: int) -> None:
        """An instruction enters and leaves at `until`, or behind the one before it."""
        self.leave.append(max(until, self.leave[-1]) if self.leave else until)


class Slots:
    """Time of a server that can be given away ahead, clk by clk: who asks gets the first that nobody has."""

    def __init__(self) -> None:
        self._taken: list[tuple[int, int]] = []

    def take(self, now: int, at: int, clk: int) -> tuple[int, int]:
        """Take `clk` from `at` on, at the earliest, around what is taken already; returns the start and the end.

        Nobody asks for time before `now` again.
        """
        taken = self._taken
        while taken and taken[0][1] <= now:
            taken.pop(0)
        if not clk:
            return at, at
        place, count = 0, len(taken)
        while place < count and taken[place][1] < at:
            place += 1
        # what is taken from `low` on and has been passed or filled becomes one span
        low, low_place, start = at, place, -1
        while place < count:
            begin, end = taken[place]
            if begin > at:
                start = at if start < 0 else start
                if at + clk < begin:
                    break
                clk -= begin - at
            low, at = min(low, begin), max(at, end)
            place += 1
            if not clk:
                taken[low_place:place] = [(low, at)]
                return start, begin
        start = at if start < 0 else start
        taken[low_place:place] = [(low, at + clk)]
        return start, at + clk


class Lds:
    """Local memory: an input bus, a queue and a return bus for each SIMD pair, one array of banks.

    The pairs do not wait for each other: the array serves whoever comes first, in the order of each pair. Data of
    direct-to-LDS loads have their time in the array from the moment of their arrival on, ahead of everything else.
    """

    def __init__(self, parameters: Parameters, pairs: int) -> None:
        self._pipe = parameters.lds_pipe_clk
        self._copy_rate = parameters.lds_copy_bytes_per_clk
        self._input_free = [0] * pairs
        self._return_free = [0] * pairs
        self.gates = [Gate(parameters.lds_fifo) for _ in range(pairs)]
        self._arrays = [Slots() for _ in range(parameters.lds_ports)]
        self._served = [0] * pairs
        self._pass_clk = parameters.lds_pass_clk

    def serve(self, pair: int, t: int, input_clk: int, passes: int, return_clk: int) -> int:
        """Take an instruction issued at `t` into the queue.

        Args:
            pair: SIMD pair it comes from.
            t: clk of its issue.
            input_clk: clk on the input bus.
            passes: of the array.
            return_clk: clk on the return bus, 0 for a write.

        Returns:
            when its data are in the registers, or a write is done.
        """
        passes *= self._pass_clk
        arrived = max(t, self._input_free[pair]) + input_clk
        self._input_free[pair] = arrived
        if return_clk:
            # nothing is served before the return bus can take it
            arrived = max(arrived, self._return_free[pair] - self._pipe - passes)
        array = self._arrays[pair % len(self._arrays)]
        start, served = array.take(t, max(arrived, self._served[pair]), passes)
        self._served[pair] = served
        self.gates[pair].enter(start)
        if not return_clk:
            return served + self._pipe
        back = max(served + self._pipe, self._return_free[pair])
        self._return_free[pair] = back + return_clk
        return back + return_clk

    def copy(self, now: int, at: int, size: int) -> int:
        """Data of a direct-to-LDS load, issued `now`, that arrive at `at`; returns when they stand in LDS."""
        clk = -(-size // self._copy_rate)
        array = self._arrays[now % len(self._arrays)]
        return array.take(now, at, clk)[1]


class VectorMemory:
    """The path to global memory: a queue, the TCP that takes one instruction after another, bytes in flight.

    An instruction waits in the queue for the TCP, and for room among the bytes in flight. Those are held for a share of
    the round trip, so that a full queue and a full TCP together pass queue + credit bytes a round trip.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._credit = parameters.vmem_credit_bytes
        self.gate = Gate(parameters.vmem_queue)
        self._flight: deque[tuple[int, int]] = deque()
        self._in_flight = 0
        self._tcp_free = 0
        self._last = 0
        self._warm_at = FAR
        self._draw, self._draw_at, self._now = 1, 0, 0

    def load(self, t: int, clk: int, size: int) -> int:
        """Take a load issued at `t`: `clk` of TCP time, `size` bytes in flight. Returns when its data are there."""
        start = max(t, self._tcp_free)
        flight = self._flight
        while flight and (flight[0][0] <= start or self._in_flight + size > self._credit):
            until, held = flight.popleft()
            start = max(start, until)
            self._in_flight -= held
        self._enter(start, clk)
        if self._warm_at == FAR:
            self._warm_at = t + self._parameters.vmem_cold_clk
        trip = self._parameters.vmem_round_trip_clk
        if t >= self._warm_at:
            trip += self._offset(t)
        else:
            # by then the way is warm, so nobody waits longer than if he had asked then
            trip = min(self._parameters.vmem_cold_clk, self._warm_at - t + trip)
        until = start + round(self._parameters.vmem_slot_share * max(trip, 0))
        if flight:
            until = max(until, flight[-1][0])
        flight.append((until, size))
        self._in_flight += size
        # data come back through one path, at the rate at which the TCP took the instructions
        self._last = max(self._last + clk, until, t + trip)
        return self._last

    def _offset(self, t: int) -> int:
        """How far round trips are off at the moment; drawn anew about every round trip.

        A loop would otherwise meet the data of its own loads at one fixed phase of an iteration, for good or bad.
        """
        if t >= self._draw_at:
            span = self._parameters.vmem_jitter_clk
            self._draw = self._draw * 1103515245 + 12345 & 0x7FFFFFFF
            self._now = (self._draw >> 16) % (span + 1) - span // 2
            self._draw_at = t + self._parameters.vmem_round_trip_clk
        return self._now

    def store(self, t: int, clk: int) -> int:
        """Take a store issued at `t`. Returns when it is acknowledged."""
        start = max(t, self._tcp_free)
        self._enter(start, clk)
        return start + self._parameters.vmem_store_clk

    def _enter(self, start: int, clk: int) -> None:
        self._tcp_free = start + clk
        self.gate.enter(start)


class ScalarMemory:
    """Scalar loads: a fixed round trip, longer until the first one is back."""

    def __init__(self, parameters: Parameters) -> None:
        self._cold, self._warm = parameters.smem_cold_clk, parameters.smem_clk
        self._warm_at = FAR

    def load(self, t: int) -> int:
        """When a load issued at `t` is back."""
        if self._warm_at == FAR:
            self._warm_at = t + self._cold
        return max(self._warm_at, t + self._warm) if t < self._warm_at else t + self._warm


class InstructionCache:
    """Which cache lines of the program are there: sets of the last used ones."""

    def __init__(self, parameters: Parameters) -> None:
        lines = parameters.icache_bytes // parameters.icache_line_bytes
        self._sets: list[list[int]] = [[] for _ in range(max(1, lines // parameters.icache_ways))]
        self._ways = parameters.icache_ways
        self._seen: set[int] = set()

    def hit(self, line: int) -> bool:
        """Look a line up and load it. The first look counts as a hit: straight code is fetched ahead."""
        ways = self._sets[line % len(self._sets)]
        if line in ways:
            ways.remove(line)
            ways.append(line)
            return True
        if len(ways) == self._ways:
            ways.pop(0)
        ways.append(line)
        if line in self._seen:
            return False
        self._seen.add(line)
        return True
