"""``amdwarp check``: reports, exit codes, argument files, and input that cannot be used."""

from __future__ import annotations

import json
import os
import string
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amdwarp import cli
from amdwarp.arguments import DTYPES, read_arguments
from amdwarp.sanitizer import KINDS
from amdwarp.testing import assert_race_free

sys.path.insert(0, str(Path(__file__).with_name("sanitizer")))

from handmade import PROLOGUE, text_of

COPY = PROLOGUE + "global_load_dword v3, v1, s[4:5]\ns_waitcnt vmcnt(0)\nglobal_store_dword v1, v3, s[6:7]"
RACE = PROLOGUE + "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\nds_read_b32 v3, v2\ns_waitcnt lgkmcnt(0)"
TEXT = text_of(COPY)


def buffer(init: str = "zeros", dtype: str = "i32", shape: tuple[int, ...] = (4096,)) -> dict[str, Any]:
    return {"buffer": {"dtype": dtype, "shape": list(shape), "init": init}}


TWO = [buffer("normal"), buffer()]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a clean kernel, one with a race, and their arguments."""
    (tmp_path / "copy.amdgcn").write_text(TEXT)
    (tmp_path / "race.amdgcn").write_text(text_of(RACE))
    (tmp_path / "args.json").write_text(json.dumps(TWO))
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        cli.main(["check", *map(str, argv)])
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out, captured.err


def check(capsys: pytest.CaptureFixture[str], folder: Path, name: str, *more: object) -> tuple[int, str, str]:
    return run(capsys, folder / f"{name}.amdgcn", "--args", folder / "args.json", "--grid", "1", *more)


# Results


def test_clean(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    code, out, err = check(capsys, files, "copy")
    assert (code, err) == (0, "") and out.startswith("clean: 1 workgroup, ")


def test_findings_as_text(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    code, out, _ = check(capsys, files, "race")
    assert code == 1
    lines = out.splitlines()
    assert lines[0].startswith("error: lds-unpublished-read: no barrier stands between the write of wave")
    assert lines[1].endswith("ds_write_b32 v1, v0") and lines[2].endswith("ds_read_b32 v3, v2")
    assert lines[3] == "    LDS bytes 0 to 511" and lines[4] == "    to order them: a barrier that both pass"
    assert lines[-1].startswith("1 error, 0 warnings: 1 workgroup")


def test_json(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    code, out, _ = check(capsys, files, "race", "--json")
    report = json.loads(out)
    assert code == 1
    assert set(report) == {"findings", "instructions", "seconds", "deadlock", "workgroups"}
    assert report["deadlock"] is False and report["instructions"] > 20 and report["seconds"] > 0
    (finding,) = report["findings"]
    assert set(finding) == {"kind", "severity", "problem", "remedy", "first", "second", "lds", "workgroup", "count"}
    assert finding["kind"] in KINDS and finding["lds"] == [0, 512] and finding["workgroup"] == [0, 0, 0]
    first = finding["first"]
    assert set(first) == {"line", "text", "source", "waves"} and first["text"] == "ds_write_b32 v1, v0"
    assert (files / "race.amdgcn").read_text().splitlines()[first["line"] - 1].strip() == first["text"]
    clean = json.loads(check(capsys, files, "copy", "--json")[1])
    assert clean["findings"] == [] and clean["workgroups"] == 1


def test_source_lines(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    text = text_of(RACE).replace("\tds_write", '\t.file\t1 "/src" "gemm.py"\n\t.loc\t1 42 5\n\tds_write')
    (files / "loc.amdgcn").write_text(text)
    code, out, _ = check(capsys, files, "loc", "--json")
    assert code == 1
    assert json.loads(out)["findings"][0]["first"]["source"] == {"file": "/src/gemm.py", "line": 42}
    assert "/src/gemm.py:42" in check(capsys, files, "loc")[1]


def test_a_deadlock(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    (files / "spin.amdgcn").write_text(text_of("again:\ns_nop 0\ns_branch again"))
    code, out, _ = check(capsys, files, "spin", "--json")
    report = json.loads(out)
    assert code == 1 and report["deadlock"] is True and report["findings"][0]["kind"] == "deadlock"


def test_a_limit_on_instructions(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    body = "s_mov_b32 s20, 0\nagain:\ns_add_u32 s20, s20, 1\ns_cmp_lg_u32 s20, 0x2000\ns_cbranch_scc1 again"
    (files / "long.amdgcn").write_text(text_of(body))
    assert check(capsys, files, "long")[0] == 0
    code, out, _ = check(capsys, files, "long", "--max-instructions", "5000", "--json")
    assert code == 1 and json.loads(out)["deadlock"] is True


def test_redundant(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    (files / "extra.amdgcn").write_text(text_of(COPY + "\ns_barrier"))
    code, out, _ = check(capsys, files, "extra", "--redundant", "--json")
    assert code == 0
    assert [item["text"] for item in json.loads(out)["redundant"]] == ["s_barrier"]


def test_dump(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    code, _, _ = check(capsys, files, "copy", "--dump", files / "out.npz")
    assert code == 0
    drawn = (50 * np.random.default_rng(0).standard_normal(4096)).astype(np.int32)
    with np.load(files / "out.npz") as saved:
        assert set(saved) == {"arg0", "arg1"}
        np.testing.assert_array_equal(saved["arg0"], drawn)
        np.testing.assert_array_equal(saved["arg1"][:128], drawn[:128])
        assert not saved["arg1"][128:].any()


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_a_dump_of_any_dtype_is_loaded(capsys: pytest.CaptureFixture[str], files: Path, dtype: str) -> None:
    entries = [buffer("normal", dtype), buffer("zeros", dtype)]
    (files / "args.json").write_text(json.dumps(entries))
    assert check(capsys, files, "copy", "--dump", files / "out.npz")[0] == 0
    (drawn, _), size = read_arguments(files / "args.json"), np.dtype(DTYPES[dtype]).itemsize
    with np.load(files / "out.npz") as saved:
        assert saved["arg0"].tobytes() == drawn.tobytes() and saved["arg0"].itemsize == size
        assert saved["arg1"].tobytes()[:512] == drawn.tobytes()[:512]


@pytest.mark.parametrize("name", ["nowhere/out.npz", "folder", "with\0nul"])
def test_a_dump_that_cannot_be_written_is_refused_before_the_run(
    capsys: pytest.CaptureFixture[str], files: Path, name: str
) -> None:
    (files / "folder").mkdir()
    code, out, err = check(capsys, files, "race", "--dump", f"{files}/{name}")
    assert code == 2 and out == "" and "cannot be saved" in err


def test_a_refused_run_leaves_the_dump_alone(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    (files / "old.npz").write_bytes(b"old")
    for name in ("old.npz", "new.npz"):
        assert check(capsys, files, "copy", "--seeds", "0", "--dump", files / name)[0] == 2
    assert (files / "old.npz").read_bytes() == b"old" and not (files / "new.npz").exists()


def test_arguments_from_a_pipe(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, json.dumps([buffer("poison"), buffer()]).encode())
    os.close(writer)
    code, out, _ = run(capsys, files / "copy.amdgcn", "--args", f"/dev/fd/{reader}", "--grid", "1")
    os.close(reader)
    assert code == 1 and "uninitialised-read" in out


def test_poison_is_uninitialised(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    (files / "args.json").write_text(json.dumps([buffer("poison"), buffer()]))
    code, out, _ = check(capsys, files, "copy", "--json")
    assert code == 1 and [finding["kind"] for finding in json.loads(out)["findings"]] == ["uninitialised-read"]
    (files / "args.json").write_text(json.dumps([buffer(), buffer("poison")]))
    assert check(capsys, files, "copy")[0] == 0


def test_workgroups_and_seeds(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    code, out, _ = check(capsys, files, "copy", "--seeds", "3", "--json")
    assert code == 0 and json.loads(out)["workgroups"] == 3
    args = (files / "copy.amdgcn", "--args", files / "args.json", "--grid", "50,20,3", "--workgroups", "2", "--json")
    assert json.loads(run(capsys, *args)[1])["workgroups"] == 2


def test_lds(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    (files / "lds.amdgcn").write_text(text_of(PROLOGUE + "ds_write_b32 v1, v0 offset:1024", lds=0))
    assert check(capsys, files, "lds")[0] == 0
    code, out, _ = check(capsys, files, "lds", "--lds", "1024")
    assert code == 1 and "lds-out-of-bounds" in out


def test_assert_race_free() -> None:
    args = [np.arange(4096, dtype=np.uint32) for _ in "ab"]
    assert assert_race_free(TEXT, args, (1,)).ok
    with pytest.raises(AssertionError, match="lds-unpublished-read") as failure:
        assert_race_free(text_of(RACE), args, (1,), seeds=2)
    assert "ds_read_b32 v3, v2" in str(failure.value)


# Input that cannot be used

WRONG_FILES: list[tuple[bytes, str]] = [
    (b"", "is empty"),
    (b"\n \n", "is empty"),
    (b"\x7fELF\x02\x01\x01\x40" + bytes(64), "is an ELF binary"),
    (b"\xff\xfe\x00random", "is no text"),
    (b"hello", "is not known"),
    (b"//\n// Generated by LLVM NVPTX Back-End\n.version 8.0\n.target sm_80\n", "line"),
    (TEXT.split("\t.amdhsa_kernel")[0].encode(), "no kernel descriptor"),
    (TEXT.split("\t.end_amdhsa_kernel")[0].encode(), "cut off"),
    (TEXT.split("\t.amdgpu_metadata")[0].encode(), "cut off"),
    (
        TEXT.replace("global_store_dword", "global_stor_dword").encode(),
        "'global_stor_dword v1, v3, s[6:7]' is not known",
    ),
    (TEXT.replace("gfx950", "gfx1100").encode(), "gfx1100"),
    (TEXT.replace("s_endpgm", "s_nop 0").encode(), "s_endpgm"),
]


@pytest.mark.parametrize(("content", "words"), WRONG_FILES, ids=[words for _, words in WRONG_FILES])
def test_wrong_files(capsys: pytest.CaptureFixture[str], files: Path, content: bytes, words: str) -> None:
    (files / "bad.amdgcn").write_bytes(content)
    code, out, err = check(capsys, files, "bad")
    assert code == 2 and out == "" and err.count("\n") == 1 and err.startswith("amdwarp: ")
    assert words in err


def test_a_byte_order_mark(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    (files / "marked.amdgcn").write_text(TEXT, encoding="utf-8-sig")
    assert check(capsys, files, "marked")[0] == 0


@pytest.mark.parametrize("content", [bytes(1000), TEXT.encode("utf-16-le")], ids=["zeros", "utf-16"])
def test_zero_bytes_are_no_text(capsys: pytest.CaptureFixture[str], files: Path, content: bytes) -> None:
    (files / "zeros.amdgcn").write_bytes(content)
    code, _, err = check(capsys, files, "zeros")
    assert code == 2 and "zeros.amdgcn is no text; give the assembly text" in err and len(err) < 300


WRONG_ARGS: list[tuple[object, str]] = [
    ([*TWO, buffer()], "takes 2 arguments (pointer, pointer), and the file has 3"),
    ([{"i64": 5}, buffer()], "argument 0 is a scalar, and the kernel takes a pointer"),
    ([buffer(shape=()), {}], "argument"),
    ({"a": 1}, "no list"),
    ("[", "cannot be read"),
    ([buffer(dtype="f13"), buffer()], "unknown dtype 'f13'"),
    ([buffer("nowhere.npy"), buffer()], "nowhere.npy"),
    ([buffer(shape=(1 << 40, 1 << 40)), buffer()], "GiB of memory, and this machine has"),
    ([buffer(shape=(1,) * 80), buffer()], "80 dimensions"),
    ([{"buffer": 3}, buffer()], "argument 0"),
    ([buffer("random"), buffer()], "unknown init 'random'"),
]


@pytest.mark.parametrize(("content", "words"), WRONG_ARGS, ids=[words for _, words in WRONG_ARGS])
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], files: Path, content: object, words: str) -> None:
    (files / "args.json").write_text(content if isinstance(content, str) else json.dumps(content))
    code, out, err = check(capsys, files, "copy")
    assert code == 2 and out == "" and err.count("\n") == 1
    assert words in err


@pytest.mark.parametrize(("given_arguments", "code"), [(0, 2), (1, 2), (2, 0), (4, 0), (5, 2)])
def test_the_number_of_arguments(
    capsys: pytest.CaptureFixture[str], files: Path, given_arguments: int, code: int
) -> None:
    """Of four pointers, the last two may be Triton's own."""
    (files / "many.amdgcn").write_text(text_of(COPY, pointers=4))
    (files / "args.json").write_text(json.dumps([buffer()] * given_arguments))
    found, _, err = check(capsys, files, "many")
    assert found == code
    if code:
        assert f"takes 4 arguments (pointer, pointer, pointer, pointer), and the file has {given_arguments}" in err


