"""Attention as tasks: the schedule of gfx1250. Plain Python: no Triton, no device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from amdwarp.target import Target, get_target

from .schedule_rules import none_of, not_positive, unaligned, wrong_rescaling

if TYPE_CHECKING:
    from .problem import Problem

#: Elements of a head that the kernel takes, of q and k, and of v.
HEADS = (32, 64, 128)
#: Rows of a wave of the softmax task: each lane has one.
WAVE_ROWS = 32
#: Bytes that 32-bit offsets of a tile may span.
OFFSET_LIMIT = 2**31


@dataclass(frozen=True)
class TasksSchedule:
    """Load, MFMA and softmax tasks of one workgroup; see `tasks_gfx1250`.

    Attributes:
        block_m, block_n: rows of a workgroup and keys of a block.
        ring: blocks of K, and of V, that LDS holds.
        ahead: copies of each that are under way at once.
        lead: blocks whose logits the MFMA task is ahead of their probabilities, and slots for logits.
        probabilities: slots for probabilities.
        waves_m, waves_n: waves of the MFMA task along rows, and along keys and elements of v.
        lazy: rescale O only where a row grows beyond 2**`threshold` times its reference. It asks a wave for any of its
            lanes by Gluon's inline assembly, which Triton 3.8 does not have: there O is rescaled with each block.
        threshold: in powers of two, 0 to 14; P reaches 2**threshold, and so do its fp16 elements.
        pad: bytes behind each row of a tile in LDS, which keep neighbouring rows on other banks.
        dim, dim_v, ratio: of the problem, as `for_problem` fills them in.
    """

    block_m: int = 128
    block_n: int = 64
    ring: int = 3
    ahead: int = 2
    lead: int = 2
    probabilities: int = 2
    waves_m: int = 4
    waves_n: int = 1
    lazy: bool = True
    threshold: float = 8.0
    pad: int = 16
    dim: int = 128
    dim_v: int = 128
    ratio: int = 1

    @property
    def mfma(self) -> tuple[int, int, int]:
        """M, N and K of the matrix instruction."""
        return 16, 16, 32

    @property
    def multipliers(self) -> int:
        """Waves of the MFMA task, which is the default one."""
        return self.waves_m * self.waves_n

    @property
    def softmax_waves(self) -> int:
        """Waves of the softmax task."""
        return self.block_m // WAVE_ROWS

    def lds_bytes(self) -> int:
        """Bytes of LDS that rings and barriers take."""
        k_tile = self.block_n * (2 * self.dim + self.pad)
        v_tile = self.block_n * (2 * self.dim_v + self.pad)
        logits = self.block_m * (4 * self.block_n + self.pad)
        weights = self.block_m * (2 * self.block_n + self.pad + 4)
        barriers = 16 * (2 * self.ring + self.lead + self.probabilities) + 64
        return self.ring * (k_tile + v_tile) + self.lead * logits + self.probabilities * weights + barriers

    def for_problem(self, problem: Problem, lazy: bool = True) -> TasksSchedule:
        """The schedule with what a kernel must know of the problem; `lazy` says whether the Triton at hand can."""
        return replace(self, dim=problem.dim, dim_v=problem.dim_v, ratio=problem.ratio, lazy=self.lazy and lazy)

    def constraints(self, target: str | Target) -> list[str]:
        """What makes this schedule illegal on a target, one sentence each."""
        record = get_target(target)
        if record.arch != "gfx1250":
            return [f"attention as tasks is made for gfx1250, not for {record.arch}"]
        choices = {
            "block_m": (64, 128),
            "block_n": (32, 64),
            "waves_m": (1, 2, 4),
            "waves_n": (1, 2),
            "pad": (16, 32),
            "dim": HEADS,
            "dim_v": HEADS,
        }
        wrong = none_of(self, choices) + not_positive(self, ("ring", "ahead", "lead", "probabilities"))
        wrong += wrong_rescaling(self)
        return wrong or self._sizes(record)

    def _sizes(self, record: Target) -> list[str]:
        wrong = []
        if self.ahead >= self.ring:
            wrong.append(f"{self.ahead} copies under way need a ring of more than {self.ahead} slots, not {self.ring}")
        for name, extent, waves in (
            ("block_m", self.block_m, self.waves_m),
            ("block_n", self.block_n, self.waves_n),
            ("dim_v", self.dim_v, self.waves_n),
        ):
            if extent < 16 * waves:
                wrong.append(f"{name} = {extent} leaves some of {waves} waves without an MFMA of 16")
        if self.multipliers % 4:
            wrong.append(f"{self.multipliers} waves multiply, and Triton runs tasks beside a multiple of 4 only")
        if not wrong and self.lds_bytes() > record.lds_bytes:
            wrong.append(f"the rings take {self.lds_bytes()} bytes of LDS, {record.arch} has {record.lds_bytes}")
        return wrong

    def refusals(self, problem: Problem) -> list[str]:
        """Why it cannot compute a problem, one sentence each; the plain schedule can."""
        if problem.target.arch != "gfx1250":
            return self.constraints(problem.target)
        wrong: list[str] = []
        if problem.fp8 or problem.dim not in HEADS or problem.dim_v not in HEADS:
            wrong.append("attention as tasks takes fp16 and bf16 heads of 32, 64 or 128 elements")
        wrong += [f"attention as tasks has no {name}" for name in problem.extras if name != "sinks"]
        wrong += unaligned(problem, "attention as tasks")
        for name in ("q", "out"):
            step = problem.steps[name][2]
            if 2 * self.block_m * step >= OFFSET_LIMIT:
                wrong.append(f"{name} has rows {step} elements apart, too far for the 32-bit offsets of a tile")
        return wrong
