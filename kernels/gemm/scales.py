"""E8M0 scales in the order in which the scheduled kernels load them. Plain Python on numpy arrays or torch tensors."""

from __future__ import annotations

from typing import Any

from amdwarp.errors import UsageError
from amdwarp.runtime import is_tensor

#: Rows, and scales along K, of one block: what one load of a wave brings, a word of four scales a lane.
BLOCK_ROWS, BLOCK_SCALES = 32, 8


def shuffled_size(rows: int, scales: int) -> int:
    """Bytes of the shuffled scales of so many rows."""
    return -(-rows // BLOCK_ROWS) * -(-scales // BLOCK_SCALES) * BLOCK_ROWS * BLOCK_SCALES


def shuffle_scales(scales: Any) -> Any:
    """Scales in blocks of 32 rows and 8 scales, lane by lane.

    The word of lane l in a block has scales 4 (l // 32) to 4 (l // 32) + 3 of row l % 32.

    Args:
        scales: (rows, K / 32) bytes, a numpy array or a torch tensor.

    Returns:
        a flat array of `shuffled_size` bytes. Rows and scales that fill up the last blocks are 0, which is 2 ** -127.

    Raises:
        UsageError: not two dimensions of single bytes.
    """
    if len(scales.shape) != 2 or scales.itemsize != 1:
        raise UsageError(
            f"scales are a {len(scales.shape)}-dimensional array of {scales.itemsize} bytes an element",
            remedy="pass (rows, K / 32) bytes",
            construct="shuffle_scales",
        )
    rows, columns = map(int, scales.shape)
    high, wide = -(-rows // BLOCK_ROWS), -(-columns // BLOCK_SCALES)
    if is_tensor(scales):
        import torch

        raw = scales.view(torch.uint8)
        padded = raw.new_zeros((high * BLOCK_ROWS, wide * BLOCK_SCALES))
        padded[:rows, :columns] = raw
        return padded.reshape(high, BLOCK_ROWS, wide, 2, 4).permute(0, 2, 3, 1, 4).reshape(-1)
    import numpy as np

    filled = np.zeros((high * BLOCK_ROWS, wide * BLOCK_SCALES), np.uint8)
    filled[:rows, :columns] = np.asarray(scales).view(np.uint8)
    return filled.reshape(high, BLOCK_ROWS, wide, 2, 4).transpose(0, 2, 3, 1, 4).reshape(-1)
