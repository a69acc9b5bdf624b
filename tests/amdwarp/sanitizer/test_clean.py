"""Kernels with nothing wrong in them: no report at all."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from sanitizer_corpus import CASES

from amdwarp.sanitizer import check

#: All of gfx950 but what is slow to compile, and a third of each other target; the rest is marked slow.
QUICK = [
    name
    for at, name in enumerate(CASES)
    if "sort" not in name and "spills" not in name and (name.startswith("gfx950") or at % 3 == 0)
]


def _every() -> list[object]:
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES]


def test_there_are_enough() -> None:
    assert len(QUICK) >= 40
    assert {name.split("/")[0] for name in QUICK} == {"gfx942", "gfx950", "gfx1250"}


@pytest.mark.newest
@pytest.mark.parametrize("name", _every())
def test_nothing_is_reported(name: str) -> None:
    run = CASES[name].build()
    report = check(run.text, run.args, run.grid, lds_bytes=run.lds_bytes)
    assert report.ok, str(report)
    assert report.instructions > 0 and report.workgroups > 0
