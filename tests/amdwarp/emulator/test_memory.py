"""LDS, buffer, global, scratch and atomic instructions; bounds."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from amdwarp.emulator import POISON
from amdwarp.errors import EmulatorError

LANE = np.arange(64, dtype=np.uint32)
WAIT = "s_waitcnt vmcnt(0) lgkmcnt(0)"


def registers(first: int, count: int) -> list[str]:
    return [f"v{first + at}" for at in range(count)]


def span(first: int, count: int) -> str:
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def scatter_text(inputs: int) -> list[str]:
    """LDS filled with dword i = i * 3 + 1 for i < 64 * inputs."""
    body = ["v_lshlrev_b32_e32 v200, 2, v0", "v_mul_u32_u24_e32 v201, 3, v0", "v_add_u32_e32 v201, 1, v201"]
    for _ in range(inputs):
        body += ["ds_write_b32 v200, v201", "v_add_u32_e32 v200, 0x100, v200", "v_add_u32_e32 v201, 192, v201"]
    return [*body, "s_waitcnt lgkmcnt(0)"]


CONTENT = (np.arange(64 * 20) * 3 + 1).astype(np.uint32)


@pytest.mark.parametrize(
    ("name", "size"), [("b32", 4), ("b64", 8), ("b96", 12), ("b128", 16), ("u8", 1), ("i8", 1), ("u16", 2), ("i16", 2)]
)
@pytest.mark.parametrize("step", [4, 16, 20])
def test_reads(execute: Any, name: str, size: int, step: int) -> None:
    count = max(1, size // 4)
    address = (LANE * step + (0 if size >= 4 else LANE % 4)).astype(np.uint32)
    if size == 2:
        address &= ~np.uint32(1)
    body = [*scatter_text(20), f"ds_read_{name} {span(10, count)}, v1 offset:12", WAIT]
    out = execute(body, {"v1": address}, registers(10, count), lds=64 * 20 * 4)
    raw = CONTENT.view(np.uint8)
    for at in range(count):
        where = address + 12 + 4 * at
        data = np.stack([raw[where + k] for k in range(min(size, 4))], axis=-1).astype(np.int64)
        value = sum(data[:, k] << 8 * k for k in range(data.shape[1]))
        if name.startswith("i"):
            value = (value ^ 1 << 8 * size - 1) - (1 << 8 * size - 1)
        np.testing.assert_array_equal(out[f"v{10 + at}"], value & 0xFFFFFFFF)


@pytest.mark.parametrize("name", ["b8", "b16", "b32", "b64", "b96", "b128", "b8_d16_hi", "b16_d16_hi"])
def test_writes(execute: Any, random: Any, name: str) -> None:
    size = int(name.split("_")[0][1:]) // 8
    count = max(1, size // 4)
    data = random.integers(0, 2**32, (count, 64), dtype=np.uint32)
    inputs = {f"v{10 + at}": row for at, row in enumerate(data)} | {"v1": LANE * 16}
    zero = ["v_mov_b32_e32 v20, 0", "v_mov_b32_e32 v21, 0", "v_mov_b32_e32 v22, 0", "v_mov_b32_e32 v23, 0"]
    body = [
        *zero,
        "ds_write_b128 v1, v[20:23]",
        f"ds_write_{name} v1, {span(10, count)}",
        "ds_read_b128 v[30:33], v1",
        WAIT,
    ]
    out = execute(body, inputs, registers(30, 4), lds=1024)
    if size < 4:
        expected = (data[0] >> (16 if "hi" in name else 0)) & (1 << 8 * size) - 1
        np.testing.assert_array_equal(out["v30"], expected)
    for at in range(size // 4, 4):
        if size >= 4:
            np.testing.assert_array_equal(out[f"v{30 + at}"], 0)
    for at in range(size // 4):
        np.testing.assert_array_equal(out[f"v{30 + at}"], data[at])


@pytest.mark.parametrize(("name", "unit"), [("2_b32", 4), ("2_b64", 8), ("2st64_b32", 256), ("2st64_b64", 512)])
def test_pairs(execute: Any, random: Any, name: str, unit: int) -> None:
    count = int(name[-2:]) // 32
    data = random.integers(0, 2**32, (2 * count, 64), dtype=np.uint32)
    inputs = {f"v{10 + at}": row for at, row in enumerate(data)} | {"v1": LANE * 4 * count}
    # With a unit of one element, neighbours overlap: use offsets a wave apart.
    first, second = (0, 64) if unit < 256 else (1, 2)
    body = [
        f"ds_write{name} v1, {span(10, count)}, {span(10 + count, count)} offset0:{first} offset1:{second}",
        f"ds_read{name} {span(20, 2 * count)}, v1 offset0:{second} offset1:{first}",
        f"ds_read_b32 v30, v1 offset:{unit * first}",
        WAIT,
    ]
    out = execute(body, inputs, [*registers(20, 2 * count), "v30"], lds=4096)
    for at in range(count):
        np.testing.assert_array_equal(out[f"v{20 + at}"], data[count + at])
        np.testing.assert_array_equal(out[f"v{20 + count + at}"], data[at])
    np.testing.assert_array_equal(out["v30"], data[0])


@pytest.mark.parametrize(("name", "bits"), [("b64_tr_b16", 16), ("b64_tr_b8", 8), ("b64_tr_b4", 4), ("b96_tr_b6", 6)])
def test_transposed_reads(execute: Any, random: Any, name: str, bits: int) -> None:
    """Each 16 lanes hold a matrix with rows of 16 elements; lane i receives column i."""
    count = 3 if bits == 6 else 2
    per = 32 * count // bits
    elements = random.integers(0, 1 << bits, (4, per, 16))
    flat = elements.reshape(64, per)
    words = np.zeros((count, 64), np.uint32)
    for lane in range(64):
        value = sum(int(element) << bits * at for at, element in enumerate(flat[lane]))
        for at in range(count):
            words[at, lane] = value >> 32 * at & 0xFFFFFFFF
    inputs = {f"v{10 + at}": row for at, row in enumerate(words)} | {"v1": (63 - LANE) * 16}
    wide = "b64" if count == 2 else "b96"
    body = [f"ds_write_{wide} v1, {span(10, count)}", f"ds_read_{name} {span(20, count)}, v1", WAIT]
    out = execute(body, inputs, registers(20, count), lds=1024)
    for lane in range(64):
        value = sum(int(out[f"v{20 + at}"][lane]) << 32 * at for at in range(count))
        got = [value >> bits * at & (1 << bits) - 1 for at in range(per)]
        assert got == elements[lane // 16, :, lane % 16].tolist()


def test_d16_reads_keep_the_other_half(execute: Any) -> None:
    body = [*scatter_text(1), "ds_read_u16_d16 v10, v1", "ds_read_u8_d16_hi v11, v1", WAIT]
    inputs = {"v1": LANE * 4, "v10": 0xAAAA5555 + 0 * LANE, "v11": 0xAAAA5555 + 0 * LANE}
    out = execute(body, inputs, ["v10", "v11"], lds=256)
    np.testing.assert_array_equal(out["v10"], 0xAAAA0000 | CONTENT[:64] & 0xFFFF)
    np.testing.assert_array_equal(out["v11"], 0x5555 | (CONTENT[:64] & 0xFF) << 16)


def test_lds_atomics(execute: Any) -> None:
    body = [
        *["v_mov_b32_e32 v5, 0", "v_mov_b32_e32 v6, 0", "ds_write_b64 v1, v[5:6]", "v_and_b32_e32 v2, 12, v1"],
        *["ds_add_u32 v2, v3", "ds_add_rtn_u32 v10, v2, v3", "ds_max_u32 v2, v3 offset:16", "s_waitcnt lgkmcnt(0)"],
        *[
            "ds_read_b32 v11, v1",
            "v_mov_b32_e32 v7, 1.0",
            "ds_add_f32 v2, v7 offset:32",
            "ds_read_b32 v12, v2 offset:32",
        ],
        *["v_mov_b32_e32 v8, 48", "v_mov_b32_e32 v9, 5", "ds_cmpst_rtn_b32 v13, v8, v5, v9", WAIT],
    ]
    out = execute(body, {"v1": LANE * 4, "v3": LANE}, ["v10", "v11", "v12", "v13"], lds=512)
    total = np.array([LANE[k::4].sum() for k in range(4)])
    np.testing.assert_array_equal(out["v11"][:4], 2 * total)
    np.testing.assert_array_equal(out["v11"][4:8], [60, 61, 62, 63])
    before = np.array([total[lane % 4] + LANE[lane % 4 : lane : 4].sum() for lane in range(64)])
    np.testing.assert_array_equal(out["v10"], before)
    np.testing.assert_array_equal(out["v12"].view(np.float32), 16)
    np.testing.assert_array_equal(out["v13"], np.where(LANE == 0, 0, 5))


def test_lds_starts_poisoned_and_registers_too(execute: Any) -> None:
    out = execute(["ds_read_b32 v10, v1", WAIT], {"v1": LANE * 4}, ["v10", "v77", "s77"], lds=256)
    for value in out.values():
        assert (value == POISON).all()
    word = np.full(1, POISON, np.uint32)
    assert np.isnan(word.view(np.float32)).all() and np.isnan(word.view(np.float16)).all()
    assert np.isnan(word.view(ml_dtypes.bfloat16).astype(np.float32)).all()
    assert np.isnan(word.view(ml_dtypes.float8_e4m3fn).astype(np.float32)).all()


def test_lds_bounds(execute: Any) -> None:
    with pytest.raises(EmulatorError, match=r"'ds_read_b64 v\[10:11\], v1' \(wave 0, lane 63\): LDS address 0xfc \+ 8"):
        execute(["ds_read_b64 v[10:11], v1", WAIT], {"v1": LANE * 4}, lds=256)
    dropped = np.where(LANE < 32, LANE * 4, 0x7FFFFFFF).astype(np.uint32)
    body = [
        *scatter_text(1),
        "v_mov_b32_e32 v5, 9",
        "ds_write_b32 v1, v5",
        "ds_read_b32 v10, v2",
        "ds_read_b32 v11, v1",
        WAIT,
    ]
    out = execute(body, {"v1": dropped, "v2": LANE * 4}, ["v10", "v11"], lds=256)
    np.testing.assert_array_equal(out["v10"], np.where(LANE < 32, 9, CONTENT[:64]))
    np.testing.assert_array_equal(out["v11"], np.where(LANE < 32, 9, 0))


# Global memory. The harness's own arguments: s[92:93] in, s[94:95] out.


def resource(records: int) -> list[str]:
    """s[96:99]: a buffer over the first argument."""
    return ["s_load_dwordx2 s[96:97], s[0:1], 0x0", "s_waitcnt lgkmcnt(0)", "s_and_b32 s97, s97, 0xffff",
            f"s_mov_b32 s98, {records:#x}", "s_mov_b32 s99, 0x27000"]  # fmt: skip


@pytest.mark.parametrize(
    ("tail", "size"), [("dword", 4), ("dwordx2", 8), ("dwordx3", 12), ("dwordx4", 16), ("ubyte", 1), ("sshort", 2)]
)
@pytest.mark.parametrize("kind", ["buffer", "global", "global_saddr", "flat"])
def test_loads(run_text: Any, random: Any, tail: str, size: int, kind: str) -> None:
    count = max(1, size // 4)
    data = random.integers(0, 2**32, 64 * 5, dtype=np.uint32)
    out = np.zeros((64, 4), np.uint32)
    step = max(size, 4) if size != 12 else 12
    body = [*resource(data.nbytes), "s_load_dwordx4 s[4:7], s[0:1], 0x0", "s_waitcnt lgkmcnt(0)"]
    body += [f"v_mul_u32_u24_e32 v1, {step}, v0", "v_mov_b32_e32 v3, s5", "v_add_co_u32_e32 v2, vcc, s4, v1"]
    body += ["v_addc_co_u32_e32 v3, vcc, 0, v3, vcc"]
    text = {
        "buffer": f"buffer_load_{tail} {span(10, count)}, v1, s[96:99], 0 offen offset:4",
        "global": f"global_load_{tail} {span(10, count)}, v[2:3], off offset:4",
        "global_saddr": f"global_load_{tail} {span(10, count)}, v1, s[4:5] offset:4",
        "flat": f"flat_load_{tail} {span(10, count)}, v[2:3] offset:4",
    }[kind]
    body += ["v_mov_b32_e32 v10, 0", "v_mov_b32_e32 v11, 0", "v_mov_b32_e32 v12, 0", "v_mov_b32_e32 v13, 0", text]
    body += ["s_waitcnt vmcnt(0)", "v_lshlrev_b32_e32 v1, 4, v0", "global_store_dwordx4 v1, v[10:13], s[6:7]"]
    run_text(body, [data, out])
    raw = data.view(np.uint8)
    at = np.arange(64) * step + 4
    for r in range(count):
        part = np.stack([raw[at + 4 * r + k] for k in range(min(size, 4))], axis=-1).astype(np.int64)
        value = sum(part[:, k] << 8 * k for k in range(part.shape[1]))
        if tail == "sshort":
            value = (value ^ 0x8000) - 0x8000
        np.testing.assert_array_equal(out[:, r], value & 0xFFFFFFFF)


@pytest.mark.parametrize(
    ("tail", "size"), [("dword", 4), ("dwordx2", 8), ("dwordx3", 12), ("dwordx4", 16), ("byte", 1), ("short", 2)]
)
@pytest.mark.parametrize("kind", ["buffer", "global"])
def test_stores(run_text: Any, tail: str, size: int, kind: str) -> None:
    out = np.zeros(64 * 16 + 32, np.uint8)
    body = [*resource(out.nbytes), "v_lshlrev_b32_e32 v1, 4, v0", "s_mov_b64 exec, 0xffffff"]
    body += [f"v_add_u32_e32 v{10 + r}, {0x01020300 + r:#x}, v0" for r in range(4)]
    data = span(10, max(1, size // 4))
    body += [
        f"buffer_store_{tail} {data}, v1, s[96:99], 0 offen offset:16"
        if kind == "buffer"
        else f"global_store_{tail} v1, {data}, s[96:97] offset:16"
    ]
    run_text(body, [out])
    expected = np.zeros_like(out)
    for lane in range(24):
        words = np.array([0x01020300 + r + lane for r in range(4)], np.uint32).view(np.uint8)
        expected[16 * lane + 16 : 16 * lane + 16 + size] = words[:size]
    np.testing.assert_array_equal(out, expected)


def test_buffer_range(run_text: Any) -> None:
    """A dword past num_records reads 0 and is not written; the base beyond it stays untouched."""
    data, out = np.arange(1, 65, dtype=np.uint32), np.zeros((64, 4), np.uint32)
    body = [*resource(40), "s_load_dwordx2 s[6:7], s[0:1], 0x8", "v_lshlrev_b32_e32 v1, 3, v0", "s_mov_b32 s8, 8"]
    body += ["buffer_load_dwordx4 v[10:13], v1, s[96:99], 0 offen", "s_waitcnt vmcnt(0) lgkmcnt(0)"]
    body += ["v_lshlrev_b32_e32 v2, 4, v0", "global_store_dwordx4 v2, v[10:13], s[6:7]"]
    body += ["buffer_store_dwordx2 v[10:11], v1, s[96:99], s8 offen"]
    run_text(body, [data, out])
    padded = np.concatenate((np.arange(1, 11), np.zeros(200))).astype(np.uint32)
    np.testing.assert_array_equal(out, [padded[2 * lane : 2 * lane + 4] for lane in range(64)])
    np.testing.assert_array_equal(data[:10], [1, 2, 1, 2, 3, 4, 5, 6, 7, 8])
    np.testing.assert_array_equal(data[10:], np.arange(11, 65))


def test_buffer_offset_beyond_two_gigabytes_is_dropped(run_text: Any) -> None:
    data = np.arange(64, dtype=np.uint32)
    body = [*resource(0x7FFFFFFE), "v_bfrev_b32_e32 v1, 1", "buffer_store_dword v0, v1, s[96:99], 0 offen"]
    run_text(body, [data])
    np.testing.assert_array_equal(data, np.arange(64))


@pytest.mark.parametrize(
    "line", ["buffer_load_dword v10, v1, s[96:99], 0 offen", "buffer_store_dword v0, v1, s[96:99], 0 offen"]
)
def test_address_outside_every_buffer(run_text: Any, line: str) -> None:
    data = np.zeros(64, np.uint32)
    body = [*resource(0x7FFFFFFE), "v_lshlrev_b32_e32 v1, 3, v0", line, WAIT]
    message = (
        r"lane 32\): 4 bytes at 0x[0-9a-f]+ are outside every buffer: address .* lies 0 bytes behind .* argument 0"
    )
    with pytest.raises(EmulatorError, match=message):
        run_text(body, [data])


def test_scalar_loads(run_text: Any) -> None:
    data, out = np.arange(100, 200, dtype=np.uint32), np.zeros((9, 64), np.uint32)
    body = ["s_load_dwordx4 s[4:7], s[0:1], 0x0", "s_waitcnt lgkmcnt(0)", "s_mov_b32 s20, 0x20"]
    body += ["s_load_dwordx8 s[8:15], s[4:5], 0x10", "s_load_dword s16, s[4:5], s20 offset:0x8", "s_waitcnt lgkmcnt(0)"]
    body += ["v_lshlrev_b32_e32 v1, 2, v0"]
    for at in range(9):
        body += [f"v_mov_b32_e32 v2, s{8 + at}", "global_store_dword v1, v2, s[6:7]", "v_add_u32_e32 v1, 0x100, v1"]
    run_text(body, [data, out])
    np.testing.assert_array_equal(out[:, 5], [*range(104, 112), 110])
    with pytest.raises(
        EmulatorError, match=r"a scalar load of 4 dwords: address .* bytes behind the end of argument 0"
    ):
        run_text([*body[:2], "s_load_dwordx4 s[8:11], s[4:5], 0x184", "s_waitcnt lgkmcnt(0)"], [data, out])


def test_scratch(execute: Any, random: Any) -> None:
    data = random.integers(0, 2**32, (4, 128), dtype=np.uint32)
    body = [
        *[
            "scratch_store_dwordx4 off, v[10:13], off offset:16",
            "scratch_store_dword off, v10, s20",
            "s_waitcnt vmcnt(0)",
        ],
        *["scratch_load_dwordx2 v[20:21], off, off offset:20", "scratch_load_dword v22, v1, off", "s_waitcnt vmcnt(0)"],
    ]
    inputs = {f"v{10 + at}": row for at, row in enumerate(data)} | {"s20": 4, "v1": np.full(128, 4, np.uint32)}
    out = execute(body, inputs, ["v20", "v21", "v22"], scratch=48, waves=2)
    np.testing.assert_array_equal(out["v20"], data[1])
    np.testing.assert_array_equal(out["v21"], data[2])
    np.testing.assert_array_equal(out["v22"], data[0])
    with pytest.raises(EmulatorError, match=r"scratch offset 44 .* outside the lane's 48 bytes"):
        execute(["scratch_load_dwordx2 v[20:21], off, off offset:44"], scratch=48)


ATOMIC_CASES: list[tuple[str, Any, Any]] = [
    ("add", np.uint32, lambda v: (7 + v.sum()) & 0xFFFFFFFF),
    ("umax", np.uint32, lambda v: max(7, v.max())),
    ("smin", np.int32, lambda v: min(7, v.view(np.int32).min())),
    ("or", np.uint32, lambda v: 7 | np.bitwise_or.reduce(v)),
    ("inc", np.uint32, None),
    ("swap", np.uint32, lambda v: v[-1]),
]


@pytest.mark.parametrize("case", ATOMIC_CASES, ids=lambda case: case[0])
@pytest.mark.parametrize("kind", ["global", "buffer"])
def test_atomics(run_text: Any, random: Any, case: Any, kind: str) -> None:
    name, dtype, function = case
    values = random.integers(0, 2**32, 64, dtype=np.uint32)
    data, out = np.concatenate(([7], values)).astype(np.uint32), np.zeros(64, np.uint32)
    body = [
        *resource(data.nbytes),
        "s_load_dwordx4 s[4:7], s[0:1], 0x0",
        "v_lshlrev_b32_e32 v1, 2, v0",
        "v_mov_b32_e32 v2, 0",
    ]
    body += ["s_waitcnt lgkmcnt(0)", "global_load_dword v3, v1, s[4:5] offset:4", "s_waitcnt vmcnt(0)"]
    if kind == "global":
        body += [f"global_atomic_{name} v4, v2, v3, s[4:5] sc0"]
    else:
        body += [f"buffer_atomic_{name} v3, v2, s[96:99], 0 offen sc0", "s_waitcnt vmcnt(0)", "v_mov_b32_e32 v4, v3"]
    body += ["s_waitcnt vmcnt(0)", "global_store_dword v1, v4, s[6:7]"]
    run_text(body, [data, out])
    assert out[0] == 7
    if function is not None:
        assert data[:1].view(dtype)[0] == function(values)
    else:
        old = 7
        for lane in range(64):
            assert out[lane] == old
            old = 0 if old >= values[lane] else old + 1
        assert data[0] == old


def test_packed_and_compare_atomics(run_text: Any) -> None:
    data = np.zeros(4, np.uint32)
    data[:1].view(np.float16)[:] = [1, 2]
    body = ["s_load_dwordx2 s[4:5], s[0:1], 0x0", "v_mov_b32_e32 v2, 0", "v_mov_b32_e32 v3, 0x3c004000", WAIT]
    body += [
        "global_atomic_pk_add_f16 v2, v3, s[4:5]",
        "v_mov_b32_e32 v4, 0x40003f80",
        "global_atomic_pk_add_bf16 v2, v4, s[4:5] offset:4",
    ]
    body += ["v_add_u32_e32 v6, 1, v0", "v_mov_b32_e32 v7, v0", "global_atomic_cmpswap v2, v[6:7], s[4:5] offset:8"]
    run_text(body, [data])
    np.testing.assert_array_equal(data[:1].view(np.float16), [129, 66])
    np.testing.assert_array_equal(data[1:2].view(ml_dtypes.bfloat16).astype(float), [64, 128])
    assert data[2] == 64
