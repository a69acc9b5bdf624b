"""Scalar ALU: SOP1, SOP2, SOPC, SOPK.

Each operation is a function on Python ints in [0, 2^bits); where the waves of a batch hold different values it runs
once per wave. Semantics after the AMD CDNA3 instruction set manual, chapter "SALU instructions".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdwarp.asm import Immediate
from amdwarp.asm.program import EXEC
from amdwarp.emulator.bind import MASK32, MASK64, Binder, Getter, handles
from amdwarp.emulator.state import Batch, Closure, Scalar, expand, merge


def signed(value: int, bits: int = 32) -> int:
    """Two's complement value of an unsigned int."""
    return value - (1 << bits) if value >> (bits - 1) else value


def _leading(value: int, bits: int) -> int:
    return bits - value.bit_length() if value else -1


def _sign_run(value: int, bits: int) -> int:
    flipped = value ^ ((1 << bits) - 1) if value >> (bits - 1) else value
    return _leading(flipped, bits)


def _reverse(value: int, bits: int) -> int:
    return int(f"{value:0{bits}b}"[::-1], 2)


def _bfe(value: int, field: int, bits: int, is_signed: bool) -> int:
    offset = field & (bits - 1)
    width = (field >> 16) & 0x7F
    if width == 0:
        return 0
    got = (value >> offset) & ((1 << width) - 1)
    if is_signed:
        width = min(width, bits - offset)
        got = signed(got & ((1 << width) - 1), width)
    return got & ((1 << bits) - 1)


