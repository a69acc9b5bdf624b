"""The schema of results: what is written can be read, and no figure can claim another origin."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import bench_samples as samples
import pytest
from amdwarp.bench import schema
from amdwarp.bench.metrics import METRICS, get_metric, title
from hypothesis import given
from hypothesis import strategies as st

from amdwarp.errors import UsageError


def test_every_metric_has_one_source_and_units_of_time_are_never_modelled() -> None:
    for metric in METRICS.values():
        name = metric.name + ("x" if metric.name.endswith(".") else "")
        assert schema.problem(samples.row(name, 1.0)) == ""
        timed = metric.unit.endswith("/s") or metric.unit in ("s", "ms", "us", "ns")
        assert not (metric.source == "modelled" and timed)


@pytest.mark.parametrize("suffix", [".json", ".csv"])
def test_what_is_written_is_read(tmp_path: Path, suffix: str) -> None:
    rows = samples.many_rows()
    schema.write(rows, tmp_path / f"r{suffix}")
    assert schema.read(tmp_path / f"r{suffix}") == rows


@given(st.floats(min_value=0, allow_infinity=False, allow_nan=False), st.text(max_size=20))
def test_any_number_and_text_survive(tmp_path_factory: pytest.TempPathFactory, value: float, text: str) -> None:
    one = samples.row("kernel_clk", value, variant="v" + text.replace("\r", ""))
    folder = tmp_path_factory.mktemp("any")
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    for suffix in (".json", ".csv"):
        schema.write([one], folder / f"r{suffix}")
        assert schema.read(folder / f"r{suffix}") == [one]


@pytest.mark.parametrize(
    ("metric", "changes", "text"),
    [
        ("clk_per_iteration", {"unit": "TFLOP/s"}, "a modelled figure cannot be in TFLOP/s: nothing was timed"),
        ("tflops", {"source": "modelled"}, "a modelled figure cannot be in TFLOP/s"),
        ("time", {"source": "modelled"}, "a modelled figure cannot be in ms"),
        ("clk_per_iteration", {"parameters": ""}, "a modelled figure lacks its parameters"),
        ("clk_per_iteration", {"parameters": "none of these"}, "is no digest of parameters"),
        ("clk_per_iteration", {"calibrated": ""}, "a modelled figure lacks its calibrated"),
        ("clk_per_iteration", {"calibrated": "maybe"}, "neither yes nor no"),
        ("clk_per_iteration", {"target": "gfx1250"}, "there are no calibrated parameters of gfx1250"),
        ("clk_per_iteration", {"gpu": "MI355X"}, "a modelled figure cannot have gpu = 'MI355X'"),
        ("clk_per_iteration", {"rocm": "7.1"}, "a modelled figure cannot have rocm"),
        ("clk_per_iteration", {"cpu": "Test CPU"}, "a modelled figure cannot have cpu"),
        ("clk_per_iteration", {"source": "hardware"}, "metric 'clk_per_iteration' is modelled, not hardware"),
        ("mfma_busy", {"source": "cpu", "cpu": "x"}, "metric 'mfma_busy' is modelled, not cpu"),
        ("tflops", {"gpu": ""}, "a hardware figure lacks its gpu"),
        ("tflops", {"rocm": ""}, "a hardware figure lacks its rocm"),
        ("tflops", {"gpu": " "}, "a hardware figure lacks its gpu"),
        ("tflops", {"rocm": "none"}, "rocm 'none' is no version of ROCm"),
        ("tflops", {"target": ""}, "a hardware figure lacks its target"),
        ("tflops", {"parameters": samples.DIGEST}, "a hardware figure cannot have parameters"),
        ("vgprs", {"cpu": ""}, "a cpu figure lacks its cpu"),
        ("vgprs", {"source": "guess"}, "source 'guess' is none of hardware, modelled, cpu"),
        ("tflops", {"unit": "GFLOP/s"}, "metric 'tflops' is in TFLOP/s, not in 'GFLOP/s'"),
        ("tflops", {"metric": "speed"}, "unknown metric 'speed'"),
        ("tflops", {"p20": float("nan")}, "not finite"),
        ("tflops", {"p80": float("inf")}, "not finite"),
        ("tflops", {"p20": -1.0}, "not finite numbers of at least 0"),
        ("tflops", {"p20": 9.0}, "not in order"),
        ("tflops", {"kernel": ""}, "kernel is empty"),
        ("tflops", {"triton": ""}, "triton is empty"),
        ("tflops", {"kernel": " "}, "kernel is empty"),
        ("tflops", {"target": "gfx900"}, "target 'gfx900' is none of gfx942, gfx950, gfx1250"),
        ("tflops", {"shape": "4096,4096"}, "is not numbers with x"),
        ("tflops", {"commit": "HEAD"}, "is no commit"),
        ("tflops", {"time": "today"}, "is not ISO 8601"),
        ("tflops", {"time": "2026-01-01T00:00:00"}, "has no offset from UTC"),
    ],
)
def test_refused(tmp_path: Path, metric: str, changes: dict[str, Any], text: str) -> None:
    wrong = samples.row(metric, 2.0, **changes)
    assert text in schema.problem(wrong)
    with pytest.raises(UsageError, match=r"^row 2: "):
        schema.write([samples.row("vgprs", 1.0), wrong], tmp_path / "r.json")
    assert not (tmp_path / "r.json").exists()
    record = {name: getattr(wrong, name) for name in schema.FIELDS}
    good = dataclasses.asdict(samples.row("vgprs", 1.0))
    (tmp_path / "r.json").write_text(json.dumps({"format": 1, "rows": [good, record]}))
    with pytest.raises(UsageError, match=r"r\.json: row 2: "):
        schema.read(tmp_path / "r.json")


def test_a_commit_may_be_dirty_or_unknown_and_a_time_in_any_zone() -> None:
    for changes in ({"commit": ""}, {"commit": "a" * 40 + "-dirty"}, {"time": "2026-01-01T00:00:00Z"}, {"shape": ""}):
        assert schema.problem(samples.row("vgprs", 1.0, **changes)) == ""


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("r.txt", "", "is neither .json nor .csv"),
        ("r.json", "{", "no JSON"),
        ("r.json", "[]", "not a result file of format 1"),
        ("r.json", '{"format": 2, "rows": []}', "not a result file of format 1"),
        ("r.json", '{"format": 1, "rows": [{}]}', "row 1 has not exactly the fields"),
        ("r.json", '{"format": 1, "rows": [3]}', "row 1 has not exactly the fields"),
        ("r.csv", "a,b\n1,2\n", "the columns are not those of a result file"),
        ("r.csv", "", "the columns are not those of a result file"),
    ],
)
def test_no_result_file(tmp_path: Path, name: str, content: str, text: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=text):
        schema.read(tmp_path / name)


def test_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.json cannot be read: No such file"):
        schema.read(tmp_path / "none.json")
    (tmp_path / "r.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="it is not UTF-8"):
        schema.read(tmp_path / "r.csv")


@pytest.mark.parametrize(("name", "value"), [("p50", "fast"), ("p50", True), ("p50", None), ("kernel", 3)])
def test_fields_of_a_wrong_type(tmp_path: Path, name: str, value: Any) -> None:
    record = dataclasses.asdict(samples.row("vgprs", 1.0)) | {name: value}
    (tmp_path / "r.json").write_text(json.dumps({"format": 1, "rows": [record]}))
    with pytest.raises(UsageError, match=f"row 1: {name} = "):
        schema.read(tmp_path / "r.json")


def test_metric_families() -> None:
    assert get_metric("compile_time.ttgir").unit == "ms"
    assert title("compile_time.ttgir") == "Compile time: ttgir"
    for name in ("compile_time.", "compile_time", "tflops.x", "", "."):
        with pytest.raises(UsageError, match="unknown metric"):
            get_metric(name)