def test_a_scalar_of_the_wrong_size(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    scalar = "      - .offset: 8\n        .size: 4\n        .value_kind: by_value"
    pointer = (
        "      - .address_space:  global\n        .offset: 8\n        .size: 8\n        .value_kind: global_buffer"
    )
    (files / "scalar.amdgcn").write_text(TEXT.replace(pointer, scalar))
    for entry, code in (({"i32": 1}, 0), ({"f32": 1.5}, 0), ({"i64": 1}, 2), ({"i8": 1}, 2)):
        (files / "args.json").write_text(json.dumps([buffer(), entry]))
        (files / "scalar.amdgcn").write_text(
            TEXT.replace(pointer, scalar).replace("global_store_dword v1, v3, s[6:7]", "s_nop 0")
        )
        found, _, err = check(capsys, files, "scalar")
        assert found == code
        if code:
            assert "and the kernel takes 4" in err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["nowhere.amdgcn", "--grid", "1"], "cannot be read"),
        ([".", "--grid", "1"], "cannot be read"),
        (["bad\0name", "--grid", "1"], "cannot be read"),
        (["x", "--grid", "0"], "is not X[,Y[,Z]]"),
        (["x", "--grid", "1,2,3,4"], "is not X[,Y[,Z]]"),
        (["x", "--grid", "many"], "is not X[,Y[,Z]]"),
        (["x", "--grid", "99999999999"], "larger than a launch"),
        (["x", "--grid", "2000000"], "run at most 1000000 with --workgroups N"),
        (["x", "--grid", "4", "--workgroups", "0"], "give a positive number"),
        (["x", "--grid", "4", "--seeds", "0"], "seeds = 0"),
        (["x", "--grid", "4", "--lds", "-1"], "no size"),
        (["x", "--grid", "4", "--lds", "999999999"], "a workgroup has between 0 and"),
        (["x", "--grid", "4", "--max-instructions", "0"], "no limit"),
        (["x", "--grid", "4", "--dump", "/nowhere/at/all.npz"], "cannot be saved"),
        (["x"], "--grid"),
        ([], "FILE.amdgcn"),
    ],
    ids=str,
)
def test_wrong_options(capsys: pytest.CaptureFixture[str], files: Path, argv: list[str], words: str) -> None:
    argv = [str(files / "copy.amdgcn") if word == "x" else word for word in argv]
    code, _, err = run(capsys, *argv, *(["--args", files / "args.json"] if argv[:1] else []))
    assert code == 2 and err.count("\n") == 1 and words in err


