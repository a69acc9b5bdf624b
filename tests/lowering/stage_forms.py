"""Kernels for the forms a wave pipeline may take: loops, straight code, nested, back to back, from helpers."""

# ruff: noqa: PIE808, RET504 - what reads well in plain Python is not always taken by Triton's front end

from __future__ import annotations

import functools
import re
from typing import Any

from stage_kernels import A_DOT, B_DOT, MFMA, SIGNATURE, TILES, build, copies, read, store_tile, tile_offsets
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import amdwarp


@gluon.jit
def copy_tiles(a_ring, b_ring, a, b, a_offsets, b_offsets, tile, R: gl.constexpr, BK: gl.constexpr):
    copies.buffer_load_to_shared(a_ring.index(tile % R), a, a_offsets + tile * BK)
    copies.buffer_load_to_shared(b_ring.index(tile % R), b, b_offsets + tile * BK)
    copies.commit_group()


@gluon.jit
def read_tiles(a_ring, b_ring, tile, R: gl.constexpr):
    a_tile = copies.load_shared_relaxed(a_ring.index(tile % R), A_DOT)
    b_tile = copies.load_shared_relaxed(b_ring.index(tile % R), B_DOT)
    return a_tile, b_tile


@gluon.jit
def stages_of(acc, a_ring, b_ring, a, b, a_offsets, b_offsets, k, R: gl.constexpr, BK: gl.constexpr):
    """One iteration in a function of its own."""
    with amdwarp.warp_pipeline_stage("load", priority=1):  # at: helper load
        a_tile, b_tile = read_tiles(a_ring, b_ring, k, R)
        copy_tiles(a_ring, b_ring, a, b, a_offsets, b_offsets, k + R - 1, R, BK)
    copies.wait_group(R - 2)
    with amdwarp.warp_pipeline_stage("mfma", priority=0):
        acc = gl.amd.cdna4.mfma(a_tile, b_tile, acc)
    return acc


@amdwarp.jit
def forms(
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
    FORM: gl.constexpr,
    EPI: gl.constexpr,
    WAIT: gl.constexpr,
    TILES_LEFT: gl.constexpr,
):
    D: gl.constexpr = R - 1
    pid = gl.program_id(0)
    a_offsets, b_offsets = tile_offsets(pid, N, K, BM, BN, BK, LA, LB)
    a_ring = gl.allocate_shared_memory(gl.float16, [R, BM, BK], SA)
    b_ring = gl.allocate_shared_memory(gl.float16, [R, BK, BN], SB)
    acc = gl.zeros([BM, BN], gl.float32, MFMA)
    for i in gl.static_range(D):
        copy_tiles(a_ring, b_ring, a, b, a_offsets, b_offsets, i, R, BK)
    copies.wait_group(D - 1)
    n = gl.cdiv(K, BK)
    if FORM == "flat":
        for k in gl.static_range(TILES_LEFT):
            with amdwarp.warp_pipeline_stage("load", priority=1):  # at: flat load
                a_tile, b_tile = read_tiles(a_ring, b_ring, k, R)
                copy_tiles(a_ring, b_ring, a, b, a_offsets, b_offsets, k + D, R, BK)
            copies.wait_group(WAIT)
            with amdwarp.warp_pipeline_stage("mfma", priority=0):
                acc = gl.amd.cdna4.mfma(a_tile, b_tile, acc)
        n = gl.to_tensor(TILES_LEFT + D)
    elif FORM == "helper":
        for k in range(0, n - D):
            acc = stages_of(acc, a_ring, b_ring, a, b, a_offsets, b_offsets, k, R, BK)
    elif FORM == "if":
        if first > 0:
            for k in range(0, n - D):
                with amdwarp.warp_pipeline_stage("load"):
                    a_tile, b_tile = read_tiles(a_ring, b_ring, k, R)
                    copy_tiles(a_ring, b_ring, a, b, a_offsets, b_offsets, k + D, R, BK)
                copies.wait_group(D - 1)
                with amdwarp.warp_pipeline_stage("mfma"):
                    acc = gl.amd.cdna4.mfma(a_tile, b_tile, acc)
    elif FORM == "barrier":
        for k in range(0, n - D):
            with amdwarp.warp_pipeline_stage("load"):
                a_tile, b_tile = read_tiles(a_ring, b_ring, k, R)
                copy_tiles(a_ring, b_ring, a, b, a_offsets, b_offsets, k + D, R, BK)
            gl.barrier()
            copies.wait_group(D - 1)
            with amdwarp.warp_pipeline_stage("mfma"):
                acc = gl.amd.cdna4.mfma(a_tile, b_tile, acc)
            gl.barrier()
    elif FORM == "unrolled":
        for k in range(0, n - D, 2):
            for half in gl.static_range(2):
                with amdwarp.warp_pipeline_stage("load", priority=1):
                    a_tile, b_tile = read_tiles(a_ring, b_ring, k + half, R)
                    copy_tiles(a_ring, b_ring, a, b, a_offsets, b_offsets, k + half + D, R, BK)
                copies.wait_group(D - 1)
                with amdwarp.warp_pipeline_stage("mfma", priority=0):
                    acc = gl.amd.cdna4.mfma(a_tile, b_tile, acc)
    if EPI >= 0:
        copies.wait_group(EPI)
    for k in range(gl.maximum(n - D, 0), n):
        acc = gl.amd.cdna4.mfma(a_ring.index(k % R).load(A_DOT), b_ring.index(k % R).load(B_DOT), acc)
    store_tile(c, acc, pid, N, BM, BN)


