"""Kernels with wave-pipeline stages, mutated by their constexpr parameters, and what compiles them once a session."""

# ruff: noqa: PIE808, RET505 - what reads well in plain Python is not always taken by Triton's front end

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns when it is not set

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import amdwarp

copies = gl.amd.cdna4.async_copy

BM = BN = BK = 64
A_SHARED = gl.PaddedSharedLayout.with_identity_for([[512, 16]], [BM, BK], [1, 0])
B_SHARED = gl.PaddedSharedLayout.with_identity_for([[512, 16]], [BK, BN], [0, 1])
A_LOAD = gl.BlockedLayout([1, 8], [8, 8], [8, 1], [1, 0])
B_LOAD = gl.BlockedLayout([8, 1], [8, 8], [1, 8], [0, 1])
MFMA = gl.amd.AMDMFMALayout(version=4, instr_shape=[16, 16, 32], transposed=True, warps_per_cta=[2, 4])
A_DOT = gl.DotOperandLayout(0, MFMA, 8)
B_DOT = gl.DotOperandLayout(1, MFMA, 8)
TILES = {"LA": A_LOAD, "LB": B_LOAD, "SA": A_SHARED, "SB": B_SHARED, "BM": BM, "BN": BN, "BK": BK}
ROW = gl.BlockedLayout([1], [64], [8], [0])


@gluon.jit
def tile_offsets(pid, N, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, LA: gl.constexpr, LB: gl.constexpr):
    rows = gl.arange(0, BM, gl.SliceLayout(1, LA)) + pid // gl.cdiv(N, BN) * BM
    columns = gl.arange(0, BN, gl.SliceLayout(0, LB)) + pid % gl.cdiv(N, BN) * BN
    a_offsets = rows[:, None] * K + gl.arange(0, BK, gl.SliceLayout(0, LA))[None, :]
    b_offsets = columns[None, :] * K + gl.arange(0, BK, gl.SliceLayout(1, LB))[:, None]
    return a_offsets, b_offsets


@gluon.jit
def store_tile(c, acc, pid, N, BM: gl.constexpr, BN: gl.constexpr):
    layout: gl.constexpr = acc.type.layout
    rows = gl.arange(0, BM, gl.SliceLayout(1, layout)) + pid // gl.cdiv(N, BN) * BM
    columns = gl.arange(0, BN, gl.SliceLayout(0, layout)) + pid % gl.cdiv(N, BN) * BN
    gl.amd.cdna4.buffer_store(acc.to(gl.float16), c, rows[:, None] * N + columns[None, :])


@gluon.jit
def read(buffer, layout: gl.constexpr, RELAXED: gl.constexpr):
    if RELAXED:
        return copies.load_shared_relaxed(buffer, layout)  # at: relaxed read
    else:
        return buffer.load(layout)


@gluon.jit
def next_slot(slot, R: gl.constexpr, INDEX: gl.constexpr):
    if INDEX == "select":
        following = gl.where(slot + 1 == R, 0, slot + 1)
    else:
        following = slot + 1
        if following == R:
            following = 0
    return following


# The ring of R slots is D tiles ahead. What a parameter of `ring` changes, by its default:
RING = {
    "PRO": 0,  # tiles that the prologue copies less than D
    "WAIT0": None,  # groups that the prologue leaves outstanding; -1: no wait
    "WAIT": None,  # the same of the wait in the loop
    "WHERE": "edge",  # where that wait stands: edge, load_end, mfma_end, late (behind the MFMA stage), nowhere
    "RD": 0,  # added to the slot that is read
    "WR": 0,  # added to the slot that is refilled
    # each, twice (a group for A, one for B), empty (one more without a copy), between (on the edge), mfma (late), never
    "COMMIT": "each",
    "EPI": 0,  # groups that the wait behind the loop leaves outstanding; -1: no wait
    "GAP": 1,  # phase_gap
    "RELAXED": True,  # loads marked as synchronised by a wait
    "INDEX": "mod",  # how the slot is found: mod, count (from a carried count), select, if (carried itself)
    "MASKED": False,  # copies with a mask
    "PRIORITY": True,  # stages have priorities
    "START": False,  # the ring starts at a slot that is not known
}


