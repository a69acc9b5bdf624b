"""The cpu cases under pytest-benchmark: ``pytest bench/host_benchmarks.py``, or through ``amdwarp bench run``."""

from __future__ import annotations

import time
from typing import Any

import pytest
from amdwarp.bench.registry import Case, cases

#: Cases whose seconds are those of the process on a core, so that other work on the machine matters little. The others
#: have part of their work elsewhere (the linker of a compilation), or take Triton's own times.
_PROCESS_TIME = ("emulator", "model")


def _params() -> list[Any]:
    clock = pytest.mark.benchmark(timer=time.process_time)
    chosen = [case for case in cases().values() if case.cpu is not None]
    return [pytest.param(one, id=one.name, marks=[clock] * (one.kernel in _PROCESS_TIME)) for one in chosen]


@pytest.mark.parametrize("case", _params())
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