def _quadmask(value: int, bits: int) -> int:
    return sum(1 << q for q in range(bits // 4) if value >> (4 * q) & 15)


def _wqm(value: int, bits: int) -> int:
    return sum(15 << (4 * q) for q in range(bits // 4) if value >> (4 * q) & 15)


def _overflow(result: int) -> bool:
    return not -0x80000000 <= result <= 0x7FFFFFFF


def _nonzero(result: int, *_: int) -> int:
    return int(result != 0)


def _bitwise(bits: int) -> dict[str, Callable[[int, int], int]]:
    ones = (1 << bits) - 1
    return {
        "and": lambda a, c: a & c,
        "or": lambda a, c: a | c,
        "xor": lambda a, c: a ^ c,
        "andn2": lambda a, c: a & ~c & ones,
        "orn2": lambda a, c: (a | ~c) & ones,
        "nand": lambda a, c: ~(a & c) & ones,
        "nor": lambda a, c: ~(a | c) & ones,
        "xnor": lambda a, c: ~(a ^ c) & ones,
    }


#: name: (bits of result, bits of each source, function). Results are masked by the function.
PLAIN: dict[str, tuple[int, tuple[int, ...], Callable[..., int]]] = {
    "s_mul_i32": (32, (32, 32), lambda a, c: a * c & MASK32),
    "s_mul_hi_u32": (32, (32, 32), lambda a, c: a * c >> 32),
    "s_mul_hi_i32": (32, (32, 32), lambda a, c: signed(a) * signed(c) >> 32 & MASK32),
    "s_bfm_b32": (32, (32, 32), lambda a, c: ((1 << (a & 31)) - 1) << (c & 31) & MASK32),
    "s_bfm_b64": (64, (32, 32), lambda a, c: ((1 << (a & 63)) - 1) << (c & 63) & MASK64),
    "s_pack_ll_b32_b16": (32, (32, 32), lambda a, c: (a & 0xFFFF) | (c & 0xFFFF) << 16),
    "s_pack_lh_b32_b16": (32, (32, 32), lambda a, c: (a & 0xFFFF) | (c & 0xFFFF0000)),
    "s_pack_hh_b32_b16": (32, (32, 32), lambda a, c: a >> 16 | (c & 0xFFFF0000)),
    "s_mov_b32": (32, (32,), lambda a: a),
    "s_mov_b64": (64, (64,), lambda a: a),
    "s_brev_b32": (32, (32,), lambda a: _reverse(a, 32)),
    "s_brev_b64": (64, (64,), lambda a: _reverse(a, 64)),
    "s_ff0_i32_b32": (32, (32,), lambda a: ((~a & (a + 1)).bit_length() - 1 if a != MASK32 else -1) & MASK32),
    "s_ff0_i32_b64": (32, (64,), lambda a: ((~a & (a + 1)).bit_length() - 1 if a != MASK64 else -1) & MASK32),
    "s_ff1_i32_b32": (32, (32,), lambda a: ((a & -a).bit_length() - 1) & MASK32),
    "s_ff1_i32_b64": (32, (64,), lambda a: ((a & -a).bit_length() - 1) & MASK32),
    "s_flbit_i32_b32": (32, (32,), lambda a: _leading(a, 32) & MASK32),
    "s_flbit_i32_b64": (32, (64,), lambda a: _leading(a, 64) & MASK32),
    "s_flbit_i32": (32, (32,), lambda a: _sign_run(a, 32) & MASK32),
    "s_flbit_i32_i64": (32, (64,), lambda a: _sign_run(a, 64) & MASK32),
    "s_sext_i32_i8": (32, (32,), lambda a: signed(a & 0xFF, 8) & MASK32),
    "s_sext_i32_i16": (32, (32,), lambda a: signed(a & 0xFFFF, 16) & MASK32),
    "s_bitreplicate_b64_b32": (64, (32,), lambda a: sum(3 << (2 * k) for k in range(32) if a >> k & 1)),
}


def _shift_add(amount: int) -> Callable[[int, int], tuple[int, int]]:
    def run(a: int, c: int) -> tuple[int, int]:
        result = (a << amount) + c
        return result & MASK32, int(result > MASK32)

    return run


def _absdiff(a: int, c: int) -> tuple[int, int]:
    result = abs(signed(a) - signed(c)) & MASK32
    return result, int(result != 0)


def _with(function: Callable[..., int]) -> Callable[..., tuple[int, int]]:
    """`function` with SCC = result is not zero."""

    def run(*args: int) -> tuple[int, int]:
        result = function(*args)
        return result, int(result != 0)

    return run


#: name: (bits of result, bits of each source, function that returns result and SCC).
WITH_SCC: dict[str, tuple[int, tuple[int, ...], Callable[..., tuple[int, int]]]] = {
    "s_add_u32": (32, (32, 32), lambda a, c: (a + c & MASK32, a + c >> 32)),
    "s_sub_u32": (32, (32, 32), lambda a, c: (a - c & MASK32, int(c > a))),
    "s_add_i32": (32, (32, 32), lambda a, c: (a + c & MASK32, int(_overflow(signed(a) + signed(c))))),
    "s_sub_i32": (32, (32, 32), lambda a, c: (a - c & MASK32, int(_overflow(signed(a) - signed(c))))),
    "s_absdiff_i32": (32, (32, 32), _absdiff),
    "s_min_i32": (32, (32, 32), lambda a, c: (a, 1) if signed(a) < signed(c) else (c, 0)),
    "s_max_i32": (32, (32, 32), lambda a, c: (a, 1) if signed(a) > signed(c) else (c, 0)),
    "s_min_u32": (32, (32, 32), lambda a, c: (a, 1) if a < c else (c, 0)),
    "s_max_u32": (32, (32, 32), lambda a, c: (a, 1) if a > c else (c, 0)),
    "s_lshl_b32": (32, (32, 32), _with(lambda a, c: a << (c & 31) & MASK32)),
    "s_lshl_b64": (64, (64, 32), _with(lambda a, c: a << (c & 63) & MASK64)),
    "s_lshr_b32": (32, (32, 32), _with(lambda a, c: a >> (c & 31))),
    "s_lshr_b64": (64, (64, 32), _with(lambda a, c: a >> (c & 63))),
    "s_ashr_i32": (32, (32, 32), _with(lambda a, c: signed(a) >> (c & 31) & MASK32)),
    "s_ashr_i64": (64, (64, 32), _with(lambda a, c: signed(a, 64) >> (c & 63) & MASK64)),
    "s_bfe_u32": (32, (32, 32), _with(lambda a, c: _bfe(a, c, 32, False))),
    "s_bfe_i32": (32, (32, 32), _with(lambda a, c: _bfe(a, c, 32, True))),
    "s_bfe_u64": (64, (64, 32), _with(lambda a, c: _bfe(a, c, 64, False))),
    "s_bfe_i64": (64, (64, 32), _with(lambda a, c: _bfe(a, c, 64, True))),
    "s_abs_i32": (32, (32,), _with(lambda a: abs(signed(a)) & MASK32)),
    "s_not_b32": (32, (32,), _with(lambda a: a ^ MASK32)),
    "s_not_b64": (64, (64,), _with(lambda a: a ^ MASK64)),
    "s_wqm_b32": (32, (32,), _with(lambda a: _wqm(a, 32))),
    "s_wqm_b64": (64, (64,), _with(lambda a: _wqm(a, 64))),
    "s_quadmask_b32": (32, (32,), _with(lambda a: _quadmask(a, 32))),
    "s_quadmask_b64": (64, (64,), _with(lambda a: _quadmask(a, 64))),
    "s_bcnt0_i32_b32": (32, (32,), _with(lambda a: 32 - bin(a).count("1"))),
    "s_bcnt0_i32_b64": (32, (64,), _with(lambda a: 64 - bin(a).count("1"))),
    "s_bcnt1_i32_b32": (32, (32,), _with(lambda a: bin(a).count("1"))),
    "s_bcnt1_i32_b64": (32, (64,), _with(lambda a: bin(a).count("1"))),
}
for _amount in (1, 2, 3, 4):
    WITH_SCC[f"s_lshl{_amount}_add_u32"] = (32, (32, 32), _shift_add(_amount))
for _bits in (32, 64):
    for _name, _function in _bitwise(_bits).items():
        WITH_SCC[f"s_{_name}_b{_bits}"] = (_bits, (_bits, _bits), _with(_function))

_ORDER: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, c: a == c,
    "lg": lambda a, c: a != c,
    "gt": lambda a, c: a > c,
    "ge": lambda a, c: a >= c,
    "lt": lambda a, c: a < c,
    "le": lambda a, c: a <= c,
}


def _compare(condition: Callable[[int, int], bool], is_signed: bool) -> Callable[[int, int], int]:
    if is_signed:
        return lambda a, c: int(condition(signed(a), signed(c)))
    return lambda a, c: int(condition(a, c))


#: name: (bits of each source, function that returns SCC).
COMPARES: dict[str, tuple[tuple[int, int], Callable[[int, int], int]]] = {
    "s_cmp_eq_u64": ((64, 64), lambda a, c: int(a == c)),
    "s_cmp_lg_u64": ((64, 64), lambda a, c: int(a != c)),
    "s_bitcmp0_b32": ((32, 32), lambda a, c: int(not a >> (c & 31) & 1)),
    "s_bitcmp1_b32": ((32, 32), lambda a, c: a >> (c & 31) & 1),
    "s_bitcmp0_b64": ((64, 32), lambda a, c: int(not a >> (c & 63) & 1)),
    "s_bitcmp1_b64": ((64, 32), lambda a, c: a >> (c & 63) & 1),
}
for _name, _condition in _ORDER.items():
    for _sign in "iu":
        for _kind in ("cmp", "cmpk"):
            COMPARES[f"s_{_kind}_{_name}_{_sign}32"] = ((32, 32), _compare(_condition, _sign == "i"))


def apply(function: Callable[..., Any], b: Batch, args: tuple[Scalar, ...]) -> list[Any]:
    """`function` once for each wave."""
    return [function(*row) for row in zip(*(expand(value, b.n) for value in args), strict=True)]


def each(function: Callable[..., int], b: Batch, *args: Scalar) -> Scalar:
    """`function` once where all waves agree, else once for each wave."""
    for value in args:
        if type(value) is not int:
            return merge(apply(function, b, args))
    return function(*args)


def _sources(binder: Binder, bits: tuple[int, ...], first: int) -> list[Getter]:
    binder.need(first + len(bits))
    return [binder.scalar_source(first + at, size) for at, size in enumerate(bits)]


@handles(*PLAIN)
def bind_plain(binder: Binder) -> Closure:
    """Operations that leave SCC alone."""
    bits, source_bits, function = PLAIN[binder.inst.base]
    get = _sources(binder, source_bits, 1)
    put = binder.scalar_target(0, bits)
    if len(get) == 1:
        only = get[0]
        return lambda b: put(b, each(function, b, only(b)))
    left, right = get
    return lambda b: put(b, each(function, b, left(b), right(b)))


@handles(*WITH_SCC)
def bind_with_scc(binder: Binder) -> Closure:
    """Operations that set SCC."""
    bits, source_bits, function = WITH_SCC[binder.inst.base]
    return _scc_closure(binder, bits, _sources(binder, source_bits, 1), function)


def _scc_closure(binder: Binder, bits: int, get: list[Getter], function: Callable[..., tuple[int, int]]) -> Closure:
    put = binder.scalar_target(0, bits)

    def run(b: Batch) -> None:
        args = tuple(source(b) for source in get)
        for value in args:
            if type(value) is not int:
                break
        else:
            result, b.scc = function(*args)
            put(b, result)
            return
        pairs = apply(function, b, args)
        put(b, merge([pair[0] for pair in pairs]))
        b.scc = merge([pair[1] for pair in pairs])

    return run


@handles(*COMPARES)
def bind_compare(binder: Binder) -> Closure:
    """Comparisons and bit tests: only SCC is written."""
    source_bits, function = COMPARES[binder.inst.base]
    left, right = _sources(binder, source_bits, 0)
    if binder.inst.base.startswith("s_cmpk_") and binder.inst.base.endswith("i32"):
        constant = _short(binder)
        right = lambda b: constant  # noqa: E731

    def run(b: Batch) -> None:
        b.scc = each(function, b, left(b), right(b))

    return run


@handles("s_addc_u32", "s_subb_u32")
def bind_carry(binder: Binder) -> Closure:
    """Add and subtract with SCC as carry in and out."""
    if binder.inst.base == "s_addc_u32":

        def function(a: int, c: int, carry: int) -> tuple[int, int]:
            return a + c + carry & MASK32, a + c + carry >> 32
    else:

        def function(a: int, c: int, carry: int) -> tuple[int, int]:
            return a - c - carry & MASK32, int(c + carry > a)

    return _scc_closure(binder, 32, [*_sources(binder, (32, 32), 1), lambda b: b.scc], function)


@handles("s_cselect_b32", "s_cselect_b64")
def bind_select(binder: Binder) -> Closure:
    """SCC ? first : second."""
    bits = int(binder.inst.base[-2:])
    left, right = _sources(binder, (bits, bits), 1)
    put = binder.scalar_target(0, bits)

    def run(b: Batch) -> None:
        scc = b.scc
        if type(scc) is int:
            put(b, left(b) if scc else right(b))
        else:
            put(b, each(lambda s, x, y: x if s else y, b, scc, left(b), right(b)))

    return run


@handles("s_cmov_b32", "s_cmov_b64", "s_cmovk_i32")
def bind_conditional_move(binder: Binder) -> Closure:
    """Move where SCC is set."""
    bits = 64 if binder.inst.base.endswith("b64") else 32
    (source,) = _sources(binder, (bits,), 1)
    put, index = binder.scalar_target(0, bits), binder.scalar(0)

    def run(b: Batch) -> None:
        old = b.pair(index) if bits == 64 else b.s[index]
        put(b, each(lambda s, x, y: x if s else y, b, b.scc, source(b), old))

    return run


def _short(binder: Binder) -> int:
    op = binder.ops[1]
    if not isinstance(op, Immediate) or not isinstance(op.value, int):
        raise binder.fail("operand 2 must be a 16-bit number")
    return signed(op.value & 0xFFFF, 16) & MASK32


@handles("s_movk_i32", "s_mulk_i32", "s_addk_i32")
def bind_short_constant(binder: Binder) -> Closure:
    """Operations with a sign-extended 16-bit constant."""
    binder.need(2)
    constant, index, name = _short(binder), binder.scalar(0, 1), binder.inst.base
    put = binder.scalar_target(0)
    if name == "s_movk_i32":
        return lambda b: put(b, constant)
    if name == "s_addk_i32":
        return _scc_closure(binder, 32, [lambda b: b.s[index], lambda b: constant], WITH_SCC["s_add_i32"][2])
    return lambda b: put(b, each(lambda a: a * constant & MASK32, b, b.s[index]))


@handles("s_bitset0_b32", "s_bitset1_b32", "s_bitset0_b64", "s_bitset1_b64")
def bind_bit_set(binder: Binder) -> Closure:
    """Set or clear one bit of the destination."""
    bits, one = int(binder.inst.base[-2:]), binder.inst.base.startswith("s_bitset1")
    (which,) = _sources(binder, (32,), 1)
    put, index = binder.scalar_target(0, bits), binder.scalar(0)

    def change(old: int, bit: int) -> int:
        flag = 1 << (bit & (bits - 1))
        return old | flag if one else old & ~flag

    def run(b: Batch) -> None:
        old = b.pair(index) if bits == 64 else b.s[index]
        put(b, each(change, b, old, which(b)))

    return run


#: name: (result from source and exec, old exec is saved to the destination).
SAVEEXEC: dict[str, tuple[Callable[[int, int], int], bool]] = {
    f"s_{name}_saveexec_b64": (function, True) for name, function in _bitwise(64).items()
}
SAVEEXEC["s_andn1_saveexec_b64"] = (lambda a, e: ~a & e & MASK64, True)
SAVEEXEC["s_orn1_saveexec_b64"] = (lambda a, e: (~a | e) & MASK64, True)
SAVEEXEC["s_andn1_wrexec_b64"] = (lambda a, e: ~a & e & MASK64, False)
SAVEEXEC["s_andn2_wrexec_b64"] = (lambda a, e: a & ~e & MASK64, False)


@handles(*SAVEEXEC)
def bind_save_exec(binder: Binder) -> Closure:
    """Combine exec with the source; the destination takes the old exec (saveexec) or the result (wrexec)."""
    function, saves = SAVEEXEC[binder.inst.base]
    (source,) = _sources(binder, (64,), 1)
    put = binder.scalar_target(0, 64)

    def run(b: Batch) -> None:
        old, value = b.pair(EXEC), source(b)
        result = each(function, b, value, old)
        put(b, old if saves else result)
        b.set_pair(EXEC, result)
        b.scc = each(_nonzero, b, result)

    return run
