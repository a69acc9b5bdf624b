"""LDS layouts: conflict-free by the bank model, one-to-one, and the ones that Triton's operand layouts ask for."""

from __future__ import annotations

import itertools
import re

import pytest
from amdwarp.kernels.gemm.layouts import (
    BURST_BYTES,
    LdsLayout,
    OperandTile,
    conflict_factor,
    derive,
    pass_factor,
    read_lanes,
)

from amdwarp.errors import UsageError

TILES = [
    OperandTile(outer, k, k_contiguous, mfma)
    for outer, k, k_contiguous, mfma in itertools.product((64, 128, 256), (32, 64, 128), (True, False), (16, 32))
]


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_reads_are_free_of_bank_conflicts(tile):
    assert conflict_factor(derive(tile)) == 1


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_every_element_has_an_address_of_its_own(tile):
    layout = derive(tile)
    addresses = {layout.address(outer, k) for outer in range(tile.outer) for k in range(tile.k)}
    assert len(addresses) == tile.outer * tile.k
    assert min(addresses) == 0
    assert max(addresses) == layout.size_bytes() - tile.element_bytes


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_a_load_writes_one_burst(tile):
    layout = derive(tile)
    load = layout.load_layout(4)
    bases = (*load.registers[:3], *load.lanes)
    elements = [(0, 0)]
    for basis in bases:
        elements += [(outer + basis[0], k + basis[1]) for outer, k in elements]
    addresses = sorted(layout.address(outer, k) for outer, k in elements)
    assert addresses == list(range(0, BURST_BYTES, 2))


def test_unpadded_rows_conflict_as_counted_by_hand():
    # Rows of 128 bytes: the even rows of a pass lie on banks 0-31, the odd ones on 32-63. The first pass reads rows 0-3
    # and 12-15 at k 0, so four of one parity meet on the same four banks.
    tile = OperandTile(128, 64, True, 16)
    bases = tuple((0, 1 << bit) for bit in range(6)) + tuple((1 << bit, 0) for bit in range(7))
    assert conflict_factor(LdsLayout(tile, bases, 1 << 20, 8)) == 4


def test_pass_factor_counts_words_and_not_lanes():
    assert pass_factor([0] * 64, 16) == 1
    assert pass_factor([lane * 256 for lane in range(64)], 4) == 64
    assert pass_factor([lane * 256 for lane in range(64)], 8) == 32
    assert pass_factor([lane * 16 for lane in range(64)], 16) == 1


def test_the_layout_of_the_256_tile():
    layout = derive(OperandTile(128, 64, True, 16))
    assert (layout.interval, layout.padding) == (512, 16)
    assert layout.bases[6:] == ((16, 0), (32, 0), (64, 0), (1, 0), (2, 0), (4, 0), (8, 0))


def test_small_tiles_are_refused():
    with pytest.raises(UsageError, match="8x32 elements are less than the 512"):
        derive(OperandTile(8, 32, True))
    with pytest.raises(UsageError, match="each of 8 waves"):
        derive(OperandTile(16, 64, True)).load_layout(8)
    with pytest.raises(UsageError, match="no power of two"):
        OperandTile(96, 64, True)
    with pytest.raises(UsageError, match="mfma_outer"):
        OperandTile(64, 64, True, 8)


@pytest.mark.parametrize("shape", [(16, 16, 32), (32, 32, 16)], ids=str)
@pytest.mark.parametrize("operand", [0, 1])
def test_reads_start_where_triton_puts_register_0(shape, operand):
    pytest.importorskip("triton")
    from triton.experimental.gluon import language as gl

    parent = gl.amd.AMDMFMALayout(version=4, instr_shape=list(shape), transposed=True, warps_per_cta=[1, 1])
    outer, k = shape[0], shape[2]
    view = gl.DotOperandLayout(operand, parent, 8).format_hardware_view([outer, k] if operand == 0 else [k, outer])
    lanes = [tuple(map(int, pair)) for pair in re.findall(r"\( *(\d+), *(\d+)\)", view.splitlines()[1])]
    expected = lanes if operand == 0 else [(column, row) for row, column in lanes]
    starts, _ = read_lanes(OperandTile(outer, k, True, shape[0]))[0]
    assert starts == expected


def test_transposed_reads_bring_each_lane_its_column():
    """Sixteen lanes read four rows of sixteen columns, of which each keeps the column that its MFMA operand needs."""
    for shape in (16, 32):
        plain, _ = read_lanes(OperandTile(shape, 512 // shape, True, shape))[0]
        for half, (starts, width) in enumerate(read_lanes(OperandTile(shape, 512 // shape, False, shape))):
            assert width == 8
            for block in range(0, 64, 16):
                read = {(outer + i, k) for outer, k in starts[block : block + 16] for i in range(4)}
                wanted = {(outer, k + 4 * half + i) for outer, k in plain[block : block + 16] for i in range(4)}
                assert read == wanted
