"""Straight-line kernels with typed schedules, for all three targets, and what runs and compares them."""

# ruff: noqa: PIE808 - what reads well in plain Python is not always taken by Triton's front end

from __future__ import annotations

import functools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns when it is not set

import numpy as np
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import amdwarp
from amdwarp import WSOpRef, WSPipeline, WSRole, WSSchedule, WSScope, WSSync
from amdwarp.emulator import launch

ARCHS = ("gfx942", "gfx950", "gfx1250")
ROOT = WSScope.ROOT
acquire, commit = WSSync.producer_acquire, WSSync.producer_commit
wait, release = WSSync.consumer_wait, WSSync.consumer_release

BM = BN = 64
BK = 32


def layouts(arch: str) -> dict[str, Any]:
    """Layouts of a 64x64x32 tile for four waves, by constexpr name."""
    if arch == "gfx1250":
        acc: Any = gl.amd.AMDWMMALayout(3, True, [[0, 1], [1, 0]], [], [16, 16, 32])
        lanes_a, lanes_b = [8, 4], [4, 8]
    else:
        version, k = (3, 16) if arch == "gfx942" else (4, 32)
        acc = gl.amd.AMDMFMALayout(version=version, instr_shape=[16, 16, k], transposed=True, warps_per_cta=[2, 2])
        lanes_a, lanes_b = [16, 4], [4, 16]
    if arch == "gfx950":
        shared_a: Any = gl.PaddedSharedLayout.with_identity_for([[512, 16]], [BM, BK], [1, 0])
        shared_b: Any = gl.PaddedSharedLayout.with_identity_for([[512, 16]], [BK, BN], [0, 1])
    else:
        shared_a, shared_b = (gl.SwizzledSharedLayout(8, 2, 4, order) for order in ([1, 0], [0, 1]))
    return {
        "ARCH": arch,
        "ACC": acc,
        "LA": gl.BlockedLayout([1, 8], lanes_a, [4, 1], [1, 0]),
        "LB": gl.BlockedLayout([8, 1], lanes_b, [1, 4], [0, 1]),
        "SA": shared_a,
        "SB": shared_b,
    }


@gluon.jit
def fill(slot, base, offsets, ARCH: gl.constexpr):
    """Copy a tile into LDS, however the target does it."""
    if ARCH == "gfx942":
        slot.store(gl.amd.cdna3.buffer_load(base, offsets))
    elif ARCH == "gfx950":
        gl.amd.cdna4.async_copy.buffer_load_to_shared(slot, base, offsets)
    else:
        gl.amd.gfx1250.async_copy.global_to_shared(slot, base + offsets)


@gluon.jit
def landed(ARCH: gl.constexpr):
    """The straight-line kernel's own wait; a schedule takes its place."""
    if ARCH == "gfx950":
        gl.amd.cdna4.async_copy.commit_group()
        gl.amd.cdna4.async_copy.wait_group(0)
    elif ARCH == "gfx1250":
        gl.amd.gfx1250.async_copy.commit_group()
        gl.amd.gfx1250.async_copy.wait_group(0)


@gluon.jit
def multiply(x, y, acc, ARCH: gl.constexpr):
    if ARCH == "gfx942":
        acc = gl.amd.cdna3.mfma(x, y, acc)
    elif ARCH == "gfx950":
        acc = gl.amd.cdna4.mfma(x, y, acc)
    else:
        acc = gl.amd.gfx1250.wmma(x, y, acc)
    return acc


