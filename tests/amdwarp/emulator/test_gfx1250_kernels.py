"""Gluon kernels for gfx1250 against numpy: async copies, tensor copies, barrier objects, scaled products."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

triton = pytest.importorskip("triton")
if not importlib.util.find_spec("triton.experimental.gluon.language.amd.gfx1250"):
    pytest.skip("this Triton has no Gluon for gfx1250", allow_module_level=True)
VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])

F16, F32, BF16 = np.float16, np.float32, ml_dtypes.bfloat16
DIVISIBLE = [["tt.divisibility", 16], ["tt.pointer_range", 32]]


@cache
def kernels() -> Any:
    """The module `gluon_gfx1250` beside this file."""
    spec = importlib.util.spec_from_file_location("amdwarp_gluon", Path(__file__).with_name("gluon_gfx1250.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def compiled(
    name: str, types: tuple[tuple[str, str], ...], values: tuple[tuple[str, Any], ...], hints: bool, warps: int
) -> Any:
    """Compile kernel `name`; with `hints` pointers and i32 arguments are divisible by 16."""
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon._runtime import GluonASTSource

    kernel = getattr(kernels(), name)
    known = dict(types)
    full = {argument: known.get(argument, "constexpr") for argument in kernel.arg_names}
    places = {(kernel.arg_names.index(key),): value for key, value in values}
    attributes = {
        (at,): DIVISIBLE[: 2 if full[argument][0] == "*" else 1]
        for at, argument in enumerate(kernel.arg_names)
        if hints and full[argument] != "constexpr"
    }
    source = GluonASTSource(kernel, full, places, attributes)
    return triton.compile(source, target=GPUTarget("hip", "gfx1250", 32), options={"num_warps": warps})


def run(name: str, types: dict[str, str], values: dict[str, Any], args: list[Any], grid: Any, **options: Any) -> Any:
    """Compile and emulate."""
    from amdwarp.emulator import launch

    hints, warps = options.pop("hints", False), options.pop("warps", 4)
    kernel = compiled(name, tuple(types.items()), tuple(values.items()), hints, warps)
    launch(kernel.asm["amdgcn"], args, grid, lds_bytes=kernel.metadata.shared, **options)
    return kernel.asm["amdgcn"]


@pytest.mark.parametrize("name", ["gemm_async", "gemm_tensor"])
@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("shape", [(128, 128, 256), (96, 80, 192)], ids=str)
@pytest.mark.parametrize("dtype", [F16, BF16])
def test_gemm(random: Any, name: str, stages: int, shape: tuple[int, int, int], dtype: Any) -> None:
    m, n, k = shape
    a, b = random.standard_normal((m, k)).astype(dtype), random.standard_normal((k, n)).astype(dtype)
    c = np.zeros((m, n), F32)
    kind = {F16: "*fp16", BF16: "*bf16"}[dtype]
    types = {"a": kind, "b": kind, "c": "*fp32", "M": "i32", "N": "i32", "K": "i32"}
    grid = (-(-m // 64), -(-n // 64))
    text = run(name, types, {"BM": 64, "BN": 64, "BK": 64, "STAGES": stages}, [a, b, c, m, n, k], grid, hints=True)
    assert ("tensor_load_to_lds" if name == "gemm_tensor" else "global_load_async_to_lds") in text
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(c, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("wait", ["s_wait_tensorcnt", "s_wait_asynccnt"])
def test_a_missing_wait_shows(random: Any, wait: str) -> None:
    """Without the wait in the loop the product reads poison."""
    from amdwarp.emulator import launch

    name = "gemm_tensor" if "tensor" in wait else "gemm_async"
    types = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "M": "i32", "N": "i32", "K": "i32"}
    values = {"BM": 64, "BN": 64, "BK": 64, "STAGES": 2}
    kernel = compiled(name, tuple(types.items()), tuple(values.items()), True, 4)
    lines = [line for line in kernel.asm["amdgcn"].splitlines() if not line.strip().startswith(wait)]
    a, b = random.standard_normal((2, 64, 64)).astype(F16)
    c = np.zeros((64, 64), F32)
    launch("\n".join(lines), [a, b, c, 64, 64, 64], (1, 1), lds_bytes=kernel.metadata.shared)
    assert np.isnan(c).any()


@pytest.mark.parametrize("pad", [0, 8])
@pytest.mark.parametrize("kind", ["fp32", "fp16", "i8", "i64"])
@pytest.mark.parametrize("corner", [(0, 0), (32, 64), (60, 100)], ids=str)
def test_tensor_copy_2d(random: Any, pad: int, kind: str, corner: tuple[int, int]) -> None:
    dtype = {"fp32": F32, "fp16": F16, "i8": np.int8, "i64": np.int64}[kind]
    m, n = 50, 112
    x = (random.standard_normal((m, n)) * 50).astype(dtype)
    out = np.full((32, 64), 7, dtype)
    types = {"x": f"*{kind}", "out": f"*{kind}"} | dict.fromkeys(("M", "N", "at_m", "at_n"), "i32")
    run("tensor_copy_2d", types, {"BM": 32, "BN": 64, "PAD": pad}, [x, out, m, n, *corner], (1,))
    expected = np.zeros((32, 64), dtype)
    part = x[corner[0] : corner[0] + 32, corner[1] : corner[1] + 64]
    expected[: part.shape[0], : part.shape[1]] = part
    np.testing.assert_array_equal(out, expected)


def test_tensor_copy_3d(random: Any) -> None:
    x = random.standard_normal((7, 11, 70)).astype(F16)
    out = np.full((4, 6, 30), 7, F16)
    types = {"x": "*fp16", "out": "*fp16"} | dict.fromkeys(("A", "B", "C", "at_a", "at_b", "at_c"), "i32")
    run("tensor_copy_3d", types, {}, [x, out, 7, 11, 70, 5, 4, 33], (1,))
    expected = np.zeros((4, 8, 32), F16)
    part = x[5:9, 4:12, 33:65]
    expected[tuple(slice(0, size) for size in part.shape)] = part
    np.testing.assert_array_equal(out, expected[:4, :6, :30])


def test_tensor_copy_5d(random: Any) -> None:
    x = random.standard_normal((3, 3, 5, 6, 20)).astype(F32)
    out = np.full((2, 2, 4, 4, 16), 7, F32)
    names = ("A", "B", "C", "D", "E", "at_a", "at_b", "at_c", "at_d", "at_e")
    run(
        "tensor_copy_5d",
        {"x": "*fp32", "out": "*fp32"} | dict.fromkeys(names, "i32"),
        {},
        [x, out, *x.shape, 2, 1, 2, 3, 8],
        (1,),
    )
    expected = np.zeros(out.shape, F32)
    part = x[2:4, 1:3, 2:6, 3:7, 8:24]
    expected[tuple(slice(0, size) for size in part.shape)] = part
    np.testing.assert_array_equal(out, expected)


def test_copy_through_lds(random: Any) -> None:
    x, out = random.standard_normal(1500).astype(F32), np.full(1500, 7, F32)
    types = {"x": "*fp32", "out": "*fp32", "n": "i32"}
    text = run("copy_through_lds", types, {"BLOCK": 1024}, [x, out, 1488], (2,), hints=True)
    assert "global_store_async_from_lds" in text
    np.testing.assert_array_equal(out, np.where(np.arange(1500) < 1488, x, 7))


def test_copy_with_arrival(random: Any) -> None:
    x, out = random.standard_normal(1024).astype(F32), np.zeros(1024, F32)
    text = run("copy_with_arrival", {"x": "*fp32", "out": "*fp32"}, {"BLOCK": 1024}, [x, out], (1,), hints=True)
    assert "ds_atomic_async_barrier_arrive_b64" in text and "s_wait_asynccnt 0x0" not in text
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize("lockstep", [1, 8])
@pytest.mark.parametrize("blocks", [1, 5])
def test_specialised(random: Any, seed: int | None, lockstep: int, blocks: int) -> None:
    """A producer of tensor copies and a consumer, joined by barrier objects in LDS and named barriers."""
    x, out = random.standard_normal((32 * blocks, 32)).astype(F32), np.zeros((32 * blocks, 32), F32)
    types = {"x": "*fp32", "out": "*fp32", "blocks": "i32"}
    text = run("specialised", types, {"BM": 32, "BN": 32}, [x, out, blocks], (1,), seed=seed, lockstep=lockstep)
    assert "s_barrier_join" in text and "ds_atomic_barrier_arrive_rtn_b64" in text
    np.testing.assert_array_equal(out, 2 * x)


SCALED = [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e2m1", "e2m1"), ("e4m3", "e2m1"), ("e2m1", "e5m2")]
FP8 = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


def _operand(random: Any, form: str, rows: int) -> tuple[Any, Any]:
    """(array to pass, exact values [rows, 128])."""
    if form == "e2m1":
        codes = random.integers(0, 256, (rows, 64), dtype=np.uint8)
        nibbles = np.stack((codes & 15, codes >> 4), axis=-1).reshape(rows, 128)
        return codes, nibbles.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    values = random.standard_normal((rows, 128)).astype(FP8[form])
    return values.view(np.uint8), values.astype(np.float64)


def _scale(random: Any, kind: str, rows: int, each: int) -> tuple[Any, Any]:
    """(codes to pass, exact values [rows, 128])."""
    if kind == "u8":
        codes = random.integers(120, 134, (rows, 128 // each), dtype=np.uint8)
        values = np.exp2(codes.astype(np.float64) - 127)
    else:
        values = random.uniform(0.1, 4, (rows, 128 // each)).astype(FP8["e4m3"])
        codes, values = values.view(np.uint8), values.astype(np.float64)
    return codes, np.repeat(values, each, axis=1)


@pytest.mark.parametrize(("forms", "wide"), [*((forms, False) for forms in SCALED), (("e2m1", "e2m1"), True)], ids=str)
@pytest.mark.parametrize(("each", "kind"), [(32, "u8"), (16, "u8"), (16, "fp8e4nv"), (32, "fp8e4nv")])
def test_scaled_product(random: Any, forms: tuple[str, str], wide: bool, each: int, kind: str) -> None:
    if VERSION < (3, 9) and (each, kind) != (32, "u8"):
        pytest.skip("this Triton has no such scales")
    if kind != "u8" and forms != ("e2m1", "e2m1"):
        pytest.skip("Triton has such scales for 4-bit operands only")
    rows = 32 if wide else 16
    (a, left), (b, right) = _operand(random, forms[0], rows), _operand(random, forms[1], 16)
    (sa, scale_a), (sb, scale_b) = _scale(random, kind, rows, each), _scale(random, kind, 16, each)
    c = np.zeros((rows, 16), F32)
    pack = [2 if form == "e2m1" else 1 for form in forms]
    values = {"FA": forms[0], "FB": forms[1], "PA": pack[0], "PB": pack[1], "WIDE": wide, "EACH": each}
    types = dict.fromkeys(("a", "b"), "*u8") | dict.fromkeys(("sa", "sb"), f"*{kind}") | {"c": "*fp32"}
    text = run("scaled", types, values, [a, b, c, sa, sb], (1,), hints=True, warps=1)
    name = f"v_wmma_{'scale' if each == 32 else 'scale16'}_f32_{'32x16x128_f4' if wide else '16x16x128_f8f6f4'}"
    assert name in text
    expected = (left * scale_a) @ (right * scale_b).T
    np.testing.assert_allclose(c, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.skipif(VERSION < (3, 9), reason="this Triton does not repack 4-bit operands")
def test_repacked(random: Any) -> None:
    b, out = random.integers(0, 256, (128, 32), dtype=np.uint8), np.zeros((64, 64), np.uint8)
    text = run("repacked", {"b": "*u8", "out": "*u8"}, {}, [b, out], (1,), hints=True, warps=1)
    assert "ds_load_tr4_b64" in text
    codes = np.stack((b & 15, b >> 4), axis=-1).reshape(128, 64)
    np.testing.assert_array_equal(out, codes[0::2] | codes[1::2] << 4)


@pytest.mark.skipif(VERSION < (3, 9), reason="this Triton positions descriptors otherwise")
@pytest.mark.parametrize("index", ["i16", "i32"])
@pytest.mark.parametrize("scatter", [False, True])
def test_by_rows(random: Any, index: str, scatter: bool) -> None:
    """Gather of rows, zeros where there is none; scatter, which drops those."""
    tall = random.standard_normal((50, 64)).astype(F32)
    flat = random.standard_normal((16, 32)).astype(F32)
    numbers = random.permutation(60)[:16].astype({"i16": np.int16, "i32": np.int32}[index])
    inside = numbers < 50
    types = {"x": "*fp32", "index": f"*{index}", "out": "*fp32", "M": "i32", "N": "i32", "column": "i32"}
    values = {"ROWS": 16, "COLUMNS": 32, "SCATTER": scatter}
    if scatter:
        expected = tall.copy()
        expected[numbers[inside], 24:56] = flat[inside]
        run("by_rows", types, values, [flat, numbers, tall, 50, 64, 24], (1,))
        np.testing.assert_array_equal(tall, expected)
    else:
        run("by_rows", types, values, [tall, numbers, flat, 50, 64, 24], (1,))
        expected = np.where(inside[:, None], tall[np.minimum(numbers, 49), 24:56], 0)
        np.testing.assert_array_equal(flat, expected)
