"""Made-up rows for the tests of schema and page. No figure here was measured or modelled."""

from __future__ import annotations

import dataclasses
from typing import Any

from amdwarp.bench.metrics import get_metric
from amdwarp.bench.schema import Row

DIGEST = "0123456789ab"


def row(metric: str, value: float, /, **changes: Any) -> Row:
    """A valid row with a made-up value."""
    known = get_metric(metric)
    hardware, modelled = known.source == "hardware", known.source == "modelled"
    made = Row(
        kernel="gemm",
        variant="inter_wave_256",
        shape="4096x4096x4096",
        dtype="fp16",
        metric=metric,
        unit=known.unit,
        p20=value,
        p50=value,
        p80=value,
        source=known.source,
        target="gfx950",
        gpu="AMD Instinct MI355X" if hardware else "",
        rocm="7.1.0" if hardware else "",
        cpu="Test CPU" if known.source == "cpu" else "",
        triton="3.9.0",
        amdwarp="0.1.0",
        commit="a" * 40,
        time="2026-01-01T00:00:00+00:00",
        parameters=DIGEST if modelled else "",
        calibrated="yes" if modelled else "",
    )
    return dataclasses.replace(made, **changes)


def many_rows() -> list[Row]:
    """Two variants, two dtypes and two dates of every kind of figure."""
    rows = []
    modelled = {
        "clk_per_iteration": 2400,
        "mfma_busy": 85,
        "flop_per_clk": 3495,
        "kernel_clk": 170000,
        "flop_per_byte": 128,
        "mfma_limit": 2048,
        "load_limit": 1414,
    }
    host = {"compile_time.total": 700, "compile_time.ttgir": 60, "emulator_throughput": 250000, "vgprs": 240}
    for day in (1, 2):
        for at, variant in enumerate(("inter_wave_256", "stock")):
            for dtype in ("fp16", "bf16"):
                scale = 1 + 0.1 * at - 0.02 * day
                common = {"variant": variant, "dtype": dtype, "time": f"2026-01-0{day}T00:00:00+00:00"}
                rows += [row(name, value * scale, **common) for name, value in modelled.items()]
                rows += [row(name, value * scale, **common) for name, value in host.items()]
                for name, value in (("tflops", 1500), ("time", 0.1)):
                    spread = {"p20": value * scale * 0.97, "p80": value * scale * 1.05}
                    rows.append(row(name, value * scale, **common, **spread))
    return rows