@amdwarp.jit
def gemm(
    a, b, c, M, N, K, first, S: gl.constexpr, HOW: gl.constexpr, ARCH: gl.constexpr, ACC: gl.constexpr,
    LA: gl.constexpr, LB: gl.constexpr, SA: gl.constexpr, SB: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    BK: gl.constexpr, GUARD: gl.constexpr = False, STEPS: gl.constexpr = 0,
):  # fmt: skip
    """C = A @ B.T, straight through. ``GUARD`` multiplies only from step ``first`` on; ``STEPS`` is K / BK if known."""
    amdwarp.annotate_ws_schedule(S, HOW)  # at: schedule
    pid = gl.program_id(0)
    rows = gl.arange(0, BM, gl.SliceLayout(1, LA)) + pid // gl.cdiv(N, BN) * BM
    columns = gl.arange(0, BN, gl.SliceLayout(0, LB)) + pid % gl.cdiv(N, BN) * BN
    a_offsets = rows[:, None] * K + gl.arange(0, BK, gl.SliceLayout(0, LA))[None, :]
    b_offsets = columns[None, :] * K + gl.arange(0, BK, gl.SliceLayout(1, LB))[:, None]
    a_tile = gl.allocate_shared_memory(gl.float16, [BM, BK], SA)
    b_tile = gl.allocate_shared_memory(gl.float16, [BK, BN], SB)
    acc = gl.zeros((BM, BN), gl.float32, ACC)
    with amdwarp.ws_op("loop_k"):
        for step in range(0, STEPS if STEPS else gl.cdiv(K, BK)):
            with amdwarp.ws_op("load_a"):
                fill(a_tile, a, a_offsets, ARCH)
            if GUARD:
                if step >= first:
                    with amdwarp.ws_op("load_b"):
                        fill(b_tile, b, b_offsets, ARCH)
                else:
                    with amdwarp.ws_op("clear_b"):
                        b_tile.store(gl.zeros([BK, BN], gl.float16, LB))
            else:
                with amdwarp.ws_op("load_b"):
                    fill(b_tile, b, b_offsets, ARCH)
            landed(ARCH)
            with amdwarp.ws_op("read"):
                x = a_tile.load(gl.DotOperandLayout(0, ACC, 8))
                y = b_tile.load(gl.DotOperandLayout(1, ACC, 8))
            with amdwarp.ws_op("multiply"):
                acc = multiply(x, y, acc, ARCH)
            a += BK
            b += BK
    with amdwarp.ws_op("store"):
        out_rows = gl.arange(0, BM, gl.SliceLayout(1, ACC)) + pid // gl.cdiv(N, BN) * BM
        out_columns = gl.arange(0, BN, gl.SliceLayout(0, ACC)) + pid % gl.cdiv(N, BN) * BN
        gl.store(c + out_rows[:, None] * N + out_columns[None, :], acc.to(gl.float16))


def schedule(stage: int = 1, depth: int = 2, in_flight: int = 1, *clear: str) -> WSSchedule:
    """A role that loads, one that multiplies, at ``stage`` iterations behind; ``clear``: more ops of the first."""
    return WSSchedule(
        8,
        [WSRole("mma", warps_lo=0, warps_hi=4), WSRole("load", warps_lo=4, warps_hi=8)],
        [WSPipeline("smem", ["a_tile", "b_tile"], depth, in_flight)],
        [
            WSScope(
                "loop_k",
                {
                    "load": [acquire("smem"), "load_a", "load_b", *clear, commit("smem")],
                    "mma": [wait("smem", stage), "read", "multiply", release("smem", stage)],
                },
            ),
            WSScope(ROOT, {"load": ["loop_k"], "mma": ["loop_k", "store"]}),
        ],
    )


def swapped_schedule() -> WSSchedule:
    """``schedule`` with the loading role at wave 0."""
    roles = [WSRole("load", warps_lo=0, warps_hi=4), WSRole("mma", warps_lo=4, warps_hi=8)]
    return replace(schedule(1, 3, 2), roles=roles)


def resized(*, load: int = 4, mma: int = 4) -> WSSchedule:
    """``schedule`` with other numbers of waves; the role with four stands at wave 0."""
    first, second = (("load", load), ("mma", mma)) if mma != 4 else (("mma", mma), ("load", load))
    roles = [
        WSRole(first[0], warps_lo=0, warps_hi=first[1]),
        WSRole(second[0], warps_lo=first[1], warps_hi=load + mma),
    ]
    return replace(schedule(2, 3, 2), num_warps=load + mma, roles=roles)


def reading_ahead(later: int) -> WSSchedule:
    """``schedule`` with operands that are read some iterations before they are multiplied."""
    plan = schedule(1, 3)
    inner, root = plan.scopes
    mma = [wait("smem", 1), "read", WSOpRef("multiply", 1 + later), release("smem", 1)]
    return replace(plan, scopes=[WSScope("loop_k", {"load": inner.body("load"), "mma": mma}), root])


