"""LDS and global-load layouts of MFMA operands on gfx950, derived from tile shape, element width and waves.

A direct-to-LDS load writes 64 lanes x 16 bytes = 1024 consecutive bytes of LDS, a *burst*. A padded LDS layout inserts
a few bytes between bursts; which tile rows share a burst, and how many bytes stand between two bursts, decides whether
the MFMA operand reads collide on the 64 banks. `derive` searches both, with the bank model below as the judge, so a
layout is never written down by hand. Everything here is plain Python on integers.

Terms: an operand tile has an *outer* extent (rows of A, columns of B) and a *k* extent, both powers of two. A *basis*
is the step that one address bit makes, as the pair (outer step, k step) in elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from amdwarp.errors import UsageError

LANES = 64
BANKS = 64
BANK_BYTES = 4
LOAD_BYTES = 16  # one lane of a direct-to-LDS load; the only width that moves a full burst
BURST_BYTES = LANES * LOAD_BYTES

Basis = tuple[int, int]

# Lanes that the LDS serves in one pass, by bytes a lane reads: gfx950 serves b64 in halves and b128 in sets of sixteen
# that mix both quarters of a half wave (HipKittens' phase solver, measured). Transposed b64 reads are taken as b64.
_B128 = ((*range(4), *range(12, 16), *range(20, 28)), (*range(4, 12), *range(16, 20), *range(28, 32)))
READ_PASSES: dict[int, tuple[tuple[int, ...], ...]] = {
    4: (tuple(range(64)),),
    8: (tuple(range(32)), tuple(range(32, 64))),
    16: tuple(tuple(lane + half for lane in lanes) for half in (0, 32) for lanes in _B128),
}


@dataclass(frozen=True)
class OperandTile:
    """One operand tile as the kernel stages it in LDS.

    Attributes:
        outer: extent along M (for A) or N (for B), a power of two.
        k: extent along K, a power of two.
        k_contiguous: K is the contiguous dimension in global memory and in LDS; otherwise the outer one is.
        mfma_outer: rows (or columns) of one MFMA instruction, 16 or 32.
        element_bytes: 2 for fp16 and bf16, 1 for fp8 and int8, and for pairs of fp4, of which `k` counts bytes.
    """

    outer: int
    k: int
    k_contiguous: bool
    mfma_outer: int = 16
    element_bytes: int = 2

    def __post_init__(self) -> None:
        for name in ("outer", "k"):
            value = getattr(self, name)
            if value < 1 or value & (value - 1):
                raise UsageError(f"{name} = {value} is no power of two", construct="OperandTile")
        if self.mfma_outer not in (16, 32):
            raise UsageError(f"mfma_outer must be 16 or 32, not {self.mfma_outer}", construct="OperandTile")
        if self.element_bytes not in (1, 2):
            raise UsageError("only elements of 1 and 2 bytes have a layout here", construct="OperandTile")
        if self.element_bytes == 1 and not self.k_contiguous:
            raise UsageError("elements of 1 byte have a layout only with K contiguous", construct="OperandTile")

    @property
    def contiguous(self) -> int:
        """Extent of the contiguous dimension, elements."""
        return self.k if self.k_contiguous else self.outer

    @property
    def vector(self) -> int:
        """Elements that one lane of a global load moves."""
        return LOAD_BYTES // self.element_bytes

    def basis(self, step: int, along_contiguous: bool) -> Basis:
        """The basis of a step in the contiguous dimension, or in the other one."""
        return (0, step) if along_contiguous == self.k_contiguous else (step, 0)


@dataclass(frozen=True)
class LoadLayout:
    """Which wave, lane and register loads which element: bases of each, lowest bit first."""

    registers: tuple[Basis, ...]
    lanes: tuple[Basis, ...]
    waves: tuple[Basis, ...]


@dataclass(frozen=True)
class LdsLayout:
    """Where the elements of an operand tile stand in LDS.

    Attributes:
        tile: the operand tile.
        bases: one basis an address bit, in elements, lowest bit first.
        interval: elements between two insertions of padding (one burst).
        padding: elements inserted there.
    """

    tile: OperandTile
    bases: tuple[Basis, ...]
    interval: int
    padding: int

    def address(self, outer: int, k: int) -> int:
        """Byte address of element (outer, k) from the start of the tile."""
        offset = 0
        for bit, (outer_step, k_step) in enumerate(self.bases):
            if outer & outer_step or k & k_step:
                offset |= 1 << bit
        return (offset + offset // self.interval * self.padding) * self.tile.element_bytes

    def size_bytes(self, slots: int = 1) -> int:
        """Bytes of one allocation of so many tiles, with the padding between bursts (none after the last)."""
        elements = slots * self.tile.outer * self.tile.k
        return (elements + (elements - 1) // self.interval * self.padding) * self.tile.element_bytes

    def load_layout(self, waves: int) -> LoadLayout:
        """The only global-load layout whose lanes write the LDS layout in order, 16 bytes a lane.

        Registers take the bases of one 16-byte piece, lanes the next six, waves the next log2(waves), and registers
        the rest.

        Args:
            waves: waves of the workgroup, a power of two.

        Raises:
            UsageError: the tile has fewer bursts than the workgroup has waves.
        """
        vector = self.tile.vector.bit_length() - 1
        lanes = LANES.bit_length() - 1
        wave_bits = waves.bit_length() - 1
        if len(self.bases) < vector + lanes + wave_bits:
            raise UsageError(
                f"{self.tile.outer}x{self.tile.k} elements do not give each of {waves} waves a burst of its own",
                remedy="take a larger tile or fewer waves",
                construct="operand tile",
            )
        first, second, third = vector, vector + lanes, vector + lanes + wave_bits
        bases = self.bases
        return LoadLayout(bases[:first] + bases[third:], bases[first:second], bases[second:third])


def read_lanes(tile: OperandTile) -> list[tuple[list[Basis], int]]:
    """The MFMA operand reads of one wave: for each read, the element at which each of 64 lanes starts, and its bytes.

    A K-contiguous tile is read with ``ds_read_b128``: lane ``l`` takes row ``l % mfma_outer`` and the 16 bytes of k
    that start at ``16 * (l // mfma_outer)``. Otherwise ``ds_read_b64_tr_b16`` reads four k rows of sixteen outer
    elements with each group of sixteen lanes and transposes them on the way.
    """
    groups = tile.mfma_outer
    vector = tile.vector
    k_step = LANES // groups * vector
    reads: list[tuple[list[Basis], int]] = []
    for outer in range(0, tile.outer, groups):
        for k in range(0, tile.k, k_step):
            if tile.k_contiguous:
                reads.append(([(outer + lane % groups, k + lane // groups * vector) for lane in range(LANES)], 16))
                continue
            for half in (0, 4):
                starts = []
                for lane in range(LANES):
                    block, row, column = lane // 16, lane % 16 // 4, lane % 4 * 4
                    outer_block, k_block = block * 16 % groups, block * 16 // groups
                    starts.append((outer + outer_block + column, k + k_block * 8 + half + row))
                reads.append((starts, 8))
    return reads


def pass_factor(addresses: list[int], width: int) -> int:
    """LDS passes that one read instruction takes per pass of a conflict-free one.

    Args:
        addresses: byte address of each of the 64 lanes.
        width: bytes each lane reads: 4, 8 or 16.

    Returns:
        1 where no bank holds two different words of one pass; else the largest number of words on one bank.
    """
    worst = 1
    for lanes in READ_PASSES[width]:
        words = {(addresses[lane] + byte) // BANK_BYTES for lane in lanes for byte in range(0, width, BANK_BYTES)}
        load = [0] * BANKS
        for word in words:
            load[word % BANKS] += 1
        worst = max(worst, *load)
    return worst


@lru_cache(maxsize=64)
def conflict_factor(layout: LdsLayout) -> int:
    """The largest `pass_factor` over every operand read of the tile; 1 means free of bank conflicts."""
    return max(
        pass_factor([layout.address(*start) for start in starts], width) for starts, width in read_lanes(layout.tile)
    )


def _bits(extent: int) -> list[int]:
    return [1 << bit for bit in range(extent.bit_length() - 1)]


@lru_cache(maxsize=64)
def derive(tile: OperandTile) -> LdsLayout:
    """The padded LDS layout of a tile with the fewest bank conflicts, then the least padding.

    The contiguous dimension takes the low address bits. The rest of a burst is filled with rows chosen by search, the
    remaining rows follow in ascending order, and 16 to 64 bytes of padding stand between bursts.

    Raises:
        UsageError: the tile is smaller than one burst.
    """
    burst = BURST_BYTES // tile.element_bytes
    if tile.outer * tile.k < burst:
        raise UsageError(
            f"{tile.outer}x{tile.k} elements are less than the {burst} that one direct-to-LDS load writes",
            remedy="take a larger tile",
            construct="operand tile",
        )
    columns = [tile.basis(step, True) for step in _bits(tile.contiguous)]
    rows = [tile.basis(step, False) for step in _bits(tile.outer * tile.k // tile.contiguous)]
    shared = max(0, burst.bit_length() - 1 - len(columns))
    best: tuple[int, LdsLayout] | None = None
    for padding in (tile.vector, 2 * tile.vector, 4 * tile.vector):
        # High rows first: neighbouring rows then fall to different bursts, which is what padding can pull apart.
        for chosen in combinations(reversed(rows), shared):
            picked = sorted(chosen)
            bases = (*columns, *picked, *(row for row in rows if row not in picked))
            layout = LdsLayout(tile, bases, burst, padding)
            starts, width = read_lanes(tile)[0]
            factor = pass_factor([layout.address(*start) for start in starts], width)
            if best is None or factor < best[0]:
                best = (factor, layout)
    assert best is not None
    return best[1]
