"""Vector ALU: VOP1, VOP2, VOP3 and VOPC in their plain, DPP and SDWA encodings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from amdwarp.asm import Register, Symbol
from amdwarp.asm.program import EXEC, VCC
from amdwarp.emulator import arith
from amdwarp.emulator.bind import LISTS, Binder, Getter, MaskedSetter, handles
from amdwarp.emulator.convert import clamp_f16
from amdwarp.emulator.lanes import bind_dpp, dpp_source, sdwa_source, sdwa_target
from amdwarp.emulator.memory import Array
from amdwarp.emulator.modes import moded
from amdwarp.emulator.ops import ACCUMULATE, COMPARES, OPS, WIDE_MADS, Function
from amdwarp.emulator.ops_cdna import KEEPS_UPPER
from amdwarp.emulator.outputs import clamped
from amdwarp.emulator.state import Batch, Closure

Mask = Callable[[Batch], Array | None]


def exec_mask(b: Batch) -> Array | None:
    """Lanes that exec enables, None for all."""
    return b.mask


def vector_sources(binder: Binder, first: int, kinds: list[str]) -> tuple[list[Getter], Mask]:
    """Getters of the sources from operand `first` on, in the instruction's encoding, and the lanes it writes."""
    if binder.inst.encoding.endswith("dpp"):
        dpp = bind_dpp(binder)
        getters = [dpp_source(binder, dpp, first, kinds[0])]
        getters += [binder.source(first + at, kind) for at, kind in enumerate(kinds[1:], 1)]
        return getters, dpp.mask
    if binder.inst.encoding == "sdwa":
        if len(kinds) > 2:
            raise binder.fail("SDWA has at most two sources")
        return [sdwa_source(binder, first + at, at, kind) for at, kind in enumerate(kinds)], exec_mask
    select: tuple[int, ...] = binder.take("op_sel", ()) if any(kind.endswith("16") for kind in kinds) else ()
    getters = []
    for at, kind in enumerate(kinds):
        high = at < len(select) and select[at] == 1
        if high and not kind.endswith("16"):
            raise binder.fail("op_sel on a 32-bit operand")
        getters.append(binder.source(first + at, kind, high=high))
    if len(select) > len(kinds) and select[-1]:
        binder.left["op_sel_target"] = 1
    return getters, exec_mask


def vector_target(binder: Binder, at: int, kind: str) -> MaskedSetter:
    """Setter of the vector destination, in the instruction's encoding."""
    if binder.inst.encoding == "sdwa":
        return sdwa_target(binder, at, kind)
    high = binder.take("op_sel_target", 0) == 1
    if high and not kind.endswith("16"):
        raise binder.fail("op_sel on a 32-bit destination")
    if not high and not binder.wide_target and binder.inst.base in KEEPS_UPPER:
        return binder.row_target(binder.vector(at, 1), kind, keep=True)
    return binder.target(at, kind, high=high)


@handles(*OPS)
def bind_op(binder: Binder) -> Closure:
    """An operation of the table `OPS`."""
    kind, source_kinds, function = OPS[binder.inst.base]
    kinds = source_kinds.split()
    binder.need(1 + len(kinds))
    getters, mask_of = vector_sources(binder, 1, kinds)
    function = clamped(binder, function, kind, kinds)
    if mask_of is exec_mask and kind in LISTS and binder.inst.encoding != "sdwa":
        return _fast(binder, kind, getters, function)
    put = vector_target(binder, 0, kind)
    if kind == "f16" and function is not None:
        half = function
        return lambda b: put(b, _half_result(b, half, [source(b) for source in getters]), mask_of(b))
    return _general(getters, mask_of, function, put)


def _half_result(b: Batch, function: Function, args: list[Any]) -> Any:
    """An f16 result, clamped where MODE says so."""
    return clamp_f16(b, function(*args), *args)


