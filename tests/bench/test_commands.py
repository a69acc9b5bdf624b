"""``amdwarp bench``: what it prints, and one line and exit code 2 for what it cannot take."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import bench_samples as samples
import pytest
from amdwarp.bench import commands, machine, registry
from amdwarp.bench.machine import Machine
from amdwarp.bench.registry import Case, Modelled
from amdwarp.bench.schema import read, write

from amdwarp.cli import main
from amdwarp.errors import EmulatorError


def call(*words: str) -> int:
    """Exit code of the command."""
    with pytest.raises(SystemExit) as end:
        main(["bench", *words])
    return int(end.value.code or 0)


@pytest.fixture
def two_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cases, of which one fails, on a machine without a GPU."""

    def fail() -> Modelled:
        raise EmulatorError("line one\nline two")

    good = Modelled(samples.DIGEST, False, {"kernel_clk": 1234.0}, {"vgprs": 100.0})
    made = [
        Case("gemm", "good", "1x2x3", "fp16", "gfx1250", modelled=lambda: good),
        Case("gemm", "bad", "1x2x3", "fp16", "gfx950", modelled=fail),
        Case("gemm", "torch", "1x2x3", "fp16", "gfx950", hardware=lambda: None),  # type: ignore[arg-type,return-value]
    ]
    monkeypatch.setattr(registry, "cases", lambda: {case.name: case for case in made})
    here = Machine("3.9.0", "0.1.0", "", "2026-01-01T00:00:00+00:00", "Test CPU", None)
    monkeypatch.setattr(machine, "this_machine", lambda: here)


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("list", "gemm/inter_wave_256/4096x4096x4096/fp16", "compile/inter_wave_128") == 0
    assert capsys.readouterr().out.splitlines() == [
        "gemm/inter_wave_256/4096x4096x4096/fp16/gfx950  hardware, modelled",
        "compile/inter_wave_128/fp16/gfx950  cpu",
    ]


@pytest.mark.usefixtures("two_cases")
def test_run_writes_and_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("r.json", "r.csv"):
        assert call("run", "gemm/good", "-o", str(tmp_path / name)) == 0
        rows = read(tmp_path / name)
        assert [(row.metric, row.p50, row.source, row.calibrated) for row in rows] == [
            ("kernel_clk", 1234.0, "modelled", "no"),
            ("vgprs", 100.0, "cpu", ""),
        ]
    output = capsys.readouterr()
    assert "1/1 gemm/good/1x2x3/fp16/gfx1250: modelled" in output.err
    line = next(line for line in output.out.splitlines() if "kernel_clk" in line)
    assert "1234" in line and "clk" in line and line.rstrip().endswith("modelled, not measured, uncalibrated")


@pytest.mark.usefixtures("two_cases")
def test_run_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", "-o", str(tmp_path / "r.json")) == 1
    error = capsys.readouterr().err
    assert "gemm/bad/1x2x3/fp16/gfx950: no modelled figure: line one line two" in error
    assert len(read(tmp_path / "r.json")) == 2


#: ``amdwarp bench run`` on a case that is done at once and one that says so and goes on and on.
SLOW_RUN = """
import sys, time
sys.path.insert(0, {folder!r})
import bench_samples as samples
from amdwarp.bench import machine, registry
from amdwarp.bench.machine import Machine
from amdwarp.bench.registry import Case, Modelled
from amdwarp.cli import main

def slow():
    print("slow", file=sys.stderr, flush=True)
    time.sleep(300)

quick = Modelled(samples.DIGEST, True, {{"kernel_clk": 1234.0}}, {{}})
made = [Case("gemm", name, "", "fp16", "gfx950", modelled=work) for name, work in (("a", lambda: quick), ("b", slow))]
registry.cases = lambda: {{case.name: case for case in made}}
machine.this_machine = lambda: Machine("3.9.0", "0.1.0", "", "2026-01-01T00:00:00+00:00", "Test CPU", None)
main(["bench", "run", *sys.argv[1:]])
"""


