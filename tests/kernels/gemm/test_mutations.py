"""Single faults put into the shipped kernels: each is refused at compile time, or the numbers show it.

A mutant is the kernel file with one statement changed: a wait dropped, weakened by one group, or moved behind the next
stage; a ring index off by one; a copy left out of its commit group; a copy of the prologue dropped.
"""

from __future__ import annotations

import ast
import copy
import importlib.util
import inspect
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from amdwarp.kernels.gemm import SCHEDULES, Matrix, plan, reference

import amdwarp
from amdwarp import EmulatorError, LoweringError
from amdwarp.runtime import Launch, run

pytest.importorskip("triton")

KERNELS = {"inter_wave_256": "matmul_quarters", "inter_wave_128": "matmul_whole"}
DEPTH = {"matmul_quarters": "2", "matmul_whole": "RING"}
SHAPE = (264, 264, 456)  # two tiles each way and eight K steps, all ragged
SEEDS = (0, 1)


@dataclass(frozen=True)
class Site:
    """A place in a kernel: the path of statement lists to it, and what is done there."""

    kernel: str
    fault: str
    number: int

    def __str__(self) -> str:
        return f"{self.kernel}-{self.fault}-{self.number}"


def source() -> str:
    from amdwarp.kernels.gemm import inter_wave_gfx950

    return inspect.getsource(inter_wave_gfx950)


def called(node: ast.AST) -> str:
    """Name of the function that an expression statement calls, or ""."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func)
    return ""


def bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every statement list under a node, in source order."""
    for child in ast.walk(node):
        for field in ("body", "orelse"):
            statements = getattr(child, field, None)
            if isinstance(statements, list):
                yield statements


def function(tree: ast.Module, name: str) -> ast.FunctionDef:
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)


def waits(kernel: ast.FunctionDef) -> list[tuple[list[ast.stmt], int]]:
    return [(b, i) for b in bodies(kernel) for i, s in enumerate(b) if called(s) == "async_copy.wait_group"]


def copies(kernel: ast.FunctionDef) -> list[tuple[list[ast.stmt], int]]:
    return [(b, i) for b in bodies(kernel) for i, s in enumerate(b) if called(s) in ("copy", "fill")]


def indices(kernel: ast.FunctionDef) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(kernel)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "index"
    ]


def moves(kernel: ast.FunctionDef) -> list[tuple[list[ast.stmt], int]]:
    """Waits inside the loop that have a stage behind them."""
    return [(b, i) for b, i in waits(kernel) if any(isinstance(s, ast.With) for s in b[i + 1 :])]


def prologue(kernel: ast.FunctionDef) -> list[tuple[list[ast.stmt], int]]:
    """Copies that do not stand in a stage."""
    staged = {id(s) for node in ast.walk(kernel) if isinstance(node, ast.With) for s in node.body}
    return [(b, i) for b, i in copies(kernel) if id(b[i]) not in staged]


SITES = {
    "wait dropped": waits,
    "wait weakened": waits,
    "wait a stage later": moves,
    "index off by one": indices,
    "commit moved": copies,
    "prologue copy dropped": prologue,
}


def mutate(tree: ast.Module, site: Site) -> None:
    kernel = function(tree, site.kernel)
    found = SITES[site.fault](kernel)[site.number]
    if site.fault == "index off by one":
        (index,) = found.args
        found.args = [ast.parse(f"({ast.unparse(index)} + 1) % {DEPTH[site.kernel]}", mode="eval").body]
        return
    body, i = found
    statement = body[i]
    if site.fault == "wait weakened":
        call = statement.value  # type: ignore[attr-defined]
        call.args = [ast.parse(f"{ast.unparse(call.args[0])} + 1", mode="eval").body]
    elif site.fault == "wait a stage later":
        after = next(j for j in range(i + 1, len(body)) if isinstance(body[j], ast.With))
        body.insert(after, body.pop(i))
    elif site.fault == "commit moved":
        # its group closes with the next copy's
        call = copy.deepcopy(statement.value)  # type: ignore[attr-defined]
        call.func = ast.Name(f"{called(statement)}_uncommitted", ast.Load())
        body[i] = ast.Expr(call)
    else:
        body[i] = ast.Pass()


