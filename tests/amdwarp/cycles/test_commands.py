"""``amdwarp cycles`` and ``amdwarp timeline``, and the calls behind them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amdwarp import cli, cycles
from amdwarp.errors import UsageError

LOOP = [
    "s_load_dwordx2 s[4:5], s[0:1], 0x0",
    "v_lshlrev_b32 v1, 4, v0",
    "s_mov_b32 s7, 20",
    "s_waitcnt lgkmcnt(0)",
    "loop:",
    *["v_mfma_f32_16x16x32_f16 v[16:19], v[8:11], v[12:15], v[16:19]"] * 8,
    "global_load_dwordx4 v[20:23], v1, s[4:5]",
    "s_waitcnt vmcnt(0)",
    "s_sub_u32 s7, s7, 1",
    "s_cmp_lg_u32 s7, 0",
    "s_cbranch_scc1 loop",
]


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        cli.main(list(argv))
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out, captured.err


@pytest.fixture
def program(tmp_path: Path, text_of: Any) -> Path:
    path = tmp_path / "kernel.amdgcn"
    path.write_text(text_of(["s_nop 0", *LOOP[1:3], *LOOP[4:12], *LOOP[14:]]))
    return path


@pytest.fixture
def one(text_of: Any) -> cycles.Estimate:
    return cycles.estimate(text_of(LOOP, waves=4, pointers=1), [np.zeros(4096, np.uint8)], (600,))


# Calls


def test_estimate_of_a_text(one: cycles.Estimate) -> None:
    (loop,) = one.loops
    assert loop.label == "loop" and loop.iterations == 20
    # each iteration waits for its own load
    assert loop.bound == "latency"
    assert 1000 < loop.clk_per_iteration < 1300
    assert loop.stalls["vmcnt"] > 700
    assert one.target == "gfx950" and one.calibrated
    assert one.parameters == cycles.load("gfx950").digest


def test_the_grid_is_spread_over_the_gpu(one: cycles.Estimate) -> None:
    """600 workgroups on 256 compute units: three on some; LDS lets two be there at a time."""
    assert (one.workgroups, one.fitting, one.resident, one.rounds) == (600, 2, 2, 2)
    assert one.kernel_clk == 2 * one.total_clk
    assert one.time_us == pytest.approx(one.kernel_clk / 2400)


def test_json_has_the_fields_of_the_interface(one: cycles.Estimate) -> None:
    content = json.loads(json.dumps(one.to_json()))
    assert content["modelled"] is True
    assert set(content) >= {"loops", "total_clk", "target", "calibrated", "parameters"}
    fields = {"label", "line", "iterations", "clk_per_iteration", "mfma_busy", "bound", "stalls"}
    assert set(content["loops"][0]) >= fields


def test_latency_shows_in_the_parameter_it_comes_from(text_of: Any, one: cycles.Estimate) -> None:
    shorter = cycles.estimate_trace(one.trace, cycles.load("gfx950").replace(vmem_round_trip_clk=500))
    gain = one.loops[0].clk_per_iteration - shorter.loops[0].clk_per_iteration
    assert gain == pytest.approx(500, rel=0.15)
    assert shorter.parameters != one.parameters


def test_sensitivity_puts_the_round_trip_first(one: cycles.Estimate) -> None:
    rows = cycles.sensitivity(one)
    assert rows[0].name == "vmem_round_trip_clk"
    assert (rows[0].low, rows[0].high) == (800, 1200)
    assert rows[0].clk_low < rows[0].clk < rows[0].clk_high
    assert rows[0].clk == pytest.approx(one.loops[0].clk_per_iteration)
    names = {row.name for row in rows}
    assert {"mfma_read_clk_per_register", "barrier_clk", "lds_copy_bytes_per_clk"} <= names
    (only,) = cycles.sensitivity(one, names=["barrier_clk"])
    assert only.spread == 0


def test_sensitivity_has_the_clk_of_the_report(text_of: Any) -> None:
    """Also where the oldest waves run ahead, so that the iterations of each alone are shorter."""
    mfma = [f"v_mfma_f32_16x16x32_f16 v[{c}:{c + 3}], v[8:11], v[12:15], v[{c}:{c + 3}]" for c in range(16, 48, 4)]
    crowd = cycles.estimate(text_of([*LOOP[1:3], "loop:", *mfma, *LOOP[-3:]], waves=8), [], (1,))
    # two waves with 8 MFMA of 16 clk each
    assert crowd.loops[0].clk_per_iteration > 250
    (row,) = cycles.sensitivity(crowd, names=["barrier_clk"])
    assert row.clk == crowd.loops[0].clk_per_iteration


def test_sensitivity_stays_within_what_a_parameter_can_be(one: cycles.Estimate) -> None:
    base = cycles.load("gfx950").replace(vmem_slot_share=0.9, lds_fifo=1)
    again = cycles.estimate_trace(one.trace, base)
    moved = {row.name: (row.low, row.high) for row in cycles.sensitivity(again, base)}
    assert moved["vmem_slot_share"] == (pytest.approx(0.72), 1)
    (fifo,) = cycles.sensitivity(again, base, names=["lds_fifo"])
    assert fifo.low == 1


def test_sensitivity_refuses_other_names_and_parameters(one: cycles.Estimate) -> None:
    for name in ("nonsense", "target"):
        with pytest.raises(UsageError, match=f"unknown parameter '{name}'; known are barrier_clk"):
            cycles.sensitivity(one, names=[name])
    other = cycles.load("gfx950").replace(barrier_clk=40)
    with pytest.raises(UsageError, match=f"computed with parameters {one.parameters}, and these are {other.digest}"):
        cycles.sensitivity(one, other)
    with pytest.raises(UsageError, match="pass the ones it was computed with"):
        cycles.sensitivity(cycles.estimate_trace(one.trace, other))


@pytest.mark.parametrize("clock", [0, -5, float("nan"), float("inf"), "fast", True])
def test_what_is_no_clock_is_refused(one: cycles.Estimate, clock: Any) -> None:
    with pytest.raises(UsageError, match=f"a clock of {clock!r} MHz is none"):
        cycles.estimate_trace(one.trace, clock_mhz=clock)
    with pytest.raises(UsageError, match=f"a clock of {clock!r} MHz is none"):
        cycles.estimate(one.trace.program, [], (1,), clock_mhz=clock)


def test_other_arguments_that_are_refused(one: cycles.Estimate) -> None:
    program, args = one.trace.program, [np.zeros(4096, np.uint8)]
    with pytest.raises(UsageError, match=r"workgroups = \(\) names none"):
        cycles.estimate(program, args, (1,), workgroups=())
    given: Any = "gfx950"
    with pytest.raises(UsageError, match="parameters = 'gfx950' are neither a target's nor values by name"):
        cycles.estimate(program, args, (1,), parameters=given)
    given = {"barrier_clk": "3"}
    with pytest.raises(UsageError, match="parameter barrier_clk = '3' is no number"):
        cycles.estimate(program, args, (1,), parameters=given)
    none: Any = None
    with pytest.raises(UsageError, match="NoneType is no estimate"):
        cycles.compare(one, none)


def test_an_uncalibrated_target_ranks_nothing(one: cycles.Estimate) -> None:
    bound = replace(one, target="gfx1250", calibrated=False)
    with pytest.raises(UsageError, match="gfx1250 is not calibrated: its figures are bounds, and do not compare"):
        cycles.compare(bound, bound)


def test_less_than_three_percent_is_a_tie(text_of: Any) -> None:
    def chain(count: int) -> cycles.Estimate:
        return cycles.estimate(text_of(["v_add_f32 v1, v1, v2"] * count), [], (1,))

    base = chain(1000)
    assert cycles.compare(base, chain(1025)).winner == "tie"
    assert cycles.compare(base, chain(1050)).winner == "first"
    assert cycles.compare(base, chain(950)).winner == "second"
    assert cycles.compare(base, chain(2000)).ratio == pytest.approx(2, rel=0.01)


def test_a_tie_does_not_depend_on_the_order(one: cycles.Estimate) -> None:
    for clk in (10290, 10305, 10320):
        first, second = replace(one, kernel_clk=10000), replace(one, kernel_clk=clk)
        there, back = cycles.compare(first, second).winner, cycles.compare(second, first).winner
        assert {there, back} == ({"tie"} if clk < 10300 else {"first", "second"})


def test_figures_of_different_parameters_do_not_compare(one: cycles.Estimate) -> None:
    other = cycles.estimate_trace(one.trace, cycles.load("gfx950").replace(barrier_clk=40))
    with pytest.raises(UsageError, match="do not compare"):
        cycles.compare(one, other)


def test_parameters_of_another_target_are_refused(one: cycles.Estimate) -> None:
    with pytest.raises(UsageError, match="are those of gfx942"):
        cycles.estimate_trace(one.trace, cycles.load("gfx942"))
    with pytest.raises(UsageError, match="holds no AMDGCN text"):
        cycles.estimate(object(), [], (1,))


# Commands


def test_a_file(capsys: pytest.CaptureFixture[str], program: Path) -> None:
    code, out, _ = run(capsys, "cycles", str(program), "--grid", "8")
    assert code == 0
    assert "modelled, not measured: gfx950" in out and cycles.load("gfx950").digest in out
    assert "loop loop" in out and "20 iterations" in out and "8 workgroups" in out
    assert max(map(len, out.splitlines())) <= 80


def test_json_of_a_file(capsys: pytest.CaptureFixture[str], program: Path) -> None:
    code, out, _ = run(
        capsys, "cycles", str(program), "--grid", "8,2", "--json", "--set", "barrier_clk=31", "--clock", "1000"
    )
    content = json.loads(out)
    assert code == 0 and content["modelled"] is True and content["workgroups"] == 16
    assert content["parameters"] == cycles.load("gfx950").replace(barrier_clk=31).digest
    assert content["time_us"] == pytest.approx(content["kernel_clk"] / 1000, abs=0.01)


def test_arguments_of_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path, text_of: Any) -> None:
    kernel, args = tmp_path / "kernel.amdgcn", tmp_path / "args.json"
    kernel.write_text(text_of(LOOP, waves=4, pointers=1))
    args.write_text(json.dumps([{"buffer": {"dtype": "f16", "shape": [64, 32], "init": "normal"}}]))
    code, out, _ = run(capsys, "cycles", str(kernel), "--grid", "4", "--args", str(args))
    assert code == 0 and "bound: latency" in out
    args.write_text('[{"i32": 4}]')
    code, _, err = run(capsys, "cycles", str(kernel), "--grid", "4", "--args", str(args))
    assert code == 2 and "argument 0 is a pointer" in err


def test_a_zoo_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton")
    names = ["inter_wave_256", "inter_wave_128"]
    options = [word for name in names for word in ("--schedule", name)]
    code, out, _ = run(capsys, "cycles", "gemm", "--shape", "512,512,1024", *options, "--json")
    content = json.loads(out)
    assert code == 0 and content["modelled"] is True
    for name, case in zip(names, content["cases"], strict=True):
        loop = case["loops"][0]
        assert name in case["case"] and case["calibrated"] is True
        # what the tile needs of the matrix units, and no more busy than there is time
        assert loop["limits"]["MFMA"] == pytest.approx({"inter_wave_256": 4096, "inter_wave_128": 1024}[name], rel=0.01)
        assert 0.4 < loop["mfma_busy"] <= 1
        assert loop["mfma_busy"] * loop["clk_per_iteration"] == pytest.approx(loop["limits"]["MFMA"], rel=0.03)
    (verdict,) = content["compared_with_the_first"]
    assert verdict["winner"] in ("first", "second", "tie")


def test_schedules_of_an_uncalibrated_target_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton")
    names = ("--schedule", "tasks_gfx1250", "--schedule", "ws_schedule_gfx1250")
    command = ("cycles", "gemm", "--arch", "gfx1250", "--shape", "128,128,128", *names)
    code, out, _ = run(capsys, *command)
    assert code == 0 and out.endswith(":\nnot compared, gfx1250 is not calibrated\n")
    assert out.count("an uncalibrated target: only the limits say") == 2
    code, out, _ = run(capsys, *command, "--json")
    content = json.loads(out)
    assert code == 0 and content["compared_with_the_first"] == [] and len(content["cases"]) == 2


def test_a_picture_and_a_trace_of_a_zoo_kernel(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for package in ("triton", "matplotlib", "perfetto"):
        pytest.importorskip(package)
    paths = [str(tmp_path / name) for name in ("one.svg", "one.png", "one.pftrace")]
    options = [word for path in paths for word in ("-o", path)]
    code, out, _ = run(capsys, "timeline", "gemm", "--shape", "256,256,512", "--schedule", "inter_wave_256", *options)
    assert code == 0 and out.count("modelled") == 3
    picture = Path(paths[0]).read_text()
    assert "<!-- wave 0  stage" in picture and "<!-- wave 4  stage" in picture
    # the names of the kernel's own stages
    assert "<!-- multiply" in picture and "<!-- load" in picture
    assert all(Path(path).stat().st_size > 10_000 for path in paths)


def test_a_kernel_without_a_loop_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path, text_of: Any) -> None:
    kernel = tmp_path / "kernel.amdgcn"
    kernel.write_text(text_of(["v_add_f32 v1, v1, v2"]))
    code, out, _ = run(capsys, "cycles", str(kernel), "--grid", "4")
    assert code == 0 and "\nno loop that a wave goes through more than once\n" in out


def test_a_picture_leaves_out_what_nothing_is_on(
    program: Path, capsys: pytest.CaptureFixture[str], text_of: Any
) -> None:
    pytest.importorskip("matplotlib")
    path = program.with_name("one.svg")
    for text, there, not_there in (
        (program.read_text(), ("wave 0  stage", "MFMA", "matrix unit of SIMD 0"), ("LDS", "vector ALU", "SIMD 1")),
        (text_of(["v_add_f32 v1, v2, v3"] * 9), ("wave 0  vector ALU", "scalar"), ("stage", "MFMA", "matrix unit")),
    ):
        program.write_text(text)
        assert run(capsys, "timeline", str(program), "--grid", "4", "-o", str(path))[0] == 0
        picture = path.read_text()
        assert [name for name in there if f"<!-- {name}" not in picture] == []
        assert [name for name in not_there if f"<!-- {name}" in picture] == []


def test_a_picture_is_the_same_every_time(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    paths = [program.with_name(name) for name in ("one.svg", "two.svg", "one.png", "two.png")]
    for path in paths:
        run(capsys, "timeline", str(program), "--grid", "4", "-o", str(path))
    texts = [path.read_bytes() for path in paths]
    assert texts[0] == texts[1] and texts[2] == texts[3]
    assert b"<dc:date>" not in texts[0]


FOUR = ["--grid", "4"]
WRONG = [
    (["cycles", "nope"], "'nope' is neither a kernel of the zoo nor a file; use gemm, attention"),
    (["cycles", "FILE"], "needs --grid"),
    (["cycles", "FILE", "--grid", "a"], "is not X[,Y[,Z]]"),
    (["cycles", "FILE", "--grid", "0"], "grid '0' is not X[,Y[,Z]]; write it like --grid 64"),
    (["cycles", "FILE", "--grid", "1,1,1,1"], "is not X[,Y[,Z]]"),
    (["cycles", "FILE", *FOUR, "--set", "x"], "is not NAME=VALUE"),
    (["cycles", "FILE", *FOUR, "--set", "x=1"], "unknown parameter 'x'"),
    (["cycles", "FILE", *FOUR, "--set", "lds_fifo=0"], "parameter lds_fifo = 0 is below 1 count"),
    (["cycles", "FILE", *FOUR, "--set", "barrier_clk=-1"], "parameter barrier_clk = -1 is below 0 clk"),
    (["cycles", "FILE", *FOUR, "--set", "barrier_clk=1e9"], "parameter barrier_clk = 1e+09 is above 16777216 clk"),
    (["cycles", "FILE", *FOUR, "--set", "barrier_clk=30.4"], "'barrier_clk=30.4': barrier_clk is a whole number"),
    (["cycles", "FILE", *FOUR, "--set", "clock_mhz=nan"], "parameter clock_mhz = nan is no finite number"),
    (["cycles", "FILE", *FOUR, "--set", "vmem_slot_share=inf"], "parameter vmem_slot_share = inf is no finite number"),
    (["cycles", "FILE", *FOUR, "--set", "vmem_slot_share=2"], "vmem_slot_share = 2 is no share, from 0 to 1"),
    (["cycles", "FILE", *FOUR, "--set", "oldest_first=2"], "oldest_first = 2 is neither 0 nor 1"),
    *((["cycles", "FILE", *FOUR, "--clock", x], f"a clock of {x} MHz is none") for x in ("0", "-1", "nan", "inf")),
    (["cycles", "FILE", *FOUR, "--lds", "-5"], "-5 bytes of LDS are no size; give --lds 0 or more"),
    (["cycles", "FILE", *FOUR, "--workgroup", "9"], "outside the grid"),
    (
        ["cycles", "FILE", *FOUR, "--arch", "gfx942"],
        "has its own: --arch goes with gemm, attention",
    ),
    (
        ["cycles", "FILE", *FOUR, "--dtype", "fp16", "--shape", "1,1,1"],
        "--shape, --dtype go with gemm, attention",
    ),
    (
        ["timeline", "FILE", *FOUR, "-o", "x.png", "--schedule", "a"],
        "--schedule goes with gemm, attention",
    ),
    (
        ["timeline", "FILE", *FOUR, "-o", "x.png", "--b-order", "nk"],
        "--b-order goes with gemm, attention",
    ),
    (["cycles", "gemm", "--grid", "4"], "--grid goes with an AMDGCN text only; drop --grid"),
    (["cycles", "gemm", "--lds", "4"], "--lds goes with an AMDGCN text only; drop --lds"),
    (["cycles", "gemm", "--shape", "4,4"], "is not M,N,K"),
    (["cycles", "gemm", "--shape", "0,4,4"], "shape 0,4,4 has no work in it; give three positive numbers"),
    (["cycles", "gemm", "--shape", "4,-4,4"], "shape 4,-4,4 has no work in it; give three positive numbers"),
    (["cycles", "gemm", "--shape", "1,1,99999999999999999999999"], "has an extent of 2**31 or more"),
    (["cycles", "gemm", "--dtype", "mxfp4", "--arch", "gfx942"], "no schedule multiplies mxfp4 on gfx942"),
    (["cycles", "gemm", "--dtype", "fp4"], "unknown dtype 'fp4'; use one of fp16, bf16, fp8, i8, mxfp4"),
    (["cycles", "gemm", "--dtype", "fp8", "--b-order", "kn"], "fp8 takes B with K contiguous only; drop --b-order"),
    (["cycles", "gemm", "--dtype", "mxfp4", "--shape", "16,16,48"], "K = 48 is no multiple of 32"),
    (["timeline", "gemm"], "--output"),
    (["timeline", "gemm", "-o", "x.pdf"], "is no known kind of file; use .pftrace, .png or .svg"),
    (["timeline", "gemm", "-o", "no/x.png"], "no/x.png cannot be written: no is no folder; make it first"),
    (
        ["timeline", "gemm", "-o", "x.png", "--iterations", "0"],
        "0 iterations show nothing; give --iterations a positive",
    ),
    (["timeline", "FILE", *FOUR, "-o", "x.png", "--simd", "4"], "there is no SIMD 4; have 0 to 3"),
    (
        ["timeline", "gemm", "-o", "x.png", "--schedule", "inter_wave_256", "--schedule", "inter_wave_128"],
        "--schedule is given 2 times, and timeline shows one kernel; give one",
    ),
]


@pytest.mark.parametrize(("argv", "message"), WRONG)
def test_wrong_input_is_one_line(
    capsys: pytest.CaptureFixture[str], program: Path, argv: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(program.parent)
    code, out, err = run(capsys, *[str(program) if word == "FILE" else word for word in argv])
    assert code == 2 and out == ""
    assert message in err and err.count("\n") == 1


def test_attention_of_the_zoo(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton")
    options = ("--shape", "256,512,64", "--schedule", "plain", "--json")
    code, out, _ = run(capsys, "cycles", "attention_causal", *options)
    assert code == 0
    case = json.loads(out)
    assert case["kernel"] == "attend" and case["loops"][0]["limits"]["MFMA"] > 0
    # the kernel's own choice, also where LLVM gives up the order of a window
    code, out, _ = run(capsys, "cycles", "attention_causal", "--shape", "300,500,128", "--json")
    assert code == 0 and json.loads(out)["loops"][0]["limits"]["MFMA"] > 0
    code, _, err = run(capsys, "cycles", "attention", "--b-order", "kn")
    assert code == 2 and "attention has no B order, and 'kn' was given; drop --b-order" in err