def _fast(binder: Binder, kind: str, getters: list[Getter], function: Function | None) -> Closure:
    """32-bit result, plain encoding: write in place where every lane is on."""
    row, which = binder.vector(0, 1), LISTS[kind]
    if function is None or not isinstance(function, np.ufunc):
        if len(getters) == 1:
            return _fast1(row, which, getters[0], function)
        if len(getters) == 2:
            return _fast2(row, which, getters, function)
    x = getters[0]
    if len(getters) == 2:
        y = getters[1]

        def run2(b: Batch) -> None:
            if b.mask is None:
                function(x(b), y(b), out=b.r[which][row])  # type: ignore[misc]
            else:
                np.copyto(b.r[which][row], function(x(b), y(b)), where=b.mask)  # type: ignore[misc]

        return run2
    return _general(getters, exec_mask, function, binder.row_target(row, kind))


def _fast1(row: int, which: int, x: Getter, function: Function | None) -> Closure:
    def run(b: Batch) -> None:
        value = x(b) if function is None else function(x(b))
        if b.mask is None:
            b.r[which][row][...] = value
        else:
            np.copyto(b.r[which][row], value, where=b.mask)

    return run


def _fast2(row: int, which: int, getters: list[Getter], function: Any) -> Closure:
    x, y = getters

    def run(b: Batch) -> None:
        if b.mask is None:
            b.r[which][row][...] = function(x(b), y(b))
        else:
            np.copyto(b.r[which][row], function(x(b), y(b)), where=b.mask)

    return run


def _general(getters: list[Getter], mask_of: Mask, function: Function | None, put: MaskedSetter) -> Closure:
    if len(getters) == 1:
        x = getters[0]
        if function is None:
            return lambda b: put(b, x(b), mask_of(b))
        one = function
        return lambda b: put(b, one(x(b)), mask_of(b))
    assert function is not None
    many = function
    if len(getters) == 3:
        p, q, r = getters
        return lambda b: put(b, many(p(b), q(b), r(b)), mask_of(b))
    return lambda b: put(b, many(*(source(b) for source in getters)), mask_of(b))


@handles(*ACCUMULATE)
def bind_accumulate(binder: Binder) -> Closure:
    """d = a * b + d."""
    kind, source_kind, function = ACCUMULATE[binder.inst.base]
    binder.need(3)
    getters, mask_of = vector_sources(binder, 1, [source_kind, source_kind])
    op = binder.ops[0]
    old = binder.plain_source(op, 0, kind)
    operate = clamped(binder, function, kind, [source_kind, source_kind, kind])
    return _general([*getters, old], mask_of, operate, vector_target(binder, 0, kind))


@handles("v_fmamk_f32", "v_madmk_f32", "v_fmaak_f32", "v_madak_f32")
def bind_literal_fma(binder: Binder) -> Closure:
    """Fused multiply-add with a literal: fmamk is s0 * k + s1, fmaak is s0 * s1 + k, both in the text's order."""
    binder.need(4)
    getters = [binder.source(at, "f32") for at in (1, 2, 3)]
    function = clamped(binder, arith.fma32, "f32", ["f32"] * 3)
    return _general(getters, exec_mask, function, binder.target(0, "f32"))


_UNFUSED = ("v_mad_f16", "v_mad_legacy_f16", "v_mac_f16", "v_madak_f16", "v_madmk_f16")


@handles(*_UNFUSED)
def bind_unfused(binder: Binder) -> Closure:
    """f16 multiply-add with two roundings; mac adds to its destination."""
    base = binder.inst.base
    accumulates = base == "v_mac_f16"
    binder.need(3 if accumulates else 4)
    getters, mask_of = vector_sources(binder, 1, ["f16"] * (2 if accumulates else 3))
    if accumulates:
        getters = [*getters, binder.plain_source(binder.ops[0], 0, "f16")]
    multiply: Function = np.multiply
    add: Function = np.add
    if not binder.plain_mode:
        multiply = moded("mul", np.multiply, "f16", ["f16", "f16"], binder.cell)
        add = moded("add", np.add, "f16", ["f16", "f16"], binder.cell)
        binder.cell.used = True
    operate = clamped(binder, lambda a, b, c: add(multiply(a, b), c), "f16")
    assert operate is not None
    put, function = vector_target(binder, 0, "f16"), operate
    return lambda b: put(b, _half_result(b, function, [source(b) for source in getters]), mask_of(b))


