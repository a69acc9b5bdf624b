"""What a figure was obtained with: versions, commit, processor, GPU."""

from __future__ import annotations

import functools
import importlib.util
import platform
import subprocess
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import amdwarp
from amdwarp.target import TARGETS


@dataclass(frozen=True)
class Gpu:
    """The GPU that figures can be measured on: its arch, name and ROCm version."""

    arch: str
    name: str
    rocm: str


@dataclass(frozen=True)
class Machine:
    """What every row of a run has in common."""

    triton: str
    amdwarp: str
    commit: str
    time: str
    cpu: str
    gpu: Gpu | None


def this_machine() -> Machine:
    """The machine, software and time of a run that starts now."""
    from amdwarp.lowering.bridge import require_triton

    now = datetime.now(timezone.utc).replace(microsecond=0).isoformat()
    return Machine(require_triton().text, amdwarp.__version__, commit(), now, cpu_name(), find_gpu()[0])


@functools.cache
def find_gpu() -> tuple[Gpu | None, str]:
    """The first GPU of a ROCm torch, or None and why there is none."""
    if importlib.util.find_spec("torch") is None:
        return None, "torch is not installed"
    import torch

    return gpu_of(torch)


def gpu_of(torch: Any) -> tuple[Gpu | None, str]:
    """The same, of the torch that is given."""
    if torch.version.hip is None:
        return None, "this torch is not a ROCm build"
    if not torch.cuda.is_available():
        return None, "torch finds no GPU"
    properties = torch.cuda.get_device_properties(0)
    arch = str(properties.gcnArchName).split(":")[0]
    if arch not in TARGETS:
        return None, f"the GPU is a {arch}, not one of {', '.join(TARGETS)}"
    return Gpu(arch, str(properties.name), str(torch.version.hip)), ""


def commit(folder: Path | None = None) -> str:
    """Commit of the source tree that this package is in, or ""."""
    where = folder or Path(__file__).resolve().parent
    head = _git(where, "rev-parse", "HEAD")
    if not head or not _git(where, "ls-files", "--", str(where)):
        return ""
    return head + ("-dirty" if _git(where, "status", "--porcelain", "--untracked-files=no") else "")


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def cpu_name() -> str:
    """The processor, in the kernel's words."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named and named[0] else platform.processor() or platform.machine()
