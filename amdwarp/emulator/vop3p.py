"""Packed vector ALU: VOP3P. Halves (16-bit) or register pairs (32-bit) are chosen by op_sel and op_sel_hi."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from amdwarp.asm import Immediate, Register, Symbol
from amdwarp.emulator import arith
from amdwarp.emulator.bind import TYPES, Binder, Getter, handles, vector_of
from amdwarp.emulator.convert import clamp_f16, f16_conversion
from amdwarp.emulator.floats import bf16_value
from amdwarp.emulator.ops import fmax, fmin
from amdwarp.emulator.outputs import clamped
from amdwarp.emulator.state import Batch, Closure
from amdwarp.emulator.valu import vector_sources

Function = Callable[..., Any]

#: Two f32 in a register pair: mnemonic to (number of sources, function).
PAIRS: dict[str, tuple[int, Function]] = {
    "v_pk_fma_f32": (3, arith.fma32),
    "v_pk_mul_f32": (2, np.multiply),
    "v_pk_add_f32": (2, np.add),
}

#: Two 16-bit elements in a register: mnemonic to (type, number of sources, function).
HALVES: dict[str, tuple[str, int, Function]] = {
    "v_pk_fma_f16": ("f16", 3, arith.fma16),
    "v_pk_add_f16": ("f16", 2, np.add),
    "v_pk_mul_f16": ("f16", 2, np.multiply),
    "v_pk_min_f16": ("f16", 2, fmin),
    "v_pk_max_f16": ("f16", 2, fmax),
    "v_pk_minimum3_f16": ("f16", 3, lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "v_pk_maximum3_f16": ("f16", 3, lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "v_pk_add_u16": ("u16", 2, np.add),
    "v_pk_add_i16": ("i16", 2, np.add),
    "v_pk_sub_u16": ("u16", 2, np.subtract),
    "v_pk_sub_i16": ("i16", 2, np.subtract),
    "v_pk_mul_lo_u16": ("u16", 2, np.multiply),
    "v_pk_mad_u16": ("u16", 3, lambda a, b, c: a * b + c),
    "v_pk_mad_i16": ("i16", 3, lambda a, b, c: a * b + c),
    "v_pk_lshlrev_b16": ("u16", 2, lambda n, a: a << (n & np.uint16(15))),
    "v_pk_lshrrev_b16": ("u16", 2, lambda n, a: a >> (n & np.uint16(15))),
    "v_pk_ashrrev_i16": ("i16", 2, lambda n, a: a >> (n & np.int16(15))),
    "v_pk_min_u16": ("u16", 2, np.minimum),
    "v_pk_max_u16": ("u16", 2, np.maximum),
    "v_pk_min_i16": ("i16", 2, np.minimum),
    "v_pk_max_i16": ("i16", 2, np.maximum),
}


def _selectors(binder: Binder, count: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Per-source tuples ((op_sel, neg_lo), (op_sel_hi, neg_hi)): for the low and for the high result."""
    zeros, ones = (0,) * count, (1,) * count
    fields = []
    for name, default in (("op_sel", zeros), ("neg_lo", zeros), ("op_sel_hi", ones), ("neg_hi", zeros)):
        value = binder.take(name, default)
        if not isinstance(value, tuple) or len(value) != count:
            raise binder.fail(f"{name} must have {count} entries")
        fields.append(value)
    return [(fields[0], fields[1]), (fields[2], fields[3])]


def _negated(get: Getter, neg: int) -> Getter:
    return (lambda b: np.negative(get(b))) if neg else get


def pair_source(binder: Binder, at: int, which: int, kind: str = "f32") -> Getter:
    """Getter of half `which` (0 low, 1 high) of a 64-bit operand; constants are the same in both halves."""
    op = binder.ops[at]
    if isinstance(op, (Immediate, Symbol)):
        return binder.plain_source(op, at, kind)
    if op.neg or op.absolute:
        raise binder.fail("packed operands are negated with neg_lo and neg_hi")
    if op.count != 2:
        raise binder.fail(f"operand {at + 1} must be a register pair")
    if op.kind == "s":
        # gfx1250 takes the lower register for both halves.
        index = op.index + (0 if binder.wide_target else which)
        return lambda b: vector_of(b.s[index], kind)
    return binder.plain_source(Register(op.kind, op.index + which), at, kind)