def split_schedule(stage: int = 1, depth: int = 2) -> WSSchedule:
    """Two roles that load, each through a pipeline of its own; the read is released before the multiplication."""
    return WSSchedule(
        12,
        [WSRole(name, warps_lo=lo, warps_hi=lo + 4) for name, lo in (("mma", 0), ("left", 4), ("right", 8))],
        [WSPipeline("a", ["a_tile"], depth), WSPipeline("b", ["b_tile"], depth + 1)],
        [
            WSScope(
                "loop_k",
                {
                    "left": [acquire("a"), "load_a", commit("a")],
                    "right": [acquire("b"), "load_b", commit("b")],
                    "mma": [
                        *(wait("a", stage), wait("b", stage), "read"),
                        *(release("b", stage), release("a", stage), "multiply"),
                    ],
                },
            ),
            WSScope(ROOT, {"left": ["loop_k"], "right": ["loop_k"], "mma": ["loop_k", "store"]}),
        ],
    )


@amdwarp.jit
def tiles(
    a, b, c, M, N, K, S: gl.constexpr, HOW: gl.constexpr, ACC: gl.constexpr, LA: gl.constexpr, LB: gl.constexpr,
    SA: gl.constexpr, SB: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    LEAST: gl.constexpr,
):  # fmt: skip
    """C = A @ B.T, a column of tiles one after the other, whose results pass through LDS to a role that stores them."""
    amdwarp.annotate_ws_schedule(S, HOW)
    OUT: gl.constexpr = gl.BlockedLayout([1, 8], [8, 8], [4, 1], [1, 0])
    a_tile = gl.allocate_shared_memory(gl.float16, [BM, BK], SA)
    b_tile = gl.allocate_shared_memory(gl.float16, [BK, BN], SB)
    c_tile = gl.allocate_shared_memory(gl.float16, [BM, BN], gl.SwizzledSharedLayout(8, 1, 8, [1, 0]))
    a_offsets = gl.arange(0, BM, gl.SliceLayout(1, LA))[:, None] * K + gl.arange(0, BK, gl.SliceLayout(0, LA))[None, :]
    b_offsets = gl.arange(0, BN, gl.SliceLayout(0, LB))[None, :] * K + gl.arange(0, BK, gl.SliceLayout(1, LB))[:, None]
    if M >= LEAST:
        with amdwarp.ws_op("loop_tile"):
            for tile in range(0, gl.cdiv(M, BM)):
                acc = gl.zeros((BM, BN), gl.float32, ACC)
                with amdwarp.ws_op("loop_k"):
                    for step in range(0, gl.cdiv(K, BK)):
                        with amdwarp.ws_op("load"):
                            fill(a_tile, a + tile * BM * K + step * BK, a_offsets, "gfx950")
                            fill(b_tile, b + step * BK, b_offsets, "gfx950")
                        landed("gfx950")
                        with amdwarp.ws_op("multiply"):
                            x = a_tile.load(gl.DotOperandLayout(0, ACC, 8))
                            y = b_tile.load(gl.DotOperandLayout(1, ACC, 8))
                            acc = multiply(x, y, acc, "gfx950")
                with amdwarp.ws_op("pass_on"):
                    c_tile.store(acc.to(gl.float16))
                with amdwarp.ws_op("store"):
                    rows = gl.arange(0, BM, gl.SliceLayout(1, OUT)) + tile * BM
                    columns = gl.arange(0, BN, gl.SliceLayout(0, OUT))
                    gl.store(c + rows[:, None] * N + columns[None, :], c_tile.load(OUT))


def tiles_schedule() -> WSSchedule:
    """Loads, multiplications and stores on waves of their own, for tile after tile."""
    return WSSchedule(
        12,
        [WSRole(name, warps_lo=lo, warps_hi=lo + 4) for name, lo in (("mma", 0), ("load", 4), ("epilogue", 8))],
        [WSPipeline("in", ["a_tile", "b_tile"], 3, 2), WSPipeline("out", ["c_tile"], 1)],
        [
            WSScope(
                "loop_k",
                {"load": [acquire("in"), "load", commit("in")], "mma": [wait("in", 1), "multiply", release("in", 1)]},
            ),
            WSScope(
                "loop_tile",
                {
                    "load": ["loop_k"],
                    "mma": ["loop_k", acquire("out"), "pass_on", commit("out")],
                    "epilogue": [wait("out"), "store", release("out")],
                },
            ),
            WSScope(ROOT, {"load": ["loop_tile"], "mma": ["loop_tile"], "epilogue": ["loop_tile"]}),
        ],
    )


