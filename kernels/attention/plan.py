"""From a checked problem to launches."""

from __future__ import annotations

import contextlib
import math
from importlib import import_module
from typing import Any

from amdwarp import env
from amdwarp.runtime import Launch, run
from amdwarp.weave import windows_are

from .configs import DECODE_ROWS, NEWEST_CONSTRUCTS, PlainSchedule, ScheduledGfx950, check, chosen, plain_schedule
from .forms import Form
from .gluon_launch import LOG2_E, common_arguments
from .operands import EXTENT_LIMIT, Operand, new_array
from .options import FP32_MAX
from .problem import Problem, check_total
from .tasks import TasksSchedule
from .tasks_plan import tasks_launch

#: Arrays of the plain kernel that may be absent, by parameter -> argument.
OPTIONAL = {
    "sinks_ptr": "sinks",
    "alibi_ptr": "alibi",
    "bias_ptr": "bias",
    "q_scale_ptr": "q_scale",
    "k_scale_ptr": "k_scale",
    "v_scale_ptr": "v_scale",
    "cu_rows_ptr": "cu_seqlens_q",
    "cu_keys_ptr": "cu_seqlens_k",
    "lengths_ptr": "lengths",
    "table_ptr": "block_table",
}


def triton_version() -> tuple[int, ...]:
    """Of the Triton at hand.

    Raises:
        UnsupportedTritonError: no Triton, or one that these kernels do not compile with.
    """
    from amdwarp.lowering.bridge import require_triton_for

    return require_triton_for("attention").version


def kernel(module: str, name: str) -> Any:
    """A kernel function of this family; imports Triton."""
    triton_version()
    return getattr(import_module(f".{module}", __package__), name)


def compute(problem: Problem, schedule: Any = None, splits: int | None = None) -> None:
    """Compute a problem, with the schedule that was asked for or the default one.

    Args:
        problem: what to compute.
        schedule: as the caller gave it.
        splits: workgroups that share the keys of a sequence, for the plain kernel.
    """
    taken = chosen(problem, schedule, triton_version())
    if isinstance(taken, ScheduledGfx950):
        made = taken.for_problem(problem)
        check(made, problem.target)
        # The kernel is right in any order of instructions. Where masks take the registers that an order needs, LLVM
        # gives it up, and that must not keep a problem from being computed; `amdwarp explain` shows what was realised.
        with contextlib.nullcontext() if env.WINDOWS.is_set() else windows_are("off"):
            run(scheduled_launch(problem, made))
    elif isinstance(taken, TasksSchedule):
        lanes_asked = triton_version() >= NEWEST_CONSTRUCTS
        asked = taken.for_problem(problem, lanes_asked)
        check(asked, problem.target)
        run(tasks_launch(problem, asked))
    else:
        run_plain(problem, taken, splits)


def run_plain(problem: Problem, schedule: PlainSchedule | None = None, splits: int | None = None) -> None:
    """Compute a problem with the plain kernel, and join its splits if it has any."""
    # where rows are few, those of all query heads of a key head fill a tile together, and its keys are read once
    fold = problem.ratio if problem.rows <= DECODE_ROWS else 1
    taken = schedule or plain_schedule(problem, fold, splits)
    check(taken, problem.target)
    form = taken.form(problem, fold)
    check_total(problem.checker, "batch times splits", problem.batch, taken.splits)
    if taken.splits == 1:
        run(plain_launch(problem, taken, form, problem.out, problem.lse, problem.steps["out"]))
        return
    rows, heads, batch = problem.rows, problem.heads, problem.batch
    part = _scratch(problem, (taken.splits, batch, rows, heads, problem.dim_v))
    part_lse = _scratch(problem, (taken.splits, batch, heads, rows))
    steps = (part.strides[1], part.strides[3], part.strides[2])
    run(plain_launch(problem, taken, form, part, part_lse, steps))
    run(join_launch(problem, form, part, part_lse))


def scheduled_launch(problem: Problem, schedule: ScheduledGfx950) -> Launch:
    """The launch of ``scheduled_gfx950.attend``."""
    tiles = math.ceil(problem.rows / schedule.block_m)
    arguments, constants = common_arguments(problem, schedule)
    scale = problem.options.scale_of(problem.dim) * LOG2_E
    arguments |= {"heads": problem.heads, "tiles": tiles, "scale": scale}
    # Packed fp32 arithmetic does not run beside MFMAs. Where two waves share a SIMD, all 256 registers of one are
    # ordinary without accumulation registers, and none is copied.
    attributes: tuple[tuple[str, str], ...] = (("target-features", "-packed-fp32-ops"),)
    if schedule.groups == 2:
        attributes += (("amdgpu-agpr-alloc", "0,0"),)
    options = {"num_warps": schedule.num_warps, "enable_fp_fusion": True, "llvm_fn_attrs": attributes}
    grid = (tiles * problem.heads, problem.batch)
    return Launch(kernel("scheduled_gfx950", "attend"), grid, arguments, constants, options)


