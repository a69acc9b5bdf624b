"""What the vector and scalar ALU of gfx1250 have beyond gfx9.

Semantics after the AMD RDNA4 instruction set manual for what gfx12 shares, and LLVM's AMDGPU back end for what gfx1250
adds (64-bit integer operations, bf16 pairs, scaled conversions of eight values).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from amdwarp.asm import Immediate
from amdwarp.asm.program import EXEC
from amdwarp.asm.table_gfx1250 import FLOAT_CONDITIONS
from amdwarp.emulator import arith, ops
from amdwarp.emulator.bind import MASK32, MASK64, Binder, Getter, handles
from amdwarp.emulator.floats import bf16_bits, bf16_value, f16_toward_zero
from amdwarp.emulator.memory import Array
from amdwarp.emulator.ops import F16, F32, I32, I64, U16, U32, U64, Op
from amdwarp.emulator.salu import each, signed
from amdwarp.emulator.state import Batch, Closure, Scalar
from amdwarp.emulator.valu import bind_op, exec_mask, vector_sources, vector_target


def _unsigned_multiply_add(a: Any, b: Any, c: Any) -> Any:
    return np.multiply(a, b, dtype=U64) + c


def _signed_multiply_add(a: Any, b: Any, c: Any) -> Any:
    return np.multiply(a, b, dtype=I64) + c


def _to_short(low: float, high: float) -> Callable[[Any], Any]:
    return lambda a: arith.saturate(np.asarray(a), low, high, I32)


#: Operations that `valu.bind_op` binds.
EXTRA: dict[str, Op] = {
    "v_mov_b16": ("u16", "u16", None),
    "v_not_b16": ("u16", "u16", np.invert),
    "v_and_b16": ("u16", "u16 u16", np.bitwise_and),
    "v_or_b16": ("u16", "u16 u16", np.bitwise_or),
    "v_xor_b16": ("u16", "u16 u16", np.bitwise_xor),
    "v_cvt_u32_u16": ("u32", "u16", lambda a: a.astype(U32)),
    "v_cvt_i32_i16": ("i32", "i16", lambda a: a.astype(I32)),
    "v_tanh_f32": ("f32", "f32", np.tanh),
    "v_tanh_f16": ("f16", "f16", np.tanh),
    "v_add_i16": ("i16", "i16 i16", np.add),
    "v_sub_i16": ("i16", "i16 i16", np.subtract),
    "v_add_nc_u64": ("u64", "u64 u64", np.add),
    "v_sub_nc_u64": ("u64", "u64 u64", np.subtract),
    "v_mul_u64": ("u64", "u64 u64", np.multiply),
    "v_mad_u32": ("u32", "u32 u32 u32", lambda a, b, c: a * b + c),
    "v_mad_nc_u64_u32": ("u64", "u32 u32 u64", _unsigned_multiply_add),
    "v_mad_nc_i64_i32": ("i64", "i32 i32 i64", _signed_multiply_add),
    "v_alignbit_half": ("u32", "u32 u32 u16", lambda a, b, n: ops._align(a, b, n & U16(31))),
    "v_alignbyte_half": ("u32", "u32 u32 u16", lambda a, b, n: ops._align(a, b, (n & U16(3)) * U16(8))),
    "v_xor3_b32": ("u32", "u32 u32 u32", lambda a, b, c: a ^ b ^ c),
    "v_cvt_pk_i16_f32": ("u32", "f32 f32", ops._pack16(_to_short(-32768.0, 32767.0))),
    "v_cvt_pk_u16_f32": ("u32", "f32 f32", ops._pack16(_to_short(0.0, 65535.0))),
}
for _t in ("u64", "i64"):
    EXTRA[f"v_min_{_t}"] = (_t, f"{_t} {_t}", np.minimum)
    EXTRA[f"v_max_{_t}"] = (_t, f"{_t} {_t}", np.maximum)
for _t in ("u32", "i32", "num_f32", "num_f16"):
    _low, _high = (np.minimum, np.maximum) if _t[0] != "n" else (ops.fmin, ops.fmax)
    _kind = _t[-3:]
    _three = f"{_kind} {_kind} {_kind}"
    EXTRA[f"v_maxmin_{_t}"] = (_kind, _three, lambda a, b, c, f=_low, g=_high: f(g(a, b), c))
    EXTRA[f"v_minmax_{_t}"] = (_kind, _three, lambda a, b, c, f=_low, g=_high: g(f(a, b), c))
for _t in ("f16", "f32", "f64"):
    EXTRA[f"v_minimum_{_t}"] = (_t, f"{_t} {_t}", lambda a, b: ordered(a, b, np.minimum))
    EXTRA[f"v_maximum_{_t}"] = (_t, f"{_t} {_t}", lambda a, b: ordered(a, b, np.maximum))
EXTRA["v_minimum3_f16"] = ("f16", "f16 f16 f16", lambda a, b, c: np.minimum(np.minimum(a, b), c))
EXTRA["v_maximum3_f16"] = ("f16", "f16 f16 f16", lambda a, b, c: np.maximum(np.maximum(a, b), c))


def ordered(a: Any, b: Any, function: Callable[[Any, Any], Any]) -> Array:
    """Minimum or maximum that hands NaN on and holds -0 below +0."""
    wide = f"u{np.result_type(a).itemsize}"
    out: Array = np.asarray(function(a, b))
    zeros = (out == 0) & (np.asarray(a) == np.asarray(b))
    if np.any(zeros):
        x, y = np.asarray(a).view(wide), np.asarray(b).view(wide)
        both = (x | y if function is np.minimum else x & y).view(out.dtype)
        out = np.where(zeros, both, out)
    return out


ops.OPS.update(EXTRA)
handles(*EXTRA)(bind_op)


@handles("v_cndmask_b16")
def bind_select16(binder: Binder) -> Closure:
    """mask ? second : first, of 16 bits."""
    binder.need(4)
    condition = binder.mask_source(3)
    getters, _ = vector_sources(binder, 1, ["u16", "u16"])
    x, y = getters
    put = vector_target(binder, 0, "u16")
    return lambda b: put(b, np.where(condition(b), y(b), x(b)), exec_mask(b))


_LITERAL_FMA: dict[str, tuple[str, Any]] = {"f16": ("f16", arith.fma16), "f64": ("f64", arith.fma64)}


@handles("v_fmamk_f16", "v_fmaak_f16", "v_fmamk_f64", "v_fmaak_f64")
def bind_literal_fma(binder: Binder) -> Closure:
    """Fused multiply-add of the three sources in the text's order."""
    binder.need(4)
    kind, function = _LITERAL_FMA[binder.inst.base[-3:]]
    x, y, z = (binder.source(at, kind) for at in (1, 2, 3))
    put = binder.target(0, kind)
    return lambda b: put(b, function(x(b), y(b), z(b)), b.mask)


