"""Conversions of eight values at once between 8- or 4-bit formats and f32, f16, bf16 (gfx1250).

To the wide type: values times an e8m0 scale. The scale byte comes from the scale register of lane l % 16: lanes 0-15
take byte 0; lanes 16-31 byte 1 for 4-bit formats, byte 0 for 8-bit ones, which with scale_sel:8 take byte 1 too. Other
scale_sel values are not known. To the narrow type: values divided by the power of two in the exponent of an f32 scale.
After the description of these modes in Triton's lowering of scaled upcasts for gfx1250.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amdwarp.emulator.bind import Binder, handles
from amdwarp.emulator.convert import _packed_halves, float_format, narrow, scale_of
from amdwarp.emulator.ds import put_dwords
from amdwarp.emulator.floats import bf16_value, decode, scale_value
from amdwarp.emulator.memory import Array
from amdwarp.emulator.state import Batch, Closure

U32, F32 = np.uint32, np.float32
_WIDE = ("f32", "f16", "bf16")
_NARROW = ("fp8", "bf8", "fp4")


def _codes(raw: Array, bits: int) -> Array:
    """uint32 [registers, waves, lanes] to codes [8, waves, lanes], lowest bits first."""
    per = 32 // bits
    mask = U32((1 << bits) - 1)
    return np.stack([raw[at // per] >> U32(bits * (at % per)) & mask for at in range(8)])


@handles(*(f"v_cvt_scale_pk8_{wide}_{name}" for wide in _WIDE for name in _NARROW))
def bind_unpack(binder: Binder) -> Closure:
    """Eight codes times a scale."""
    binder.need(3)
    wide, name = binder.inst.base.split("_")[4:6]
    form = float_format(binder, name)
    select = binder.take("scale_sel", 0)
    if select not in (0, 8) or (select == 8 and form.bits == 4):
        raise binder.fail(f"scale_sel:{select} is not known")
    shift = np.where(np.arange(32) < 16, 0, 8 if form.bits == 4 or select == 8 else 0).astype(U32)
    lower = np.arange(32) % 16
    count, wide_count = form.bits // 4, 8 if wide == "f32" else 4
    row, source, scale = binder.vector(0, wide_count), binder.vector(1, count), binder.source(2, "u32")

    def run(b: Batch) -> None:
        words = np.broadcast_to(scale(b), (b.n, 32))[:, lower]
        factor = scale_value(words >> shift & U32(0xFF)).astype(np.float64)
        values = (decode(_codes(b.u[source : source + count], form.bits), form) * factor).astype(F32)
        if wide == "f32":
            out = values.view(U32)
        else:
            out = np.stack([_packed_halves(values[at], values[at + 1], wide, b) for at in range(0, 8, 2)])
        put_dwords(b, row, out.transpose(1, 2, 0), b.mask)

    return run


@handles(*(f"v_cvt_scalef32_pk8_{name}_{wide}" for wide in _WIDE for name in _NARROW))
def bind_pack(binder: Binder) -> Closure:
    """Eight values divided by a scale."""
    binder.need(3)
    name, wide = binder.inst.base.split("_")[4:6]
    form = float_format(binder, name)
    count, narrow_count = 8 if wide == "f32" else 4, form.bits // 4
    row, source, scale = binder.vector(0, narrow_count), binder.vector(1, count), scale_of(binder, 2)

    def values_of(b: Batch) -> Any:
        raw = b.u[source : source + count]
        if wide == "f32":
            return raw.view(F32)
        halves = np.stack([half for word in raw for half in (word & U32(0xFFFF), word >> U32(16))])
        if wide == "bf16":
            return bf16_value(halves)
        return halves.astype(np.uint16).view(np.float16).astype(F32)

    def run(b: Batch) -> None:
        codes = narrow(b, (values_of(b) / scale(b)).astype(F32), form)
        per = 32 // form.bits
        out = np.zeros((narrow_count, b.n, 32), U32)
        for at in range(8):
            out[at // per] |= codes[at] << U32(form.bits * (at % per))
        put_dwords(b, row, out.transpose(1, 2, 0), b.mask)

    return run