@handles(*PAIRS)
def bind_pair(binder: Binder) -> Closure:
    """Two f32 operations on register pairs."""
    count, function = PAIRS[binder.inst.base]
    binder.need(1 + count)
    halves = _selectors(binder, count)
    row = binder.vector(0, 2)
    run_of = clamped(binder, function, "f32", ["f32"] * count)
    assert run_of is not None
    operate = run_of
    low, high = (
        [_negated(pair_source(binder, 1 + at, select[at]), neg[at]) for at in range(count)] for select, neg in halves
    )
    put_low, put_high = binder.row_target(row, "f32"), binder.row_target(row + 1, "f32")
    if count == 2:
        (p, q), (r, s) = low, high

        def run2(b: Batch) -> None:
            first, second = operate(p(b), q(b)), operate(r(b), s(b))
            put_low(b, first, b.mask)
            put_high(b, second, b.mask)

        return run2

    def run(b: Batch) -> None:
        first, second = operate(*(get(b) for get in low)), operate(*(get(b) for get in high))
        put_low(b, first, b.mask)
        put_high(b, second, b.mask)

    return run


@handles("v_pk_mov_b32")
def bind_pair_move(binder: Binder) -> Closure:
    """Low result from the half of source 0 that op_sel[0] names, high result from source 1 and op_sel[1]."""
    binder.need(3)
    select = binder.take("op_sel", (0, 0))
    binder.ignore("op_sel_hi")
    row = binder.vector(0, 2)
    low, high = (pair_source(binder, 1 + at, select[at], "u32") for at in (0, 1))
    put_low, put_high = binder.row_target(row, "u32"), binder.row_target(row + 1, "u32")

    def run(b: Batch) -> None:
        first, second = np.array(low(b)), np.array(high(b))
        put_low(b, first, b.mask)
        put_high(b, second, b.mask)

    return run


@handles(*HALVES)
def bind_halves(binder: Binder) -> Closure:
    """Two 16-bit operations on the halves of registers."""
    kind, count, function = HALVES[binder.inst.base]
    binder.need(1 + count)
    halves = _selectors(binder, count)
    if kind[0] != "f" and any(any(neg) for _, neg in halves):
        raise binder.fail("neg needs a floating-point operation")
    operate = (
        clamped(binder, function, kind, [kind] * count) if kind[0] == "f" else _clamped_half(binder, function, kind)
    )
    assert operate is not None
    low, high = ([_half(binder, 1 + at, select[at], neg[at], kind) for at in range(count)] for select, neg in halves)
    put = binder.target(0, "u32")

    def one(b: Batch, getters: list[Getter]) -> Any:
        args = [get(b) for get in getters]
        value = operate(*args)
        return np.asarray(clamp_f16(b, value, *args) if kind == "f16" else value).view(np.uint16)

    def run(b: Batch) -> None:
        first, second = one(b, low), one(b, high)
        put(b, first.astype(np.uint32) | second.astype(np.uint32) << np.uint32(16), b.mask)

    return run


_EXACT_HALVES: dict[str, Function] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mad": lambda a, b, c: a * b + c,
    "mul": lambda a, b: a * b,
}


def _clamped_half(binder: Binder, function: Function, kind: str) -> Function:
    """`function` with its result clamped to the type's range, if the instruction has clamp."""
    if not binder.flag("clamp"):
        return function
    exact = _EXACT_HALVES.get(binder.inst.base.split("_")[2])
    if exact is None:
        raise binder.fail("clamp is not known for this integer operation")
    limits = np.iinfo(TYPES[kind])

    def run(*args: Any) -> Any:
        wide = exact(*(np.asarray(arg).astype(np.int64) for arg in args))
        return np.clip(wide, limits.min, limits.max).astype(TYPES[kind])

    return run


