"""Broken kernels: nearly every change that can alter a result is noticed."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from mutations import Mutant, Verdict, barrier_mutants, judge, offset_mutants, wait_mutants
from sanitizer_corpus import CASES, MUTATED

RATE = 0.98


def _unnoticed(verdicts: list[Verdict]) -> list[str]:
    return [f"line {v.mutant.line}: {v.mutant.change}" for v in verdicts if v.changes and not v.noticed]


def test_mutants_of_waits() -> None:
    text = "a\n\ts_waitcnt vmcnt(2) lgkmcnt(0)\nb"
    assert list(wait_mutants(text)) == [
        Mutant("drop vmcnt(2)", 2, "a\n\ts_waitcnt lgkmcnt(0)\nb"),
        Mutant("vmcnt(2) -> (3)", 2, "a\n\ts_waitcnt lgkmcnt(0) vmcnt(3)\nb"),
        Mutant("drop lgkmcnt(0)", 2, "a\n\ts_waitcnt vmcnt(2)\nb"),
        Mutant("lgkmcnt(0) -> (1)", 2, "a\n\ts_waitcnt vmcnt(2) lgkmcnt(1)\nb"),
    ]
    assert [m.text for m in wait_mutants("\ts_wait_dscnt 0x1")] == ["", "\ts_wait_dscnt 0x2"]


def test_mutants_of_barriers() -> None:
    assert [m.text for m in barrier_mutants("\ts_barrier\na")] == ["\na"]
    split = "\ts_barrier_signal -1\n\ts_barrier_wait -1"
    assert [m.text for m in barrier_mutants(split)] == ["\ts_barrier_signal -1\n", "\n"]


def test_mutants_of_offsets() -> None:
    text = "\ts_add_i32 m0, s2, 0x2000\n\tds_read_b32 v1, v2 offset:64\n\ts_mov_b32 s9, 0x2000"
    found = [(m.change, m.line) for m in offset_mutants(text, 4096)]
    assert found == [("8192 -> 12288", 1), ("8192 -> 4096", 1), ("64 -> 4160", 2)]


@pytest.mark.newest
@pytest.mark.parametrize("name", ["gfx950/gluon_async-4", "gfx942/gluon_staged-4", "gfx1250/tensor_ring"])
def test_a_sample(name: str) -> None:
    verdicts = judge(CASES[name].build(), MUTATED[name], seeds=2, only=slice(None, None, 5))
    assert sum(v.changes for v in verdicts) >= 10
    assert _unnoticed(verdicts) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATED)
def test_all(name: str) -> None:
    """``python tests/amdwarp/sanitizer/mutations.py`` prints the rate over all kernels, and which are missed."""
    verdicts = judge(CASES[name].build(), MUTATED[name])
    changing, missed = sum(v.changes for v in verdicts), _unnoticed(verdicts)
    print(f"{name}: {changing - len(missed)} of {changing} noticed")
    assert changing > 40
    # Two in a hundred, or two where a kernel has fewer.
    assert len(missed) <= max(2, (1 - RATE) * changing), missed


def test_two_kernels_of_each_target() -> None:
    targets = [name.split("/")[0] for name in MUTATED]
    assert all(targets.count(arch) >= 2 for arch in ("gfx942", "gfx950", "gfx1250"))
