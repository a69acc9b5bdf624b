"""What the GEMM must compute: a plain fp32 product, rounded once to the operands' type."""

from __future__ import annotations

from typing import Any

import numpy as np


def matmul(a: Any, b: Any) -> np.ndarray:
    """A @ B with fp32 products and sums, rounded to A's dtype.

    Args:
        a: (M, K) array, fp16 or bf16 (``ml_dtypes.bfloat16``).
        b: (K, N) array of the same dtype.

    Returns:
        (M, N) array of that dtype.
    """
    a, b = np.asarray(a), np.asarray(b)
    with np.errstate(over="ignore", invalid="ignore"):
        return (a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype)


def tolerance(a: Any, b: Any) -> np.ndarray:
    """Largest error of an element that the order of fp32 sums and one rounding can explain, (M, N) fp32.

    Products of two 16-bit floats are exact in fp32, so K sums err by at most K roundings of the sum of magnitudes; each
    of two results is then rounded by half a unit in the last place of the output type.
    """
    a, b = np.asarray(a), np.asarray(b)
    magnitude = np.abs(a.astype(np.float32)) @ np.abs(b.astype(np.float32))
    value = np.abs(a.astype(np.float32) @ b.astype(np.float32))
    fraction = 10 if a.dtype == np.float16 else 7
    smallest = 2.0**-24 if a.dtype == np.float16 else 2.0**-133
    summing = 2 * a.shape[1] * 2.0**-24 * magnitude
    return (summing + (value + summing) * 2.0**-fraction + smallest).astype(np.float32)
