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
    "annotate_ws_schedule",
    "compile",
    "emulate",
    "get_target",
    "jit",
    "warp_pipeline_stage",
    "ws_op",
]
