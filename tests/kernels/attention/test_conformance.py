"""The conformance matrix of forward, varlen, paged and decode: a few cases by default, the whole of it marked slow."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from conformance import FACTORS, TARGETS, Case, matrix, verify

CASES = matrix()
FEW = [
    Case("bhsd", "causal", "all", "fp16", (64, 64), (4, 2), "more keys", "gfx950"),
    Case("bshd", "window", "none", "bf16", (80, 80), (2, 2), "more rows", "gfx942"),
    Case("varlen", "causal", "sinks", "e4m3", (64, 64), (2, 2), "empty", "gfx950"),
    Case("paged", "causal_window", "alibi", "fp16", (64, 64), (4, 2), "more keys", "gfx950"),
    Case("decode", "none", "softcap", "bf16", (32, 32), (3, 1), "one key", "gfx1250"),
    Case("paged_varlen", "causal", "none", "fp16", (32, 32), (4, 2), "more keys", "gfx942"),
]


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


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_whole(case):
    verify(case)
