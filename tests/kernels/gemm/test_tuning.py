"""Choice: what is kept, what is shipped, the rule, and compiling ahead on any executor."""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import Executor, Future

import numpy as np
import pytest
from amdwarp.kernels import gemm
from amdwarp.kernels.gemm import Job, PlainConfig, choice, tuning
from amdwarp.kernels.gemm.dispatch import recording
from amdwarp.kernels.gemm.tables import problems

import amdwarp
from amdwarp import UsageError, runtime
from amdwarp.target import TARGETS as KNOWN
from amdwarp.target import get_target

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AMDWARP_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def product(tune=False, m=4):
    a, b = np.ones((m, 64), np.float16), np.ones((64, 32), np.float16)
    with amdwarp.emulate("gfx950") as emulation:
        out = gemm.matmul(a, b, tune=tune)
    assert (out == 64).all()
    return emulation.records[0][0].constexprs["S"]


@pytest.fixture
def few(monkeypatch):
    """Two candidates only, of which the rule's is the second in the list."""
    slow, fast = PlainConfig(16, 16, 16, 1), PlainConfig(16, 32, 64, 2)
    monkeypatch.setattr(tuning, "candidates", lambda *_: [slow, fast])
    return fast


@pytest.mark.newest
def test_what_is_tuned_is_kept_and_used(few, folder):
    before = product()
    assert before != few
    assert product(tune=True) == few
    content = json.loads((folder / "gemm-gfx950.json").read_text())
    ((key, entry),) = content.items()
    assert "triton" in key and "package" in key and entry["how"].startswith("modelled, parameters ")
    assert product() == few and product(m=3) == few, "the same class"
    assert product(m=9) != few, "another class"
    tuning.forget()
    assert product() == before


def large(schedule=None, tune=False):
    a, b = np.ones((128, 64), np.float16), np.ones((64, 128), np.float16)
    with amdwarp.emulate("gfx950") as emulation:
        out = gemm.matmul(a, b, schedule=schedule, tune=tune)
    assert (out == 64).all()
    return emulation.records[0][0].constexprs["S"]


@pytest.mark.newest
def test_scheduled_kernels_are_tried_and_kept(folder, monkeypatch):
    slow = PlainConfig(16, 16, 16, 1, schedule="persistent", programs=1)
    scheduled, plain = gemm.SCHEDULES["inter_wave_256x128"], slow
    monkeypatch.setattr(tuning, "scheduled_candidates", lambda *_: [scheduled])
    monkeypatch.setattr(tuning, "candidates", lambda *_: [plain])
    assert large() == gemm.SCHEDULES["inter_wave_128"], "the rule"
    assert large(tune=True) == scheduled and large() == scheduled and large("auto") == scheduled
    (entry,) = json.loads((folder / "gemm-gfx950.json").read_text()).values()
    assert entry["schedule"] == "inter_wave_256x128"
    assert large("plain") != plain and large("plain", tune=True) == plain and large("plain") == plain
    assert large() == scheduled, "plain products have an entry of their own"


def test_every_legal_scheduled_kernel_is_a_candidate():
    for target, names in (
        ("gfx942", {"intra_wave_gfx942", "intra_wave_256_gfx942"}),
        ("gfx950", {"inter_wave_256", "inter_wave_256x128", "inter_wave_128", "intra_wave"}),
        ("gfx1250", set()),
    ):
        record = get_target(target)
        problem = capture(np.zeros((256, 64), np.float16), np.zeros((256, 64), np.float16).T, target, None)
        tried = tuning.all_candidates(problem, record, record.compute_units)
        assert {gemm.schedule_name(one) for one in tried if not isinstance(one, PlainConfig)} == names
        assert any(isinstance(one, PlainConfig) for one in tried)


def test_measuring_takes_the_fastest(monkeypatch):
    """With a stand-in for the GPU: launches move a clock, events read it."""
    torch = pytest.importorskip("torch")
    scheduled, parts = gemm.SCHEDULES["inter_wave_128"], PlainConfig(64, 64, 64, schedule="split_k", splits=2)
    clock = {"now": 0.0, scheduled: 5.0, parts: 3.0, "launches": 0}

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = clock["now"]

        def synchronize(self):
            pass

        def elapsed_time(self, other):
            return other.at - self.at

    def run(launch):
        clock["now"] += clock[launch.constexprs["S"]]
        clock["launches"] += 1

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(runtime, "run", run)
    a, b = torch.zeros(128, 128, dtype=torch.float16), torch.zeros(128, 128, dtype=torch.float16)
    with amdwarp.emulate("gfx950"), recording() as found:
        gemm.matmul(a, b)
    best, microseconds = tuning.measure(found[0], get_target("gfx950"), 256, [scheduled, parts])
    assert (best, microseconds) == (scheduled, 5000.0), "two launches of 3 are slower than one of 5"
    assert clock["launches"] == 13 + 26


