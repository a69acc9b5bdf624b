"""What a figure can be: its unit, where it may come from, which way is better.

No metric can come from both the model and a clock: a modelled figure stays one even where its ``source`` is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from amdwarp.errors import UsageError

HARDWARE, MODELLED, CPU = "hardware", "modelled", "cpu"
SOURCES = (HARDWARE, MODELLED, CPU)

#: How people are told what a source means, everywhere.
LABELS = {
    HARDWARE: "measured on a GPU",
    MODELLED: "modelled, not measured",
    CPU: "measured on this machine's CPU",
}


@dataclass(frozen=True)
class Metric:
    """A quantity.

    Attributes:
        name: in files. One that ends with ``.`` is a family: ``compile_time.`` covers ``compile_time.ttgir``.
        unit: of its values.
        source: the only source it can have.
        higher: more of it is better.
        title: for people.
        shown: stands in the charts; the others are inputs of the roofline.
        note: what to know before comparing two of them.
    """

    name: str
    unit: str
    source: str
    higher: bool
    title: str
    shown: bool = True
    note: str = ""


_TILES = "An iteration of a larger tile does more work: across tiles compare the loop throughput."

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("tflops", "TFLOP/s", HARDWARE, True, "Throughput"),
        Metric("time", "ms", HARDWARE, False, "Kernel time"),
        Metric("clk_per_iteration", "clk", MODELLED, False, "Loop iteration", note=_TILES),
        Metric("mfma_busy", "%", MODELLED, True, "MFMA busy in the loop"),
        Metric("flop_per_clk", "FLOP/clk/CU", MODELLED, True, "Loop throughput of a compute unit"),
        Metric("kernel_clk", "clk", MODELLED, False, "Whole launch"),
        Metric("flop_per_byte", "FLOP/byte", MODELLED, True, "Loop intensity", shown=False),
        Metric("mfma_limit", "clk", MODELLED, False, "Iteration on MFMA alone", shown=False),
        Metric("load_limit", "clk", MODELLED, False, "Iteration on global loads alone", shown=False),
        Metric("vgprs", "registers", CPU, False, "Vector registers, read from the compiled text"),
        Metric("spills", "registers", CPU, False, "Spilled registers, read from the compiled text"),
        Metric("compile_time.", "ms", CPU, False, "Compile time"),
        Metric("pass_time.", "ms", CPU, False, "Pass time"),
        Metric("launch_overhead.", "us", CPU, False, "Launch overhead on the host, stand-in driver"),
        Metric("emulator_throughput", "wave-instructions/s", CPU, True, "Emulator throughput, process time"),
        Metric("model_throughput", "wave-instructions/s", CPU, True, "Cycle model throughput, process time"),
    )
}


def get_metric(name: str) -> Metric:
    """The metric of a name, or of its family.

    Raises:
        UsageError: there is none.
    """
    family, dot, part = name.partition(".")
    metric = METRICS.get(name) if not dot else METRICS.get(family + dot)
    if metric is None or (dot and not part):
        known = ", ".join(key + "<part>" if key.endswith(".") else key for key in METRICS)
        raise UsageError(f"unknown metric {name!r}", remedy=f"use one of {known}")
    return metric


def title(name: str) -> str:
    """A metric's title, with the part of a family."""
    part = name.partition(".")[2]
    return get_metric(name).title + (f": {part}" if part else "")
