"""The conformance matrix of forward, varlen, paged, decode and schedules: a few cases by default, all marked slow."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from amdwarp.kernels.attention.configs import NEWEST_CONSTRUCTS
from amdwarp.lowering.bridge import require_triton
from conformance import FACTORS, SCHEDULED, TARGETS, TASKS, Case, matrix, scheduled_matrix, verify

CASES = matrix()
NEW = require_triton().version >= NEWEST_CONSTRUCTS
OF_SCHEDULES = [
    pytest.param(
        case,
        id=str(case),
        marks=pytest.mark.skipif(not NEW and case.target == "gfx950", reason="needs the inline assembly of Triton 3.9"),
    )
    for case in scheduled_matrix()
]
FEW = [
    Case("bhsd", "causal", "all", "fp16", (64, 64), (4, 2), "more keys", "gfx950"),
    Case("bshd", "window", "none", "bf16", (80, 80), (2, 2), "more rows", "gfx942"),
    Case("varlen", "causal", "sinks", "e4m3", (64, 64), (2, 2), "empty", "gfx950"),
    Case("paged", "causal_window", "alibi", "fp16", (64, 64), (4, 2), "more keys", "gfx950"),
    Case("decode", "none", "softcap", "bf16", (32, 32), (3, 1), "one key", "gfx1250"),
    Case("paged_varlen", "causal", "none", "fp16", (32, 32), (4, 2), "more keys", "gfx942"),
]
# one of each schedule
FEW_OF_SCHEDULES = list(
    {one.values[0].schedule: one for one in OF_SCHEDULES if one.values[0].lengths == "ragged"}.values()
)


def test_the_matrix_covers_every_pair_on_every_target():
    assert len(CASES) >= 300
    names = list(FACTORS)
    for target in TARGETS:
        mine = [case for case in CASES if case.target == target]
        for at, a in enumerate(names):
            for b in names[at + 1 :]:
                got = {(getattr(case, a), getattr(case, b)) for case in mine}
                wanted = {(x, y) for x in FACTORS[a] for y in FACTORS[b]}
                missing = {pair for pair in wanted - got if not _refused(dict(zip((a, b), pair, strict=True)))}
                assert not missing, (target, a, b, missing)


def _refused(pair):
    """Only bhsd and bshd take a bias; pairs of a bias with something else may have gone with that."""
    return pair.get("extra") == "bias" and pair.get("form", "varlen") not in ("bhsd", "bshd")


@pytest.mark.parametrize("case", FEW, ids=str)
def test_few(case):
    verify(case, seeds=2)


def test_the_matrix_of_schedules_covers_every_pair():
    for factors, target in ((SCHEDULED, "gfx950"), (TASKS, "gfx1250")):
        mine = [case for case in scheduled_matrix() if case.target == target]
        for a, b in itertools.combinations(factors, 2):
            got = {(getattr(case, a), getattr(case, b)) for case in mine}
            assert got == set(itertools.product(factors[a], factors[b]))


@pytest.mark.parametrize("case", FEW_OF_SCHEDULES)
def test_few_of_schedules(case):
    verify(case, seeds=2)


@pytest.mark.slow
@pytest.mark.parametrize("case", OF_SCHEDULES)
def test_whole_of_schedules(case):
    verify(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_whole(case):
    verify(case)
