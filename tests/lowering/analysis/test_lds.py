"""Regions of LDS, what ops do to them, and how long buffers live."""

from __future__ import annotations

import pytest
from amdwarp.lowering.analysis.lds import (
    Access,
    NotFollowedError,
    OutOfRingError,
    Region,
    accesses,
    allocate,
    shape_of,
    site,
    touches_lds,
    uses_scratch,
    view,
)
from amdwarp.lowering.analysis.lifetimes import Lifetimes
from amdwarp.lowering.ir import Module, Op
from snippets import module

RING = "!ttg.memdesc<3x64x32xf16, #shared, #smem, mutable>"
SLOT = "!ttg.memdesc<64x32xf16, #shared, #smem, mutable>"
HALF = "!ttg.memdesc<32x32xf16, #shared, #smem, mutable, 64x32>"


def ring() -> Region:
    return allocate(Op("ttg.local_alloc", result_types=[RING], result_names=["%r"]))


def index(source: Region, number: int | None, type_text: str = RING) -> Region:
    buffer = Op("ttg.local_alloc", result_types=[type_text]).result
    slot = Op("arith.constant", result_types=["i32"]).result
    op = Op("ttg.memdesc_index", [buffer, slot], [SLOT])
    return view(op, source, number)


def part(source: Region, *offsets: int, type_text: str = HALF) -> Region:
    buffer = Op("ttg.local_alloc", result_types=[SLOT]).result
    text = f"array<i32: {', '.join(map(str, offsets))}>"
    return view(Op("ttg.memdesc_subslice", [buffer], [type_text], properties={"offsets": text}), source, None)


def turned(source: Region) -> Region:
    buffer = Op("ttg.local_alloc", result_types=[SLOT]).result
    return view(Op("ttg.memdesc_trans", [buffer], [SLOT]), source, None)


def test_slots_of_a_ring() -> None:
    whole = ring()
    first, second = index(whole, 0), index(whole, 1)
    assert str(first) == "slot 0 of LDS buffer 'r'"
    assert str(whole) == "LDS buffer 'r'"
    assert not first.overlaps(second)
    assert not first.meets(second)
    assert first.overlaps(whole) and first.meets(whole)
    assert first.meets(first)
    for outside in (-1, 3):
        with pytest.raises(OutOfRingError, match=f"slot index {outside} lies outside of LDS buffer 'r', which has 3"):
            index(whole, outside)


def test_an_unknown_slot_may_be_any() -> None:
    whole = ring()
    unknown = index(whole, None)
    assert str(unknown) == "LDS buffer 'r' (slot index not known)"
    assert unknown.overlaps(index(whole, 2))
    assert not unknown.meets(index(whole, 2))
    assert unknown.meets(whole)


def test_parts_of_a_slot() -> None:
    slot = index(ring(), 1)
    top, low = part(slot, 0, 0), part(slot, 32, 0)
    assert not top.overlaps(low)
    assert top.overlaps(slot) and top.meets(slot)
    assert top.overlaps(part(slot, 0, 0)) and top.meets(part(slot, 0, 0))
    assert part(part(slot, 32, 0), 0, 16).box == ((32, 32), (16, 32))


def test_a_turned_part_is_not_known_to_be_apart() -> None:
    slot = index(ring(), 1)
    assert turned(slot).overlaps(part(slot, 32, 0))
    assert turned(slot).meets(slot)
    assert turned(part(slot, 0, 0)).overlaps(part(slot, 32, 0))
    assert not turned(part(slot, 0, 0)).meets(part(slot, 32, 0))
    assert not turned(index(ring(), 0)).overlaps(index(ring(), 1))


def test_an_index_into_a_part_of_a_ring_may_be_any_slot() -> None:
    whole = ring()
    tail = part(whole, 1, 0, 0, type_text=RING.replace("<3x", "<2x"))
    first = index(tail, 0)
    assert first.slot is None
    assert first.overlaps(index(whole, 1)) and first.overlaps(index(whole, 0))
    assert not first.meets(index(whole, 0))
    with pytest.raises(OutOfRingError, match="has 2 slots"):
        index(tail, 2, RING.replace("<3x", "<2x"))
    assert index(turned(whole), 0).slot is None


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        ("ttg.local_load", {}, Access.READ),
        ("ttg.local_load", {"ttg.amdg.syncedViaAsyncWait": "true"}, Access.RELAXED_READ),
        ("ttg.local_load", {"ttg.amdg.syncedViaAsyncWait": "false"}, Access.READ),
        ("amdg.local_load_packed_transposed", {}, Access.READ),
        ("ttg.local_store", {}, Access.WRITE),
        ("amdg.buffer_load_to_local", {}, Access.ASYNC_WRITE),
        ("ttg.async_copy_global_to_local", {}, Access.ASYNC_WRITE),
        ("amdg.async_tdm_copy_global_to_local", {}, Access.ASYNC_WRITE),
        ("amdg.async_tdm_gather", {}, Access.ASYNC_WRITE),
    ],
)
def test_what_ops_do(name: str, attributes: dict[str, str], expected: Access) -> None:
    home = Op("ttg.local_alloc", result_types=[SLOT], result_names=["%r"])
    op = Op(name, [home.result], attributes=attributes)
    region = allocate(home)
    assert accesses(op, {home.result: region}) == [(expected, region)]
    assert touches_lds(op)


