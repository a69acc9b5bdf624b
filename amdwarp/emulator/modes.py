"""Rounding, denormals and output modifiers of floating-point operations, as MODE asks.

A kernel that runs with MODE as it starts by default (rounding to nearest even, denormals on) pays nothing: its
operations are bound as they are. In others, `adapt` wraps each: sources are flushed, the result is rounded in MODE's
direction from the exact value, and flushed.

Directed rounding is exact. For f16 and f32 the operation is carried out in f64 with its rounding error; for f64 it is
carried out on fractions, lane by lane. Transcendental functions keep their rounding to nearest.

MODE after the AMD CDNA3 instruction set manual: bits 1:0 round f32, bits 3:2 round f16 and f64, with 0 nearest even, 1
towards +infinity, 2 towards -infinity, 3 towards zero; bits 5:4 (f32) and 7:6 (f16, f64) allow denormal sources (lower
bit) and results (upper bit); bit 8 makes clamp turn a NaN into 0; bit 9 is IEEE mode, in which omod does nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from amdwarp.asm import Immediate, Program, Symbol
from amdwarp.emulator.arith import two_sum
from amdwarp.emulator.hardware import mode_field
from amdwarp.emulator.memory import Array

Function = Callable[..., Any]
F64 = np.float64
DTYPES: dict[str, Any] = {"f16": np.float16, "f32": np.float32, "f64": np.float64}

#: MODE as a kernel starts by default: denormals on, DX10 clamp, IEEE.
DEFAULT = 0x3F0
#: The bits that decide how floating-point operations are bound.
FLOAT_BITS = 0x3FF
DX10_CLAMP, IEEE = 1 << 8, 1 << 9


class ModeCell:
    """MODE of the batch that executes the instruction; its closure sets it."""

    __slots__ = ("used", "value")

    def __init__(self) -> None:
        self.value, self.used = DEFAULT, False


def initial_mode(program: Program) -> int:
    """MODE when the kernel starts, after its descriptor."""
    get = program.descriptor.get
    rounding = get("float_round_mode_32") | get("float_round_mode_16_64") << 2
    denormals = get("float_denorm_mode_32", 3) | get("float_denorm_mode_16_64", 3) << 2
    flags = get("dx10_clamp", 1) << 8 | get("ieee_mode", 1) << 9 | get("fp16_overflow") << 23
    return rounding | denormals << 4 | flags


def _changes(instructions: tuple[Any, ...]) -> bool:
    """True if some instruction writes MODE's floating-point bits."""
    for inst in instructions:
        if not inst.base.startswith("s_setreg"):
            continue
        op = inst.operands[0]
        field = mode_field(op.name) if isinstance(op, Symbol) else None
        if field is not None and field[0] < FLOAT_BITS.bit_length():
            value = inst.operands[1]
            known = isinstance(value, Immediate) and isinstance(value.value, int)
            mask = (1 << field[1]) - 1
            if not known or (value.value & mask) != DEFAULT >> field[0] & mask:
                return True
    return False


#: The last program that `is_plain` looked at.
_last: list[tuple[Program, bool]] = []


def is_plain(program: Program) -> bool:
    """True if every instruction of `program` runs with MODE's default floating-point bits."""
    if not _last or _last[0][0] is not program:
        plain = initial_mode(program) & FLOAT_BITS == DEFAULT and not _changes(program.instructions)
        _last[:] = [(program, plain)]
    return _last[0][1]


def _field(mode: int, kind: str, at: int) -> int:
    """The two bits of `mode` for type `kind`; `at` is 0 for rounding, 4 for denormals."""
    return mode >> (at if kind == "f32" else at + 2) & 3


def flush(value: Any, kind: str) -> Any:
    """`value` with denormals as zeros of their sign."""
    value = np.asarray(value)
    tiny = (np.abs(value) < np.finfo(DTYPES[kind]).tiny) & (value != 0)
    return np.where(tiny, np.copysign(value.dtype.type(0), value), value) if tiny.any() else value


def directed(value: Array, error: Any, kind: str, direction: int) -> Array:
    """The exact sum of f64 `value` and `error` (at most half a unit of it), rounded to f16 or f32."""
    dtype = DTYPES[kind]
    near = value.astype(dtype)
    distance = near.astype(F64) - value
    above = np.where(distance != 0, distance, -np.asarray(error, F64)) > 0
    below = np.where(distance != 0, distance, -np.asarray(error, F64)) < 0
    up = direction == 1 or direction == 3
    down = direction == 2 or direction == 3
    positive = value > 0
    raise_it = below & up & (~positive if direction == 3 else True)
    lower_it = above & down & (positive if direction == 3 else True)
    out = np.where(raise_it, np.nextafter(near, dtype(np.inf)), near)
    return np.where(lower_it, np.nextafter(near, dtype(-np.inf)), out).astype(dtype)


def round_fraction(value: Fraction, direction: int) -> float:
    """`value` as the f64 in the given direction; 3 is towards zero."""
    if direction == 3:
        direction = 1 if value < 0 else 2
    try:
        near = float(value)
    except OverflowError:
        near = math.inf if value > 0 else -math.inf
    exact = None if math.isinf(near) else Fraction(near)
    if direction == 1 and (near == -math.inf or (exact is not None and exact < value)):
        return math.nextafter(near, math.inf)
    if direction == 2 and (near == math.inf or (exact is not None and exact > value)):
        return math.nextafter(near, -math.inf)
    return near


