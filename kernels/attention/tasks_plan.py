"""From a checked problem to the launch of the kernel that runs as tasks."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

from amdwarp.runtime import Launch

from .operands import EXTENT_LIMIT
from .problem import Problem, check_total
from .tasks import TasksSchedule

LOG2_E = 1.4426950408889634


def tasks_launch(problem: Problem, schedule: TasksSchedule) -> Launch:
    """The launch of ``tasks_gfx1250.attend``, with a schedule that `TasksSchedule.for_problem` made."""
    options = problem.options
    scale, softcap = options.scale_of(problem.dim) * LOG2_E, 1.0
    if options.softcap is not None:
        scale, softcap = options.scale_of(problem.dim) / options.softcap, options.softcap * LOG2_E
    left, right = (min(reach or 0, EXTENT_LIMIT) for reach in options.reach)
    tiles = math.ceil(problem.rows / schedule.block_m)
    arguments: dict[str, Any] = {
        "q_ptr": problem.q.value,
        "k_ptr": problem.k.value,
        "v_ptr": problem.v.value,
        "out_ptr": problem.out.value,
        "rows": problem.rows,
        "keys": problem.keys,
        "tiles": tiles,
        "scale": scale,
        "softcap": softcap,
        "left": left,
        "right": right,
        "lse_batch": 0 if problem.lse is None else problem.lse.strides[0],
        "lse_head": 0 if problem.lse is None else problem.lse.strides[1],
    }
    for name, (batch, head, row) in problem.steps.items():
        # a product with 8 tells the compiler that rows are aligned
        arguments |= {f"{name}_batch": batch, f"{name}_head": head, f"{name}_row_units": row // 8}
    constants: dict[str, Any] = {"OPT": options, "S": schedule}
    for name, value in (("lse_ptr", problem.lse), ("sinks_ptr", problem.extras.get("sinks"))):
        if value is None:
            constants[name] = None
        else:
            arguments[name] = value.value
    check_total(problem.checker, "batch", problem.batch)
    check_total(problem.checker, "query heads", problem.heads)
    kernel = import_module(".tasks_gfx1250", __package__).attend
    grid = (tiles, problem.heads, problem.batch)
    return Launch(kernel, grid, arguments, constants, {"num_warps": schedule.multipliers, "enable_fp_fusion": True})
