"""The rules of `options` as kernels need them, each stated once, for forward and backward, plain and Gluon.

They use only operators and functions that mean the same in Triton's language and in Gluon.
"""

# The kernel language has no types of its own for tensors.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from .options import FP32_MAX

LOG2E = tl.constexpr(1.4426950408889634)
LARGEST = tl.constexpr(FP32_MAX)
# `options.LOGIT_MAX` in base 2.
REACH = tl.constexpr(2.0**24)


@triton.jit
def visible(position, key, left, right, HAS_LEFT: tl.constexpr, HAS_RIGHT: tl.constexpr):
    """Whether a row at a position sees a key: position - left <= key <= position + right, each side if there is one.

    `position` and `key` are integer tensors that broadcast; without both sides everything is visible.
    """
    seen = key >= 0
    if HAS_LEFT:
        seen = seen & (key >= position - left)
    if HAS_RIGHT:
        seen = seen & (key <= position + right)
    return seen


@triton.jit
def tanh(x):
    """Hyperbolic tangent by one exponential; exact at both ends, 1e-7 off at most between (fp32)."""
    return 1.0 - 2.0 / (tl.exp2(2.0 * LOG2E * x) + 1.0)


@triton.jit
def base2_of_sink(sink):
    """A sink in base 2; the largest fp32 number for one beyond it, since infinity - infinity is no number."""
    scaled = sink * LOG2E
    return tl.where(scaled == float("inf"), LARGEST, scaled)


@triton.jit
def total_of_sink(sink):
    """What a sink (in base 2) adds to the sum below the softmax, whose reference it is: 1; NaN for NaN, 0 for none."""
    return tl.where(sink == float("-inf"), 0.0, 1.0 + 0.0 * sink)


@triton.jit
def base2_of_bias(bias):
    """A bias (fp32) in base 2. One beyond what that holds is the lowest fp32 number: only -inf itself hides a key."""
    scaled = bias * LOG2E
    return tl.where((scaled == float("-inf")) & (bias != float("-inf")), -LARGEST, scaled)


@triton.jit
def lse_with_sink(lse, sink):
    """The lse of rows with a sink: the sink itself where that is beyond all logits that base 2 can hold."""
    return tl.where(sink * LOG2E == float("inf"), sink, lse)


@triton.jit
def nan_beyond_reach(total, top, sink):
    """The sums of rows, NaN where the largest logit is 2**24 or more; `top` and `sink` are in base 2.

    logit * scale - top is one instruction, whose product is exact, while `top` was rounded: from 2**24 on by 1 and
    more. The exponential of the largest logit would be anything from 0 to infinity. A sink has no such product.
    """
    return tl.where((tl.abs(top) >= REACH) & (top != sink), float("nan"), total)


@triton.jit
def keys_of_rows(first, rows, shift, keys, left, right, HAS_LEFT: tl.constexpr, HAS_RIGHT: tl.constexpr):
    """The keys that a block of rows sees, and those that all of its rows see.

    Args:
        first, rows: the rows first … first + rows - 1 of a sequence.
        shift: position of row 0, which is keys - rows of the whole sequence.
        keys: of the sequence.

    Returns:
        begin, end, begin_all, end_all: keys outside begin … end - 1 are visible to no row, keys in begin_all …
        end_all - 1 to every row. The inner range is inside the outer one, and may be empty.
    """
    begin = 0
    end = keys
    begin_all = 0
    end_all = keys
    if HAS_LEFT:
        begin = min(max(first + shift - left, 0), keys)
        begin_all = max(first + rows - 1 + shift - left, 0)
    if HAS_RIGHT:
        end = min(first + rows + shift + right, keys)
        end_all = min(first + 1 + shift + right, keys)
    end = max(end, begin)
    begin_all = min(max(begin_all, begin), end)
    end_all = max(min(end_all, end), begin_all)
    return begin, end, begin_all, end_all
