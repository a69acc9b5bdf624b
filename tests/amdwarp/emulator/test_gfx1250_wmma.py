"""Matrix instructions of gfx1250 against products in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from amdwarp.errors import EmulatorError

F16, F32, BF16 = np.float16, np.float32, ml_dtypes.bfloat16
FP8, BF8, FP4 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn


@pytest.fixture(scope="session")
def run(execute: Any) -> Any:
    """`execute` for gfx1250."""

    def call(body: list[str], inputs: dict[str, Any] | None = None, outputs: list[str] | None = None, **kw: Any) -> Any:
        return execute(body, inputs, outputs, arch="gfx1250", **kw)

    return call


def spread(matrix: Any, run_bytes: int = 16) -> Any:
    """Registers [count, 32] of a matrix [16 rows, k]: runs of 16 bytes go to the two lane halves by turns."""
    raw = np.ascontiguousarray(matrix).view(np.uint8).reshape(len(matrix), -1)
    runs = raw.reshape(16, -1, 2, min(run_bytes, raw.shape[1] // 2))
    return np.ascontiguousarray(runs.transpose(2, 0, 1, 3)).reshape(32, -1).view(np.uint32).T.copy()


def pack4(codes: Any) -> Any:
    """Two 4-bit codes to a byte."""
    return (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)


def result(out: dict[str, Any], first: int, kind: Any = F32) -> Any:
    """The 16 x 16 result from eight registers: register j of lane l is row 8 (l // 16) + j, column l % 16."""
    values = np.stack([out[f"v{first + j}"] for j in range(8)]).view(kind)
    return values.reshape(8, 2, 16).transpose(1, 0, 2).reshape(16, 16)


def place(matrix: Any) -> Any:
    """Registers [8, 32] of a 16 x 16 matrix of C."""
    return np.ascontiguousarray(matrix.reshape(2, 8, 16).transpose(1, 0, 2)).reshape(8, 32)


def registers(first: int, values: Any) -> dict[str, Any]:
    return {f"v{first + at}": np.ascontiguousarray(row) for at, row in enumerate(values)}


def names(first: int, count: int) -> str:
    return f"v[{first}:{first + count - 1}]"


OUT = [f"v{n}" for n in range(100, 108)]
PLAIN = [
    ("v_wmma_f32_16x16x4_f32", F32, F32, 4),
    ("v_wmma_f32_16x16x32_f16", F16, F16, 32),
    ("v_wmma_f32_16x16x32_bf16", BF16, BF16, 32),
    *(
        (f"v_wmma_f32_16x16x{k}_{a}_{b}", x, y, k)
        for k in (64, 128)
        for a, x in (("fp8", FP8), ("bf8", BF8))
        for b, y in (("fp8", FP8), ("bf8", BF8))
    ),
]


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case[0])
@pytest.mark.parametrize("addend", ["registers", "zero", "negated", "absolute"])
def test_float(run: Any, random: Any, case: Any, addend: str) -> None:
    name, kind_a, kind_b, k = case
    a, b = random.standard_normal((16, k)).astype(kind_a), random.standard_normal((16, k)).astype(kind_b)
    c = random.standard_normal((16, 16)).astype(F32)
    left, right = spread(a), spread(b)
    tail = {"negated": " neg_lo:[0,0,1]", "absolute": " neg_hi:[0,0,1]"}.get(addend, "")
    third = "0" if addend == "zero" else "v[80:87]"
    line = f"{name} v[100:107], {names(10, len(left))}, {names(40, len(right))}, {third}{tail}"
    out = run([line], registers(10, left) | registers(40, right) | registers(80, place(c)), OUT)
    added = {"zero": 0 * c, "negated": -c, "absolute": np.abs(c)}.get(addend, c)
    expected = a.astype(np.float64) @ b.astype(np.float64).T + added
    np.testing.assert_allclose(result(out, 100), expected, rtol=1e-5, atol=1e-4 if "bf8" in name else 2e-5)


def test_special_values(run: Any) -> None:
    """NaN and infinities go through; exec is not looked at."""
    a, b = np.zeros((16, 32), F16), np.ones((16, 32), F16)
    a[3, 5], a[4, 0], a[5, 31], a[5, 30] = np.nan, np.inf, np.inf, -np.inf
    line = "v_wmma_f32_16x16x32_f16 v[100:107], v[10:17], v[40:47], 1.0"
    out = run(["s_mov_b32 exec_lo, 0", line], registers(10, spread(a)) | registers(40, spread(b)), OUT)
    got = result(out, 100)
    assert np.isnan(got[3]).all() and (got[4] == np.inf).all() and np.isnan(got[5]).all() and (got[:3] == 1).all()


