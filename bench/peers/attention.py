"""``python -m amdwarp.bench.peers.attention``: a stock Triton flash attention and this package's kernels, in the model.

The peer is the forward as Triton users write it: one tile of rows a workgroup, ``tl.dot`` for both products, online
softmax in base 2 with the scale folded in, an eager rescale, stock software pipelining. It is compiled for every
configuration of `SPACE`; the model ranks them at a short sequence and takes the best of them at the one asked for.
Nothing is timed.
"""

# The kernel language has no types of its own for tensors.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton
import triton.language as tl
from rich.console import Console
from rich.table import Table
from triton.compiler import ASTSource

from amdwarp.cycles import Estimate, LoopReport, estimate
from amdwarp.cycles.zoo import HEADS, KEY_HEADS, attention
from amdwarp.errors import AmdwarpError
from amdwarp.resources import resources
from amdwarp.target import get_target

from ..model import main_loop

DIM, TARGET = 128, "gfx950"
RANKING_KEYS, FINALISTS = 2048, 3
#: Clk that the matrix units of a compute unit need for both products of 256 rows and 64 keys: 4 * 256 * 64 * 128 flops
#: at 4096 a clk. Figures are given for that block, from the share of time in which the units are busy: workgroups that
#: share a compute unit and drift apart do not do one iteration each in the clk of one.
BLOCK_CLK = 2048