@handles("v_cndmask_b32")
def bind_select(binder: Binder) -> Closure:
    """mask ? second : first."""
    binder.need(4)
    floats = any(isinstance(op, Register) and (op.neg or op.absolute) for op in binder.ops[1:3])
    kind = "f32" if floats else "u32"
    condition = binder.mask_source(3)
    getters, mask_of = vector_sources(binder, 1, [kind, kind])
    x, y = getters
    put = vector_target(binder, 0, kind)
    return lambda b: put(b, np.where(condition(b), y(b), x(b)), mask_of(b))


def _carry_target(binder: Binder, at: int) -> Callable[[Batch, Array], None]:
    """Setter of a lane mask; lanes that are off become 0."""
    if binder.ops[at] == Symbol("null"):
        return lambda b, bits: None
    index = binder.scalar(at, binder.lanes // 32)

    def put(b: Batch, bits: Array) -> None:
        bits = np.broadcast_to(bits, (b.n, b.group.lanes))
        b.set_lane_mask(index, bits if b.mask is None else bits & b.mask)

    return put


_CARRY: dict[str, tuple[bool, Callable[[Any, Any, Any], Any]]] = {
    "v_add_co_u32": (False, lambda a, b, c: a + b),
    "v_sub_co_u32": (False, lambda a, b, c: a - b),
    "v_subrev_co_u32": (False, lambda a, b, c: b - a),
    "v_addc_co_u32": (True, lambda a, b, c: a + b + c),
    "v_subb_co_u32": (True, lambda a, b, c: a - b - c),
    "v_subbrev_co_u32": (True, lambda a, b, c: b - a - c),
}


@handles(*_CARRY)
def bind_carry(binder: Binder) -> Closure:
    """32-bit add and subtract with a carry per lane; clamp keeps the result from wrapping."""
    takes, function = _CARRY[binder.inst.base]
    binder.need(5 if takes else 4)
    (x, y), mask_of = vector_sources(binder, 2, ["u32", "u32"])
    carry_in = binder.mask_source(4) if takes else None
    clamp = binder.flag("clamp")
    put, put_carry = vector_target(binder, 0, "u32"), _carry_target(binder, 1)

    def run(b: Batch) -> None:
        carry = carry_in(b).astype(np.int64) if carry_in is not None else 0
        total = np.asarray(function(np.asarray(x(b)).astype(np.int64), np.asarray(y(b)).astype(np.int64), carry))
        kept = np.clip(total, 0, 0xFFFFFFFF) if clamp else total & 0xFFFFFFFF
        put(b, kept.astype(np.uint32), mask_of(b))
        put_carry(b, (total < 0) | (total > 0xFFFFFFFF))

    return run


@handles(*WIDE_MADS)
def bind_wide_mad(binder: Binder) -> Closure:
    """64-bit a * b + c; the carry out goes to a lane mask."""
    kind, dtype = WIDE_MADS[binder.inst.base]
    binder.need(5)
    x, y = (binder.source(at, kind) for at in (2, 3))
    z = binder.source(4, "u64" if dtype is np.uint64 else "i64")
    put, put_carry = binder.target(0, "u64"), _carry_target(binder, 1)

    def run(b: Batch) -> None:
        product, addend = np.multiply(x(b), y(b), dtype=dtype), np.asarray(z(b))
        total = np.asarray(product + addend)
        over = total < addend if dtype is np.uint64 else (total < addend) != (product < 0)
        put(b, total.view(np.uint64), b.mask)
        put_carry(b, over)

    return run


@handles(*(f"v_cmp_{tail}" for tail in COMPARES), *(f"v_cmpx_{tail}" for tail in COMPARES))
def bind_compare(binder: Binder) -> Closure:
    """Comparison to a lane mask; cmpx also writes exec."""
    base = binder.inst.base
    to_exec = base.startswith("v_cmpx_")
    first, second, function = COMPARES[base.split("_", 2)[2]]
    if first[0] == "f" and "_class_" not in base and not binder.plain_mode:
        function = moded("", function, "mask", [first, second], binder.cell)
        binder.cell.used = True
    # Since gfx10 cmpx writes exec only.
    only_exec = to_exec and binder.wide_target
    binder.need(2 if only_exec else 3)
    index = EXEC if only_exec else binder.scalar(0, binder.lanes // 32)
    if binder.inst.encoding.endswith("dpp") and not (binder.wide_target and binder.inst.has("bound_ctrl")):
        raise binder.fail("DPP comparisons are not known without bound_ctrl, and not on gfx9")
    (x, y), mask_of = vector_sources(binder, 0 if only_exec else 1, [first, second])

    def run(b: Batch) -> None:
        bits = np.broadcast_to(function(x(b), y(b)), (b.n, b.group.lanes))
        on = mask_of(b)
        if on is not None:
            bits = bits & on
        b.set_lane_mask(index, bits)
        if to_exec:
            b.set_lane_mask(EXEC, bits)

    return run


@handles("v_div_scale_f32", "v_div_scale_f64")
def bind_div_scale(binder: Binder) -> Closure:
    """Scale a division operand; the flag goes to a lane mask."""
    kind = binder.inst.base[-3:]
    binder.need(5)
    getters = [binder.source(at, kind) for at in (2, 3, 4)]
    put, put_flag = binder.target(0, kind), _carry_target(binder, 1)

    def run(b: Batch) -> None:
        s0, s1, s2 = (source(b) for source in getters)
        value, flags = arith.div_scale(s0, s1, s2, kind)
        put(b, value, b.mask)
        put_flag(b, flags)

    return run


@handles("v_div_fmas_f32", "v_div_fmas_f64")
def bind_div_fmas(binder: Binder) -> Closure:
    """Fused multiply-add scaled by vcc."""
    kind = binder.inst.base[-3:]
    binder.need(4)
    x, y, z = (binder.source(at, kind) for at in (1, 2, 3))
    put = binder.target(0, kind)

    def fmas(a: Any, c: Any, d: Any, flags: Any) -> Any:
        return arith.div_fmas(a, c, d, flags, kind)

    function: Function | None = fmas
    if not binder.plain_mode:
        function, binder.cell.used = moded("", fmas, kind, [kind, kind, kind, "mask"], binder.cell), True
    operate = clamped(binder, function, kind)
    assert operate is not None
    return lambda b: put(b, operate(x(b), y(b), z(b), b.lane_mask(VCC)), b.mask)


@handles("v_bitop3_b32", "v_bitop3_b16")
def bind_bitop3(binder: Binder) -> Closure:
    """Any function of three bits: bit (a * 4 + b * 2 + c) of the table."""
    kind = "u" + binder.inst.base[-2:]
    binder.need(4)
    table = binder.take("bitop3", 0)
    getters, mask_of = vector_sources(binder, 1, [kind] * 3)
    put = vector_target(binder, 0, kind)
    terms = [row for row in range(8) if table >> row & 1]

    def function(a: Any, b: Any, c: Any) -> Any:
        out = np.zeros_like(np.asarray(a) | b | c)
        for row in terms:
            out = out | (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
        return out

    return _general(getters, mask_of, function, put)


@handles("v_nop", "v_clrexcp")
def bind_nop(binder: Binder) -> Closure:
    """Nothing."""
    return lambda b: None
