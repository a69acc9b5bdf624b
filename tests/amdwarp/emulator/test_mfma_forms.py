"""Matrix instructions: every shape, broadcasts, constants, spellings and sparse forms, element by element."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

F32, F64 = np.float32, np.float64
TYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": F32,
    "xf32": F32,
    "f64": F64,
    "i8": np.int8,
}
OCP = {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2}
FNUZ = {"fp8": ml_dtypes.float8_e4m3fnuz, "bf8": ml_dtypes.float8_e5m2fnuz}


def types_of(arch: str) -> dict[str, Any]:
    return TYPES | (FNUZ if arch == "gfx942" else OCP)


def input_place(row: int, k: int, block: int, m: int, whole_k: int, blocks: int) -> tuple[int, int]:
    """(lane, element) of A[block, row, k], after the closed form of the instruction set manual."""
    run = whole_k * m * blocks // 64
    return row + m * (block + blocks * (k // run)), k % run


def output_place(row: int, column: int, block: int, m: int, n: int, height: int) -> tuple[int, int]:
    """(lane, element) of D[block, row, column], after the closed form of the instruction set manual.

    The four blocks of the f64 product lie beside each other, after AMD's matrix instruction calculator.
    """
    if m == 4 and height == 1:
        return 16 * row + 4 * block + column, 0
    blocks_inside = -(-64 // (n * m // height))
    rows_inside = 64 // blocks_inside // n
    repeats = m // (height * rows_inside)
    element = row % height + height * (row // (height * rows_inside) + repeats * (block // blocks_inside))
    lane = column + n * (row // height % rows_inside + rows_inside * (block % blocks_inside))
    return lane, element


def registers_of(data: Any) -> list[Any]:
    """[64, elements] of any type as registers."""
    words = np.ascontiguousarray(data).view(np.uint32).reshape(64, -1)
    return [words[:, r].copy() for r in range(words.shape[1])]


def span(first: int, count: int) -> str:
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def run_matrix(execute: Any, text: str, inputs: list[tuple[int, list[Any]]], first: int, count: int, arch: str) -> Any:
    """Execute `text`; returns uint32 [64, registers] of the result."""
    values = {f"v{at + r}": value for at, registers in inputs for r, value in enumerate(registers)}
    out = execute([text], values, [f"v{first + r}" for r in range(count)], arch=arch)
    return np.stack([out[f"v{first + r}"] for r in range(count)], axis=1)


#: name, element, m, k, blocks, architectures
DENSE = [
    ("f32_32x32x1_2b_f32", "f32", 32, 1, 2, "gfx942 gfx950"),
    ("f32_16x16x1_4b_f32", "f32", 16, 1, 4, "gfx942"),
    ("f32_4x4x1_16b_f32", "f32", 4, 1, 16, "gfx942 gfx950"),
    ("f32_32x32x4_2b_bf16", "bf16", 32, 4, 2, "gfx942"),
    ("f32_16x16x4_4b_bf16", "bf16", 16, 4, 4, "gfx950"),
    ("f32_4x4x4_16b_bf16", "bf16", 4, 4, 16, "gfx942"),
    ("i32_32x32x4_2b_i8", "i8", 32, 4, 2, "gfx942"),
    ("i32_16x16x4_4b_i8", "i8", 16, 4, 4, "gfx950"),
    ("i32_4x4x4_16b_i8", "i8", 4, 4, 16, "gfx942"),
    ("i32_16x16x32_i8", "i8", 16, 32, 1, "gfx942"),
    ("i32_32x32x32_i8", "i8", 32, 32, 1, "gfx950"),
    ("f32_16x16x8_xf32", "xf32", 16, 8, 1, "gfx942"),
    ("f32_32x32x16_bf8_bf8", "bf8", 32, 16, 1, "gfx942 gfx950"),
    ("f64_16x16x4_f64", "f64", 16, 4, 1, "gfx942 gfx950"),
    ("f64_4x4x4_4b_f64", "f64", 4, 4, 4, "gfx942 gfx950"),
]


def dense_case(random: Any, case: Any, dtype: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Matrices A and B and lanes of them, and C as [64, elements]."""
    name, element, m, k, blocks, _ = case
    scale = 100 if element == "i8" else 2
    a, b = ((random.standard_normal((blocks, m, k)) * scale).astype(dtype) for _ in range(2))
    if element == "xf32":
        a, b = (np.round(x * 256) / 256 for x in (a, b))
        a, b = a.astype(F32), b.astype(F32)
    lanes = []
    for matrix in (a, b):
        data = np.zeros((64, k * m * blocks // 64), dtype)
        for block, row, at in np.ndindex(blocks, m, k):
            data[input_place(row, at, block, m, k, blocks)] = matrix[block, row, at]
        lanes.append(data)
    kind = {"i": np.int32, "f": F64 if name.startswith("f64") else F32}[name[0]]
    c = (random.standard_normal((64, m * m * blocks // 64)) * 5).astype(kind)
    return a, b, lanes[0], lanes[1], c


def check_dense(got: Any, product: Any, c: Any, case: Any) -> None:
    name, element, m, k, blocks, _ = case
    height = 1 if element == "f64" else 4
    for block, row, column in np.ndindex(blocks, m, m):
        place = output_place(row, column, block, m, m, height)
        expected = float(product[block, row, column]) + float(c[place])
        limit = 0 if element == "i8" else (1e-13 if element == "f64" else 2e-5) * (abs(expected) + k)
        assert abs(float(got[place]) - expected) <= limit, (name, block, row, column)


@pytest.mark.parametrize("case", DENSE, ids=lambda case: case[0])
def test_every_dense_shape(execute: Any, random: Any, case: Any) -> None:
    for arch in case[5].split():
        a, b, left, right, c = dense_case(random, case, types_of(arch)[case[1]])
        inputs = [(8, registers_of(left)), (24, registers_of(right)), (40, registers_of(c))]
        names = [span(first, len(registers)) for first, registers in inputs]
        count = len(inputs[2][1])
        text = f"v_mfma_{case[0]} {span(80, count)}, {', '.join(names)}"
        got = run_matrix(execute, text, inputs, 80, count, arch)
        product = a.astype(F64) @ b.astype(F64).transpose(0, 2, 1)
        check_dense(np.ascontiguousarray(got).view(c.dtype), product, c, case)


BROADCASTS = [
    ("f32_32x32x1_2b_f32", "f32", 32, 1, 2, 1, 1, 0),
    ("f32_16x16x1_4b_f32", "f32", 16, 1, 4, 2, 3, 0),
    ("f32_16x16x4_4b_f16", "f16", 16, 4, 4, 1, 1, 3),
    ("f32_4x4x4_16b_f16", "f16", 4, 4, 16, 4, 9, 0),
    ("f32_4x4x4_16b_bf16", "bf16", 4, 4, 16, 3, 5, 6),
    ("f32_16x16x16_f16", "f16", 16, 16, 1, 0, 0, 1),
    ("f32_32x32x8_f16", "f16", 32, 8, 1, 0, 0, 2),
    ("f32_16x16x4_f32", "f32", 16, 4, 1, 0, 0, 4),
    ("f32_16x16x4_f32", "f32", 16, 4, 1, 0, 0, 5),
    ("i32_32x32x4_2b_i8", "i8", 32, 4, 2, 0, 0, 7),
]
B_LANES = {
    0: lambda lane: lane,
    1: lambda lane: lane % 32,
    2: lambda lane: 32 + lane % 32,
    3: lambda lane: (lane + 16) % 64,
    4: lambda lane: lane % 16,
    5: lambda lane: 16 + lane % 16,
    6: lambda lane: 32 + lane % 16,
    7: lambda lane: 48 + lane % 16,
}


@pytest.mark.parametrize("case", BROADCASTS, ids=lambda case: f"{case[0]}-{case[5]}-{case[6]}-{case[7]}")
def test_broadcasts(execute: Any, random: Any, case: Any) -> None:
    name, element, m, k, blocks, cbsz, abid, blgp = case
    dtype = TYPES[element]
    shape = (name, element, m, k, blocks, "")
    _, _, left, right, c = dense_case(random, shape, dtype)
    a, b = np.zeros((blocks, m, k)), np.zeros((blocks, m, k))
    width = 64 >> cbsz
    for block, row, at in np.ndindex(blocks, m, k):
        lane, item = input_place(row, at, block, m, k, blocks)
        a[block, row, at] = left[lane % width + width * abid, item]
        b[block, row, at] = right[B_LANES[blgp](lane), item]
    inputs = [(8, registers_of(left)), (24, registers_of(right)), (40, registers_of(c))]
    names = [span(first, len(registers)) for first, registers in inputs]
    count = len(inputs[2][1])
    text = f"v_mfma_{name} {span(80, count)}, {', '.join(names)} cbsz:{cbsz} abid:{abid} blgp:{blgp}"
    got = run_matrix(execute, text, inputs, 80, count, "gfx942")
    check_dense(np.ascontiguousarray(got).view(c.dtype), a @ b.transpose(0, 2, 1), c, shape)


@pytest.mark.parametrize("modifiers", ["cbsz:2", "abid:1", "cbsz:1 abid:2", "blgp:8"])
def test_impossible_broadcasts_are_refused(execute: Any, modifiers: str) -> None:
    from amdwarp.errors import EmulatorError

    with pytest.raises(EmulatorError, match=r"broadcast|blgp"):
        execute([f"v_mfma_f32_32x32x1_2b_f32 v[80:111], v8, v9, v[80:111] {modifiers}"], {}, [])


@pytest.mark.parametrize("negated", ["blgp:5", "neg:[1,0,1]"])
def test_f64_negation(execute: Any, random: Any, negated: str) -> None:
    case = ("f64_16x16x4_f64", "f64", 16, 4, 1, "")
    a, b, left, right, c = dense_case(random, case, F64)
    inputs = [(8, registers_of(left)), (24, registers_of(right)), (40, registers_of(c))]
    text = f"v_mfma_f64_16x16x4_f64 v[80:87], v[8:9], v[24:25], v[40:47] {negated}"
    got = np.ascontiguousarray(run_matrix(execute, text, inputs, 80, 8, "gfx942")).view(F64)
    check_dense(got, -(a @ b.transpose(0, 2, 1)), -c, case)


@pytest.mark.parametrize(
    ("text", "bits"), [("1.0", 0x3F800000), ("-4.0", 0xC0800000), ("0.5", 0x3F000000), ("64", 64), ("-1", 0xFFFFFFFF)]
)
def test_constant_addend(execute: Any, text: str, bits: int) -> None:
    zero = np.zeros(64, np.uint32)
    got = execute([f"v_mfma_f32_16x16x4_f32 v[20:23], v8, v9, {text}"], {"v8": zero, "v9": zero}, ["v20", "v23"])
    expected = np.array([bits], np.uint32).view(F32)[0]
    for name in ("v20", "v23"):
        np.testing.assert_array_equal(got[name].view(F32), expected)


@pytest.mark.parametrize(
    ("old", "new", "registers"),
    [
        ("v_mfma_f32_32x32x8f16", "v_mfma_f32_32x32x8_f16", 2),
        ("v_mfma_f32_16x16x16bf16_1k", "v_mfma_f32_16x16x16_bf16", 2),
        ("v_mfma_f32_4x4x1f32", "v_mfma_f32_4x4x1_16b_f32", 1),
        ("v_mfma_i32_16x16x4i8", "v_mfma_i32_16x16x4_4b_i8", 1),
    ],
)
def test_older_spellings(execute: Any, random: Any, old: str, new: str, registers: int) -> None:
    from amdwarp.asm import parse_instruction

    assert parse_instruction(f"{old} v[0:3], v[8:9], v[8:9], 0").base == new
    count = 4 if "4x4x1" in new or "16x16x16" in new else 16
    data = [(random.standard_normal((64, 2)).astype(np.float16)).view(np.uint32).reshape(64) for _ in range(registers)]
    inputs = {f"v{8 + r}": value for r, value in enumerate(data)}
    body = [
        f"{name} {span(first, count)}, {span(8, registers)}, {span(8, registers)}, 0"
        for name, first in ((old, 20), (new, 40))
    ]
    out = execute(body, inputs, ["v20", "v21", "v40", "v41"], arch="gfx942")
    np.testing.assert_array_equal(out["v20"], out["v40"])
    np.testing.assert_array_equal(out["v21"], out["v41"])


#: name, element of A and B, m, k, architectures
SPARSE = [
    ("f32_16x16x32_f16", "f16", "f16", 16, 32, "gfx942 gfx950"),
    ("f32_32x32x16_bf16", "bf16", "bf16", 32, 16, "gfx942"),
    ("i32_16x16x64_i8", "i8", "i8", 16, 64, "gfx942"),
    ("f32_32x32x32_fp8_bf8", "fp8", "bf8", 32, 32, "gfx942 gfx950"),
    ("f32_16x16x64_bf8_fp8", "bf8", "fp8", 16, 64, "gfx950"),
    ("f32_16x16x64_f16", "f16", "f16", 16, 64, "gfx950"),
    ("f32_32x32x32_bf16", "bf16", "bf16", 32, 32, "gfx950"),
    ("i32_16x16x128_i8", "i8", "i8", 16, 128, "gfx950"),
    ("f32_32x32x64_fp8_fp8", "fp8", "fp8", 32, 64, "gfx950"),
]


def sparse_k(lane: int, item: int, m: int, k: int, run: int) -> int:
    """k of element `item` of B in `lane`; `run` consecutive elements, further runs a whole row of lanes on."""
    return item // run * (run * 64 // m) + lane // m * run + item % run


@pytest.mark.parametrize("case", SPARSE, ids=lambda case: case[0])
def test_sparse_products(execute: Any, random: Any, case: Any) -> None:
    name, kind_a, kind_b, m, k, targets = case
    for arch in targets.split():
        type_a, type_b = types_of(arch)[kind_a], types_of(arch)[kind_b]
        size = np.dtype(type_a).itemsize
        count = k * m // 64
        run = 16 // size
        assert count in (run, 2 * run)
        left = (random.standard_normal((64, count // 2)) * 3).astype(type_a)
        right = (random.standard_normal((64, count)) * 3).astype(type_b)
        sets = 32 // count
        chosen = random.integers(0, sets)
        places = np.array([[sorted(random.permutation(4)[:2]) for _ in range(count // 4)] for _ in range(64)])
        index = random.integers(0, 2**32, 64, dtype=np.uint64)
        a, b = np.zeros((m, k)), np.zeros((k, m))
        for lane in range(64):
            for item in range(count // 2):
                at = 2 * item + int(chosen) * count
                place = int(places[lane, item // 2, item % 2])
                index[lane] = int(index[lane]) & ~(3 << at) | place << at
                a[lane % m, sparse_k(lane, item // 2 * 4 + place, m, k, run)] = left[lane, item]
            for item in range(count):
                b[sparse_k(lane, item, m, k, run), lane % m] = right[lane, item]
        kind = np.int32 if name[0] == "i" else F32
        c = (random.standard_normal((64, m * m // 64)) * 5).astype(kind)
        inputs = [
            (8, registers_of(left)),
            (24, registers_of(right)),
            (40, [index.astype(np.uint32)]),
            (80, registers_of(c)),
        ]
        registers = [span(first, len(values)) for first, values in inputs]
        text = f"v_smfmac_{name} {registers[3]}, {registers[0]}, {registers[1]}, {registers[2]} abid:{chosen}"
        got = run_matrix(execute, text, inputs, 80, m * m // 64, arch)
        case_like = (name, "i8" if kind_a == "i8" else "f32", m, k, 1, "")
        check_dense(np.ascontiguousarray(got).view(kind), (a @ b)[None], c, case_like)


def test_sparse_broadcast_takes_the_first_set(execute: Any) -> None:
    """With cbsz other than 0 the index is the first set, whatever abid says."""
    ones = np.full(64, 0x3C003C00, np.uint32)
    column = np.full(64, 0x00003C00, np.uint32)
    inputs = {"v8": ones, "v9": ones, "v10": column, "v11": ones * 0, "v12": column, "v13": ones * 0}
    inputs |= {"v14": np.full(64, 0xEEEEEE44, np.uint32)}
    zero = [f"v_mov_b32_e32 v{at}, 0" for at in range(20, 28)]
    line = "v_smfmac_f32_16x16x32_f16 v[{}], v[8:9], v[10:13], v14 cbsz:{} abid:2"
    out = execute([*zero, line.format("20:23", 1), line.format("24:27", 0)], inputs, ["v20", "v24"], arch="gfx942")
    # Places 0 and 1 meet the one at k = 0 of each group of four; places 2 and 3 miss it.
    np.testing.assert_array_equal(out["v20"].view(F32), 8)
    np.testing.assert_array_equal(out["v24"].view(F32), 0)


def test_target_without_the_instruction(execute: Any) -> None:
    from amdwarp.errors import EmulatorError

    with pytest.raises(EmulatorError, match="gfx942 does not have"):
        execute(["v_smfmac_f32_16x16x64_f16 v[20:23], v[8:11], v[24:31], v40"], {}, [], arch="gfx942")
    with pytest.raises(EmulatorError, match="gfx950 does not have"):
        execute(["v_mfma_f32_16x16x8_xf32 v[20:23], v[8:9], v[10:11], 0"], {}, [], arch="gfx950")
