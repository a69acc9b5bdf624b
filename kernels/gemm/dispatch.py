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
from .scales import shuffle_scales
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
    dtype, out_dtype = kernel_dtype(problem), TYPE_NAMES[problem.out.dtype]
    made = plan(*matrices, dtype, schedule, out_dtype=out_dtype, target=target, compute_units=compute_units)
    check_can_run(problem.a.array.value, "a", problem.construct)
    values = {"a_ptr": problem.a.array.value, "b_ptr": problem.b.array.value, "c_ptr": problem.out.value}
    if problem.mx:
        assert problem.scale_a is not None and problem.scale_b is not None
        values["scale_a_ptr"] = shuffle_scales(problem.scale_a.array.value)
        values["scale_b_ptr"] = shuffle_scales(problem.scale_b.array.value.T)
    run(Launch(made.function(), made.grid, values | made.arguments, made.constexprs, made.options))
    return True


def kernel_dtype(problem: PlainProblem) -> str:
    """The operands' type as the scheduled family calls it; "" for what it does not multiply."""
    a, b = problem.a, problem.b
    if problem.mx:
        return "mxfp4" if a.format == b.format == "e2m1" else ""
    name = TYPE_NAMES.get(a.array.dtype, "")
    return name if name in DTYPES and a.array.dtype == b.array.dtype else ""


def scheduled_matrices(problem: PlainProblem) -> tuple[Matrix, Matrix, Matrix] | str:
    """The operands as the scheduled family takes them, or why it does not."""
    a, b, out = problem.a.array, problem.b.array, problem.out
    if not kernel_dtype(problem):
        names = (problem.a.format or a.dtype, problem.b.format or b.dtype)
        return f"the scheduled kernels do not multiply {names[0]} with {names[1]}"
    scaled = not problem.mx and (problem.scale_a or problem.scale_b)
    if not problem.epilogue.trivial or scaled or TYPE_NAMES[out.dtype] not in OUTPUTS:
        return "the scheduled kernels have no epilogue"
    if problem.batch or problem.b.shuffle or problem.groups or not problem.k:
        return "the scheduled kernels multiply two matrices"
    k = problem.k // 2 if problem.mx else problem.k  # two fp4 elements in a byte
    return (
        Matrix(problem.m, k, problem.a.line, problem.a.k, a.address, a.itemsize),
        Matrix(k, problem.n, problem.b.k, problem.b.line, b.address, b.itemsize),
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
        plan(*matrices, kernel_dtype(problem), out_dtype=TYPE_NAMES[problem.out.dtype], target=target)
    except UsageError:
        return False
    return True
