"""One loop with stock Triton's ``warp_pipeline_stage`` and with ours: the two kernels differ in nothing else."""

# ruff: noqa: PIE808 - what reads well in plain Python is not always taken by Triton's front end

from __future__ import annotations

from stage_forms import copy_tiles, read_tiles
from stage_kernels import MFMA, copies, store_tile, tile_offsets
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import amdwarp


@gluon.jit
def load(a_ring, b_ring, a, b, a_offsets, b_offsets, k, R: gl.constexpr, BK: gl.constexpr):
    a_tile, b_tile = read_tiles(a_ring, b_ring, k, R)
    copy_tiles(a_ring, b_ring, a, b, a_offsets, b_offsets, k + R - 1, R, BK)
    return a_tile, b_tile


@gluon.jit
def stock(
    a,
    b,
    c,
    M,
    N,
    K,
    first,
    BM: gl.constexpr,
    BN: gl.constexpr,
    BK: gl.constexpr,
    LA: gl.constexpr,
    LB: gl.constexpr,
    SA: gl.constexpr,
    SB: gl.constexpr,
    R: gl.constexpr,
    SHAPE: gl.constexpr,
):
    pid = gl.program_id(0)
    a_offsets, b_offsets = tile_offsets(pid, N, K, BM, BN, BK, LA, LB)
    a_ring = gl.allocate_shared_memory(gl.float16, [R, BM, BK], SA)
    b_ring = gl.allocate_shared_memory(gl.float16, [R, BK, BN], SB)
    acc = gl.zeros([BM, BN], gl.float32, MFMA)
    for i in gl.static_range(R - 1):
        copy_tiles(a_ring, b_ring, a, b, a_offsets, b_offsets, i, R, BK)
    copies.wait_group(R - 3)
    for k in range(0, gl.cdiv(K, BK) - (R - 1)):
        if SHAPE == "plain":
            with gl.amd.warp_pipeline_stage("load"):
                a_tile, b_tile = load(a_ring, b_ring, a, b, a_offsets, b_offsets, k, R, BK)
        elif SHAPE == "three":
            with gl.amd.warp_pipeline_stage("load", priority=2):
                a_tile, b_tile = read_tiles(a_ring, b_ring, k, R)
        else:
            with gl.amd.warp_pipeline_stage("load", priority=2):
                a_tile, b_tile = load(a_ring, b_ring, a, b, a_offsets, b_offsets, k, R, BK)
        if SHAPE == "three":
            with gl.amd.warp_pipeline_stage("copy"):
                copy_tiles(a_ring, b_ring, a, b, a_offsets, b_offsets, k + R - 1, R, BK)
        if SHAPE != "late":
            copies.wait_group(R - 3)
        with gl.amd.warp_pipeline_stage("mfma"):
            acc = gl.amd.cdna4.mfma(a_tile, b_tile, acc)
        if SHAPE == "late":
            copies.wait_group(R - 3)
    copies.wait_group(0)
    store_tile(c, acc, pid, N, BM, BN)


@amdwarp.jit
def ours(
    a,
    b,
    c,
    M,
    N,
    K,
    first,
    BM: gl.constexpr,
    BN: gl.constexpr,
    BK: gl.constexpr,
    LA: gl.constexpr,
    LB: gl.constexpr,
    SA: gl.constexpr,
    SB: gl.constexpr,
    R: gl.constexpr,
    SHAPE: gl.constexpr,
):
    pid = gl.program_id(0)
    a_offsets, b_offsets = tile_offsets(pid, N, K, BM, BN, BK, LA, LB)
    a_ring = gl.allocate_shared_memory(gl.float16, [R, BM, BK], SA)
    b_ring = gl.allocate_shared_memory(gl.float16, [R, BK, BN], SB)
    acc = gl.zeros([BM, BN], gl.float32, MFMA)
    for i in gl.static_range(R - 1):
        copy_tiles(a_ring, b_ring, a, b, a_offsets, b_offsets, i, R, BK)
    copies.wait_group(R - 3)
    for k in range(0, gl.cdiv(K, BK) - (R - 1)):
        if SHAPE == "plain":
            with amdwarp.warp_pipeline_stage("load"):
                a_tile, b_tile = load(a_ring, b_ring, a, b, a_offsets, b_offsets, k, R, BK)
        elif SHAPE == "three":
            with amdwarp.warp_pipeline_stage("load", priority=2):
                a_tile, b_tile = read_tiles(a_ring, b_ring, k, R)
        else:
            with amdwarp.warp_pipeline_stage("load", priority=2):
                a_tile, b_tile = load(a_ring, b_ring, a, b, a_offsets, b_offsets, k, R, BK)
        if SHAPE == "three":
            with amdwarp.warp_pipeline_stage("copy"):
                copy_tiles(a_ring, b_ring, a, b, a_offsets, b_offsets, k + R - 1, R, BK)
        if SHAPE != "late":
            copies.wait_group(R - 3)
        with amdwarp.warp_pipeline_stage("mfma"):
            acc = gl.amd.cdna4.mfma(a_tile, b_tile, acc)
        if SHAPE == "late":
            copies.wait_group(R - 3)
    copies.wait_group(0)
    store_tile(c, acc, pid, N, BM, BN)
