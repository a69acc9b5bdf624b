"""From what a run gave to rows of the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .machine import Gpu, Machine
from .metrics import CPU, HARDWARE, MODELLED, get_metric
from .registry import Case, Modelled
from .schema import Row

PERCENTILES = (20, 50, 80)
_SECONDS = {"ms": 1e3, "us": 1e6}


def percentiles(values: Sequence[float]) -> tuple[float, float, float]:
    """p20, p50, p80."""
    low, middle, high = (float(x) for x in np.percentile(np.asarray(values, float), PERCENTILES))
    return low, middle, high


def make_row(
    case: Case,
    machine: Machine,
    metric: str,
    values: tuple[float, float, float],
    *,
    gpu: Gpu | None = None,
    modelled: Modelled | None = None,
) -> Row:
    """A row; its source is the metric's own."""
    known = get_metric(metric)
    return Row(
        kernel=case.kernel,
        variant=case.variant,
        shape=case.shape,
        dtype=case.dtype,
        metric=metric,
        unit=known.unit,
        p20=values[0],
        p50=values[1],
        p80=values[2],
        source=known.source,
        target=case.target,
        gpu=gpu.name if gpu is not None else "",
        rocm=gpu.rocm if gpu is not None else "",
        cpu=machine.cpu if known.source == CPU else "",
        triton=machine.triton,
        amdwarp=machine.amdwarp,
        commit=machine.commit,
        time=machine.time,
        parameters=modelled.parameters if modelled is not None and known.source == MODELLED else "",
        calibrated=_calibrated(modelled) if known.source == MODELLED else "",
    )


def _calibrated(modelled: Modelled | None) -> str:
    if modelled is None:
        return ""
    return "yes" if modelled.calibrated else "no"


def modelled_rows(case: Case, machine: Machine, result: Modelled) -> list[Row]:
    """Modelled figures, and those read from the compiled text."""
    figures: Mapping[str, float] = {**result.figures, **result.compiled}
    return [make_row(case, machine, name, (value,) * 3, modelled=result) for name, value in figures.items()]


def hardware_rows(case: Case, machine: Machine, gpu: Gpu, quantiles_ms: Sequence[float], flops: float) -> list[Row]:
    """Time and throughput from the 20 %, 50 % and 80 % quantiles of the time in ms."""
    low, middle, high = quantiles_ms
    rates = (flops / high / 1e9, flops / middle / 1e9, flops / low / 1e9)
    pairs = (("time", (low, middle, high)), ("tflops", rates))
    assert all(get_metric(name).source == HARDWARE for name, _ in pairs)
    return [make_row(case, machine, name, values, gpu=gpu) for name, values in pairs]


def host_row(case: Case, machine: Machine, metric: str, seconds: Sequence[float], amount: float | None) -> Row:
    """A duration in the metric's unit, or the throughput at an amount of work."""
    if amount is not None:
        values = [amount / second for second in seconds]
    else:
        values = [_SECONDS[get_metric(metric).unit] * second for second in seconds]
    return make_row(case, machine, metric, percentiles(values))
