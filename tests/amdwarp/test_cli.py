"""The command line: results, exit codes, and one line for each kind of wrong input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from amdwarp import cli


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        cli.main(list(argv))
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out, captured.err


def test_json_of_a_good_case(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(
        capsys, "verify", "gemm", "--shape", "130,70,100", "--dtype", "bf16", "--workgroups", "all", "--json"
    )
    report = json.loads(out)
    assert code == 0 and err == "" and report["ok"] is True
    (case,) = report["cases"]
    assert case["shape"] == [130, 70, 100] and case["dtype"] == "bf16" and case["arch"] == "gfx950"
    assert case["workgroups"] == 2 and case["spills"] == 0 and case["ok"] is True
    assert 0 < case["rel_error"] < 2.0**-8 and case["vgprs"] > 0 and case["lds_bytes"] > 0 and case["seconds"] > 0
    assert set(case) >= {"shape", "dtype", "arch", "schedule", "workgroups", "rel_error", "vgprs", "spills"}


def test_table_of_a_good_case_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "verify", "gemm", "--shape", "64,64,64", "--dtype", "fp16")
    assert code == 0
    assert "64,64,64" in out and "inter_wave_128" in out and "computed by the emulator" in out and "ok" in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_failing_case_exits_1(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from amdwarp import verify

    monkeypatch.setattr(verify, "error_bound", lambda dtype, k: 1e-9)
    code, out, _ = run(capsys, "verify", "gemm", "--shape", "64,64,64", "--dtype", "fp16")
    assert code == 1
    assert "FAILED" in out and "exceeds the bound 1e-09" in out


WRONG = [
    (["verify", "gemm", "--arch", "gfx90a"], "unknown arch 'gfx90a'; use one of gfx942, gfx950, gfx1250"),
    (["verify", "gemm", "--arch", "gfx942", "--shape", "64,64,64"], "gfx942"),
    (["verify", "gemm", "--dtype", "fp8"], "unknown dtype 'fp8'; use one of fp16, bf16"),
    (["verify", "gemm", "--shape", "0,64,64"], "each at least 1"),
    (["verify", "gemm", "--shape", "64,64"], "is not M,N,K"),
    (["verify", "gemm", "--shape", "64,64,x"], "is not M,N,K"),
    (["verify", "gemm", "--schedule", "nope", "--shape", "64,64,64"], "there is no schedule 'nope'"),
    (["verify", "gemm", "--workgroups", "0"], "a positive number or all"),
    (["verify", "gemm", "--workgroups", "some"], "a positive number or all"),
    (["verify", "gemm", "--b-order", "row"], "use nk or kn"),
    (["verify", "gemm", "--a", "a.npy"], "--a and --b go together"),
    (["verify", "gemm", "--nope"], "No such option: --nope"),
    (["verify", "attention"], "unknown kernel 'attention'; use gemm"),
    (["verify"], "Missing argument"),
    (["nope"], "No such command 'nope'"),
]


@pytest.mark.parametrize(("argv", "text"), WRONG, ids=[" ".join(argv) for argv, _ in WRONG])
def test_wrong_input_is_one_line_and_exit_2(
    argv: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *argv)
    assert code == 2 and out == ""
    assert err.startswith("amdwarp: ") and len(err.strip().splitlines()) == 1
    assert text in err


def test_inputs_from_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(1)
    np.save(tmp_path / "a.npy", rng.standard_normal((33, 40)))
    np.save(tmp_path / "b.npy", rng.standard_normal((40, 50)))
    a, b = str(tmp_path / "a.npy"), str(tmp_path / "b.npy")
    code, out, _ = run(capsys, "verify", "gemm", "--a", a, "--b", b, "--dtype", "fp16", "--json")
    assert code == 0 and json.loads(out)["cases"][0]["shape"] == [33, 50, 40]


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (np.full((4, 4), np.nan), np.ones((4, 4)), "A holds NaN, which no norm can compare"),
        (np.ones((4, 5)), np.ones((4, 4)), "K differs: A is [4, 5], B is [4, 4]"),
        (np.ones(4), np.ones((4, 4)), "give a matrix of numbers"),
        (np.ones((0, 4)), np.ones((4, 4)), "give a matrix of numbers"),
        (None, np.ones((4, 4)), "A cannot be read"),
    ],
)
def test_bad_input_files(
    a: np.ndarray | None, b: np.ndarray, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if a is None:
        (tmp_path / "a.npy").write_bytes(b"not an array")
    else:
        np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    code, _, err = run(capsys, "verify", "gemm", "--a", str(tmp_path / "a.npy"), "--b", str(tmp_path / "b.npy"))
    assert code == 2 and text in err and len(err.strip().splitlines()) == 1


def child(source: str, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", source, *argv], capture_output=True, text=True, timeout=120)


HIDE_TRITON = """
import importlib.util, sys
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "triton" else real(name, *rest)
from amdwarp.cli import main
main(["verify", "gemm", "--shape", "64,64,64"])
"""
OLD_TRITON = """
import importlib.metadata
real = importlib.metadata.version
importlib.metadata.version = lambda name: "3.2.0" if name == "triton" else real(name)
from amdwarp.cli import main
main(["verify", "gemm", "--shape", "64,64,64"])
"""


@pytest.mark.parametrize(("source", "text"), [(HIDE_TRITON, "no Triton is installed"), (OLD_TRITON, "Triton 3.2.0")])
def test_missing_and_unsupported_triton(source: str, text: str) -> None:
    done = child(source)
    assert done.returncode == 2, done.stderr
    assert text in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_import_needs_neither_torch_nor_triton() -> None:
    done = child(
        "import sys, amdwarp, amdwarp.cli, amdwarp.kernels.gemm, amdwarp.lowering\n"
        "print([name for name in ('torch', 'triton') if name in sys.modules])"
    )
    assert done.stdout.strip() == "[]", done.stderr