#: Operations that round: name to the exact value of finite sources. Sources are f64 (two for the exact product and
#: sum) or fractions.
_EXACT: dict[str, Function] = {
    "add": lambda a, b: (a, b),
    "sub": lambda a, b: (a, -b),
    "subrev": lambda a, b: (b, -a),
    "mul": lambda a, b: (a * b, None),
    "fma": lambda a, b, c: (a * b, c),
    "cvt": lambda a: (a, None),
    "ldexp": lambda a, power: (a, power),
}
_SAME = {"fmac": "fma", "fmamk": "fma", "fmaak": "fma"}


def _ldexp64(value: Any, power: Any) -> tuple[Any, Any]:
    """value * 2^power of f16 or f32 in f64; beyond its range the sign of the result's error is still right."""
    return np.ldexp(np.asarray(value, F64), np.clip(np.asarray(power).astype(np.int64), -700, 700)), None


def _small(name: str, kind: str, direction: int, args: Sequence[Any]) -> Array:
    """The operation with directed rounding to f16 or f32."""
    if name == "ldexp":
        first, second = _ldexp64(*args)
    else:
        first, second = _EXACT[name](*(np.asarray(arg).astype(F64) for arg in args))
    first = np.atleast_1d(first)
    if second is None:
        return directed(first, 0.0, kind, direction)
    first, second = np.broadcast_arrays(first, np.atleast_1d(second))
    total, error = two_sum(first, second)
    out = directed(total, np.nan_to_num(error), kind, direction)
    if direction == 2:
        # An exact zero sum of terms that are not both +0 is -0 when rounding down.
        zero = (total == 0) & (error == 0) & (np.signbit(first) | np.signbit(second))
        out = np.where(zero, -np.abs(out), out)
    return out


def _double(name: str, direction: int, args: Sequence[Any], near: Array) -> Array:
    """The operation with directed rounding to f64, lane by lane; `near` is the result to nearest."""
    sources = [np.broadcast_to(np.asarray(arg), near.shape) for arg in args]
    out = near.copy()
    finite = np.logical_and.reduce([np.isfinite(source) for source in sources])
    for at in zip(*np.nonzero(finite), strict=True):
        values = [Fraction(float(source[at])) for source in sources]
        if name == "ldexp":
            power = max(-3000, min(3000, int(values[1])))
            exact = values[0] * Fraction(2) ** power
        else:
            first, second = _EXACT[name](*values)
            exact = first if second is None else first + second
        if exact:
            out[at] = round_fraction(exact, direction)
        elif direction == 2 and name in ("add", "sub", "subrev", "fma"):
            terms = _EXACT[name](*(float(source[at]) for source in sources))
            if any(math.copysign(1, term) < 0 for term in terms):
                out[at] = -0.0
    return out


#: Conversions that round.
_CONVERSIONS = frozenset(
    ("v_cvt_f32_i32", "v_cvt_f32_u32", "v_cvt_f16_f32", "v_cvt_f32_f64", "v_cvt_f16_u16", "v_cvt_f16_i16")
)


def operation(base: str) -> str:
    """What a mnemonic does, as a name of `_EXACT`, or "" where it does not follow MODE's rounding."""
    parts = base.split("_")
    word = parts[2] if parts[1] == "pk" else parts[1]
    word = _SAME.get(word, word)
    if "legacy_f32" in base or word not in _EXACT or (word == "cvt" and base not in _CONVERSIONS):
        return ""
    return word


def moded(name: str, function: Function, kind: str, sources: Sequence[str], cell: ModeCell) -> Function:
    """`function` (result of type `kind`) under the MODE in `cell`; `name` as `operation` gives it."""

    def run(*args: Any) -> Any:
        mode = cell.value
        values = [
            flush(arg, source) if source in DTYPES and not _field(mode, source, 4) & 1 else arg
            for arg, source in zip(args, sources, strict=True)
        ]
        out = function(*values)
        if kind not in DTYPES:
            return out
        direction = _field(mode, kind, 0)
        if direction and name in _EXACT:
            shape = np.shape(out)
            if kind == "f64":
                out = _double(name, direction, values, np.atleast_1d(np.asarray(out)))
            else:
                out = _small(name, kind, direction, values)
            out = out.reshape(shape) if out.shape != shape and out.size == np.prod(shape, dtype=int) else out
        return out if _field(mode, kind, 4) & 2 else flush(out, kind)

    return run


def scaled_output(function: Function, kind: str, factor: float, cell: ModeCell) -> Function:
    """`function` followed by omod: ignored in IEEE mode and with denormal results on; -0 becomes +0."""

    def run(*args: Any) -> Any:
        out = function(*args)
        if cell.value & IEEE or _field(cell.value, kind, 4) & 2:
            return out
        scaled = flush(np.asarray(out) * DTYPES[kind](factor), kind)
        return np.where(scaled == 0, DTYPES[kind](0), scaled)

    return run


def clamped_output(function: Function, kind: str, cell: ModeCell) -> Function:
    """`function` clamped to [0, 1]; a NaN becomes 0 where MODE says so."""

    def run(*args: Any) -> Any:
        out = np.asarray(function(*args))
        clean = np.where(np.isnan(out), DTYPES[kind](0), out) if cell.value & DX10_CLAMP else out
        return np.clip(clean, DTYPES[kind](0), DTYPES[kind](1))

    return run