# bf16 pairs

#: Two bf16 in a register, each computed in f32 and rounded once: mnemonic to (sources, function).
BRAIN_PAIRS: dict[str, tuple[int, Any]] = {
    "v_pk_add_bf16": (2, np.add),
    "v_pk_mul_bf16": (2, np.multiply),
    "v_pk_min_num_bf16": (2, ops.fmin),
    "v_pk_max_num_bf16": (2, ops.fmax),
}


@handles(*BRAIN_PAIRS)
def bind_brain_pair(binder: Binder) -> Closure:
    """Two bf16 operations on the halves of registers."""
    count, function = BRAIN_PAIRS[binder.inst.base]
    binder.need(1 + count)
    low, high = binder.take("op_sel", (0,) * count), binder.take("op_sel_hi", (1,) * count)
    if any(isinstance(op, Immediate) for op in binder.ops):
        raise binder.fail("constant operands are not known for bf16 pairs")
    halves = [[binder.source(1 + at, "u16", high=bool(row[at])) for at in range(count)] for row in (low, high)]
    put = binder.target(0, "u32")

    def run(b: Batch) -> None:
        parts = [bf16_bits(np.asarray(function(*(bf16_value(np.asarray(get(b))) for get in row)))) for row in halves]
        put(b, parts[0] & U32(0xFFFF) | parts[1] << U32(16), b.mask)

    return run


