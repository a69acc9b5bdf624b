"""Matrix instructions of gfx1250 (WMMA, wave32).

Layout. Lane l holds of A the row l % 16 and of B the column l % 16; lane half l // 16 and the registers hold k. Result
register j of lane l is row 8 (l // 16) + j of column l % 16; 16-bit results stand two to a register. A lane's k are the
same for A and B, so that for operands of one element size only this pairing matters. The numbers themselves matter for
scales and for mixed sizes: a lane's elements come in runs of 16 bytes, run r of lane half h starting at element
(2 r + h) * (elements of a run).

Established by: the pairing and the result layout after published probes of the hardware for the 16x16x32, 16x16x64 and
16x16x4 shapes. The runs of 16 bytes, and that scale byte q belongs to the k from 32 q on, from Triton's own compiled
kernels: products of fp8 and fp4 operands with a scale for each 32 elements come out right under this rule (and under
those that only number the k within such a block otherwise). The 32-row form from the same kernels: the second half of
A's registers, and lanes 16-31 of its scales, are rows 16-31. With a scale for each 16 elements the bytes of two
registers belong to 16 k each, and e4m3 scales are plain e4m3 numbers: again from those kernels.

Products are formed and summed in f32 (f64 for integers). The order of summation is the host's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from amdwarp.asm import Immediate, Register
from amdwarp.asm.table_gfx1250 import ROWS
from amdwarp.emulator.bind import Binder, handles
from amdwarp.emulator.floats import BF6, BF8, FP4, FP6, FP8, SmallFloat, bf16_bits, decode, scale_value
from amdwarp.emulator.memory import Array, Fault
from amdwarp.emulator.mfma import OperandCache, _brains, _bytes, _halves, _packed, _singles
from amdwarp.emulator.state import Batch, Closure

Decoder = Callable[[Array], Array]

FORMATS: dict[str, SmallFloat] = {
    "MATRIX_FMT_FP8": FP8,
    "MATRIX_FMT_BF8": BF8,
    "MATRIX_FMT_FP6": FP6,
    "MATRIX_FMT_BF6": BF6,
    "MATRIX_FMT_FP4": FP4,
}
_SHAPE = re.compile(r"v_wmma_(scale_|scale16_)?(f32|f16|bf16|bf16f32|i32)_(\d+)x(\d+)x(\d+)_(\w+)$")
#: Elements of a lane's run that is consecutive in k, by bits of an element. That of 6-bit formats is not established;
#: they are taken together with each other and without scales only, where it makes no difference.
RUNS = {32: 2, 16: 8, 8: 16, 6: 64, 4: 32}


def k_numbers(bits: int, per_lane: int) -> Array:
    """int [2 lane halves, elements of a lane]: the k of each."""
    run = min(RUNS[bits], per_lane)
    element = np.arange(per_lane)
    half = np.arange(2)[:, None]
    numbers: Array = (2 * (element // run) + half) * run + element % run
    return numbers


def _matrix(decoder: Decoder, bits: int, blocks: int) -> Callable[[Array], Array]:
    """Registers to values [waves, 16 * blocks rows, k]."""

    def build(raw: Array) -> Array:
        count = raw.shape[0] // blocks
        parts = [_one(decoder(raw[at * count : (at + 1) * count]), bits) for at in range(blocks)]
        return np.ascontiguousarray(np.concatenate(parts, axis=1))

    return build


def _one(values: Array, bits: int) -> Array:
    """(registers, waves, lanes, per register) to [waves, 16, k]."""
    registers, waves, _, per = values.shape
    lanes = values.transpose(1, 2, 0, 3).reshape(waves, 2, 16, registers * per)
    k = k_numbers(bits, registers * per)
    out = np.empty((waves, 16, 2 * registers * per), lanes.dtype)
    for half in (0, 1):
        out[:, :, k[half]] = lanes[:, half]
    return out


def _signed_bytes(raw: Array) -> Array:
    return raw.view(np.int8).reshape(*raw.shape, 4).astype(np.float64)


def _unsigned_bytes(raw: Array) -> Array:
    return raw.view(np.uint8).reshape(*raw.shape, 4).astype(np.float64)


def _of_small(form: SmallFloat) -> Decoder:
    return _bytes(form) if form.bits == 8 else _packed(form)


_PLAIN: dict[str, tuple[Decoder, int]] = {"f16": (_halves, 16), "bf16": (_brains, 16), "f32": (_singles, 32)}
_NAMED = {"fp8": FP8, "bf8": BF8}


def _operand(binder: Binder, name: str, which: int) -> tuple[Decoder, int]:
    """(decoder, bits of an element) of A (0) or B (1)."""
    letter = "ab"[which]
    if name == "iu8":
        signs = binder.inst.modifier("neg_lo")
        is_signed = isinstance(signs, tuple) and signs[which] == 1
        return (_signed_bytes if is_signed else _unsigned_bytes), 8
    if name in _PLAIN:
        return _PLAIN[name]
    if name in ("f8f6f4", "f4"):
        written = binder.take(f"matrix_{letter}_fmt", "MATRIX_FMT_FP4" if name == "f4" else "MATRIX_FMT_FP8")
        if written not in FORMATS:
            raise binder.fail(f"matrix format {written} is not known")
        form = FORMATS[written]
        return _of_small(form), form.bits
    form = _NAMED[name.split("_")[which]]
    return _bytes(form), 8


def _addend(binder: Binder, count: int, half: bool) -> Callable[[Batch], Any]:
    """Getter of C as [count, waves, lanes] of the file's type, or a constant."""
    op = binder.ops[3]
    neg, absolute = binder.inst.modifier("neg_lo"), binder.inst.modifier("neg_hi")
    flags = [value[2] if isinstance(value, tuple) and len(value) == 3 else 0 for value in (neg, absolute)]
    integer = "_i32_" in binder.inst.base
    if isinstance(op, Immediate):
        if integer:
            whole = np.int32(int(op.value))
            return lambda b: whole
        value = np.float32(op.value) if isinstance(op.value, float) or op.value == 0 else None
        if value is None:
            raise binder.fail("an integer constant as C is not known for a float result")
        return lambda b: value
    if not isinstance(op, Register) or op.kind != "v":
        raise binder.fail("C must be a vector register tuple or a constant")
    row = binder.vector(3, count)
    if half:
        raise binder.fail("16-bit C registers are read elsewhere")
    if integer:
        return lambda b: b.i[row : row + count]

    def get(b: Batch) -> Any:
        values: Any = b.f[row : row + count]
        if flags[1]:
            values = np.abs(values)
        return np.negative(values) if flags[0] else values

    return get


