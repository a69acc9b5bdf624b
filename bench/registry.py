"""The cases: one entry each, and the ways in which it can be run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from amdwarp.errors import UsageError

from .metrics import CPU, HARDWARE, MODELLED


@dataclass(frozen=True)
class Modelled:
    """What the cycle model says of a launch.

    Attributes:
        parameters: digest of the model's parameters.
        calibrated: they rest on measurements.
        figures: modelled metric to value.
        compiled: metric to value that was read from the compiled text.
        notes: what a person should know beside the figures: configuration, what bounds the loop.
    """

    parameters: str
    calibrated: bool
    figures: Mapping[str, float]
    compiled: Mapping[str, float]
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GpuWork:
    """Work to be timed on a GPU.

    Attributes:
        call: does it once.
        flops: floating-point operations of one call.
        check: says what is wrong with the result of the last call, or "".
    """

    call: Callable[[], object]
    flops: float
    check: Callable[[], str]


@dataclass(frozen=True)
class HostWork:
    """Work to be timed on this machine's CPU.

    Attributes:
        call: does it once.
        metric: of the whole call.
        amount: for a throughput, what one call gets done; None for a duration.
        parts: after the calls, seconds of each of them by metric, where a call knows more than its whole duration.
        rounds, iterations: how often it is timed, and calls in each of these.
        close: to be called in the end.
    """

    call: Callable[[], object]
    metric: str
    amount: float | None = None
    parts: Callable[[], Mapping[str, Sequence[float]]] = dict
    rounds: int = 5
    iterations: int = 1
    close: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Case:
    """One thing that is benchmarked.

    Attributes:
        kernel, variant, shape, dtype, target: as in `amdwarp.bench.schema.Row`.
        modelled, hardware, cpu: builds the work for that source; None where a case has none.
        baseline: others are compared with it.
    """

    kernel: str
    variant: str
    shape: str
    dtype: str
    target: str
    modelled: Callable[[], Modelled] | None = None
    hardware: Callable[[], GpuWork] | None = None
    cpu: Callable[[], HostWork] | None = None
    baseline: bool = False

    @property
    def name(self) -> str:
        """Unique: the parts that are not empty, with slashes between them."""
        return "/".join(part for part in (self.kernel, self.variant, self.shape, self.dtype, self.target) if part)

    @property
    def sources(self) -> tuple[str, ...]:
        """Where its figures can come from."""
        builders: dict[str, Any] = {HARDWARE: self.hardware, MODELLED: self.modelled, CPU: self.cpu}
        return tuple(source for source, builder in builders.items() if builder is not None)


@functools.cache
def cases() -> dict[str, Case]:
    """Every case by name."""
    from .cases import gemm, host

    found: dict[str, Case] = {}
    for case in (*gemm.build_cases(), *host.build_cases()):
        if case.name in found:
            raise ValueError(f"two cases are called {case.name}")
        found[case.name] = case
    return found


def select(patterns: Sequence[str]) -> list[Case]:
    """Cases whose name matches one of the patterns, or begins with it and a slash; all without patterns.

    Raises:
        UsageError: a pattern that matches nothing.
    """
    known = cases()
    if not patterns:
        return list(known.values())
    chosen: dict[str, Case] = {}
    for pattern in patterns:
        names = [name for name in known if fnmatchcase(name, pattern) or fnmatchcase(name, pattern.rstrip("/") + "/*")]
        if not names:
            raise UsageError(f"no case matches {pattern!r}", remedy="amdwarp bench list shows them")
        chosen |= {name: known[name] for name in names}
    return list(chosen.values())
