"""amdwarp: wave-scheduled kernels for AMD matrix GPUs on stock Triton, proved right without a GPU."""

from ._version import __version__
from .compiler import compile
from .errors import (
    AmdwarpError,
    EmulatorError,
    LoweringError,
    ProtocolError,
    UnsupportedTritonError,
    UsageError,
)
from .jit import jit
from .runtime import emulate
from .schedule import (
    WSInstr,
    WSOpRef,
    WSPipeline,
    WSRole,
    WSSchedule,
    WSScope,
    WSSync,
    WSSyncKind,
    annotate_ws_schedule,
    ws_op,
)
from .stage import warp_pipeline_stage
from .target import TARGETS, Target, get_target
from .task_barriers import (
    alloc_barriers,
    barrier_arrive,
    barrier_wait,
    named_barrier_arrive,
    named_barrier_wait,
)
from .tasks import async_task, async_task_replica_id, async_tasks
from .wall import scheduling_wall

__all__ = [
    "TARGETS",
    "AmdwarpError",
    "EmulatorError",
    "LoweringError",
    "ProtocolError",
    "Target",
    "UnsupportedTritonError",
    "UsageError",
    "WSInstr",
    "WSOpRef",
    "WSPipeline",
    "WSRole",
    "WSSchedule",
    "WSScope",
    "WSSync",
    "WSSyncKind",
    "__version__",
    "alloc_barriers",
    "annotate_ws_schedule",
    "async_task",
    "async_task_replica_id",
    "async_tasks",
    "barrier_arrive",
    "barrier_wait",
    "compile",
    "emulate",
    "get_target",
    "jit",
    "named_barrier_arrive",
    "named_barrier_wait",
    "scheduling_wall",
    "warp_pipeline_stage",
    "ws_op",
]
