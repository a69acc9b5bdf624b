"""inter_wave: barriers, phase shift and priorities of a wave pipeline.

The first wave group (waves 0 to 3) runs ``gap`` stages ahead of the second (waves 4 to 7): the second is held by as
many conditional barriers before the pipeline, and the first meets them after it. Each edge between stages is one
barrier of all waves with a scheduling wall on both sides.

Before (``begin``/``end`` are anchors)::

    scf.for %k … {
      begin "load" {priority = 1}
      …
      end
      ttg.async_wait {num = 1}
      begin "mfma"
      …
      end
    }

After::

    ttg.barrier local
    %group = thread id / (4 * wave size)
    amdg.cond_barrier (%group != 0)
    s.setprio 1
    scf.for %k … {
      begin "load"  …  end
      s.setprio 0 ; sched.barrier ; ttg.async_wait {num = 1} ; ttg.barrier local ; sched.barrier
      begin "mfma"  …  end
      s.setprio 1 ; sched.barrier ; s.barrier ; sched.barrier
    }
    s.setprio 0
    amdg.cond_barrier (%group == 0)

An edge with a wait, or with a barrier of the author's, fences (stock barrier insertion puts a second barrier behind a
wait that has none); the others are plain until ``fence_edges`` finds a dependence that needs one. Waits that end a
stage move to the edge after it. Of several barriers of the author's on one edge the last one stays.

Refuses when: a stage list breaks a rule of ``analysis/pipelines.py``; the workgroup does not have eight waves, or has
others beside them; an op in a stage or on an edge goes through scratch memory in LDS, with barriers of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from amdwarp.errors import LoweringError

from .. import spelling
from ..analysis.events import is_fence
from ..analysis.lds import uses_scratch
from ..analysis.pipelines import (
    HIGH_WAVES,
    LOW_WAVES,
    PHASE,
    Pipeline,
    Stage,
    attribute_of,
    find_pipelines,
    trailing_waits,
)
from ..analysis.protocol import EDGE
from ..analysis.scratch import scratch_ops
from ..dialect import Kind, kind_of
from ..ir import Module, Op, Value
from ..rewriter import Builder
from .fence_edges import make_fence

WAVES = 8
WAVES_PER_GROUP = 4


@dataclass(frozen=True)
class InterWave:
    name: str = "inter_wave"

    def run(self, module: Module) -> None:
        found = [pipeline for function in module.functions() for pipeline in find_pipelines(function)]
        for pipeline in found:
            _check_waves(module, pipeline)
        _check_scratch(module, found)
        for pipeline in found:
            _lower(pipeline, _module_int(module, "ttg.threads-per-warp"))


def _module_int(module: Module, name: str) -> int:
    text = module.attributes.get(name) or module.attributes[f'"{name}"']
    match = re.match(r"\d+", text)
    if match is None:
        raise LoweringError(f"module attribute {name} is {text!r}, not an integer", pass_name="inter_wave")
    return int(match.group())


def _check_waves(module: Module, pipeline: Pipeline) -> None:
    if partitions := module.ops("ttg.warp_specialize"):
        raise pipeline.stages[0].error(
            f"a barrier of a wave pipeline is one of all waves, and here are waves apart ({partitions[0].where})",
            "use one of stages and warp_specialize",
        )
    waves = _module_int(module, "ttg.num-warps")
    if waves != WAVES:
        raise pipeline.stages[0].error(
            f"inter-wave stages need {WAVES} waves, two on each SIMD, and this kernel has {waves}",
            f"compile with num_warps={WAVES}",
        )


def _check_scratch(module: Module, pipelines: list[Pipeline]) -> None:
    places = {
        inner: stage
        for pipeline in pipelines
        for stage in pipeline.stages
        for op in (*stage.ops, *pipeline.between(stage))
        for inner in op.walk()
        if uses_scratch(inner)
    }
    for op in scratch_ops(module, list(places)):
        raise places[op].error(
            f"{op.name} ({op.where}) moves data between waves through shared memory, which takes a barrier that all "
            "waves reach together",
            "move it out of the staged code, or choose layouts that keep it inside a wave",
        )


def _lower(pipeline: Pipeline, wave_size: int) -> None:
    first, last = pipeline.stages[0], pipeline.stages[-1]
    for stage in pipeline.stages:
        for wait in reversed(trailing_waits(stage)):
            wait.move_after(stage.end)
    low = _prelude(pipeline, wave_size)
    for stage in pipeline.stages[1:]:
        _edge(pipeline, pipeline.stages[stage.index - 1], stage, stage.begin)
    if pipeline.loop is not None:
        terminator = pipeline.block.terminator
        assert terminator is not None
        _edge(pipeline, last, first, terminator)
    _postlude(pipeline, low)


def _builder(pipeline: Pipeline, stage: Stage, before: Op | None) -> Builder:
    """Inserts before an op; what it inserts has the location of the stage's ``with``."""
    return Builder(pipeline.block if before is None else before.block, before, stage.begin.loc)


