"""Whole kernels with windows: prices, order, resources, and results before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amdwarp.lowering import bridge
from amdwarp.lowering.analysis.realised import asked, realised, recount, stretches

pytestmark = pytest.mark.usefixtures("needs_triton")

CDNA = ("gfx942", "gfx950")
ALL = (*CDNA, "gfx1250")
# named here as well, since importing the kernels imports Triton
CASES = {
    "single": ALL,
    "unrolled": ALL,
    "paired_write": ALL,
    "paired_copy": ("gfx950",),
    "straight": ALL,
    "softmax": ALL,
    "staged": CDNA,
    "stock": ALL,
}
PAIRS = [(name, arch) for name, archs in CASES.items() for arch in archs]
ITERATIONS = 4
# (name, arch) -> instructions per window: price as text before LLVM, and the longest run of MFMA woven
RUNS = {
    "single": 4,
    "unrolled": 4,
    "paired_write": 5,
    "paired_copy": 4,
    "straight": 4,
    "softmax": 2,
    "staged": 3,
    "stock": 4,
}


@pytest.fixture(scope="module")
def kernels() -> Any:
    import window_kernels

    return window_kernels


def test_every_kernel_is_listed(kernels: Any) -> None:
    assert {name: case.archs for name, case in kernels.CASES.items()} == CASES


@pytest.mark.parametrize(("name", "arch"), PAIRS)
def test_llvm_realises_the_windows(kernels: Any, name: str, arch: str) -> None:
    made = kernels.CASES[name].compile(arch)
    module = bridge.read(bridge.parse_text(made.asm["amdwarp"], bridge.new_context()))
    windows, found = asked(module), stretches(made.asm["amdgcn"])
    assert windows
    for one in realised(windows, found):
        assert one.anchors > 0
        assert one.misplaced == 0
        assert one.order == one.asked.order
        assert one.longest_run <= RUNS[name]
    for window in windows:
        copies = [stretch for stretch in found if window.number in stretch.groups]
        assert [recount(window, stretch) for stretch in copies] == [{}]


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[dict[Any, Any]]:
    """The corrections of each attempt to schedule a kernel with its windows."""
    from amdwarp import weave

    found: list[dict[Any, Any]] = []
    settle = weave.Weaver._attempt

    def spy(self: Any, module: Any, corrections: Any, *rest: Any) -> Any:
        if corrections is not None:
            found.append(dict(corrections))
        return settle(self, module, corrections, *rest)

    monkeypatch.setattr(weave.Weaver, "_attempt", spy)
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    return found


@pytest.mark.parametrize(("name", "arch"), PAIRS)
def test_prices_need_no_correction(kernels: Any, name: str, arch: str, attempts: list[dict[Any, Any]]) -> None:
    """Counts in the text agree with the prices from layouts alone, at the first attempt."""
    kernels.CASES[name].compile(arch)
    assert attempts
    assert [corrections for corrections in attempts if corrections] == []


@pytest.mark.parametrize("arch", CDNA)
def test_a_price_that_is_off_is_corrected(kernels: Any, arch: str, attempts: list[dict[Any, Any]]) -> None:
    made = kernels.compile_bytes(arch)
    first, second, *_ = attempts
    assert first == {}
    ((_, prices),) = second.items()
    assert sum(price.count for price in prices) < 64  # one a byte is what the layout says
    module = bridge.read(bridge.parse_text(made.asm["amdwarp"], bridge.new_context()))
    (window,) = asked(module)
    (one,) = realised([window], stretches(made.asm["amdgcn"]))
    assert one.ok
    assert one.anchors == sum(price.count for price in prices)


def results(kernels: Any, name: str, arch: str, policy: str) -> np.ndarray:
    from amdwarp.emulator import launch
    from amdwarp.weave import windows_are

    with windows_are(policy):
        made = kernels.CASES[name].compile(arch)
    random = np.random.default_rng(0)
    tiles = (ITERATIONS + 4) * kernels.ROWS * kernels.DEPTH
    a, b = (random.standard_normal(tiles).astype(np.float16) for _ in range(2))
    out = np.full((kernels.ROWS, kernels.ROWS), np.nan, np.float32)
    launch(made.asm["amdgcn"], [a, b, out, ITERATIONS], (1,), lds_bytes=made.metadata.shared)
    return out


@pytest.mark.parametrize(("name", "arch"), PAIRS)
def test_results_are_the_same_bits_without_the_windows(kernels: Any, name: str, arch: str) -> None:
    woven, plain = (results(kernels, name, arch, policy) for policy in ("error", "drop"))
    assert np.isfinite(woven).all()
    assert np.abs(woven).max() > 1
    assert woven.tobytes() == plain.tobytes()


def test_a_window_warning_comes_again_with_a_kernel_from_the_cache(
    kernels: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from amdwarp.lowering.analysis.realised import Realised

    from amdwarp.weave import Weaver, WindowWarning, windows_are

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    case = kernels.CASES["unrolled"]
    with windows_are("warn"):
        with monkeypatch.context() as patch, pytest.warns(WindowWarning) as first:
            patch.setattr(Realised, "ok", property(lambda one: one.asked.label != "odd"))
            case.compile("gfx950")
        with monkeypatch.context() as patch, pytest.warns(WindowWarning) as second:
            patch.setattr(Weaver, "run", None)  # nothing is scheduled again
            case.compile("gfx950")
    (text,) = {str(one.message) for one in first}
    assert text.startswith("intra_wave 'odd' (") and "LLVM did not realise it" in text
    assert [str(one.message) for one in first] == [str(one.message) for one in second]
