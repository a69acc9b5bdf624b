"""Windows of the shipped intra-wave kernels: prices, the order LLVM realised, and that the order changes no number.

``golden/windows.json`` keeps a summary of each realised window, never whole assembly, so that a new Triton that loses
one is noticed. ``pytest --update-golden`` writes it anew.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from amdwarp.kernels.gemm import SCHEDULES, Matrix, matmul, plan
from older_triton import fp16_for_bf16

import amdwarp
from amdwarp.explain import explain_kernel
from amdwarp.runtime import Launch, run
from amdwarp.weave import windows_are

pytest.importorskip("triton")

GOLDEN = Path(__file__).parent / "golden" / "windows.json"
DTYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
NARROW = {"fp8e4b8": ml_dtypes.float8_e4m3fnuz, "fp8e5b16": ml_dtypes.float8_e5m2fnuz, "i8": np.int8}
VARIANTS = [
    *(("gfx950", "intra_wave", dtype, order) for dtype in DTYPES for order in ("nk", "kn")),
    *(("gfx942", "intra_wave_gfx942", dtype, order) for dtype in DTYPES for order in ("nk", "kn")),
    *(("gfx942", "intra_wave_256_gfx942", dtype, "nk") for dtype in DTYPES),
    *(("gfx942", "intra_wave_256_fp8_gfx942", dtype, "nk") for dtype in ("fp8e4b8", "fp8e5b16")),
    ("gfx942", "intra_wave_256_i8_gfx942", "i8", "nk"),
]


EACH = fp16_for_bf16(VARIANTS, "-".join)


@functools.cache
def product(variant, policy):
    """C and the compiled kernel of one variant under one policy for windows."""
    arch, schedule, dtype, order = variant
    if dtype not in DTYPES:
        return narrow_product(variant, policy)
    rng = np.random.default_rng(11)
    a = rng.standard_normal((136, 200)).astype(DTYPES[dtype])
    b = rng.standard_normal((72, 200) if order == "nk" else (200, 72)).astype(DTYPES[dtype])
    with windows_are(policy), amdwarp.emulate(arch) as emulation:
        c = matmul(a, b.T if order == "nk" else b, schedule=schedule)
    return c, emulation.records[-1][1]


def narrow_product(variant, policy):
    """The same, of operands of a byte."""
    arch, schedule, dtype, _ = variant
    rng = np.random.default_rng(11)
    a, b = (rng.integers(-8, 9, (rows, 208)).astype(NARROW[dtype]) for rows in (136, 72))
    c = np.zeros((136, 72), np.int32 if dtype == "i8" else ml_dtypes.bfloat16)
    extents = ((*a.shape, 208, 1), (*b.T.shape, 1, 208), (*c.shape, 72, 1))
    matrices = (Matrix(*extent, element_bytes=x.itemsize) for extent, x in zip(extents, (a, b, c), strict=True))
    made = plan(*matrices, dtype, schedule, target=arch)
    arrays = {"a_ptr": a, "b_ptr": b.T, "c_ptr": c}
    with windows_are(policy), amdwarp.emulate(arch) as emulation:
        run(Launch(made.function(), made.grid, arrays | made.arguments, made.constexprs, made.options))
    return c, emulation.records[-1][1]


def test_every_schedule_with_windows_is_here():
    assert {name for name, known in SCHEDULES.items() if known.woven} == {schedule for _, schedule, *_ in VARIANTS}


def summary(variant):
    """Label, priced counts and realised order of each window."""
    windows = explain_kernel(product(variant, "error")[1]).windows
    return [[window.label, dict(sorted(window.priced.items())), window.realised] for window in windows]


@pytest.mark.parametrize("variant", EACH)
def test_every_window_is_realised_as_asked(variant):
    report = explain_kernel(product(variant, "error")[1])
    assert report.windows and report.ok and report.spills == 0
    for window in report.windows:
        assert window.misplaced == 0 and window.realised == window.asked
        for letter, count in window.priced.items():  # the price is what stands in the text
            assert window.realised.count(letter) == count


@pytest.mark.parametrize("variant", EACH)
def test_the_order_is_the_golden_one(variant, request):
    name = "-".join(variant)
    known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if request.config.getoption("--update-golden"):
        known[name] = summary(variant)
        rows = (f"{json.dumps(key)}: {json.dumps(known[key])}" for key in sorted(known))
        GOLDEN.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    assert summary(variant) == known[name]


@pytest.mark.newest
@pytest.mark.parametrize("variant", EACH)
def test_windows_change_no_number(variant):
    woven, plain = product(variant, "error")[0], product(variant, "drop")[0]
    assert np.isfinite(woven.astype(np.float32)).all()
    assert woven.tobytes() == plain.tobytes()
    assert product(variant, "error")[1].asm["amdgcn"] != product(variant, "drop")[1].asm["amdgcn"]