def _half(binder: Binder, at: int, which: int, neg: int, kind: str) -> Getter:
    op = binder.ops[at]
    if isinstance(op, Immediate):
        # An inline constant fills the low half only; a literal has both.
        wide = binder.plain_source(op, at, kind) if isinstance(op.value, float) else None
        if wide is None:
            assert isinstance(op.value, int)
            value = TYPES["u16"](op.value >> 16 * which & 0xFFFF).view(TYPES[kind])
            return _negated(lambda b: value, neg)
        zero = TYPES[kind](0)
        return _negated((lambda b: zero) if which else wide, neg)
    return _negated(binder.source(at, kind, high=bool(which)), neg)


@handles("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16")
def bind_mixed(binder: Binder) -> Closure:
    """Fused multiply-add of f32; op_sel_hi marks a source as f16, op_sel its half, neg_hi takes its absolute value."""
    binder.need(4)
    select, is_half = binder.take("op_sel", (0, 0, 0)), binder.take("op_sel_hi", (0, 0, 0))
    neg, absolute = binder.take("neg_lo", (0, 0, 0)), binder.take("neg_hi", (0, 0, 0))

    def one(at: int) -> Getter:
        if is_half[at]:
            narrow = binder.source(1 + at, "f16", high=bool(select[at]))
            get: Getter = lambda b: narrow(b).astype(np.float32)  # noqa: E731
        else:
            get = binder.source(1 + at, "f32")
        if absolute[at]:
            signed = get
            get = lambda b: np.abs(signed(b))  # noqa: E731
        return _negated(get, neg[at])

    x, y, z = (one(at) for at in range(3))
    name = binder.inst.base
    operate = clamped(binder, arith.fma32, "f32", ["f32"] * 3)
    assert operate is not None
    if name == "v_fma_mix_f32":
        put = binder.target(0, "f32")
        return lambda b: put(b, operate(x(b), y(b), z(b)), b.mask)
    row = binder.vector(0, 1)
    shift = np.uint32(16 if name == "v_fma_mixhi_f16" else 0)
    keep = np.uint32(0xFFFF if name == "v_fma_mixhi_f16" else 0xFFFF0000)
    put = binder.row_target(row, "u32")
    narrow16 = f16_conversion(binder)

    def run(b: Batch) -> None:
        wide = operate(x(b), y(b), z(b))
        half = clamp_f16(b, narrow16(wide), wide).view(np.uint16).astype(np.uint32)
        put(b, half << shift | (b.r[0][row] & keep), b.mask)

    return run


@handles("v_pk_fmac_f16")
def bind_packed_accumulate(binder: Binder) -> Closure:
    """Two f16 multiply-adds into the destination."""
    binder.need(3)
    (x, y), mask_of = vector_sources(binder, 1, ["u32", "u32"])
    row, put = binder.vector(0, 1), binder.target(0, "u32")
    operate = clamped(binder, arith.fma16, "f16", ["f16"] * 3)
    assert operate is not None

    def half(value: Any, at: int) -> Any:
        return (np.asarray(value) >> np.uint32(16 * at)).astype(np.uint16).view(np.float16)

    def run(b: Batch) -> None:
        sources = (x(b), y(b), b.r[0][row])
        out: Any = np.uint32(0)
        for at in (0, 1):
            args = [half(value, at) for value in sources]
            bits = clamp_f16(b, operate(*args), *args).view(np.uint16).astype(np.uint32)
            out = out | bits << np.uint32(16 * at)
        put(b, out, mask_of(b))

    return run


