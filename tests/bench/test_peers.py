"""The peers: the stock kernel compiles and is right, the model tunes it, and a table says who loses."""

from __future__ import annotations

import bench_samples as samples
import numpy as np
import pytest
from amdwarp.bench.cases.gemm import model_own, model_plain, model_stock, own_schedules
from amdwarp.bench.model import TileWork
from amdwarp.bench.peers import tables, tune
from amdwarp.bench.peers.kernel import PINGPONG, Config, compile_stock, has_pingpong, pingpong
from amdwarp.bench.registry import Modelled
from rich.console import Console

from amdwarp.emulator import launch
from amdwarp.errors import UsageError

SHAPE = (512, 512, 256)
SMALL = Config(128, 128, 32, 4, 2, 16)
#: A tile for which stock Triton's ping-pong pass knows a schedule on gfx950.
LARGE = Config(256, 256, 32, 8, 3, 16)


@pytest.mark.parametrize(("dtype", "k"), [("fp16", 96), ("bf16", 80)])
def test_stock_kernel_is_right(dtype: str, k: int) -> None:
    m, n = 144, 160
    a, b, c, *rest = tune.arguments(m, n, k, dtype)
    even = k % SMALL.bk == 0
    rng = np.random.default_rng(0)
    a[:] = rng.standard_normal(a.shape)
    b[:] = rng.standard_normal(b.shape)
    compiled = compile_stock(SMALL, dtype, "gfx950", None, even)
    launch(compiled.asm["amdgcn"], [a, b, c, *rest], SMALL.grid(m, n), lds_bytes=compiled.metadata.shared)
    expected = a.astype(np.float32) @ b.astype(np.float32).T
    difference = np.linalg.norm(c.astype(np.float32) - expected) / np.linalg.norm(expected)
    assert difference < {"fp16": 2.0**-10, "bf16": 2.0**-7}[dtype]


def test_pingpong_is_off_and_on(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    off, on = (compile_stock(LARGE, "fp16", "gfx950", setting) for setting in (False, True))
    assert not has_pingpong(off) and has_pingpong(on)
    assert not has_pingpong(compile_stock(SMALL, "fp16", "gfx950", True))
    # on gfx942 it takes only loops whose loads have no mask
    assert [has_pingpong(compile_stock(SMALL, "fp16", "gfx942", True, even)) for even in (True, False)] == [True, False]
    monkeypatch.setenv(PINGPONG, "0")
    with pingpong(None):
        assert PINGPONG not in os.environ
    with pytest.raises(KeyError), pingpong(True):
        assert os.environ[PINGPONG] == "1"
        raise KeyError
    assert os.environ[PINGPONG] == "0"


def test_tuning_ranks_by_the_model() -> None:
    configs = (SMALL, LARGE, Config(256, 256, 64, 8, 3, 16))
    found = tune.rank(SHAPE, "fp16", "gfx950", True, configs)
    clks = [row.clk for row in found]
    assert None not in clks[:2] and clks[:2] == sorted(clks[:2])  # type: ignore[type-var]
    assert found[2].clk is None and "163840 bytes of LDS on gfx950" in found[2].problem
    assert tune.tune(SHAPE, "fp16", "gfx950", False, configs) == found[0].config
    assert tune.tune(SHAPE, "fp16", "gfx950", True, configs) == LARGE
    with pytest.raises(UsageError, match="can be modelled for gfx950: ping-pong rewrites none of those that fit"):
        tune.tune(SHAPE, "fp16", "gfx950", True, (SMALL,))
    with pytest.raises(UsageError, match=r"can be modelled for gfx950: .*163840 bytes of LDS"):
        tune.tune(SHAPE, "fp16", "gfx950", False, configs[2:])
    with pytest.raises(UsageError, match="unknown dtype 'fp9'"):
        tune.arguments(16, 16, 16, "fp9")


def test_the_space_is_legal() -> None:
    found = tune.space()
    assert len(set(found)) == len(found) and len({str(one) for one in found}) == len(found)
    assert LARGE in found and all(one.kpack == 1 for one in found)
    assert any(one.kpack == 2 for one in tune.space("gfx942"))


def test_modelled_figures_agree_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "space", lambda *_: (SMALL, LARGE))
    own = model_own("inter_wave_128", (512, 512, 1024), "fp16", "gfx950")
    stock = model_stock("stock_pingpong_on", (512, 512, 1024), "fp16", "gfx950")
    assert stock.notes["config"] == f"{LARGE}, ping-pong at work" and own.parameters == stock.parameters
    for one in (own, stock):
        figures = one.figures
        # 16x16x32 MFMAs take 16 clk for 16384 FLOP on each of four SIMDs
        assert figures["flop_per_clk"] == pytest.approx(4096 * figures["mfma_busy"] / 100)
        # one workgroup a compute unit, so an iteration is one of it
        ideal = figures["clk_per_iteration"] * figures["mfma_busy"] / 100
        assert ideal == pytest.approx(figures["mfma_limit"], rel=0.01)
        assert one.compiled["vgprs"] > 0 and one.compiled["spills"] == 0
    assert own.figures["flop_per_byte"] == 64 and stock.figures["flop_per_byte"] == 128


