"""From a checked problem to the launch of the kernel that runs as tasks."""

from __future__ import annotations

import math
from importlib import import_module

from amdwarp.runtime import Launch

from .gluon_launch import LOG2_E, common_arguments
from .operands import EXTENT_LIMIT
from .options import FP32_MAX
from .problem import Problem, check_total
from .tasks import TasksSchedule


def tasks_launch(problem: Problem, schedule: TasksSchedule) -> Launch:
    """The launch of ``tasks_gfx1250.attend``, with a schedule that `TasksSchedule.for_problem` made."""
    options = problem.options
    scale, softcap = options.scale_of(problem.dim) * LOG2_E, 1.0
    if options.softcap is not None:
        scale = min(options.scale_of(problem.dim) / options.softcap, FP32_MAX)
        softcap = options.softcap * LOG2_E
    left, right = (min(reach or 0, EXTENT_LIMIT) for reach in options.reach)
    tiles = math.ceil(problem.rows / schedule.block_m)
    arguments, constants = common_arguments(problem, schedule)
    arguments |= {"tiles": tiles, "scale": scale, "softcap": softcap, "left": left, "right": right}
    check_total(problem.checker, "batch", problem.batch)
    check_total(problem.checker, "query heads", problem.heads)
    kernel = import_module(".tasks_gfx1250", __package__).attend
    grid = (tiles, problem.heads, problem.batch)
    return Launch(kernel, grid, arguments, constants, {"num_warps": schedule.multipliers, "enable_fp_fusion": True})