# Scalar ALU


def _float(value: int, kind: Any) -> Any:
    size = np.dtype(kind).itemsize
    return np.array(value & ((1 << 8 * size) - 1), f"u{size}").view(kind)[()]


def _bits(value: Any) -> int:
    whole = np.asarray(value)
    return int(whole.view(f"u{whole.itemsize}"))


def _saturated(value: int, low: int, high: int) -> int:
    number = float(_float(value, F32))
    if number != number:
        return 0
    return int(min(max(number, low), high)) & MASK32


def _pack_toward_zero(a: int, b: int) -> int:
    halves = [f16_toward_zero(np.atleast_1d(_float(x, F32))).view(U16)[0] for x in (a, b)]
    return int(halves[0]) | int(halves[1]) << 16


#: Scalar operations that leave SCC: name to (bits of result, bits of each source, function on ints).
SCALARS: dict[str, tuple[int, tuple[int, ...], Callable[..., int]]] = {
    "s_add_nc_u64": (64, (64, 64), lambda a, c: a + c & MASK64),
    "s_sub_nc_u64": (64, (64, 64), lambda a, c: a - c & MASK64),
    "s_mul_u64": (64, (64, 64), lambda a, c: a * c & MASK64),
    "s_pack_hl_b32_b16": (32, (32, 32), lambda a, c: a >> 16 | (c & 0xFFFF) << 16),
    "s_cvt_f32_i32": (32, (32,), lambda a: _bits(F32(signed(a)))),
    "s_cvt_f32_u32": (32, (32,), lambda a: _bits(F32(a))),
    "s_cvt_i32_f32": (32, (32,), lambda a: _saturated(a, -(2**31), 2**31 - 1)),
    "s_cvt_u32_f32": (32, (32,), lambda a: _saturated(a, 0, 2**32 - 1)),
    "s_cvt_f16_f32": (32, (32,), lambda a: _bits(_float(a, F32).astype(F16))),
    "s_cvt_f32_f16": (32, (32,), lambda a: _bits(_float(a, F16).astype(F32))),
    "s_cvt_hi_f32_f16": (32, (32,), lambda a: _bits(_float(a >> 16, F16).astype(F32))),
    "s_cvt_pk_rtz_f16_f32": (32, (32, 32), _pack_toward_zero),
}
_ROUNDINGS: dict[str, Any] = {"ceil": np.ceil, "floor": np.floor, "trunc": np.trunc, "rndne": np.rint}
_BINARY: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min_num": ops.fmin,
    "max_num": ops.fmax,
    "minimum": lambda a, b: ordered(a, b, np.minimum),
    "maximum": lambda a, b: ordered(a, b, np.maximum),
}


def _on_floats(function: Any, kind: Any) -> Callable[..., int]:
    return lambda *args: _bits(np.asarray(function(*(np.atleast_1d(_float(a, kind)) for a in args))).reshape(-1)[0])


for _name, _kind_of in (("f32", F32), ("f16", F16)):
    for _tail, _function in _ROUNDINGS.items():
        SCALARS[f"s_{_tail}_{_name}"] = (32, (32,), _on_floats(_function, _kind_of))
    for _tail, _function in _BINARY.items():
        if _name == "f32" or not _tail.endswith("imum"):
            SCALARS[f"s_{_tail}_{_name}"] = (32, (32, 32), _on_floats(_function, _kind_of))
SCALARS["s_fmamk_f32"] = SCALARS["s_fmaak_f32"] = (32, (32, 32, 32), _on_floats(arith.fma32, F32))
_SCALAR_ACCUMULATE = {"s_fmac_f32": _on_floats(arith.fma32, F32), "s_fmac_f16": _on_floats(arith.fma16, F16)}


