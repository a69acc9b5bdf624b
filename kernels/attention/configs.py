"""Schedules of attention, and which one a problem gets. Plain Python: no Triton, no device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amdwarp.errors import UsageError
from amdwarp.target import Target, get_target

from .forms import Form
from .problem import Problem

#: Rows of queries that the split-KV form takes.
DECODE_ROWS = 8
#: Partial results that one wave joins: as many times 256 fp32 elements are in its registers at once.
MAX_SPLITS = 32


@dataclass(frozen=True)
class PlainSchedule:
    """Tiles of the plain kernel.

    Attributes:
        block_m, block_n: rows and keys of a tile, powers of two from 16 to 128.
        splits: workgroups that share the keys of a tile.
        num_warps: waves of a workgroup; stock layouts stack them along rows, so 16 rows feed one.
        num_stages: key tiles that stock software pipelining has under way.
    """

    block_m: int = 128
    block_n: int = 64
    splits: int = 1
    num_warps: int = 4
    num_stages: int = 2

    def constraints(self, target: str | Target) -> list[str]:
        """What makes this schedule illegal on a target, one sentence each."""
        record = get_target(target)
        wrong = [
            f"{name} = {getattr(self, name)!r} is no int of at least 1"
            for name in ("block_m", "block_n", "splits", "num_warps", "num_stages")
            if type(getattr(self, name)) is not int or getattr(self, name) < 1
        ]
        if wrong:
            return wrong
        for name in ("block_m", "block_n"):
            value = getattr(self, name)
            if value not in (16, 32, 64, 128):
                wrong.append(f"{name} = {value} is none of 16, 32, 64, 128")
        if self.splits > MAX_SPLITS:
            wrong.append(f"splits = {self.splits} is more than {MAX_SPLITS}")
        fewest = fewest_waves(record)
        if self.num_warps not in (1, 2, 4, 8) or self.num_warps < fewest:
            wrong.append(f"num_warps = {self.num_warps} is no power of two from {fewest} to 8")
        return wrong

    def form(self, problem: Problem, fold: int) -> Form:
        """The compile-time constants of a problem under this schedule."""
        return Form(
            dim=problem.dim,
            dim_v=problem.dim_v,
            block_m=self.block_m,
            block_n=self.block_n,
            ratio=problem.ratio,
            fold=fold,
            splits=self.splits,
            page=problem.page,
            fp8=problem.fp8,
        )


def fewest_waves(target: Target) -> int:
    """Waves that a workgroup needs: compiling the kernel for one wave of gfx1250 aborts Triton 3.9."""
    return 2 if target.arch == "gfx1250" else 1


Schedule = PlainSchedule
SCHEDULES: dict[str, Schedule] = {"plain": PlainSchedule()}


def plain_schedule(problem: Problem, fold: int, splits: int | None = None) -> PlainSchedule:
    """The plain schedule of a problem: tiles no larger than there are rows, and than registers and LDS hold."""
    widest = max(problem.dim, problem.dim_v)
    tile_rows = problem.rows * fold
    block_m = max(16, min(128 if widest <= 128 else 64, 1 << max(0, tile_rows - 1).bit_length()))
    # one fp8 matrix instruction takes 32 to 128 keys of P V; a 256-wide head leaves registers and LDS for 32 keys
    block_n = 64 if widest <= 128 or problem.fp8 else 32
    waves = max(fewest_waves(problem.target), min(4, block_m // 16))
    return PlainSchedule(block_m, block_n, splits or 1, waves)


def named(checker: Any, schedule: Any) -> Schedule | None:
    """The schedule a caller asked for; None leaves the choice to the problem, and so does ``"plain"`` for its tiles."""
    if schedule is None or schedule == "plain":
        return None
    if isinstance(schedule, str) and schedule in SCHEDULES:
        return SCHEDULES[schedule]
    if isinstance(schedule, PlainSchedule):
        return schedule
    raise checker.error(f"schedule is {schedule!r}", f"take one of {', '.join(SCHEDULES)}, a schedule, or None")


def check(schedule: Schedule, target: str | Target) -> None:
    """Raise `UsageError` with the first broken constraint, if there is one."""
    if wrong := schedule.constraints(target):
        raise UsageError(wrong[0], remedy="choose another schedule", construct=type(schedule).__name__)
