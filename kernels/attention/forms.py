"""How one launch of a kernel finds rows and keys: compile-time facts that a kernel takes as one constant."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Form:
    """Extents and modes of the plain kernel.

    Attributes:
        dim, dim_v: elements of a head of q and k, and of v.
        block_m, block_n: rows and keys of one tile, powers of two.
        ratio: query heads to a key head.
        fold: neighbouring query heads whose rows share a tile: 1, or `ratio` where there are few rows.
        splits: workgroups that share the keys of a tile; each writes a partial result of its own.
        page: keys of a page of the cache; 0 where keys stand one behind the other.
        fp8: elements of q, k and v are fp8, and probabilities are scaled up for it.
    """

    dim: int
    dim_v: int
    block_m: int
    block_n: int
    ratio: int = 1
    fold: int = 1
    splits: int = 1
    page: int = 0
    fp8: bool = False

    @property
    def block_d(self) -> int:
        """Elements of a head of q and k as the tile holds them: a power of two."""
        return 1 << (self.dim - 1).bit_length()

    @property
    def block_dv(self) -> int:
        """The same of v."""
        return 1 << (self.dim_v - 1).bit_length()

    @property
    def shift(self) -> int:
        """Probabilities are kept times 2**shift: fp8 e4m3 has no more than two digits below 2**-6."""
        return 7 if self.fp8 else 0
