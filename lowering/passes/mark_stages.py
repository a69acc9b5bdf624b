"""mark_stages: from dead constants to anchors.

Runs right after the front end. A mark is an ``arith.constant`` that nothing uses and that carries the attributes of
``amdwarp.stage``; the next cleanup would remove it. An anchor is a scheduling wall with the same attributes: no stock
pass moves or removes it, and it reaches TTGIR from Gluon and from ``@triton.jit`` alike.

Before::

    %0 = "arith.constant"() <{value = 0 : i32}> {amdwarp.stage.begin = "load", …} : () -> i32

After::

    "rocdl.sched.barrier"() <{mask = …none}> {amdwarp.stage.begin = "load", …} : () -> ()

A wall of ``amdwarp.wall`` becomes such a scheduling wall too, without attributes. Marks of a typed schedule
(``amdwarp.ws``) become anchors in a kernel that has a schedule.

Every loop around a mark of a stage or an op, in the function or in one that calls it, also gets ``tt.num_stages = 1``:
its pipelining is in its source, and stock software pipelining must not rotate it. Refuses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from amdwarp.wall import WALL

from .. import spelling
from ..analysis.calls import reaches
from ..analysis.pipelines import anchor_of
from ..analysis.ws_kernel import LOOP, opened_by, ws_mark
from ..ir import Module, Op
from ..rewriter import insert_before


@dataclass(frozen=True)
class MarkStages:
    name: str = "mark_stages"

    def run(self, module: Module) -> None:
        constants = module.ops("arith.constant")
        scheduled = any(ws_mark(op) == "schedule" for op in constants)
        marks = [op for op in constants if anchor_of(op) or (scheduled and ws_mark(op))]
        for op in marks:
            anchor = insert_before(op, spelling.sched_barrier())
            anchor.attributes.update(op.attributes)
            _keep_loops(anchor)
            op.erase()
        for op in module.ops("rocdl.sched.barrier") if scheduled else ():
            if ws_mark(op) == "begin" and any(inner.name == "scf.for" for inner in opened_by(op)):
                op.attributes[LOOP] = "unit"
        for op in module.ops("arith.constant"):
            if WALL in op.attributes:
                insert_before(op, spelling.sched_barrier())
                op.erase()
        if marks:
            for call in module.ops("tt.call"):
                if reaches(call, lambda op: anchor_of(op) is not None or ws_mark(op) is not None):
                    _keep_loops(call)


def _keep_loops(op: Op) -> None:
    for loop in op.ancestors():
        if loop.name == "scf.for":
            loop.attributes["tt.num_stages"] = "1 : i32"
