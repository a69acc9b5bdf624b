"""A kernel with typed schedules that do not fit it, one change a case."""

# ruff: noqa: PIE808, SIM102, SIM117 - what reads well in plain Python is not always taken by Triton's front end

from __future__ import annotations

from typing import Any

import numpy as np
from triton.experimental.gluon import language as gl
from ws_kernels import BK, BM, ROOT, acquire, commit, layouts, release, wait

import amdwarp
from amdwarp import WSPipeline, WSRole, WSSchedule, WSScope
from amdwarp.emulator import launch

copies = gl.amd.cdna4.async_copy


@amdwarp.jit
def kernel(
    x, y, n, limit, S: gl.constexpr, HOW: gl.constexpr, CASE: gl.constexpr, LA: gl.constexpr, SA: gl.constexpr,
    BM: gl.constexpr, BK: gl.constexpr,
):  # fmt: skip
    amdwarp.annotate_ws_schedule(S, HOW)  # at: schedule
    offsets = gl.arange(0, BM, gl.SliceLayout(1, LA))[:, None] * BK + gl.arange(0, BK, gl.SliceLayout(0, LA))[None, :]
    if CASE == "full buffer":
        ones = gl.full([BM, BK], 1, gl.float16, LA)
        tile = gl.allocate_shared_memory(gl.float16, [BM, BK], SA, ones)  # at: full buffer
    else:
        tile = gl.allocate_shared_memory(gl.float16, [BM, BK], SA)
    if CASE == "two buffers":
        with amdwarp.ws_op("spare"):
            tile.store(gl.full([BM, BK], 1, gl.float16, LA))
        tile = gl.allocate_shared_memory(gl.float16, [BM, BK], SA)
    other = gl.allocate_shared_memory(gl.float16, [BM, BK], SA)  # at: other
    total = gl.zeros([BM, BK], gl.float32, LA)
    with amdwarp.ws_op("loop"):  # at: loop
        for step in range(0, n):
            with amdwarp.ws_op("load"):  # at: load
                copies.buffer_load_to_shared(tile, x, offsets)
            if CASE == "nested":
                with amdwarp.ws_op("outer"):  # at: outer
                    with amdwarp.ws_op("inner"):  # at: inner
                        total += 1.0
            if CASE == "twice":
                with amdwarp.ws_op("load"):  # at: second load
                    copies.buffer_load_to_shared(other, x, offsets)
            if CASE == "unplaced":
                with amdwarp.ws_op("spare"):  # at: spare
                    gl.store(y + offsets, offsets.to(gl.float32))
            if CASE == "effect":
                gl.store(y + offsets, offsets.to(gl.float32))  # at: effect
            if CASE == "own copy":
                with amdwarp.ws_op("spare"):  # at: own copy
                    copies.buffer_load_to_shared(other, x, offsets)  # at: the copy
            if CASE == "guard of a value":
                if limit > gl.load(x).to(gl.int32):  # at: unplaced load
                    with amdwarp.ws_op("spare"):
                        gl.store(y + offsets, offsets.to(gl.float32))
            copies.commit_group()
            copies.wait_group(0)
            with amdwarp.ws_op("read"):  # at: read
                value = tile.load(LA)  # at: the load
            if CASE == "guard reads":
                if gl.max(gl.max(value, 0), 0) > 0:  # at: guard
                    with amdwarp.ws_op("spare"):  # at: guarded
                        gl.store(y + offsets, offsets.to(gl.float32))
            if CASE == "guard gives":
                if step > limit:  # at: giving guard
                    with amdwarp.ws_op("spare"):  # at: giving
                        total += 1.0
                    gl.store(y + offsets, offsets.to(gl.float32))
            if CASE == "giving guard reads":
                if gl.max(gl.max(value, 0), 0) > 0:  # at: reading guard
                    with amdwarp.ws_op("spare"):  # at: giving by a read
                        total += 1.0
            if CASE == "guard shares":
                if step > limit:  # at: sharing guard
                    with amdwarp.ws_op("spare"):  # at: sharing
                        twice = value.to(gl.float32) * 2.0
                    gl.store(y + offsets, twice)  # at: its user
            if CASE == "loop that is no scope":
                for _ in range(limit):  # at: inner loop
                    with amdwarp.ws_op("spare"):  # at: in the loop
                        gl.store(y + offsets, offsets.to(gl.float32))
            with amdwarp.ws_op("add"):  # at: add
                total += value.to(gl.float32)
            if CASE == "reads":
                with amdwarp.ws_op("spare"):  # at: reading producer
                    gl.store(y + offsets, tile.load(LA).to(gl.float32))  # at: its read
            if CASE == "writes":
                with amdwarp.ws_op("spare"):  # at: writing consumer
                    tile.store(gl.zeros([BM, BK], gl.float16, LA))  # at: its write
            if (
                CASE == "shared buffer"
                or CASE == "buffer read first"
                or CASE == "buffer read late"
                or CASE == "one thread"
            ):
                with amdwarp.ws_op("one"):
                    other.store(gl.zeros([BM, BK], gl.float16, LA))
                with amdwarp.ws_op("two"):  # at: two
                    gl.store(y + offsets, other.load(LA).to(gl.float32))
            if CASE == "second pipeline":
                with amdwarp.ws_op("one"):
                    other.store(value + value)
                with amdwarp.ws_op("two"):
                    gl.store(y + (step + 1) * BM * BK + offsets, other.load(LA).to(gl.float32))
            x += BM * BK
    if CASE == "while":
        left = n
        with amdwarp.ws_op("late"):  # at: while scope
            while left > 0:
                with amdwarp.ws_op("spare"):
                    gl.store(y + offsets, offsets.to(gl.float32))
                left -= 1
    if CASE == "no loop":
        with amdwarp.ws_op("late"):  # at: empty scope
            total += 1.0
    with amdwarp.ws_op("store"):  # at: store
        gl.store(y + offsets, total)  # at: the store


