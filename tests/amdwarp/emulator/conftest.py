"""Compiling stock kernels for an AMD target without a GPU."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@cache
def stock_kernels() -> Any:
    """The module `stock` beside this file."""
    spec = importlib.util.spec_from_file_location("amdwarp_stock_kernels", Path(__file__).with_name("stock.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def compile_stock(
    name: str, arch: str, signature: tuple[tuple[str, str], ...], constants: tuple[tuple[str, Any], ...], options: Any
) -> Any:
    """Compile kernel `name`; pointers and i32 arguments are divisible by 16, as most launches have them."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(stock_kernels(), name)
    types, values = dict(signature), dict(constants)
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    full = {}
    for at, argument in enumerate(kernel.arg_names):
        full[argument] = types.get(argument, "constexpr")
        if full[argument].startswith("*"):
            attributes[(at,)] = [["tt.divisibility", 16], ["tt.pointer_range", 32]]
        elif full[argument] == "i32":
            attributes[(at,)] = [["tt.divisibility", 16]]
    places = {(kernel.arg_names.index(key),): value for key, value in values.items()}
    lanes = 32 if arch.startswith("gfx12") else 64
    return triton.compile(
        ASTSource(kernel, full, places, attributes), target=GPUTarget("hip", arch, lanes), options=dict(options)
    )


@pytest.fixture(scope="session")
def run_stock() -> Any:
    """Function that compiles and emulates a stock kernel."""
    pytest.importorskip("triton")
    from amdwarp.emulator import launch

    def run(
        name: str,
        arch: str,
        signature: dict[str, str],
        constants: dict[str, Any],
        args: list[Any],
        grid: tuple[int, ...],
        launch_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        kernel = compile_stock(
            name, arch, tuple(signature.items()), tuple(constants.items()), tuple(sorted(options.items()))
        )
        return launch(
            kernel.asm["amdgcn"], args, grid, **{"lds_bytes": kernel.metadata.shared, **(launch_options or {})}
        )

    return run


@pytest.fixture
def random() -> np.random.Generator:
    """A generator with a fixed seed."""
    return np.random.default_rng(7)
