"""Matrix instructions of CDNA (MFMA).

Layouts after the AMD CDNA3 and CDNA4 instruction set manuals, chapter "Matrix arithmetic instructions". For an
M x N x K product by 64 lanes, lane l holds of A the row l % M and of B the column l % N, both at the k of group l // M,
consecutive in its registers; of D it holds the column l % N. The 8-bit formats of the f8f6f4 instructions are an
exception: a lane's 32 elements are two runs of 16, the second K / 2 behind the first.

Where the instruction names broadcasts (cbsz and abid for A, blgp for B), the lanes are permuted before that. For f64,
blgp negates A, B and C instead; for the f8f6f4 instructions cbsz and blgp name the formats.

Products are formed and summed in f32 (f64 for f64 inputs). The order of summation is the host's. MODE's denormal flags
act on f32 inputs; with MODE.FP16_OVFL set, what overflows becomes the largest number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from amdwarp.asm import Immediate, Register
from amdwarp.asm.table import TABLE
from amdwarp.emulator.bind import Binder, handles, read64, write64
from amdwarp.emulator.convert import overflow_clamps
from amdwarp.emulator.floats import BF6, FP4, FP6, FP8_OF_TARGET, SmallFloat, bf16_value, decode, scale_value
from amdwarp.emulator.memory import Array
from amdwarp.emulator.state import Batch, Closure

#: uint32 [registers, waves, lanes] to element values [registers * per, waves, lanes] as (registers, waves, lanes, per)
Decoder = Callable[[Array], Array]
#: First row of C, its constant value, or None for 0.
Addend = int | np.number[Any] | None

_SHAPE = re.compile(r"v_mfma_(?:scale_)?(f32|i32|f64)_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_(\w+)$")


def _halves(raw: Array) -> Array:
    wide: Array = raw.view(np.float16).reshape(*raw.shape, 2).astype(np.float32)
    return wide


def _brains(raw: Array) -> Array:
    return bf16_value(raw.view(np.uint16).reshape(*raw.shape, 2))


def _singles(raw: Array) -> Array:
    return raw.view(np.float32)[..., None]


def _xf32(raw: Array) -> Array:
    """f32 rounded to the 10 mantissa bits of xf32."""
    finite = raw & np.uint32(0x7F800000) != 0x7F800000
    rounded = raw + np.uint32(0xFFF) + (raw >> np.uint32(13) & np.uint32(1)) & np.uint32(0xFFFFE000)
    return np.where(finite, rounded, raw).view(np.float32)[..., None]


def _bytes(form: SmallFloat) -> Decoder:
    return lambda raw: decode(raw.view(np.uint8).reshape(*raw.shape, 4), form)


def _integers(raw: Array) -> Array:
    return raw.view(np.int8).reshape(*raw.shape, 4).astype(np.float64)


def _packed(form: SmallFloat) -> Decoder:
    """Codes of 4 or 6 bits that run across registers, lowest bits first."""

    def read(raw: Array) -> Array:
        bits = np.unpackbits(np.ascontiguousarray(raw.transpose(1, 2, 0)).view(np.uint8), axis=-1, bitorder="little")
        fields = bits.reshape(*bits.shape[:2], -1, form.bits)
        codes = fields @ (1 << np.arange(form.bits))
        values = decode(codes, form)
        # One "register" per element keeps the axes of the other decoders.
        return np.ascontiguousarray(values.transpose(2, 0, 1))[..., None]

    return read


@dataclass(frozen=True)
class Shape:
    """One matrix operation: D[m, n] += sum over k of A[m, k] * B[k, n], for each block."""

    m: int
    n: int
    k: int
    blocks: int

    @property
    def groups(self) -> int:
        """Lane groups that hold different k (or different blocks)."""
        return 64 // self.m

    @property
    def per_lane(self) -> int:
        """Elements of A (and of B) in a lane."""
        return self.k * self.m * self.blocks // 64

    @property
    def results(self) -> int:
        """Elements of D in a lane."""
        return self.m * self.n * self.blocks // 64

    def rows_of_result(self, lane_half: int) -> list[int]:
        """Row of D that each result register of lane group `lane_half` holds, within one block."""
        per_block = self.results // self.blocks
        step = 4 * (64 // self.n)
        return [step * (r // 4) + 4 * lane_half + r % 4 for r in range(per_block)]


@cache
def order_of_result(shape: Shape) -> Array:
    """Row of D, within one block, for each (result register, lane group)."""
    halves = [shape.rows_of_result(group) for group in range(64 // shape.n)]
    return np.array([half[r] for r in range(shape.results // shape.blocks) for half in halves])


class OperandCache:
    """Decoded A and B matrices by register tuple, valid while the registers hold the same bits.

    A tile's fragment feeds several matrix instructions; comparing its bits costs less than decoding it.
    """

    def __init__(self) -> None:
        self.known: dict[Any, tuple[bytes, Array]] = {}

    def matrix(self, key: Any, raw: Array, build: Callable[[Array], Array]) -> Array:
        """The matrix `build` makes of `raw`."""
        bits = raw.tobytes()
        hit = self.known.get(key)
        if hit is not None and hit[0] == bits:
            return hit[1]
        made = build(raw)
        self.known[key] = (bits, made)
        return made


def _left(shape: Shape, decoder: Decoder, runs: int) -> Callable[[Array], Array]:
    """Registers of A to [waves, blocks, rows, k]; rows stand in the order of (result register, lane group)."""
    order = np.arange(4) if shape.m == 4 else order_of_result(shape)
    plain = right_matrix(shape, decoder, runs)
    return lambda raw: np.ascontiguousarray(plain(raw)[:, :, order])


def right_matrix(shape: Shape, decoder: Decoder, runs: int) -> Callable[[Array], Array]:
    """Registers of B to [waves, blocks, columns, k]; a lane's elements are `runs` separate runs of k."""

    def build(raw: Array) -> Array:
        values = decoder(raw)
        registers, waves, _, per = values.shape
        split = values.reshape(runs, registers // runs, waves, shape.groups, shape.m, per)
        if shape.blocks == 1:
            flat = split.transpose(2, 4, 0, 3, 1, 5).reshape(waves, 1, shape.m, shape.k)
        else:
            flat = split.transpose(2, 3, 4, 0, 1, 5).reshape(waves, shape.blocks, shape.m, shape.k)
        # A copy even where the layout fits: the registers go on changing.
        return np.array(flat, order="C")

    return build


_FORMATS = {0: 8, 1: 8, 2: 6, 3: 6, 4: 4}


def _decoder(binder: Binder, name: str, which: int) -> tuple[Decoder, int]:
    """Decoder of operand `which` (0 is A, 1 is B) and its registers, or 0 where the shape alone says."""
    fp8, bf8 = FP8_OF_TARGET.get(binder.program.target, (None, None))
    if name == "f8f6f4":
        code = binder.take("cbsz" if which == 0 else "blgp", 0)
        if code not in _FORMATS or fp8 is None or bf8 is None:
            raise binder.fail(f"matrix format {code} is not known")
        choices = {0: _bytes(fp8), 1: _bytes(bf8), 2: _packed(FP6), 3: _packed(BF6), 4: _packed(FP4)}
        return choices[code], _FORMATS[code]
    parts = name.split("_")
    part = parts[which] if len(parts) == 2 else name
    table: dict[str, Decoder] = {"f16": _halves, "bf16": _brains, "f32": _singles, "xf32": _xf32, "i8": _integers}
    if fp8 is not None and bf8 is not None:
        table |= {"fp8": _bytes(fp8), "bf8": _bytes(bf8)}
    if part not in table:
        raise binder.fail(f"matrix element type {part} is not known on {binder.program.target}")
    return table[part], 0


def source_lanes(binder: Binder, blocks: int) -> tuple[Array | None, Array | None]:
    """The lane that each lane reads A and B from, after cbsz, abid and blgp; None for its own."""
    lane = np.arange(64)
    size, block, permutation = binder.take("cbsz", 0), binder.take("abid", 0), binder.take("blgp", 0)
    if (size and (1 << size > blocks or size > 4)) or block >= max(1, 1 << size):
        raise binder.fail(f"cbsz:{size} abid:{block} is no broadcast of {blocks} blocks")
    width = 64 >> size
    left = lane % width + width * block if size else None
    choices = [
        *(None, lane % 32, lane % 32 + 32, (lane + 16) % 64),
        *(lane % 16 + 16 * row for row in range(4)),
    ]
    if not 0 <= permutation < len(choices):
        raise binder.fail("blgp must lie between 0 and 7")
    return left, choices[permutation]


def permuted(build: Callable[[Array], Array], lanes: Array | None) -> Callable[[Array], Array]:
    """`build` on registers whose lanes are read through `lanes`."""
    if lanes is None:
        return build
    return lambda raw: build(np.ascontiguousarray(raw[:, :, lanes]))


def flushed(matrix: Array) -> Array:
    """f32 with denormals as zeros of their sign."""
    tiny = np.abs(matrix) < np.finfo(np.float32).tiny
    return np.where(tiny, np.copysign(np.float32(0), matrix), matrix)


_BITS = {"f16": 16, "bf16": 16, "f32": 32, "xf32": 32, "i8": 8, "fp8": 8, "bf8": 8}


def element_bits(name: str) -> int:
    """Width of the elements of A, after the end of a mnemonic (``f16``, ``fp8_bf8``)."""
    return _BITS[name.split("_")[0]]


def element_decoder(binder: Binder, name: str, which: int) -> Decoder:
    """Decoder of the elements of A (0) or B (1)."""
    return _decoder(binder, name, which)[0]


@handles(*(name for name in TABLE if name.startswith("v_mfma_") and "_f64" not in name))
def bind_mfma(binder: Binder) -> Closure:
    """D = A B + C; exec is not looked at."""
    match = _SHAPE.match(binder.inst.base)
    assert match is not None
    kind, name = match[1], match[6]
    shape = Shape(int(match[2]), int(match[3]), int(match[4]), int(match[5] or 1))
    scaled = binder.inst.base.startswith("v_mfma_scale_")
    binder.need(6 if scaled else 4)
    decode_a, registers_a = _decoder(binder, name, 0)
    decode_b, registers_b = _decoder(binder, name, 1)
    if not registers_a:
        registers_a = registers_b = max(1, shape.per_lane * element_bits(name) // 32)
    a, rows_b = binder.vector(1, registers_a), binder.vector(2, registers_b)
    scales = [_scale(binder, at, shape) for at in (0, 1)] if scaled else None
    runs_a, runs_b = (2 if name == "f8f6f4" and count == 8 else 1 for count in (registers_a, registers_b))
    build_a, build_b = _left(shape, decode_a, runs_a), right_matrix(shape, decode_b, runs_b)
    if name != "f8f6f4":
        lanes_a, lanes_b = source_lanes(binder, shape.blocks)
        build_a, build_b = permuted(build_a, lanes_a), permuted(build_b, lanes_b)
    d, c = binder.vector(0, shape.results), addend(binder, shape.results, kind)
    key_a = ("A", a, binder.inst.base, binder.inst.modifier("cbsz"), binder.inst.modifier("abid"))
    key_b = ("B", rows_b, binder.inst.base, binder.inst.modifier("blgp"))
    integer, singles = kind == "i32", name == "f32"

    def run(b: Batch) -> None:
        cache = b.group.caches.get("mfma")
        if cache is None:
            cache = b.group.caches["mfma"] = OperandCache()
        span = (b.first, b.last)
        left = cache.matrix((key_a, span), b.u[a : a + registers_a], build_a)
        right = cache.matrix((key_b, span), b.u[rows_b : rows_b + registers_b], build_b)
        if scales is not None:
            left, right = scales[0](b, left), scales[1](b, right)
        if singles and b.mode & 0x10 == 0:
            left, right = flushed(left), flushed(right)
        accumulate(b, shape, left, right, c, d, integer)

    return run


def accumulate(b: Batch, shape: Shape, left: Array, right: Array, c: Addend, d: int, integer: bool) -> None:
    """Write C + left right to the result registers; `c` is the first row of C, a constant or None for 0."""
    product = np.matmul(left, right.transpose(0, 1, 3, 2))
    count = shape.results
    if shape.m == 4:
        # [waves, blocks, 4 rows, 4 columns]: lane is block * 4 + column, register the row.
        moved = product.transpose(2, 0, 1, 3).reshape(4, b.n, 64)
    else:
        per_block = count // shape.blocks
        moved = product.reshape(b.n, shape.blocks, per_block, 64).transpose(1, 2, 0, 3).reshape(count, b.n, 64)
    file = b.i if integer else b.f
    if integer:
        moved = moved.astype(np.int64).astype(np.int32)
    clamps = not integer and overflow_clamps(b)
    finite = np.isfinite(file[c : c + count]).copy() if clamps and type(c) is int else True
    if c is None:
        file[d : d + count] = moved
    elif type(c) is int:
        np.add(file[c : c + count], moved, out=file[d : d + count])
    else:
        np.add(c, moved, out=file[d : d + count])
    if clamps:
        _clamp(file[d : d + count], finite, bool(np.isfinite(left).all() and np.isfinite(right).all()))


def _clamp(result: Array, finite: Any, sources: bool) -> None:
    """Overflow of finite numbers becomes the largest number."""
    over = np.isinf(result) & finite
    if sources and over.any():
        result[over] = np.copysign(np.finfo(np.float32).max, result[over])


def addend(binder: Binder, count: int, kind: str) -> Addend:
    """C of a matrix instruction with results of type `kind`."""
    op = binder.ops[3]
    if isinstance(op, Immediate):
        if op.value == 0:
            return None
        value: np.number[Any] = binder.plain_source(op, 3, kind)(None)  # type: ignore[arg-type]
        return value
    if isinstance(op, Register) and op.kind != "s":
        return binder.vector(3, count)
    raise binder.fail("C must be a vector register tuple or a constant")


def _scale(binder: Binder, which: int, shape: Shape) -> Callable[[Batch, Array], Array]:
    """Scaling of A (0) or B (1) by e8m0 exponents: lane l holds the scale of its own 32 elements."""
    at = 4 + which
    low, high = binder.inst.modifier("op_sel"), binder.inst.modifier("op_sel_hi")
    binder.ignore("op_sel", "op_sel_hi")
    bits = [value[which] if isinstance(value, tuple) else default for value, default in ((low, 0), (high, 1))]
    shift = np.uint32(8 * (bits[0] | bits[1] << 1))
    get = binder.source(at, "u32")
    order = order_of_result(shape)

    def apply(b: Batch, matrix: Array) -> Array:
        codes = np.broadcast_to(get(b) >> shift & np.uint32(0xFF), (b.n, 64))
        factors = scale_value(codes).reshape(b.n, shape.groups, shape.m).transpose(0, 2, 1)
        if which == 0:
            factors = factors[:, order]
        blocks = matrix.reshape(b.n, 1, shape.m, shape.groups, -1)
        scaled: Array = (blocks * factors[:, None, :, :, None]).reshape(matrix.shape)
        return scaled

    return apply


@handles("v_mfma_f64_16x16x4_f64", "v_mfma_f64_4x4x4_4b_f64")
def bind_mfma_f64(binder: Binder) -> Closure:
    """D = A B + C in f64. A and B are a register pair: row (column) l % M of group l // M.

    D of 16x16x4: register pair r of lane l is row 4 r + l // 16. D of 4x4x4 (4 blocks): lane l is row l // 16 of the
    block l // 4 % 4.
    """
    binder.need(4)
    small = "_4b_" in binder.inst.base
    a, rows_b = binder.vector(1, 2), binder.vector(2, 2)
    results = 1 if small else 4
    d, c = binder.vector(0, 2 * results), addend(binder, 2 * results, "f64")
    negate_a, negate_b, negate_c = _negations(binder)

    def run(b: Batch) -> None:
        left, right = negate_a * read64(b, a).view(np.float64), negate_b * read64(b, rows_b).view(np.float64)
        if small:
            # lane = k * 16 + block * 4 + row
            x, y = (v.reshape(b.n, 4, 4, 4).transpose(0, 2, 3, 1) for v in (left, right))
            product = np.matmul(x, y.transpose(0, 1, 3, 2)).transpose(2, 0, 1, 3).reshape(4, b.n, 16)
            moved = product.transpose(1, 0, 2).reshape(1, b.n, 64)
        else:
            rows, columns = left.reshape(b.n, 4, 16).transpose(0, 2, 1), right.reshape(b.n, 4, 16)
            moved = np.matmul(rows, columns).reshape(b.n, 4, 64).transpose(1, 0, 2)
        for r in range(results):
            value = moved[r]
            if type(c) is int:
                value = value + negate_c * read64(b, c + 2 * r).view(np.float64)
            elif c is not None:
                value = value + np.float64(negate_c) * c
            write64(b, d + 2 * r, np.ascontiguousarray(value).view(np.uint64), None)

    return run


def _negations(binder: Binder) -> tuple[float, float, float]:
    """Factors of A, B and C of an f64 product: blgp, or neg in newer texts, negates."""
    bits = binder.take("blgp", 0)
    fields = binder.take("neg", (bits & 1, bits >> 1 & 1, bits >> 2 & 1))
    if not isinstance(fields, tuple) or len(fields) != 3:
        raise binder.fail("neg must have 3 entries")
    a, b, c = (-1.0 if field else 1.0 for field in fields)
    return a, b, c
