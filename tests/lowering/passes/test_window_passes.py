"""The passes on intra-wave windows, each before and after, and the whole run of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from amdwarp.lowering.analysis.pricing import Price, Slot
from amdwarp.lowering.bridge import filecheck, new_context, pretty, write
from amdwarp.lowering.ir import Module
from amdwarp.lowering.passes import (
    ChunkStreams,
    DistributeCover,
    DropWindows,
    EmitGroups,
    HoistStaging,
    OpenWindows,
    PlaceChunks,
    windows,
)
from window_snippets import LEFT, SLOT, TILE, buffer_load, windowed

from amdwarp.errors import LoweringError
from amdwarp.stage import BEGIN
from amdwarp.stage import ORDER as STAGE_ORDER

pytestmark = pytest.mark.usefixtures("needs_triton")

SINGLE = """
    @@open(weave)
    @@left(la)
    %o = arith.addi %offsets, %far : tensor<64x64xi32, #blocked>
    %g = LOAD
    @@dot(d)
    @@right(lb)
    @@dot(e)
    @@close
""".replace("LOAD", buffer_load("%o"))
PAIR = """
    @@open(load, 0)
    @@left(la)
    @@global(g)
    @@close
    @@open(compute, 0)
    @@dot(d)
    @@close
"""


def run(body: str, *passes: Any) -> Module:
    mod = windowed(body)
    for one in passes:
        one.run(mod)
    write(mod, new_context())  # MLIR takes it
    return mod


def check(mod: Module, checks: str) -> None:
    filecheck(pretty(mod), checks)


def test_a_region_becomes_a_window() -> None:
    mod = run(SINGLE, OpenWindows())
    check(
        mod,
        """
        CHECK: rocdl.sched.barrier {{.*}}{amdwarp.window = 1 : i32, amdwarp.window.label = "weave"}
        CHECK-NEXT: ttg.local_load
        CHECK: rocdl.sched.barrier {{.*}}{amdwarp.window.end = 1 : i32}
        CHECK-NOT: amdwarp.stage
        """,
    )


def test_a_pair_becomes_one_window() -> None:
    mod = run(PAIR, OpenWindows())
    check(
        mod,
        """
        CHECK: rocdl.sched.barrier {{.*}}{{{.*}}amdwarp.window.label = "load", amdwarp.window.paired}
        CHECK-NEXT: ttg.local_load {{.*}}{amdwarp.window.region = 0 : i32}
        CHECK-NEXT: amdg.buffer_load {{.*}}{amdwarp.window.region = 0 : i32}
        CHECK-NEXT: tt.dot {{.*}}{amdwarp.window.region = 1 : i32}
        CHECK-NEXT: rocdl.sched.barrier {{.*}}{amdwarp.window.end = 1 : i32}
        CHECK-NOT: rocdl
        """,
    )


def test_a_pair_id_may_be_used_again() -> None:
    again = PAIR + PAIR.replace("(la)", "(u)").replace("(g)", "(h)").replace("(d)", "(f)")
    mod = run(again, OpenWindows())
    check(mod, "CHECK: amdwarp.window.end = 1 : i32\nCHECK: amdwarp.window.end = 2 : i32")


def test_arithmetic_between_the_regions_of_a_pair_goes_ahead_of_both() -> None:
    mod = run(PAIR.replace("@@open(compute", "%c = arith.addi %n, %m : i32\n    @@open(compute"), OpenWindows())
    check(
        mod,
        """
        CHECK: arith.addi
        CHECK-NEXT: amdwarp.window = 1
        CHECK: amdwarp.window.region = 0
        CHECK-NOT: arith.addi
        CHECK: amdwarp.window.region = 1
        """.replace("CHECK-NEXT: amdwarp", "CHECK-NEXT: rocdl.sched.barrier {{.*}}amdwarp"),
    )


def test_numbers_start_above_the_authors_own_groups() -> None:
    group = '"rocdl.sched.group.barrier"() <{groupId = 7 : i32, mask = MASK, size = 1 : i32}> : () -> ()'
    from amdwarp.lowering.spelling import mask_attribute

    mod = run("    " + group.replace("MASK", mask_attribute(8)) + SINGLE, OpenWindows())
    check(mod, "CHECK: amdwarp.window = 8 : i32")


STAGING = f"""
    @@open(weave)
    @@global(g)
    %staged = ttg.local_alloc %v : ({TILE}) -> {SLOT.replace(", mutable", "")}
    %la = ttg.local_load %staged : {SLOT.replace(", mutable", "")} -> {LEFT}
    @@dot(d, la)
    @@close
