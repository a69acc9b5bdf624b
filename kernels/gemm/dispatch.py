"""Which family runs a product: a scheduled kernel where one is asked for, or legal and worth it; else the plain one."""

from __future__ import annotations

from typing import Any

from amdwarp.runtime import current_emulation, run
from amdwarp.target import Target

from .configs import SCHEDULES, GemmSchedule
from .forms import error
from .operands import check_can_run, empty
from .plain_config import PlainConfig
from .plain_plan import launches
from .plain_problem import PlainProblem
from .scheduled import launch as scheduled_launch
from .scheduled import worthwhile
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
    if schedule is None and not worthwhile(problem, target, compute_units):
        return False
    made = scheduled_launch(problem, schedule, target, compute_units)
    check_can_run(problem.a.array.value, "a", problem.construct)
    run(made)
    return True
