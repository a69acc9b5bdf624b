"""amdwarp: wave-scheduled kernels for AMD matrix GPUs on stock Triton, proved right without a GPU."""

from ._version import __version__

__all__ = ["__version__"]
