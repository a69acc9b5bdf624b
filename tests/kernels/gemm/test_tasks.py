"""The GEMM as tasks: numbers, races over interleavings, and a mutation of each barrier, phase and wait."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amdwarp.kernels import gemm
from amdwarp.kernels.gemm.configs import Access
from amdwarp.kernels.gemm.plan import plan
from amdwarp.lowering.analysis.tasks import ARRIVE, WAIT
from task_mutations import Edit, drop, flip, mutated, recount, refused_or

import amdwarp
from amdwarp.sanitizer import Report, check
from amdwarp.verify import verify_gemm

ARCHS = ("gfx942", "gfx950", "gfx1250")
# Several tiles with edges and a ring that goes round; one step; a step that is not whole; whole tiles.
SHAPES = ((200, 264, 328), (128, 128, 8), (64, 40, 72), (128, 128, 576))


def judge(shape: tuple[int, int, int], arch: str, b_order: str, dtype: str) -> None:
    case = verify_gemm(shape, arch=arch, schedule="tasks", b_order=b_order, dtype=dtype, workgroups=None)
    assert case.ok, case.problem
    assert case.schedule == f"tasks_{arch}"


@pytest.mark.parametrize("arch", ARCHS)
def test_the_reference_s_numbers(arch: str) -> None:
    for shape in SHAPES[:2]:
        judge(shape, arch, "nk", "fp16")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("b_order", ["nk", "kn"])
@pytest.mark.parametrize("arch", ARCHS)
def test_the_reference_s_numbers_in_every_form(arch: str, b_order: str, dtype: str) -> None:
    for shape in SHAPES:
        judge(shape, arch, b_order, dtype)


@pytest.mark.parametrize("arch, other", [("gfx942", "intra_wave"), ("gfx950", "inter_wave_128")])
def test_the_same_numbers_as_another_schedule(arch: str, other: str) -> None:
    """Both add products in the order of K, so that their sums are the same bit for bit."""
    generator = np.random.default_rng(3)
    a = generator.standard_normal((128, 192)).astype(np.float16)
    b = generator.standard_normal((136, 192)).astype(np.float16).T
    with amdwarp.emulate(arch):
        assert np.array_equal(gemm.matmul(a, b, schedule="tasks"), gemm.matmul(a, b, schedule=other))


def test_what_the_schedule_refuses() -> None:
    tasks = gemm.TASKS["tasks_gfx950"]
    assert not tasks.constraints("gfx950")
    for change, text in (
        ({"loaders": 3}, "loaders = 3 is no power of two"),
        ({"mfma": (16, 16, 16)}, "mfma = (16, 16, 16) is none of"),
        ({"waves_n": 1}, "2 waves multiply, and Triton runs tasks beside a multiple of 4 only"),
        ({"woven": True}, "tasks take the tile whole"),
        ({"ahead": 2}, "4 steps under way need a ring of more than 4 slots, not 4"),
        ({"copies": 3}, "copies = 3 do not share a ring of 4 slots evenly"),
        ({"tile_m": 16}, "tile_m = 16 leaves waves without an MFMA of 16"),
        ({"tile_k": 16}, "tile_k = 16 is less than one MFMA's 32"),
        ({"tile_m": 256, "tile_n": 256}, "256 accumulator registers of 256 leave no room for operands"),
        ({"ring": 8}, "the ring takes 270"),
        ({"arch": "gfx942"}, "made for gfx942, not for gfx950"),
    ):
        wrong = replace(tasks, **change).constraints("gfx950")
        assert any(text in one for one in wrong), (change, wrong)
    assert tasks.constraints("gfx950", dtype="fp8e4nv") == ["tasks take fp16 and bf16 operands, not fp8e4nv"]
    deep = replace(gemm.TASKS["tasks_gfx942"], tile_k=64)
    assert deep.constraints("gfx942") == ["tile_k = 64; on gfx942 it must be 32"]
    unaligned = tasks.constraints("gfx950", Access(True, a_direct=False))
    assert unaligned == ["tasks take only operands whose rows are 16-byte aligned, in whole 16-byte pieces"]


# ---- races


@functools.cache
def operands(arch: str) -> tuple[Any, ...]:
    """A (M, K), B (N, K) and their product, with as many steps as let the ring go round twice, and one not whole."""
    schedule = gemm.TASKS[f"tasks_{arch}"]
    k = schedule.tile_k * (2 * schedule.ring + 1) + 8
    generator = np.random.default_rng(5)
    a = generator.standard_normal((120, k)).astype(np.float16)
    b = generator.standard_normal((128, k)).astype(np.float16)
    return a, b, a.astype(np.float32) @ b.astype(np.float32).T


def compile_tasks(arch: str) -> tuple[Any, list[Any], Any]:
    """The kernel, its arguments, and the array it writes."""
    a, b, _ = operands(arch)
    (m, k), n = a.shape, b.shape[0]
    out = np.zeros((m, n), np.float16)
    matrices = gemm.Matrix(m, k, k, 1, 64), gemm.Matrix(k, n, 1, k, 64), gemm.Matrix(m, n, n, 1, 0)
    made = plan(*matrices, "fp16", "tasks", target=arch)
    compiled = amdwarp.compile(made.function(), made.signature, made.constexprs, arch, **made.options)
    return compiled, [a, b, out, *made.arguments.values()], out


def judged(arch: str, seeds: int) -> Report:
    compiled, arguments, out = compile_tasks(arch)
    report = check(compiled, arguments, (1,), seeds=seeds)
    if report.ok:
        reference = operands(arch)[2]
        assert np.abs(out - reference).max() < 2e-3 * np.abs(reference).max()
    return report


@pytest.mark.parametrize("arch", ARCHS)
def test_no_races_over_two_interleavings(arch: str) -> None:
    report = judged(arch, 2)
    assert report.ok, report


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
def test_no_races_over_ten_interleavings(arch: str) -> None:
    report = judged(arch, 10)
    assert report.ok, report


# ---- mutations


def mutations(arch: str) -> dict[str, Edit]:
    """One for each wait, phase, arrival and count, and for the waits for copies."""
    # gfx1250: one each side; else one before the multiplying loop and two in it, and one in each copy that loads
    waits = arrivals = 2 if arch == "gfx1250" else 3 + gemm.TASKS[f"tasks_{arch}"].copies
    found: dict[str, Edit] = {}
    for at in range(waits):
        found[f"wait {at} dropped"] = drop(WAIT, at)
        found[f"phase {at} flipped"] = flip(at)
    for at in range(arrivals):
        found[f"arrival {at} dropped"] = drop(ARRIVE, at)
    found["full counts one more"], found["empty counts one more"] = recount(0, 1), recount(-1, 1)
    found["empty counts one less"] = recount(-1, -1)
    if arch == "gfx950":
        found["copies not waited for"] = drop("ttg.async_wait", 0)
    if arch == "gfx1250":
        found["copies not waited for"] = drop("amdg.async_tdm_wait", 0)
    return found


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Mutants stay out of the cache; without windows, whose check would refuse some of them for another reason."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("AMDWARP_WINDOWS", "drop")


def mutant(monkeypatch: pytest.MonkeyPatch, arch: str, edit: Edit) -> tuple[Any, list[Any]]:
    with mutated(monkeypatch, edit):
        compiled, arguments, _ = compile_tasks(arch)
    return compiled, arguments


@pytest.mark.slow
@pytest.mark.parametrize(
    "arch, name", [pytest.param(arch, name, id=f"{arch}-{name}") for arch in ARCHS for name in mutations(arch)]
)
def test_mutations_are_caught(arch: str, name: str, own_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> bool:
        compiled, arguments = mutant(monkeypatch, arch, mutations(arch)[name])
        return not check(compiled, arguments, (1,), seeds=3).ok

    assert refused_or(found), name


@pytest.mark.newest
@pytest.mark.parametrize("arch", ARCHS)
def test_a_dropped_arrival_is_caught(arch: str, own_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, arguments = mutant(monkeypatch, arch, mutations(arch)["arrival 0 dropped"])
    assert not check(compiled, arguments, (1,), seeds=1).ok