def _half_addend(binder: Binder, count: int, brain: bool) -> Callable[[Batch], Any]:
    """Getter of C in 16-bit pairs as f32 [2 * count, waves, lanes]."""
    op = binder.ops[3]
    if isinstance(op, Immediate):
        value = np.float32(op.value)
        return lambda b: value
    row = binder.vector(3, count)
    decoder = _brains if brain else _halves

    def get(b: Batch) -> Any:
        return decoder(b.u[row : row + count]).transpose(0, 3, 1, 2).reshape(2 * count, b.n, 32)

    return get


def _check_modifiers(binder: Binder, name: str) -> None:
    """Negation of A or B is not known; for integers these bits are the signs."""
    binder.ignore("matrix_a_reuse", "matrix_b_reuse")
    low, high = binder.take("neg_lo", (0, 0, 0)), binder.take("neg_hi", (0, 0, 0))
    if (name != "iu8" and any(low[:2])) or any(high[:2]):
        raise binder.fail("negated A or B is not known")
    if name == "iu8" and (low[2] or high[2]):
        raise binder.fail("a negated integer C does not exist")


_WMMA = [name for name in ROWS if _SHAPE.match(name)]


def _positive(codes: Array) -> Array:
    """Values of e4m3 scales; what a sign bit would mean is not established."""
    if (codes & 0x80).any():
        raise Fault("an e4m3 scale has its sign bit set")
    return decode(codes, FP8)


