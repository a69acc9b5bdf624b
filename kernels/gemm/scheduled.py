"""From a checked product to a launch of a scheduled kernel: what those take, and their epilogue's arguments."""

from __future__ import annotations

from typing import Any

from amdwarp.errors import UsageError
from amdwarp.runtime import Launch
from amdwarp.target import Target

from .configs import SCHEDULES, GemmSchedule, kind_of
from .plain_problem import PlainProblem, Scale
from .plan import OFFSET_LIMIT, OUTPUTS, GemmPlan, Matrix, plan
from .scales import shuffle_scales

#: Triton's names of the element types that scheduled kernels multiply.
NAMES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
    "int8": "i8",
    "int32": "i32",
}


def operand_name(problem: PlainProblem) -> str:
    """The operands' type as `plan` calls it, or "" where the scheduled kernels do not multiply them."""
    a, b = problem.a, problem.b
    if problem.mx:
        return "mxfp4" if a.format == b.format == "e2m1" else ""
    if a.format or b.format or a.array.dtype != b.array.dtype:
        return ""
    name = NAMES.get(a.array.dtype, "")
    return name if kind_of(name) else ""


def refusal(problem: PlainProblem) -> str:
    """Why the scheduled kernels do not take a product, or ""; shapes and layouts are `plan`'s to judge."""
    epilogue = problem.epilogue
    if not operand_name(problem):
        left, right = (one.format or one.array.dtype for one in (problem.a, problem.b))
        return f"the scheduled kernels do not multiply {left} with {right}"
    if problem.batch or problem.groups or problem.b.shuffle or not problem.k:
        return "the scheduled kernels multiply two matrices"
    if epilogue.gated:
        return "the scheduled kernels have no swiglu"
    if problem.blockwise:
        return "the scheduled kernels have no scales of blocks"
    if NAMES.get(epilogue.out) not in OUTPUTS:
        return f"the scheduled kernels do not write {epilogue.out}"
    if problem.accumulator == "int32" and (epilogue.out != "int32" or _scaled(problem)):
        return "the scheduled kernels write sums of int8 as int32"
    return ""


def _scaled(problem: PlainProblem) -> bool:
    return problem.scale_a is not None or problem.scale_b is not None


def matrices(problem: PlainProblem) -> tuple[Matrix, Matrix, Matrix]:
    """A, B and C as `plan` takes them: pairs of fp4 are one element."""
    a, b, out = problem.a, problem.b, problem.out
    k = problem.k // 2 if problem.mx else problem.k
    return (
        Matrix(problem.m, k, a.line, a.k, a.array.address, a.array.itemsize),
        Matrix(k, problem.n, b.k, b.line, b.array.address, b.array.itemsize),
        Matrix(problem.m, problem.n, problem.out_line, problem.out_column, out.address, out.itemsize),
    )


def _plain(problem: PlainProblem) -> bool:
    """Sums are converted, and nothing else is done with them."""
    return problem.epilogue.trivial and (problem.mx or not _scaled(problem))


def _planned(problem: PlainProblem, schedule: Any, target: Target, compute_units: int) -> GemmPlan:
    if why := refusal(problem):
        raise problem.error(why, "pass schedule=None, 'plain' or a PlainConfig")
    types: dict[str, Any] = {"out_dtype": NAMES[problem.epilogue.out], "target": target, "compute_units": compute_units}
    made = plan(*matrices(problem), operand_name(problem), schedule, **types)
    if not _plain(problem) and "E" not in made.function().arg_names:
        raise problem.error("this schedule has no epilogue", "pass another schedule, or none")
    rows, columns = made.schedule.tile_m - 1, made.schedule.tile_n - 1
    scale_a, scale_b = problem.scale_a, problem.scale_b
    reach = {
        "residual": rows * problem.residual_line + columns * problem.residual_column,
        "bias": max(rows, columns) * problem.bias_step,
        "scale_a": rows * scale_a.line if scale_a is not None else 0,
        "scale_b": columns * scale_b.line if scale_b is not None else 0,
    }
    for name, elements in reach.items():
        if elements * 4 >= OFFSET_LIMIT:
            raise problem.error(f"{name} spans more than 2 GiB in one tile of a scheduled kernel", f"copy {name}")
    return made