@amdwarp.jit
def two_loops(
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
    GAP1: gl.constexpr,
    GAP2: gl.constexpr,
    BETWEEN: gl.constexpr,
    PRIORITY1: gl.constexpr,
    PRIORITY2: gl.constexpr,
    AHEAD: gl.constexpr,
    SECOND: gl.constexpr,
    WAIT1: gl.constexpr,
):
    """Two loops over one ring, the second where the first ends."""
    D: gl.constexpr = R - 2
    pid = gl.program_id(0)
    a_offsets, b_offsets = tile_offsets(pid, N, K, BM, BN, BK, LA, LB)
    a_ring = gl.allocate_shared_memory(gl.float16, [R, BM, BK], SA)
    b_ring = gl.allocate_shared_memory(gl.float16, [R, BK, BN], SB)
    extra = gl.allocate_shared_memory(gl.float16, [BK, BN], SB)
    acc = gl.zeros([BM, BN], gl.float32, MFMA)
    copies.buffer_load_to_shared(extra, b, b_offsets)
    for i in gl.static_range(D):
        copy_tiles(a_ring, b_ring, a, b, a_offsets, b_offsets, i, R, BK)
    copies.wait_group(0)
    n = gl.cdiv(K, BK)
    for k in range(0, first):
        with amdwarp.warp_pipeline_stage("load", priority=PRIORITY1, phase_gap=GAP1):
            a_tile, b_tile = read_tiles(a_ring, b_ring, k, R)
            copy_tiles(a_ring, b_ring, a, b, a_offsets, b_offsets, k + D, R, BK)
        copies.wait_group(WAIT1)
        with amdwarp.warp_pipeline_stage("mfma"):
            acc = gl.amd.cdna4.mfma(a_tile, b_tile, acc)
            if AHEAD:
                acc = gl.amd.cdna4.mfma(a_tile, copies.load_shared_relaxed(extra, B_DOT), acc)  # at: read extra
    if BETWEEN == "wait":
        copies.wait_group(0)
    elif BETWEEN == "store":
        store_tile(c, acc, pid, N, BM, BN)
    for k in range(first, n - D):
        with amdwarp.warp_pipeline_stage("load 2", priority=PRIORITY2, phase_gap=GAP2):
            if AHEAD:
                copies.buffer_load_to_shared(extra, b, b_offsets + k * BK)  # at: refill extra
            a_tile, b_tile = read_tiles(a_ring, b_ring, k + SECOND, R)
            copy_tiles(a_ring, b_ring, a, b, a_offsets, b_offsets, k + D, R, BK)
        copies.wait_group(0)
        with amdwarp.warp_pipeline_stage("mfma 2"):
            acc = gl.amd.cdna4.mfma(a_tile, b_tile, acc)
    copies.wait_group(0)
    for k in range(gl.maximum(n - D, 0), n):
        acc = gl.amd.cdna4.mfma(a_ring.index(k % R).load(A_DOT), b_ring.index(k % R).load(B_DOT), acc)
    store_tile(c, acc, pid, N, BM, BN)


