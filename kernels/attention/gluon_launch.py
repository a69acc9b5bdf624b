"""What the launches of the Gluon kernels have in common."""

from __future__ import annotations

from typing import Any

from .problem import Problem

LOG2_E = 1.4426950408889634


def common_arguments(problem: Problem, schedule: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of every such kernel, and its constants, with a schedule that knows the problem; rows are aligned."""
    arguments: dict[str, Any] = {
        "q_ptr": problem.q.value,
        "k_ptr": problem.k.value,
        "v_ptr": problem.v.value,
        "out_ptr": problem.out.value,
        "rows": problem.rows,
        "keys": problem.keys,
        "lse_batch": 0 if problem.lse is None else problem.lse.strides[0],
        "lse_head": 0 if problem.lse is None else problem.lse.strides[1],
    }
    for name, (batch, head, row) in problem.steps.items():
        # a product with 8 tells the compiler that rows are aligned
        arguments |= {f"{name}_batch": batch, f"{name}_head": head, f"{name}_row_units": row // 8}
    constants: dict[str, Any] = {"OPT": problem.options, "S": schedule}
    for name, value in (("lse_ptr", problem.lse), ("sinks_ptr", problem.extras.get("sinks"))):
        if value is None:
            constants[name] = None
        else:
            arguments[name] = value.value
    return arguments, constants
