"""stage_ws_loop: the loop of a typed schedule that one thread runs, as two stages of a wave pipeline.

What stands before the first MFMA is the memory stage, the MFMAs are the other one. The wait for the copies that the
*next* memory stage reads stands between them, since both wave groups have to pass a barrier behind it; before the loop
stands one for the first. ``inter_wave`` then puts the barriers, and the protocol check judges them.

Before (as ``materialize_ws_schedule`` leaves it, marked)::

    scf.for … {
      ttg.async_wait 1; ttg.barrier local
      amdg.buffer_load_to_local …; ttg.async_commit_group
      ttg.local_load …
      tt.dot …
    } {amdwarp.ws.staged}

After::

    ttg.async_wait 1
    scf.for … {
      {begin "memory", priority 1} copies; commit; ttg.local_load … {end}
      ttg.async_wait 1
      {begin "multiply", priority 0} tt.dot … {end}
    }

Refuses when: an MFMA has a memory access behind it; an acquire needs a barrier of its own, which would stand inside
of a stage; or no loop of the schedule has MFMAs of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from amdwarp.errors import LoweringError
from amdwarp.stage import BEGIN, END, PRIORITY, SCOPE

from .. import spelling
from ..dialect import Kind, effects, kind_of
from ..ir import Module, Op
from ..rewriter import insert_before

STAGED = "amdwarp.ws.staged"
NAME = "stage_ws_loop"


@dataclass(frozen=True)
class StageWSLoop:
    name: str = NAME

    def run(self, module: Module) -> None:
        loops = [op for op in module.ops("scf.for") if op.attributes.pop(STAGED, None)]
        if not loops:
            return
        inner = [loop for loop in loops if any(kind_of(op) is Kind.MFMA for op in loop.regions[0].block.ops)]
        if not inner:
            raise _error(loops[0], "no loop of the schedule has an MFMA of its own", "realise it as tasks")
        for loop in inner:
            _stage(loop)


def _error(op: Op, problem: str, remedy: str) -> LoweringError:
    return LoweringError(problem, remedy=remedy, construct="ws_schedule", where=op.where, pass_name=NAME)


def _stage(loop: Op) -> None:
    body = loop.regions[0].block
    first = next(op for op in body.ops if kind_of(op) is Kind.MFMA)
    memory, rest = body.ops[: body.index(first)], body.ops[body.index(first) : -1]
    for op in rest:
        if effects(op).memory or effects(op).ordered:
            raise _error(op, f"{op.name} stands behind an MFMA of the loop", "run it before, or realise it as tasks")
    started = False
    for op in memory:
        started |= bool(effects(op).memory) and kind_of(op) is not Kind.BARRIER
        if started and kind_of(op) is Kind.BARRIER:
            raise _error(
                op,
                "a barrier stands inside of the memory stage, which reads what it has just copied, or refills what was "
                "just read",
                "let the consumer run at least one stage behind the producer, and the pipeline be deeper than that",
            )
    waits = [op for op in memory if kind_of(op) is Kind.WAIT]
    for op in memory:
        if kind_of(op) is Kind.BARRIER:
            op.erase()
    for wait in waits:
        insert_before(loop, wait.clone())
        wait.detach()
    _mark(body.ops[0], BEGIN, "memory", 1)
    _mark(first, END)
    for wait in waits:
        wait.insert_before(first)
    _mark(first, BEGIN, "multiply", 0)
    _mark(body.ops[-1], END)


def _mark(before: Op, kind: str, label: str = "", priority: int | None = None) -> None:
    anchor = insert_before(before, spelling.sched_barrier())
    anchor.attributes |= {kind: f'"{label}"', SCOPE: '"inter_wave"'}
    if priority is not None:
        anchor.attributes[PRIORITY] = f"{priority} : i32"