@amdwarp.jit
def persistent(
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
    EPI: gl.constexpr,
    RELAXED: gl.constexpr,
):
    """Tile after tile; the ring goes on where the tile before left it."""
    D: gl.constexpr = R - 1
    a_ring = gl.allocate_shared_memory(gl.float16, [R, BM, BK], SA)
    b_ring = gl.allocate_shared_memory(gl.float16, [R, BK, BN], SB)
    n = gl.cdiv(K, BK)
    tiles = gl.cdiv(M, BM) * gl.cdiv(N, BN)
    start = gl.to_tensor(0)
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        a_offsets, b_offsets = tile_offsets(tile, N, K, BM, BN, BK, LA, LB)
        a_offsets -= start * BK
        b_offsets -= start * BK
        acc = gl.zeros([BM, BN], gl.float32, MFMA)
        for i in gl.static_range(D):
            copy_tiles(a_ring, b_ring, a, b, a_offsets, b_offsets, start + i, R, BK)
        copies.wait_group(D - 1)
        for k in range(start, start + n - D):
            with amdwarp.warp_pipeline_stage("load", priority=1):
                a_tile, b_tile = read_tiles(a_ring, b_ring, k, R)
                copy_tiles(a_ring, b_ring, a, b, a_offsets, b_offsets, k + D, R, BK)
            copies.wait_group(D - 1)
            with amdwarp.warp_pipeline_stage("mfma", priority=0):
                acc = gl.amd.cdna4.mfma(a_tile, b_tile, acc)
        if EPI >= 0:
            copies.wait_group(EPI)
        for i in gl.static_range(D):
            k = start + n - D + i
            a_tile = read(a_ring.index(k % R), A_DOT, RELAXED)  # at: last read of a tile
            acc = gl.amd.cdna4.mfma(a_tile, read(b_ring.index(k % R), B_DOT, RELAXED), acc)
        store_tile(c, acc, tile, N, BM, BN)
        start += n


@amdwarp.jit
def store_ring(
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
    D: gl.constexpr,
    TOGETHER: gl.constexpr,
):
    """A ring filled through registers: global loads, stores into LDS, loads from it."""
    pid = gl.program_id(0)
    a_offsets, b_offsets = tile_offsets(pid, N, K, BM, BN, BK, LA, LB)
    a_ring = gl.allocate_shared_memory(gl.float16, [R, BM, BK], SA)
    b_ring = gl.allocate_shared_memory(gl.float16, [R, BK, BN], SB)
    acc = gl.zeros([BM, BN], gl.float32, MFMA)
    for i in gl.static_range(D):
        a_ring.index(i).store(gl.amd.cdna4.buffer_load(a, a_offsets + i * BK))
        b_ring.index(i).store(gl.amd.cdna4.buffer_load(b, b_offsets + i * BK))
    n = gl.cdiv(K, BK)
    for k in range(0, n - D):
        with amdwarp.warp_pipeline_stage("read", priority=1):
            a_tile = a_ring.index(k % R).load(A_DOT)  # at: ring read
            b_tile = b_ring.index(k % R).load(B_DOT)
            a_next = gl.amd.cdna4.buffer_load(a, a_offsets + (k + D) * BK)
            b_next = gl.amd.cdna4.buffer_load(b, b_offsets + (k + D) * BK)
            if TOGETHER:
                a_ring.index((k + D) % R).store(a_next)  # at: ring store together
                b_ring.index((k + D) % R).store(b_next)
        with amdwarp.warp_pipeline_stage("mfma", priority=0):
            acc = gl.amd.cdna4.mfma(a_tile, b_tile, acc)
        if not TOGETHER:
            with amdwarp.warp_pipeline_stage("store", priority=1):
                a_ring.index((k + D) % R).store(a_next)  # at: ring store
                b_ring.index((k + D) % R).store(b_next)
    for k in range(gl.maximum(n - D, 0), n):
        acc = gl.amd.cdna4.mfma(a_ring.index(k % R).load(A_DOT), b_ring.index(k % R).load(B_DOT), acc)
    store_tile(c, acc, pid, N, BM, BN)