def _quiet(argv: list[str]) -> int:
    """Exit code of the command; anything but a clean exit is an exception."""
    with pytest.raises(SystemExit) as end:
        cli.main(["check", *argv])
    return int(end.value.code or 0)


_FUZZ = settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.mark.newest
@_FUZZ
@given(content=st.binary(max_size=400) | st.text(max_size=400).map(str.encode))
def test_random_files(files: Path, content: bytes) -> None:
    (files / "fuzz.amdgcn").write_bytes(content)
    assert _quiet([str(files / "fuzz.amdgcn"), "--grid", "1"]) == 2


@pytest.mark.newest
@_FUZZ
@given(cut=st.integers(0, len(TEXT) - 1))
def test_truncated_files(files: Path, cut: int) -> None:
    (files / "fuzz.amdgcn").write_text(TEXT[:cut])
    code = _quiet([str(files / "fuzz.amdgcn"), "--args", str(files / "args.json"), "--grid", "1"])
    # nothing but the last line may be missing
    assert code == 2 or TEXT[cut:].strip() in ("", ".end_amdgpu_metadata"[-len(TEXT[cut:].strip()) :])


_WORDS = sorted({word for word in TEXT.replace(",", " ").split() if len(word) < 20})


@pytest.mark.newest
@_FUZZ
@given(data=st.data())
def test_damaged_files(files: Path, data: st.DataObject) -> None:
    """A line is dropped, doubled, or has a word replaced: whatever comes of it, it ends and is no traceback."""
    lines = TEXT.split("\n")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        kind = data.draw(st.sampled_from(["drop", "double", "swap", "word", "character"]))
        if kind == "drop":
            lines[at] = ""
        elif kind == "double":
            lines.insert(at, lines[at])
        elif kind == "swap":
            other = data.draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == "word" and lines[at].split():
            old = data.draw(st.sampled_from(lines[at].split()))
            lines[at] = lines[at].replace(old, data.draw(st.sampled_from(_WORDS)), 1)
        elif lines[at]:
            place = data.draw(st.integers(0, len(lines[at]) - 1))
            character = data.draw(st.sampled_from(string.printable[:95]))
            lines[at] = lines[at][:place] + character + lines[at][place + 1 :]
    (files / "fuzz.amdgcn").write_text("\n".join(lines))
    code = _quiet([str(files / "fuzz.amdgcn"), "--args", str(files / "args.json"), "--grid", "1"])
    assert code in (0, 1, 2)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
