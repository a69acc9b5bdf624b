"""The GEMM as a typed schedule: numbers on three targets in each realisation, races, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from amdwarp.kernels.gemm import TASKS, WSGemmSchedule, matmul
from amdwarp.kernels.gemm.ws_schedule import WS_SCHEDULES

import amdwarp
from amdwarp.sanitizer import check
from amdwarp.verify import verify_gemm


@pytest.mark.parametrize("name", WS_SCHEDULES)
def test_verify(name: str) -> None:
    arch = name.rpartition("_")[2]
    for b_order in ("nk", "kn"):
        case = verify_gemm((200, 136, 328), arch=arch, schedule=name, b_order=b_order, workgroups=2)
        assert case.ok, case.problem
        assert case.schedule == name


@pytest.mark.slow
@pytest.mark.parametrize("loaders", [1, 2, 4])
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_fewer_waves_that_load(arch: str, loaders: int) -> None:
    schedule = replace(WS_SCHEDULES[f"ws_schedule_{arch}"], loaders=loaders)
    rng = np.random.default_rng(6)
    a = rng.standard_normal((200, 328)).astype(np.float16)
    for b in (rng.standard_normal((328, 136)), rng.standard_normal((136, 328)).T):
        with amdwarp.emulate(arch):
            c = matmul(a, b.astype(np.float16), schedule=schedule)
        np.testing.assert_allclose(
            c.astype(np.float32), a.astype(np.float32) @ b.astype(np.float16), rtol=2e-2, atol=4e-2
        )


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1250"])
def test_every_realisation_gives_the_same_bits(arch: str) -> None:
    rng = np.random.default_rng(5)
    for k in (8, 64, 200):
        a, b = rng.standard_normal((100, k), np.float32), rng.standard_normal((k, 120), np.float32)
        results = []
        for how in ("none", "pipeline", "tasks"):
            schedule = replace(WS_SCHEDULES[f"ws_schedule_{arch}"], realise=how)
            with amdwarp.emulate(arch):
                results.append(matmul(a.astype(np.float16), b.astype(np.float16), schedule=schedule))
        np.testing.assert_allclose(results[0].astype(np.float32), a @ b, rtol=2e-2, atol=2e-2)
        assert all(np.array_equal(results[0], one) for one in results[1:])


def launched(name: str, k: int) -> tuple[Any, list[Any]]:
    """The compiled kernel of a schedule, and arguments of one tile."""
    arch = name.rpartition("_")[2]
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((128, k)).astype(np.float16), rng.standard_normal((128, k)).astype(np.float16).T
    with amdwarp.emulate(arch, workgroups=1) as emulation:
        matmul(a, b, schedule=name)
    launch, compiled, _ = emulation.records[-1]
    names = [one for one in launch.kernel.arg_names if one in launch.args]
    values = [launch.args[one] for one in names]
    return compiled, [v for v in values if not (isinstance(v, int) and v == 1)]


@pytest.mark.slow
@pytest.mark.parametrize("name", WS_SCHEDULES)
def test_free_of_races_in_ten_orders(name: str) -> None:
    compiled, args = launched(name, 512)
    report = check(compiled, args, (1,), seeds=10)
    assert report.ok, "\n".join(map(str, report.findings))


def test_free_of_races() -> None:
    compiled, args = launched("ws_schedule_gfx950", 320)
    report = check(compiled, args, (1,), seeds=2)
    assert report.ok, "\n".join(map(str, report.findings))


def test_the_schedule_is_data() -> None:
    schedule = WS_SCHEDULES["ws_schedule_gfx950"]
    assert isinstance(schedule, WSGemmSchedule)
    typed = schedule.typed
    typed.check("gfx950")
    assert amdwarp.WSSchedule.from_json(typed.to_json()) == typed
    assert TASKS["ws_schedule_gfx950"] == schedule


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"realise": "waves"}, "realise = 'waves' is none of tasks, inter_wave, pipeline, none"),
        ({"loaders": 8}, "loaders = 8; lanes carry the copies, whose layouts are for at most 4 waves"),
        ({"ahead": 4}, "need a ring of more than 4 slots"),
    ],
)
def test_refused(changes: dict[str, Any], text: str) -> None:
    schedule = replace(WS_SCHEDULES["ws_schedule_gfx950"], **changes)
    with pytest.raises(amdwarp.UsageError, match=text):
        schedule.check("gfx950")


def test_no_schedule_of_this_name_on_another_arch() -> None:
    a = np.zeros((128, 64), np.float16)
    with amdwarp.emulate("gfx942"), pytest.raises(amdwarp.UsageError, match="made for gfx950, not for gfx942"):
        matmul(a, a.T, schedule=WS_SCHEDULES["ws_schedule_gfx950"])