def uncommitted(tree: ast.Module) -> None:
    """Add a twin of each copying helper that leaves the commit out."""
    for name in ("copy", "fill"):
        twin = copy.deepcopy(function(tree, name))
        twin.name = f"{name}_uncommitted"
        for body in bodies(twin):
            body[:] = [s for s in body if called(s) != "async_copy.commit_group"]
        tree.body.insert(tree.body.index(function(tree, name)) + 1, twin)


def module(site: Site | None, folder: Path) -> ModuleType:
    tree = ast.parse(source())
    uncommitted(tree)
    if site is not None:
        mutate(tree, site)
    path = folder / "mutant.py"
    path.write_text(ast.unparse(ast.fix_missing_locations(tree)))
    linecache.checkcache()
    spec = importlib.util.spec_from_file_location("amdwarp.kernels.gemm.mutant", path)  # its imports are relative
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def operands(schedule: str, direct: tuple[bool, bool]) -> tuple[Any, Any, Any]:
    """A, B, and the plan; an operand that does not go straight to LDS has rows of an odd length."""
    m, n, k = SHAPE
    rng = np.random.default_rng(7)
    lda, ldb = (k if straight else k + 1 for straight in direct)
    a = rng.standard_normal((m, lda)).astype(np.float16)[:, :k]
    b = rng.standard_normal((n, ldb)).astype(np.float16)[:, :k].T
    return a, b, plan(Matrix(m, k, lda, 1), Matrix(k, n, 1, ldb), Matrix(m, n, n, 1), "fp16", schedule)


def fate(kernel: Any, schedule: str, direct: tuple[bool, bool]) -> str:
    """What stopped a kernel: the error, "wrong numbers", or "" if nothing did."""
    a, b, chosen = operands(schedule, direct)
    tile = np.s_[: chosen.schedule.tile_m, : chosen.schedule.tile_n]
    expected, tolerance = reference.matmul(a, b).astype(np.float32)[tile], reference.tolerance(a, b)[tile]
    for seed in SEEDS:
        out = np.full(SHAPE[:2], np.nan, np.float16)
        arguments = {"a_ptr": a, "b_ptr": b, "c_ptr": out} | chosen.arguments
        try:
            with amdwarp.emulate("gfx950", seed=seed, workgroups=[0]):
                run(Launch(kernel, chosen.grid, arguments, chosen.constexprs, chosen.options))
        except (LoweringError, EmulatorError) as error:
            return str(error)
        if not (np.abs(out[tile].astype(np.float32) - expected) <= tolerance).all():
            return "wrong numbers"
    return ""


def paths(schedule: str) -> list[tuple[bool, bool]]:
    """Which of A and B go straight to LDS: every combination that the schedule takes."""
    return [(True, True)] if SCHEDULES[schedule].quarters else [(True, True), (False, True), (True, False)]


def sites() -> list[tuple[str, Site]]:
    tree = ast.parse(source())
    found = []
    for schedule, kernel in KERNELS.items():
        for fault, find in SITES.items():
            count = len(find(function(tree, kernel)))
            assert count, f"{kernel} has no place for: {fault}"
            found += [(schedule, Site(kernel, fault, number)) for number in range(count)]
    return found


# The first copy of the prologue shares its group with the second, and the first wait asks for both anyway.
NO_FAULT = {"matmul_quarters-commit moved-0"}


@pytest.mark.newest
@pytest.mark.parametrize(("schedule", "site"), sites(), ids=str)
def test_every_fault_is_caught(schedule: str, site: Site, tmp_path: Path) -> None:
    kernel = getattr(module(site, tmp_path), site.kernel)
    stopped = next((why for direct in paths(schedule) if (why := fate(kernel, schedule, direct))), "")
    assert bool(stopped) == (str(site) not in NO_FAULT), stopped


@pytest.mark.parametrize("schedule", KERNELS)
def test_the_shipped_kernel_passes(schedule: str, tmp_path: Path) -> None:
    kernel = getattr(module(None, tmp_path), KERNELS[schedule])
    for direct in paths(schedule):
        assert fate(kernel, schedule, direct) == ""
