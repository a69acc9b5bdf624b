"""The compute unit: SIMDs that look at their waves in turn and issue what the rules allow.

A SIMD is looked at every ``issue_period_clk``. Its waves are asked in order of priority, then age; each wave gives at
most one instruction, each port takes at most one. Between two looks nothing is computed: a SIMD sleeps until the first
of its waves can go on. All that has to be awaited has a known end (see `amdwarp.cycles.queues`), except a barrier,
which its last wave ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from amdwarp.cycles.decode import Decoded, decode
from amdwarp.cycles.issue import BARRIER, CAUSES, ICACHE, ISSUE, PRIORITY, Op
from amdwarp.cycles.loops import Loop, find_loops
from amdwarp.cycles.parameters import Parameters
from amdwarp.cycles.queues import FAR, InstructionCache, Lds, ScalarMemory, VectorMemory
from amdwarp.cycles.trace import GroupTrace, Trace
from amdwarp.cycles.wave import Group, Mark, Simd, Wave
from amdwarp.errors import EmulatorError


@dataclass(frozen=True, slots=True)
class Event:
    """An instruction of a run that was logged.

    Attributes:
        wave: number of the wave on the CU.
        index: the instruction.
        start: clk of its issue.
        end: when its result is there, it has been waited for, or the barrier has released.
    """

    wave: int
    index: int
    start: int
    end: int


@dataclass
class Run:
    """What a run of the unit leaves.

    Attributes:
        total_clk: until the last wave has ended.
        waves: all waves, with their marks and counters.
        simds: the SIMDs.
        events: the log, if one was asked for.
        loops: the program's loops.
        decoded: the program's operations.
        issued: wave-instructions issued.
    """

    total_clk: int
    waves: list[Wave]
    simds: list[Simd]
    events: list[Event]
    loops: list[Loop]
    decoded: Decoded
    issued: int


@dataclass
class Unit:
    """A compute unit with the waves of some workgroups on it."""

    parameters: Parameters
    trace: Trace
    resident: int = 1
    keep_log: bool = False
    cause: int = 0
    until: int = 0
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        p = self.parameters
        self.period, self.line_clk, self.line_bytes = p.issue_period_clk, p.tcp_line_clk, p.tcp_line_bytes
        self.branch_clk, self.barrier_clk = p.branch_taken_clk, p.barrier_clk
        self.packed_after, self.packed_holds = p.packed_after_mfma_clk, p.packed_holds_matrix
        self.lgkm_room, self.vm_room = p.counter_lgkm, p.counter_vm
        count = p.target.simds
        self.simds = [Simd(at, at * 2 // count, self.period) for at in range(count)]
        # a round of a poll: s_sleep 1, the read, and a dozen scalar instructions around it
        self.poll_clk = 64 + 2 * int(p.lds_pipe_clk) + 10 * p.issue_period_clk
        self.lds, self.vector, self.scalar = Lds(p, 2), VectorMemory(p), ScalarMemory(p)
        self.loops = find_loops(self.trace.program)
        self.decoded = decode(self.trace.program, self.loops, p)
        # a program that fits into the cache misses nothing after its first pass
        fits = self.decoded.code_bytes <= p.icache_bytes
        self.icache = None if fits else InstructionCache(p)
        self.waves: list[Wave] = []
        self.wake: list[int] = [FAR] * count
        for number in range(self.resident):
            self._place(number, self.trace.groups[number % len(self.trace.groups)])

    def _place(self, number: int, recorded: GroupTrace) -> None:
        """Waves go to the SIMDs in turn, from the first SIMD on where a workgroup has a wave for each."""
        ops = self.decoded.ops
        group = Group(number, len(recorded.waves))
        start = number * self.parameters.workgroup_gap_clk
        counters = (len(self.loops) + 1) * len(CAUSES)
        for one in recorded.waves:
            simd = self.simds[len(self.waves) % len(self.simds)]
            stream = [ops[pc] for pc in one.pcs]
            wave = Wave(len(self.waves), group, simd, stream, one.touched, start)
            wave.boards = [[0] * self.decoded.registers for _ in range(3)]
            wave.stalls = [0] * counters
            wave.waits, wave.arrivals = one.waits, one.arrivals
            self.waves.append(wave)
            simd.waves.append(wave)
            self.wake[simd.number] = min(self.wake[simd.number], simd.on_grid(start))

    def run(self) -> Run:
        """Let all waves run to their end.

        Raises:
            EmulatorError: some wave waits for ever.
        """
        wake, simds = self.wake, self.simds
        while True:
            t = min(wake)
            if t >= FAR:
                break
            number = wake.index(t)
            wake[number] = FAR
            following = self._look(simds[number], t)
            if following < wake[number]:
                wake[number] = following
        stuck = [wave for wave in self.waves if not wave.ended]
        if stuck:
            op = stuck[0].op
            raise EmulatorError(
                f"the model's wave {stuck[0].number} waits for ever at '{op.inst.text}'", where=op.inst.where
            )
        total = max(wave.ended for wave in self.waves)
        issued = sum(len(wave.stream) for wave in self.waves)
        return Run(total, self.waves, simds, self.events, self.loops, self.decoded, issued)

    def _look(self, simd: Simd, t: int) -> int:
        """Ask each wave of a SIMD once; returns when to look again."""
        used, following = 0, FAR
        top = 0
        for wave in simd.waves:
            ready = wave.ready
            if ready > t:
                if ready < following:
                    following = ready
                continue
            op = wave.op
            base = wave.base
            if op.port & used:
                lost = PRIORITY if wave.priority < top else ISSUE
                wave.stalls[op.stalls + lost] += t + self.period - base
                wave.base = wave.ready = following = t + self.period
                continue
            if base < t:
                wave.stalls[op.stalls + ISSUE] += t - base
                wave.base = t
            if self.icache is not None and op.line != wave.line:
                ready = self._fetch(wave, op, t)
                if ready:
                    following = min(following, ready)
                    continue
            ready = op.issue(self, simd, wave, t)
            if ready:
                ready = simd.on_grid(ready)
                wave.stalls[op.stalls + self.cause] += ready - t
                wave.base = wave.ready = ready
                if ready < following:
                    following = ready
                continue
            used |= op.port
            if wave.priority > top:
                top = wave.priority
            self._advance(simd, wave, op, t)
            if wave.ready < following:
                following = wave.ready
        if not self.parameters.oldest_first:
            simd.waves = sorted(simd.waves, key=lambda w: (-w.priority, w.last_issue, w.age))
        return following if following >= FAR else simd.on_grid(following)

    def _advance(self, simd: Simd, wave: Wave, op: Op, t: int) -> None:
        """Go on to the next instruction of the stream."""
        if op.header is not None:
            again = wave.at > 0 and wave.stream[wave.at - 1].index in op.header
            wave.marks.append(Mark(op.index, t, again, simd.mfma_clk, tuple(wave.stalls)))
        if op.tail:
            wave.tails[op.index] = t
        if self.keep_log:
            if self.until < FAR:
                self.events.append(Event(wave.number, op.index, t, max(self.until, t + self.period)))
            self.until = 0
        wave.last_issue = t
        wave.at += 1
        if wave.at < len(wave.stream):
            wave.op = wave.stream[wave.at]
        elif not wave.ended:
            raise EmulatorError(f"a wave's stream ends at '{op.inst.text}', not at s_endpgm", where=op.inst.where)

    def _fetch(self, wave: Wave, op: Op, t: int) -> int:
        """Look up the cache line of an instruction; returns when it is there, or 0 if it is."""
        assert self.icache is not None
        wave.line = op.line
        if self.icache.hit(op.line):
            return 0
        ready = wave.simd.on_grid(t + self.parameters.icache_miss_clk)
        wave.stalls[op.stalls + ICACHE] += ready - t
        wave.base = wave.ready = ready
        return ready

    # Barriers and ends

    def arrive(self, wave: Wave, op: Op, t: int) -> None:
        """A wave comes to the barrier and stays."""
        group = wave.group
        group.waiting.append((wave, op, t))
        self.signal(wave, t)

    def signal(self, wave: Wave, t: int) -> None:
        """A wave comes to the barrier; the last one releases all."""
        group = wave.group
        wave.signalled = group.generation
        group.arrived += 1
        if group.arrived >= group.live:
            self._release(group, t)

    def await_signal(self, wave: Wave, op: Op, t: int) -> None:
        """A wave that has signalled waits for the others."""
        group = wave.group
        group.waiting.append((wave, op, t))
        if group.generation > wave.signalled:
            self._resume(group, max(group.released, t + self.period))

    def _release(self, group: Group, t: int) -> None:
        group.arrived = 0
        group.generation += 1
        group.released = t + self.barrier_clk
        self._resume(group, group.released)

    def _resume(self, group: Group, at: int) -> None:
        """Let the waves go on that wait for a barrier that has been released."""
        staying = []
        for wave, op, came in group.waiting:
            if wave.signalled >= group.generation:
                staying.append((wave, op, came))
                continue
            ready = wave.simd.on_grid(max(at, wave.base))
            wave.stalls[op.stalls + BARRIER] += ready - wave.base
            wave.base = wave.ready = ready
            number = wave.simd.number
            self.wake[number] = min(self.wake[number], ready)
            if self.keep_log:
                self.events.append(Event(wave.number, op.index, came, ready))
        group.waiting = staying

    def end(self, wave: Wave, simd: Simd, t: int) -> None:
        """A wave has come to its end; a barrier no longer waits for it."""
        group = wave.group
        group.live -= 1
        if group.live and group.arrived >= group.live:
            self._release(group, t)


def simulate(trace: Trace, parameters: Parameters, *, resident: int = 1, keep_log: bool = False) -> Run:
    """Time a recorded launch on one compute unit.

    Args:
        trace: the record; its workgroups are taken in turn where more are resident than recorded.
        parameters: of the target it was compiled for.
        resident: workgroups that share the compute unit.
        keep_log: keep every issue, for a timeline.

    Raises:
        EmulatorError: a matrix instruction without timing, or waves that wait for each other for ever.
    """
    return Unit(parameters, trace, resident, keep_log).run()