"""


def test_conversions_of_outside_values_go_in_front() -> None:
    check(
        run(STAGING, OpenWindows(), HoistStaging()),
        """
        CHECK: ttg.local_alloc %{{.*}} : (tensor
        CHECK-NEXT: ttg.local_load
        CHECK-NEXT: rocdl.sched.barrier {{.*}}amdwarp.window = 1
        CHECK-NEXT: amdg.buffer_load
        CHECK-NEXT: tt.dot
        CHECK-NEXT: rocdl.sched.barrier {{.*}}amdwarp.window.end
        """,
    )


def test_conversions_of_inside_values_and_the_authors_buffers_stay() -> None:
    inside = STAGING.replace("%staged = ttg.local_alloc %v", "%staged = ttg.local_alloc %g")
    mod = run(inside, OpenWindows(), HoistStaging())
    check(mod, "CHECK: amdwarp.window = 1\nCHECK: ttg.local_alloc %\nCHECK: ttg.local_load\nCHECK: amdwarp.window.end")
    mod = run(SINGLE, OpenWindows(), HoistStaging())
    check(mod, "CHECK: amdwarp.window = 1\nCHECK-NEXT: ttg.local_load")


def test_streams_chunks_and_prices() -> None:
    check(
        run(SINGLE, OpenWindows(), ChunkStreams()),
        """
        CHECK: ttg.local_load {{.*}}chunk = 0 : i32, {{.*}}price = "4 R128", {{.*}}stream = "memory"
        CHECK-NEXT: arith.addi {{.*}}chunk = 1 : i32, {{.*}}price = "8 V", {{.*}}stream = "memory"
        CHECK-NEXT: amdg.buffer_load {{.*}}chunk = 1 : i32, {{.*}}price = "1 G128", {{.*}}stream = "memory"
        CHECK-NEXT: tt.dot {{.*}}chunk = 0 : i32, {{.*}}price = "4 M", {{.*}}stream = "matrix"
        CHECK-NEXT: ttg.local_load {{.*}}chunk = 2 : i32, {{.*}}price = "{{.*}}R{{.*}}", {{.*}}stream = "memory"
        CHECK-NEXT: tt.dot {{.*}}chunk = 1 : i32, {{.*}}price = "4 M", {{.*}}stream = "matrix"
        """,
    )


def test_corrections_replace_prices() -> None:
    corrections = {(1, 0): (Price(Slot.DS_READ, 4, 64),)}
    mod = run(SINGLE, OpenWindows(), ChunkStreams(corrections))
    check(mod, 'CHECK: ttg.local_load {{.*}}price = "4 R64"\nCHECK: amdg.buffer_load {{.*}}price = "1 G128"')


def test_exponentials_that_lean_on_neither_stream_are_the_vector_stream() -> None:
    body = SINGLE.replace("@@close", "%z = math.exp2 %x0 : tensor<64x64xf32, #blocked>\n    @@close")
    body = "    %x0 = arith.addf %x, %x : tensor<64x64xf32, #blocked>\n" + body.replace("(la)", "(w)")
    mod = run(body, OpenWindows(), ChunkStreams())
    check(mod, 'CHECK: math.exp2 {{.*}}price = "8 T", {{.*}}stream = "vector"')


def test_chunks_are_woven_and_each_stream_keeps_its_order() -> None:
    check(
        run(SINGLE, OpenWindows(), ChunkStreams(), PlaceChunks()),
        """
        CHECK: amdwarp.window = 1
        CHECK-NEXT: ttg.local_load
        CHECK-NEXT: tt.dot {{.*}}chunk = 0
        CHECK-NEXT: arith.addi
        CHECK-NEXT: amdg.buffer_load
        CHECK-NEXT: tt.dot {{.*}}chunk = 1
        CHECK-NEXT: ttg.local_load
        CHECK-NEXT: rocdl.sched.barrier
        """,
    )


def test_memory_can_go_first_instead() -> None:
    check(
        run(SINGLE, OpenWindows(), ChunkStreams(), PlaceChunks(interleave=False)),
        """
        CHECK: amdwarp.window = 1
        CHECK-NEXT: ttg.local_load
        CHECK-NEXT: arith.addi
        CHECK-NEXT: amdg.buffer_load
        CHECK-NEXT: ttg.local_load
        CHECK-NEXT: tt.dot
        CHECK-NEXT: tt.dot
        CHECK-NEXT: rocdl.sched.barrier
        """,
    )


def test_cover_is_dealt_out_by_width() -> None:
    mod = run(PAIR, OpenWindows(), ChunkStreams(), DistributeCover())
    # 16 clocks for each LDS read and 64 for the global load want eight MFMA of 16 clocks, and there are four
    check(mod, 'CHECK: amdwarp.window.order = "R2 M R2 M G M2"')


def wanting(order: str, region: int = 0) -> Module:
    mod = windowed(PAIR)
    opened = [op for op in mod.walk() if BEGIN in op.attributes]
    opened[region].attributes[STAGE_ORDER] = f'"{order}"'
    return mod


def test_the_order_of_the_author_is_taken() -> None:
    mod = wanting("M V3 R4 M2 G M")
    for one in (OpenWindows(), ChunkStreams(), DistributeCover()):
        one.run(mod)
    check(mod, 'CHECK: amdwarp.window.order = "M V3 R4 M2 G M"')


def test_an_order_of_other_numbers_is_refused() -> None:
    mod = wanting("M R4 M2 G")
    with pytest.raises(LoweringError, match="its order has 3 of the instructions M, and there are 4; count them anew"):
        for one in (OpenWindows(), ChunkStreams(), DistributeCover()):
            one.run(mod)


def test_the_order_of_a_pair_belongs_to_its_first_region() -> None:
    with pytest.raises(LoweringError, match="the second region of a pair has an order; give it to the first, for both"):
        OpenWindows().run(wanting("M R4 M3 G", region=1))


def test_groups_stand_before_the_closing_wall() -> None:
    mod = run(PAIR, OpenWindows(), ChunkStreams(), DistributeCover(), EmitGroups())
    check(
        mod,
        """
        CHECK: tt.dot
        CHECK-NOT: amdwarp.window.stream
        CHECK-NEXT: rocdl.sched.group.barrier {{ds_read|256}}, 2, 1
        CHECK-NEXT: rocdl.sched.group.barrier {{mfma_wmma|8}}, 1, 1
        CHECK-NEXT: rocdl.sched.group.barrier {{ds_read|256}}, 2, 1
        CHECK-NEXT: rocdl.sched.group.barrier {{mfma_wmma|8}}, 1, 1
        CHECK-NEXT: rocdl.sched.group.barrier {{vmem_read|32}}, 1, 1
        CHECK-NEXT: rocdl.sched.group.barrier {{mfma_wmma|8}}, 2, 1
        CHECK-NEXT: rocdl.sched.barrier {{.*}}end = 1 : i32, amdwarp.window.ops = ["0 ttg.local_load {{.*}} 4 R128"
        """,
    )


def test_operations_of_one_source_position_are_told_apart() -> None:
    mod = windowed(PAIR)
    loads = mod.ops("ttg.local_load", "amdg.buffer_load", "tt.dot")
    for op in loads:
        op.loc = 'callsite("value"("helper.py":7:3) at "kernel.py":9:5)'
    for one in windows():
        one.run(mod)
    write(mod, new_context())
    places = [op.location() for op in mod.ops("ttg.local_load", "amdg.buffer_load", "tt.dot")]
    assert [(p.file, p.line, p.column) for p in places if p] == [
        ("helper.py", 7, 3),
        ("helper.py", 7, 1003),
        ("helper.py", 7, 2003),
    ]
    assert {(p.name, p.callers[0].line) for p in places if p} == {("value", 9)}


def test_windows_can_be_dropped() -> None:
    mod = run(SINGLE, DropWindows())
    check(mod, "CHECK-NOT: rocdl\nCHECK: tt.dot\nCHECK-NOT: rocdl")


@pytest.mark.parametrize("body", [SINGLE, PAIR])
def test_all_of_them_leave_only_walls_and_groups_behind(body: str) -> None:
    mod = run(body, *windows())
    stray: list[Mapping[str, str]] = [
        op.attributes for op in mod.walk() if op.name != "rocdl.sched.barrier" and "window" in str(op.attributes)
    ]
    assert stray == []
    assert len(mod.ops("rocdl.sched.barrier")) == 2
    assert mod.ops("rocdl.sched.group.barrier")
