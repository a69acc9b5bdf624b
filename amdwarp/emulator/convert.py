"""Conversions between f32 (or packed f16, bf16) and the 8- and 4-bit formats.

Overflow follows MODE.FP16_OVFL: with it set, what is too large becomes the largest finite value, else NaN or infinity.
The scalef32 forms of gfx950 multiply (towards the wide type) or divide (towards the narrow type) by the power of two in
the exponent field of their scale operand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from amdwarp.emulator.bind import Binder, MaskedSetter, handles
from amdwarp.emulator.floats import FP4, FP8_OF_TARGET, SmallFloat, bf16_bits, bf16_value, decode, encode
from amdwarp.emulator.lanes import SELECTIONS
from amdwarp.emulator.memory import Array
from amdwarp.emulator.modes import moded
from amdwarp.emulator.state import Batch, Closure

#: MODE bit that makes conversions clamp.
FP16_OVFL = 1 << 23

U16, U32, F32 = np.uint16, np.uint32, np.float32


def overflow_clamps(b: Batch) -> bool:
    """True where MODE.FP16_OVFL is set."""
    return bool(b.mode & FP16_OVFL)


def clamp_f16(b: Batch, value: Any, *sources: Any) -> Any:
    """f16 `value`, with overflow of finite `sources` to infinity undone where MODE asks for it."""
    if not overflow_clamps(b):
        return value
    over = np.isinf(value)
    for source in sources:
        over = over & np.isfinite(source)
    return np.where(over, np.copysign(np.float16(65504), value), value).astype(np.float16)


def float_format(binder: Binder, name: str) -> SmallFloat:
    forms = FP8_OF_TARGET.get(binder.program.target)
    if name == "fp4":
        return FP4
    if forms is None:
        raise binder.fail(f"{name} is not known on {binder.program.target}")
    return forms[0] if name == "fp8" else forms[1]


def narrow(b: Batch, value: Any, form: SmallFloat) -> Array:
    """uint32 codes of f32 `value` under the batch's overflow mode."""
    codes = encode(np.asarray(value), form)
    if overflow_clamps(b):
        largest = U32(form.top) | np.signbit(value).astype(U32) << U32(form.bits - 1)
        limit = 0.5 * (float(decode(np.array(form.top), form)) + _next(form))
        codes = np.where(np.abs(value) >= limit, largest, codes)
    return codes


def _next(form: SmallFloat) -> float:
    """The value that would follow the largest one."""
    top = float(decode(np.array(form.top), form))
    return top + (top - float(decode(np.array(form.top - 1), form)))


# fp8 and bf8 of gfx942 and gfx950


def half_target(binder: Binder, upper: bool) -> MaskedSetter:
    """Setter of 16 bits of operand 0; the other half stays."""
    row = binder.vector(0, 1)
    shift, keep = U32(16 if upper else 0), U32(0xFFFF if upper else 0xFFFF0000)

    def put(b: Batch, value: Any, mask: Array | None) -> None:
        whole = (value & U32(0xFFFF)) << shift | (b.r[0][row] & keep)
        if mask is None:
            b.r[0][row][...] = whole
        else:
            np.copyto(b.r[0][row], whole, where=mask)

    return put


@handles("v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32")
def bind_pack8(binder: Binder) -> Closure:
    """Two f32 to two codes in one half of the destination."""
    binder.need(3)
    form = float_format(binder, binder.inst.base.split("_")[3])
    select = binder.take("op_sel", (0, 0, 0))
    put = half_target(binder, bool(select[-1]))
    x, y = binder.source(1, "f32"), binder.source(2, "f32")
    return lambda b: put(b, narrow(b, x(b), form) | narrow(b, y(b), form) << U32(8), b.mask)


def _selected(binder: Binder, at: int, width: int) -> Callable[[Batch], Any]:
    """uint32 field of operand `at` that SDWA or op_sel selects, `width` bits."""
    get = binder.source(at, "u32")
    if binder.inst.encoding == "sdwa":
        name = binder.take("src0_sel", "DWORD")
        if name not in SELECTIONS:
            raise binder.fail(f"selection {name} is not known")
        shift = SELECTIONS[name][0]
    else:
        select = binder.take("op_sel", (0, 0))
        if width == 16:
            shift = 16 * select[0]
        else:
            shift = 8 * (select[0] << 1 | select[1]) if len(select) > 1 else 8 * select[0]
    amount, mask = U32(shift), U32((1 << width) - 1)
    return lambda b: np.asarray(get(b)) >> amount & mask


@handles("v_cvt_f32_fp8", "v_cvt_f32_bf8")
def bind_unpack8(binder: Binder) -> Closure:
    """One code to f32."""
    binder.need(2)
    form = float_format(binder, binder.inst.base.split("_")[3])
    code, put = _selected(binder, 1, 8), binder.target(0, "f32")
    return lambda b: put(b, decode(code(b), form), b.mask)


@handles("v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8")
def bind_unpack8_pair(binder: Binder) -> Closure:
    """Two codes to two f32 in a register pair."""
    binder.need(2)
    form = float_format(binder, binder.inst.base.split("_")[4])
    codes, row = _selected(binder, 1, 16), binder.vector(0, 2)
    put_low, put_high = binder.row_target(row, "f32"), binder.row_target(row + 1, "f32")

    def run(b: Batch) -> None:
        pair = codes(b)
        put_low(b, decode(pair & U32(0xFF), form), b.mask)
        put_high(b, decode(pair >> U32(8), form), b.mask)

    return run


# gfx950: with a scale