#: Dot products of packed elements: mnemonic to (element type, result type). With "c" in the name the destination is
#: the addend.
DOTS: dict[str, tuple[str, str]] = {
    "v_dot2_f32_f16": ("f16", "f32"),
    "v_dot2_f32_bf16": ("bf16", "f32"),
    "v_dot2c_f32_f16": ("f16", "f32"),
    "v_dot2c_f32_bf16": ("bf16", "f32"),
    "v_dot2_i32_i16": ("i16", "i32"),
    "v_dot2_u32_u16": ("u16", "u32"),
    "v_dot2c_i32_i16": ("i16", "i32"),
    "v_dot4_i32_i8": ("i8", "i32"),
    "v_dot4_u32_u8": ("u8", "u32"),
    "v_dot4c_i32_i8": ("i8", "i32"),
    "v_dot8_i32_i4": ("i4", "i32"),
    "v_dot8_u32_u4": ("u4", "u32"),
    "v_dot8c_i32_i4": ("i4", "i32"),
}


def _elements(value: Any, kind: str) -> list[Any]:
    """The packed elements of uint32 `value` as f64 (exact for all these types)."""
    bits = np.asarray(value)
    if kind[0] in "iu":
        width = int(kind[1:])
        fields: list[Any] = [bits >> np.uint32(at) & np.uint32((1 << width) - 1) for at in range(0, 32, width)]
        spare = np.uint32(32 - width)
        if kind[0] == "i":
            fields = [(field << spare).view(np.int32) >> spare.view(np.int32) for field in fields]
        return [field.astype(np.float64) for field in fields]
    halves = [bits & np.uint32(0xFFFF), bits >> np.uint32(16)]
    if kind == "f16":
        return [half.astype(np.uint16).view(np.float16).astype(np.float64) for half in halves]
    return [bf16_value(half).astype(np.float64) for half in halves]


def _signs(binder: Binder, kind: str) -> list[tuple[float, float]]:
    """Factors of the two element pairs from neg_lo and neg_hi."""
    fields = [binder.take(name, (0, 0, 0)) for name in ("neg_lo", "neg_hi")]
    if kind[0] in "iu" and any(any(field) for field in fields):
        raise binder.fail("neg needs a floating-point operation")
    if any(len(field) > 2 and field[2] for field in fields):
        raise binder.fail("the addend of a dot product is negated with a minus")
    return [(1.0 - 2 * field[0], 1.0 - 2 * field[1]) for field in fields]


@handles(*DOTS)
def bind_dot(binder: Binder) -> Closure:
    """c + the sum of products of packed elements; clamp keeps integers from wrapping and f32 within [0, 1]."""
    name = binder.inst.base
    kind, result = DOTS[name]
    accumulates = "c_" in name
    binder.need(3 if accumulates else 4)
    if any(value != (1,) * len(value) for value in (binder.take("op_sel_hi", (1,)),) if isinstance(value, tuple)):
        raise binder.fail("op_sel_hi other than ones is not known for a dot product")
    signs = _signs(binder, kind)
    (x, y), mask_of = vector_sources(binder, 1, ["u32", "u32"])
    z = binder.plain_source(binder.ops[0], 0, result) if accumulates else binder.source(3, result)
    put = binder.target(0, result)
    clamp = binder.flag("clamp")
    limits = None if result == "f32" else np.iinfo(TYPES[result])

    def run(b: Batch) -> None:
        pairs = zip(_elements(x(b), kind), _elements(y(b), kind), strict=True)
        if limits is None:
            products = [(s * p) * (t * q) for (p, q), (s, t) in zip(pairs, signs, strict=True)]
        else:
            products = [p * q for p, q in pairs]
        total = sum(products) + np.asarray(z(b)).astype(np.float64)
        if limits is None:
            single = total.astype(np.float32)
            put(b, np.clip(np.nan_to_num(single, nan=0.0), 0, 1) if clamp else single, mask_of(b))
            return
        if clamp:
            total = np.clip(total, limits.min, limits.max)
        put(b, total.astype(np.int64).astype(TYPES[result]), mask_of(b))

    return run
