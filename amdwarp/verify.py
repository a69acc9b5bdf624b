"""``amdwarp verify``: compile a kernel of the zoo, run it in the emulator, compare with a plain reference."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from .errors import AmdwarpError, EmulatorError, LoweringError, UsageError
from .resources import Resources, resources
from .runtime import Launch, emulate
from .target import get_target

Array = np.ndarray[Any, Any]
Region = tuple[slice, slice]
#: The schedule's name, the relative error (None without any), and what is wrong, or "".
Verdict = tuple[str, float | None, str]

DTYPES: dict[str, Any] = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
# Half the distance between neighbouring numbers of the output type, relative: what rounding the result may cost.
UNIT_ROUNDOFF = {"fp16": 2.0**-11, "bf16": 2.0**-8}
# The linear layers of an 8-billion-parameter Llama 3 at 4096 tokens, as M, N, K: query/key/value, gate and up, down.
LLAMA3_8B = ((4096, 6144, 4096), (4096, 28672, 4096), (4096, 4096, 14336))
SAMPLED_WORKGROUPS = 4
POISON = 0x7FF1  # a NaN in fp16 and in bf16, of a payload that arithmetic does not produce


@dataclass(frozen=True)
class Case:
    """One verified launch; also one row of the table and one object of the JSON.

    Attributes:
        kernel: of the zoo.
        shape: M, N, K of a product; rows, keys, elements of a head of an attention.
        dtype, arch, schedule: what was compiled.
        workgroups: how many ran.
        rel_error: Frobenius norm of the difference over that of the reference, on the elements that ran; None where
            the case did not get that far. Infinite or NaN where the kernel wrote that.
        vgprs, spills, lds_bytes: of the compiled kernel.
        seconds: compilation, emulation and comparison, measured on this CPU.
        ok: every workgroup wrote its tile and nothing else, the error is within the bound, and nothing spilled.
        problem: why it is not, or "".
    """

    kernel: str
    shape: tuple[int, int, int]
    dtype: str
    arch: str
    schedule: str
    workgroups: int = 0
    rel_error: float | None = None
    vgprs: int = 0
    spills: int = 0
    lds_bytes: int = 0
    seconds: float = 0.0
    ok: bool = False
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        finite = self.rel_error is not None and math.isfinite(self.rel_error)
        return asdict(self) | {"shape": list(self.shape), "rel_error": self.rel_error if finite else None}


def error_bound(dtype: str, k: int) -> float:
    """The largest relative error a correct kernel may show: rounding of the result, and of K fp32 additions."""
    return UNIT_ROUNDOFF[dtype] + k * 2.0**-24


def verify_gemm(
    shape: tuple[int, int, int],
    *,
    dtype: str = "fp16",
    arch: str = "gfx950",
    schedule: str | None = None,
    workgroups: int | None = SAMPLED_WORKGROUPS,
    b_order: str = "nk",
    inputs: tuple[Array, Array] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Case:
    """Verify ``amdwarp.kernels.gemm.matmul`` on one shape.

    Args:
        shape: M, N, K, each at least 1.
        dtype: ``"fp16"`` or ``"bf16"``.
        arch: the GPU to compile for and to emulate.
        schedule: name of a schedule, or None for the kernel's own choice.
        workgroups: how many to run, spread over the grid; None for all.
        b_order: ``"nk"``: B is a transposed view, as a linear layer's weight; ``"kn"``: B is row-major.
        inputs: A (M, K) and B (K, N) instead of normal random numbers; finite.
        progress: called with (workgroups done, workgroups to do).

    Raises:
        UsageError: an argument that is not understood, a shape that this machine's memory does not hold, or a product
            that the output type does not.
        UnsupportedTritonError: no Triton, or one of a version this package was not tried with.
    """
    from .kernels import gemm

    _check(shape, dtype, b_order, workgroups)
    get_target(arch)
    m, n, k = shape
    gemm.product_extents(gemm.Matrix(m, k, k, 1), gemm.Matrix(k, n, n, 1))
    # A, B and C of two bytes, random numbers of four before they are rounded, and a flag for each element of C
    check_memory(shape, 2 * (m * k + k * n + m * n) + 4 * max(m * k, k * n) + m * n)
    a, b = inputs if inputs is not None else random_inputs(shape, dtype, b_order)
    out = np.full((m, n), POISON, np.uint16).view(DTYPES[dtype])

    def judge(launch: Launch, used: Resources, done: int) -> Verdict:
        made = launch.constexprs["S"]
        error, problem = compare(a, b, out, (made.tile_m, made.tile_n), done, dtype)
        if not problem and used.spills:
            problem = f"{used.spills} registers spilled"
        return gemm.schedule_name(made), error, problem

    asked = Case("gemm", shape, dtype, arch, schedule or "auto")
    return verified(asked, lambda: gemm.matmul(a, b, out=out, schedule=schedule), judge, workgroups, progress)


def verified(
    asked: Case,
    compute: Callable[[], object],
    judge: Callable[[Launch, Resources, int], Verdict],
    workgroups: int | None,
    progress: Callable[[int, int], None] | None,
) -> Case:
    """The case ``asked``, computed in the emulator and judged.

    Args:
        asked: what is to be verified.
        compute: calls the kernel; the last launch counts.
        judge: of that launch, its registers, and how many workgroups ran, says what came out.
        workgroups, progress: as of `verify_gemm`.
    """
    started = time.perf_counter()
    case = asked
    try:
        with emulate(asked.arch, workgroups=workgroups, progress=progress) as emulation:
            compute()
        launch, compiled, result = emulation.records[-1]
        used, done = resources(compiled.asm["amdgcn"]), result.workgroups
        lds = compiled.metadata.shared
        case = replace(asked, workgroups=done, vgprs=used.vgprs, spills=used.spills, lds_bytes=lds)
        schedule, error, problem = judge(launch, used, done)
        case = replace(case, schedule=schedule, rel_error=error, ok=not problem, problem=problem)
    except (LoweringError, EmulatorError) as failure:
        case = replace(case, problem=str(failure))
    return replace(case, seconds=time.perf_counter() - started)


def _check(shape: tuple[int, ...], dtype: str, b_order: str, workgroups: int | None) -> None:
    if len(shape) != 3 or any(n < 1 for n in shape):
        raise UsageError(
            f"shape {','.join(map(str, shape))} has no product",
            remedy="give M,N,K, each at least 1: --shape 256,256,64",
        )
    if b_order not in ("nk", "kn"):
        raise UsageError(f"unknown B order {b_order!r}", remedy="use nk or kn")
    check_sample(dtype, workgroups)


def check_sample(dtype: str, workgroups: int | None) -> None:
    """Refuse an element type that is not verified, and no workgroups."""
    if dtype not in DTYPES:
        raise UsageError(f"unknown dtype {dtype!r}", remedy=f"use one of {', '.join(DTYPES)}")
    if workgroups is not None and workgroups < 1:
        raise UsageError(f"{workgroups} workgroups prove nothing", remedy="give a positive number or all")


def check_memory(shape: tuple[int, int, int], need: int) -> None:
    """Refuse a shape whose arrays take more bytes than this machine has."""
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if need > have:
        raise UsageError(
            f"shape {','.join(map(str, shape))} takes {need / 2**30:.0f} GiB of memory, and this machine has "
            f"{have / 2**30:.0f}",
            remedy="verify a smaller shape",
        )


def random_inputs(shape: tuple[int, int, int], dtype: str, b_order: str) -> tuple[Array, Array]:
    """Normal random A (M, K) and B (K, N), the same on every machine; B stored in the order asked for."""
    m, n, k = shape
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k), np.float32).astype(DTYPES[dtype])
    stored = rng.standard_normal((n, k) if b_order == "nk" else (k, n), np.float32).astype(DTYPES[dtype])
    return a, stored.T if b_order == "nk" else stored


def compare(
    a: Array, b: Array, out: Array, tile: tuple[int, int], workgroups: int, dtype: str
) -> tuple[float | None, str]:
    """Check what ``workgroups`` workgroups wrote into a poisoned ``out``.

    Returns:
        the relative error over the written tiles, and what is wrong, or "".

    Raises:
        UsageError: the product does not fit the dtype, so that no kernel could compute it.
    """
    tiles, problem = written_tiles(out, _tiles(out.shape, tile), ("row", "column"), workgroups)
    if problem:
        return None, problem
    square = norm = 0.0
    for rows, columns in tiles:
        expected = a[rows].astype(np.float32) @ b[:, columns].astype(np.float32)
        _check_range(expected, dtype)
        difference = out[rows, columns].astype(np.float32) - expected
        square += float(np.sum(difference.astype(np.float64) ** 2))
        norm += float(np.sum(expected.astype(np.float64) ** 2))
    error = relative_error(square, norm)
    bound = error_bound(dtype, a.shape[1])
    return error, "" if error <= bound else f"relative error {error:.3g} exceeds the bound {bound:.3g}"


def _check_range(expected: Array, dtype: str) -> None:
    with np.errstate(over="ignore"):
        fits = bool(np.isfinite(expected.astype(DTYPES[dtype]).astype(np.float32)).all())
    if not fits:
        raise UsageError(
            f"the product reaches {np.abs(expected).max():.3g}, beyond the range of {dtype}", remedy="scale A or B down"
        )


def _tiles(shape: tuple[int, ...], tile: tuple[int, int]) -> Iterable[Region]:
    for row in range(0, shape[0], tile[0]):
        for column in range(0, shape[1], tile[1]):
            yield slice(row, row + tile[0]), slice(column, column + tile[1])


def written_tiles(
    out: Array, tiles: Iterable[Region], axes: tuple[str, str], workgroups: int
) -> tuple[list[Region], str]:
    """The tiles of a poisoned matrix that were written, and what is wrong with them, or "".

    Args:
        out: written by ``workgroups`` workgroups; tiles are of its first two dimensions, whose names are ``axes``.
    """
    written = out.view(np.uint16) != POISON
    found = [tile for tile in tiles if written[tile].any()]
    for tile in found:
        if missing := int((~written[tile]).sum()):
            corner = ", ".join(f"{axis} {part.start}" for axis, part in zip(axes, tile, strict=True))
            return found, f"{missing} elements of the tile at {corner} were not written"
    return found, "" if len(found) == workgroups else f"{workgroups} workgroups wrote {len(found)} tiles"


def relative_error(square: float, norm: float) -> float:
    """The Frobenius norm of a difference over that of the reference, from their squares; infinite if only that is 0."""
    if norm == 0.0:
        return 0.0 if square == 0.0 else math.inf
    return math.sqrt(square / norm)


def load_inputs(a_file: str, b_file: str, dtype: str) -> tuple[Array, Array]:
    """A, row-major, and B, in the order it was saved in, from ``.npy`` files, converted to the dtype.

    Raises:
        UsageError: a file that cannot be read, a wrong rank, mismatched K, or numbers that are not finite in the dtype,
            which no norm can compare.
    """
    a = np.ascontiguousarray(_load_matrix("A", a_file, dtype))
    b = _load_matrix("B", b_file, dtype)
    if a.shape[1] != b.shape[0]:
        raise UsageError(f"K differs: A is {list(a.shape)}, B is {list(b.shape)}", remedy="B must be (K, N)")
    return a, b


def _load_matrix(name: str, file: str, dtype: str) -> Array:
    try:
        with open(file, "rb") as stream:
            if stream.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
                raise UsageError(f"{name}: {file} is no .npy file", remedy="write one with numpy.save")
            stream.seek(0)
            array = np.load(stream, allow_pickle=False)
    except UsageError:
        raise
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise UsageError(f"{name} cannot be read from {file}: {error}", remedy="give a .npy file") from error
    if array.dtype == np.dtype("V2"):  # what numpy.save makes of bfloat16, for which the format has no name
        array = array.view(ml_dtypes.bfloat16)
    numeric = array.dtype.kind in "fiu" or array.dtype == ml_dtypes.bfloat16
    if array.ndim != 2 or not numeric or 0 in array.shape:
        raise UsageError(f"{name} is {array.dtype}{list(array.shape)}", remedy="give a matrix of numbers")
    for bad, what in ((np.isnan, "NaN"), (np.isinf, "infinity")):
        if bad(array).any():
            raise UsageError(f"{name} holds {what}, which no norm can compare", remedy=f"replace the {what}")
    with np.errstate(over="ignore"):
        converted = array.astype(DTYPES[dtype])
    if not np.isfinite(converted).all():
        largest = float(np.abs(array.astype(np.float64)).max())
        raise UsageError(f"{name} reaches {largest:.3g}, beyond the range of {dtype}", remedy=f"scale {name} down")
    return converted


__all__ = ["DTYPES", "LLAMA3_8B", "SAMPLED_WORKGROUPS", "AmdwarpError", "Case", "load_inputs", "verify_gemm"]
