"""Runs jobs of ``corpus_child.py`` in child processes: a fault in the wheel then fails one job and not the session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CHILD = Path(__file__).with_name("corpus_child.py")
TIMEOUT = 300.0  # seconds for one child; the whole corpus takes about 25 on one core


def run_jobs(jobs: list[str]) -> dict[str, dict[str, Any]]:
    """Run each job and return its result by name.

    A job that raised has ``{"error": text}``; one during which the child died has ``{"died": text}``, and the jobs
    after it run in a new child.
    """
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as cache:
        while left := [job for job in jobs if job not in results]:
            results.update(_run_child(left, cache))
    return results


def _run_child(jobs: list[str], cache: str) -> dict[str, dict[str, Any]]:
    environment = {**os.environ, "TRITON_CACHE_DIR": cache, "PYTHONFAULTHANDLER": "1"}
    done = subprocess.run(
        [sys.executable, str(CHILD), *jobs],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    results: dict[str, dict[str, Any]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("@result "):
            job, result = json.loads(line.removeprefix("@result "))
            results[job] = result
    if len(results) < len(jobs):
        results[jobs[len(results)]] = {"died": f"exit status {done.returncode}\n{done.stderr[-4000:]}"}
    return results
