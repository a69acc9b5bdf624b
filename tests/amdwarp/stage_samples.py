"""Two small kernels that are compiled and launched, one with stages and one without."""

# ruff: noqa: PIE808 - what reads well in plain Python is not always taken by Triton's front end

from __future__ import annotations

import os

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns when it is not set

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import amdwarp

ROW = gl.BlockedLayout([1], [64], [8], [0])
SIGNATURE = {"x": "*fp32", "y": "*fp32", "n": "i32"}


def add_up(x, y, n, L: gl.constexpr, P: gl.constexpr = 1):
    offsets = gl.arange(0, 512, L)
    total = gl.zeros([512], gl.float32, L)
    for i in range(0, n):
        with amdwarp.warp_pipeline_stage("load", priority=P):
            value = gl.load(x + i * 512 + offsets)
        with amdwarp.warp_pipeline_stage("add"):
            total += value
    gl.store(y + offsets, total)


staged = amdwarp.jit(add_up)


@gluon.jit
def plain(x, y, n, L: gl.constexpr):
    offsets = gl.arange(0, 512, L)
    gl.store(y + offsets, gl.load(x + offsets) * 2.0 + n)