@handles(*SCALARS)
def bind_scalar(binder: Binder) -> Closure:
    """An operation of the table `SCALARS`."""
    bits, source_bits, function = SCALARS[binder.inst.base]
    binder.need(1 + len(source_bits))
    getters = [scalar_float_source(binder, 1 + at, size) for at, size in enumerate(source_bits)]
    put = binder.scalar_target(0, bits)
    return lambda b: put(b, each(function, b, *(get(b) for get in getters)))


def scalar_float_source(binder: Binder, at: int, bits: int) -> Getter:
    """Getter of a scalar operand; a floating-point constant of a 16-bit operation is one of f16."""
    op = binder.ops[at]
    if isinstance(op, Immediate) and isinstance(op.value, float) and binder.inst.base.endswith("_f16"):
        value = _bits(F16(op.value))
        return lambda b: value
    return binder.scalar_source(at, bits)


@handles(*_SCALAR_ACCUMULATE)
def bind_scalar_accumulate(binder: Binder) -> Closure:
    """d = a * b + d."""
    binder.need(3)
    function = _SCALAR_ACCUMULATE[binder.inst.base]
    x, y = (scalar_float_source(binder, at, 32) for at in (1, 2))
    put, index = binder.scalar_target(0), binder.scalar(0)
    return lambda b: put(b, each(function, b, x(b), y(b), b.s[index]))


@handles(*(f"s_cmp_{c}_{t}" for c in FLOAT_CONDITIONS for t in ("f32", "f16")))
def bind_float_compare(binder: Binder) -> Closure:
    """Comparison of floats; only SCC is written."""
    binder.need(2)
    _, _, condition, kind = binder.inst.base.split("_")
    function, dtype = ops.FLOAT_CONDITIONS[condition], F32 if kind == "f32" else F16
    x, y = (scalar_float_source(binder, at, 32) for at in (0, 1))

    def compare(a: int, c: int) -> int:
        return int(bool(function(_float(a, dtype), _float(c, dtype))))

    def run(b: Batch) -> None:
        b.scc = each(compare, b, x(b), y(b))

    return run


def _saveexec() -> dict[str, tuple[Callable[[int, int], int], bool]]:
    table: dict[str, tuple[Callable[[int, int], int], bool]] = {
        "and": (lambda a, e: a & e, True),
        "or": (lambda a, e: a | e, True),
        "xor": (lambda a, e: a ^ e, True),
        "nand": (lambda a, e: ~(a & e) & MASK32, True),
        "nor": (lambda a, e: ~(a | e) & MASK32, True),
        "xnor": (lambda a, e: ~(a ^ e) & MASK32, True),
        "andn1": (lambda a, e: ~a & e & MASK32, True),
        "andn2": (lambda a, e: a & ~e & MASK32, True),
        "orn1": (lambda a, e: (~a | e) & MASK32, True),
        "orn2": (lambda a, e: (a | ~e) & MASK32, True),
    }
    named = {f"s_{name}_saveexec_b32": row for name, row in table.items()}
    named["s_andn1_wrexec_b32"] = (table["andn1"][0], False)
    named["s_andn2_wrexec_b32"] = (table["andn2"][0], False)
    return named


SAVEEXEC = _saveexec()


@handles(*SAVEEXEC)
def bind_save_exec(binder: Binder) -> Closure:
    """Combine the 32 bits of exec with the source; saveexec keeps the old exec, wrexec the result."""
    function, saves = SAVEEXEC[binder.inst.base]
    binder.need(2)
    source, put = binder.scalar_source(1), binder.scalar_target(0)

    def run(b: Batch) -> None:
        old, value = b.s[EXEC], source(b)
        result: Scalar = each(function, b, value, old)
        put(b, old if saves else result)
        b.s[EXEC] = result
        b.refresh_exec()
        b.scc = each(lambda x: int(x != 0), b, result)

    return run
