"""materialize_ws_schedule: from a straight-line kernel and its typed schedule to what the schedule says.

Before (schedule: ``load`` produces pipeline ``smem`` of depth 2, ``mma`` consumes it at stage 1)::

    rocdl.sched.barrier {amdwarp.ws.schedule = "…", amdwarp.ws.realise = "pipeline"}
    %a = ttg.local_alloc : !ttg.memdesc<64x64xf16>
    scf.for %k = 0 to %n {
      {ws_op load} amdg.buffer_load_to_local %p[%offsets] into %a
      ttg.async_commit_group; ttg.async_wait 0
      {ws_op multiply} %x = ttg.local_load %a; %acc = tt.dot …
    }

After, as one software pipeline::

    %a = ttg.local_alloc : !ttg.memdesc<2x64x64xf16>
    if (1 <= trips) { copy iteration 0 into %a[0]; commit }                      // prologue
    scf.for %k = 1 to %n iter_args(produced slot, consumed slot, …) {
      ttg.async_wait 0; ttg.barrier local                                        // consumer_wait, iteration k - 1
      copy iteration k into %a[produced]; commit                                 // producer_acquire … producer_commit
      %x = ttg.local_load %a[consumed]; %acc = tt.dot …                          // … consumer_release
    }
    if (1 <= trips) { ttg.async_wait 0; ttg.barrier local; multiply the last }   // epilogue

After, as tasks::

    %full, %empty = barriers, one a version; amdg.init_barrier …; ttg.barrier local
    ttg.warp_specialize
    default { loop: wait full[slot], phase; local_load %a[slot]; arrive empty[slot]; tt.dot }
    partition0 num_warps(4) { loop: wait empty[slot], phase ^ 1; copy into %a[slot]; async_wait; arrive full[slot] }

Versions, slots and phases are counters that each role carries: version = turn % depth. Stages that agree within a role
cancel. An ``if`` in the source becomes one around the op; synchronization stays outside of it.

Refuses when: schedule and kernel break a rule of ``analysis/ws_rules.py`` or ``analysis/ws_needs.py``, or one thread
cannot run the roles in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

from amdwarp.target import get_target

from ..analysis.ws_kernel import WSKernel, find_ws_kernel, ws_mark
from ..analysis.ws_program import single_thread
from ..analysis.ws_rules import check_kernel
from ..dialect import Kind, kind_of
from ..ir import Module, Op, Value
from ..rewriter import Builder
from ..ws_sync import SingleThread
from ..ws_tasks import write_tasks
from ..ws_threads import Env, Writer
from .stage_ws_loop import STAGED


@dataclass(frozen=True)
class MaterializeWSSchedule:
    name: str = "materialize_ws_schedule"

    def run(self, module: Module) -> None:
        kernel = find_ws_kernel(module)
        if kernel is None:
            return
        target = get_target(module.attributes["ttg.target"].strip('"').removeprefix("hip:"))
        check_kernel(kernel, module, target)
        before = list(kernel.root.ops[:-1])
        build = Builder.before(kernel.root.ops[-1])
        build.loc = kernel.mark.loc
        rings = _rings(kernel)
        if kernel.realise == "tasks":
            write_tasks(kernel, module, build, rings, _own_ops(kernel))
        else:
            _pipeline(kernel, build, rings)
        _erase(kernel, before)


def _rings(kernel: WSKernel) -> dict[Op, Value]:
    """Allocation of the kernel -> one with as many versions as its pipeline is deep."""
    rings: dict[Op, Value] = {}
    for pipeline in kernel.schedule.pipelines:
        for name in pipeline.buffers:
            alloc = kernel.buffers[name]
            type_ = alloc.result.type.replace("<", f"<{pipeline.depth}x", 1)
            ring = Op("ttg.local_alloc", result_types=[type_], attributes=alloc.attributes, loc=alloc.loc)
            ring.properties.update(alloc.properties)
            rings[alloc] = ring.insert_after(alloc).result
            rings[alloc].name = alloc.result.name
    return rings


def _own_ops(kernel: WSKernel) -> set[Op]:
    """Ops at the top of the kernel whose values new code may use as they are."""
    found: set[Op] = set()
    versioned = set(kernel.buffers.values())
    for op in kernel.root.ops[:-1]:
        uses = {value.op for inner in op.walk() for value in inner.operands if value.op is not None}
        hidden = op in kernel.owner or op in versioned or ws_mark(op) is not None
        at_top = {one for one in uses if one.parent is kernel.root}
        if not hidden and at_top <= found:
            found.add(op)
    return found


def _pipeline(kernel: WSKernel, build: Builder, rings: dict[Op, Value]) -> None:
    thread = single_thread(kernel)
    sync = SingleThread(thread)
    if kernel.realise == "inter_wave":
        sync = SingleThread(thread, {STAGED: "unit"}, apart=True)
    Writer(kernel, thread, rings, sync).write(build, Env(kernel, _own_ops(kernel)))


def _erase(kernel: WSKernel, before: list[Op]) -> None:
    """Remove the straight-line code, and arithmetic that only it used."""
    versioned = set(kernel.buffers.values())
    for op in reversed(before):
        dead = not any(result.uses for result in op.results)
        scheduled = ws_mark(op) or op in kernel.owner or op.name in ("scf.for", "scf.if", "ttg.local_dealloc")
        sync = kind_of(op) in (Kind.WAIT, Kind.COMMIT, Kind.BARRIER)
        if dead and (scheduled or sync or op in versioned or (op.results and kind_of(op) in (Kind.PURE, Kind.VIEW))):
            op.erase()
