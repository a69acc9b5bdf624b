"""Weights reordered once so that every load of the GEMM is contiguous."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amdwarp.errors import UsageError
from amdwarp.runtime import is_tensor

from .forms import check_float
from .operands import read
from .plain_config import SHUFFLE_BYTES, SHUFFLE_ROWS


@dataclass(frozen=True)
class ShuffledWeight:
    """An (N, K) weight in the order of its loads; pass it as ``b`` of `matmul` or as ``w`` of `linear`.

    Element (n, k) stands at ``((n // 16 * groups + k // v) * 16 + n % 16) * v + k % v`` with ``v`` elements in 16 bytes
    and ``groups = ceil(K / v)``, so that 16 lanes read 256 consecutive bytes. N and K are filled up with zeros.

    Attributes:
        data: the elements, one-dimensional; tensor or array.
        n, k: extents of the weight.
    """

    data: Any
    n: int
    k: int

    @property
    def vector(self) -> int:
        """Elements in 16 bytes."""
        return SHUFFLE_BYTES // read("w", self.data, "ShuffledWeight").itemsize

    @property
    def row_stride(self) -> int:
        """Elements from one band of 16 rows to the next."""
        return -(-self.k // self.vector) * SHUFFLE_ROWS * self.vector


def shuffle_weight(w: Any) -> ShuffledWeight:
    """Reorder an (N, K) weight for `matmul` and `linear`; the result holds a copy.

    Args:
        w: (N, K) tensor or array of fp16, bf16 or fp32.

    Raises:
        UsageError: another rank or dtype, or no array.
    """
    array = read("w", w, "shuffle_weight")
    if array.ndim != 2:
        raise UsageError(f"w has {array.ndim} dimensions, not 2", remedy="reshape it", construct="shuffle_weight")
    check_float("shuffle_weight", array)
    n, k = array.shape
    vector = SHUFFLE_BYTES // array.itemsize
    bands, groups = -(-n // SHUFFLE_ROWS), -(-k // vector)
    shape = (bands, SHUFFLE_ROWS, groups, vector)
    if is_tensor(w):
        full = w.new_zeros((bands * SHUFFLE_ROWS, groups * vector))
        full[:n, :k] = w.detach()
        return ShuffledWeight(full.reshape(shape).permute(0, 2, 1, 3).reshape(-1).contiguous(), n, k)
    import numpy as np

    padded = np.zeros((bands * SHUFFLE_ROWS, groups * vector), w.dtype)
    padded[:n, :k] = w
    return ShuffledWeight(np.ascontiguousarray(padded.reshape(shape).transpose(0, 2, 1, 3)).reshape(-1), n, k)


def unshuffle_weight(w: ShuffledWeight) -> Any:
    """The (N, K) weight that `shuffle_weight` reordered.

    Raises:
        UsageError: anything else.
    """
    if not isinstance(w, ShuffledWeight):
        problem = f"w is a {type(w).__name__}, not a ShuffledWeight"
        raise UsageError(problem, remedy="pass what shuffle_weight gave", construct="unshuffle_weight")
    bands, groups = -(-w.n // SHUFFLE_ROWS), -(-w.k // w.vector)
    blocks = w.data.reshape((bands, groups, SHUFFLE_ROWS, w.vector))
    moved = blocks.permute(0, 2, 1, 3) if is_tensor(w.data) else blocks.transpose(0, 2, 1, 3)
    return moved.reshape((bands * SHUFFLE_ROWS, groups * w.vector))[: w.n, : w.k]
