"""Child process: compare our layouts with Triton's own conversion over a grid; prints counts and the first misses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # 3.9 warns when it is not set

from amdwarp.lowering import bridge
from amdwarp.lowering.analysis.layouts import layout_of
from amdwarp.lowering.analysis.types import parse_type
from amdwarp.lowering.ir import Block, Module, Op, Region
from triton._C.libtriton import gluon_ir
from triton.experimental.gluon import language as gl

SHAPES = ([16, 16], [64, 64], [128, 256], [256, 32], [32, 512], [16, 128])
VECTORS = ([16], [64], [128])
ORDERS = ([1, 0], [0, 1])
WAVES = ([1, 1], [2, 2], [4, 1], [1, 4], [4, 2], [2, 4])
MFMA_SHAPES = {
    3: ([32, 32, 8], [16, 16, 16], [32, 32, 16], [16, 16, 32]),
    4: ([32, 32, 16], [16, 16, 32], [16, 16, 128], [32, 32, 64]),
}
WMMA_SHAPES = ([16, 16, 32], [16, 16, 64], [16, 16, 128], [16, 16, 4], [32, 16, 128])
WMMA_WAVES = (
    ([[0, 1], [1, 0]], None),
    ([[1, 0], [2, 0]], None),
    ([[0, 1], [0, 2], [1, 0]], None),
    ([[0, 2], [2, 0]], [[0, 1], [1, 0]]),
    ([[0, 1], [0, 0]], None),
    ([[1, 0], [0, 0]], [[2, 0]]),
)
CLUSTERS = ([[1, 0]], [[0, 1]], [[1, 0], [0, 1]], [[0, 0]], [[0, 0], [1, 0]])

Case = tuple[Any, list[int]]


def mfma() -> Iterator[Case]:
    made = [gl.amd.AMDMFMALayout(3, [16, 16, 4], False, [2, 2], element_bitwidth=64)]
    made += [gl.amd.AMDMFMALayout(4, shape, True, [1, 4]) for shape in ([4, 64, 16], [64, 4, 16])]
    for version, shapes in MFMA_SHAPES.items():
        for shape in shapes:
            for waves in WAVES:
                for transposed in (True, False):
                    made.append(gl.amd.AMDMFMALayout(version, shape, transposed, waves))
                    for tiles in ([2, 2], [1, 2]):
                        made.append(gl.amd.AMDMFMALayout(version, shape, transposed, waves, tiles_per_warp=tiles))
    for one in made:
        yield from operands_too(one, (4, 8, 16), SHAPES)
        for shape in VECTORS:
            yield gl.SliceLayout(0, one), shape
            yield gl.SliceLayout(1, one), shape


def operands_too(layout: Any, widths: tuple[int, ...], shapes: Any) -> Iterator[Case]:
    for shape in shapes:
        yield layout, shape
        for width in widths:
            yield gl.DotOperandLayout(0, layout, width), shape
            yield gl.DotOperandLayout(1, layout, width), shape


def wmma() -> Iterator[Case]:
    for waves, registers in WMMA_WAVES:
        for transposed in (True, False):
            for shape in WMMA_SHAPES:
                one = gl.amd.AMDWMMALayout(3, transposed, waves, registers, shape)
                widths = tuple(w for w in (2, 8, 16, 32) if 2 * w <= shape[2])
                yield from operands_too(one, widths, [s for s in SHAPES if min(s) >= 32 or shape[0] == 16])


def blocked() -> Iterator[Case]:
    for size in ([1, 8], [8, 1], [1, 1], [2, 4], [4, 4]):
        for lanes in ([8, 8], [64, 1], [1, 64], [4, 16], [8, 4], [32, 1]):
            for waves in ([4, 1], [2, 2], [1, 8]):
                for order in ORDERS:
                    one = gl.BlockedLayout(size, lanes, waves, order)
                    yield from ((one, shape) for shape in SHAPES)
                    yield gl.DotOperandLayout(0, one, 0), [32, 16]
                    yield gl.DotOperandLayout(1, one, 0), [32, 16]
                    yield gl.SliceLayout(0, one), [64]
                    yield gl.SliceLayout(1, one), [64]
    three = gl.BlockedLayout([1, 1, 8], [2, 4, 8], [2, 2, 1], [2, 1, 0])
    for shape in ([2, 16, 64], [8, 32, 128]):
        yield three, shape
        yield gl.SliceLayout(0, three), shape[1:]
        yield gl.SliceLayout(2, three), shape[:2]
    yield gl.BlockedLayout([4], [64], [4], [0]), [256]
    yield gl.BlockedLayout([4], [64], [4], [0]), [2048]


def others() -> Iterator[Case]:
    lanes = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0], [8, 0]]
    row = gl.DistributedLinearLayout([[0, 1], [0, 0]], lanes, [[16, 0]], [], [32, 8])
    lanes = [[0, 2], [0, 4], [2, 0], [4, 0], [8, 0], [16, 0]]
    column = gl.DistributedLinearLayout([[1, 0], [0, 1]], lanes, [[32, 0]], [], [64, 8])
    yield from ((row, [32, 8]), (row, [64, 32]), (column, [256, 64]), (column, [32, 8]))
    for split in CLUSTERS:
        yield gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0], split), [128, 64]
        yield gl.SwizzledSharedLayout(8, 1, 8, [1, 0], split), [128, 64]
        one = gl.amd.AMDWMMALayout(3, True, [[0, 1], [1, 0]], None, [16, 16, 32], split)
        yield from operands_too(one, (8,), ([128, 64],))
    for vec, per, phases in ((8, 1, 8), (8, 2, 4), (4, 1, 16), (1, 1, 1), (8, 4, 8)):
        for order in ORDERS:
            yield from ((gl.SwizzledSharedLayout(vec, per, phases, order), shape) for shape in SHAPES)
    yield gl.SwizzledSharedLayout(8, 1, 8, [2, 1, 0]), [4, 64, 32]
    yield gl.SwizzledSharedLayout(8, 1, 8, [0]), [64]
    yield gl.SharedLinearLayout([[0, 1], [0, 2], [1, 0], [2, 0]]), [4, 4]


GROUPS = {"mfma": mfma, "wmma": wmma, "blocked": blocked, "others": others}


def compare(builder: Any, module: Module, layout: Any, shape: list[int]) -> dict[str, Any] | None:
    attribute = layout._to_ir(builder)
    half = builder.get_half_ty()
    theirs = builder.to_linear_layout(attribute, shape)
    if "Shared" in type(layout).__name__:
        type_ = builder.get_shared_mem_desc_ty(half, shape, attribute, shape)
        want = {"offset": theirs.offset_bases, "block": theirs.block_bases}
    else:
        type_ = builder.get_distributed_ty(half, shape, attribute)
        want = {"register": theirs.reg_bases, "lane": theirs.lane_bases}
        want |= {"warp": theirs.warp_bases, "block": theirs.block_bases}
    ours = layout_of(parse_type(str(type_), module))
    got = {name: [list(basis) for basis in ours.bases.get(name, ())] for name in want}
    return None if got == want else {"type": str(type_), "want": want, "got": got}


def main() -> None:
    context = bridge.new_context()  # a builder does not keep its context alive
    builder = gluon_ir.GluonOpBuilder(context)
    module = Module(Op("builtin.module", regions=[Region([Block()])]))
    result = {}
    for name, cases in GROUPS.items():
        checked, misses = 0, []
        for layout, shape in cases():
            checked += 1
            if miss := compare(builder, module, layout, shape):
                misses.append(miss)
        result[name] = {"checked": checked, "missed": len(misses), "misses": misses[:3]}
    print("@result " + json.dumps(result))


main()
