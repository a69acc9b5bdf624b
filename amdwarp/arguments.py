"""Arguments of an AMDGCN text from a JSON file, for the commands that run one.

The file holds a list in the order of the kernel's arguments; hidden ones and the scratch pointers that Triton appends
are left out. A pointer is ``{"buffer": {"dtype": "f16", "shape": [256, 512], "init": "normal"}}``, a scalar one entry
such as ``{"i32": 512}``.

``init`` is ``zeros`` (the default), ``poison``, the name of a ``.npy`` file beside the JSON file, or ``normal``: drawn
from ``numpy.random.default_rng(0)`` in the order of the arguments and cast; integers are 50 times that, truncated.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from .errors import UsageError

DTYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    **{f"{sign}{bits}": np.dtype(f"{sign}{bits // 8}").type for sign in "iu" for bits in (8, 16, 32, 64)},
}
#: What Triton, numpy and torch call them.
SPELLINGS: dict[str, str] = {
    **{f"{word}{bits}": f"f{bits}" for word in ("fp", "float") for bits in (16, 32, 64)},
    **{f"{word}{bits}": f"{word[0]}{bits}" for word in ("int", "uint") for bits in (8, 16, 32, 64)},
    "bfloat16": "bf16",
    "fp8e4nv": "f8e4m3fn",
    "fp8e5": "f8e5m2",
    "fp8e4b8": "f8e4m3fnuz",
    "fp8e5b16": "f8e5m2fnuz",
    **{f"float8_{kind}": f"f8{kind}" for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")},
}
_INTEGER_SCALE = 50
_DIMENSIONS = 32
#: A NaN in fp16, bf16 and fp32, of a payload that arithmetic does not produce.
_POISON = b"\xf1\x7f\xf1\x7f"


def read_arguments(path: str | Path) -> list[Any]:
    """The arguments that a file describes: numpy arrays and numpy scalars.

    Raises:
        UsageError: a file that cannot be read, or an entry that is not understood.
    """
    return read_launch(path)[0]


def read_launch(path: str | Path) -> tuple[list[Any], list[int]]:
    """The arguments that a file describes, and the positions of the buffers that start as ``poison``.

    The file is read once, so it may be a pipe.

    Raises:
        UsageError: a file that cannot be read, or an entry that is not understood.
    """
    file = Path(path)
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"arguments cannot be read from {path}: {error}", remedy="give a JSON file") from None
    except RecursionError:
        raise UsageError(f"{path} holds lists within lists too deep to read", remedy="give a JSON list") from None
    if not isinstance(entries, list):
        raise UsageError(f"{path} holds no list", remedy='write it like [{"i32": 512}]')
    rng = np.random.default_rng(0)
    values = [_argument(at, entry, rng, file.parent) for at, entry in enumerate(entries)]
    return values, [at for at, entry in enumerate(entries) if entry.get("buffer", {}).get("init") == "poison"]


def _argument(at: int, entry: Any, rng: np.random.Generator, folder: Path) -> Any:
    where = f"argument {at}"
    if not isinstance(entry, dict) or len(entry) != 1:
        raise UsageError(f"{where}, {json.dumps(entry)}, is not one named value", remedy='write {"i32": 512}')
    ((kind, value),) = entry.items()
    if kind == "buffer":
        return _buffer(where, value, rng, folder)
    dtype = _dtype(where, kind)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"{where}: {value!r} is no number", remedy=f'write {{"{kind}": 1}}')
    if isinstance(value, float) and np.dtype(dtype).kind in "iu":
        raise UsageError(f"{where}: {value!r} is no whole number")
    try:
        if np.dtype(dtype).kind in "iu":
            return np.dtype(dtype).type(value)
        return _cast(np.array(float(value)), dtype)[()]
    except OverflowError:
        raise UsageError(f"{where}: {value} does not fit into {kind}") from None


def _dtype(where: str, name: Any) -> Any:
    known = SPELLINGS.get(name, name) if isinstance(name, str) else None
    if known not in DTYPES:
        raise UsageError(f"{where}: unknown dtype {name!r}", remedy=f"use one of {', '.join(DTYPES)}")
    return DTYPES[known]


def _cast(array: Any, dtype: Any) -> Any:
    """An array of another dtype; floats are rounded, everything else is kept.

    Raises:
        OverflowError: a finite number has no counterpart in the dtype.
    """
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
        if np.dtype(dtype).kind not in "iu":
            lost = np.isfinite(array) & ~np.isfinite(cast)
        elif array.dtype.kind == "f":
            bounds = np.iinfo(dtype)
            lost = (array != np.trunc(array)) | (array < bounds.min) | (array >= bounds.max + 1.0)
        else:
            lost = cast != array
    if lost.any():
        raise OverflowError
    return cast


def _buffer(where: str, value: Any, rng: np.random.Generator, folder: Path) -> Any:
    if not isinstance(value, dict) or "dtype" not in value or "shape" not in value:
        raise UsageError(f"{where}: a buffer needs dtype and shape", remedy='add "dtype": "f16", "shape": [256, 512]')
    if unknown := set(value) - {"dtype", "shape", "init"}:
        raise UsageError(f"{where}: a buffer has no {sorted(unknown)[0]!r}", remedy="it has dtype, shape, init")
    dtype, shape, init = _dtype(where, value["dtype"]), value["shape"], value.get("init", "zeros")
    if not isinstance(shape, list) or not all(type(n) is int and n > 0 for n in shape):
        raise UsageError(f"{where}: shape {shape!r} is no list of positive numbers")
    _check_size(where, shape, 8 if init == "normal" else np.dtype(dtype).itemsize)
    if init == "normal":
        drawn = rng.standard_normal(shape)
        if np.dtype(dtype).kind in "iu":
            return (drawn * _INTEGER_SCALE).astype(np.int64).astype(dtype)
        return drawn.astype(dtype)
    array = np.zeros(shape, dtype)
    if init == "poison":
        flat = array.reshape(-1).view(np.uint8)
        flat[:] = np.resize(np.frombuffer(_POISON, np.uint8), flat.size)
    elif isinstance(init, str) and init.endswith(".npy"):
        return _load(where, folder / init, dtype, tuple(shape))
    elif init != "zeros":
        raise UsageError(f"{where}: unknown init {init!r}", remedy="use normal, zeros, poison or a .npy file")
    return array


def _check_size(where: str, shape: list[int], itemsize: int) -> None:
    """Refuse what this machine's memory cannot hold."""
    need, have = math.prod(shape) * itemsize, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if need > have:
        raise UsageError(f"{where} takes {need / 2**30:.0f} GiB of memory, and this machine has {have / 2**30:.0f}")
    if len(shape) > _DIMENSIONS:
        raise UsageError(f"{where} has {len(shape)} dimensions, and an array has at most {_DIMENSIONS}")


def _load(where: str, path: Path, dtype: Any, shape: tuple[int, ...]) -> Any:
    wanted = np.dtype(dtype)
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise UsageError(f"{where} cannot be read from {path}: {error}", remedy="give a .npy file") from None
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{where}: {path} is an archive of arrays", remedy="give a .npy file")
    if array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize == wanted.itemsize:
        # what numpy writes of a dtype it does not know
        array = array.view(dtype)
    if array.dtype != wanted and array.dtype.kind not in "biuf":
        raise UsageError(f"{where}: {path} holds {array.dtype}, no real numbers", remedy=f"save it as {wanted}")
    if array.shape != shape:
        raise UsageError(f"{where}: {path} holds {list(array.shape)}, not {list(shape)}")
    try:
        return np.ascontiguousarray(array if array.dtype == wanted else _cast(array, dtype))
    except OverflowError:
        problem = f"{where}: {path} holds {array.dtype} numbers that {wanted} does not hold"
        raise UsageError(problem, remedy="save it in the kernel's dtype") from None