def _prelude(pipeline: Pipeline, wave_size: int) -> Value:
    """Everything before the pipeline; returns the condition that holds for the first wave group."""
    first = pipeline.stages[0]
    build = _builder(pipeline, first, pipeline.loop or first.begin)
    build.insert(spelling.local_barrier()).attributes[EDGE] = '"before the pipeline"'
    size = build.value(spelling.constant(WAVES_PER_GROUP * wave_size))
    group = build.value(spelling.divsi(build.value(spelling.thread_id()), size))
    zero = build.value(spelling.constant(0))
    low = build.value(spelling.cmpi("eq", group, zero))
    high = build.value(spelling.cmpi("ne", group, zero))
    _shift(pipeline, build, high, HIGH_WAVES)
    _priority(pipeline, first, build)
    return low


def _postlude(pipeline: Pipeline, low: Value) -> None:
    build = Builder.after(pipeline.loop or pipeline.stages[-1].end)
    build.loc = pipeline.stages[0].begin.loc
    if pipeline.uses_priority:
        build.insert(spelling.s_setprio(0))
    _shift(pipeline, build, low, LOW_WAVES)


def _shift(pipeline: Pipeline, build: Builder, condition: Value, phase: str) -> None:
    for _ in range(pipeline.gap):
        build.insert(spelling.cond_barrier(condition)).attributes[PHASE] = phase


def _priority(pipeline: Pipeline, stage: Stage, build: Builder) -> None:
    if pipeline.uses_priority:
        build.insert(spelling.s_setprio(stage.priority or 0))


def _edge(pipeline: Pipeline, before: Stage, after: Stage, stop: Op) -> None:
    """The edge from ``before`` to ``after``: its first part behind the one, its barrier right before ``stop``."""
    block = pipeline.block
    between = block.ops[block.index(before.end) + 1 : block.index(stop)]
    build = Builder.after(before.end)
    build.loc = after.begin.loc
    _priority(pipeline, after, build)
    build.insert(spelling.sched_barrier())
    barrier = _barrier_of(between, _builder(pipeline, after, stop))
    barrier.attributes[EDGE] = attribute_of(f"between {before.name} and {after.name}")
    _builder(pipeline, after, stop).insert(spelling.sched_barrier())


def _barrier_of(between: list[Op], build: Builder) -> Op:
    """The one barrier of an edge: the author's last one if there is one, right behind the last wait if there is one."""
    waits = [op for op in between if kind_of(op) is Kind.WAIT]
    barriers = [op for op in between if kind_of(op) is Kind.BARRIER]
    fences = bool(waits) or any(is_fence(op) for op in barriers)
    if barriers:
        barrier = barriers.pop()
    else:
        barrier = build.insert(spelling.local_barrier() if fences else spelling.s_barrier())
    for other in barriers:
        other.erase()
    if waits:
        barrier.move_after(waits[-1])
    return make_fence(barrier) if fences else barrier
