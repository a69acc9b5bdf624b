"""``amdwarp explain``: reports from texts, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from amdwarp import UsageError
from amdwarp.cli import main
from amdwarp.explain import Explanation, explain_file, explain_texts, occupancy
from amdwarp.target import get_target

WALL = "\t; sched_barrier mask(0x00000000)\n"
READ, MFMA = "\tds_read_b128 v[0:3], v9\n", "\tv_mfma_f32_16x16x32_f16 v[4:7], v[0:3], v[0:3], v[4:7]\n"
LOAD, COPY = "\tbuffer_load_dwordx4 v[8:11], v9, s[0:3], 0 offen\n", "\tbuffer_load_dwordx4 v9, s[0:3], 0 offen lds\n"


def group(mask: int, size: int, number: int = 1) -> str:
    return f"\t; sched_group_barrier mask(0x{mask:08x}) size({size}) SyncID({number})\n"


def text(window: str, *, loop: str = "", spills: int = 0) -> str:
    return f"""\t.amdgcn_target "amdgcn-amd-amdhsa--gfx950"
\t.globl\tkernel
kernel:
\t.file\t1 "/src" "kernel.py"
\ts_mov_b32 s0, 0
{loop}{WALL}\t.loc\t1 7 3
{window}{WALL}\ts_endpgm
amdhsa.kernels:
  - .agpr_count:     0
    .group_segment_fixed_size: 32768
    .max_flat_workgroup_size: 256
    .private_segment_fixed_size: 0
    .sgpr_count:     20
    .sgpr_spill_count: 0
    .vgpr_count:     130
    .vgpr_spill_count: {spills}
