"""Ranges of keys and of rows by `rules.keys_of_rows`, against the mask of single rows."""

import builtins

import numpy as np
import pytest
from amdwarp.kernels.attention import reference
from amdwarp.kernels.attention.options import AttentionOptions

pytest.importorskip("triton")

from amdwarp.kernels.attention.rules import keys_of_rows

WINDOWS = [(None, None), (None, 0), (0, 0), (3, None), (2, 4), (None, 7), (0, 9), (100, 100), (2**30, 2**30)]


def ranges(function, first, count, shift, extent, left, right):
    return function.fn(first, count, shift, extent, left or 0, right or 0, left is not None, right is not None)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("rows,keys", [(16, 16), (24, 9), (5, 40), (1, 1), (17, 33)])
def test_ranges_hold_what_is_visible(window, rows, keys):
    seen = reference.visible(AttentionOptions(window=window), rows, keys)
    left, right = window
    for count in (1, 4, 16):
        for first in range(0, rows, count):
            check(
                seen[first : first + count], ranges(keys_of_rows, first, count, keys - rows, keys, left, right), count
            )
        # the rows that see a block of keys: sides and shift turned round
        for first in range(0, keys, count):
            block = seen[:, first : first + count].T
            check(block, ranges(keys_of_rows, first, count, rows - keys, rows, right, left), count)


def check(block, found, count):
    """`block` (count or fewer, extent) bool against begin, end, begin_all, end_all."""
    begin, end, begin_all, end_all = found
    extent = block.shape[1]
    assert 0 <= begin <= begin_all <= end_all <= end <= extent
    assert not block[:, :begin].any() and not block[:, end:].any()
    assert block[:, begin_all:end_all].all()
    if len(block) == count:  # of a block that is cut off, less may count as seen by all
        whole = np.flatnonzero(block.all(axis=0))
        assert builtins.list(range(begin_all, end_all)) == whole.tolist()
