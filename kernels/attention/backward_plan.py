"""What the backward kernels are compiled for: the options that are compile-time constants, and tiles by GPU and dim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amdwarp.target import Target

from .options import AttentionOptions

VECTOR = 8  # elements in the 16 bytes that one lane moves
SUM_ROWS = 64


@dataclass(frozen=True)
class BackwardKind:
    """What is computed, as compile-time constants; numbers such as scale and window are arguments of the kernels.

    Attributes:
        left, right: rows see no further than that side of the mask.
        softcap, alibi, bias: as in `AttentionOptions`.
        dbias: the gradient of the bias is stored.
        varlen: sequences stand one behind the other in one batch entry.
        unit: divisor of every stride but that of the bias; 8 where rows start 16-byte aligned, else 1.
    """

    left: bool = False
    right: bool = False
    softcap: bool = False
    alibi: bool = False
    bias: bool = False
    dbias: bool = False
    varlen: bool = False
    unit: int = VECTOR

    @property
    def plain(self) -> bool:
        """Logits are q . k times one factor."""
        return not (self.softcap or self.alibi or self.bias)

    @classmethod
    def of(
        cls, options: AttentionOptions, dbias: bool = False, varlen: bool = False, unit: int = VECTOR
    ) -> BackwardKind:
        """The kind that computes the gradients of these options."""
        left, right = (reach is not None for reach in options.reach)
        return cls(left, right, options.softcap is not None, options.alibi, options.bias, dbias, varlen, unit)


@dataclass(frozen=True)
class BackwardTile:
    """Extents of one kernel.

    Attributes:
        rows, keys: of a tile, powers of two.
        dim, dim_v: elements of a head of q and k, and of v.
        waves: of a workgroup.
        stages: stages of the stock software pipeline; 1 for none.
        mfma: rows and columns of the matrix instruction; gfx1250 has one size only.
    """

    rows: int
    keys: int
    dim: int
    dim_v: int
    waves: int = 4
    stages: int = 1
    mfma: int = 16

    @property
    def block(self) -> int:
        """Elements of a head of q and k as a tile holds them: a power of two."""
        return 1 << (self.dim - 1).bit_length()

    @property
    def block_v(self) -> int:
        """The same of v."""
        return 1 << (self.dim_v - 1).bit_length()

    @property
    def sum_rows(self) -> int:
        """Rows of a workgroup of the kernel that makes delta."""
        return SUM_ROWS

    def options(self, target: Target) -> dict[str, Any]:
        """Backend options."""
        made: dict[str, Any] = {"num_warps": self.waves, "num_stages": self.stages, "enable_fp_fusion": True}
        if target.wave_size == 64:
            made["matrix_instr_nonkdim"] = self.mfma
        return made


# Widest block of a head -> (rows, keys) of the kernel of dk and dv, and of the kernel of dq. They are small enough for
# every combination of options to leave scratch memory alone on every GPU, which a test compiles for. On gfx950, head
# dim 128, dk and dv with 64 x 128 take 3907 clk for each 64 x 64 logits where 32 x 64 take 4132 (cycle model), but
# spill with a window.
TILES = {
    64: ((64, 64), (128, 64)),
    128: ((32, 64), (64, 32)),
    256: ((32, 32), (32, 32)),
}
# With 32 rows gfx942 takes 64 bytes of scratch a lane where nothing is aligned.
FEWER_ROWS = {("gfx942", 256): 16}
# Stages of stock software pipelining for the kernel of dq; that of dk and dv loads ahead by itself. Head dim 128, 64 x
# 64 logits, cycle model: gfx950 takes 2977 clk with one and 2428 with two; gfx942 takes 3335 with one and 11635
# with two, where LDS has conflicts. gfx1250 is not calibrated.
STAGES = {"gfx942": 1, "gfx950": 2, "gfx1250": 1}


def tiles(dim: int, dim_v: int, arch: str) -> tuple[BackwardTile, BackwardTile]:
    """Tiles of the kernel of dk and dv, and of the kernel of dq."""
    widest = max(1 << (one - 1).bit_length() for one in (dim, dim_v))
    block, ((rows, keys), of_rows) = next(one for one in TILES.items() if widest <= one[0])
    rows = FEWER_ROWS.get((arch, block), rows)
    stages = STAGES[arch] if widest <= 128 else 1
    return BackwardTile(rows, keys, dim, dim_v), BackwardTile(*of_rows, dim, dim_v, stages=stages)
