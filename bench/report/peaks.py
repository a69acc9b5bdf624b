"""Peaks of GPUs for the hardware roofline, from AMD's data sheets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Peak:
    """Dense 16-bit matrix TFLOP/s and memory TB/s of a product."""

    tflops: float
    tbytes: float


#: Part of the GPU's name to its peaks. AMD Instinct data sheets of the MI300X, MI325X, MI350X and MI355X:
#: "peak half precision (FP16) performance", without sparsity, and "peak memory bandwidth".
PEAKS = {
    "MI300X": Peak(1307.4, 5.3),
    "MI325X": Peak(1307.4, 6.0),
    "MI350X": Peak(2300.0, 8.0),
    "MI355X": Peak(2500.0, 8.0),
}


def peak_of(gpu: str) -> Peak | None:
    """The peaks of a GPU by its name, or None."""
    return next((peak for name, peak in PEAKS.items() if name in gpu.upper()), None)
