"""Compile before the first call: a list of products, in parallel, with a progress bar.

>>> jobs = [gemm.Job.of(m, 4096, 4096, "bfloat16", "gfx950") for m in (1, 16, 64)]
>>> gemm.compile_ahead(jobs)                                    # processes of this machine
>>> gemm.compile_ahead(jobs, executor=client.get_executor())    # a Dask cluster

Binaries go to Triton's cache (``TRITON_CACHE_DIR``), which the workers have to share with the process that launches.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any

from amdwarp.errors import UsageError
from amdwarp.target import get_target

from .dtypes import DTYPES

FUNCTIONS = ("matmul", "batched_matmul", "linear", "scaled_matmul", "int8_matmul")


@dataclass(frozen=True)
class ArraySpec:
    """An argument that is an array: shape, dtype, and whether its last two dimensions stand transposed in memory."""

    shape: tuple[int, ...]
    dtype: str
    transposed: bool = False

    def blank(self) -> Any:
        """Such an array, of zeros whose pages are never touched."""
        import ml_dtypes
        import numpy as np

        kind = getattr(np, self.dtype, None) or getattr(ml_dtypes, self.dtype)
        shape = (*self.shape[:-2], self.shape[-1], self.shape[-2]) if self.transposed else self.shape
        array = np.zeros(shape, kind)
        return array.swapaxes(-1, -2) if self.transposed else array


@dataclass(frozen=True)
class Job:
    """One call to compile for.

    Attributes:
        function: one of ``FUNCTIONS``.
        target: arch.
        arrays: arguments that are arrays, by name.
        options: the other arguments, by name.
    """

    function: str
    target: str
    arrays: Mapping[str, ArraySpec]
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, m: int, n: int, k: int, dtype: str, target: str, *, bias: bool = False, **options: Any) -> Job:
        """A `linear` layer: x (M, K) with a weight (N, K).

        Args:
            m, n, k: extents.
            dtype: ``float16``, ``bfloat16`` or ``float32``.
            target: arch.
            bias: with a bias.
            options: further arguments of `linear`.
        """
        arrays = {"x": ArraySpec((m, k), dtype), "w": ArraySpec((n, k), dtype)}
        if bias:
            arrays["bias"] = ArraySpec((n,), dtype)
        return cls("linear", target, arrays, options)

    def check(self) -> None:
        """Refuse what no function takes.

        Raises:
            UsageError: an unknown function, target or dtype.
        """
        if self.function not in FUNCTIONS:
            remedy = f"use one of {', '.join(FUNCTIONS)}"
            raise UsageError(f"there is no function {self.function!r}", remedy=remedy, construct="Job")
        get_target(self.target)
        for name, spec in self.arrays.items():
            if spec.dtype not in DTYPES and spec.dtype != "uint8":
                raise UsageError(f"{name} is {spec.dtype!r}", remedy=f"use one of {', '.join(DTYPES)}", construct="Job")
            if not all(type(extent) is int and extent >= 0 for extent in spec.shape):
                problem = f"{name} has the shape {spec.shape}"
                raise UsageError(problem, remedy="use integers of at least 0", construct="Job")


@dataclass(frozen=True)
class Ahead:
    """One kernel that was compiled ahead.

    Attributes:
        job: the job it is for; one may have two kernels.
        schedule: name of its configuration.
        seconds: of the whole job, cached or not.
        vgprs, spills, lds_bytes: what it takes.
    """

    job: Job
    schedule: str
    seconds: float
    vgprs: int
    spills: int
    lds_bytes: int


def compile_job(job: Job) -> list[Ahead]:
    """Compile the kernels of one job in this process.

    Raises:
        UsageError: a call that the function refuses.
    """
    from amdwarp.kernels import gemm

    import amdwarp
    from amdwarp.resources import resources

    began = time.perf_counter()
    job.check()
    arrays = {name: spec.blank() for name, spec in job.arrays.items()}
    with amdwarp.emulate(job.target, execute=False) as emulation:
        getattr(gemm, job.function)(**arrays, **job.options)
    seconds = time.perf_counter() - began
    made = []
    for launch, compiled, _ in emulation.records:
        used = resources(compiled.asm["amdgcn"])
        name = gemm.schedule_name(launch.constexprs["S"])
        made.append(Ahead(job, name, seconds, used.vgprs, used.spills, compiled.metadata.shared))
    return made


def compile_ahead(jobs: Sequence[Job], *, executor: Executor | None = None, progress: bool = True) -> list[Ahead]:
    """Compile the kernels of many products.

    Args:
        jobs: what will be called.
        executor: any ``concurrent.futures.Executor``; a pool of processes of this machine if None.
        progress: show a bar.

    Returns:
        the kernels, in the order of the jobs.

    Raises:
        UsageError: a job that its function refuses, before any other is waited for.
    """
    for job in jobs:
        if not isinstance(job, Job):
            raise UsageError(f"{job!r} is no Job", remedy="pass a list of Jobs", construct="compile_ahead")
        job.check()
    if executor is not None:
        return _collect(jobs, executor, progress)
    workers = max(1, min(len(jobs), os.cpu_count() or 1))
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        return _collect(jobs, pool, progress)


def _collect(jobs: Sequence[Job], executor: Executor, progress: bool) -> list[Ahead]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    futures = {executor.submit(compile_job, job): at for at, job in enumerate(jobs)}
    results: dict[int, list[Ahead]] = {}
    with Progress(*columns, disable=not progress) as bar:
        task = bar.add_task("compiling", total=len(jobs))
        try:
            for future in as_completed(futures):
                results[futures[future]] = future.result()
                bar.advance(task)
        except BaseException:
            for future in futures:
                future.cancel()
            raise
    return [one for at in range(len(jobs)) for one in results[at]]
