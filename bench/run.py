"""Runs cases: hardware where the GPU is, the cycle model elsewhere, pytest-benchmark for what this CPU does."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amdwarp.errors import AmdwarpError, UsageError

from .machine import Gpu, Machine
from .metrics import CPU, HARDWARE, MODELLED
from .registry import Case
from .rows import hardware_rows, host_row, modelled_rows
from .schema import Row, check

QUANTILES = (0.2, 0.5, 0.8)


@dataclass
class Results:
    """Rows of a run, and what did not come about: (case, source, why)."""

    rows: list[Row] = field(default_factory=list)
    missing: list[tuple[str, str, str]] = field(default_factory=list)


def sources_for(case: Case, gpu: Gpu | None, wanted: Sequence[str]) -> list[str]:
    """Where a case's figures come from on this machine: hardware rather than the model, unless one is asked for."""
    found = []
    on_gpu = gpu is not None and gpu.arch == case.target and case.hardware is not None
    if on_gpu and (not wanted or HARDWARE in wanted):
        found.append(HARDWARE)
    if case.modelled is not None and (MODELLED in wanted or (not wanted and not on_gpu)):
        found.append(MODELLED)
    if case.cpu is not None and (not wanted or CPU in wanted):
        found.append(CPU)
    return found


def run_cases(
    chosen: Sequence[Case],
    machine: Machine,
    wanted: Sequence[str] = (),
    say: Callable[[str], object] = lambda text: None,
    keep: Callable[[Sequence[Row]], object] = lambda rows: None,
) -> Results:
    """Run cases.

    Args:
        chosen: the cases.
        machine: what this runs on.
        wanted: sources to take; by default hardware where it is there, the model elsewhere, and the CPU.
        say: told of each case before it runs.
        keep: given all rows so far after each case, so that a run that is broken off loses none but the case's own.

    Returns:
        the rows, and the cases that failed, which do not stop the others.

    Raises:
        UsageError: hardware is asked for and there is none, or a package is missing.
    """
    if HARDWARE in wanted and machine.gpu is None:
        from .machine import find_gpu

        raise UsageError(f"there is no GPU to measure on: {find_gpu()[1]}", remedy="leave out --source hardware")
    results = Results()
    on_host = []
    for case in chosen:
        sources = sources_for(case, machine.gpu, wanted)
        if CPU in sources:
            on_host.append(case)
        for source in (source for source in sources if source != CPU):
            say(f"{case.name}: {source}")
            rows, why = _hardware_or_why(case, machine) if source == HARDWARE else _modelled_or_why(case, machine)
            _add(results, rows, keep)
            if why:
                results.missing.append((case.name, source, why))
    if on_host:
        _host(on_host, machine, results, say, keep)
    return results


def _add(results: Results, rows: Sequence[Row], keep: Callable[[Sequence[Row]], object]) -> None:
    """Take the rows of a case."""
    if rows:
        check(rows)
        results.rows += rows
        keep(results.rows)


def _modelled_or_why(case: Case, machine: Machine) -> tuple[list[Row], str]:
    assert case.modelled is not None
    try:
        return modelled_rows(case, machine, case.modelled()), ""
    except AmdwarpError as error:
        return [], str(error)
    except Exception as error:  # of stock Triton, for one; a fault in one case does not stop the others
        return [], f"{type(error).__name__}: {error}"


def _hardware_or_why(case: Case, machine: Machine) -> tuple[list[Row], str]:
    try:
        return _hardware(case, machine), ""
    except AmdwarpError as error:
        return [], str(error)
    except Exception as error:  # torch, the driver and stock Triton have errors of many types
        return [], f"{type(error).__name__}: {error}"


def _hardware(case: Case, machine: Machine, bench: Callable[..., Any] | None = None) -> list[Row]:
    """Time a case on the GPU with Triton's ``do_bench``; a wrong result is an error, not a figure.

    Untested on hardware; tests run it on the CPU with a clock of their own.
    """
    assert case.hardware is not None and machine.gpu is not None
    if bench is None:
        from triton.testing import do_bench

        bench = do_bench
    work = case.hardware()
    work.call()
    if wrong := work.check():
        raise AmdwarpError(f"its result is wrong, so it was not timed: {wrong}")
    quantiles = bench(work.call, quantiles=list(QUANTILES))
    return hardware_rows(case, machine, machine.gpu, quantiles, work.flops)


# pytest-benchmark


def _host(
    chosen: Sequence[Case],
    machine: Machine,
    results: Results,
    say: Callable[[str], object],
    keep: Callable[[Sequence[Row]], object],
) -> None:
    for module, package in (("pytest", "pytest"), ("pytest_benchmark", "pytest-benchmark")):
        if importlib.util.find_spec(module) is None:
            raise UsageError(f"{package} is not installed", remedy='pip install "amdwarp[bench]"')
    for case in chosen:
        say(f"{case.name}: cpu")
        entries, why = _pytest(case)
        if why:
            results.missing.append((case.name, CPU, why))
        _add(results, [row for entry in entries for row in host_rows(entry, case, machine)], keep)


def _pytest(case: Case) -> tuple[list[dict[str, Any]], str]:
    """Entries of pytest-benchmark for a case, run in a child of its own; and why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        file = Path(__file__).with_name("host_benchmarks.py")
        words = [sys.executable, "-m", "pytest", f"{file}::test_host[{case.name}]"]
        words += ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--import-mode=importlib"]
        words += ["-c", os.devnull, "--rootdir", folder, f"--benchmark-json={out}", f"--benchmark-storage={folder}"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment["TRITON_DEFAULT_FP_FUSION"] = "1"
        done = subprocess.run(words, capture_output=True, text=True, env=environment)
        if done.returncode == 0 and out.exists():
            return list(json.loads(out.read_text())["benchmarks"]), ""
        wrong = [line for line in done.stdout.splitlines() if line.startswith("E ")]
        last = (wrong or (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"])[-1]
        return [], f"pytest ended with {done.returncode}: {last.removeprefix('E ').strip()}"


def host_rows(entry: dict[str, Any], case: Case, machine: Machine) -> list[Row]:
    """Rows of one entry of pytest-benchmark's JSON."""
    info = entry["extra_info"]
    rows = [host_row(case, machine, info["metric"], entry["stats"]["data"], info["amount"])]
    rows += [host_row(case, machine, name, seconds, None) for name, seconds in info["parts"].items()]
    return rows
