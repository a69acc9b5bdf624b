"""Memory of gfx1250: counters and delivery, copies to and from LDS, transposed reads, addresses, barrier objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amdwarp.emulator import POISON
from amdwarp.errors import EmulatorError

LANES = np.arange(32, dtype=np.uint32)


@pytest.fixture(scope="session")
def run(execute: Any) -> Any:
    """`execute` for gfx1250."""

    def call(body: list[str], inputs: dict[str, Any] | None = None, outputs: list[str] | None = None, **kw: Any) -> Any:
        return execute(body, inputs, outputs, arch="gfx1250", **kw)

    return call


@pytest.fixture(scope="session")
def text(run_text: Any) -> Any:
    """`run_text` for gfx1250, with the pointers in s[4:5] and s[6:7] and 4 times the lane in v1."""
    head = ["s_load_b128 s[4:7], s[0:1], 0x0 nv", "v_lshlrev_b32_e32 v1, 2, v0", "s_wait_kmcnt 0x0"]

    def call(body: list[str], args: list[Any], **kw: Any) -> Any:
        return run_text([*head, *body], args, arch="gfx1250", **kw)

    return call


def test_counters_deliver_in_order(text: Any) -> None:
    """A wait for at most one load delivers the first of two; the other still reads as poison."""
    x = np.arange(64, dtype=np.uint32) + 5
    out = np.zeros(96, np.uint32)
    body = [
        "global_load_b32 v2, v1, s[4:5]",
        "global_load_b32 v3, v1, s[4:5] offset:128",
        "s_wait_loadcnt 0x1",
        "v_mov_b32_e32 v4, v2",
        "v_mov_b32_e32 v5, v3",
        "s_wait_loadcnt 0x0",
        "global_store_b32 v1, v4, s[6:7]",
        "global_store_b32 v1, v5, s[6:7] offset:128",
        "global_store_b32 v1, v3, s[6:7] offset:256",
    ]
    text(body, [x, out])
    np.testing.assert_array_equal(out[:32], x[:32])
    np.testing.assert_array_equal(out[32:64], POISON)
    np.testing.assert_array_equal(out[64:], x[32:])


@pytest.mark.parametrize(
    ("issue", "other", "covering"),
    [
        (
            "global_load_b32 v2, v1, s[4:5]",
            ["s_wait_storecnt 0x0", "s_wait_dscnt 0x0", "s_wait_xcnt 0x0"],
            "s_wait_loadcnt 0x0",
        ),
        ("ds_load_b32 v2, v1", ["s_wait_loadcnt 0x0", "s_wait_kmcnt 0x0", "s_wait_asynccnt 0x0"], "s_wait_dscnt 0x0"),
        ("global_load_b32 v2, v1, s[4:5]", ["s_wait_dscnt 0x0"], "s_wait_loadcnt_dscnt 0x3f"),
        ("ds_load_b32 v2, v1", ["s_wait_tensorcnt 0x0"], "s_wait_storecnt_dscnt 0x3f00"),
        ("ds_load_b32 v2, v1", ["s_wait_asynccnt 0x0"], "s_wait_idle"),
    ],
)
def test_only_its_own_counter_covers(text: Any, issue: str, other: list[str], covering: str) -> None:
    x, out = np.arange(32, dtype=np.uint32) + 5, np.zeros(64, np.uint32)
    body = [
        "v_add_nc_u32_e32 v6, 5, v0",
        "ds_store_b32 v1, v6",
        "s_wait_dscnt 0x0",
        issue,
        *other,
        "v_mov_b32_e32 v3, v2",
        covering,
        "global_store_b32 v1, v3, s[6:7]",
        "global_store_b32 v1, v2, s[6:7] offset:128",
    ]
    text(body, [x, out], lds=256)
    np.testing.assert_array_equal(out[:32], POISON)
    np.testing.assert_array_equal(out[32:], x)


def test_scalar_loads(text: Any) -> None:
    x = np.arange(64, dtype=np.uint32) * 3 + 0xFFFFFF00
    out = np.zeros(32 * 8, np.uint32)
    body = [
        "s_mov_b32 s20, 3",
        "s_load_b96 s[8:10], s[4:5], 0x10 nv",
        "s_load_b32 s11, s[4:5], s20 offset:0x4 scale_offset",
        "s_load_u8 s12, s[4:5], 0x5",
        "s_load_i16 s13, s[4:5], 0x0",
        "s_wait_kmcnt 0x1",
        "s_mov_b32 s14, s8",
        "s_wait_kmcnt 0x0",
        *(
            line
            for at, name in enumerate(("s8", "s9", "s10", "s11", "s12", "s13", "s14"))
            for line in (f"v_mov_b32_e32 v2, {name}", f"global_store_b32 v1, v2, s[6:7] offset:{128 * at}")
        ),
    ]
    text(body, [x, out])
    raw = x.view(np.uint8)
    expected = [
        x[4],
        x[5],
        x[6],
        x[4],
        raw[5],
        np.uint32(np.int64(x[0].astype(np.uint16).view(np.int16)) & 0xFFFFFFFF),
        POISON,
    ]
    np.testing.assert_array_equal(out.reshape(8, 32)[:7, 0], expected)


def test_signed_and_scaled_offsets(text: Any) -> None:
    x, out = np.arange(64, dtype=np.uint32) + 5, np.zeros(96, np.uint32)
    body = [
        "s_add_nc_u64 s[8:9], s[4:5], 0x80",
        "v_sub_nc_u32_e32 v2, 0, v1",
        "global_load_b32 v3, v2, s[8:9]",
        "global_load_b32 v4, v0, s[4:5] offset:4 scale_offset",
        "v_lshlrev_b32_e32 v6, 1, v0",
        "s_wait_loadcnt 0x0",
        "global_store_b32 v0, v3, s[6:7] scale_offset",
        "global_store_b32 v1, v4, s[6:7] offset:128",
    ]
    text(body, [x, out])
    np.testing.assert_array_equal(out[:32], x[32 - np.arange(32)])
    np.testing.assert_array_equal(out[32:64], x[1:33])


def test_buffer_resource(text: Any) -> None:
    """57 bits of address, 45 of size: what lies behind the size reads as 0 and is not stored."""
    x, out = np.arange(64, dtype=np.uint32) + 5, np.full(64, 9, np.uint32)
    resource = lambda low, size: [  # noqa: E731
        f"s_mov_b64 s[8:9], s[{low}:{low + 1}]",
        f"s_mov_b32 s13, {(size & 0x7F) << 25:#x}",
        "s_or_b32 s9, s9, s13",
        f"s_mov_b32 s10, {size >> 7:#x}",
        "s_mov_b32 s11, 0",
    ]
    body = [
        *resource(4, 84),
        "buffer_load_b32 v2, v1, s[8:11], null offen",
        "buffer_load_b64 v[4:5], v1, s[8:11], null offen offset:8",
        "s_wait_loadcnt 0x0",
        *resource(6, 100),
        "buffer_store_b32 v2, v1, s[8:11], null offen",
        "global_store_b32 v1, v5, s[6:7] offset:128",
    ]
    text(body, [x, out])
    np.testing.assert_array_equal(out[:25], np.where(np.arange(25) < 21, x[:25], 0))
    np.testing.assert_array_equal(out[25:32], 9)
    np.testing.assert_array_equal(out[32:], np.where(np.arange(32) + 3 < 21, x[3:35], 0))


def test_copy_to_lds(text: Any) -> None:
    """The offset counts for both addresses; the bytes are poison until the wait; address 0x7fffffff drops a lane."""
    x, out = np.arange(64, dtype=np.uint32) + 5, np.zeros(128, np.uint32)
    body = [
        "v_mov_b32_e32 v9, 7",
        "ds_store_b32 v1, v9 offset:16",
        "s_wait_dscnt 0x0",
        "v_cmp_gt_u32_e32 vcc_lo, 20, v0",
        "v_cndmask_b32_e32 v2, 0x7fffffff, v1, vcc_lo",
        "global_load_async_to_lds_b32 v2, v1, s[4:5] offset:16",
        "ds_load_b32 v3, v1 offset:16",
        "s_wait_dscnt 0x0",
        "s_wait_asynccnt 0x0",
        "ds_load_b32 v4, v1 offset:16",
        "s_wait_dscnt 0x0",
        "global_store_b32 v1, v3, s[6:7]",
        "global_store_b32 v1, v4, s[6:7] offset:128",
    ]
    text(body, [x, out], lds=256)
    kept = np.arange(32) < 20
    np.testing.assert_array_equal(out[:32], np.where(kept, POISON, 7))
    np.testing.assert_array_equal(out[32:64], np.where(kept, x[4:36], 7))


def test_dropped_lanes_read_no_memory(text: Any) -> None:
    x, out = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
    copy = ["v_mov_b32_e32 v2, 0x7fffffff", "v_add_nc_u32_e32 v3, 0x10000, v1"]
    text([*copy, "global_load_async_to_lds_b32 v2, v3, s[4:5]"], [x, out], lds=256)
    with pytest.raises(EmulatorError, match="outside every buffer"):
        text([*copy, "global_load_async_to_lds_b32 v1, v3, s[4:5]"], [x, out], lds=256)


@pytest.mark.parametrize("early", [False, True])
def test_copy_from_lds(text: Any, early: bool) -> None:
    """Overwriting the source before the wait spoils what arrives."""
    x, out = np.zeros(32, np.uint32), np.zeros(64, np.uint32)
    overwrite = ["ds_store_b32 v1, v1", "s_wait_dscnt 0x0"]
    wait = ["s_wait_asynccnt 0x0"]
    body = [
        "v_add_nc_u32_e32 v2, 5, v0",
        "ds_store_b32 v1, v2",
        "s_wait_dscnt 0x0",
        "global_store_async_from_lds_b32 v1, v1, s[6:7]",
        *(overwrite + wait if early else wait + overwrite),
    ]
    text(body, [x, out], lds=256)
    np.testing.assert_array_equal(out[:32], POISON if early else np.arange(32) + 5)


def test_transposed_reads(text: Any, random: Any) -> None:
    """16 bits: groups of eight lanes. 8 and 4 bits: a group draws from two runs. Any addresses do."""
    x = random.integers(0, 2**32, 256, dtype=np.uint32)
    order = random.permutation(32).astype(np.uint32)
    out = np.zeros(32 * 8, np.uint32)
    args = [np.concatenate((x, order)), out]
    body = [
        *(f"global_load_async_to_lds_b128 v{8 + k}, v{8 + k}, s[4:5]" for k in range(2)),
        "global_load_b32 v2, v1, s[4:5] offset:1024",
        "s_wait_asynccnt 0x0",
        "s_wait_loadcnt 0x0",
        "v_lshlrev_b32_e32 v3, 4, v2",
        "v_lshlrev_b32_e32 v6, 3, v2",
        "ds_load_tr16_b128 v[12:15], v3 offset:512",
        "ds_load_tr8_b64 v[16:17], v6",
        "ds_load_tr4_b64 v[18:19], v6",
        "s_wait_dscnt 0x0",
        *(f"global_store_b32 v1, v{12 + k}, s[6:7] offset:{128 * k}" for k in range(8)),
    ]
    place = ["v_lshlrev_b32_e32 v8, 4, v0", "v_add_nc_u32_e32 v9, 0x200, v8"]
    text([*place, *body], args, lds=1024)
    words = out.reshape(8, 32)
    got16 = np.ascontiguousarray(words[:4].T).view(np.uint16)
    rows16 = x[128:].view(np.uint16).reshape(32, 8)[order]
    np.testing.assert_array_equal(got16, rows16.reshape(4, 8, 8).transpose(0, 2, 1).reshape(32, 8))
    got8 = np.ascontiguousarray(words[4:6].T).view(np.uint8)
    rows8 = x[:64].view(np.uint8).reshape(32, 8)[order]
    for lane in range(32):
        first = (lane & 16) + (4 if lane & 8 else 0)
        sources = [*range(first, first + 4), *range(first + 8, first + 12)]
        np.testing.assert_array_equal(got8[lane], rows8[sources, lane & 7])
    pairs = x[:64].view(np.uint8).reshape(32, 8)[order]
    rows4 = np.stack((pairs & 15, pairs >> 4), axis=-1).reshape(32, 16)
    got4 = np.ascontiguousarray(words[6:8].T).view(np.uint8)
    for lane in range(32):
        first = 8 if lane & 16 else 0
        column = rows4[[*range(first, first + 8), *range(first + 16, first + 24)], lane & 15]
        np.testing.assert_array_equal(got4[lane], column[0::2] | column[1::2] << 4)


def test_compare_store_order(run: Any) -> None:
    """cmpstore: the first data operand is stored where the second is found."""
    body = [
        "v_lshlrev_b32_e32 v1, 2, v0",
        "ds_store_b32 v1, v0",
        "v_mov_b32_e32 v2, 99",
        "v_mov_b32_e32 v3, 5",
        "ds_cmpstore_rtn_b32 v4, v1, v2, v3",
        "ds_load_b32 v5, v1",
        "ds_storexchg_rtn_b32 v6, v1, v2",
        "ds_load_2addr_b32 v[8:9], v1 offset1:1",
        "s_wait_dscnt 0x0",
    ]
    out = run(body, {}, ["v4", "v5", "v6", "v8"], lds=256)
    np.testing.assert_array_equal(out["v4"], LANES)
    np.testing.assert_array_equal(out["v5"], np.where(LANES == 5, 99, LANES))
    np.testing.assert_array_equal(out["v6"], out["v5"])
    np.testing.assert_array_equal(out["v8"], 99)


def test_atomics(text: Any) -> None:
    x, out = np.zeros(32, np.uint32), np.zeros(64, np.uint32)
    x[:8] = [10, 0, 7, 7, 3, 0, 0, 0]
    x[3:4].view(np.float32)[:] = 1.5
    body = [
        "v_mov_b32_e32 v2, 1",
        "v_mov_b32_e32 v3, 0",
        "v_mov_b32_e32 v4, 2.0",
        "global_atomic_add_u32 v5, v3, v2, s[4:5] th:TH_ATOMIC_RETURN scope:SCOPE_DEV",
        "global_atomic_max_i32 v3, v0, s[4:5] offset:4 scope:SCOPE_DEV",
        "global_atomic_add_f32 v3, v4, s[4:5] offset:12",
        "v_mov_b32_e32 v8, 42",
        "v_mov_b32_e32 v9, 3",
        "global_atomic_cmpswap_b32 v6, v3, v[8:9], s[4:5] offset:16 th:TH_ATOMIC_RETURN",
        "s_wait_loadcnt 0x0",
        "global_store_b32 v1, v5, s[6:7]",
        "global_store_b32 v1, v6, s[6:7] offset:128",
    ]
    text(body, [x, out])
    assert x[:5].tolist()[:3] == [42, 31, 7] and x[4] == 42
    assert x[3:4].view(np.float32)[0] == 1.5 + 64
    np.testing.assert_array_equal(np.sort(out[:32]), np.arange(10, 42))
    np.testing.assert_array_equal(out[32:], [3, *[42] * 31])


def test_barrier_object(run: Any) -> None:
    """Pending counts down to an underflow, which reloads it and moves the phase; each lane sees what it found."""
    body = [
        "v_mov_b32_e32 v1, 0",
        "v_mov_b64_e32 v[2:3], 0x1300000013",
        "ds_store_b64 v1, v[2:3]",
        "v_mov_b64_e32 v[4:5], 1",
        "ds_atomic_barrier_arrive_rtn_b64 v[6:7], v1, v[4:5]",
        "ds_load_b64 v[8:9], v1",
        "s_wait_dscnt 0x0",
    ]
    out = run(body, {}, ["v6", "v7", "v8"], lds=64)
    lane = np.arange(32)
    expected = np.where(lane < 20, 19 - lane, 39 - lane) | np.where(lane < 20, 0, 7 << 29)
    np.testing.assert_array_equal(out["v6"], expected.astype(np.uint32))
    np.testing.assert_array_equal(out["v7"], 19)
    np.testing.assert_array_equal(out["v8"], (19 - 12) | 7 << 29)


def test_arrival_behind_copies(text: Any) -> None:
    """Nothing waits for the copy: its barrier object says that it is there, and not before."""
    x, out = np.arange(32, dtype=np.uint32) + 5, np.zeros(32, np.uint32)
    body = [
        "v_mov_b32_e32 v9, 0x100",
        "v_mov_b64_e32 v[2:3], 0x1f0000001f",
        "ds_store_b64 v9, v[2:3]",
        "s_wait_dscnt 0x0",
        "global_load_async_to_lds_b32 v1, v1, s[4:5]",
        "ds_atomic_async_barrier_arrive_b64 v9",
        ".LBB0_1:",
        "s_sleep 1",
        "ds_load_b32 v4, v9",
        "s_wait_dscnt 0x0",
        "v_and_b32_e32 v4, 0x20000000, v4",
        "v_cmp_eq_u32_e32 vcc_lo, 0, v4",
        "s_cbranch_vccnz .LBB0_1",
        "ds_load_b32 v5, v1",
        "s_wait_dscnt 0x0",
        "global_store_b32 v1, v5, s[6:7]",
    ]

    class Observer:
        def __init__(self) -> None:
            self.seen: list[tuple[int, int, int]] = []

        def notified(self, *fields: int) -> None:
            self.seen.append(fields)  # type: ignore[arg-type]

    observer = Observer()
    text(body, [x, out], lds=512, observer=observer)
    np.testing.assert_array_equal(out, x)
    assert observer.seen == [(0x100, 0, 32)]


# Tensor copies


def _descriptor(
    lds: int, element: int, sizes: tuple[int, int], tile: tuple[int, int], stride: int, pad: int = 0
) -> list[str]:
    """Instructions that build groups 0 and 1 in s[8:11] and s[12:19] for a tile at s[4:5]."""
    words = [0] * 8
    words[0] = {1: 0, 2: 1, 4: 2, 8: 3}[element] << 16 | pad
    whole = sizes[0] << 48 | sizes[1] << 80 | tile[0] << 112 | tile[1] << 128 | stride << 160
    words = [word | whole >> 32 * at & 0xFFFFFFFF for at, word in enumerate(words)]
    lines = ["s_mov_b32 s8, 1", f"s_mov_b32 s9, {lds:#x}", "s_mov_b32 s10, s4", "s_or_b32 s11, s5, 0x80000000"]
    return lines + [f"s_mov_b32 s{12 + at}, {word:#x}" for at, word in enumerate(words)]


@pytest.mark.parametrize("pad", [0, 1 << 20 | 1 << 22 | 2 << 25])
@pytest.mark.parametrize("wait", ["s_wait_tensorcnt 0x0", "s_wait_tensorcnt 0x1"])
def test_tensor_load(text: Any, pad: int, wait: str) -> None:
    """Zeros beyond the sizes, three dwords behind every four, poison until the wait."""
    x, out = np.arange(64, dtype=np.uint32) + 5, np.zeros(32, np.uint32)
    body = [
        "v_mov_b32_e32 v9, 7",
        "ds_store_b32 v1, v9",
        "s_wait_dscnt 0x0",
        *_descriptor(0, 4, (5, 3), (8, 4), 10, pad),
        "s_mov_b32 exec_lo, 1",
        "tensor_load_to_lds s[8:11], s[12:19]",
        "s_mov_b32 exec_lo, -1",
        wait,
        "ds_load_b32 v3, v1",
        "s_wait_dscnt 0x0",
        "global_store_b32 v1, v3, s[6:7]",
    ]
    text(body, [x, out], lds=512)
    tile = np.zeros((4, 8), np.uint32)
    tile[:3, :5] = (10 * np.arange(3)[:, None] + np.arange(5)) + 5
    expected = np.full(64, 7, np.uint32)
    place = np.arange(32) + (np.arange(32) // 4 * 3 if pad else 0)
    expected[place] = tile.reshape(-1) if wait.endswith("0x0") else POISON
    np.testing.assert_array_equal(out, expected[:32])


@pytest.mark.parametrize("pad", [0, 1 << 20 | 1 << 22 | 2 << 25])
def test_tensor_store(text: Any, pad: int) -> None:
    """Stores know no padding; what lies beyond the sizes is not stored."""
    out, x = np.full(64, 9, np.uint32), np.zeros(4, np.uint32)
    body = [
        "v_add_nc_u32_e32 v2, 5, v0",
        "ds_store_b32 v1, v2",
        "s_wait_dscnt 0x0",
        "s_mov_b64 s[4:5], s[6:7]",
        *_descriptor(0, 4, (5, 3), (8, 4), 10, pad),
        "tensor_store_from_lds s[8:11], s[12:19]",
        "s_wait_tensorcnt 0x0",
    ]
    text(body, [x, out], lds=512)
    expected = np.full(64, 9, np.uint32)
    for row in range(3):
        expected[10 * row : 10 * row + 5] = np.arange(5) + 8 * row + 5
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("s_bitset1_b32 s12, 19", "iteration"),
        ("s_bitset1_b32 s12, 0", "multicast"),
        ("s_mov_b32 s11, s5", "type"),
        ("s_bitset1_b32 s8, 31", "list of 4 rows"),
        ("s_bitset1_b32 s8, 5", "mode"),
        ("s_mov_b32 s9, 0x10000", "outside the workgroup"),
    ],
)
def test_tensor_refused(text: Any, change: str, problem: str) -> None:
    body = [*_descriptor(0, 4, (5, 3), (8, 4), 10), change, "tensor_load_to_lds s[8:11], s[12:19]"]
    with pytest.raises(EmulatorError, match=problem):
        text(body, [np.zeros(64, np.uint32), np.zeros(4, np.uint32)], lds=512)


def test_no_tensor_copy_without_count(text: Any) -> None:
    body = [
        *_descriptor(0, 4, (5, 3), (8, 4), 10),
        "s_mov_b32 s8, 0",
        "s_mov_b32 s11, 0",
        "tensor_load_to_lds s[8:11], s[12:19]",
    ]
    text(body, [np.zeros(4, np.uint32), np.zeros(4, np.uint32)], lds=512)
