"""A kernel whose conditions around ops give values, one form a case."""

# ruff: noqa: PIE808 - what reads well in plain Python is not always taken by Triton's front end

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
    amdwarp.annotate_ws_schedule(S, HOW)
    offsets = gl.arange(0, BM, gl.SliceLayout(1, LA))[:, None] * BK + gl.arange(0, BK, gl.SliceLayout(0, LA))[None, :]
    tile = gl.allocate_shared_memory(gl.float16, [BM, BK], SA)
    total = gl.zeros([BM, BK], gl.float32, LA)
    last = 0
    with amdwarp.ws_op("loop"):
        for step in range(0, 0 if CASE == "no iteration" else n):
            with amdwarp.ws_op("load"):
                copies.buffer_load_to_shared(tile, x, offsets)
            copies.commit_group()
            copies.wait_group(0)
            with amdwarp.ws_op("read"):
                value = tile.load(LA).to(gl.float32)
            if CASE == "one branch":
                if step >= limit:
                    with amdwarp.ws_op("a"):
                        total += value
            elif CASE == "two branches":
                if step >= limit:
                    with amdwarp.ws_op("a"):
                        total += value
                else:
                    with amdwarp.ws_op("b"):
                        total -= value * 0.5
            elif CASE == "one after another":
                if step >= limit:
                    with amdwarp.ws_op("a"):
                        twice = value * 2.0
                    more = twice + step
                    with amdwarp.ws_op("b"):
                        total += more
            elif CASE == "nested":
                if step >= limit:
                    if step % 2 == 0:
                        with amdwarp.ws_op("a"):
                            total += value
                    else:
                        with amdwarp.ws_op("b"):
                            total = total * 0.5
            elif CASE == "no value of an op":
                if step >= limit:
                    with amdwarp.ws_op("a"):
                        total += value
                    last = step
                with amdwarp.ws_op("b"):
                    total += last
            elif CASE == "between ops":
                if step >= limit:
                    with amdwarp.ws_op("a"):
                        twice = value * 2.0
                    with amdwarp.ws_op("b"):
                        gl.store(y + BM * BK + offsets, twice)
            elif CASE == "no iteration":
                with amdwarp.ws_op("a"):
                    total += value
            x += BM * BK
    with amdwarp.ws_op("store"):
        gl.store(y + offsets, total)


CASES = {
    "one branch": ["a"],
    "two branches": ["a", "b"],
    "one after another": ["a", "b"],
    "nested": ["a", "b"],
    "no value of an op": ["a", "b"],
    "between ops": ["a", "b"],
    "no iteration": ["a"],
}


def plan(ops: list[str]) -> WSSchedule:
    return WSSchedule(
        8,
        [WSRole("adds", warps_lo=0, warps_hi=4), WSRole("loads", warps_lo=4, warps_hi=8)],
        [WSPipeline("p", ["tile"], 3)],
        [
            WSScope(
                "loop",
                {
                    "loads": [acquire("p"), "load", commit("p")],
                    "adds": [wait("p", 1), "read", *ops, release("p", 1)],
                },
            ),
            WSScope(ROOT, {"loads": ["loop"], "adds": ["loop", "store"]}),
        ],
    )


def build(case: str, how: str, schedule: WSSchedule | None = None) -> Any:
    values = {name: value for name, value in layouts("gfx950").items() if name in ("LA", "SA")}
    constants = {"S": schedule or plan(CASES[case]), "HOW": how, "CASE": case, "BM": BM, "BK": BK, **values}
    return amdwarp.compile(
        kernel, {"x": "*fp16", "y": "*fp32", "n": "i32", "limit": "i32"}, constants, "gfx950", num_warps=4
    )


def arguments(n: int, limit: int) -> list[Any]:
    x = np.random.default_rng(n).standard_normal((max(n, 1), BM, BK)).astype(np.float16)
    return [x, np.full((2, BM, BK), -1, np.float32), n, limit]


def computed(compiled: Any, n: int, limit: int) -> Any:
    """Both halves of y after a launch in the emulator."""
    args = arguments(n, limit)
    flat = [one.reshape(-1).view(np.uint8) if isinstance(one, np.ndarray) else one for one in args]
    launch(compiled.asm["amdgcn"], flat, (1,), seed=n, lds_bytes=compiled.metadata.shared)
    return args[1]