_ENTRY = _JSON | st.fixed_dictionaries(
    {
        "buffer": st.fixed_dictionaries(
            {
                "dtype": st.sampled_from(["f16", "i32", "u8", "f8e5m2", "?"]) | _JSON,
                "shape": st.lists(st.integers(-2, 1 << 70) | st.integers(1, 9), max_size=3) | _JSON,
            },
            optional={"init": st.sampled_from(["normal", "zeros", "poison", "x.npy", "."]) | _JSON},
        )
    }
)


@pytest.mark.newest
@_FUZZ
@given(content=st.lists(_ENTRY, max_size=3) | _JSON)
def test_random_arguments(files: Path, content: object) -> None:
    (files / "fuzz.json").write_text(json.dumps(content))
    code = _quiet([str(files / "copy.amdgcn"), "--args", str(files / "fuzz.json"), "--grid", "1"])
    assert code in (0, 1, 2)


@_FUZZ
@given(grid=st.text(max_size=12) | st.lists(st.integers(), max_size=4).map(lambda sizes: ",".join(map(str, sizes))))
def test_random_grids(files: Path, grid: str) -> None:
    code = _quiet(
        [str(files / "copy.amdgcn"), "--args", str(files / "args.json"), f"--grid={grid}", "--workgroups", "1"]
    )
    assert code in (0, 2)
