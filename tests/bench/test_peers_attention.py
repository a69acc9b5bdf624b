"""The stock flash attention is right, and its line in the table is of the model."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("triton")


def test_a_configuration_that_does_not_fit_says_why_and_others_are_modelled():
    from amdwarp.bench.peers.attention import Config, Line, stock, table

    found = stock(Config(128, 64, 4, 2), 256)
    assert found.problem == "" and found.one is not None and found.loop is not None
    assert 0 < found.loop.mfma_busy < 1 and found.spills == 0
    shown = table([found, Line("ours, none", problem="no reason")], 256)
    assert shown.row_count == 2 and "modelled, not measured" in str(shown.title)
    bad = stock(Config(100, 64, 4, 2), 256)
    assert bad.one is None and bad.problem and bad.clk == float("inf")


def test_the_stock_kernel_computes_attention():
    import numpy as np
    from amdwarp.bench.peers.attention import flash_attention
    from amdwarp.kernels.attention import reference

    import amdwarp
    from amdwarp.runtime import Launch, run

    q, k, v = (np.random.default_rng(n).standard_normal((2, 128, 64)).astype(np.float16) for n in range(3))
    out = np.zeros_like(q)
    arguments = {"q_ptr": q, "k_ptr": k[:1], "v_ptr": v[:1], "out_ptr": out, "scale": 0.125 * 1.4426950408889634}
    arguments |= {"head_stride": 128 * 64, "row_stride": 64, "keys": 128, "ratio": 2}
    with amdwarp.emulate("gfx950"):
        run(Launch(flash_attention, (1, 2), arguments, {"BM": 128, "BN": 64, "D": 64}, {"num_warps": 4}))
    expected, _ = reference.attention(q[None], k[None, :1], v[None, :1])
    assert np.abs(out - expected[0]).max() < 2e-3


@pytest.mark.parametrize(
    "argument,code,text", [("--help", 0, "usage:"), ("--arch", 2, "unrecognized arguments: --arch")]
)
def test_its_command_line_ignores_nothing(argument, code, text):
    command = [sys.executable, "-m", "amdwarp.bench.peers.attention", argument]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == code and text in done.stdout + done.stderr
