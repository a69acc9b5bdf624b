"""A kernel that calls a function which is not inlined."""

import triton
import triton.language as tl


@triton.jit(noinline=True)
def mix(s, n):
    acc = s
    for _ in range(n):
        acc = acc * 3 + 1
    return acc


def mix_by_hand(start: int, n: int) -> int:
    for _ in range(n):
        start = start * 3 + 1
    return start


@triton.jit
def affine(x, out, n, B: tl.constexpr):
    at = tl.arange(0, B)
    first = mix(n, n)
    tl.store(out + at, tl.load(x + at) * mix(first, n + 1))