@triton.jit
def flash_attention(
    q_ptr, k_ptr, v_ptr, out_ptr, scale, head_stride, row_stride, keys, ratio,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """One tile of rows of one head; heads of q, k, v and out are (rows, D), one behind the other."""
    head = tl.program_id(1)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    key = tl.arange(0, BN)
    element = tl.arange(0, D)
    at = head * head_stride + row[:, None] * row_stride + element[None, :]
    q = tl.load(q_ptr + at)
    k = k_ptr + head // ratio * head_stride + key[None, :] * row_stride + element[:, None]
    v = v_ptr + head // ratio * head_stride + key[:, None] * row_stride + element[None, :]
    top = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for _ in range(0, keys, BN):
        s = tl.dot(q, tl.load(k))
        new_top = tl.maximum(top, tl.max(s, 1) * scale)
        p = tl.exp2(s * scale - new_top[:, None])
        rescale = tl.exp2(top - new_top)
        total = total * rescale + tl.sum(p, 1)
        acc = tl.dot(p.to(q.dtype), tl.load(v), acc * rescale[:, None])
        top = new_top
        k += BN * row_stride
        v += BN * row_stride
    tl.store(out_ptr + at, (acc / total[:, None]).to(q.dtype))


@dataclass(frozen=True)
class Config:
    """Tile and backend options."""

    bm: int
    bn: int
    warps: int
    stages: int
    mfma: int = 32
    waves: int = 2

    def __str__(self) -> str:
        return f"{self.bm}x{self.bn} warps {self.warps} stages {self.stages} mfma {self.mfma} waves/eu {self.waves}"


#: Configurations of the usual tuning scripts of this kernel on CDNA.
SPACE = tuple(
    Config(bm, bn, warps, stages, mfma)
    for bm, bn, warps in ((128, 64, 4), (128, 128, 8), (256, 64, 8), (128, 64, 8))
    for stages in (2, 3, 4)
    for mfma in (16, 32)
)


@dataclass(frozen=True)
class Line:
    """One line of the table: a kernel, its model, or why there is none."""

    name: str
    one: Estimate | None = None
    vgprs: int = 0
    spills: int = 0
    problem: str = ""

    @property
    def clk(self) -> float:
        """Modelled clk of the launch."""
        return float("inf") if self.one is None else float(self.one.kernel_clk)

    @property
    def loop(self) -> LoopReport | None:
        """The loop over keys."""
        return None if self.one is None else main_loop(self.one)


def stock(config: Config, keys: int) -> Line:
    """The peer in one configuration."""
    pointers = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out_ptr"), "*fp16")
    scalars = dict.fromkeys(("head_stride", "row_stride", "keys", "ratio"), "i32")
    types = {**pointers, "scale": "fp32", **scalars, **dict.fromkeys(("BM", "BN", "D"), "constexpr")}
    hints: dict[Any, Any] = {(at,): [["tt.divisibility", 16], ["tt.pointer_range", 32]] for at in range(4)}
    hints |= {(at,): [["tt.divisibility", 16]] for at in (5, 6, 7)}
    source = ASTSource(flash_attention, types, {"BM": config.bm, "BN": config.bn, "D": DIM}, hints)
    options = {
        "num_warps": config.warps, "num_stages": config.stages, "matrix_instr_nonkdim": config.mfma,
        "waves_per_eu": config.waves, "enable_fp_fusion": True,
    }  # fmt: skip
    name = f"stock, {config}"
    try:
        compiled = triton.compile(source, target=get_target(TARGET).gpu_target, options=options)
        q, out = np.zeros((2, HEADS, keys, DIM), np.float16)
        k, v = np.zeros((2, KEY_HEADS, keys, DIM), np.float16)
        args = [q, k, v, out, 0.1275, keys * DIM, DIM, keys, HEADS // KEY_HEADS]
        grid = (keys // config.bm, HEADS)
        return line(name, compiled, args, grid)
    except AmdwarpError as error:
        return Line(name, problem=str(error))
    except Exception as error:  # the stock compiler refuses configurations with errors of many types
        return Line(name, problem=f"{type(error).__name__}: {error}".splitlines()[0])


def own(schedule: str, keys: int) -> Line:
    """A kernel of this package."""
    launch = attention((keys, keys, DIM), schedule=schedule, arch=TARGET)
    return line(f"ours, {schedule}", launch.compiled, launch.args, launch.grid)


def line(name: str, compiled: Any, args: list[Any], grid: tuple[int, ...]) -> Line:
    """A launch in the model."""
    used = resources(compiled.asm["amdgcn"])
    return Line(name, estimate(compiled, args, grid), used.vgprs, used.spills)


def compare(keys: int = 8192) -> list[Line]:
    """The best stock configuration, and the schedules of this package."""
    ranked = sorted((stock(config, RANKING_KEYS) for config in SPACE), key=lambda found: found.clk)
    names = [found.name for found in ranked[:FINALISTS] if found.one is not None]
    finalists = [stock(config, keys) for config in SPACE if f"stock, {config}" in names]
    return [
        min(finalists, key=lambda found: found.clk),
        *(own(name, keys) for name in ("ping_pong", "intra_wave", "plain")),
    ]


def table(lines: list[Line], keys: int) -> Table:
    """The lines as a table; the ratio is that of modelled clk of the launch to the stock kernel's."""
    made = Table(
        title=f"attention (1, {HEADS}/{KEY_HEADS} heads, {keys}, {DIM}) fp16 on {TARGET}: modelled, not measured"
    )
    for column in ("kernel", "clk a block of 256x64", "MFMA %", "VGPRs", "spills", "launch clk", "ratio"):
        made.add_column(column, justify="left" if column == "kernel" else "right")
    for one in lines:
        if one.one is None or one.loop is None:
            made.add_row(one.name, one.problem)
            continue
        figures = (
            f"{BLOCK_CLK / one.loop.mfma_busy:.0f}",
            f"{100 * one.loop.mfma_busy:.1f}",
            str(one.vgprs),
            str(one.spills),
        )
        made.add_row(one.name, *figures, f"{one.clk:.0f}", f"{lines[0].clk / one.clk:.2f}")
    return made


if __name__ == "__main__":
    # it takes no options, says what it does, and refuses what it would otherwise not look at
    argparse.ArgumentParser(prog="python -m amdwarp.bench.peers.attention", description=__doc__).parse_args()
    console = Console()
    console.width = max(console.width, 130)
    console.print(table(compare(), 8192))
    sys.stdout.flush()
    os._exit(0)  # the Triton 3.9 wheel prints pages about its own leaked objects when the interpreter ends
