"""What the schedules' own rules have in common, each stated once. Plain Python: no Triton, no device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .operands import Operand
    from .problem import Problem


def none_of(schedule: Any, choices: Mapping[str, Iterable[int]]) -> list[str]:
    """Fields that are none of their legal values, one sentence each."""
    return [
        f"{name} = {getattr(schedule, name)!r} is none of {', '.join(map(str, legal))}"
        for name, legal in choices.items()
        if getattr(schedule, name) not in legal or type(getattr(schedule, name)) is not int
    ]


def not_positive(schedule: Any, names: Iterable[str]) -> list[str]:
    """Fields that are no int of at least 1, one sentence each."""
    return [
        f"{name} = {getattr(schedule, name)!r} is no int of at least 1"
        for name in names
        if type(getattr(schedule, name)) is not int or getattr(schedule, name) < 1
    ]


def wrong_rescaling(schedule: Any) -> list[str]:
    """What is wrong with `lazy` and `threshold`, one sentence each."""
    wrong = []
    if type(schedule.lazy) is not bool:
        wrong.append(f"lazy = {schedule.lazy!r} is no bool")
    if isinstance(schedule.threshold, bool) or not isinstance(schedule.threshold, int | float):
        wrong.append(f"threshold = {schedule.threshold!r} is no number")
    elif not 0 <= schedule.threshold <= 14:
        wrong.append(f"threshold = {schedule.threshold} leaves 0 to 14, where P fits into fp16")
    return wrong


def unaligned(problem: Problem, title: str) -> list[str]:
    """Operands whose rows are not 16-byte aligned, one sentence each."""
    wrong = []
    for name in ("q", "k", "v", "out"):
        one: Operand = getattr(problem, name)
        if one.address % 16 or any(step % 8 for step in problem.steps[name]):
            wrong.append(f"{title} takes rows that are 16-byte aligned, and those of {name} are not")
    return wrong