@pytest.mark.newest
def test_another_package_or_a_broken_file_is_not_used(few, folder, monkeypatch):
    product(tune=True)
    with monkeypatch.context() as patched:
        patched.setattr(tuning, "source_digest", lambda: "another")
        assert product() != few
    (folder / "gemm-gfx950.json").write_text("{")
    assert product() != few
    (folder / "gemm-gfx950.json").write_text('{"x": 1}')
    assert product() != few


def test_a_folder_that_cannot_be_written(few, folder):
    folder.write_text("a file")
    with pytest.raises(UsageError, match=r"cannot be used: .*; set AMDWARP_CACHE_DIR to a folder that can be written"):
        product(tune=True)


def test_nothing_that_can_be_modelled():
    (problem, *_) = problems("gfx950")
    with pytest.raises(amdwarp.AmdwarpError, match=r"no candidate could be modelled: .*accumulator registers"):
        tuning.rank(problem, get_target("gfx950"), 256, configs=[PlainConfig(256, 256, 64, 1)])


TABLES = sorted(path.stem for path in tuning.TABLES.glob("*.json"))


@pytest.mark.parametrize("target", TABLES)
def test_shipped_tables_are_legal_and_say_how_they_were_made(target):
    table = json.loads((tuning.TABLES / f"{target}.json").read_text())
    assert table["made"]["how"] == "modelled" and table["made"]["command"].endswith(target)
    assert len(table["made"]["parameters"]) == 12 and type(table["made"]["calibrated"]) is bool
    record, found = get_target(target), 0
    for problem in problems(target):
        entry = table["entries"][tuning.product_class(problem)]
        assert tuning.shipped(problem, record) == PlainConfig(**entry["config"])
        assert entry["clk"] > 0
        assert tuning.choose_config(problem, record, record.compute_units) == PlainConfig(**entry["config"])
        found += 1
    assert found == len(table["entries"])


def test_every_target_has_a_table():
    assert sorted(KNOWN) == TABLES


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "gfx1250"])
def test_the_rule_is_legal_for_every_shape(target):
    record = get_target(target)
    for shape in [(1, 1, 1), (1, 8192, 8192), (64, 32, 8), (5000, 5000, 100), (100000, 16, 100000)]:
        m, n, k = shape
        for dtype in (np.float16, np.float32):
            a, b = np.broadcast_to(dtype(0), (m, k)), np.broadcast_to(dtype(0), (k, n))
            problem = capture(a, b, target)
            chosen = choice.choose_plain(problem, record, record.compute_units)
            assert chosen.constraints(record, problem) == []


def capture(a, b, target, schedule="plain"):
    with amdwarp.emulate(target), recording() as found:
        gemm.matmul(a, b, schedule=schedule, out=np.broadcast_to(a.dtype.type(0), (a.shape[0], b.shape[1])).copy())
    return found[0]


# ---- ahead


class Inline(Executor):
    """Runs at once, in this process."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


JOBS = [Job.of(1, 64, 512, "float16", "gfx950"), Job.of(8, 64, 64, "bfloat16", "gfx942", bias=True, activation="silu")]


def test_compiling_ahead_runs_nothing_and_says_what_it_takes(capsys):
    made = gemm.compile_ahead(JOBS, executor=Inline())
    assert [made[0].job, made[-1].job] == JOBS and all(one.job in JOBS for one in made)
    assert all(one.schedule.startswith("plain") and one.spills == 0 and one.vgprs > 0 for one in made)
    assert "2/2" in capsys.readouterr().out


def test_a_job_that_is_refused_says_why():
    with pytest.raises(UsageError, match="there is no function 'conv'"):
        gemm.compile_ahead([Job("conv", "gfx950", {})], executor=Inline())
    with pytest.raises(UsageError, match="activation = 'tanh' is not known"):
        gemm.compile_ahead(
            [Job.of(1, 16, 16, "float16", "gfx950", activation="tanh")], executor=Inline(), progress=False
        )


@pytest.mark.slow
def test_processes_of_this_machine():
    assert all(one.job in JOBS for one in gemm.compile_ahead(JOBS, progress=False))


def test_a_dask_cluster():
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        made = gemm.compile_ahead(JOBS[:1], executor=client.get_executor(), progress=False)
    assert made and all(one.job == JOBS[0] for one in made)
