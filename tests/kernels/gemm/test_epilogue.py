"""The epilogue's device function in both languages: the same numbers from Triton and from Gluon."""

from __future__ import annotations

import numpy as np
import pytest
from amdwarp.kernels.gemm import ACTIVATIONS, Epilogue, reference

import amdwarp
from amdwarp.runtime import Launch, run

pytest.importorskip("triton")

from amdwarp.kernels.gemm.epilogue_device import finish, gluon_finish
from triton import jit
from triton import language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@amdwarp.jit
@jit
def in_triton(x, y, bias, old, out, N: tl.constexpr, E: tl.constexpr):
    at = tl.arange(0, 16)[:, None] * N + tl.arange(0, N)[None, :]
    column = tl.load(bias + tl.arange(0, N))[None, :]
    value = finish(tl.load(x + at), tl.load(y + at), 0.5, 2.0, 3.0, column, column, tl.load(old + at), 0.25, E)
    tl.store(out + at, value.to(out.dtype.element_ty))


@amdwarp.jit
@gluon.jit
def in_gluon(x, y, bias, old, out, N: gl.constexpr, E: gl.constexpr):
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 4], [8, 8], [1, 1], [1, 0])
    rows = gl.arange(0, 16, gl.SliceLayout(1, LAYOUT))
    columns = gl.arange(0, N, gl.SliceLayout(0, LAYOUT))
    at = rows[:, None] * N + columns[None, :]
    column = gl.load(bias + columns)[None, :]
    value = gluon_finish(gl.load(x + at), gl.load(y + at), 0.5, 2.0, 3.0, column, column, gl.load(old + at), 0.25, E)
    gl.store(out + at, value.to(out.dtype.element_ty))


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("kernel", [in_triton, in_gluon], ids=["triton", "gluon"])
def test_both_languages_compute_the_stated_order(kernel, activation):
    rng = np.random.default_rng(0)
    x, y, old = (rng.standard_normal((16, 32)).astype(np.float32) for _ in range(3))
    x[0, :3] = np.nan, 50.0, -50.0
    bias, out = rng.standard_normal(32).astype(np.float32), np.zeros((16, 32), np.float32)
    epilogue = Epilogue("float32", scaled=True, bias="column", activation=activation, residual=True)
    arrays = {"x": x, "y": y, "bias": bias, "old": old, "out": out}
    with amdwarp.emulate("gfx950"):
        run(Launch(kernel, (1,), arrays, {"N": 32, "E": epilogue}, {"num_warps": 1}))
    before = x.astype(float) * 2.0 * 0.5 + bias
    if activation == "swiglu":
        before = np.concatenate([before, y.astype(float) * 3.0 * 0.5 + bias], axis=-1)
    expected = reference.activate(before, activation) + 0.25 * old.astype(float)
    assert np.isnan(out[0, 0]) and np.allclose(out, expected, rtol=1e-5, atol=1e-5, equal_nan=True)
