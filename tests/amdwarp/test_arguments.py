"""Arguments from a JSON file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from amdwarp.arguments import DTYPES, SPELLINGS, read_arguments
from amdwarp.errors import UsageError


def written(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "args.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def buffer(**fields: Any) -> dict[str, Any]:
    return {"buffer": {"dtype": "f16", "shape": [2, 3]} | fields}


def test_buffers_and_scalars_in_order(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    entries = [buffer(init="normal"), {"i32": 512}, buffer(dtype="i32", init="normal"), buffer(), {"f32": 0.5}]
    entries += [buffer(dtype="bf16", init="x.npy"), buffer(init="poison")]
    a, m, b, zeros, scale, x, poison = read_arguments(written(tmp_path, entries))
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(a, rng.standard_normal((2, 3)).astype(np.float16))
    np.testing.assert_array_equal(b, (50 * rng.standard_normal((2, 3))).astype(np.int32))
    assert m == 512 and m.dtype == np.int32
    assert not zeros.any() and zeros.shape == (2, 3)
    assert scale == 0.5 and scale.dtype == np.float32
    assert x.dtype == ml_dtypes.bfloat16 and x[1, 2] == 5
    assert np.isnan(poison).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[" * 100_000, "too deep to read"),
        ({}, "holds no list"),
        ([{"f32": 1e300}], "does not fit into f32"),
        ([{"f32": 10**400}], "does not fit into f32"),
        ([{"fp8e4nv": 1000}], "does not fit into fp8e4nv"),
        ([3], "is not one named value"),
        ([{"i32": 1, "i64": 2}], "is not one named value"),
        ([{"i33": 1}], "argument 0: unknown dtype 'i33'"),
        ([{"i32": "x"}], "is no number"),
        ([{"i32": 1.5}], "is no whole number"),
        ([{"i8": 300}], "does not fit into i8"),
        ([{"buffer": {"dtype": ["f16"], "shape": [4]}}], r"argument 0: unknown dtype \['f16'\]; use one of"),
        ([{"buffer": {"dtype": {}, "shape": [4]}}], "argument 0: unknown dtype {}"),
        ([{"buffer": {"dtype": "f16"}}], "needs dtype and shape"),
        ([buffer(color=1)], "has no 'color'"),
        ([buffer(shape=[0])], "no list of positive numbers"),
        ([buffer(init="ones")], "unknown init 'ones'"),
        ([buffer(init="none.npy")], "cannot be read from"),
    ],
)
def test_what_is_not_understood(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_arguments(written(tmp_path, content))


def test_a_file_of_another_shape(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(4))
    with pytest.raises(UsageError, match=r"holds \[4\], not \[2, 3\]"):
        read_arguments(written(tmp_path, [buffer(init="x.npy")]))


@pytest.mark.parametrize(
    ("dtype", "array", "message"),
    [
        ("bf16", np.full((2, 3), "abc"), "holds <U3, no real numbers"),
        ("f16", np.full((2, 3), b"ab"), r"holds \|S2, no real numbers"),
        ("i64", np.full((2, 3), "2020-01-01", "datetime64[D]"), "no real numbers"),
        ("f16", np.ones((2, 3), complex), "holds complex128, no real numbers"),
        ("f16", np.zeros((2, 3), [("a", "i2")]), "no real numbers"),
        ("f16", np.zeros((2, 3), "V4"), "no real numbers"),
        ("i8", np.full((2, 3), 128), "int64 numbers that int8 does not hold"),
        ("u8", np.full((2, 3), -1), "int64 numbers that uint8 does not hold"),
        ("i64", np.full((2, 3), 2**63, np.uint64), "uint64 numbers that int64 does not hold"),
        ("u64", np.full((2, 3), -1), "int64 numbers that uint64 does not hold"),
        ("i64", np.full((2, 3), 2.0**63), "float64 numbers that int64 does not hold"),
        ("i32", np.full((2, 3), 0.5), "float64 numbers that int32 does not hold"),
        ("i32", np.full((2, 3), np.nan), "float64 numbers that int32 does not hold"),
        ("f16", np.full((2, 3), 1e5), "float64 numbers that float16 does not hold"),
        ("f8e4m3fn", np.full((2, 3), 1000), "int64 numbers that float8_e4m3fn does not hold"),
    ],
)
def test_a_file_of_other_elements(tmp_path: Path, dtype: str, array: np.ndarray[Any, Any], message: str) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(UsageError, match=message):
        read_arguments(written(tmp_path, [buffer(dtype=dtype, init="x.npy")]))


@pytest.mark.parametrize(
    ("dtype", "array"),
    [
        ("i8", np.full((2, 3), -128.0)),
        ("u64", np.full((2, 3), 2**64 - 1, np.uint64)),
        ("i32", np.ones((2, 3), bool)),
        ("f16", np.full((2, 3), -np.inf)),
        ("bf16", np.full((2, 3), 1, ml_dtypes.bfloat16)),
        ("f32", np.full((2, 3), 1, ">f8")),
        ("f16", np.asfortranarray(np.arange(6.0).reshape(2, 3))),
    ],
)
def test_a_file_of_elements_that_fit(tmp_path: Path, dtype: str, array: np.ndarray[Any, Any]) -> None:
    np.save(tmp_path / "x.npy", array)
    (read,) = read_arguments(written(tmp_path, [buffer(dtype=dtype, init="x.npy")]))
    assert read.dtype == DTYPES[dtype] and read.flags.c_contiguous
    np.testing.assert_array_equal(read.astype(array.dtype), array)


@pytest.mark.parametrize("is_archive", [False, True])
def test_a_file_that_is_no_array(tmp_path: Path, is_archive: bool) -> None:
    with open(tmp_path / "x.npy", "wb") as file:
        if is_archive:
            np.savez(file, a=np.zeros((2, 3)))
    with pytest.raises(UsageError, match="archive of arrays" if is_archive else "cannot be read from"):
        read_arguments(written(tmp_path, [buffer(init="x.npy")]))


@pytest.mark.parametrize(("spelling", "name"), SPELLINGS.items())
def test_other_spellings(tmp_path: Path, spelling: str, name: str) -> None:
    array, scalar = read_arguments(written(tmp_path, [buffer(dtype=spelling), {spelling: 1}]))
    assert array.dtype == scalar.dtype == DTYPES[name] and scalar == 1


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_arguments(tmp_path / "none.json")