def scale_of(binder: Binder, at: int) -> Callable[[Batch], Any]:
    """Power of two in the exponent field of f32 operand `at`, as f64."""
    get = binder.source(at, "u32")

    def read(b: Batch) -> Any:
        exponent = (np.asarray(get(b)) >> U32(23) & U32(0xFF)).astype(np.int64)
        return np.where(exponent == 255, np.nan, np.ldexp(1.0, exponent - 127))

    return read


def _packed_halves(low: Any, high: Any, kind: str, b: Batch) -> Array:
    """Two f32 as packed f16 or bf16."""
    if kind == "bf16":
        return bf16_bits(low) | bf16_bits(high) << U32(16)
    first, second = (clamp_f16(b, v.astype(np.float16), v).view(U16).astype(U32) for v in (low, high))
    packed: Array = first | second << U32(16)
    return packed


_UNPACK = [f"v_cvt_scalef32_pk_{wide}_{narrow}" for wide in ("f32", "f16", "bf16") for narrow in ("fp8", "bf8", "fp4")]
_PACK = [f"v_cvt_scalef32_pk_{narrow}_{wide}" for wide in ("f32", "f16", "bf16") for narrow in ("fp8", "bf8", "fp4")]


@handles(*_UNPACK)
def bind_scaled_unpack(binder: Binder) -> Closure:
    """Two codes times a power of two; op_sel picks the half (8 bits) or byte (4 bits) of the source."""
    binder.need(3)
    wide, name = binder.inst.base.split("_")[4:6]
    form = float_format(binder, name)
    select = binder.take("op_sel", (0, 0, 0))
    shift = U32(16 * select[0] if form.bits == 8 else 8 * (select[0] | select[1] << 1))
    source, scale = binder.source(1, "u32"), scale_of(binder, 2)
    row = binder.vector(0, 2 if wide == "f32" else 1)
    mask = U32((1 << form.bits) - 1)
    put = binder.row_target(row, "u32")
    put_high = binder.row_target(row + 1, "u32") if wide == "f32" else None

    def run(b: Batch) -> None:
        codes, factor = np.asarray(source(b)) >> shift, scale(b)
        low = (decode(codes & mask, form) * factor).astype(F32)
        high = (decode(codes >> U32(form.bits) & mask, form) * factor).astype(F32)
        if put_high is None:
            put(b, _packed_halves(low, high, wide, b), b.mask)
        else:
            put(b, low.view(U32), b.mask)
            put_high(b, high.view(U32), b.mask)

    return run


@handles(*_PACK)
def bind_scaled_pack(binder: Binder) -> Closure:
    """Two values divided by a power of two to codes; op_sel picks the half (8 bits) or byte (4 bits) written."""
    name, wide = binder.inst.base.split("_")[4:6]
    form = float_format(binder, name)
    sources = 2 if wide == "f32" else 1
    binder.need(2 + sources)
    select = binder.take("op_sel", (0, 0, 0, 0)[: sources + 2])
    if form.bits == 8:
        put = half_target(binder, bool(select[-1]))
    else:
        put = byte_target(binder, select[-2] | select[-1] << 1)
    scale = scale_of(binder, 1 + sources)
    if wide == "f32":
        x, y = binder.source(1, "f32"), binder.source(2, "f32")
    else:
        pair = binder.source(1, "u32")

        def half(b: Batch, shift: int) -> Any:
            bits = np.asarray(pair(b)) >> U32(shift) & U32(0xFFFF)
            return bf16_value(bits) if wide == "bf16" else bits.astype(U16).view(np.float16).astype(F32)

        x, y = (lambda b: half(b, 0)), (lambda b: half(b, 16))

    def run(b: Batch) -> None:
        factor = scale(b)
        low, high = (narrow(b, value / factor, form) for value in (x(b), y(b)))
        put(b, low | high << U32(form.bits), b.mask)

    return run


def byte_target(binder: Binder, byte: int) -> MaskedSetter:
    """Setter of one byte of operand 0; the others stay."""
    row = binder.vector(0, 1)
    shift, keep = U32(8 * byte), U32(~(0xFF << 8 * byte) & 0xFFFFFFFF)

    def put(b: Batch, value: Any, mask: Array | None) -> None:
        whole = (value & U32(0xFF)) << shift | (b.r[0][row] & keep)
        if mask is None:
            b.r[0][row][...] = whole
        else:
            np.copyto(b.r[0][row], whole, where=mask)

    return put


# Overflow of 32-bit to 16-bit conversions


def f16_conversion(binder: Binder) -> Callable[[Any], Any]:
    """f32 to f16 under MODE."""

    def nearest(value: Any) -> Any:
        return np.asarray(value).astype(np.float16)

    if binder.plain_mode:
        return nearest
    binder.cell.used = True
    return moded("cvt", nearest, "f16", ["f32"], binder.cell)


@handles("v_cvt_pk_f16_f32")
def bind_pack_f16(binder: Binder) -> Closure:
    """Two f32 to packed f16, rounded to nearest even."""
    binder.need(3)
    x, y, put = binder.source(1, "f32"), binder.source(2, "f32"), binder.target(0, "u32")
    convert, clamp = f16_conversion(binder), binder.flag("clamp")

    def run(b: Batch) -> None:
        out: Any = U32(0)
        for at, value in enumerate((np.asarray(x(b)), np.asarray(y(b)))):
            half = clamp_f16(b, convert(value), value)
            if clamp:
                half = np.clip(np.nan_to_num(half, nan=0.0), 0, 1).astype(np.float16)
            out = out | half.view(U16).astype(U32) << U32(16 * at)
        put(b, out, b.mask)

    return run