@pytest.mark.parametrize(
    "name", ["ttg.local_atomic_scatter_rmw", "amdg.init_barrier", "amdg.async_copy_local_to_global", "made.up"]
)
def test_what_is_not_followed(name: str) -> None:
    home = Op("ttg.local_alloc", result_types=[SLOT])
    with pytest.raises(NotFollowedError, match=f"what {name} does to shared memory is not followed"):
        accesses(Op(name, [home.result]), {home.result: allocate(home)})


def test_a_buffer_of_unknown_origin() -> None:
    home = Op("ttg.local_alloc", result_types=[SLOT], result_names=["%r"])
    with pytest.raises(NotFollowedError, match="which allocation %r is part of is not known"):
        accesses(Op("ttg.local_load", [home.result], ["tensor<64x32xf16>"]), {})


def test_an_allocation_with_contents_is_a_store() -> None:
    value = Op("arith.constant", result_types=["tensor<64x32xf16>"]).result
    op = Op("ttg.local_alloc", [value], [SLOT])
    assert [access for access, _ in accesses(op, {})] == [Access.WRITE]
    assert accesses(Op("ttg.local_alloc", result_types=[SLOT]), {}) == []


def test_shapes_and_scratch() -> None:
    assert shape_of(RING) == (3, 64, 32)
    assert shape_of("tensor<64xf16>") == (64,)
    assert shape_of("i32") == ()
    assert uses_scratch(Op("ttg.convert_layout"))
    assert uses_scratch(Op("tt.reduce"))
    assert not uses_scratch(Op("arith.addf"))


# ---- lifetimes


def buffers(mod: Module) -> tuple[Lifetimes, list[Op]]:
    (function,) = mod.functions()
    return Lifetimes(function), mod.ops("ttg.local_alloc")


BODY = """
    @buffer(r)
    @store(r)
    {first}
    @buffer(q)
    @store(q)
    {second}
"""


@pytest.mark.usefixtures("needs_triton")
@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        ("@load(a, r)", "@load(b, q)", True),
        ("@load(b, r)", "@load(a, r)", False),
        (
            "%v2 = ttg.memdesc_trans %r {order = array<i32: 0, 1>} : "
            "!ttg.memdesc<64x64xf16, #shared, #smem, mutable> -> !ttg.memdesc<64x64xf16, #shared, #smem, mutable>",
            "@load(a, v2)",
            False,
        ),
    ],
    ids=["one after the other", "used again", "used through a view"],
)
def test_lifetimes_in_straight_code(first: str, second: str, apart: bool) -> None:
    lifetimes, (r, q) = buffers(module(BODY.format(first=first, second=second)))
    assert lifetimes.apart(r.result, q.result) is apart
    assert lifetimes.apart(q.result, r.result) is apart


@pytest.mark.usefixtures("needs_triton")
def test_a_use_in_a_loop_lasts_to_its_end() -> None:
    text = """
    @buffer(r)
    scf.for %i = %c0 to %n step %c1 : i32 {
      @load(a, r)
      @buffer(q)
      @store(q)
    }
    @buffer(s)
    @store(s)
"""
    lifetimes, (r, q, s) = buffers(module(text))
    assert not lifetimes.apart(r.result, q.result)
    assert lifetimes.apart(r.result, s.result)
    assert lifetimes.apart(q.result, s.result)


@pytest.mark.usefixtures("needs_triton")
def test_a_buffer_handed_through_a_loop_lives_on() -> None:
    memdesc = "!ttg.memdesc<64x64xf16, #shared, #smem, mutable>"
    text = f"""
    @buffer(r)
    @buffer(u)
    %last:2 = scf.for %i = %c0 to %n step %c1 iter_args(%x0 = %r, %x1 = %u) -> ({memdesc}, {memdesc}) : i32 {{
      scf.yield %x1, %x0 : {memdesc}, {memdesc}
    }}
    @buffer(q)
    @store(q)
    ttg.local_store %v, %last#1 : tensor<64x64xf16, #blocked> -> {memdesc}
"""
    lifetimes, (r, u, q) = buffers(module(text))
    assert not lifetimes.apart(r.result, q.result)
    assert not lifetimes.apart(u.result, q.result)
    (convert,) = [op for op in lifetimes._position if op.name == "ttg.local_store" and op.operands[1] is q.result]
    assert not lifetimes.dead_at(convert, r.result)
    (start,) = [op for op in lifetimes._position if op.name == "scf.for"]
    assert lifetimes.dead_at(start, q.result)


@pytest.mark.usefixtures("needs_triton")
def test_a_buffer_that_goes_around_a_loop_lives_all_through_it() -> None:
    memdesc = "!ttg.memdesc<64x64xf16, #shared, #smem, mutable>"
    text = f"""
    @buffer(r)
    %last = scf.for %i = %c0 to %n step %c1 iter_args(%x0 = %r) -> ({memdesc}) : i32 {{
      @load(a, x0)
      @buffer(q)
      @store(q)
      @buffer(t)
      @store(t)
      scf.yield %t : {memdesc}
    }}
"""
    lifetimes, (_, q, t) = buffers(module(text))
    assert not lifetimes.apart(q.result, t.result)


@pytest.mark.usefixtures("needs_triton")
def test_a_site_names_the_call_too() -> None:
    mod = module('    %z = arith.addi %n, %n : i32 loc(callsite("helper.py":3:1 at "kernel.py":9:2))\n')
    (op,) = mod.ops("arith.addi")
    assert site(op) == "helper.py:3, called at kernel.py:9"
