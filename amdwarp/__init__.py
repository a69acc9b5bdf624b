"""amdwarp: wave-scheduled kernels for AMD matrix GPUs on stock Triton, proved right without a GPU."""

from ._version import __version__
from .compiler import compile  # noqa: A004 - the name users of this field expect
from .jit import jit
from .stage import warp_pipeline_stage
from .target import TARGETS, Target, get_target

__all__ = ["TARGETS", "Target", "__version__", "compile", "get_target", "jit", "warp_pipeline_stage"]
