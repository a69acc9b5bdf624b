"""The cpu cases under pytest-benchmark: ``pytest bench/host_benchmarks.py``, or through ``amdwarp bench run``.

``AMDWARP_BENCH_CASES`` limits them to the names in it, one a line.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from amdwarp.bench.registry import Case, cases

_NAMES = os.environ.get("AMDWARP_BENCH_CASES", "").splitlines()
_CASES = [case for case in cases().values() if case.cpu is not None and (not _NAMES or case.name in _NAMES)]


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_host(case: Case, benchmark: Any) -> None:
    """Time a case; what it knows of its parts goes along."""
    assert case.cpu is not None
    work = case.cpu()
    try:
        benchmark.pedantic(work.call, rounds=work.rounds, iterations=work.iterations)
    finally:
        work.close()
    parts = {name: list(seconds) for name, seconds in work.parts().items()}
    benchmark.extra_info.update(case=case.name, metric=work.metric, amount=work.amount, parts=parts)
