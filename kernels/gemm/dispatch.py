"""Which family runs a product: the one asked for, what tuning or the table found, or a scheduled kernel worth it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from amdwarp.runtime import current_emulation, run
from amdwarp.target import Target

from .configs import SCHEDULES, GemmSchedule
from .forms import error
from .operands import check_can_run, empty
from .plain_config import PlainConfig
from .plain_problem import PlainProblem
from .plan import check_name
from .tuning import choose_config, launches_of

_recording: ContextVar[list[PlainProblem] | None] = ContextVar("amdwarp_gemm_recording", default=None)


@contextlib.contextmanager
def recording() -> Iterator[list[PlainProblem]]:
    """Products inside the block are checked and listed, and not run."""
    found: list[PlainProblem] = []
    token = _recording.set(found)
    try:
        yield found
    finally:
        _recording.reset(token)


def check_schedule(construct: str, schedule: Any, target: Target) -> None:
    """Refuse what is no schedule of a target, whatever the product; of an empty one nothing else is asked."""
    if schedule is not None and not isinstance(schedule, (str, GemmSchedule, PlainConfig)):
        raise error(
            construct,
            f"schedule is {schedule!r}",
            f"take inter_wave or one of {', '.join(SCHEDULES)}, plain, a GemmSchedule, a PlainConfig, or None",
        )
    if isinstance(schedule, PlainConfig):
        schedule.check(target)
    elif isinstance(schedule, str) and schedule not in ("auto", "plain"):
        check_name(schedule, target)


def run_product(problem: PlainProblem, schedule: Any, target: Target, compute_units: int, tune: bool = False) -> None:
    """Run a product where its memory is.

    Args:
        problem: the product; its output has elements.
        schedule: ``plain``, the name of a scheduled kernel, a `GemmSchedule`, a `PlainConfig`, or None or ``auto`` for
            the choice.
        target, compute_units: where it runs.
        tune: try candidates where nothing is kept, if the choice is free.

    Raises:
        UsageError: a schedule that does not take this product; nothing is launched then.
    """
    if (found := _recording.get()) is not None:
        found.append(problem)
        return
    check_can_run(problem.a.array.value, problem.a.array.name, problem.construct)
    if schedule in (None, "auto", "plain"):
        emulation = current_emulation()
        # a sample of workgroups would leave parts out of the sums
        sampled = emulation is not None and emulation.workgroups is not None
        families = {"scheduled": schedule != "plain", "parts": not sampled}
        schedule = choose_config(problem, target, compute_units, tune=tune, **families)

    def workspace(elements: int, zeros: bool) -> Any:
        return empty(problem.out.value, (elements,), problem.accumulator, zeros=zeros)

    for launch in launches_of(problem, schedule, target, compute_units, workspace):
        run(launch)
