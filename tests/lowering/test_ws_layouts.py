"""Layouts for fewer waves: texts, and what the wheel makes of them."""

from __future__ import annotations

import pytest
from amdwarp.lowering.ws_layouts import for_waves

ALIASES = {
    "#blocked": "#ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [8, 8], warpsPerCTA = [2, 2], order = [1, 0]}>",
    "#mma": "#ttg.amd_mfma<{version = 4, warpsPerCTA = [2, 4], instrShape = [16, 16, 32], isTransposed = true}>",
    "#wmma": "#ttg.amd_wmma<{version = 3, isTranspose = true, ctaLayout = {warp = [[0, 1], [1, 0]]}, instrShape = "
    "[16, 16, 32]}>",
    "#linear": "#ttg.linear<{register = [[0, 1], [0, 2]], lane = [[1, 0], [2, 0]], warp = [[8, 0], [16, 0]], block = "
    "[]}>",
    "#bare": "#ttg.linear<{register = [], lane = [[1, 0], [2, 0]], warp = [[4, 0], [0, 0]], block = []}>",
    "#shared": "#ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>",
}


@pytest.mark.parametrize(
    ("type_", "have", "want", "parts"),
    [
        ("tensor<64x64xf16, #blocked>", 4, 2, ["warpsPerCTA = [1, 2], order"]),
        ("tensor<64x64xf16, #blocked>", 4, 1, ["warpsPerCTA = [1, 1], order"]),
        (
            "tensor<64xi32, #ttg.slice<{dim = 1, parent = #blocked}>>",
            4,
            1,
            ["slice<{dim = 1, parent = #ttg.blocked<{s"],
        ),
        ("tensor<64x64xf32, #mma>", 8, 2, ["warpsPerCTA = [1, 2], instrShape"]),
        (
            "tensor<64x64xf16, #ttg.dot_op<{opIdx = 0, parent = #wmma, kWidth = 8}>>",
            4,
            2,
            ["ctaLayout = {register = [[1, 0]], warp = [[0, 1]]}, instrShape", "kWidth = 8"],
        ),
        (
            "tensor<64x64xf16, #linear>",
            4,
            1,
            ["register = [[0, 1], [0, 2], [8, 0], [16, 0]], lane = [[1, 0], [2, 0]], warp = [], block"],
        ),
        ("tensor<64x64xf16, #bare>", 4, 2, ["register = [], lane = [[1, 0], [2, 0]], warp = [[4, 0]], block"]),
        ("dense<0.000000e+00> : tensor<64x64xf32, #blocked>", 4, 2, ["dense<0.000000e+00> : tensor<64x64xf32, #ttg.b"]),
    ],
)
def test_texts(type_: str, have: int, want: int, parts: list[str]) -> None:
    made = for_waves(type_, ALIASES, have, want)
    assert all(part in made for part in parts), made


@pytest.mark.parametrize("type_", ["i32", "!tt.ptr<f16>", "!ttg.memdesc<64x64xf16, #shared, #ttg.shared_memory>"])
def test_what_no_wave_holds_stays(type_: str) -> None:
    assert for_waves(type_, ALIASES, 4, 1) == type_
