"""``amdwarp.jit``: what becomes of a function, and launches through a stand-in driver."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl
from triton import knobs
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonJITFunction
from triton.runtime._async_compile import AsyncCompileMode
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction, MockTensor

import amdwarp
from amdwarp.errors import UsageError

sys.path.insert(0, str(Path(__file__).parent))
from fake_driver import FakeDriver
from stage_samples import ROW, SIGNATURE, add_up, plain, staged


def on_triton(x, y, n, B: tl.constexpr):
    offsets = tl.arange(0, B)
    total = tl.zeros([B], tl.float32)
    for i in range(n):
        with amdwarp.warp_pipeline_stage("load"):
            value = tl.load(x + i * B + offsets)
        with amdwarp.warp_pipeline_stage("add"):
            total += value
    tl.store(y + offsets, total)


# ---- the decorator


def test_a_plain_function_becomes_a_gluon_kernel() -> None:
    kernel = amdwarp.jit(add_up)
    assert isinstance(kernel, GluonJITFunction)
    assert kernel.is_gluon()
    assert kernel.fn is add_up
    assert kernel.arg_names == ["x", "y", "n", "L", "P"]
    assert kernel.__name__ == "add_up"


def test_a_gluon_kernel_stays_one() -> None:
    kernel = amdwarp.jit(gluon.jit(add_up))
    assert isinstance(kernel, GluonJITFunction)
    assert kernel.arg_names == ["x", "y", "n", "L", "P"]


def test_a_triton_kernel_stays_one() -> None:
    kernel = amdwarp.jit(triton.jit(on_triton))
    assert isinstance(kernel, JITFunction)
    assert not isinstance(kernel, GluonJITFunction)
    assert not kernel.is_gluon()
    assert kernel.arg_names == ["x", "y", "n", "B"]


def test_options_of_the_decorator() -> None:
    @amdwarp.jit(do_not_specialize=["n"], repr=lambda _: "my_name")
    def kernel(x, n):
        gl.store(x, n)

    assert kernel.do_not_specialize == ["n"]
    assert kernel.repr(None) == "my_name"
    assert [param.do_not_specialize for param in kernel.params] == [False, True]


def test_options_of_an_inner_decorator_are_kept() -> None:
    inner = gluon.jit(
        add_up,
        version=7,
        do_not_specialize=["n"],
        do_not_specialize_on_alignment=["x"],
        debug=True,
        noinline=True,
        repr=lambda _: "my_name",
        launch_metadata=lambda *_: {},
    )
    kernel = amdwarp.jit(inner)
    for name in ("version", "do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline"):
        assert getattr(kernel, name) == getattr(inner, name)
    assert kernel.repr(None) == "my_name"
    assert kernel.launch_metadata is inner.launch_metadata


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: amdwarp.jit(gluon.jit(add_up), debug=True), "options debug come too late"),
        (lambda: amdwarp.jit(3), "3 is not a function; put @amdwarp.jit on a def"),
        (lambda: amdwarp.jit("kernel"), "'kernel' is not a function"),
        (lambda: amdwarp.jit(print), "is not a function"),
        (lambda: amdwarp.jit(lambda x: x), "is not a function; put @amdwarp.jit on a def"),
        (lambda: amdwarp.jit(add_up, num_warps=8), "unknown option 'num_warps'; triton.jit knows version, "),
    ],
)
def test_what_is_no_kernel_is_refused(call: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    assert words in str(caught.value)
    assert str(caught.value).startswith("amdwarp.jit: ")


# ---- launches


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeDriver]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    fake = FakeDriver()
    monkeypatch.setattr(driver, "_active", fake)
    yield fake
    for kernel in (staged, plain):
        kernel.device_caches.clear()
    gc.collect()  # programs unload through the driver that loaded them


def arguments() -> list[Any]:
    return [MockTensor(tl.float32, [512]), MockTensor(tl.float32, [512]), 3]


def test_a_launch_goes_through_our_stages(gpu: FakeDriver) -> None:
    made = staged[(2, 3)](*arguments(), L=ROW, num_warps=8)
    assert made.asm["amdwarp"].count("amdg.cond_barrier") == 2
    assert [grid for grid, _ in gpu.launched] == [(2, 3, 1)]
    again = staged[(4,)](*arguments(), L=ROW, num_warps=8)
    assert again is made
    assert [grid for grid, _ in gpu.launched] == [(2, 3, 1), (4, 1, 1)]


def test_a_warmup_compiles_and_does_not_launch(gpu: FakeDriver) -> None:
    made = staged.warmup(*arguments(), L=ROW, num_warps=8, grid=(1,))
    assert made.asm["amdwarp"].count("amdg.cond_barrier") == 2
    assert gpu.launched == []


@pytest.mark.usefixtures("gpu")
def test_a_launch_and_a_compilation_give_the_same_program() -> None:
    made = staged.warmup(*arguments(), L=ROW, num_warps=8, grid=(1,))
    hints = dict.fromkeys(("x", "y"), "D")
    alike = amdwarp.compile(staged, SIGNATURE, {"L": ROW, "P": 1}, "gfx950", attrs=hints, num_warps=8)
    assert made.asm["amdgcn"] == alike.asm["amdgcn"]


def test_a_triton_kernel_is_launched_through_our_stages(gpu: FakeDriver) -> None:
    kernel = amdwarp.jit(triton.jit(on_triton))
    made = kernel[(1,)](*arguments(), B=512, num_warps=8)
    assert made.asm["amdwarp"].count("amdg.cond_barrier") == 2
    assert len(gpu.launched) == 1


def test_a_refusal_at_a_launch_is_ours(gpu: FakeDriver) -> None:
    with pytest.raises(UsageError, match="priority must be an integer from 0 to 3, not 9") as caught:
        staged[(1,)](*arguments(), L=ROW, P=9, num_warps=8)
    file, _, line = str(caught.value.where).rpartition(":")
    assert Path(file).name == "stage_samples.py"
    source = Path(file).read_text(encoding="utf-8").splitlines()
    assert 'with amdwarp.warp_pipeline_stage("load"' in source[int(line) - 1]
    assert gpu.launched == []
    assert staged[(1,)](*arguments(), L=ROW, num_warps=8) is not None


def test_stock_kernels_keep_their_in_memory_keys(gpu: FakeDriver) -> None:
    def keys() -> list[Any]:
        return list(plain.device_caches[0][0])

    first = plain[(1,)](*arguments(), L=ROW, num_warps=8)
    before = keys()
    staged[(1,)](*arguments(), L=ROW, num_warps=8)
    assert plain[(1,)](*arguments(), L=ROW, num_warps=8) is first
    assert keys() == before
    assert len(before) == 1
    assert "amdwarp" not in first.asm
    assert knobs.runtime.add_stages_inspection_hook is None
    assert len(gpu.launched) == 3


def test_asynchronous_compilation_goes_through_our_stages(gpu: FakeDriver) -> None:
    with ThreadPoolExecutor(2) as pool, AsyncCompileMode(pool):
        futures = [staged.warmup(*arguments(), L=ROW, P=p, num_warps=8, grid=(1,)) for p in (0, 2)]
        stock = plain.warmup(*arguments(), L=ROW, num_warps=8, grid=(1,))
    for priority, future in zip((0, 2), futures, strict=True):
        assert f"rocdl.s.setprio {priority}" in future.result().asm["amdwarp"]
    assert "amdwarp" not in stock.result().asm
    assert gpu.launched == []