@pytest.mark.parametrize(("iterations", "steps"), [(16, 1), (15, 1), (13, 1), (8, 2), (7, 2), (4, 4), (1, 16)])
def test_unrolled_and_peeled_loops(iterations: int, steps: int) -> None:
    work = TileWork((128, 256, 64), 1024, 2)
    assert work.steps_an_iteration(iterations) == steps
    assert work.flops(iterations) == 2 * 128 * 256 * 64 * steps
    assert work.bytes(iterations) == (128 + 256) * 64 * 2 * steps


# Tables


def peer(variant: str, clk: float | None, calibrated: bool = True) -> tables.Peer:
    if clk is None:
        return tables.Peer(variant, None, "it cannot")
    figures = {"clk_per_iteration": 9.0, "flop_per_clk": 8.0, "mfma_busy": 7.0, "kernel_clk": clk}
    notes = {"config": "c", "steady": ""}
    return tables.Peer(variant, Modelled(samples.DIGEST, calibrated, figures, {"vgprs": 6.0, "spills": 5.0}, notes))


@pytest.mark.parametrize(
    ("clk", "words", "ratio"),
    [
        (800.0, "takes fewer clk than stock tl.dot, ping-pong off: ratio 1.250", "1.250  fewer clk"),
        (990.0, "ties with stock tl.dot, ping-pong off: ratio 1.010", "1.010  tie"),
        (1250.0, "LOSES to stock tl.dot, ping-pong off: ratio 0.800", "0.800  MORE clk"),
    ],
)
def test_a_table_says_who_loses(clk: float, words: str, ratio: str) -> None:
    lines = [peer("stock", 1200.0), peer("stock_pingpong_off", 1000.0), peer("stock_pingpong_on", None)]
    lines += [peer("inter_wave_256", clk), peer("inter_wave_128", 2000.0)]
    assert words in tables.sentence(lines) and tables.sentence(lines).endswith("modelled.")
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115 - ends with the test
    console.print(tables.table(lines, SHAPE, "fp16", "gfx950"))
    text = console.export_text()
    assert text.startswith(f"512x512x256 fp16 on gfx950: modelled, not measured (parameters {samples.DIGEST})")
    line = next(line for line in text.splitlines() if "ours, inter_wave_256" in line)
    assert ratio in line
    assert "reference" in next(line for line in text.splitlines() if "ping-pong off" in line)


def test_a_table_without_kernels_of_ours_or_of_theirs() -> None:
    assert tables.sentence([peer("stock", 1.0), peer("inter_wave_256", None)]) == "This package has no kernel here."
    assert tables.sentence([peer("stock", None), peer("inter_wave_256", 1.0)]) == "There is nothing to compare with."


def test_an_uncalibrated_target_ranks_nothing() -> None:
    lines = [peer("stock", 1.0, calibrated=False), peer("inter_wave_256", 2.0, calibrated=False)]
    made = tables.table(lines, SHAPE, "fp16", "gfx1250")
    assert "uncalibrated: bounds only" in str(made.title)
    assert tables.fastest_stock(lines) is None and list(made.columns[8].cells) == ["", ""]
    assert list(made.columns[9].cells) == ["", ""]
    assert "not calibrated" in tables.sentence(lines) and "nothing is compared" in tables.sentence(lines)


def test_a_launch_without_a_loop_has_its_clk() -> None:
    made = model_plain("plain", (16, 64, 32), "fp16", "gfx950")
    assert made.figures.keys() == {"kernel_clk"} and made.figures["kernel_clk"] > 0
    console = Console(width=200)
    with console.capture() as shown:
        console.print(tables.table([tables.Peer("plain", made)], (16, 64, 32), "fp16", "gfx950"))
    assert "no loop" in shown.get() and f"{made.figures['kernel_clk']:.0f}" in shown.get()


def test_a_peer_that_cannot_be_had_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "STOCK", {})
    monkeypatch.setattr(tables, "own_schedules", lambda target, dtype: ["inter_wave_128"])
    monkeypatch.setattr(tables, "PLAIN_PEERS", ())
    (line,) = tables.peers(SHAPE, "fp16", "gfx1250")
    assert line.result is None and "gfx1250" in line.problem and line.own


def test_schedules_of_a_target() -> None:
    assert {"inter_wave_256", "inter_wave_128"} <= set(own_schedules("gfx950", "fp16"))
    assert not own_schedules("gfx1250", "fp16")
    assert not set(own_schedules("gfx950", "fp16")) & set(own_schedules("gfx942", "fp16"))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--target", "gfx900"], "unknown target 'gfx900'; use one of gfx942, gfx950, gfx1250"),
        (["--dtype", "fp9"], "unknown dtype 'fp9'"),
        (["--shape", "4096"], "shape '4096' is not M,N,K"),
        (["--shape", "100,64,64"], "is not of multiples of 16"),
        (["--nonsense"], "nonsense"),
    ],
)
def test_bad_words(
    words: list[str], text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from amdwarp.bench.peers import __main__ as command

    monkeypatch.setattr("sys.argv", ["peers", *words])
    assert command.script() == 2
    error = capsys.readouterr().err
    assert text in error and error.count("\n") == 1
