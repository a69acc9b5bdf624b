"""The cpu cases under pytest-benchmark: ``pytest bench/host_benchmarks.py``, or through ``amdwarp bench run``."""

from __future__ import annotations

from typing import Any

import pytest
from amdwarp.bench.registry import Case, cases

_CASES = [case for case in cases().values() if case.cpu is not None]


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
