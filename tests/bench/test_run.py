"""Running cases: which source is taken where, what is refused, and that the figures are those that were obtained."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bench_samples as samples
import numpy as np
import pytest
from amdwarp.bench import machine as machines
from amdwarp.bench import run as runner
from amdwarp.bench.machine import Gpu, Machine
from amdwarp.bench.registry import Case, GpuWork, HostWork, Modelled, cases, select
from amdwarp.bench.rows import hardware_rows, host_row, percentiles
from amdwarp.bench.schema import Row

from amdwarp.errors import EmulatorError, UsageError

MI355X = Gpu("gfx950", "AMD Instinct MI355X", "7.1.0")
HERE = Machine("3.9.0", "0.1.0", "", "2026-01-01T00:00:00+00:00", "Test CPU", None)
NODE = Machine("3.9.0", "0.1.0", "", "2026-01-01T00:00:00+00:00", "Test CPU", MI355X)


def modelled() -> Modelled:
    return Modelled(samples.DIGEST, True, {"kernel_clk": 1000.0}, {"vgprs": 100.0})


def gpu_work(wrong: str = "") -> GpuWork:
    return GpuWork(lambda: None, 2e9, lambda: wrong)


def case(**changes: Any) -> Case:
    """A case with made-up figures."""
    common = {"variant": "v", "modelled": modelled, "hardware": gpu_work}
    return Case("gemm", shape="1x2x3", dtype="fp16", target="gfx950", **common | changes)


# Registry


def test_every_case_has_a_source_and_a_baseline_beside_it() -> None:

    known = cases()
    assert all(case.sources and case.name == name for name, case in known.items())
    own = [one for one in known.values() if one.kernel == "gemm" and not one.baseline]
    assert own
    for one in own:
        beside = [
            other
            for other in known.values()
            if other.baseline and other.name.endswith(f"/{one.shape}/{one.dtype}/{one.target}")
        ]
        assert {"torch", "stock", "stock_pingpong_off", "stock_pingpong_on"} <= {other.variant for other in beside}
    assert {one.kernel for one in known.values() if one.cpu} == {"compile", "passes", "launch", "emulator", "model"}


def test_selection() -> None:
    assert len(select([])) == len(cases())
    assert {one.kernel for one in select(["compile"])} == {"compile"}
    chosen = select(["gemm/torch/*/bf16/gfx942", "gemm/torch/4096x4096x4096"])
    assert {one.variant for one in chosen} == {"torch"} and len(chosen) == 3 + 4 - 1
    with pytest.raises(UsageError, match="no case matches 'compil'; amdwarp bench list"):
        select(["compile", "compil"])


# Sources


def test_which_source_is_taken() -> None:
    other = Gpu("gfx942", "AMD Instinct MI300X", "7.1.0")
    for gpu, wanted, expected in (
        (None, [], ["modelled"]),
        (MI355X, [], ["hardware"]),
        (other, [], ["modelled"]),
        (MI355X, ["modelled"], ["modelled"]),
        (MI355X, ["hardware", "modelled"], ["hardware", "modelled"]),
        (other, ["hardware"], []),
        (None, ["cpu"], []),
    ):
        assert runner.sources_for(case(), gpu, wanted) == expected
    assert runner.sources_for(case(modelled=None), None, []) == []
    assert runner.sources_for(case(cpu=lambda: HostWork(lambda: None, "pass_time.x")), None, []) == ["modelled", "cpu"]


def test_hardware_asked_for_where_there_is_none() -> None:
    with pytest.raises(UsageError, match=r"there is no GPU to measure on: .*leave out --source hardware"):
        runner.run_cases([case()], HERE, ["hardware"])


def test_a_case_that_fails_does_not_stop_the_others() -> None:
    def fail() -> Modelled:
        raise EmulatorError("an instruction is not known")

    said: list[str] = []
    results = runner.run_cases([case(variant="bad", modelled=fail), case()], HERE, say=said.append)
    assert results.missing == [("gemm/bad/1x2x3/fp16/gfx950", "modelled", "an instruction is not known")]
    assert [(row.metric, row.source, row.parameters) for row in results.rows] == [
        ("kernel_clk", "modelled", samples.DIGEST),
        ("vgprs", "cpu", ""),
    ]
    assert said == ["gemm/bad/1x2x3/fp16/gfx950: modelled", "gemm/v/1x2x3/fp16/gfx950: modelled"]


# Hardware, on a clock of the test's own


def test_hardware_rows() -> None:
    calls: list[Any] = []

    def bench(call: Any, quantiles: list[float]) -> list[float]:
        calls.append(call)
        assert quantiles == [0.2, 0.5, 0.8]
        return [1.0, 2.0, 4.0]

    time, rate = runner._hardware(case(), NODE, bench)
    assert (time.metric, time.unit, time.p20, time.p50, time.p80) == ("time", "ms", 1.0, 2.0, 4.0)
    assert (rate.unit, rate.p20, rate.p50, rate.p80) == ("TFLOP/s", 2e9 / 4e9, 2e9 / 2e9, 2e9 / 1e9)
    assert rate.gpu == MI355X.name and rate.rocm == "7.1.0" and not rate.parameters and rate.source == "hardware"
    assert len(calls) == 1
    assert hardware_rows(case(), NODE, MI355X, (1.0, 1.0, 1.0), 2e9)[1].p50 == 2.0


def test_a_wrong_result_is_not_timed() -> None:
    results = runner.run_cases([case(hardware=lambda: gpu_work("it is off by 3"))], NODE)
    assert not results.rows
    assert results.missing[0][2] == "its result is wrong, so it was not timed: it is off by 3"


def test_an_error_of_the_gpu_does_not_stop_the_others() -> None:
    def fail() -> GpuWork:
        raise RuntimeError("out of memory")

    results = runner.run_cases([case(hardware=fail)], NODE)
    assert results.missing == [("gemm/v/1x2x3/fp16/gfx950", "hardware", "RuntimeError: out of memory")]


def test_triton_takes_the_quantiles() -> None:
    testing = pytest.importorskip("triton.testing")
    assert "quantiles" in inspect.signature(testing.do_bench).parameters


def test_products_on_tensors() -> None:
    torch = pytest.importorskip("torch")
    from amdwarp.bench.cases import gemm

    import amdwarp

    work = gemm.gpu_work(gemm.run_torch, (64, 48, 32), "bf16", "cpu")
    work.call()
    assert work.check() == "" and work.flops == 2.0 * 64 * 48 * 32
    with amdwarp.emulate("gfx950"):
        own = gemm.gpu_work(lambda a, b, c: gemm.run_own("inter_wave_128", a, b, c), (128, 128, 64), "fp16", "cpu")
        own.call()
    assert own.check() == ""
    none = gemm.gpu_work(lambda a, b, c: c.zero_(), (64, 48, 32), "fp16", "cpu")
    none.call()
    assert none.check() == "it differs from torch.matmul by 1"
    nan = gemm.gpu_work(lambda a, b, c: c.fill_(float("nan")), (64, 48, 32), "fp16", "cpu")
    nan.call()
    assert nan.check() and torch is not None


def test_stock_kernel_is_tuned_and_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from amdwarp.bench.cases import gemm
    from amdwarp.bench.peers import tune
    from amdwarp.bench.peers.kernel import Config
    from amdwarp.bench.stand_in import stand_in

    configs = (Config(64, 64, 32, 4, 2, 16), Config(128, 64, 32, 4, 2, 16))
    monkeypatch.setattr(tune, "space", lambda *_: configs)
    gemm._autotuned.cache_clear()
    a, b, c = gemm.operands((256, 128, 64), "fp16", "cpu")
    timed: list[float] = []

    def bench(call: Any, quantiles: Any) -> list[float]:
        call()
        timed.append(3.0 - len(timed))  # the second one is the faster
        return [timed[-1]] * 3

    with stand_in("gfx950", keep=True) as driver:
        monkeypatch.setattr(driver, "get_benchmarker", lambda: bench, raising=False)
        gemm.run_stock("stock", "gfx950", a, b, c)
    gemm._autotuned.cache_clear()
    assert len(timed) == 2 and [launch[0] for launch in driver.launches] == [4 * 2, 2 * 2, 2 * 2]
    assert all(any(value is c for value in launch) for launch in driver.launches)


def test_which_gpu() -> None:
    def torch(hip: str | None, found: bool, arch: str) -> Any:
        properties = SimpleNamespace(gcnArchName=arch, name="AMD Instinct MI300X")
        cuda = SimpleNamespace(is_available=lambda: found, get_device_properties=lambda device: properties)
        return SimpleNamespace(version=SimpleNamespace(hip=hip), cuda=cuda)

    assert machines.gpu_of(torch("7.1", True, "gfx942:sramecc+:xnack-"))[0] == Gpu(
        "gfx942", "AMD Instinct MI300X", "7.1"
    )
    assert machines.gpu_of(torch(None, True, "gfx942")) == (None, "this torch is not a ROCm build")
    assert machines.gpu_of(torch("7.1", False, "gfx942")) == (None, "torch finds no GPU")
    assert (
        machines.gpu_of(torch("7.1", True, "gfx1100"))[1] == "the GPU is a gfx1100, not one of gfx942, gfx950, gfx1250"
    )


def test_commit(tmp_path: Path) -> None:
    assert machines.commit(tmp_path) == ""


# Host


def test_host_figures() -> None:
    assert percentiles([1, 2, 3, 4, 5, 6]) == tuple(np.percentile([1, 2, 3, 4, 5, 6], [20, 50, 80]))
    slow = host_row(case(), HERE, "compile_time.total", [0.1, 0.2, 0.3], None)
    assert (slow.unit, slow.p50, slow.source, slow.cpu) == ("ms", 200.0, "cpu", "Test CPU")
    rate = host_row(case(), HERE, "model_throughput", [0.5, 0.5], 1000.0)
    assert (rate.p20, rate.p80) == (2000.0, 2000.0)


def test_pytest_benchmark_runs_a_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")
    monkeypatch.chdir(tmp_path)
    from amdwarp.lowering.passes import SCHEDULE

    results = runner.run_cases(select(["passes/inter_wave_128"]), HERE)
    assert results.missing == [] and not list(tmp_path.iterdir())
    found = {row.metric: row for row in results.rows}
    parts = [one.name for one in SCHEDULE]
    assert found.keys() == {f"pass_time.{part}" for part in ("parse_and_all", *parts)}
    assert sum(found[f"pass_time.{part}"].p20 for part in parts) < found["pass_time.parse_and_all"].p80
    assert all(0 < row.p20 <= row.p50 <= row.p80 and row.source == "cpu" for row in results.rows)


def test_a_case_that_breaks_in_pytest_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")
    done = SimpleNamespace(returncode=1, stdout="lines\nE   EmulatorError: it broke\n1 failed\n", stderr="")
    monkeypatch.setattr(runner.subprocess, "run", lambda *words, **others: done)
    results = runner.run_cases([case(modelled=None, cpu=lambda: HostWork(lambda: None, "pass_time.x"))], HERE)
    assert results.missing == [("gemm/v/1x2x3/fp16/gfx950", "cpu", "pytest ended with 1: EmulatorError: it broke")]


def test_without_pytest_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util as util

    monkeypatch.setattr(util, "find_spec", lambda name, *rest: None)
    with pytest.raises(UsageError, match=r'pytest is not installed; pip install "amdwarp\[bench\]"'):
        runner.run_cases([case(modelled=None, cpu=lambda: HostWork(lambda: None, "pass_time.x"))], HERE)


def test_launches_reach_the_stand_in_driver() -> None:
    pytest.importorskip("torch")
    from amdwarp.bench.cases.host import launch_work
    from triton.runtime import driver

    before = driver._active
    work = launch_work("inter_wave_128")
    work.call()
    work.close()
    assert driver._active is before
    parts = work.parts()
    assert set(parts) == {"launch_overhead.plan", "launch_overhead.triton"} and len(parts["launch_overhead.plan"]) == 1


# A run that is broken off


def test_rows_are_handed_over_after_each_case() -> None:
    seen: list[list[str]] = []

    def keep(rows: Sequence[Row]) -> None:
        seen.append([f"{row.variant} {row.metric}" for row in rows])

    def interrupt() -> Modelled:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run_cases([case(), case(variant="w"), case(variant="x", modelled=interrupt), case()], HERE, keep=keep)
    first = ["v kernel_clk", "v vgprs"]
    assert seen == [first, [*first, "w kernel_clk", "w vgprs"]]


def test_a_fault_of_stock_triton_does_not_stop_the_others() -> None:
    def fail() -> Modelled:
        raise RuntimeError("PassManager::run failed")

    results = runner.run_cases([case(variant="bad", modelled=fail), case()], HERE)
    assert results.missing == [("gemm/bad/1x2x3/fp16/gfx950", "modelled", "RuntimeError: PassManager::run failed")]
    assert len(results.rows) == 2
