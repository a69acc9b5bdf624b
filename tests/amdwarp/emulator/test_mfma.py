"""Matrix instructions against products of matrices that are laid out element by element."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

F32 = np.float32
TYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": F32,
    "i8": np.int8,
    "fp8": ml_dtypes.float8_e4m3fn,
    "bf8": ml_dtypes.float8_e5m2,
}
FNUZ = {"fp8": ml_dtypes.float8_e4m3fnuz, "bf8": ml_dtypes.float8_e5m2fnuz}


def place(matrix: Any, shape: tuple[int, int], blocks: int, dtype: Any) -> list[Any]:
    """Registers of an operand [block, row, k]: lane and element of every entry written out."""
    rows, k = shape
    lanes_per_block = 64 // blocks
    groups = lanes_per_block // rows
    per_lane = k // groups
    data = np.zeros((64, per_lane), dtype)
    for block in range(blocks):
        for row in range(rows):
            for at in range(k):
                lane = block * lanes_per_block + (at // per_lane) * rows + row
                data[lane, at % per_lane] = matrix[block, row, at]
    words = data.view(np.uint32).reshape(64, -1)
    return [words[:, r].copy() for r in range(words.shape[1])]


def result_place(block: int, row: int, column: int, m: int, n: int, blocks: int) -> tuple[int, int]:
    """(register, lane) of an element of D."""
    if m == 4:
        return row, 4 * block + column
    groups = 64 // n
    per_block = m * n // 64
    return block * per_block + 4 * (row // (4 * groups)) + row % 4, row // 4 % groups * n + column


CASES = [
    ("v_mfma_f32_32x32x8_f16", "f16", "f16", 32, 8, 1),
    ("v_mfma_f32_16x16x16_f16", "f16", "f16", 16, 16, 1),
    ("v_mfma_f32_32x32x16_f16", "f16", "f16", 32, 16, 1),
    ("v_mfma_f32_16x16x32_f16", "f16", "f16", 16, 32, 1),
    ("v_mfma_f32_32x32x8_bf16", "bf16", "bf16", 32, 8, 1),
    ("v_mfma_f32_16x16x32_bf16", "bf16", "bf16", 16, 32, 1),
    ("v_mfma_f32_32x32x16_bf16", "bf16", "bf16", 32, 16, 1),
    ("v_mfma_f32_32x32x2_f32", "f32", "f32", 32, 2, 1),
    ("v_mfma_f32_16x16x4_f32", "f32", "f32", 16, 4, 1),
    ("v_mfma_f32_16x16x32_fp8_fp8", "fp8", "fp8", 16, 32, 1),
    ("v_mfma_f32_32x32x16_fp8_bf8", "fp8", "bf8", 32, 16, 1),
    ("v_mfma_f32_16x16x32_bf8_fp8", "bf8", "fp8", 16, 32, 1),
    ("v_mfma_i32_32x32x16_i8", "i8", "i8", 32, 16, 1),
    ("v_mfma_i32_16x16x64_i8", "i8", "i8", 16, 64, 1),
    ("v_mfma_f32_32x32x4_2b_f16", "f16", "f16", 32, 4, 2),
    ("v_mfma_f32_16x16x4_4b_f16", "f16", "f16", 16, 4, 4),
    ("v_mfma_f32_4x4x4_16b_f16", "f16", "f16", 4, 4, 16),
    ("v_mfma_f32_16x16x1_4b_f32", "f32", "f32", 16, 1, 4),
]


def tuple_of(kind: str, first: int, count: int) -> str:
    return f"{kind}{first}" if count == 1 else f"{kind}[{first}:{first + count - 1}]"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
@pytest.mark.parametrize("files", ["vvv", "aav", "vaa"])
@pytest.mark.parametrize("arch", ["gfx950", "gfx942"])
def test_product(execute: Any, random: Any, case: Any, files: str, arch: str) -> None:
    name, kind_a, kind_b, m, k, blocks = case
    gfx950_only = ("x32x16_f16", "x16x32_f16", "x16x32_bf16", "x32x16_bf16", "x16x64_i8")
    if arch == "gfx942" and name.endswith(gfx950_only):
        pytest.skip("gfx950 has this shape only")
    types = TYPES | (FNUZ if arch == "gfx942" else {})
    shape = (blocks, m, k)
    a, b = ((random.standard_normal(shape) * 3).astype(types[kind]) for kind in (kind_a, kind_b))
    integer = "_i32_" in name
    count = m * m * blocks // 64
    c = (random.standard_normal((count, 64)) * 9).astype(np.int32 if integer else F32)
    inputs: dict[str, Any] = {}
    names = []
    for at, (file, registers) in enumerate(
        zip(
            files,
            (place(a, (m, k), blocks, types[kind_a]), place(b, (m, k), blocks, types[kind_b]), list(c)),
            strict=True,
        )
    ):
        first = 8 + 8 * at if at < 2 else 32
        inputs |= {f"{file}{first + r}": value for r, value in enumerate(registers)}
        names.append(tuple_of(file, first, len(registers)))
    target = tuple_of("v" if files[2] == "v" else "a", 64, count)
    body = [f"{name} {target}, {names[0]}, {names[1]}, {names[2]}", f"{name} {names[2]}, {names[0]}, {names[1]}, 0"]
    outputs = [f"{files[2]}{64 + r}" for r in range(count)] + [f"{files[2]}{32 + r}" for r in range(count)]
    out = execute(body, inputs, outputs, arch=arch)
    product = a.astype(np.float64) @ b.astype(np.float64).transpose(0, 2, 1)
    for block in range(blocks):
        for row in range(m):
            for column in range(m):
                register, lane = result_place(block, row, column, m, m, blocks)
                value = product[block, row, column]
                for first, addend in ((64, c[register, lane]), (32, 0)):
                    got = out[f"{files[2]}{first + register}"][lane : lane + 1].view(c.dtype)[0]
                    assert abs(float(got) - (value + float(addend))) <= 1e-5 * (abs(value) + k), (block, row, column)


def test_exec_is_not_looked_at(execute: Any) -> None:
    ones = np.full(64, 0x3C003C00, np.uint32)
    body = ["s_mov_b64 exec, 0", "v_mfma_f32_16x16x16_f16 v[20:23], v[8:9], v[8:9], 0", "s_mov_b64 exec, -1"]
    out = execute(body, {"v8": ones, "v9": ones}, ["v20", "v23"])
    assert (out["v20"].view(F32) == 16).all() and (out["v23"].view(F32) == 16).all()


def test_registers_changed_between_products(execute: Any) -> None:
    """The second product sees the new operand although the tuple is the same."""
    ones = np.full(64, 0x3C003C00, np.uint32)
    line = "v_mfma_f32_16x16x16_f16 v[{}], v[8:9], v[8:9], 0"
    body = [line.format("20:23"), "v_mov_b32_e32 v9, 0", line.format("24:27")]
    out = execute(body, {"v8": ones, "v9": ones}, ["v20", "v24"])
    assert (out["v20"].view(F32) == 16).all() and (out["v24"].view(F32) == 8).all()


@pytest.mark.parametrize("name", ["v_mfma_f32_32x32x4_xf32", "v_mfma_f32_16x16x8_xf32"])
def test_xf32_rounds_to_ten_bits(execute: Any, name: str) -> None:
    one = np.full(64, 1, F32)
    odd = np.full(64, 1 + 2.0**-10 + 2.0**-12, F32)
    count = 16 if "32x32" in name else 4
    k = 4 if "32x32" in name else 8
    body = [f"{name} v[20:{19 + count}], v[8:9], v[10:11], 0"]
    out = execute(body, {"v8": one, "v9": one, "v10": odd, "v11": odd}, ["v20"], arch="gfx942")
    assert (out["v20"].view(F32) == k * (1 + 2.0**-10)).all()