@functools.cache
def tiles_compiled(how: str, least: int = 0) -> Any:
    values: dict[str, Any] = {"LEAST": least}
    values |= {"S": tiles_schedule(), "HOW": how, "BM": BM, "BN": BN, "BK": BK, **layouts("gfx950")}
    del values["ARCH"]
    signature = {name: kind for name, kind in SIGNATURE.items() if name != "first"}
    return amdwarp.compile(tiles, signature, values, "gfx950", attrs={"M": "D", "N": "D", "K": "D"}, num_warps=4)


def tiles_run(kernel: Any, m: int, k: int, seed: int = 0) -> Any:
    """What ``tiles`` makes of an (m, k) and a (64, k) matrix, which is compared with numpy's product."""
    args = operands(k, m)[:6]
    flat = [one.reshape(-1).view(np.uint8) if isinstance(one, np.ndarray) else one for one in args]
    launch(kernel.asm["amdgcn"], flat, (1,), seed=seed, lds_bytes=kernel.metadata.shared)
    if np.isfinite(args[2]).any():
        expected = args[0].astype(np.float32) @ args[1].astype(np.float32).T
        np.testing.assert_allclose(args[2].astype(np.float32), expected, rtol=2e-3, atol=2e-2)
    return args[2]


SIGNATURE = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "M": "i32", "N": "i32", "K": "i32", "first": "i32"}


@functools.cache
def compiled(plan: WSSchedule, how: str, arch: str, **constants: Any) -> Any:
    values = {"S": plan, "HOW": how, "BM": BM, "BN": BN, "BK": BK, **layouts(arch), **constants}
    return amdwarp.compile(gemm, SIGNATURE, values, arch, attrs={"M": "D", "N": "D", "K": "D"}, num_warps=4)


@functools.cache
def wide_compiled(how: str, stage: int = 2, depth: int = 4) -> Any:
    """``gemm`` of 128x128x64 tiles for eight waves a role, on gfx950."""
    size = {"BM": 128, "BN": 128, "BK": 64}
    values = {
        **layouts("gfx950"),
        "ACC": gl.amd.AMDMFMALayout(version=4, instr_shape=[16, 16, 32], transposed=True, warps_per_cta=[2, 4]),
        "LA": gl.BlockedLayout([1, 8], [8, 8], [8, 1], [1, 0]),
        "LB": gl.BlockedLayout([8, 1], [8, 8], [1, 8], [0, 1]),
        "SA": gl.PaddedSharedLayout.with_identity_for([[512, 16]], [128, 64], [1, 0]),
        "SB": gl.PaddedSharedLayout.with_identity_for([[512, 16]], [64, 128], [0, 1]),
    }
    plan = schedule(stage, depth)
    plan = replace(
        plan, num_warps=16, roles=[WSRole("mma", warps_lo=0, warps_hi=8), WSRole("load", warps_lo=8, warps_hi=16)]
    )
    constants = {"S": plan, "HOW": how, **values, **size}
    return amdwarp.compile(gemm, SIGNATURE, constants, "gfx950", attrs={"M": "D", "N": "D", "K": "D"}, num_warps=8)


def operands(k: int, m: int = BM, n: int = BN) -> list[Any]:
    """Arguments of ``gemm``, with the output poisoned."""
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal((rows, k)).astype(np.float16) for rows in (m, n))
    return [a, b, np.full((m, n), np.nan, np.float16), m, n, k, 0]


def emulated(kernel: Any, args: list[Any], seed: int = 0, tile: int = BM) -> Any:
    """The output of a launch in the emulator."""
    args = [one.copy() if isinstance(one, np.ndarray) else one for one in args]
    flat = [one.reshape(-1).view(np.uint8) if isinstance(one, np.ndarray) else one for one in args]
    grid = (args[3] // tile * (args[4] // tile),)
    launch(kernel.asm["amdgcn"], flat, grid, seed=seed, lds_bytes=kernel.metadata.shared)
    return args[2]


def line_of(mark: str, file: str = __file__) -> str:
    """``file:line`` of the line that carries the comment ``# at: mark``."""
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    (number,) = [i for i, line in enumerate(lines, start=1) if line.endswith(f"# at: {mark}")]
    return f"{file}:{number}"