@handles(*_WMMA)
def bind_wmma(binder: Binder) -> Closure:
    """D = A B + C; exec is not looked at."""
    match = _SHAPE.match(binder.inst.base)
    assert match is not None
    scaled, kind, m, k, name = match[1], match[2], int(match[3]), int(match[5]), match[6]
    each = 16 if scaled == "scale16_" else 32
    binder.need(6 if scaled else 4)
    blocks = m // 16
    (decode_a, bits_a), (decode_b, bits_b) = _operand(binder, name, 0), _operand(binder, name, 1)
    if 6 in (bits_a, bits_b) and (bits_a != bits_b or scaled):
        problem = (
            "a 6-bit operand beside one of another width, or with scales: no published source says which k it holds"
        )
        raise binder.fail(problem)
    registers_a, registers_b = blocks * k // 2 * bits_a // 32, k // 2 * bits_b // 32
    a, rows_b = binder.vector(1, registers_a), binder.vector(2, registers_b)
    scales = [_scale(binder, which, 16 * (blocks if which == 0 else 1), each) for which in (0, 1)] if scaled else None
    put = _result(binder, kind, 8 * blocks)
    _check_modifiers(binder, name)
    build_a, build_b = _matrix(decode_a, bits_a, blocks), _matrix(decode_b, bits_b, 1)
    key_a, key_b = (("A", a, id(decode_a), bits_a, blocks), ("B", rows_b, id(decode_b), bits_b))
    if name not in _PLAIN and name != "iu8":
        key_a, key_b = (*key_a, binder.inst.text.split()[0], *binder.inst.modifiers), (*key_b, *binder.inst.modifiers)  # type: ignore[assignment]

    def run(b: Batch) -> None:
        cache = b.group.caches.get("wmma")
        if cache is None:
            cache = b.group.caches["wmma"] = OperandCache()
        span = (b.first, b.last)
        left = cache.matrix((key_a, span), b.u[a : a + registers_a], build_a)
        right = cache.matrix((key_b, span), b.u[rows_b : rows_b + registers_b], build_b)
        if scales is not None:
            left, right = scales[0](b, left), scales[1](b, right)
        product = np.matmul(left, right.transpose(0, 2, 1))
        moved = product.reshape(b.n, blocks, 2, 8, 16).transpose(1, 3, 0, 2, 4).reshape(8 * blocks, b.n, 32)
        put(b, moved)

    return run


def _result(binder: Binder, kind: str, count: int) -> Callable[[Batch, Array], None]:
    """Setter of D = C + product [count, waves, lanes]."""
    clamps = binder.flag("clamp")
    if kind == "i32":
        d, c = binder.vector(0, count), _addend(binder, count, False)

        def put_integer(b: Batch, product: Array) -> None:
            total = product.astype(np.int64) + c(b)
            if clamps:
                total = np.clip(total, -(2**31), 2**31 - 1)
            b.i[d : d + count] = total.astype(np.int32)

        return put_integer
    if clamps:
        raise binder.fail("clamp is known for integer products only")
    if kind == "f32":
        d, c = binder.vector(0, count), _addend(binder, count, False)

        def put_single(b: Batch, product: Array) -> None:
            np.add(c(b), product, out=b.f[d : d + count])

        return put_single
    brain = kind.startswith("bf16")
    d = binder.vector(0, count // 2)
    c = _addend(binder, count, False) if kind == "bf16f32" else _half_addend(binder, count // 2, brain)

    def put_half(b: Batch, product: Array) -> None:
        total = (product + c(b)).astype(np.float32)
        codes = bf16_bits(total) if brain else total.astype(np.float16).view(np.uint16).astype(np.uint32)
        b.u[d : d + count // 2] = codes[0::2] | codes[1::2] << np.uint32(16)

    return put_half


#: Scale formats and their values. E5M3, which no kernel of Triton uses, is left out.
_SCALES: dict[str, Callable[[Array], Array]] = {"MATRIX_SCALE_FMT_E8": scale_value, "MATRIX_SCALE_FMT_E4M3": _positive}


def _scale(binder: Binder, which: int, rows: int, each: int) -> Callable[[Batch, Array], Array]:
    """Scaling of A (0) or B (1): a byte for each block of `each` k, in the lane of the row, lowest k first.

    matrix_a_scale and matrix_b_scale name the lane half that holds them.
    """
    letter = "ab"[which]
    form = binder.take(f"matrix_{letter}_scale_fmt", "MATRIX_SCALE_FMT_E8")
    if form not in _SCALES:
        raise binder.fail(f"scale format {form} is not known")
    place = binder.take(f"matrix_{letter}_scale", "MATRIX_SCALE_ROW0")
    if place not in ("MATRIX_SCALE_ROW0", "MATRIX_SCALE_ROW1"):
        raise binder.fail(f"scale place {place} is not known")
    start = 16 * int(place[-1])
    op = binder.ops[4 + which]
    if not isinstance(op, Register) or op.kind != "v":
        raise binder.fail("a scale must be a vector register")
    count = 32 // each
    row, value_of = binder.vector(4 + which, count), _SCALES[form]

    def apply(b: Batch, matrix: Array) -> Array:
        # A of 32 rows takes all lanes.
        lanes = slice(0, 32) if rows == 32 else slice(start, start + 16)
        words = np.ascontiguousarray(b.u[row : row + count, :, lanes].transpose(1, 2, 0))
        factors = value_of(words.view(np.uint8))
        scaled: Array = (matrix.reshape(b.n, rows, 4 * count, each) * factors[..., None]).reshape(matrix.shape)
        return scaled

    return apply