def takes(problem: PlainProblem, schedule: GemmSchedule | None, target: Target, compute_units: int) -> bool:
    """Whether a scheduled kernel (None: the default of the shape) can compute a product."""
    if refusal(problem):
        return False
    try:
        _planned(problem, schedule, target, compute_units)
    except UsageError:
        return False
    return True


def scheduled_candidates(problem: PlainProblem, target: Target, compute_units: int) -> list[GemmSchedule]:
    """The scheduled kernels that can compute a product, for tuning."""
    legal = [one for one in SCHEDULES.values() if one.arch == target.arch]
    return [one for one in legal if takes(problem, one, target, compute_units)]


def worthwhile(problem: PlainProblem, target: Target, compute_units: int) -> GemmSchedule | None:
    """The scheduled kernel that a shape has by default: a legal one no tile of which is mostly empty.

    Tiles of 16-bit operands start at 128x128, those of narrower ones at 256x256. On gfx942 none is: two plain
    workgroups of a compute unit fill the waits of each other, modelled for 4096x4096x8192 of fp16 at 543,260 clk, where
    `intra_wave_256_gfx942` takes 611,479; for smaller products the plain family is ahead by more.
    """
    if refusal(problem) or target.arch == "gfx942" or min(problem.m, problem.n) < 128 // problem.a.array.itemsize:
        return None
    try:
        return _planned(problem, None, target, compute_units).schedule
    except UsageError:
        return None


def launch(problem: PlainProblem, schedule: Any, target: Target, compute_units: int) -> Launch:
    """The launch of a product by a scheduled kernel.

    Args:
        problem: what to compute.
        schedule: a name, a `GemmSchedule`, or None for the choice of the shape.
        target: the GPU.
        compute_units: of the device.

    Raises:
        UsageError: a product or schedule that the kernel cannot take; nothing is launched then.
    """
    made = _planned(problem, schedule, target, compute_units)
    values: dict[str, Any] = {
        "a_ptr": problem.a.array.value,
        "b_ptr": problem.b.array.value,
        "c_ptr": problem.out.value,
    }
    if problem.mx:
        assert problem.scale_a is not None and problem.scale_b is not None
        values["scale_a_ptr"] = shuffle_scales(_rows(problem.scale_a, problem.m))
        values["scale_b_ptr"] = shuffle_scales(_rows(problem.scale_b, problem.n))
    fixed = dict(made.constexprs)
    if not _plain(problem):
        fixed["E"] = problem.epilogue
        values |= _extras(problem)
    return Launch(made.function(), made.grid, values | made.arguments, fixed, made.options)


def _rows(scale: Scale, lines: int) -> Any:
    """Scales with one row a line of the operand."""
    value = scale.array.value
    if value.ndim > 2:  # of batch dimensions that became rows
        value = value.reshape(-1, value.shape[-1])
    return value if value.shape[0] == lines and scale.array.name == "scale_a" else value.T


def _extras(problem: PlainProblem) -> dict[str, Any]:
    """What the epilogue reads."""
    epilogue = problem.epilogue
    found: dict[str, Any] = {}
    if epilogue.scaled:
        found["alpha"] = float(problem.alpha)
    if epilogue.bias and problem.bias is not None:
        found |= {"bias_ptr": problem.bias.value, "bias_step": problem.bias_step}
    if epilogue.residual and problem.residual is not None:
        steps = {"r_m": problem.residual_line, "r_n": problem.residual_column}
        found |= {"beta": float(problem.beta), "residual_ptr": problem.residual.value} | steps
    if not problem.mx:
        if problem.scale_a is not None:
            found |= {"scale_a_ptr": problem.scale_a.array.value, "sa_m": problem.scale_a.line}
        if problem.scale_b is not None:
            found |= {"scale_b_ptr": problem.scale_b.array.value, "sb_n": problem.scale_b.line}
    return found