def _scratch(problem: Problem, shape: tuple[int, ...]) -> Operand:
    return problem.checker.operand("scratch", new_array(problem.q.value, shape, "fp32"), len(shape), ("fp32",))


def plain_launch(
    problem: Problem,
    schedule: PlainSchedule,
    form: Form,
    out: Operand,
    lse: Operand | None,
    out_steps: tuple[int, int, int],
) -> Launch:
    """The launch of ``plain.attend`` that writes `out` and `lse`, which lead with splits where there are several."""
    options = problem.options
    many = int(form.splits > 1)
    scale, softcap = options.scale_of(problem.dim) * LOG2_E, 1.0
    if options.softcap is not None:
        scale, softcap = min(2.0 * scale / options.softcap, FP32_MAX), options.softcap * LOG2_E
    left, right = (min(reach or 0, EXTENT_LIMIT) for reach in options.reach)
    arguments: dict[str, Any] = {
        "q_ptr": problem.q.value,
        "k_ptr": problem.k.value,
        "v_ptr": problem.v.value,
        "out_ptr": out.value,
        "rows": problem.rows,
        "keys": problem.keys,
        "scale": scale,
        "softcap": softcap,
        "left": left,
        "right": right,
    }
    for name, steps in {**problem.steps, "out": out_steps}.items():
        arguments |= dict(zip((f"{name}_batch", f"{name}_head", f"{name}_row"), steps, strict=True))
    lse_steps = (0, 0, 0, 0) if lse is None else (0,) * (4 - len(lse.strides)) + lse.strides
    arguments |= {
        "out_split": out.strides[0] if many else 0,
        "lse_split": lse_steps[0],
        "lse_batch": lse_steps[1],
        "lse_head": lse_steps[2],
    }
    absent: dict[str, Any] = {} if lse is not None else {"lse_ptr": None}
    if lse is not None:
        arguments["lse_ptr"] = lse.value
    for parameter, name in OPTIONAL.items():
        one = problem.extras.get(name)
        if one is None:
            absent[parameter] = None
        else:
            arguments[parameter] = one.value
    arguments |= _steps_of(problem.extras)
    grid = (
        math.ceil(problem.rows * form.fold / form.block_m),
        problem.heads // form.fold,
        problem.batch * form.splits,
    )
    constants = {"OPT": options, "F": form}
    return Launch(kernel("plain", "attend"), grid, arguments, constants | absent, backend_options(problem, schedule))


def backend_options(problem: Problem, schedule: PlainSchedule) -> dict[str, Any]:
    """Options of Triton's AMD backend."""
    return {"num_warps": schedule.num_warps, "num_stages": schedule.num_stages, "enable_fp_fusion": True}


def _steps_of(extras: dict[str, Operand]) -> dict[str, int]:
    """The strides of arrays that may be absent; 0 for those that are."""
    steps: dict[str, int] = {}
    wanted = {
        "alibi": ("batch", None),
        "bias": ("batch", "head", "row", "key"),
        "q_scale": ("batch", "head"),
        "k_scale": ("batch", "head"),
        "v_scale": ("batch", "head"),
        "block_table": ("batch", None),
    }
    for name, axes in wanted.items():
        one = extras.get(name)
        strides = (0,) * len(axes) if one is None else one.strides
        prefix = "table" if name == "block_table" else name
        steps |= {f"{prefix}_{axis}": step for axis, step in zip(axes, strides, strict=True) if axis is not None}
    return steps


def join_launch(problem: Problem, form: Form, part: Operand, part_lse: Operand) -> Launch:
    """The launch of ``plain.join_splits``."""
    out_batch, out_head, out_row = problem.steps["out"]
    arguments: dict[str, Any] = {
        "part_ptr": part.value,
        "part_lse_ptr": part_lse.value,
        "out_ptr": problem.out.value,
        "part_split": part.strides[0],
        "part_batch": part.strides[1],
        "part_head": part.strides[3],
        "part_row": part.strides[2],
        "part_lse_split": part_lse.strides[0],
        "part_lse_batch": part_lse.strides[1],
        "part_lse_head": part_lse.strides[2],
        "out_batch": out_batch,
        "out_head": out_head,
        "out_row": out_row,
        "lse_batch": 0 if problem.lse is None else problem.lse.strides[0],
        "lse_head": 0 if problem.lse is None else problem.lse.strides[1],
    }
    constants: dict[str, Any] = {"F": form}
    if problem.lse is None:
        constants["lse_ptr"] = None
    else:
        arguments["lse_ptr"] = problem.lse.value
    grid = (problem.rows, problem.heads, problem.batch)
    return Launch(kernel("plain", "join_splits"), grid, arguments, constants, {"num_warps": 1})
