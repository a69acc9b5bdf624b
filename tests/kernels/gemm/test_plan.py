"""Plans: what is chosen for which operands, and what is refused before anything is launched."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from amdwarp.kernels.gemm import SCHEDULES, Matrix, matmul, plan

import amdwarp
from amdwarp.errors import UsageError

A, B, C = 1 << 40, 2 << 40, 3 << 40


def planned(m, n, k, *, lda=None, ldb=None, ldc=None, kc=True, offset=(0, 0, 0), dtype="fp16", schedule=None, **device):
    ldb = ldb or (k if kc else n)
    return plan(
        Matrix(m, k, lda or k, 1, A + offset[0]),
        Matrix(k, n, *((1, ldb) if kc else (ldb, 1)), B + offset[1]),
        Matrix(m, n, ldc or n, 1, C + offset[2]),
        dtype,
        schedule,
        **device,
    )


def access(result):
    return result.access.a_direct, result.access.b_direct, result.access.c_vector


def test_aligned_operands_go_straight_to_lds():
    result = planned(4096, 4096, 4096)
    assert (result.kernel, result.grid) == ("matmul_quarters", (256,))
    assert access(result) == (True, True, True)
    assert result.arguments == {
        "m": 4096,
        "n_units": 512,
        "k_units": 512,
        "lda_units": 512,
        "ldb_units": 512,
        "ldc_units": 512,
    }
    assert result.signature["a_ptr"] == "*fp16"
    assert result.signature["ldc_units"] == "i32"
    assert result.hints == dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "DS")


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ({"m": 300, "n": 304, "k": 65}, (False, False, True)),
        ({"m": 300, "n": 304, "k": 65, "kc": False}, (False, True, True)),
        ({"m": 300, "n": 301, "k": 64}, (True, True, False)),
        ({"m": 300, "n": 301, "k": 64, "kc": False}, (True, False, False)),
        ({"m": 304, "n": 304, "k": 64, "lda": 68}, (False, True, True)),
        ({"m": 304, "n": 304, "k": 64, "ldb": 68}, (True, False, True)),
        ({"m": 304, "n": 304, "k": 64, "ldc": 308}, (True, True, False)),
        ({"m": 304, "n": 304, "k": 64, "offset": (2, 0, 0)}, (False, True, True)),
        ({"m": 304, "n": 304, "k": 64, "offset": (0, 8, 0)}, (True, False, True)),
        ({"m": 304, "n": 304, "k": 64, "offset": (0, 0, 4)}, (True, True, False)),
        # 8 divides what 16 does not
        ({"m": 304, "n": 312, "k": 72, "lda": 88, "ldb": 72, "ldc": 328}, (True, True, True)),
        # one row has no stride
        ({"m": 1, "n": 8, "k": 8, "lda": 3, "ldc": 5}, (True, True, True)),
    ],
    ids=str,
)
def test_alignment_decides_each_operands_way(case, expected):
    assert access(planned(**case)) == expected


@pytest.mark.parametrize("scale", [8, 1])
def test_arguments_times_their_units_are_the_extents(scale):
    m, n, k = 3, 5 * scale, 7 * scale
    result = planned(m, n, k, lda=k + scale, ldb=k + 2 * scale, ldc=n + scale)
    units = result.access
    values = result.arguments
    assert values["n_units"] * units.n_unit == n
    assert values["k_units"] * units.k_unit == k
    assert values["lda_units"] * units.a_unit == k + scale
    assert values["ldb_units"] * units.b_unit == k + 2 * scale
    assert values["ldc_units"] * units.c_unit == n + scale


def test_unaligned_operands_take_the_small_tile():
    assert planned(4096, 4096, 4095).schedule is SCHEDULES["inter_wave_128"]
    with pytest.raises(UsageError, match="16-byte aligned"):
        planned(4096, 4096, 4095, schedule="inter_wave_256")


def test_the_device_decides_the_default_tile():
    assert planned(2048, 2048, 64).kernel == "matmul_whole"
    assert planned(2048, 2048, 64, compute_units=64).kernel == "matmul_quarters"


@pytest.mark.parametrize(
    ("strides", "shape", "expected"),
    [
        ((1, 40), (40, 1), True),  # a column: contiguous either way
        ((3, 1), (40, 1), False),  # a strided column
        ((40, 1), (1, 40), False),  # a row
        ((1, 3), (1, 40), True),  # a strided row
        ((7, 9), (1, 1), False),
    ],
)
def test_order_of_thin_b(strides, shape, expected):
    k, n = shape
    result = plan(Matrix(2, k, k, 1, A), Matrix(k, n, *strides, B), Matrix(2, n, n, 1, C), "fp16")
    assert result.access.b_k_contiguous is expected


@pytest.mark.parametrize(
    ("case", "complaint"),
    [
        ({"m": 0, "n": 1, "k": 1}, "M = 0"),
        ({"m": 1, "n": 1, "k": 2**31}, "K = 2147483648"),
        ({"m": 8, "n": 8, "k": 8, "ldc": 7}, "they overlap"),
        ({"m": 8, "n": 8, "k": 8, "offset": (0, 0, A - C)}, "out lies over a"),
        ({"m": 8, "n": 8, "k": 8, "offset": (0, 0, B - C + 126)}, "out lies over b"),
        ({"m": 256, "n": 8, "k": 8, "lda": 1 << 24}, "rows of a lie 16777216 elements apart"),
        ({"m": 8, "n": 256, "k": 8, "ldb": 1 << 24}, "rows of b"),
        ({"m": 8, "n": 8, "k": 64, "ldb": 1 << 25, "kc": False}, "rows of b"),
        ({"m": 256, "n": 8, "k": 8, "ldc": 1 << 24}, "rows of out"),
        ({"m": 8, "n": 8, "k": 8, "dtype": "fp32"}, "dtype fp32"),
        ({"m": 8, "n": 8, "k": 8, "schedule": "fast"}, "no schedule 'fast'"),
        ({"m": 8, "n": 8, "k": 8, "target": "gfx1250"}, "not for gfx1250"),
    ],
    ids=str,
)
def test_refusals(case, complaint):
    with pytest.raises(UsageError, match=complaint):
        planned(**case)


def test_operands_beyond_2_gib_are_taken():
    result = planned(1 << 20, 1 << 20, 4096)
    assert result.hints == {"a_ptr": "D", "b_ptr": "D", "c_ptr": "D"}
    assert result.grid == (1 << 24,)
    assert planned(2, 8, 1 << 23).hints["a_ptr"] == "DS"


def test_neighbours_in_memory_are_no_overlap():
    assert planned(8, 8, 8, offset=(0, 0, A - C + 128)).grid == (1,)


def on_gfx950(a, b, schedule):
    with amdwarp.emulate("gfx950"):
        return matmul(a, b, schedule=schedule)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda a: matmul(a, a.astype(np.float32)), "a is float16 and b is float32; convert one"),
        (lambda a: matmul(a.astype(np.int16), a.astype(np.int16)), "dtype int16 is not supported"),
        (lambda a: matmul(a.astype(np.int8), a.astype(np.int8)), "or call gemm.int8_matmul"),
        (lambda a: matmul(a, a.tolist()), "b is a list"),
        (lambda a: matmul(np.array(1, np.float16), a), "a is a scalar"),
        (lambda a: matmul(a, a[:4]), "inner extents differ"),
        (lambda a: on_gfx950(a.T[:4], a, "inter_wave_128"), "column stride of 8"),
        (lambda a: on_gfx950(a, a[:, ::2][:, :4], "inter_wave"), "strides 8 and 2, neither of them 1"),
        (lambda a: matmul(a[::-1], a), "negative stride"),
        (lambda a: matmul(a, a, out=a), "out lies over a"),
        (lambda a: matmul(a, a, out=np.zeros((4, 8), np.float16)), "out is 4x8 float16, the result is 8x8"),
        (lambda a: matmul(a, a, out=np.zeros((8, 8), ml_dtypes.bfloat16)), "out is bfloat16 and the result float16"),
        (lambda a: matmul(a, a.copy()), "in CPU memory"),
    ],
)
def test_matmul_refuses(call, complaint):
    pytest.importorskip("triton")
    with pytest.raises(UsageError, match=complaint):
        call(np.zeros((8, 8), np.float16))


def test_planning_needs_neither_triton_nor_torch():
    code = (
        "import sys; from amdwarp.kernels.gemm import Matrix, plan; "
        "plan(*(Matrix(8, 8, 8, 1, address) for address in (4096, 8192, 16384)), 'fp16'); "
        "assert not {'triton', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("shape", "name"), [((0, 8, 8), "M"), ((8, 0, 8), "N"), ((8, 8, 0), "K")])
def test_zero_extents_say_what_is_wrong(shape, name):
    with pytest.raises(UsageError, match=f"{name} = 0, so there is nothing to multiply; M, N and K must be at least 1"):
        planned(*shape, lda=8, ldb=8, ldc=8)


def test_too_large_extents_are_refused_before_an_output_is_made():
    rows = np.broadcast_to(np.zeros(8, np.float16), (2**31, 8))
    with pytest.raises(UsageError, match="M = 2147483648 exceeds"):
        matmul(rows, np.zeros((8, 1 << 20), np.float16))


@pytest.mark.parametrize("kc", [True, False])
def test_columns_of_one_buffer_are_no_overlap(kc):
    buffer = np.zeros((64, 96), np.float16)

    def matrix(columns):
        view = buffer[:, columns]
        return Matrix(*view.shape, 96, 1, view.__array_interface__["data"][0])

    def product(a, out):
        return plan(a, Matrix(a.columns, out.columns, *((1, 128) if kc else (128, 1)), 4096), out, "fp16")

    assert product(matrix(slice(32, 96)), matrix(slice(0, 32))).grid == (1,)
    assert product(matrix(slice(0, 32)), matrix(slice(32, 96))).grid == (1,)
    for a, out in ((slice(31, 96), slice(0, 32)), (slice(0, 33), slice(32, 96))):
        with pytest.raises(UsageError, match="out lies over a"):
            product(matrix(a), matrix(out))


def test_a_buffer_that_rows_of_another_pitch_cross_is_an_overlap():
    with pytest.raises(UsageError, match="out lies over a"):
        planned(8, 8, 8, lda=24, ldc=16, offset=(0, 0, A - C + 16))
    # the run of A goes past the end of the row of out that it starts in
    with pytest.raises(UsageError, match="out lies over a"):
        planned(8, 8, 8, lda=16, ldc=16, offset=(0, 0, A - C + 24))


@pytest.mark.parametrize("schedule", [3, True, b"inter_wave_128", ("inter_wave_128",), type(SCHEDULES)])
def test_a_schedule_of_another_type(schedule):
    with pytest.raises(
        UsageError,
        match=r"schedule is .*take inter_wave or one of inter_wave_256, .*, a GemmSchedule",
    ):
        planned(8, 8, 8, schedule=schedule)


def test_the_family_name_is_the_default_choice():
    for shape in ((8, 8, 8), (8192, 8192, 64)):
        assert planned(*shape, schedule="inter_wave") == planned(*shape)


def test_an_arch_without_this_kernel_is_told_the_one_that_has_it():
    with pytest.raises(UsageError, match="not for gfx1250; choose gfx942 or gfx950"):
        planned(8, 8, 8, target="gfx1250")


def read_only(shape):
    out = np.empty(shape, np.float16)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda a: matmul(a, a.copy(), out=read_only(a.shape)), "out is read-only; pass a writeable one"),
        (lambda a: matmul(np.ma.masked_array(a, a > 0), a), "a is a masked array.*pass a.filled"),
        (lambda a: matmul(a, np.ma.masked_array(a, a > 0)), "b is a masked array"),
        (lambda a: matmul(a, a.copy(), out=np.ma.masked_array(a, a > 0)), "out is a masked array"),
        (
            lambda a: on_gfx950(np.asfortranarray(np.ones((8, 4), np.float16)), a[:4], "inter_wave_128"),
            "copy a to row-major order",
        ),
        (
            lambda a: on_gfx950(a, np.broadcast_to(a[:, :1], (8, 8)), "inter_wave_128"),
            "neither of them 1; copy b",
        ),
        (lambda a: matmul(a, a.copy()), "matmul: a is in CPU memory; move it to an AMD GPU"),
    ],
)
def test_refusals_name_the_argument_and_a_remedy_for_its_kind(call, complaint):
    with pytest.raises(UsageError, match=complaint):
        call(np.zeros((8, 8), np.float16))


def test_tensors_that_are_more_than_numbers_at_an_address():
    torch = pytest.importorskip("torch")
    dense = torch.ones(8, 8, dtype=torch.float16)
    with pytest.raises(UsageError, match=r"a has layout torch.sparse_coo; pass a.to_dense\(\)"):
        matmul(dense.to_sparse(), dense.to_sparse())
    for emulated in (contextlib.nullcontext(), amdwarp.emulate("gfx950")):
        with emulated, pytest.raises(UsageError, match="a is on device meta; move it to an AMD GPU"):
            matmul(dense.to("meta"), dense.to("meta"))


WITHOUT_TRITON = """
import importlib.util, sys
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "triton" else real(name, *rest)
sys.modules["triton"] = None
"""
WITH_TRITON_3_7 = """
import importlib.metadata
real = importlib.metadata.version
importlib.metadata.version = lambda name: "3.7.1" if name == "triton" else real(name)
"""
MULTIPLY = """
import amdwarp, numpy as np
from amdwarp.kernels.gemm import matmul
try:
    with amdwarp.emulate("gfx950"):
        matmul(np.ones((4, 4), np.float16), np.ones((4, 4), np.float16))
except amdwarp.UnsupportedTritonError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("setup", "text"),
    [(WITHOUT_TRITON, "no Triton is installed"), (WITH_TRITON_3_7, "needs Triton 3.8 or newer, and this is 3.7.1")],
)
def test_a_triton_that_cannot_compile_the_kernels(setup, text):
    done = subprocess.run([sys.executable, "-c", setup + MULTIPLY], capture_output=True, text=True, timeout=120)
    assert text in done.stdout, done.stderr