@amdwarp.jit
def branchy(
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
):
    """Straight stages; one reads in a branch what an earlier one stored."""
    pid = gl.program_id(0)
    a_offsets, b_offsets = tile_offsets(pid, N, K, BM, BN, BK, LA, LB)
    a_buffer = gl.allocate_shared_memory(gl.float16, [BM, BK], SA)
    b_buffer = gl.allocate_shared_memory(gl.float16, [BK, BN], SB)
    acc = gl.zeros([BM, BN], gl.float32, MFMA)
    a_tile = gl.amd.cdna4.buffer_load(a, a_offsets)
    b_tile = gl.amd.cdna4.buffer_load(b, b_offsets)
    with amdwarp.warp_pipeline_stage("store"):
        a_buffer.store(a_tile)
        b_buffer.store(b_tile)
    with amdwarp.warp_pipeline_stage("rest"):
        acc += 1.0
    with amdwarp.warp_pipeline_stage("read"):
        if first > 0:
            left = a_buffer.load(A_DOT)  # at: read in a branch
            acc = gl.amd.cdna4.mfma(left, b_buffer.load(B_DOT), acc)
    with amdwarp.warp_pipeline_stage("last"):
        acc *= 2.0
    store_tile(c, acc, pid, N, BM, BN)


DEFAULTS: dict[Any, dict[str, Any]] = {
    forms: {"R": 3, "EPI": 0, "WAIT": 1, "TILES_LEFT": 4},
    two_loops: {
        "R": 4,
        "GAP1": 1,
        "GAP2": 1,
        "BETWEEN": "",
        "PRIORITY1": 1,
        "PRIORITY2": 1,
        "AHEAD": False,
        "SECOND": 0,
        "WAIT1": 0,
    },
    persistent: {"R": 3, "EPI": 0, "RELAXED": False},
    branchy: {},
    store_ring: {"R": 3, "D": 2, "TOGETHER": False},
}


@functools.cache
def form(kernel: Any, **changes: Any) -> Any:
    """One of the kernels above, compiled for gfx950."""
    return build(kernel, SIGNATURE, {**TILES, **DEFAULTS[kernel], **changes}, M="D", N="D", K="D")


def loop_counts(amdgcn: str) -> tuple[int, int, int]:
    """(s_barrier, s_setprio, v_mfma) of the first loop that has barriers and v_mfma and branches to its own start."""
    for match in re.finditer(r"^(\.LBB\d+_\d+):(.*?)s_c?branch\w* \1\b", amdgcn, re.M | re.S):
        body = match.group(2)
        if "s_barrier" in body and "v_mfma" in body and not re.search(r"^\.LBB", body, re.M):
            return tuple(len(re.findall(rf"^\s+{name}", body, re.M)) for name in ("s_barrier", "s_setprio", "v_mfma"))
    raise AssertionError("no staged loop in the program")
