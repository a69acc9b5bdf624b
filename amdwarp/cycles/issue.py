"""Instructions as the compute unit sees them: one class a kind, each with its rule of issue.

Waits, barriers, branches and ends stand in `amdwarp.cycles.sync`.
`issue` returns 0 once the instruction has been issued, else the clk before which trying again is of no use; the reason
is then in `unit.cause`. What an instruction needs to know of the program around it (which registers anybody waits for)
is worked out once by `amdwarp.cycles.decode`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amdwarp.asm import Instruction

if TYPE_CHECKING:
    from amdwarp.cycles.unit import Unit
    from amdwarp.cycles.wave import Simd, Wave

#: Causes of stalls, in the order of their counters.
CAUSES = (
    "issue",  # the port went to another wave of the same priority
    "priority",  # the port went to a wave of higher priority
    "dependency",  # a register is not ready
    "mfma",  # the matrix unit is busy
    "valu",  # the vector ALU is busy, or an MFMA reads its operands
    "lds",  # the queue to LDS is full
    "vmem",  # the queue to the TCP is full
    "counter",  # a wait counter is at its limit
    "lgkmcnt",
    "vmcnt",
    "barrier",
    "nop",
    "branch",
    "icache",
)
(ISSUE, PRIORITY, DEPENDENCY, MFMA, VALU, LDS, VMEM, COUNTER, LGKMCNT, VMCNT, BARRIER, NOP, BRANCH, ICACHE) = range(
    len(CAUSES)
)

#: Ports of a SIMD; an instruction without one is carried out where it is decoded.
PORT_NONE, PORT_VECTOR, PORT_MEMORY, PORT_VMEM, PORT_SCALAR, PORT_BRANCH = 0, 1, 2, 4, 8, 16

#: Boards of a wave: from when vector ALU, memory, and matrix A/B operands can use a register.
ALU_BOARD, MEMORY_BOARD, MATRIX_BOARD = 0, 1, 2
#: Wait counters of a wave. gfx9 counts all vector memory in LOADS, and LDS and scalar loads together in LGKM.
LOADS, STORES, ASYNC, TENSOR, LGKM, DS, KM = range(7)
#: How many of them are for vector memory.
VECTOR_COUNTERS = 4
#: Arrivals at one word that may lie in the future of a wave that looks.
_RECENT = 64
#: A register range and the board to look it up on.
Check = tuple[int, int, int]
#: A register range, the board, and after how many clk it is ready.
Write = tuple[int, int, int, int]


class Op:
    """One instruction of the program.

    Attributes:
        index: its number in the program.
        inst: the instruction.
        name: kind, for the timeline: ``mfma``, ``valu``, ``salu``, ``lds``, ``vmem``, ``wait``, ``barrier``, ``other``.
        port: issue port.
        checks: registers it waits for.
        writes: registers somebody else may wait for.
        stalls: where the counters of the region it stands in begin.
        header: of the first instruction of a loop the last ones, after which it comes again; of others None.
        tail: it may jump back to one.
        line: cache line it lies in.
    """

    __slots__ = ("checks", "header", "index", "inst", "line", "name", "port", "stalls", "tail", "writes")

    def __init__(self, inst: Instruction, name: str, port: int) -> None:
        self.index, self.inst, self.name, self.port = inst.index, inst, name, port
        self.checks: tuple[Check, ...] = ()
        self.writes: tuple[Write, ...] = ()
        self.stalls = 0
        self.header: frozenset[int] | None = None
        self.tail = False
        self.line = 0

    def issue(self, unit: Unit, simd: Simd, wave: Wave, t: int) -> int:
        """Issue at `t` if the unit allows it."""
        wave.ready = wave.base = t + unit.period
        return 0


def registers_ready(checks: tuple[Check, ...], wave: Wave) -> int:
    """When the last of the registers is ready."""
    boards = wave.boards
    ready = 0
    for board, first, last in checks:
        for value in boards[board][first:last]:
            if value > ready:
                ready = value
    return ready


def note_writes(writes: tuple[Write, ...], wave: Wave, t: int) -> None:
    """Mark what was written at `t`."""
    boards = wave.boards
    for board, first, last, after in writes:
        boards[board][first:last] = [t + after] * (last - first)


class ValuOp(Op):
    """Vector ALU: one at a time, never while an MFMA reads its operands."""

    __slots__ = ("clk",)

    def __init__(self, inst: Instruction, clk: int) -> None:
        super().__init__(inst, "valu", PORT_VECTOR)
        self.clk = clk

    def issue(self, unit: Unit, simd: Simd, wave: Wave, t: int) -> int:
        if self.checks and (ready := registers_ready(self.checks, wave)) > t:
            unit.cause = DEPENDENCY
            return ready
        if simd.valu_free > t:
            unit.cause = VALU
            return simd.valu_free
        simd.valu_free = t + self.clk
        if self.writes:
            note_writes(self.writes, wave, t)
        wave.ready = wave.base = t + unit.period
        return 0


class PackedOp(ValuOp):
    """Packed fp32 arithmetic where it cannot run beside an MFMA."""

    __slots__ = ()

    def issue(self, unit: Unit, simd: Simd, wave: Wave, t: int) -> int:
        clear = simd.mfma_free + unit.packed_after
        if clear > t:
            unit.cause = VALU
            if unit.packed_holds:
                simd.holder = wave
            return clear
        blocked = super().issue(unit, simd, wave, t)
        if not blocked and simd.holder is wave:
            simd.holder = None
        return blocked


class MatrixOp(Op):
    """MFMA and WMMA: the matrix unit takes one after another.

    Attributes:
        clk: until it takes the next one.
        read: clk in which no vector ALU instruction issues.
        chain: (C range, D range) where results of a different, overlapping range can reach C; else None.
        c_wait: clk from such a result to its use as C.
    """

    __slots__ = ("c_wait", "chain", "clk", "read")

    def __init__(self, inst: Instruction, clk: int, read: int) -> None:
        super().__init__(inst, "mfma", PORT_VECTOR)
        self.clk, self.read = clk, read
        self.chain: tuple[tuple[int, int], tuple[int, int]] | None = None
        self.c_wait = 0

    def issue(self, unit: Unit, simd: Simd, wave: Wave, t: int) -> int:
        ready = registers_ready(self.checks, wave) if self.checks else 0
        if self.chain is not None:
            ready = max(ready, self._c_ready(wave))
        if ready > t:
            unit.cause = DEPENDENCY
            return ready
        if simd.mfma_free > t:
            unit.cause = MFMA
            return simd.mfma_free
        if simd.valu_free > t:
            unit.cause = VALU
            return simd.valu_free
        holder = simd.holder
        if holder is not None and holder is not wave and simd.order(holder) < simd.order(wave):
            unit.cause = PRIORITY
            return max(holder.ready, t + unit.period)
        unit.until = simd.mfma_free = t + self.clk
        simd.valu_free = t + self.read
        simd.mfma_clk += self.clk
        if self.writes:
            note_writes(self.writes, wave, t)
        if self.chain is not None:
            wave.results[self.chain[1]] = t + self.c_wait
        wave.ready = wave.base = t + unit.period
        return 0

    def _c_ready(self, wave: Wave) -> int:
        """When results of other instructions that overlap C are ready; C from the same range costs nothing."""
        assert self.chain is not None
        (first, last), _ = self.chain
        others = ((span, at) for span, at in wave.results.items() if span != (first, last))
        return max((at for (low, high), at in others if low < last and first < high), default=0)


class ScalarLoadOp(Op):
    """Scalar load: counted in lgkmcnt, returned in any order."""

    __slots__ = ()

    def issue(self, unit: Unit, simd: Simd, wave: Wave, t: int) -> int:
        if (limit := wave.lgkm_limit(t, unit.lgkm_room)) > t:
            unit.cause = COUNTER
            return limit
        done = unit.scalar.load(t)
        wave.scalar.append(done)
        unit.until = done
        wave.ready = wave.base = t + unit.period
        return 0


class LdsOp(Op):
    """LDS instruction.

    Attributes:
        input_clk, return_clk: clk on the buses of the SIMD pair.
        plain: passes where no address says more (lane exchanges).
    """

    __slots__ = ("input_clk", "plain", "return_clk")

    def __init__(self, inst: Instruction, input_clk: int, return_clk: int, plain: int) -> None:
        super().__init__(inst, "lds", PORT_MEMORY)
        self.input_clk, self.return_clk, self.plain = input_clk, return_clk, plain

    def issue(self, unit: Unit, simd: Simd, wave: Wave, t: int) -> int:
        if self.checks and (ready := registers_ready(self.checks, wave)) > t:
            unit.cause = DEPENDENCY
            return ready
        if (limit := wave.lgkm_limit(t, unit.lgkm_room)) > t:
            unit.cause = COUNTER
            return limit
        if wave.waits and (again := self._polls(unit, wave, t)):
            unit.cause = BARRIER
            return again
        if full := unit.lds.gates[simd.pair].admit(wave, t):
            unit.cause = LDS
            return full
        touched = wave.touched[wave.at]
        passes = self.plain if touched is None else touched.passes
        done = unit.lds.serve(simd.pair, t, self.input_clk, passes, self.return_clk)
        queue = wave.lds
        if queue and queue[-1] > done:
            done = queue[-1]
        queue.append(done)
        if (flag := wave.arrivals.get(wave.at)) is not None:
            wave.group.flags.setdefault(flag, []).append(done)
        unit.until = done
        wave.ready = wave.base = t + unit.period
        return 0

    def _polls(self, unit: Unit, wave: Wave, t: int) -> int:
        """When a poll that finds too few arrivals looks again; 0 if it need not. Its reads take nothing of the LDS."""
        need = wave.waits.get(wave.at)
        if need is None or not need[1]:
            return 0
        there = wave.group.flags.get(need[0], ())
        if sum(at <= t for at in there[-_RECENT:]) + max(len(there) - _RECENT, 0) >= need[1]:
            return 0
        return t + unit.poll_clk


class VectorMemoryOp(Op):
    """Vector memory instruction, direct-to-LDS loads included.

    Attributes:
        clk: TCP time where its lines are coalesced.
        store: it returns nothing.
        counter: the counter it raises.
    """

    __slots__ = ("clk", "counter", "store")

    def __init__(self, inst: Instruction, clk: int, store: bool, counter: int, port: int) -> None:
        super().__init__(inst, "vmem", port)
        self.clk, self.store, self.counter = clk, store, counter

    def issue(self, unit: Unit, simd: Simd, wave: Wave, t: int) -> int:
        if self.checks and (ready := registers_ready(self.checks, wave)) > t:
            unit.cause = DEPENDENCY
            return ready
        queue = wave.vector[self.counter]
        while queue and queue[0] <= t:
            queue.popleft()
        if len(queue) >= unit.vm_room:
            unit.cause = COUNTER
            return queue[0]
        if full := unit.vector.gate.admit(wave, t):
            unit.cause = VMEM
            return full
        touched = wave.touched[wave.at]
        lines = 0 if touched is None else touched.lines
        clk = max(self.clk, lines * unit.line_clk)
        if self.store:
            done = unit.vector.store(t, clk)
        else:
            done = unit.vector.load(t, clk, lines * unit.line_bytes)
            if touched is not None and touched.copied:
                done = unit.lds.copy(t, done, touched.copied)
        if queue and queue[-1] > done:
            done = queue[-1]
        queue.append(done)
        unit.until = done
        wave.ready = wave.base = t + unit.period
        return 0
