"""Products of the compiled kernels, run in the emulator, against the fp32 reference.

Outputs start as NaN, and so does all memory behind the rows of the operands.
"""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from amdwarp.kernels.gemm import SCHEDULES, matmul, reference
from amdwarp.kernels.gemm.layouts import pass_factor

import amdwarp
from amdwarp.emulator import launch
from amdwarp.runtime import compile_for, memory_span

pytest.importorskip("triton")

GFX950 = [name for name, one in SCHEDULES.items() if (one.arch, one.operand) == ("gfx950", "f16")]

FP16, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
ORDERS = ("nk", "kn")


def matrix(rng, rows, columns, dtype, padding=0, offset=0):
    """A random matrix whose rows are followed by NaN, its first element `offset` elements behind an aligned address."""
    stride = columns + padding
    memory = np.full(rows * stride + offset + 64, np.nan, dtype)
    start = -memory.__array_interface__["data"][0] // 2 % 32 + offset
    view = memory[start : start + rows * stride].reshape(rows, stride)[:, :columns]
    view[...] = rng.standard_normal((rows, columns)).astype(dtype)
    return view


def multiply_on_gpu(a, b, out, schedule):
    """The product by the GPU's launch path, on copies of the operands with the same strides and alignment."""
    import torch

    def upload(view):
        span = memory_span(view)
        skew = view.__array_interface__["data"][0] % 256
        memory = torch.empty(skew + span.nbytes + 512, dtype=torch.uint8, device="cuda")
        skew += -memory.data_ptr() % 256
        copied = memory[skew : skew + span.nbytes]
        copied.copy_(torch.from_numpy(span.copy()))
        dtype = torch.float16 if view.dtype == FP16 else torch.bfloat16
        return copied, copied.view(dtype).as_strided(view.shape, [stride // 2 for stride in view.strides])

    memory, result = upload(out)
    assert matmul(upload(a)[1], upload(b)[1], out=result, schedule=schedule) is result
    memory_span(out)[:] = memory.cpu().numpy()


def product(
    m, n, k, *, order="nk", dtype=FP16, schedule=None, padding=(0, 0, 0), offset=(0, 0, 0), seed=0, place="emulator"
):
    """Run a product and check every element of it; returns the record of the launch in the emulator."""
    rng = np.random.default_rng((m, n, k))
    a = matrix(rng, m, k, dtype, padding[0], offset[0])
    b = (
        matrix(rng, n, k, dtype, padding[1], offset[1]).T
        if order == "nk"
        else matrix(rng, k, n, dtype, padding[1], offset[1])
    )
    out = matrix(rng, m, n, dtype, padding[2], offset[2])
    out[...] = np.nan
    whole = memory_span(out).copy()
    emulation = None
    if place == "gpu":
        multiply_on_gpu(a, b, out, schedule)
    else:
        with amdwarp.emulate("gfx950", seed=seed) as emulation:
            assert matmul(a, b, out=out, schedule=schedule) is out
    error = np.abs(out.astype(np.float32) - reference.matmul(a, b).astype(np.float32))
    assert (error <= reference.tolerance(a, b)).all()
    written = np.lib.stride_tricks.as_strided(whole.view(dtype), out.shape, out.strides)
    written[...] = out
    assert (memory_span(out) == whole).all(), "memory between the rows of the output was changed"
    return emulation.records[-1] if emulation is not None else None


@pytest.mark.parametrize("dtype", [FP16, pytest.param(BF16, marks=pytest.mark.newest)], ids=str)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("schedule", GFX950)
def test_aligned_shapes(schedule, order, dtype, place):
    # 1, 2, 3 and 9 K steps, whole and ragged; one tile, ragged tiles, several tiles
    for shape in ((256, 256, 64), (1, 8, 8), (264, 520, 136), (300, 304, 576)):
        product(*shape, order=order, dtype=dtype, schedule=schedule, padding=(8, 16, 8), place=place)


@pytest.mark.parametrize("dtype", [FP16, BF16], ids=str)
@pytest.mark.parametrize("order", ORDERS)
def test_ragged_shapes(order, dtype, place):
    for shape in ((1, 1, 1), (257, 513, 65), (3, 130, 200), (129, 2, 7)):
        product(*shape, order=order, dtype=dtype, padding=(0, 1, 3), place=place)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "case",
    [
        {"padding": (3, 0, 0)},
        {"padding": (0, 3, 0)},
        {"padding": (0, 0, 3)},
        {"offset": (1, 0, 0)},
        {"offset": (0, 2, 0)},
        {"offset": (0, 0, 1)},
        {"offset": (8, 8, 8)},
    ],
    ids=str,
)
def test_each_operand_may_be_unaligned(case, order, place):
    product(136, 144, 200, order=order, place=place, **case)


@pytest.mark.parametrize("k", [1, 2, 63, 64, 65, 128, 192, 193, 255, 256, 257])
@pytest.mark.parametrize("order", ORDERS)
def test_rings_longer_than_k(order, k):
    product(20, 24, k, order=order)


@pytest.mark.newest
def test_many_k_to_200(place):
    # every remainder of a K step; of two and more steps each ninth, and whole numbers of them
    for k in (*range(1, 66), *range(66, 201, 9), 127, 128, 191, 192, 193):
        product(5, 17 + 7 * (k % 2), k, order=ORDERS[k // 2 % 2], padding=(k % 3, 0, 1), place=place)


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_every_k(order):
    for k in range(1, 201):
        product(5, 17 + 7 * (k % 2), k, order=order, padding=(k % 3, 0, 1))
    for k, schedule in itertools.product(range(8, 700, 8), GFX950):
        product(40, 24, k, order=order, schedule=schedule)


@pytest.mark.parametrize("schedule", GFX950)
def test_every_tile_of_a_grid_is_computed_once(schedule):
    # 5 x 3 tiles of 256: neither a multiple of the eight dies nor of the group of four rows
    launch_record, _, result = product(1200, 760, 8, schedule=schedule)
    assert result.workgroups == launch_record.grid[0]


@pytest.mark.parametrize("schedule", GFX950)
@pytest.mark.parametrize("operand", ["a", "b"])
def test_operands_beyond_2_gib(schedule, operand):
    rows, k = (1 << 21) + 8, 520  # 2.2e9 bytes of zeros, of which only the last pages are ever there
    rng = np.random.default_rng(3)
    large = np.zeros((rows, k), FP16)
    large[-300:] = rng.standard_normal((300, k)).astype(FP16)
    small = rng.standard_normal((16, k)).astype(FP16)
    a, b = (large, small.T) if operand == "a" else (small, large.T)
    out = np.full((a.shape[0], b.shape[1]), np.nan, FP16)
    tile = SCHEDULES[schedule].tile_m if operand == "a" else SCHEDULES[schedule].tile_n
    tiles = -(-rows // tile)
    # eight dies: the last workgroup of some die computes the last tile
    with amdwarp.emulate("gfx950", workgroups=range(tiles - 8, tiles)):
        matmul(a, b, out=out, schedule=schedule)
    corner = np.s_[-8:, :] if operand == "a" else np.s_[:, -8:]
    a, b = (a[-8:], b) if operand == "a" else (a, b[:, -8:])
    error = np.abs(out[corner].astype(np.float32) - reference.matmul(a, b).astype(np.float32))
    assert (error <= reference.tolerance(a, b)).all()


def one_tile(schedule, order, k):
    """A compiled product of one tile: the kernel, the arguments its text takes, and A, B and the output."""
    rng = np.random.default_rng(k)
    m, n = SCHEDULES[schedule].tile_m, SCHEDULES[schedule].tile_n
    a, b, out = (matrix(rng, *shape, FP16) for shape in ((m, k), (n, k), (m, n)))
    b = b.T if order == "nk" else matrix(rng, k, n, FP16)
    with amdwarp.emulate("gfx950", execute=False) as emulation:
        matmul(a, b, out=out, schedule=schedule)
    kernel, values = compile_for(emulation.records[0][0], "gfx950")
    return kernel, [memory_span(value) if isinstance(value, np.ndarray) else value for value in values], (a, b, out)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("schedule", GFX950)
def test_interleavings_of_single_waves(schedule, order):
    kernel, arguments, (a, b, out) = one_tile(schedule, order, 328)
    for seed in range(3):
        out[...] = np.nan
        launch(kernel.asm["amdgcn"], arguments, (1,), seed=seed, lockstep=1, lds_bytes=kernel.metadata.shared)
        error = np.abs(out.astype(np.float32) - reference.matmul(a, b).astype(np.float32))
        assert (error <= reference.tolerance(a, b)).all()


class Conflicts:
    """Counts operand reads by how many LDS passes they take per pass of a conflict-free one."""

    def __init__(self):
        self.factors = {}

    def instruction(self, event):
        for access in event.accesses:
            if access.space == "lds" and access.kind == "read":
                for addresses in access.addresses:
                    factor = pass_factor([int(address) for address in addresses], access.size)
                    key = access.size, factor
                    self.factors[key] = self.factors.get(key, 0) + 1


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("schedule", GFX950)
def test_executed_reads_have_no_bank_conflicts(schedule, order):
    """The addresses that the program computes, not the ones the layout promises."""
    kernel, arguments, _ = one_tile(schedule, order, 64)
    conflicts = Conflicts()
    launch(kernel.asm["amdgcn"], arguments, (1,), observer=conflicts)
    # 16-byte reads of a wave: a K step; of quarters two and another left half; of woven ones two and a half
    chosen = SCHEDULES[schedule]
    piece = chosen.tile_k * 2 // 16  # reads of 64 rows
    a_step, b_step = chosen.tile_m // chosen.waves_m * piece // 64, chosen.tile_n // chosen.waves_n * piece // 64
    halves = (5, 5) if chosen.woven else (4, 5) if chosen.quarters else (2, 2)
    a_reads, b_reads = halves[0] * a_step // 2, halves[1] * b_step // 2
    expected = {(16, 1): chosen.num_warps * (a_reads + b_reads)}
    if order == "kn":
        expected = {(16, 1): chosen.num_warps * a_reads, (8, 1): chosen.num_warps * 2 * b_reads}
    assert conflicts.factors == expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_torch_tensors(dtype):
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(shape, generator=generator).to(getattr(torch, dtype)) for shape in ((40, 72), (24, 72)))
    with amdwarp.emulate("gfx950"):
        out = matmul(x, weight.T)
    assert (out.dtype, tuple(out.shape)) == (x.dtype, (40, 24))
    difference = (out.double() - x.double() @ weight.double().T).abs().max()
    assert difference <= {"float16": 2.0**-5, "bfloat16": 2.0**-2}[dtype]
    with amdwarp.emulate("gfx950"):
        same = torch.zeros_like(out)
        assert matmul(x, weight.T, out=same) is same
    assert torch.equal(same, out)


def test_broadcast_rows():
    row = np.arange(1, 65, dtype=np.float16)
    a = np.broadcast_to(row, (24, 64))
    b = np.eye(64, 16, dtype=np.float16)
    with amdwarp.emulate("gfx950"):
        assert (matmul(a, b) == np.arange(1, 17)).all()


def test_nan_and_infinity_stay_in_their_rows_and_columns():
    a, b = np.ones((40, 40), FP16), np.ones((40, 48), FP16)
    a[3, 5], b[7, 11] = np.nan, np.inf
    with amdwarp.emulate("gfx950"):
        out = matmul(a, b)
    expected = reference.matmul(a, b)
    assert np.array_equal(out, expected, equal_nan=True)
