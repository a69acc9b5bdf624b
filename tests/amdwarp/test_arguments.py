"""Arguments from a JSON file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from amdwarp.arguments import read_arguments
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
        ({}, "holds no list"),
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


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_arguments(tmp_path / "none.json")