@amdwarp.jit
def ring(
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
    PRO: gl.constexpr,
    WAIT0: gl.constexpr,
    WAIT: gl.constexpr,
    WHERE: gl.constexpr,
    RD: gl.constexpr,
    WR: gl.constexpr,
    COMMIT: gl.constexpr,
    EPI: gl.constexpr,
    GAP: gl.constexpr,
    RELAXED: gl.constexpr,
    INDEX: gl.constexpr,
    MASKED: gl.constexpr,
    PRIORITY: gl.constexpr,
    START: gl.constexpr,
):
    high: gl.constexpr = 1 if PRIORITY else None
    low: gl.constexpr = 0 if PRIORITY else None
    pid = gl.program_id(0)
    a_offsets, b_offsets = tile_offsets(pid, N, K, BM, BN, BK, LA, LB)
    a_ring = gl.allocate_shared_memory(gl.float16, [R, BM, BK], SA)
    b_ring = gl.allocate_shared_memory(gl.float16, [R, BK, BN], SB)
    acc = gl.zeros([BM, BN], gl.float32, MFMA)
    start = first if START else 0
    for i in gl.static_range(D - PRO):
        copies.buffer_load_to_shared(a_ring.index((start + i) % R), a, a_offsets + i * BK)  # at: prologue copy
        if COMMIT == "twice":
            copies.commit_group()
        copies.buffer_load_to_shared(b_ring.index((start + i) % R), b, b_offsets + i * BK)
        copies.commit_group()
        if COMMIT == "empty":
            copies.commit_group()
    if WAIT0 >= 0:
        copies.wait_group(WAIT0)  # at: prologue wait
    count = gl.to_tensor(0)
    slot = gl.to_tensor(0)
    ahead = gl.to_tensor(D % R)
    for k in range(0, gl.cdiv(K, BK) - D):
        with amdwarp.warp_pipeline_stage("load", priority=high, phase_gap=GAP):  # at: load stage
            if INDEX == "mod":
                slot = (start + k + RD) % R
                ahead = (start + k + D + WR) % R
            elif INDEX == "count":
                slot = count % R
                ahead = (count + D) % R
            a_tile = read(a_ring.index(slot), A_DOT, RELAXED)  # at: read
            b_tile = read(b_ring.index(slot), B_DOT, RELAXED)  # at: read b
            a_mask = (a_offsets >= 0) if MASKED else None
            b_mask = (b_offsets >= 0) if MASKED else None
            copies.buffer_load_to_shared(a_ring.index(ahead), a, a_offsets + (k + D) * BK, mask=a_mask)  # at: refill
            if COMMIT == "twice":
                copies.commit_group()
            copies.buffer_load_to_shared(b_ring.index(ahead), b, b_offsets + (k + D) * BK, mask=b_mask)
            if COMMIT == "each" or COMMIT == "twice" or COMMIT == "empty":
                copies.commit_group()
            if COMMIT == "empty":
                copies.commit_group()
            if WHERE == "load_end":
                copies.wait_group(WAIT)
        if WHERE == "edge":
            copies.wait_group(WAIT)  # at: wait
        if COMMIT == "between":
            copies.commit_group()  # at: commit between
        with amdwarp.warp_pipeline_stage("mfma", priority=low):  # at: mfma stage
            acc = gl.amd.cdna4.mfma(a_tile, b_tile, acc)
            if COMMIT == "mfma":
                copies.commit_group()
            if WHERE == "mfma_end":
                copies.wait_group(WAIT)
        if WHERE == "late":
            copies.wait_group(WAIT)  # at: late wait
        if INDEX == "count":
            count += 1
        elif INDEX != "mod":
            slot = next_slot(slot, R, INDEX)
            ahead = next_slot(ahead, R, INDEX)
    if EPI >= 0:
        copies.wait_group(EPI)  # at: epilogue wait
    for k in range(gl.maximum(gl.cdiv(K, BK) - D, 0), gl.cdiv(K, BK)):
        a_tile = a_ring.index((start + k) % R).load(A_DOT)  # at: epilogue read
        b_tile = b_ring.index((start + k) % R).load(B_DOT)
        acc = gl.amd.cdna4.mfma(a_tile, b_tile, acc)
    store_tile(c, acc, pid, N, BM, BN)


SIGNATURE = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "M": "i32", "N": "i32", "K": "i32", "first": "i32"}


@functools.cache
def ring_of(R: int = 3, D: int | None = None, **changes: Any) -> Any:
    """``ring`` compiled for gfx950; ``changes`` to ``RING``, with waits that are right for the rest by default."""
    d = R - 1 if D is None else D
    groups = (d - 1) * (2 if changes.get("COMMIT") in ("twice", "empty") else 1)
    values = {**RING, "WAIT0": groups, "WAIT": groups, **changes}
    return build(ring, SIGNATURE, {**TILES, "R": R, "D": d, **values}, M="D", N="D", K="D")


def build(kernel: Any, signature: dict[str, str], constants: dict[str, Any] | None = None, **attrs: str) -> Any:
    """Compile for gfx950 with eight waves."""
    return amdwarp.compile(kernel, signature, constants, "gfx950", attrs=attrs, num_warps=8)


def line_of(mark: str, file: str = __file__) -> str:
    """``file:line`` of the line that carries the comment ``# at: mark``."""
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    (number,) = [i for i, line in enumerate(lines, start=1) if line.endswith(f"# at: {mark}")]
    return f"{file}:{number}"


def ops(text: str, *names: str) -> int:
    """How many ops with one of the names stand in a module's text."""
    return sum(len(re.findall(rf"(?<![\w.]){re.escape(name)}\b", text)) for name in names)