"""


GROUPS = group(0x100, 1) + group(8, 2) + group(0x20, 1) + group(8, 1)
GOOD = text(READ + MFMA + MFMA + LOAD + MFMA + GROUPS)
BAD = text(MFMA + MFMA + READ + LOAD + MFMA + GROUPS)
PIPELINE = """
.LBB0_1:
\ts_setprio 1
\ts_barrier
\tds_read_b128 v[0:3], v9
\ts_setprio 0
\ts_barrier
\tv_mfma_f32_16x16x32_f16 v[4:7], v[0:3], v[0:3], v[4:7]
\ts_cbranch_scc1 .LBB0_1
\ts_cbranch_scc0 .LBB0_4
.LBB0_3:
\ts_barrier
"""
OUT_OF_LINE = "\ts_branch .LBB0_5\n.LBB0_4:\n\ts_setprio 0\n\ts_branch .LBB0_3\n.LBB0_5:\n"


def test_a_window_is_read_from_the_text_alone() -> None:
    report = explain_texts(GOOD)
    (window,) = report.windows
    assert (window.asked, window.realised, window.ok) == ("RMMGM", "RMMGM", True)
    assert (window.where, window.label, window.number) == ("/src/kernel.py:7", "", 1)
    assert (window.anchors, window.misplaced, window.longest_run) == (2, 0, 2)
    assert window.priced == {"M": 3, "R": 1, "G": 1}
    assert (report.name, report.target, report.vgprs, report.lds_bytes) == ("kernel", "gfx950", 130, 32768)


def test_a_miss_is_reported() -> None:
    (window,) = explain_texts(BAD).windows
    assert (window.realised, window.misplaced, window.ok) == ("MMRGM", 1, False)


def test_copies_to_lds_are_a_class_of_their_own() -> None:
    (window,) = explain_texts(text(COPY + MFMA + group(0x800, 1) + group(8, 1))).windows
    assert (window.asked, window.realised, window.ok) == ("CM", "CM", True)


def test_waits_and_barriers_inside_are_counted() -> None:
    inside = READ + "\ts_waitcnt lgkmcnt(0)\n\ts_barrier\n" + MFMA + "\ts_wait_dscnt 0x0\n"
    (window,) = explain_texts(text(inside + group(0x100, 1) + group(8, 1))).windows
    assert (window.waits, window.barriers) == (2, 1)


def test_loops_and_what_only_looks_like_one() -> None:
    report = explain_texts(text(READ + MFMA + GROUPS, loop=PIPELINE + OUT_OF_LINE))
    (loop,) = report.loops
    assert (loop.label, loop.barriers, loop.priorities) == (".LBB0_1", 2, [1, 0])
    assert loop.parts == [{"M": 1}, {"R": 1}]


@pytest.mark.parametrize(
    ("arch", "vgprs", "lds", "waves", "expected"),
    [
        ("gfx950", 128, 0, 4, 4),
        ("gfx950", 129, 0, 4, 3),
        ("gfx950", 40, 0, 4, 8),
        ("gfx950", 512, 0, 8, 0),
        ("gfx950", 256, 0, 8, 2),
        ("gfx950", 64, 100 << 10, 4, 1),
        ("gfx942", 64, 16 << 10, 8, 8),
        ("gfx1250", 256, 0, 4, 4),
        ("gfx1250", 16, 0, 4, 16),
    ],
)
def test_occupancy(arch: str, vgprs: int, lds: int, waves: int, expected: int) -> None:
    assert occupancy(get_target(arch), vgprs, lds, waves) == expected


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    said = capsys.readouterr()
    return int(caught.value.code or 0), said.out, said.err


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.amdgcn", tmp_path / "bad.amdgcn"
    good.write_text(GOOD)
    bad.write_text(BAD)
    code, out, _ = run(capsys, "explain", str(good), "--check")
    assert code == 0
    assert "window #1 (/src/kernel.py:7): realised" in out
    assert "asked      R M2 G M" in out
    code, out, _ = run(capsys, "explain", str(bad), "--check")
    assert code == 1
    assert "NOT realised: 1 of 2 anchors elsewhere" in out
    assert run(capsys, "explain", str(bad))[0] == 0
    code, out, _ = run(capsys, "explain", str(bad), "--json", "--check")
    found = json.loads(out)
    assert (code, found["ok"], found["windows"][0]["realised"]) == (1, False, "MMRGM")


def test_lds_bytes_come_from_the_metadata_beside_the_text(tmp_path: Path) -> None:
    file = tmp_path / "kernel.amdgcn"
    file.write_text(GOOD)
    (tmp_path / "kernel.json").write_text('{"shared": 65536}')
    assert explain_file(file).lds_bytes == 65536


DYNAMIC = GOOD.replace("fixed_size: 32768", "fixed_size: 0")


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("ds_read_b128 v[0:3], v9", False),
        ("ds_store_b64 v9, v[0:1]", False),
        ("buffer_load_dwordx4 v9, s[0:3], 0 offen lds", False),
        ("global_load_lds_dwordx4 v[4:5], off", False),
        ("global_load_async_to_lds_b128 v1, v[4:5], off", False),
        ("tensor_load_to_lds s[0:3], s[4:11]", False),
        ("ds_bpermute_b32 v1, v2, v3", True),
        ("ds_swizzle_b32 v1, v2 offset:1", True),
        ("buffer_load_dwordx4 v[0:3], v9, s[0:3], 0 offen", True),
    ],
)
def test_lds_that_the_text_does_not_state_is_unknown(line: str, known: bool) -> None:
    """Triton leaves the size to the launch, and the text says 0."""
    plain = text("").replace("fixed_size: 32768", "fixed_size: 0")
    report = explain_texts(plain.replace("s_mov_b32 s0, 0", line))
    assert report.lds_bytes == (0 if known else None)
    assert report.occupancy == 3  # by registers alone


def test_unknown_lds_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "kernel.amdgcn"
    file.write_text(DYNAMIC)
    _, out, _ = run(capsys, "explain", str(file))
    assert "LDS of unknown size (the text does not state it, and there is no .json beside it)" in out
    assert "at most 3 a SIMD at once" in out
    assert json.loads(run(capsys, "explain", str(file), "--json")[1])["lds_bytes"] is None
    (tmp_path / "kernel.json").write_text('{"shared": 0}')
    _, out, _ = run(capsys, "explain", str(file))
    assert "0 bytes of LDS" in out and "at most" not in out


def test_options_of_the_zoo_do_not_go_with_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "kernel.amdgcn"
    file.write_text(GOOD)
    for name, value in (("--arch", "gfx942"), ("--shape", "1,1,1"), ("--dtype", "fp16"), ("--schedule", "a")):
        code, out, err = run(capsys, "explain", str(file), name, value)
        assert (code, out) == (2, "")
        assert (
            f"is a file, which has its own: {name} goes with gemm, attention, attention_causal only; drop {name}" in err
        )
    code, _, err = run(capsys, "explain", "gemm", "--schedule", "a", "--schedule", "b")
    assert code == 2 and "--schedule is given 2 times, and explain shows one kernel; give one" in err


def test_the_environment_says_what_becomes_of_windows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")

    def windows(policy: str | None) -> list[Any]:
        monkeypatch.delenv("AMDWARP_WINDOWS", raising=False)
        if policy is not None:
            monkeypatch.setenv("AMDWARP_WINDOWS", policy)
        code, out, err = run(capsys, "explain", "gemm", "--schedule", "intra_wave", "--json")
        assert code == 0, err
        found: list[Any] = json.loads(out)["windows"]
        return found

    assert len(windows(None)) == len(windows("error")) > 0
    assert windows("drop") == []
    monkeypatch.setenv("AMDWARP_WINDOWS", "maybe")
    code, _, err = run(capsys, "explain", "gemm", "--schedule", "intra_wave")
    assert code == 2 and "AMDWARP_WINDOWS is 'maybe'; set it to one of" in err


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("nothing", "'nothing' is neither a kernel of the zoo nor a file; use gemm, attention"),
        ("empty", "the text names no target; give the AMDGCN text of a kernel"),
    ],
)
def test_wrong_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argument: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").write_text("")
    code, _, err = run(capsys, "explain", argument)
    assert code == 2
    assert message in err


def test_a_window_that_is_gone_is_a_miss() -> None:
    report = Explanation("k", "gfx950", 1, 0, 1, 0, 0, 4, 8, [])
    assert report.ok
    from amdwarp.lowering.analysis.pricing import Slot
    from amdwarp.lowering.analysis.realised import Asked

    from amdwarp.explain import _lost

    lost = _lost(Asked(1, "w", "k.py:3", (), ((Slot.DS_READ, 2), (Slot.MFMA, 4))))
    assert (lost.ok, lost.misplaced, lost.asked) == (False, 2, "RRMMMM")


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_broken_file_beside_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.amdgcn").write_text("s_endpgm")
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UsageError, match=r"x\.json is not the metadata of a kernel; remove it"):
        explain_file(tmp_path / "x.amdgcn")
