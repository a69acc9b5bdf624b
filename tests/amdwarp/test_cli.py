"""The command line: results, exit codes, and one line for each kind of wrong input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import typer

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


def test_attention(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("--shape", "20,33,32", "--arch", "gfx942", "--dtype", "fp16", "--workgroups", "2")
    code, out, _ = run(capsys, "verify", "attention_causal", *argv)
    assert code == 0 and "attention_causal on gfx942: computed by the emulator, reference in float64" in out
    assert "20,33,32" in out and "plain" in out and max(map(len, out.splitlines())) <= 80
    code, out, _ = run(capsys, "verify", "attention", *argv, "--json")
    (case,) = json.loads(out)["cases"]
    assert code == 0 and case["kernel"] == "attention" and case["shape"] == [20, 33, 32] and case["workgroups"] == 2
    assert 0 < case["rel_error"] < 1e-3


def test_a_failing_case_exits_1(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from amdwarp import verify

    monkeypatch.setattr(verify, "error_bound", lambda dtype, k: 1e-9)
    code, out, _ = run(capsys, "verify", "gemm", "--shape", "64,64,64", "--dtype", "fp16")
    assert code == 1
    assert "FAILED" in out and "exceeds the bound 1e-09" in out


WRONG = [
    (["verify", "gemm", "--arch", "gfx90a"], "unknown arch 'gfx90a'; use one of gfx942, gfx950, gfx1250"),
    (["verify", "gemm", "--dtype", "fp8"], "unknown dtype 'fp8'; use one of fp16, bf16"),
    (["verify", "gemm", "--shape", "0,64,64"], "each at least 1"),
    (["verify", "gemm", "--shape", "64,64"], "is not M,N,K"),
    (["verify", "gemm", "--shape", "64,64,x"], "is not M,N,K"),
    (["verify", "gemm", "--schedule", "nope", "--shape", "64,64,64"], "there is no schedule 'nope'"),
    (["verify", "sort"], "unknown kernel 'sort'; use gemm or attention or attention_causal"),
    (["verify", "attention", "--shape", "64,64"], "is not rows,keys,head dim"),
    (["verify", "attention", "--shape", "0,64,64"], "is no attention"),
    (["verify", "attention", "--shape", "64,-1,64"], "is no attention"),
    (["verify", "attention", "--shape", "64,64,65"], "has heads of 65 elements"),
    (["verify", "attention", "--shape", "20000000,64,64"], "GiB of memory, and this machine has"),
    (["verify", "attention", "--b-order", "nk"], "--b-order are for a product"),
    (["verify", "attention", "--schedule", "nope", "--shape", "64,64,64"], "schedule is 'nope'"),
    (["verify", "attention", "--schedule", "tasks", "--shape", "64,64,64"], "made for gfx1250, not for gfx950"),
    (["verify", "attention", "--dtype", "fp8"], "unknown dtype 'fp8'; use one of fp16, bf16"),
    (["verify", "attention_causal", "--workgroups", "0"], "a positive number or all"),
    (["verify", "gemm", "--workgroups", "0"], "a positive number or all"),
    (["verify", "gemm", "--workgroups", "some"], "a positive number or all"),
    (["verify", "gemm", "--workgroups", "\u00b2"], "a positive number or all"),
    (["verify", "gemm", "--workgroups", "2.5"], "a positive number or all"),
    (["verify", "gemm", "--shape", "1" + 30 * "0" + ",1,1"], "exceeds 2147482624"),
    (["verify", "gemm", "--shape", "3000000,3000000,1"], "GiB of memory, and this machine has"),
    (["verify", "gemm", "--a", "a.npy", "--b", "b.npy", "--shape", "8,8,8"], "drop --shape and --b-order"),
    (["verify", "gemm", "--a", "a.npy", "--b", "b.npy", "--b-order", "nk"], "drop --shape and --b-order"),
    (["verify", "gemm", "--b-order", "row"], "use nk or kn"),
    (["verify", "gemm", "--a", "a.npy"], "--a and --b go together"),
    (["verify", "gemm", "--nope"], "No such option: --nope"),
    (["verify"], "Missing argument"),
    (["nope"], "No such command 'nope'"),
]


@pytest.mark.parametrize(("argv", "text"), WRONG, ids=[" ".join(argv) for argv, _ in WRONG])
def test_wrong_input_is_one_line_and_exit_2(argv: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
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
        (np.full((4, 4), -np.inf), np.ones((4, 4)), "A holds infinity, which no norm can compare"),
        (np.full((4, 4), -1e6), np.ones((4, 4)), "A reaches 1e+06, beyond the range of fp16; scale A down"),
        (np.full((4, 4), 200), np.full((4, 4), 200), "the product reaches 1.6e+05, beyond the range of fp16"),
        (np.ones((4, 4), bool), np.ones((4, 4)), "A is bool[4, 4]; give a matrix of numbers"),
        (np.ones((4, 4), complex), np.ones((4, 4)), "give a matrix of numbers"),
        (np.ones((4, 5)), np.ones((4, 4)), "K differs: A is [4, 5], B is [4, 4]"),
        (np.ones(4), np.ones((4, 4)), "give a matrix of numbers"),
        (np.ones((0, 4)), np.ones((4, 4)), "give a matrix of numbers"),
        (b"not an array", np.ones((4, 4)), "a.npy is no .npy file; write one with numpy.save"),
        (b"", np.ones((4, 4)), "a.npy is no .npy file"),
        (b"PK\x03\x04 an .npz file", np.ones((4, 4)), "a.npy is no .npy file"),
        (b"\x93NUMPY\x01\x00", np.ones((4, 4)), "A cannot be read"),
        (None, np.ones((4, 4)), "A cannot be read"),
    ],
)
def test_bad_input_files(
    a: np.ndarray | bytes | None, b: np.ndarray, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if isinstance(a, bytes):
        (tmp_path / "a.npy").write_bytes(a)
    elif a is not None:
        np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    files = "--a", str(tmp_path / "a.npy"), "--b", str(tmp_path / "b.npy")
    code, _, err = run(capsys, "verify", "gemm", *files, "--dtype", "fp16")
    assert code == 2 and text in err and len(err.strip().splitlines()) == 1


def test_files_in_column_order_and_in_bfloat16(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.random.default_rng(1).standard_normal((40, 40))
    np.save(tmp_path / "a.npy", np.asfortranarray(values))
    np.save(tmp_path / "b.npy", values.astype(ml_dtypes.bfloat16))
    files = "--a", str(tmp_path / "a.npy"), "--b", str(tmp_path / "b.npy")
    assert run(capsys, "verify", "gemm", *files, "--dtype", "bf16", "--json")[0] == 0


@pytest.mark.parametrize("error", [float("inf"), float("nan"), None])
def test_json_has_no_numbers_that_json_lacks(
    error: float | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from amdwarp import verify

    monkeypatch.setattr(verify, "compare", lambda *_: (error, "wrong"))
    code, out, _ = run(capsys, "verify", "gemm", "--shape", "64,64,64", "--dtype", "fp16", "--json")
    assert code == 1 and json.loads(out, parse_constant=pytest.fail)["cases"][0]["rel_error"] is None


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (typer.Abort(), 130, "interrupted"),
        (PermissionError(13, "Permission denied", "/cache"), 2, "Permission denied: '/cache'"),
        (MemoryError(), 2, "out of memory"),
    ],
)
def test_what_ends_a_run_early_leaves_no_traceback(
    error: BaseException, code: int, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli, "verify_gemm", fail)
    ended, out, err = run(capsys, "verify", "gemm", "--shape", "64,64,64")
    assert ended == code and out == "" and text in err and "Traceback" not in err


def test_narrow_terminals_lose_no_column(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    _, out, _ = run(capsys, "verify", "gemm", "--shape", "64,64,64", "--dtype", "fp16")
    assert "inter_wave_128" in out and "135104" in out and "\u2026" not in out


SCRIPT = f"'{sys.executable}' -c 'from amdwarp.cli import script; script()'"


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        ("--version >&-", 0, ""),
        ("verify nothing 2>&-", 2, ""),
        ("--version > /dev/full", 2, "amdwarp: [Errno 28] No space left on device"),
    ],
)
def test_streams_that_cannot_be_written(command: str, code: int, text: str) -> None:
    done = subprocess.run(["sh", "-c", f"{SCRIPT} {command}"], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (code, "", text)


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


def test_a_package_that_is_not_there(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise ModuleNotFoundError("No module named 'plotly'", name="plotly")

    monkeypatch.setattr(cli, "verify_gemm", fail)
    code, _, err = run(capsys, "verify", "gemm", "--shape", "64,64,64", "--dtype", "fp16")
    assert code == 2 and err == "amdwarp: this needs plotly, which is not installed; pip install plotly\n"


def test_a_binary_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.amdgcn").write_bytes(bytes(range(256)) * 8)
    for command in ("cycles", "check"):
        code, _, err = run(capsys, command, str(tmp_path / "x.amdgcn"), "--grid", "1")
        assert code == 2 and "is no text" in err and len(err.splitlines()) == 1
