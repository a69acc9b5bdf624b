"""Help for the test suites of kernel authors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .sanitizer import Report, check


def assert_race_free(compiled: Any, args: Sequence[Any], grid: tuple[int, ...], **options: Any) -> Report:
    """Fail if the sanitizer finds anything wrong with a kernel; see `amdwarp.sanitizer.check` for the arguments.

    Args:
        compiled: a Triton kernel compiled for an AMD GPU, or its AMDGCN text.
        args: the run-time arguments: numpy arrays, CPU tensors, scalars. Arrays hold the kernel's results afterwards.
        grid: workgroups along x, y, z.
        options: `workgroups`, `seeds`, `lds_bytes`, … of `check`.

    Returns:
        the report, which has no findings.

    Raises:
        AssertionError: with every finding.
    """
    __tracebackhide__ = True
    report = check(compiled, args, grid, **options)
    if not report.ok:
        raise AssertionError(f"the sanitizer reports:\n{report}")
    return report