@pytest.mark.parametrize(("name", "kind"), [("f16", F16), ("bf16", BF16)])
def test_16_bit_results(run: Any, random: Any, name: str, kind: Any) -> None:
    a, b = (random.standard_normal((16, 32)).astype(kind) for _ in range(2))
    c = random.standard_normal((16, 16)).astype(kind)
    halves = place(c.view(np.uint16)).astype(np.uint32)
    packed = halves[0::2] | halves[1::2] << np.uint32(16)
    line = f"v_wmma_{name}_16x16x32_{name} v[100:103], v[10:17], v[40:47], v[80:83]"
    out = run([line], registers(10, spread(a)) | registers(40, spread(b)) | registers(80, packed), OUT[:4])
    words = np.stack([out[f"v{100 + j}"] for j in range(4)])
    codes = np.stack((words & 0xFFFF, words >> 16), axis=1).reshape(8, 32).astype(np.uint16)
    got = codes.view(kind).reshape(8, 2, 16).transpose(1, 0, 2).reshape(16, 16).astype(np.float64)
    expected = a.astype(np.float64) @ b.astype(np.float64).T + c.astype(np.float64)
    np.testing.assert_allclose(got, expected, rtol=2**-7 if kind is BF16 else 2**-10, atol=1e-2)


@pytest.mark.parametrize("signs", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("clamp", [False, True])
def test_integer(run: Any, random: Any, signs: tuple[int, int], clamp: bool) -> None:
    a, b = random.integers(0, 256, (2, 16, 64), dtype=np.uint8)
    c = random.integers(-(2**31), 2**31, (16, 16), dtype=np.int64).astype(np.int32)
    c[0], c[1] = 2**31 - 1, -(2**31)
    tail = f" neg_lo:[{signs[0]},{signs[1]},0]" + (" clamp" if clamp else "")
    line = f"v_wmma_i32_16x16x64_iu8 v[100:107], v[10:17], v[40:47], v[80:87]{tail}"
    out = run([line], registers(10, spread(a)) | registers(40, spread(b)) | registers(80, place(c)), OUT)
    x, y = (v.view(np.int8) if sign else v for v, sign in zip((a, b), signs, strict=True))
    exact = x.astype(np.int64) @ y.astype(np.int64).T + c
    expected = np.clip(exact, -(2**31), 2**31 - 1) if clamp else exact
    np.testing.assert_array_equal(result(out, 100, np.int32), expected.astype(np.int32))


def _operand(random: Any, form: str, rows: int = 16) -> tuple[Any, Any]:
    """(registers, values [rows, 128])."""
    if form == "FP4":
        codes = random.integers(0, 16, (rows, 128), dtype=np.uint8)
        packed, values = pack4(codes), codes.view(FP4).astype(np.float64)
    else:
        values8 = random.standard_normal((rows, 128)).astype(FP8 if form == "FP8" else BF8)
        packed, values = values8.view(np.uint8), values8.astype(np.float64)
    return np.concatenate([spread(packed[at : at + 16]) for at in range(0, rows, 16)]), values


FORMS = ["FP8", "BF8", "FP4"]


@pytest.mark.parametrize("form_a", FORMS)
@pytest.mark.parametrize("form_b", FORMS)
@pytest.mark.parametrize("halves", [None, (0, 0), (1, 0), (0, 1)])
def test_mixed_and_scaled(run: Any, random: Any, form_a: str, form_b: str, halves: tuple[int, int] | None) -> None:
    """Scales: byte q in the lane of the row belongs to k from 32 q on; ROW1 takes them from lanes 16 to 31."""
    (left, a), (right, b) = _operand(random, form_a), _operand(random, form_b)
    inputs = registers(10, left) | registers(40, right)
    tail = f" matrix_a_fmt:MATRIX_FMT_{form_a} matrix_b_fmt:MATRIX_FMT_{form_b}"
    operands = f"v[100:107], {names(10, len(left))}, {names(40, len(right))}, 0"
    if halves is None:
        line = f"v_wmma_f32_16x16x128_f8f6f4 {operands}{tail}"
    else:
        codes = random.integers(120, 135, (2, 32, 4), dtype=np.uint8)
        inputs |= {"v2": codes[0].view(np.uint32)[:, 0].copy(), "v3": codes[1].view(np.uint32)[:, 0].copy()}
        for letter, half in zip("ab", halves, strict=True):
            tail += f" matrix_{letter}_scale:MATRIX_SCALE_ROW1" if half else ""
        line = f"v_wmma_scale_f32_16x16x128_f8f6f4 {operands}, v2, v3{tail} matrix_b_reuse"
        sa, sb = (c[16 * half : 16 * half + 16] for c, half in zip(codes, halves, strict=True))
        a, b = (v * np.exp2(np.repeat(s.astype(np.float64) - 127, 32, axis=1)) for v, s in ((a, sa), (b, sb)))
    out = run([line], inputs, OUT)
    expected = a @ b.T
    np.testing.assert_allclose(result(out, 100), expected, atol=1e-5 * np.abs(expected).max())


def test_scale_codes(run: Any) -> None:
    """Byte 0 is 2^-127, 255 is NaN."""
    codes = np.full((32, 4), 127, np.uint8)
    codes[0], codes[1, 2] = 0, 255
    ones = np.full((16, 128), 1, F32).astype(FP8).view(np.uint8)
    inputs = registers(10, spread(ones)) | registers(40, spread(ones)) | {"v2": codes.view(np.uint32)[:, 0].copy()}
    inputs["v3"] = np.full(32, 0x7F7F7F7F, np.uint32)
    line = "v_wmma_scale_f32_16x16x128_f8f6f4 v[100:107], v[10:25], v[40:55], 0, v2, v3"
    got = result(run([line], inputs, OUT), 100)
    assert (got[0] == F32(2.0**-120)).all() and np.isnan(got[1]).all() and (got[2:] == 128).all()


@pytest.mark.parametrize("scaled", [False, True])
def test_wide(run: Any, random: Any, scaled: bool) -> None:
    """32 rows: the second eight registers of A, and lanes 16 to 31 of its scales, are rows 16 to 31."""
    (left, a), (right, b) = _operand(random, "FP4", 32), _operand(random, "FP4")
    inputs = registers(10, left) | registers(40, right)
    line = "v_wmma_f32_32x16x128_f4 v[100:115], v[10:25], v[40:47], 0"
    if scaled:
        codes = random.integers(120, 135, (2, 32, 4), dtype=np.uint8)
        inputs |= {"v2": codes[0].view(np.uint32)[:, 0].copy(), "v3": codes[1].view(np.uint32)[:, 0].copy()}
        line = "v_wmma_scale_f32_32x16x128_f4 v[100:115], v[10:25], v[40:47], 0, v2, v3"
        a = a * np.exp2(np.repeat(codes[0].astype(np.float64) - 127, 32, axis=1))
        b = b * np.exp2(np.repeat(codes[1, :16].astype(np.float64) - 127, 32, axis=1))
    out = run([line], inputs, [f"v{n}" for n in range(100, 116)])
    expected = a @ b.T
    got = np.concatenate((result(out, 100), result(out, 108)))
    np.testing.assert_allclose(got, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    "line",
    [
        "v_wmma_f32_16x16x32_f16 v[100:107], v[10:17], v[40:47], v[80:87] neg_lo:[1,0,0]",
        "v_wmma_f32_16x16x32_f16 v[100:107], v[10:16], v[40:47], v[80:87]",
        "v_wmma_f32_16x16x32_f16 v[100:107], v[10:17], v[40:47], v[80:87] clamp",
        "v_wmma_f32_16x16x128_f8f6f4 v[100:107], v[10:21], v[40:55], 0 matrix_a_fmt:MATRIX_FMT_FP6",
        "v_wmma_scale_f32_16x16x128_f8f6f4 v[100:107], v[10:25], v[40:55], 0, v2, v3 "
        "matrix_a_scale_fmt:MATRIX_SCALE_FMT_E5M3",
        "v_wmma_scale_f32_16x16x128_f8f6f4 v[100:107], v[10:25], v[40:55], 0, v2, 0",
        "v_wmma_scale16_f32_16x16x128_f8f6f4 v[100:107], v[10:25], v[40:55], 0, v2, v[4:5]",
        "v_wmma_scale_f32_16x16x128_f8f6f4 v[100:107], v[10:21], v[40:51], 0, v2, v3 "
        "matrix_a_fmt:MATRIX_FMT_FP6 matrix_b_fmt:MATRIX_FMT_BF6",
    ],
)
def test_refused(run: Any, line: str) -> None:
    with pytest.raises(EmulatorError, match="line"):
        run([line])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("v_swmmac_f32_16x16x64_f16 v[100:107], v[10:17], v[40:55], v2", "which k a lane holds"),
        ("ds_load_tr6_b96 v[100:102], v1", "takes each 6-bit element from"),
        ("global_load_tr16_b128 v[100:103], v1, s[4:5]", "takes each element from"),
        ("cluster_load_async_to_lds_b128 v1, v2, s[4:5]", "workgroups of a cluster"),
    ],
)
def test_refused_with_a_reason(run: Any, line: str, reason: str) -> None:
    with pytest.raises(EmulatorError, match=reason):
        run([line])


