"""Schedules of attention, and which one a problem gets. Plain Python: no Triton, no device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from amdwarp.errors import UsageError
from amdwarp.target import Target, get_target

from ..gemm.layouts import LdsLayout, OperandTile, derive
from ..shipped import read_json
from .forms import Form
from .problem import Problem
from .schedule_rules import none_of, not_positive, unaligned, wrong_rescaling
from .tasks import TasksSchedule

#: Where shipped tables of choices are, ``<target>.json``: made by `tables`.
TABLES = Path(__file__).parent / "tuned"
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
        wrong = not_positive(self, ("block_m", "block_n", "splits", "num_warps", "num_stages"))
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


#: The scheduled kernels keep values in their stage, and ask a wave for any of its lanes, by Gluon's ``inline_asm``.
NEWEST_CONSTRUCTS = (3, 9)
#: Rows from which on one of them is the default: they have tiles of 256, the plain kernel of 128.
SCHEDULED_ROWS = 129


@dataclass(frozen=True)
class ScheduledGfx950:
    """What the scheduled kernels of gfx950 have in common; see `scheduled_gfx950`.

    Attributes:
        ring: key blocks that LDS holds of K, and of V: 3 or 4.
        block_m, block_n: rows of a workgroup and keys of a block; the layouts are made for 256 and 64.
        lazy: rescale O only where a row grows beyond 2**`threshold` times its reference.
        threshold: in powers of two, 0 to 14; P reaches 2**threshold, and so do its fp16 elements.
        xcds: dies that the hardware deals workgroups to in turn.
        dim, ratio, masked: of the problem, as `for_problem` fills them in.
    """

    ring: int = 4
    block_m: int = 256
    block_n: int = 64
    lazy: bool = True
    threshold: float = 8.0
    xcds: int = 8
    dim: int = 128
    ratio: int = 1
    masked: bool = True

    #: For people, and waves of a workgroup.
    title: ClassVar[str]
    num_warps: ClassVar[int]
    #: Parts of a wave's rows, and of the elements of q and K, that windows take one at a time.
    row_parts: ClassVar[int] = 1
    dim_parts: ClassVar[int] = 1
    #: Whether the two lanes of a row sum up for themselves, which the protocol check cannot follow in stages.
    sum_lanes: ClassVar[bool] = False
    #: What LLVM is asked for in each window, by head dim: matrix, memory, transcendental and other instructions.
    orders: ClassVar[dict[int, dict[str, str]]]

    @property
    def groups(self) -> int:
        """Groups of four waves that run one stage apart."""
        return self.num_warps // 4

    def order(self, window: str) -> str:
        """What LLVM is asked for in a window."""
        return self.orders[self.dim][window]

    def k_layout(self) -> LdsLayout:
        """LDS layout of a tile of K: keys are the outer dimension of its operand, elements are contiguous."""
        return derive(OperandTile(self.block_n, self.dim, True, 32))

    def v_layout(self) -> LdsLayout:
        """LDS layout of a tile of V: elements are the outer dimension of its operand, and contiguous."""
        return derive(OperandTile(self.dim, self.block_n, False, 32))

    def lds_bytes(self) -> int:
        """Bytes of LDS that both rings take, padding included."""
        return self.k_layout().size_bytes(self.ring) + self.v_layout().size_bytes(self.ring)

    def for_problem(self, problem: Problem) -> Self:
        """The schedule with what a kernel must know of the problem."""
        masked = problem.options.causal or problem.keys % self.block_n != 0 or problem.keys == 0
        return replace(self, dim=problem.dim, ratio=problem.ratio, masked=masked)

    def constraints(self, target: str | Target) -> list[str]:
        """What makes this schedule illegal on a target, one sentence each."""
        record = get_target(target)
        if record.arch != "gfx950":
            return [f"{self.title} attention is made for gfx950, not for {record.arch}"]
        choices = {"ring": (3, 4), "block_m": (256,), "block_n": (64,), "dim": (64, 128)}
        wrong = none_of(self, choices) + wrong_rescaling(self) + not_positive(self, ("xcds",))
        if not wrong and self.lds_bytes() > record.lds_bytes:
            wrong.append(f"the rings take {self.lds_bytes()} bytes of LDS, {record.arch} has {record.lds_bytes}")
        return wrong

    def refusals(self, problem: Problem) -> list[str]:
        """Why it cannot compute a problem, one sentence each; the plain schedule can."""
        options = problem.options
        wrong: list[str] = []
        if problem.target.arch != "gfx950":
            return self.constraints(problem.target)
        if problem.fp8 or (problem.dim, problem.dim_v) not in ((64, 64), (128, 128)):
            wrong.append(f"{self.title} attention takes fp16 and bf16 heads of 64 or of 128 elements")
        given = [name for name in ("window", "softcap") if getattr(options, name) is not None]
        wrong += [f"{self.title} attention has no {name}" for name in given]
        wrong += [f"{self.title} attention has no {name}" for name in problem.extras if name != "sinks"]
        wrong += unaligned(problem, f"{self.title} attention")
        return wrong


class PingPongSchedule(ScheduledGfx950):
    """Two groups of four waves, one stage apart; see `ping_pong_gfx950`.

    The row maxima come first, in a chain that no exponential can overtake; the sums come last. Chosen by
    the cycle model.
    """

    title = "ping-pong"
    num_warps = 8
    orders: ClassVar = {
        64: {"maxima": "3(M V9) 1(M T V6) 3(M T4 V4) 1(M T3 V4)", "sums": "7(M T2 V6) T2 V6 M"},
        128: {"maxima": "6(M V5) 4(M T V2) 6(M T2 V2)", "sums": "8(M T2 V2) 8(M V5)"},
    }


class IntraWaveSchedule(ScheduledGfx950):
    """Four waves, one to a SIMD, whose softmax and LDS reads stand between their own MFMAs; see `intra_wave_gfx950`."""

    title = "intra-wave"
    num_warps = 4
    row_parts = 2
    dim_parts = 2
    sum_lanes = True
    orders: ClassVar = {
        64: {
            "maxima": "4(M R V9) 4(M T4 V6)",
            "exponents": "4(M R) M 2(M T8) M",
            "upper": "4(M T4 V2)",
            "upper and sums": "4(M T4 V4)",
            "sums": "8(M R2 V8)",
        },
        128: {
            "maxima": "4(M R V5) 4(M V6)",
            "lower": "2(M R V6) 2(M R T2 V2) 4(M T3)",
            "exponents": "4(M R V6) 4(M V6)",
            "upper": "8(M R T2 V)",
            "upper and sums": "8(M R T2 V2)",
            "sums": "16(M R V5)",
        },
    }


def fewest_waves(target: Target) -> int:
    """Waves that a workgroup needs: compiling the kernel for one wave of gfx1250 aborts Triton 3.9."""
    return 2 if target.arch == "gfx1250" else 1


Schedule = PlainSchedule | ScheduledGfx950 | TasksSchedule
SCHEDULES: dict[str, Schedule] = {
    "plain": PlainSchedule(),
    "ping_pong": PingPongSchedule(),
    "intra_wave": IntraWaveSchedule(),
    "tasks": TasksSchedule(),
}


def schedule_name(schedule: Any) -> str:
    """The name in `SCHEDULES` of a launch's schedule; the plain kernel is given none."""
    return next((name for name, one in SCHEDULES.items() if type(one) is type(schedule)), "plain")


