"""What runs on this machine: compilation, passes, launches on a stand-in driver, emulator and cycle model."""

from __future__ import annotations

import contextlib
import functools
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..registry import Case, HostWork
from .gemm import own_launch, own_plan, own_schedules, shape_text

TARGET = "gfx950"
DTYPE = "fp16"
#: For the launch; only its sizes matter, since nothing runs.
LAUNCH_SHAPE = (512, 512, 512)
#: One tile of the largest schedule, and a loop of sixteen steps.
RUN_SHAPE = (256, 256, 1024)


class Seconds:
    """Durations by metric, in the order in which they come."""

    def __init__(self) -> None:
        self.lists: dict[str, list[float]] = {}

    def add(self, metric: str, seconds: float) -> None:
        """One more duration of a metric."""
        self.lists.setdefault(metric, []).append(seconds)

    def __call__(self) -> Mapping[str, Sequence[float]]:
        return self.lists


def compile_anew(chosen: Any) -> None:
    """Compile a plan's kernel with an empty cache."""
    from triton import knobs

    import amdwarp

    with tempfile.TemporaryDirectory() as folder, knobs.cache.scope():
        knobs.cache.dir = folder
        function, hints = chosen.function(), chosen.hints
        amdwarp.compile(function, chosen.signature, chosen.constexprs, TARGET, attrs=hints, **chosen.options)


def compile_work(schedule: str) -> HostWork:
    """Compilation with nothing cached; its phases as Triton's compiler times them."""
    from triton import knobs

    chosen = own_plan(schedule, LAUNCH_SHAPE, DTYPE, TARGET)
    parts = Seconds()

    def listen(*, times: Any, **others: Any) -> None:
        parts.add("compile_time.front_end", times.ir_initialization / 1e6)
        for name, microseconds in times.lowering_stages:
            parts.add(f"compile_time.{name}", microseconds / 1e6)

    def call() -> None:
        before = knobs.compilation.listener
        knobs.compilation.listener = listen
        try:
            compile_anew(chosen)
        finally:
            knobs.compilation.listener = before

    call()  # what happens once a process, such as imports, is no part of it
    parts.lists.clear()
    return HostWork(call, "compile_time.total", parts=parts)


def pass_work(schedule: str) -> HostWork:
    """The passes that run on TTGIR, each with the verification after it, on the module they get from stock Triton."""
    from amdwarp.lowering import text
    from amdwarp.lowering.passes import SCHEDULE
    from amdwarp.lowering.pipeline import run_passes

    source = stock_ttgir(schedule)
    parts = Seconds()

    def call() -> None:
        for timing in run_passes(text.parse(source), list(SCHEDULE)):
            parts.add(f"pass_time.{timing.name}", timing.seconds + timing.verify_seconds)

    call()
    parts.lists.clear()
    return HostWork(call, "pass_time.parse_and_all", parts=parts, rounds=10)


def stock_ttgir(schedule: str) -> str:
    """The TTGIR that our passes get for a schedule, in generic form."""
    from amdwarp.lowering import pipeline, text

    seen: list[str] = []
    run = pipeline.run_passes

    def watch(module: Any, passes: Sequence[Any], **others: Any) -> Any:
        seen.append(text.print_module(module))
        return run(module, passes, **others)

    pipeline.run_passes = watch
    try:
        compile_anew(own_plan(schedule, LAUNCH_SHAPE, DTYPE, TARGET))
    finally:
        pipeline.run_passes = run
    return seen[-1]  # the run before it marks the stages


def launch_work(schedule: str) -> HostWork:
    """From tensors to the driver's launch call: the plan with its checks, then Triton's own part."""
    import torch
    from amdwarp.kernels.gemm import Matrix, plan

    from ..stand_in import stand_in

    m, n, k = LAUNCH_SHAPE
    a, c = torch.zeros((m, k), dtype=torch.float16), torch.zeros((m, n), dtype=torch.float16)
    b = torch.zeros((n, k), dtype=torch.float16).t()

    def matrix(value: Any) -> Any:
        (rows, columns), (row_stride, column_stride) = value.shape, value.stride()
        return Matrix(rows, columns, row_stride, column_stride, value.data_ptr())

    parts = Seconds()

    def call() -> None:
        started = time.perf_counter()
        chosen = plan(matrix(a), matrix(b), matrix(c), DTYPE, schedule, target=TARGET)
        arguments = {"a_ptr": a, "b_ptr": b, "c_ptr": c} | chosen.arguments
        planned = time.perf_counter()
        chosen.function()[chosen.grid](**arguments, **chosen.constexprs, **chosen.options)
        parts.add("launch_overhead.plan", planned - started)
        parts.add("launch_overhead.triton", time.perf_counter() - planned)

    stack = contextlib.ExitStack()
    stack.enter_context(stand_in(TARGET))
    call()
    parts.lists.clear()
    return HostWork(call, "launch_overhead.total", parts=parts, rounds=30, iterations=10, close=stack.close)


def emulator_work(schedule: str) -> HostWork:
    """One workgroup in the emulator."""
    from amdwarp.emulator import launch

    one = own_launch(schedule, RUN_SHAPE, DTYPE, TARGET)
    text, lds = one.compiled.asm["amdgcn"], int(one.compiled.metadata.shared)

    def call() -> Any:
        return launch(text, one.args, one.grid, workgroups=[0], lds_bytes=lds)

    return HostWork(call, "emulator_throughput", amount=float(call().instructions))


def model_work(schedule: str) -> HostWork:
    """The cycle model on the record of one workgroup; recording is not in it."""
    from amdwarp.asm import parse
    from amdwarp.cycles import load, record, simulate

    one = own_launch(schedule, RUN_SHAPE, DTYPE, TARGET)
    parameters = load(TARGET)
    lds = int(one.compiled.metadata.shared)
    trace = record(parse(one.compiled.asm["amdgcn"]), one.args, one.grid, lds_bytes=lds, parameters=parameters)

    def call() -> Any:
        return simulate(trace, parameters, resident=1)

    return HostWork(call, "model_throughput", amount=float(call().issued))


def _case(kind: str, builder: Any, schedule: str, shape: tuple[int, int, int] | None) -> Case:
    text = shape_text(shape) if shape is not None else ""
    return Case(kind, schedule, text, DTYPE, TARGET, cpu=functools.partial(builder, schedule))


def build_cases() -> list[Case]:
    """Every case of this file."""
    kinds = (
        ("compile", compile_work, None),
        ("passes", pass_work, None),
        ("launch", launch_work, LAUNCH_SHAPE),
        ("emulator", emulator_work, RUN_SHAPE),
        ("model", model_work, RUN_SHAPE),
    )
    names = own_schedules(TARGET, DTYPE)
    return [_case(kind, builder, name, shape) for kind, builder, shape in kinds for name in names]
