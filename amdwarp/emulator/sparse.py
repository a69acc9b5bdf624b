"""Sparse matrix instructions (SMFMAC): two of every four elements of A along K are stored.

Layouts after the AMD CDNA3 and CDNA4 instruction set manuals, chapter "Sparse matrices". A lane's element pairs stand
for consecutive groups of four k; a register holds, lowest bits first, two bits for each element: its place in the
group. Where the lane needs fewer than 32 bits, abid picks the set (cbsz other than 0: the first). B is dense; in the
instructions with eight registers of B a lane's elements are two runs, the second K / 2 behind the first.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from amdwarp.asm.table import TABLE
from amdwarp.emulator.bind import Binder, handles
from amdwarp.emulator.memory import Array
from amdwarp.emulator.mfma import (
    Decoder,
    Shape,
    accumulate,
    element_bits,
    element_decoder,
    order_of_result,
    right_matrix,
)
from amdwarp.emulator.state import Batch, Closure

_NAME = re.compile(r"v_smfmac_(f32|i32)_(\d+)x(\d+)x(\d+)_(\w+)$")


def _index_shift(binder: Binder, bits: int, elements: int) -> int:
    """Lowest bit of the index set that abid names; the sets of the widest instructions fill the register."""
    size, block = binder.take("cbsz", 0), binder.take("abid", 0)
    width = 2 * elements
    sets = 32 // width
    if size == 0 and block >= sets and not (bits == 8 and sets == 1):
        raise binder.fail(f"abid:{block}: the index register holds {sets} sets")
    return width * block if size == 0 and sets > 1 else 0


def _dense(shape: Shape, decoder: Decoder, runs: int) -> Callable[[Array, Array], Array]:
    """Registers of A and places in the groups of four to [waves, 1, rows, k]."""
    order = order_of_result(shape)

    def build(raw: Array, places: Array) -> Array:
        values = decoder(raw)
        registers, waves, lanes, per = values.shape
        elements = values.transpose(1, 2, 0, 3).reshape(waves, lanes, registers * per // 2, 2, 1)
        chosen = places.reshape(waves, lanes, -1, 2, 1) == np.arange(4)
        spread = np.where(chosen, elements, elements.dtype.type(0)).sum(axis=3)
        split = spread.reshape(waves, shape.groups, shape.m, runs, -1)
        return split.transpose(0, 2, 3, 1, 4).reshape(waves, 1, shape.m, shape.k)[:, :, order]

    return build


@handles(*(name for name in TABLE if name.startswith("v_smfmac_")))
def bind_sparse(binder: Binder) -> Closure:
    """D = D + A B; exec is not looked at."""
    match = _NAME.match(binder.inst.base)
    assert match is not None
    kind, name = match[1], match[5]
    binder.need(4)
    shape = Shape(int(match[2]), int(match[3]), int(match[4]), 1)
    bits = element_bits(name)
    registers_b = shape.per_lane * bits // 32
    registers_a, elements = registers_b // 2, shape.per_lane // 2
    a, rows_b, index = binder.vector(1, registers_a), binder.vector(2, registers_b), binder.vector(3, 1)
    d = binder.vector(0, shape.results)
    runs = registers_b // 4
    shift = _index_shift(binder, bits, elements)
    fields = (shift + 2 * np.arange(elements)).astype(np.uint32)
    build_a = _dense(shape, element_decoder(binder, name, 0), runs)
    build_b = right_matrix(shape, element_decoder(binder, name, 1), runs)

    def run(b: Batch) -> None:
        places = b.r[0][index][..., None] >> fields & np.uint32(3)
        left = build_a(b.u[a : a + registers_a], places)
        right = build_b(b.u[rows_b : rows_b + registers_b])
        accumulate(b, shape, left, right, d, d, kind == "i32")

    return run