@pytest.mark.parametrize("output", ["r.json", "r.csv", ""])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_a_run_that_is_broken_off_keeps_what_it_has(tmp_path: Path, output: str, number: signal.Signals) -> None:
    words = ["-o", str(tmp_path / output)] if output else []
    command = [sys.executable, "-c", SLOW_RUN.format(folder=str(Path(__file__).parent)), *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as run:
        assert run.stderr is not None
        while (line := run.stderr.readline()) != "slow\n":
            assert line, "it ended before the second case"
        run.send_signal(number)
        said, error = run.communicate(timeout=120)
    if output:
        assert [(row.variant, row.p50) for row in read(tmp_path / output)] == [("a", 1234.0)]
        assert [file.name for file in tmp_path.iterdir()] == [output]
    if number == signal.SIGINT:
        assert run.returncode == 130 and "Traceback" not in error and "1234" in said
        place = str(tmp_path / output) if output else "no file"
        assert "".join(f"broken off; 1 figures so far, in {place}".split()) in "".join(error.split())


@pytest.mark.usefixtures("two_cases")
def test_a_run_without_a_figure_leaves_the_file_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write([samples.row("kernel_clk", 5.0)], tmp_path / "r.json")
    assert call("run", "gemm/bad", "-o", str(tmp_path / "r.json"), "--replace") == 1
    assert read(tmp_path / "r.json")[0].p50 == 5.0
    assert "no figures:" in capsys.readouterr().err


@pytest.mark.usefixtures("two_cases")
@pytest.mark.parametrize("name", ["r.json", "r.csv"])
def test_a_file_that_is_there_is_kept_unless_told(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / name)
    write([samples.row("kernel_clk", 5.0)], file)
    assert call("run", "gemm/good", "-o", file) == 2
    assert f"{file} is there already; --append adds to its figures, --replace drops them" in capsys.readouterr().err
    assert [row.p50 for row in read(file)] == [5.0]
    assert call("run", "gemm/good", "-o", file, "--append") == 0
    assert [row.p50 for row in read(file)] == [5.0, 1234.0, 100.0]
    assert call("run", "gemm/good", "-o", file, "--replace") == 0
    assert [row.p50 for row in read(file)] == [1234.0, 100.0]


@pytest.mark.usefixtures("two_cases")
def test_nothing_is_appended_to_what_is_no_result_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.json"
    file.write_text("my notes")
    assert call("run", "gemm/good", "-o", str(file), "--append") == 2
    assert file.read_text() == "my notes" and str(file) in capsys.readouterr().err


@pytest.mark.usefixtures("two_cases")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["run", "nothing"], "no case matches 'nothing'; amdwarp bench list shows them"),
        (["list", "nothing"], "no case matches 'nothing'"),
        (["run", "--source", "guess"], "unknown source 'guess'; use one of hardware, modelled, cpu"),
        (["run", "--source", "hardware"], "there is no GPU to measure on"),
        (["run", "gemm/torch"], "none of these cases can run here"),
        (["run", "-o", "r.txt"], "r.txt is neither .json nor .csv"),
        (["run", "-o", "/nowhere/r.json"], "/nowhere is no folder"),
        (["run", "--append"], "--append says nothing without a file; add -o FILE"),
        (["run", "-o", "r.json", "--append", "--replace"], "--append and --replace are both given"),
        (["run", "--nonsense"], "--nonsense"),
        (["report"], "argument"),
        (["peers", "--shape", "1"], "shape '1' is not M,N,K"),
        (["peers", "--target", "gfx90a"], "unknown target 'gfx90a'; use one of gfx942, gfx950, gfx1250"),
        (["report", "none.json"], "none.json cannot be read: No such file or directory"),
        (["report", "none.xml"], "none.xml is neither .json nor .csv"),
    ],
)
def test_bad_words(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*words) == 2
    error = capsys.readouterr().err
    assert text.lower() in error.lower() and error.count("\n") == 1 and error.startswith("amdwarp: ")


def test_without_a_word_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert call() == 2
    output = capsys.readouterr()
    assert "report" in output.out + output.err and "amdwarp: ;" not in output.err


def test_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    write([samples.row("kernel_clk", 5.0)], tmp_path / "a.json")
    write([samples.row("vgprs", 7.0), samples.row("tflops", 9.0)], tmp_path / "b.csv")
    assert call("report", str(tmp_path / "a.json"), str(tmp_path / "b.csv"), "-o", str(tmp_path / "site")) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "3 figures (1 modelled, not measured, 1 measured on this machine's CPU, 1 measured on a GPU)" in said
    assert {file.name for file in (tmp_path / "site").iterdir()} == {"index.html", "plotly.min.js"}


def test_report_refuses_json_without_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text("[" * 100_000)
    assert call("report", str(tmp_path / "a.json"), "-o", str(tmp_path / "site")) == 2
    assert "a.json: no JSON: " in capsys.readouterr().err


def test_report_refuses_a_forged_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write([samples.row("kernel_clk", 5.0)], tmp_path / "a.json")
    text = (tmp_path / "a.json").read_text().replace('"unit": "clk"', '"unit": "TFLOP/s"')
    (tmp_path / "a.json").write_text(text)
    assert call("report", str(tmp_path / "a.json"), "-o", str(tmp_path / "site")) == 2
    assert "a.json: row 1: a modelled figure cannot be in TFLOP/s: nothing was timed" in capsys.readouterr().err
    assert not (tmp_path / "site").exists()


def test_the_command_starts_without_the_optional_packages() -> None:
    code = "import sys, amdwarp.bench.commands; print({'plotly', 'torch', 'triton', 'pytest'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n" and commands.app is not None
