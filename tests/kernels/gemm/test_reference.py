"""The reference itself, against sums that are known exactly."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from amdwarp.kernels.gemm import reference

TYPES = [np.float16, ml_dtypes.bfloat16]


@pytest.mark.parametrize("dtype", TYPES)
def test_products_are_summed_in_fp32_and_rounded_once(dtype):
    ones = np.ones((3, 2048), dtype)
    assert (reference.matmul(ones, ones.T) == 2048).all()
    # 1 + 2**-9 a step is lost in either type but not in fp32
    small = np.full((1, 512), 2.0**-9, dtype)
    assert float(reference.matmul(small, np.ones((512, 1), dtype))[0, 0]) == 1.0


@pytest.mark.parametrize("dtype", TYPES)
def test_tolerance_covers_another_order_of_sums_and_not_a_lost_product(dtype):
    rng = np.random.default_rng(1)
    a = rng.standard_normal((17, 333)).astype(dtype)
    b = rng.standard_normal((333, 9)).astype(dtype)
    expected = reference.matmul(a, b).astype(np.float32)
    order = rng.permutation(333)
    shuffled = reference.matmul(a[:, order], b[order]).astype(np.float32)
    bound = reference.tolerance(a, b)
    assert (np.abs(shuffled - expected) <= bound).all()
    short = reference.matmul(a[:, 1:], b[1:]).astype(np.float32)
    assert (np.abs(short - expected) > bound).any()


def test_overflow_is_infinite_as_on_the_gpu():
    a = np.full((1, 2), 60000, np.float16)
    assert np.isinf(reference.matmul(a, a.T)).all()
