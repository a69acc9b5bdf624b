"""Conversions with stochastic rounding, and the scaled ones of gfx950 that move one or 32 values.

Stochastic rounding adds a random fraction of a unit in the last place to the magnitude and cuts the rest off. The
fraction is the topmost bits of the random operand, as many as the conversion from f32 drops; instructions that convert
several values step it with the generator of v_prng_b32 after each. After the AMD CDNA4 instruction set manual, chapter
"BF8 / FP8 and smaller formats"; below the smallest normal number the unit is that of the denormals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdwarp.emulator.bind import Binder, MaskedSetter, handles
from amdwarp.emulator.convert import byte_target, clamp_f16, float_format, half_target, narrow, scale_of
from amdwarp.emulator.floats import BF6, FP4, FP6, SmallFloat, bf16_bits, bf16_value, decode
from amdwarp.emulator.memory import Array
from amdwarp.emulator.ops_cdna import prng
from amdwarp.emulator.state import Batch, Closure

U16, U32, F32, F64 = np.uint16, np.uint32, np.float32, np.float64


@dataclass(frozen=True)
class Grid:
    """Spacing of a format: fraction bits and exponent of the smallest normal number."""

    mantissa: int
    smallest: int


_WIDE = {"f16": Grid(10, -14), "bf16": Grid(7, -126)}
_SIX = {"fp6": FP6, "bf6": BF6, "fp4": FP4}


def grid_of(form: SmallFloat) -> Grid:
    """The spacing of a small format."""
    return Grid(form.mantissa, 1 - form.bias)


def stochastic(value: Any, random: Any, grid: Grid) -> Array:
    """f64 `value` moved to a neighbour on the grid by u32 `random`; NaN and infinity stay."""
    wide = np.asarray(value, F64)
    magnitude = np.abs(wide)
    _, exponent = np.frexp(np.where(np.isfinite(magnitude), magnitude, 0.0))
    step = np.ldexp(1.0, np.maximum(exponent - 1, grid.smallest) - grid.mantissa)
    dropped = 23 - grid.mantissa
    part = (np.asarray(random, U32) >> U32(32 - dropped)).astype(F64) * 2.0**-dropped
    moved = np.floor(magnitude / step + part) * step
    return np.where(np.isfinite(wide), np.copysign(moved, wide), wide)


def _six_form(binder: Binder, name: str) -> SmallFloat:
    return _SIX[name] if name in _SIX else float_format(binder, name)


def _selected(binder: Binder, count: int) -> tuple[int, ...]:
    select = binder.take("op_sel", (0,) * count)
    if not isinstance(select, tuple) or len(select) > count:
        raise binder.fail(f"op_sel must have at most {count} entries")
    return select + (0,) * (count - len(select))


# One value


@handles("v_cvt_sr_fp8_f32", "v_cvt_sr_bf8_f32")
def bind_stochastic8(binder: Binder) -> Closure:
    """f32 to a byte of the destination with stochastic rounding: value, random number."""
    binder.need(3)
    form = float_format(binder, binder.inst.base.split("_")[3])
    select = _selected(binder, 4)
    put = byte_target(binder, select[2] | select[3] << 1)
    value, random, grid = binder.source(1, "f32"), binder.source(2, "u32"), grid_of(form)
    return lambda b: put(b, narrow(b, stochastic(value(b), random(b), grid).astype(F32), form), b.mask)


@handles("v_cvt_sr_f16_f32", "v_cvt_sr_bf16_f32")
def bind_stochastic16(binder: Binder) -> Closure:
    """f32 to half of the destination with stochastic rounding: value, random number."""
    binder.need(3)
    kind = binder.inst.base.split("_")[3]
    select = binder.take("op_sel", (0, 0, 0))
    put, grid = half_target(binder, bool(select[-1])), _WIDE[kind]
    value, random = binder.source(1, "f32"), binder.source(2, "u32")

    def run(b: Batch) -> None:
        exact = stochastic(value(b), random(b), grid)
        put(b, _half_bits(b, exact, kind), b.mask)

    return run


def _half_bits(b: Batch, value: Any, kind: str) -> Array:
    """uint32 codes of f16 or bf16 of f64 `value`, to nearest even where it is between two."""
    if kind == "bf16":
        return bf16_bits(np.asarray(value).astype(F32))
    return clamp_f16(b, np.asarray(value).astype(np.float16), value).view(U16).astype(U32)


@handles(*(f"v_cvt_scalef32_{wide}_{small}" for wide in ("f16", "f32") for small in ("fp8", "bf8")))
def bind_scaled_one(binder: Binder) -> Closure:
    """One code times a power of two; op_sel picks the byte of the source and the half of an f16 result."""
    binder.need(3)
    wide, name = binder.inst.base.split("_")[3:5]
    form = float_format(binder, name)
    select = _selected(binder, 4)
    upper = select[2] == 1
    shift = U32(8 * (select[0] | select[1] << 1))
    source, scale = binder.source(1, "u32"), scale_of(binder, 2)
    put: MaskedSetter = binder.target(0, "u32") if wide == "f32" else half_target(binder, upper)

    def run(b: Batch) -> None:
        value = decode(np.asarray(source(b)) >> shift & U32(0xFF), form) * scale(b)
        put(b, value.astype(F32).view(U32) if wide == "f32" else _half_bits(b, value, "f16"), b.mask)

    return run


def _value_source(binder: Binder, at: int, wide: str) -> Callable[[Batch], Any]:
    """The low f16 or bf16, or the f32, of operand `at` as f64."""
    get = binder.source(at, "u32")
    return lambda b: _as_double(np.asarray(get(b)), wide)


def _as_double(bits: Array, wide: str) -> Array:
    if wide == "f32":
        return bits.view(F32).astype(F64)
    if wide == "bf16":
        return bf16_value(bits & U32(0xFFFF)).astype(F64)
    return bits.astype(U16).view(np.float16).astype(F64)


@handles(*(f"v_cvt_scalef32_sr_{small}_{wide}" for small in ("fp8", "bf8") for wide in ("f32", "f16", "bf16")))
def bind_scaled_stochastic(binder: Binder) -> Closure:
    """A value divided by a power of two to a byte, stochastically: value, random number, scale."""
    binder.need(4)
    name, wide = binder.inst.base.split("_")[4:6]
    form = float_format(binder, name)
    select = _selected(binder, 4)
    put = byte_target(binder, select[2] | select[3] << 1)
    value, random, scale = _value_source(binder, 1, wide), binder.source(2, "u32"), scale_of(binder, 3)

    def run(b: Batch) -> None:
        moved = stochastic(value(b) / scale(b), random(b), grid_of(form))
        put(b, narrow(b, moved.astype(F32), form), b.mask)

    return run


@handles(*(f"v_cvt_scalef32_sr_pk_fp4_{wide}" for wide in ("f32", "f16", "bf16")))
def bind_scaled_stochastic4(binder: Binder) -> Closure:
    """Two values divided by a power of two to a byte of two codes, stochastically: values, random number, scale."""
    binder.need(4)
    wide = binder.inst.base.split("_")[6]
    select = _selected(binder, 4)
    put = byte_target(binder, select[2] | select[3] << 1)
    row = binder.vector(1, 2 if wide == "f32" else 1)
    random, scale = binder.source(2, "u32"), scale_of(binder, 3)

    def run(b: Batch) -> None:
        seed, factor = random(b), scale(b)
        values = _unpacked(b, row, 2, wide)
        codes = []
        for value in values:
            codes.append(narrow(b, stochastic(value / factor, seed, grid_of(FP4)).astype(F32), FP4))
            seed = prng(seed)
        put(b, codes[0] | codes[1] << U32(4), b.mask)

    return run


# 32 values


def _unpacked(b: Batch, row: int, count: int, wide: str) -> list[Array]:
    """`count` consecutive values from register `row` on, as f64 [waves, lanes]."""
    if wide == "f32":
        return [_as_double(b.r[0][row + at], wide) for at in range(count)]
    return [_as_double(b.r[0][row + at // 2] >> U32(16 * (at % 2)), wide) for at in range(count)]


def _join(codes: list[Array], bits: int) -> list[Array]:
    """Codes of `bits` bits as dwords, lowest bits first."""
    out: list[Any] = [U32(0)] * (len(codes) * bits // 32)
    for at, code in enumerate(codes):
        word, shift = divmod(at * bits, 32)
        out[word] = out[word] | code << U32(shift)
        if shift + bits > 32:
            out[word + 1] = out[word + 1] | code >> U32(32 - shift)
    return out


def _six_codes(words: list[Array]) -> list[Array]:
    """32 codes of six bits from six dwords."""
    codes = []
    for at in range(32):
        word, shift = divmod(6 * at, 32)
        code = words[word] >> U32(shift)
        if shift > 26:
            code = code | words[word + 1] << U32(32 - shift)
        codes.append(code & U32(63))
    return codes


def _put_all(b: Batch, row: int, words: list[Array]) -> None:
    for at, word in enumerate(words):
        if b.mask is None:
            b.r[0][row + at][...] = word
        else:
            np.copyto(b.r[0][row + at], word, where=b.mask)


_WIDES = ("f32", "f16", "bf16")


@handles(*(f"v_cvt_scalef32_pk32_{wide}_{small}" for wide in _WIDES for small in ("fp6", "bf6")))
def bind_unpack32(binder: Binder) -> Closure:
    """32 codes of six bits times a power of two."""
    binder.need(3)
    wide, name = binder.inst.base.split("_")[4:6]
    form = _six_form(binder, name)
    row, source = binder.vector(0, 32 if wide == "f32" else 16), binder.vector(1, 6)
    scale = scale_of(binder, 2)

    def run(b: Batch) -> None:
        factor = scale(b)
        codes = _six_codes([b.r[0][source + at].copy() for at in range(6)])
        values = [decode(code, form) * factor for code in codes]
        if wide == "f32":
            words = [value.astype(F32).view(U32) for value in values]
        else:
            halves = [_half_bits(b, value, wide) for value in values]
            words = [low | high << U32(16) for low, high in zip(halves[::2], halves[1::2], strict=True)]
        _put_all(b, row, words)

    return run


_PACK32 = [f"v_cvt_scalef32_pk32_{small}_{wide}" for small in ("fp6", "bf6") for wide in ("f16", "bf16")]
_PACK32 += [f"v_cvt_scalef32_sr_pk32_{small}_{wide}" for small in ("fp6", "bf6") for wide in _WIDES]


@handles(*_PACK32)
def bind_pack32(binder: Binder) -> Closure:
    """32 values divided by a power of two to codes of six bits: values, (random number), scale."""
    rolls = "_sr_" in binder.inst.base
    binder.need(4 if rolls else 3)
    name, wide = binder.inst.base.rsplit("_", 2)[1:]
    form = _six_form(binder, name)
    row, source = binder.vector(0, 6), binder.vector(1, 32 if wide == "f32" else 16)
    scale = scale_of(binder, 3 if rolls else 2)
    random = binder.source(2, "u32") if rolls else None

    def run(b: Batch) -> None:
        factor = scale(b)
        seed = None if random is None else random(b)
        codes = []
        for value in _unpacked(b, source, 32, wide):
            scaled = value / factor
            if seed is not None:
                scaled = stochastic(scaled, seed, grid_of(form))
                seed = prng(seed)
            codes.append(narrow(b, scaled, form))
        _put_all(b, row, _join(codes, 6))

    return run


@handles("v_cvt_scalef32_2xpk16_fp6_f32", "v_cvt_scalef32_2xpk16_bf6_f32")
def bind_pack_two(binder: Binder) -> Closure:
    """Two tuples of 16 f32 divided by a power of two, interleaved."""
    binder.need(4)
    form = _six_form(binder, binder.inst.base.split("_")[4])
    row, left, right = binder.vector(0, 6), binder.vector(1, 16), binder.vector(2, 16)
    scale = scale_of(binder, 3)

    def run(b: Batch) -> None:
        factor = scale(b)
        codes = []
        for x, y in zip(_unpacked(b, left, 16, "f32"), _unpacked(b, right, 16, "f32"), strict=True):
            codes += [narrow(b, value / factor, form) for value in (x, y)]
        _put_all(b, row, _join(codes, 6))

    return run