def plan(load: list[Any] | None = None, add: list[Any] | None = None, root: Any = None, depth: int = 2) -> WSSchedule:
    return WSSchedule(
        8,
        [WSRole("adds", warps_lo=0, warps_hi=4), WSRole("loads", warps_lo=4, warps_hi=8)],
        [WSPipeline("p", ["tile"], depth)],
        [
            WSScope(
                "loop",
                {
                    "loads": [acquire("p"), "load", commit("p")] if load is None else load,
                    "adds": [wait("p"), "read", "add", release("p")] if add is None else add,
                },
            ),
            WSScope(ROOT, root or {"loads": ["loop"], "adds": ["loop", "store"]}),
        ],
    )


def chain(made: int, used: int, depth: int = 3) -> WSSchedule:
    """Three roles: ``adds`` passes on twice what it has read by pipeline ``q``, at these stages."""
    roles = [WSRole(name, warps_lo=at, warps_hi=at + 4) for at, name in ((0, "adds"), (4, "loads"), (8, "ends"))]
    adds = [wait("p"), "read", "add", release("p"), acquire("q", made), "one", commit("q", made)]
    loop = {
        "loads": [acquire("p"), "load", commit("p")],
        "adds": adds,
        "ends": [wait("q", used), "two", release("q", used)],
    }
    root = {"loads": ["loop"], "adds": ["loop", "store"], "ends": ["loop"]}
    pipelines = [WSPipeline("p", ["tile"], 2), WSPipeline("q", ["other"], depth)]
    return WSSchedule(12, roles, pipelines, [WSScope("loop", loop), WSScope(ROOT, root)])


def build(case: str, schedule: WSSchedule, arch: str = "gfx950", num_warps: int = 4, how: str = "tasks") -> Any:
    values = {name: value for name, value in layouts("gfx950").items() if name in ("LA", "SA")}
    if num_warps != 4:
        values["LA"] = gl.BlockedLayout([1, 8], [16, 4], [num_warps, 1], [1, 0])
    constants = {"S": schedule, "HOW": how, "CASE": case, "BM": BM, "BK": BK, **values}
    return amdwarp.compile(
        kernel, {"x": "*fp16", "y": "*fp32", "n": "i32", "limit": "i32"}, constants, arch, num_warps=num_warps
    )


def sums(kernel: Any, trips: int, seed: int) -> tuple[Any, Any]:
    """What the kernel of case "second pipeline" stores in the emulator, and what numpy computes."""
    x = np.random.default_rng(trips).integers(-8, 8, (trips + 1, BM, BK)).astype(np.float16)
    y = np.full(x.shape, np.nan, np.float32)
    flat = [one.reshape(-1).view(np.uint8) for one in (x, y)]
    launch(kernel.asm["amdgcn"], [*flat, trips, 0], (1,), seed=seed, lds_bytes=kernel.metadata.shared)
    used = x[:trips].astype(np.float32)
    return y, np.concatenate([used.sum(0, keepdims=True), 2 * used])
