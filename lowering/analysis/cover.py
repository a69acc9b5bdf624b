"""How much matrix work hides each memory instruction, and how it is dealt out.

An *anchor* is a memory or transcendental instruction. Its *cover* is the matrix instructions asked for between it and
the next anchor. Where a window has enough of them, each anchor gets what hides it and the rest is spread evenly; where
it has not, all get a share by weight.

The weights are clocks for which the anchor keeps its unit busy while every SIMD of the compute unit streams the same
kind, since then one SIMD gets its share of the unit only:

* LDS: bytes of a wave times the SIMDs, over the bytes a compute unit reads or writes in one clock;
* global memory: clocks of the texture pipe for one instruction of 64 lanes, half for 32 lanes, times the SIMDs;
* transcendental: the clocks it blocks the vector unit for, which a matrix instruction leaves free.

Sources: AMD CDNA3 and CDNA4 ISA documents and the ROCm "GPU architecture specifications" (LDS widths: 128 bytes a
clock on gfx942, 256 on gfx950, of which writes use half); AMD's published MI450 description (512 on gfx1250); LLVM's
``SISchedule.td`` and the AMD matrix instruction calculator (clocks of matrix instructions); AMD's attention kernels
(three vector instructions for each matrix instruction were faster than the six that fit) and GEMM kernels (clocks of
the texture pipe).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil

from amdwarp.target import get_target

from .pricing import Price, Slot
from .windows import Group

LDS_READ_BYTES = {"gfx942": 128, "gfx950": 256, "gfx1250": 512}
LDS_WRITE_BYTES = {"gfx942": 128, "gfx950": 128, "gfx1250": 512}
VMEM_CLOCKS = {32: 4, 64: 16, 128: 16}  # by bits a lane, narrower ones as 32
TRANS_CLOCKS = {"gfx942": 16, "gfx950": 8, "gfx1250": 2}
VALU_PER_MFMA = 3

# Flops one SIMD does in a clock, by element bits of the wider operand (4 for fp4 and fp6, which run at one rate).
FLOPS = {
    "gfx942": {64: 64, 32: 64, 16: 512, 8: 1024, 4: 1024},
    "gfx950": {64: 32, 32: 64, 16: 1024, 8: 2048, 4: 4096},
    "gfx1250": {64: 128, 32: 128, 16: 2048, 8: 4096, 4: 8192},
}
LEAST_CLOCKS = {"gfx942": (16, 32), "gfx950": (16, 32), "gfx1250": (8, 8)}
"""Shortest instruction of a 16-row shape, and of a 32-row one."""


def matrix_clocks(arch: str, instruction: Sequence[int], bits: int) -> int:
    """Clocks from one independent matrix instruction to the next on one SIMD."""
    rows, columns, depth = instruction[:3]
    rates = FLOPS[arch]
    rate = rates[min((width for width in rates if width >= bits), default=64)]
    least = LEAST_CLOCKS[arch][rows >= 32]
    return max(least, 2 * rows * columns * depth // rate)


def anchor_clocks(arch: str, slot: Slot, bits: int) -> int:
    """The weight of one anchor; see the module's description."""
    target = get_target(arch)
    if slot in (Slot.DS_READ, Slot.DS_WRITE):
        width = (LDS_READ_BYTES if slot is Slot.DS_READ else LDS_WRITE_BYTES)[arch]
        return max(1, max(bits, 32) // 8 * target.wave_size * target.simds // width)
    if slot is Slot.TRANS:
        return TRANS_CLOCKS[arch]
    clocks = VMEM_CLOCKS[max(32, bits)] if bits <= 128 else VMEM_CLOCKS[128]
    return max(1, clocks * target.wave_size // 64) * target.simds


@dataclass(frozen=True)
class Anchor:
    slot: Slot
    clocks: int


def anchors(arch: str, prices: Sequence[Price]) -> list[Anchor]:
    """The anchors of operations' prices, one an instruction, in order."""
    found = []
    for price in prices:
        if price.slot.memory or price.slot is Slot.TRANS:
            found += [Anchor(price.slot, anchor_clocks(arch, price.slot, price.bits))] * price.count
    return found


def deal(weights: Sequence[Fraction], total: int) -> list[int]:
    """Deal ``total`` matrix instructions out to anchors that need ``weights`` of one; the list sums to ``total``.

    >>> deal([Fraction(1), Fraction(1), Fraction(4)], 9)
    [2, 2, 5]
    >>> deal([Fraction(1), Fraction(1), Fraction(4)], 3)
    [0, 1, 2]
    """
    if not weights:
        return []
    needed = [ceil(weight) for weight in weights]
    surplus = total - sum(needed)
    count = len(weights)
    if surplus >= 0:
        return [n + (i + 1) * surplus // count - i * surplus // count for i, n in enumerate(needed)]
    whole, before, ends = sum(weights), Fraction(0), [0]
    for weight in weights:
        before += weight
        ends.append(int(total * before / whole))
    return [b - a for a, b in pairwise(ends)]


def plan(found: Sequence[Anchor], matrix: int, clocks: int, vector: int) -> list[Group]:
    """The order of a window.

    Args:
        found: its anchors, in order.
        matrix: how many matrix instructions it has.
        clocks: how long one takes.
        vector: about how much other vector work there is to spread; 0 for none.
    """
    covers = deal([Fraction(anchor.clocks, clocks) for anchor in found], matrix)
    groups: list[Group] = []
    for anchor, cover in zip(found, covers, strict=True):
        _append(groups, anchor.slot, 1)
        _append(groups, Slot.MFMA, cover)
    if not vector:
        return groups
    each = max(1, min(VALU_PER_MFMA, ceil(vector / max(1, matrix))))
    spread: list[Group] = []
    for slot, count in groups:
        if slot is Slot.MFMA:
            spread += [(Slot.MFMA, 1), (Slot.VALU, each)] * count
        else:
            spread.append((slot, count))
    return spread


def _append(groups: list[Group], slot: Slot, count: int) -> None:
    if count and groups and groups[-1][0] is slot:
        groups[-1] = (slot, groups[-1][1] + count)
    elif count:
        groups.append((slot, count))
