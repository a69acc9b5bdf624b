"""What the cycle model says of attention's backward kernels: ``python -m amdwarp.bench.attention_backward``.

One line a kernel: the loop that multiplies, in clk for each 64 x 64 logits a compute unit gets through. Modelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated
from unittest import mock

import numpy as np
import typer
from amdwarp.kernels.attention import backward_launch
from amdwarp.kernels.attention.backward import attention_backward

import amdwarp
from amdwarp.cycles import estimate
from amdwarp.resources import resources
from amdwarp.runtime import Launch, compile_for

from .model import main_loop

TILE = 64 * 64
HEADS = 64  # enough workgroups for every compute unit to hold as many as fit


@dataclass(frozen=True)
class Row:
    """One kernel.

    Attributes:
        kernel: its name.
        tile: rows and keys.
        clk: for each 64 x 64 logits on a compute unit.
        mfma_busy: share of the clk for which the matrix units had work.
        bound: what bounds the loop.
        resident: workgroups on a compute unit.
        vgprs, spills: of a wave.
        calibrated: whether the model's parameters rest on measurements.
    """

    kernel: str
    tile: tuple[int, int]
    clk: float
    mfma_busy: float
    bound: str
    resident: int
    vgprs: int
    spills: int
    calibrated: bool


def launches(arch: str, rows: int, dim: int) -> list[Launch]:
    """The launches of one backward, not run: equally many rows and keys, no mask."""
    zeros = np.zeros((1, HEADS, rows, dim), np.float16)
    lse = np.zeros((1, HEADS, rows), np.float32)
    found: list[Launch] = []
    with mock.patch.object(backward_launch, "run", found.append), amdwarp.emulate(arch):
        attention_backward(zeros, zeros, zeros, zeros, zeros, lse)
    return found


def model(arch: str, rows: int, dim: int) -> Iterator[Row]:
    """Model the kernels that multiply."""
    for launch in launches(arch, rows, dim):
        name = launch.kernel.__name__
        if name not in ("backward_keys", "backward_rows"):
            continue
        compiled, values = compile_for(launch, arch)
        one, tile = estimate(compiled, values, launch.grid), launch.constexprs["TILE"]
        loop, used = main_loop(one), resources(compiled.asm["amdgcn"])
        # one pass of the loop takes one tile of each workgroup on the compute unit
        logits = tile.rows * tile.keys * one.resident
        clk = loop.clk_per_iteration * TILE / logits
        figures = (loop.mfma_busy, loop.bound, one.resident, used.vgprs, used.spills, one.calibrated)
        yield Row(name, (tile.rows, tile.keys), clk, *figures)


def main(
    arch: Annotated[str, typer.Option(help="GPU to compile for.")] = "gfx950",
    rows: Annotated[int, typer.Option(help="Rows, and as many keys.")] = 1024,
    dim: Annotated[int, typer.Option(help="Elements of a head.")] = 128,
) -> None:
    """Model the kernels of attention's backward."""
    for row in model(arch, rows, dim):
        note = "modelled" if row.calibrated else "modelled, not calibrated"
        typer.echo(
            f"{arch} {row.kernel} {row.tile[0]}x{row.tile[1]} dim {dim}: {row.clk:.0f} clk for 64x64 logits, MFMA busy "
            f"{row.mfma_busy:.1%}, bound by {row.bound}, {row.resident} a compute unit, {row.vgprs} VGPRs, "
            f"{row.spills} spills ({note})"
        )


if __name__ == "__main__":
    typer.run(main)