def plain_schedule(problem: Problem, fold: int, splits: int | None = None) -> PlainSchedule:
    """The plain schedule of a problem: tiles no larger than there are rows, and than registers and LDS hold."""
    widest = max(problem.dim, problem.dim_v)
    tile_rows = problem.rows * fold
    block_m = max(16, min(128 if widest <= 128 else 64, 1 << max(0, tile_rows - 1).bit_length()))
    # one fp8 matrix instruction takes 32 to 128 keys of P V; a 256-wide head leaves registers and LDS for 32 keys
    block_n = 64 if widest <= 128 or problem.fp8 else 32
    waves = max(fewest_waves(problem.target), min(4, block_m // 16))
    return PlainSchedule(block_m, block_n, splits or 1, waves)


def chosen(problem: Problem, schedule: Any, triton: tuple[int, ...]) -> Schedule | None:
    """The schedule of a problem; None for a plain one whose tiles the problem decides.

    Args:
        problem: what to compute.
        schedule: what the caller asked for: a name, a schedule, or None for the default.
        triton: version at hand.

    Raises:
        UsageError: a schedule that is none, or that cannot compute the problem.
    """
    if isinstance(schedule, str) and schedule in SCHEDULES:
        schedule = SCHEDULES[schedule] if schedule != "plain" else "plain"
    if schedule == "plain":
        return None
    if schedule is None:
        return default(problem, triton)
    if not isinstance(schedule, PlainSchedule | ScheduledGfx950 | TasksSchedule):
        raise problem.checker.error(
            f"schedule is {schedule!r}", f"take one of {', '.join(SCHEDULES)}, a schedule, or None"
        )
    check(schedule, problem.target)
    if isinstance(schedule, TasksSchedule) and (wrong := schedule.refusals(problem)):
        raise problem.checker.error(wrong[0], 'take schedule="plain", or None')
    if isinstance(schedule, ScheduledGfx950):
        if wrong := schedule.refusals(problem):
            raise problem.checker.error(wrong[0], 'take schedule="plain", or None')
        if triton < NEWEST_CONSTRUCTS:
            raise problem.checker.error(
                f"{schedule.title} attention needs Triton 3.9, whose Gluon has inline assembly",
                'take schedule="plain", or None',
            )
    return schedule


def default(problem: Problem, triton: tuple[int, ...]) -> Schedule | None:
    """What the shipped table of a target has for a problem; where it has none or cannot have its choice, a rule.

    The rule is ping-pong where it can compute the problem and there are more than 128 rows, and else the plain kernel.
    """
    found = shipped(problem) if problem.rows >= SCHEDULED_ROWS else None
    for one in (found, PingPongSchedule() if problem.rows >= SCHEDULED_ROWS else None):
        if isinstance(one, PlainSchedule) and not one.constraints(problem.target):
            return one
        if isinstance(one, ScheduledGfx950) and triton >= NEWEST_CONSTRUCTS and not one.refusals(problem):
            return one
        if isinstance(one, TasksSchedule) and not one.constraints(problem.target) and not one.refusals(problem):
            return one
    return None


def problem_class(problem: Problem) -> str | None:
    """What a choice is kept under; None for a problem whose options no class has.

    Elements of 16 bits take the same time, and so do sinks; keys are rounded up to a power of two from 512 to 2048,
    which stands for all longer sequences. There are at least as many rows as keys.
    """
    options = problem.options
    if problem.fp8 or problem.page or options.window is not None or options.softcap is not None:
        return None
    if set(problem.extras) - {"sinks"} or problem.dim != problem.dim_v or problem.rows < problem.keys:
        return None
    return class_name(problem.dim, options.causal, min(max(1 << max(problem.keys - 1, 0).bit_length(), 512), 2048))


def class_name(dim: int, causal: bool, keys: int) -> str:
    """The name of a class in the shipped tables."""
    return f"16-bit heads of {dim} {'causal' if causal else 'full'} keys {keys}"


def shipped(problem: Problem) -> Schedule | None:
    """What the shipped table of a target has for a problem's class."""
    entries = read_json(TABLES / f"{problem.target.arch}.json").get("entries", {})
    entry = entries.get(problem_class(problem), {})
    try:
        return replace(SCHEDULES[entry["schedule"]], **entry["fields"])
    except (KeyError, TypeError):
        return None


def check(schedule: Schedule, target: str | Target) -> None:
    """Raise `UsageError` with the first broken constraint, if there is one."""
    if wrong := schedule.constraints(target):
        raise UsageError(wrong[0], remedy="choose another schedule", construct=type(schedule).__name__)
