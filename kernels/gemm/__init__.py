"""GEMM on CDNA3 (gfx942), CDNA4 (gfx950) and CDNA5 (gfx1250): every dtype, layout and form, with fused epilogues.

>>> from amdwarp.kernels import gemm
>>> c = gemm.matmul(a, b)                 # torch tensors on the GPU
>>> with amdwarp.emulate("gfx950"):
...     c = gemm.matmul(a, b)             # numpy arrays or CPU tensors, in the emulator
"""

from __future__ import annotations

from . import reference
from .ahead import Ahead, ArraySpec, Job, compile_ahead
from .configs import SCHEDULES, Access, GemmSchedule, choose
from .dense import batched_matmul, linear, matmul
from .epilogue import ACTIVATIONS, Epilogue
from .grouped import grouped_matmul
from .plain_config import PlainConfig
from .plan import GemmPlan, Matrix, plan, product_extents
from .preshuffle import ShuffledWeight, shuffle_weight, unshuffle_weight
from .scaled import int8_matmul, scaled_matmul
from .tasks import TasksSchedule
from .ws_schedule import TASKS, WSGemmSchedule


def schedule_name(schedule: GemmSchedule | PlainConfig) -> str:
    """The name of a schedule in ``SCHEDULES`` or ``TASKS``, that of a plain configuration, or the repr of any other."""
    if isinstance(schedule, PlainConfig):
        return schedule.name
    return next((name for name, known in (SCHEDULES | TASKS).items() if known == schedule), repr(schedule))


__all__ = [
    "ACTIVATIONS",
    "SCHEDULES",
    "TASKS",
    "Access",
    "Ahead",
    "ArraySpec",
    "Epilogue",
    "GemmPlan",
    "GemmSchedule",
    "Job",
    "Matrix",
    "PlainConfig",
    "ShuffledWeight",
    "TasksSchedule",
    "WSGemmSchedule",
    "batched_matmul",
    "choose",
    "compile_ahead",
    "grouped_matmul",
    "int8_matmul",
    "linear",
    "matmul",
    "plan",
    "product_extents",
    "reference",
    "scaled_matmul",
    "schedule_name",
    "shuffle_weight",
    "unshuffle_weight",
]
