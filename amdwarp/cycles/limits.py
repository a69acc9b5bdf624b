"""What bounds a loop from below: the work that each resource has to do in one iteration."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from amdwarp.cycles import issue, sync
from amdwarp.cycles.loops import Loop
from amdwarp.cycles.parameters import Parameters
from amdwarp.cycles.unit import Run
from amdwarp.cycles.wave import Wave


@dataclass
class Work:
    """Clk of work of one iteration, by resource; lists go by SIMD, or by SIMD pair."""

    mfma: list[float]
    valu: list[float]
    lds_input: list[float]
    lds_return: list[float]
    wave: float = 0.0
    lds_array: float = 0.0
    tcp: float = 0.0
    in_flight: float = 0.0
    lds_ports: int = 1

    def limits(self) -> dict[str, float]:
        """Lower bounds of an iteration in clk: matrix unit, LDS, TCP, issue slots."""
        return {
            "MFMA": max(self.mfma),
            "LDS": max(self.lds_array / self.lds_ports, *self.lds_input, *self.lds_return),
            "TCP": max(self.tcp, self.in_flight),
            "issue": max(self.wave, *self.valu),
        }


def work_of(run: Run, loop: Loop, parameters: Parameters) -> Work:
    """The work of one iteration of a loop on all resources of the compute unit, averaged over its iterations."""
    simds = len(run.simds)
    work = Work([0.0] * simds, [0.0] * simds, [0.0] * 2, [0.0] * 2, lds_ports=parameters.lds_ports)
    known: dict[int, tuple[Counter[tuple[int, int]], int]] = {}
    for wave in run.waves:
        if id(wave.touched) not in known:
            known[id(wave.touched)] = _counts(wave, loop)
        counts, iterations = known[id(wave.touched)]
        if iterations:
            _add(work, run, wave, counts, iterations, parameters)
    return work


def _counts(wave: Wave, loop: Loop) -> tuple[Counter[tuple[int, int]], int]:
    """How often the wave executed each instruction of the loop with what it touched (its position), and iterations."""
    inside = [at for at, op in enumerate(wave.stream) if op.index in loop.body]
    first: dict[tuple[int, object], int] = {}
    counts: Counter[tuple[int, int]] = Counter()
    iterations = 0
    for at in inside:
        index, touched = wave.stream[at].index, wave.touched[at]
        counts[index, first.setdefault((index, touched), at)] += 1
        iterations += index == loop.header
    return counts, iterations


def _add(work: Work, run: Run, wave: Wave, counts: Counter[tuple[int, int]], iterations: int, p: Parameters) -> None:
    slots = 0.0
    number, pair = wave.simd.number, wave.simd.pair
    for (index, at), times in counts.items():
        op, each, touched = run.decoded.ops[index], times / iterations, wave.touched[at]
        slots += each * p.issue_period_clk
        if isinstance(op, sync.NopOp):
            slots += each * op.extra
        elif isinstance(op, issue.MatrixOp):
            work.mfma[number] += each * op.clk
            work.valu[number] += each * op.read
        elif isinstance(op, issue.ValuOp):
            work.valu[number] += each * op.clk
        elif isinstance(op, issue.LdsOp):
            work.lds_array += each * p.lds_pass_clk * (op.plain if touched is None else touched.passes)
            work.lds_input[pair] += each * op.input_clk
            work.lds_return[pair] += each * op.return_clk
        elif isinstance(op, issue.VectorMemoryOp):
            lines = 0 if touched is None else touched.lines
            work.tcp += each * max(op.clk, lines * p.tcp_line_clk)
            if not op.store:
                held = lines * p.tcp_line_bytes / p.vmem_credit_bytes
                work.in_flight += each * held * p.vmem_slot_share * p.vmem_round_trip_clk
            if touched is not None:
                work.lds_array += each * touched.copied / p.lds_copy_bytes_per_clk
    work.wave = max(work.wave, slots)


def issue_slot_sum(run: Run, loop: Loop, parameters: Parameters) -> float:
    """The plain estimate that a model has to beat: all slots that the waves of a SIMD issue in one iteration, summed.

    A matrix instruction counts with all its clk. Nothing overlaps and nothing waits.
    """
    sums = [0.0] * len(run.simds)
    for wave in run.waves:
        counts, iterations = _counts(wave, loop)
        for (index, _), times in counts.items():
            op = run.decoded.ops[index]
            clk = op.clk if isinstance(op, (issue.MatrixOp, issue.ValuOp)) else parameters.issue_period_clk
            sums[wave.simd.number] += clk * times / iterations
    return max(sums)
