"""The table of what stock barrier insertion does, against the installed Triton's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from amdwarp.lowering.analysis.lds import Access
from amdwarp.lowering.analysis.stock import Hazard, stock_of
from amdwarp.lowering.bridge import triton_version

CHILD = Path(__file__).with_name("stock_pairs.py")
PLACES = ("same", "numbers", "remainders", "unknown", "other buffer")


@pytest.fixture(scope="module")
def barriers() -> dict[str, int]:
    done = subprocess.run([sys.executable, str(CHILD)], capture_output=True, text=True, timeout=300, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("@result ")]
    if not lines:
        pytest.fail(f"exit status {done.returncode}\n{done.stderr[-4000:]}")
    return json.loads(lines[0].removeprefix("@result "))  # type: ignore[no-any-return]


@pytest.mark.usefixtures("needs_triton")
@pytest.mark.parametrize("place", PLACES)
def test_pairs(barriers: dict[str, int], place: str) -> None:
    stock = stock_of(triton_version())
    for first in Access:
        for second in Access:
            same = place != "other buffer"
            hazard = stock.hazard(first, second, same=same, overlap=place == "same", share=False)
            found = barriers[f"{first.name} {second.name} {place}"]
            if hazard is not Hazard.MAYBE:
                assert found == (hazard is Hazard.SURE), (first, second)
            if found:
                assert hazard is not Hazard.NONE, (first, second)


@pytest.mark.usefixtures("needs_triton")
def test_a_wait_without_a_barrier_gets_one(barriers: dict[str, int]) -> None:
    assert barriers["wait"] == 1
    assert barriers["wait and fence"] == 1


def test_slots_that_may_be_told_apart() -> None:
    def hazard(version: tuple[int, int], **where: Any) -> Hazard:
        given = {"same": True, "overlap": False, "share": False, **where}
        return stock_of(version).hazard(Access.WRITE, Access.READ, **given)

    assert hazard((3, 8)) is Hazard.SURE
    assert hazard((3, 9)) is Hazard.MAYBE
    assert hazard((3, 9), overlap=True) is Hazard.SURE
    for version in ((3, 7), (3, 8), (3, 9)):
        assert hazard(version, same=False) is Hazard.NONE
        assert hazard(version, same=False, share=True) is Hazard.MAYBE
