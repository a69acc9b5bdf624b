"""Which family runs a product: a scheduled kernel where one is asked for, or legal and worth it; else the plain one."""

from __future__ import annotations

from typing import Any

from amdwarp.errors import UsageError
from amdwarp.runtime import TYPE_NAMES, Launch, current_emulation, run
from amdwarp.target import Target

from .configs import SCHEDULES, GemmSchedule
from .forms import error
from .operands import check_can_run, empty
from .plain_config import PlainConfig
from .plain_plan import launches
from .plain_problem import PlainProblem
from .plan import DTYPES, OUTPUTS, Matrix, plan
from .tuning import choose_config


def check_schedule(construct: str, schedule: Any) -> None:
    """Refuse a schedule of a type that is none."""
    if schedule is not None and not isinstance(schedule, (str, GemmSchedule, PlainConfig)):
        raise error(
            construct,
            f"schedule is {schedule!r}",
            f"take inter_wave or one of {', '.join(SCHEDULES)}, plain, a GemmSchedule, a PlainConfig, or None",
        )


def run_plain(problem: PlainProblem, schedule: Any, target: Target, compute_units: int, tune: bool = False) -> None:
    """Run a product in the plain family."""
    check_can_run(problem.a.array.value, problem.a.array.name, problem.construct)
    if isinstance(schedule, PlainConfig):
        config = schedule
    else:
        emulation = current_emulation()
        # a sample of workgroups would leave parts out of the sums
        sampled = emulation is not None and emulation.workgroups is not None
        config = choose_config(problem, target, compute_units, tune=tune, parts=not sampled)

    def workspace(elements: int, zeros: bool) -> Any:
        return empty(problem.out.value, (elements,), problem.accumulator, zeros=zeros)

    for launch in launches(problem, config, target, compute_units, workspace):
        run(launch)


def run_scheduled(problem: PlainProblem, schedule: Any, target: Target, compute_units: int) -> bool:
    """Run a product with a wave-level schedule where one is asked for, or legal and worth it; False if not run."""
    if isinstance(schedule, PlainConfig) or schedule == "plain":
        return False
    matrices = scheduled_matrices(problem)
    if isinstance(matrices, str):
        if schedule is None:
            return False
        raise problem.error(matrices, "pass schedule=None, 'plain' or a PlainConfig")
    if schedule is None and not worth_scheduling(problem, target):
        return False
    dtype, out_dtype = TYPE_NAMES[problem.a.array.dtype], TYPE_NAMES[problem.out.dtype]
    made = plan(*matrices, dtype, schedule, out_dtype=out_dtype, target=target, compute_units=compute_units)
    check_can_run(problem.a.array.value, "a", problem.construct)
    values = {"a_ptr": problem.a.array.value, "b_ptr": problem.b.array.value, "c_ptr": problem.out.value}
    run(Launch(made.function(), made.grid, values | made.arguments, made.constexprs, made.options))
    return True


def scheduled_matrices(problem: PlainProblem) -> tuple[Matrix, Matrix, Matrix] | str:
    """The operands as the scheduled family takes them, or why it does not."""
    a, b, out = problem.a.array, problem.b.array, problem.out
    if TYPE_NAMES.get(a.dtype) not in DTYPES or a.dtype != b.dtype or problem.mx:
        return f"the scheduled kernels do not multiply {a.dtype} with {b.dtype}"
    if not problem.epilogue.trivial or problem.scale_a or problem.scale_b or TYPE_NAMES[out.dtype] not in OUTPUTS:
        return "the scheduled kernels have no epilogue"
    if problem.batch or problem.b.shuffle or problem.groups or not problem.k:
        return "the scheduled kernels multiply two matrices"
    return (
        Matrix(problem.m, problem.k, problem.a.line, problem.a.k, a.address, a.itemsize),
        Matrix(problem.k, problem.n, problem.b.k, problem.b.line, b.address, b.itemsize),
        Matrix(problem.m, problem.n, problem.out_line, problem.out_column, out.address, out.itemsize),
    )


def worth_scheduling(problem: PlainProblem, target: Target) -> bool:
    """Whether the default of a shape is a scheduled kernel: legal, and no tile of it mostly empty.

    Tiles of 16-bit operands start at 128x128, those of narrower ones at 256x256.
    """
    matrices = scheduled_matrices(problem)
    if isinstance(matrices, str) or min(problem.m, problem.n) < 128 // problem.a.array.itemsize:
        return False
    try:
        plan(*matrices, TYPE_NAMES[problem.a.array.dtype], out_dtype=TYPE_NAMES[problem.out.dtype], target=target)
    except UsageError:
        return False
    return True