@pytest.mark.parametrize("form_a", ["FP6", "BF6"])
@pytest.mark.parametrize("form_b", ["FP6", "BF6"])
def test_6_bit_operands(run: Any, random: Any, form_a: str, form_b: str) -> None:
    """A lane's 64 codes stand in 12 registers, lowest bits first; its k are the same for A and B."""
    kinds = {"FP6": ml_dtypes.float6_e2m3fn, "BF6": ml_dtypes.float6_e3m2fn}
    codes = random.integers(0, 64, (2, 32, 64), dtype=np.uint8)
    bits = np.unpackbits(codes[..., None], axis=-1, bitorder="little")[..., :6].reshape(2, 32, -1)
    words = np.packbits(bits, axis=-1, bitorder="little").view(np.uint32)
    inputs = registers(10, words[0].T.copy()) | registers(40, words[1].T.copy())
    line = "v_wmma_f32_16x16x128_f8f6f4 v[100:107], v[10:21], v[40:51], 0"
    out = run([f"{line} matrix_a_fmt:MATRIX_FMT_{form_a} matrix_b_fmt:MATRIX_FMT_{form_b}"], inputs, OUT)
    a, b = (
        codes[at].view(kinds[form]).astype(np.float64).reshape(2, 16, 64) for at, form in enumerate((form_a, form_b))
    )
    expected = np.einsum("hik,hjk->ij", a, b)
    np.testing.assert_allclose(result(out, 100), expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("rows", [16, 32])
@pytest.mark.parametrize("form", ["E8", "E4M3"])
def test_a_scale_for_16_elements(run: Any, random: Any, rows: int, form: str) -> None:
    """Byte q of two registers in the lane of the row belongs to the k from 16 q on."""
    (left, a), (right, b) = _operand(random, "FP4", rows), _operand(random, "FP4")
    codes = random.integers(120, 135, (2, 32, 8), dtype=np.uint8)
    if form == "E4M3":
        codes = random.integers(0, 0x7F, (2, 32, 8), dtype=np.uint8)
    words = codes.view(np.uint32)
    inputs = registers(10, left) | registers(40, right)
    inputs |= {f"v{2 + 2 * at + half}": words[at, :, half].copy() for at in (0, 1) for half in (0, 1)}
    tail = "".join(f" matrix_{letter}_scale_fmt:MATRIX_SCALE_FMT_E4M3" for letter in "ab" if form == "E4M3")
    last = 99 + rows // 2
    if rows == 32:
        line = f"v_wmma_scale16_f32_32x16x128_f4 v[100:{last}], v[10:25], v[40:47], 0, v[2:3], v[4:5]{tail}"
    else:
        tail += " matrix_a_fmt:MATRIX_FMT_FP4 matrix_b_fmt:MATRIX_FMT_FP4"
        line = f"v_wmma_scale16_f32_16x16x128_f8f6f4 v[100:{last}], v[10:17], v[40:47], 0, v[2:3], v[4:5]{tail}"
    scale = np.exp2(codes.astype(np.float64) - 127) if form == "E8" else codes.view(FP8).astype(np.float64)
    a, b = a * np.repeat(scale[0, :rows], 16, axis=1), b * np.repeat(scale[1, :16], 16, axis=1)
    out = run([line], inputs, [f"v{n}" for n in range(100, last + 1)])
    expected = a @ b.T
    got = np.concatenate([result(out, 100 + 8 * at) for at in range(rows // 16)])
    np.testing.assert_allclose(got, expected, atol=1e-5 * np.abs(expected).max())


def test_a_negative_scale(run: Any) -> None:
    line = "v_wmma_scale_f32_16x16x128_f8f6f4 v[100:107], v[10:25], v[40:55], 0, v2, v3"
    tail = " matrix_a_scale_fmt:MATRIX_SCALE_FMT_E4M3 matrix_b_scale_fmt:MATRIX_SCALE_FMT_E4M3"
    inputs = {"v2": np.full(32, 0x80, np.uint32), "v3": np.full(32, 0x38383838, np.uint32)}
    with pytest.raises(EmulatorError, match="sign bit"):
        run([line + tail], inputs, OUT)
