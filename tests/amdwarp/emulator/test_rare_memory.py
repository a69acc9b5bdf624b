"""The rarer LDS instructions and atomics, structured buffers, narrow loads to LDS, half-register scratch loads."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

LANE = np.arange(64)
U32, U64 = np.uint32, np.uint64


def words(value: int, wide: bool) -> list[int]:
    return [value & 0xFFFFFFFF, value >> 32] if wide else [value]


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def single(value: int) -> float:
    number: float = struct.unpack("f", struct.pack("I", value))[0]
    return number


#: operation: result of old value, first and second operand, and bits
INTEGER: dict[str, Callable[[int, int, int, int], int]] = {
    "add_u": lambda old, a, b, n: old + a,
    "sub_u": lambda old, a, b, n: old - a,
    "rsub_u": lambda old, a, b, n: a - old,
    "inc_u": lambda old, a, b, n: 0 if old >= a else old + 1,
    "dec_u": lambda old, a, b, n: a if old == 0 or old > a else old - 1,
    "min_u": lambda old, a, b, n: min(old, a),
    "max_u": lambda old, a, b, n: max(old, a),
    "min_i": lambda old, a, b, n: min(signed(old, n), signed(a, n)),
    "max_i": lambda old, a, b, n: max(signed(old, n), signed(a, n)),
    "and_b": lambda old, a, b, n: old & a,
    "or_b": lambda old, a, b, n: old | a,
    "xor_b": lambda old, a, b, n: old ^ a,
    "mskor_b": lambda old, a, b, n: old & ~a | b,
    "cmpst_b": lambda old, a, b, n: b if old == a else old,
    "wrap_b": lambda old, a, b, n: old - a if old >= a else old + b,
    "wrxchg_b": lambda old, a, b, n: a,
}


def tuple_of(first: int, wide: bool) -> str:
    return f"v[{first}:{first + 1}]" if wide else f"v{first}"


@pytest.mark.parametrize("name", [*INTEGER])
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("returns", [False, True])
def test_lds_atomics(execute: Any, random: Any, name: str, bits: int, returns: bool) -> None:
    if (name == "wrap_b" and (bits == 64 or not returns)) or (name == "wrxchg_b" and not returns):
        pytest.skip("there is no such instruction")
    wide = bits == 64
    operation, kind = name.split("_")
    two = operation in ("mskor", "cmpst", "wrap")
    olds = [int(x) for x in random.integers(0, 2**bits, 64, dtype=U64 if wide else U32)]
    first = [int(x) for x in random.integers(0, 2**bits, 64, dtype=U64 if wide else U32)]
    second = [int(x) for x in random.integers(0, 2**bits, 64, dtype=U64 if wide else U32)]
    first[::4] = olds[::4]
    olds[1::9] = [0] * len(olds[1::9])
    columns = {}
    for at, values in ((2, olds), (4, first), (6, second)):
        for part in range(bits // 32):
            columns[f"v{at + part}"] = np.array([words(value, wide)[part] for value in values], U32)
    mnemonic = f"ds_{operation}{'_rtn' if returns else ''}_{kind}{bits}"
    shift = 3 if wide else 2
    operands = [tuple_of(4, wide)] + [tuple_of(6, wide)] * two
    target = [tuple_of(12, wide)] if returns else []
    body = [f"v_lshlrev_b32_e32 v1, {shift}, v0", f"ds_write_b{bits} v1, {tuple_of(2, wide)} offset:16"]
    body += [f"{mnemonic} {', '.join([*target, 'v1', *operands])} offset:16"]
    body += [f"ds_read_b{bits} {tuple_of(14, wide)}, v1 offset:16", "s_waitcnt lgkmcnt(0)"]
    out = execute(body, columns, [f"v{n}" for n in range(12, 16)] if returns else ["v14", "v15"], lds=1024)

    def value(at: int, lane: int) -> int:
        return int(out[f"v{at}"][lane]) | (int(out[f"v{at + 1}"][lane]) << 32 if wide else 0)

    for lane in range(64):
        wanted = INTEGER[name](olds[lane], first[lane], second[lane], bits) & (1 << bits) - 1
        assert value(14, lane) == wanted
        if returns:
            assert value(12, lane) == olds[lane]


@pytest.mark.parametrize("operation", ["add", "min", "max", "cmpst"])
@pytest.mark.parametrize("bits", [32, 64])
def test_lds_float_atomics(execute: Any, random: Any, operation: str, bits: int) -> None:
    kind = np.float32 if bits == 32 else np.float64
    data = (random.standard_normal((3, 64)) * 4).astype(kind)
    data[1][::5] = data[0][::5]
    data[0][7], data[1][9] = np.nan, np.nan
    inputs = {
        f"v{2 + 2 * at + part}": np.ascontiguousarray(row).view(U32).reshape(64, -1)[:, part].copy()
        for at, row in enumerate(data)
        for part in range(bits // 32)
    }
    wide = bits == 64
    operands = [tuple_of(4, wide)] + [tuple_of(6, wide)] * (operation == "cmpst")
    body = [f"v_lshlrev_b32_e32 v1, {3 if wide else 2}, v0", f"ds_write_b{bits} v1, {tuple_of(2, wide)}"]
    body += [f"ds_{operation}_f{bits} v1, {', '.join(operands)}", f"ds_read_b{bits} {tuple_of(14, wide)}, v1"]
    out = execute([*body, "s_waitcnt lgkmcnt(0)"], inputs, ["v14", "v15"][: bits // 32], lds=512)
    got = np.ascontiguousarray(np.stack([*out.values()], axis=1)).view(kind)[:, 0]
    with np.errstate(invalid="ignore"):
        wanted = {
            "add": data[0] + data[1],
            "min": np.where(data[1] < data[0], data[1], data[0]),
            "max": np.where(data[1] > data[0], data[1], data[0]),
            "cmpst": np.where(data[0] == data[1], data[2], data[0]),
        }[operation]
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_lds_packed_adds(execute: Any, random: Any, kind: str) -> None:
    dtype = np.float16 if kind == "f16" else ml_dtypes.bfloat16
    data = random.standard_normal((2, 64, 2)).astype(dtype)
    inputs = {f"v{2 + at}": np.ascontiguousarray(row).view(U32)[:, 0].copy() for at, row in enumerate(data)}
    body = [
        "v_lshlrev_b32_e32 v1, 2, v0",
        "ds_write_b32 v1, v2",
        f"ds_pk_add_rtn_{kind} v12, v1, v3",
        "ds_read_b32 v13, v1",
    ]
    out = execute([*body, "s_waitcnt lgkmcnt(0)"], inputs, ["v12", "v13"], lds=256)
    np.testing.assert_array_equal(out["v12"], inputs["v2"])
    total = (data[0].astype(np.float32) + data[1].astype(np.float32)).astype(dtype)
    np.testing.assert_array_equal(out["v13"], np.ascontiguousarray(total).view(U32)[:, 0])


def test_lds_exchange_of_two(execute: Any) -> None:
    a, b = (LANE + 100).astype(U32), (LANE + 200).astype(U32)
    body = ["v_lshlrev_b32_e32 v1, 2, v0", "ds_write_b32 v1, v2 offset:4", "ds_write_b32 v1, v3 offset:768"]
    body += ["ds_wrxchg2_rtn_b32 v[12:13], v1, v4, v5 offset0:1 offset1:192", "ds_read_b32 v14, v1 offset:4"]
    body += ["ds_read_b32 v15, v1 offset:768", "ds_wrxchg2st64_rtn_b32 v[16:17], v1, v2, v3 offset0:3 offset1:4"]
    inputs = {"v2": a, "v3": b, "v4": a + 1000, "v5": b + 1000}
    out = execute([*body, "s_waitcnt lgkmcnt(0)"], inputs, [f"v{n}" for n in range(12, 17)], lds=2048)
    for name, wanted in (("v12", a), ("v13", b), ("v14", a + 1000), ("v15", b + 1000), ("v16", b + 1000)):
        np.testing.assert_array_equal(out[name], wanted)


def test_lds_conditional_exchange(execute: Any) -> None:
    first = (LANE + 1).astype(U32) | np.where(LANE % 2 == 0, U32(1 << 31), U32(0)).astype(U32)
    second = (LANE + 7).astype(U32) | np.where(LANE % 3 == 0, U32(1 << 31), U32(0)).astype(U32)
    body = ["v_lshlrev_b32_e32 v1, 3, v0", "v_mov_b32_e32 v2, 55", "v_mov_b32_e32 v3, 66", "ds_write_b64 v1, v[2:3]"]
    body += ["ds_condxchg32_rtn_b64 v[12:13], v1, v[4:5]", "ds_read_b64 v[14:15], v1", "s_waitcnt lgkmcnt(0)"]
    out = execute(body, {"v4": first, "v5": second}, ["v12", "v13", "v14", "v15"], lds=512)
    assert (out["v12"] == 55).all() and (out["v13"] == 66).all()
    np.testing.assert_array_equal(out["v14"], np.where(LANE % 2 == 0, LANE + 1, 55))
    np.testing.assert_array_equal(out["v15"], np.where(LANE % 3 == 0, LANE + 7, 66))


def test_lds_counters(execute: Any) -> None:
    """append and consume count the enabled lanes of every wave."""
    body = [
        "v_mov_b32_e32 v1, 0",
        "v_mov_b32_e32 v2, 0",
        "ds_write_b32 v1, v2 offset:8",
        "s_waitcnt lgkmcnt(0)",
        "s_barrier",
    ]
    body += [
        "s_mov_b32 m0, 4",
        "s_mov_b32 exec_hi, 0",
        "ds_append v10 offset:4",
        "s_waitcnt lgkmcnt(0)",
        "s_mov_b32 exec_hi, -1",
    ]
    body += [
        "s_barrier",
        "ds_read_b32 v11, v1 offset:8",
        "s_waitcnt lgkmcnt(0)",
        "s_barrier",
        "ds_consume v12 offset:4",
    ]
    body += ["s_waitcnt lgkmcnt(0)", "s_barrier", "ds_read_b32 v13, v1 offset:8", "ds_nop", "s_waitcnt lgkmcnt(0)"]
    out = execute(body, {}, ["v10", "v11", "v12", "v13"], waves=2, lds=64)
    assert sorted({int(out["v10"][0]), int(out["v10"][64])}) == [0, 32]
    assert (out["v11"] == 64).all() and (out["v13"] == 2**32 - 64).all()
    assert sorted({int(out["v12"][0]), int(out["v12"][64])}) == [0, 64]


def test_lds_addresses_from_the_lane(execute: Any) -> None:
    body = ["s_mov_b32 m0, 64", "ds_write_addtid_b32 v1 offset:16", "v_lshlrev_b32_e32 v2, 2, v0"]
    body += ["ds_read_b32 v10, v2 offset:80", "ds_read_addtid_b32 v11 offset:20", "s_waitcnt lgkmcnt(0)"]
    out = execute(body, {"v1": (LANE * 3).astype(U32)}, ["v10", "v11"], lds=512)
    np.testing.assert_array_equal(out["v10"], LANE * 3)
    np.testing.assert_array_equal(out["v11"][:63], LANE[1:] * 3)


@pytest.mark.parametrize("name", ["inc", "dec"])
@pytest.mark.parametrize("form", ["global", "buffer", "flat"])
def test_wrapping_counters_of_64_bits(run_text: Any, name: str, form: str) -> None:
    for old, top in ((5, 7), (7, 7), (0, 9), (12, 7)):
        memory = np.array([old], U64)
        body = [
            "s_load_dwordx2 s[4:5], s[0:1], 0x0",
            "s_mov_b64 exec, 1",
            "v_mov_b32_e32 v1, 0",
            f"v_mov_b32_e32 v2, {top}",
        ]
        body += ["v_mov_b32_e32 v3, 0", "s_waitcnt lgkmcnt(0)", "s_mov_b32 s6, 8", "s_mov_b32 s7, 0x27000"]
        body += ["v_mov_b32_e32 v4, s4", "v_mov_b32_e32 v5, s5"]
        body += [
            {
                "global": f"global_atomic_{name}_x2 v1, v[2:3], s[4:5]",
                "buffer": f"buffer_atomic_{name}_x2 v[2:3], v1, s[4:7], 0 offen",
                "flat": f"flat_atomic_{name}_x2 v[4:5], v[2:3]",
            }[form]
        ]
        run_text(body, [memory])
        wanted = (0 if old >= top else old + 1) if name == "inc" else (top if old == 0 or old > top else old - 1)
        assert int(memory[0]) == wanted


# Buffers

RESOURCE = ["s_load_dwordx4 s[4:7], s[0:1], 0x0", "s_waitcnt lgkmcnt(0)", "s_mov_b32 s8, s4"]


def buffer_read(
    run_text: Any, source: Any, high: int, records: int, last: int, index: Any, offset: Any, tail: str
) -> Any:
    """Dwords of a buffer read with an index and an offset for each lane."""
    out = np.zeros((3, 64), U32)
    out[0], out[1] = index, offset
    body = [*RESOURCE, f"s_or_b32 s9, s5, {high:#x}", f"s_mov_b32 s10, {records:#x}", f"s_mov_b32 s11, {last:#x}"]
    body += ["s_movk_i32 s20, 0x8", "v_lshlrev_b32_e32 v1, 2, v0", "global_load_dword v2, v1, s[6:7]"]
    body += ["global_load_dword v3, v1, s[6:7] offset:256", "s_waitcnt vmcnt(0)", tail, "s_waitcnt vmcnt(0)"]
    body += ["global_store_dword v1, v10, s[6:7] offset:512"]
    run_text(body, [source, out])
    return out[2]


@pytest.mark.parametrize("tail", ["idxen", "idxen offen", "idxen offset:4"])
def test_structured_buffer(run_text: Any, random: Any, tail: str) -> None:
    """Records of 16 bytes; an index beyond the records or an offset beyond the stride reads 0."""
    source = random.integers(0, 2**32, 4 * 40, dtype=U32)
    index, offset = random.integers(0, 48, 64), 4 * random.integers(0, 6, 64)
    registers = "v[2:3]" if "offen" in tail else "v2"
    line = f"buffer_load_dword v10, {registers}, s[8:11], s20 {tail}"
    got = buffer_read(run_text, source, 16 << 16, 36, 0x27000, index, offset, line)
    within = offset if "offen" in tail else np.full(64, 4 if "offset" in tail else 0)
    on = (index < 36) & (within < 16)
    flat = np.where(on, index * 4 + within // 4 + 2, 0)
    np.testing.assert_array_equal(got, np.where(on, source[flat], 0))


def test_buffer_indexed_by_the_lane(run_text: Any, random: Any) -> None:
    source = random.integers(0, 2**32, 4 * 70, dtype=U32)
    line = "buffer_load_dword v10, v3, s[8:11], 0 offen"
    got = buffer_read(run_text, source, 16 << 16, 60, 0x7000 | 1 << 23, 0, np.full(64, 4), line)
    # With add_tid the data format's bits are the upper ones of the stride: they are 0 here.
    np.testing.assert_array_equal(got, np.where(LANE < 60, source[LANE * 4 + 1], 0))


@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_swizzled_buffer(run_text: Any, random: Any, code: int) -> None:
    """index_stride records are interleaved dword by dword."""
    together, stride = 8 << code, 24
    source = random.integers(0, 2**32, 24 // 4 * 128, dtype=U32)
    index, offset = random.integers(0, 64, 64), 4 * random.integers(0, 6, 64)
    line = "buffer_load_dword v10, v[2:3], s[8:11], 0 idxen offen"
    got = buffer_read(run_text, source, stride << 16 | 1 << 31, 64, 0x27000 | code << 21, index, offset, line)
    place = [
        ((i // together) * stride + (o // 4) * 4) * together + (i % together) * 4 + o % 4
        for i, o in zip(index.tolist(), offset.tolist(), strict=True)
    ]
    np.testing.assert_array_equal(got, source[np.array(place) // 4])


@pytest.mark.parametrize(
    ("tail", "kind"), [("ubyte", np.uint8), ("sbyte", np.int8), ("ushort", np.uint16), ("sshort", np.int16)]
)
@pytest.mark.parametrize("form", ["global", "buffer"])
def test_narrow_loads_to_lds(run_text: Any, random: Any, tail: str, kind: Any, form: str) -> None:
    source, out = random.integers(0, 256, 64 * 4, dtype=np.uint8), np.zeros(64, np.int32)
    size = np.dtype(kind).itemsize
    body = [
        "s_load_dwordx4 s[4:7], s[0:1], 0x0",
        "v_lshlrev_b32_e32 v1, 2, v0",
        f"v_lshlrev_b32_e32 v2, {size - 1}, v0",
    ]
    body += ["s_waitcnt lgkmcnt(0)", "s_mov_b32 m0, 0", "s_mov_b32 s8, s4", "s_mov_b32 s9, s5", "s_mov_b32 s10, 0x100"]
    body += ["s_mov_b32 s11, 0x27000"]
    if form == "global":
        body += [f"global_load_lds_{tail} v2, s[4:5]"]
    else:
        body += [f"buffer_load_{tail} v2, s[8:11], 0 offen lds"]
    body += ["s_waitcnt vmcnt(0)", "ds_read_b32 v3, v1", "s_waitcnt lgkmcnt(0)", "global_store_dword v1, v3, s[6:7]"]
    run_text(body, [source, out], lds=256)
    np.testing.assert_array_equal(out, source.view(kind)[:64].astype(np.int32))


def test_scratch_halves_and_lds(execute: Any) -> None:
    value = (LANE * 0x01010101 + 0x80).astype(U32)
    body = ["scratch_store_dword off, v1, off offset:8", "s_mov_b32 m0, 0", "v_lshlrev_b32_e32 v2, 2, v0"]
    body += [
        "s_waitcnt vmcnt(0)",
        "scratch_load_short_d16 v10, off, off offset:8",
        "scratch_load_sbyte_d16_hi v11, off, off offset:8",
    ]
    body += ["scratch_load_lds_dword off, off offset:8", "s_waitcnt vmcnt(0)"]
    body += ["ds_read_b32 v12, v2 offset:8", "s_waitcnt lgkmcnt(0)"]
    out = execute(body, {"v1": value, "v10": 0xABCD1234, "v11": 0xABCD1234}, ["v10", "v11", "v12"], scratch=16, lds=512)
    np.testing.assert_array_equal(out["v10"], 0xABCD0000 | value & 0xFFFF)
    byte = (value & 0xFF).astype(np.uint8).view(np.int8).astype(np.int16).view(np.uint16).astype(U32)
    np.testing.assert_array_equal(out["v11"], byte << 16 | 0x1234)
    np.testing.assert_array_equal(out["v12"], value)
