"""The protocol check against emulator and sanitizer: what it takes computes right, what it refuses goes wrong.

The emulator draws the interleaving of the waves from a seed; the sanitizer's findings hold for all of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import amdwarp.lowering.passes.fence_edges as fence_edges
import numpy as np
import pytest
from stage_forms import form, forms, persistent, store_ring, two_loops
from stage_kernels import BK, BM, BN, ring_of

from amdwarp.asm import parse
from amdwarp.emulator import launch
from amdwarp.errors import ProtocolError
from amdwarp.sanitizer import check

pytestmark = pytest.mark.usefixtures("needs_triton")

SEEDS = range(3)
DRAWS = 32


def misses(kernel: Any, *k_tiles: int, first: int = 2, tiles: int = 1, grid: int = 1) -> list[tuple[int, int]]:
    """Which (tiles along K, seed) give a wrong product."""
    program = parse(kernel.asm["amdgcn"])
    wrong = []
    for count in k_tiles:
        rng = np.random.default_rng(count)
        m, n, k = tiles * BM, BN, count * BK
        a = rng.integers(-2, 3, (m, k)).astype(np.float16)
        b = rng.integers(-2, 3, (n, k)).astype(np.float16)
        want = a.astype(np.float32) @ b.astype(np.float32).T
        for seed in SEEDS:
            c = np.full((m, n), np.nan, np.float16)
            launch(program, [a, b, c, m, n, k, first], (grid,), seed=seed, lockstep=1 + 7 * (seed % 2))
            if not np.array_equal(c.astype(np.float32), want):
                wrong.append((count, seed))
    return wrong


def races(kernel: Any, k_tiles: int, *, first: int = 2, tiles: int = 1) -> list[str]:
    """What the sanitizer finds: faults of some interleaving, not only of the one that ran."""
    m, n, k = tiles * BM, BN, k_tiles * BK
    arrays = [np.ones((m, k), np.float16), np.ones((n, k), np.float16), np.zeros((m, n), np.float16)]
    return [finding.kind for finding in check(kernel, [*arrays, m, n, k, first], (1,)).findings]


def draw(number: int) -> dict[str, Any]:
    """A combination of the parameters of ``ring``, wrong ones among them; each number always gives the same one."""
    pick = random.Random(number)
    depth = pick.choice((2, 3, 4, 5))
    ahead = pick.choice((depth - 1, max(1, depth - 2), pick.randint(1, depth)))
    return {
        "R": depth,
        "D": ahead,
        "WHERE": pick.choice(("edge", "edge", "edge", "load_end", "late")),
        "COMMIT": pick.choice(("each", "each", "twice", "mfma", "empty")),
        "GAP": pick.choice((1, 1, 2)),
        "INDEX": pick.choice(("mod", "count")),
        "START": pick.random() < 0.2,
        "PRIORITY": pick.random() < 0.5,
        "MASKED": pick.random() < 0.2,
        "RELAXED": pick.random() < 0.9,
        "WAIT": pick.choice((0, 0, max(0, ahead - 1), ahead)),
        "WAIT0": pick.choice((0, max(0, ahead - 1))),
        "EPI": pick.choice((0, 0, 0, 0, 1)),
    }


def test_what_is_taken_computes_right() -> None:
    taken = 0
    for number in range(DRAWS):
        changes = draw(number)
        try:
            kernel = ring_of(**changes)
        except ProtocolError:
            continue
        taken += 1
        assert misses(kernel, changes["D"], 7) == [], changes
        assert races(kernel, 7) == [], changes
    assert taken >= DRAWS // 4


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[None]:
    """Kernels compile with the fences that the check asks for, its refusals ignored."""
    strict = fence_edges.check_function

    def lenient(function: Any) -> Any:
        try:
            return strict(function)
        except ProtocolError:
            return set()

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(fence_edges, "check_function", lenient)
    ring_of.cache_clear()
    yield
    ring_of.cache_clear()


# races that show within a few seeds where nothing refuses the kernel
RACES: list[dict[str, Any]] = [
    {"WHERE": "late"},
    {"WHERE": "mfma_end"},
    {"WAIT": 2},
    {"WAIT0": 2},
    {"WAIT0": -1},
    {"EPI": 1},
    {"EPI": -1},
    {"RD": 1},
    {"COMMIT": "never"},
    {"COMMIT": "mfma"},
    {"COMMIT": "twice", "WAIT": 3},
    {"GAP": 2},
    {"R": 4, "GAP": 2, "WAIT0": 1, "WAIT": 1},
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("changes", RACES, ids=lambda c: ",".join(f"{k}={v}" for k, v in c.items()))
def test_what_is_refused_goes_wrong(changes: dict[str, Any]) -> None:
    kernel = ring_of(**changes)
    assert misses(kernel, 7), "the refusal stands for no wrong number"
    assert "lds-unpublished-read" in races(kernel, 7)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "changes",
    [
        {"R": 3, "D": 1, "WHERE": "late", "WAIT": 0, "WAIT0": 0},
        {"R": 4, "D": 2, "WHERE": "mfma_end", "WAIT": 1, "WAIT0": 0},
    ],
    ids=lambda c: ",".join(f"{k}={v}" for k, v in c.items()),
)
def test_a_race_that_shows_in_no_number_here_is_one(changes: dict[str, Any]) -> None:
    assert "lds-unpublished-read" in races(ring_of(**changes), 7)


@pytest.mark.parametrize("name", ["flat", "helper", "if", "barrier", "unrolled"])
def test_forms_compute_right(name: str) -> None:
    assert misses(form(forms, FORM=name), 6) == []
    assert races(form(forms, FORM=name), 6) == []


@pytest.mark.parametrize("changes", [{}, {"GAP1": 2}, {"BETWEEN": "wait"}, {"GAP1": 2, "GAP2": 2}], ids=str)
def test_two_loops_compute_right(changes: dict[str, Any]) -> None:
    for first in (0, 1, 4):
        assert misses(form(two_loops, **changes), 8, first=first) == []
        assert races(form(two_loops, **changes), 8, first=first) == []


def test_a_persistent_loop_computes_right() -> None:
    for relaxed in (False, True):
        assert misses(form(persistent, RELAXED=relaxed), 2, 3, 4, 6, tiles=4) == []
        assert races(form(persistent, RELAXED=relaxed), 4, tiles=4) == []


@pytest.mark.parametrize("depth", [3, 4])
def test_a_ring_of_stores_computes_right(depth: int) -> None:
    assert misses(form(store_ring, R=depth), 2, 3, 7) == []
    assert races(form(store_ring, R=depth), 7) == []
