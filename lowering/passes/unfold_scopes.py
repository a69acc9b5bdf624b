"""unfold_scopes: the loop of a scope that stock cleanups have folded, since it runs once, becomes a loop again.

A launch makes a constant of an argument of 1, and with it of the length of a loop. A schedule means the same then.

Before (the schedule has a scope ``k``)::

    rocdl.sched.barrier {amdwarp.ws.begin = "k"}
    %x = … ; %acc = tt.dot %x, …
    rocdl.sched.barrier {amdwarp.ws.end = "k"}
    tt.store %acc

After::

    rocdl.sched.barrier {amdwarp.ws.begin = "k"}
    %r = scf.for %i = 0 to 1 step 1 iter_args(%a = poison) { %x = … ; %acc = tt.dot %x, … ; scf.yield %acc }
    rocdl.sched.barrier {amdwarp.ws.end = "k"}
    tt.store %r

Refuses nothing: a scope that holds no ops at all, as a loop of no iteration leaves it, stays as it is, and is left out
of the schedule later.
"""

from __future__ import annotations

from dataclasses import dataclass

from amdwarp.schedule.kernel import OP_BEGIN, SCHEDULE
from amdwarp.schedule.objects import WSSchedule

from .. import spelling
from ..analysis.pipelines import text_of
from ..analysis.ws_kernel import opened_by, ws_mark
from ..ir import Block, Module, Op, Region
from ..rewriter import Builder


@dataclass(frozen=True)
class UnfoldScopes:
    name: str = "unfold_scopes"

    def run(self, module: Module) -> None:
        marks = [op for op in module.walk() if ws_mark(op) == "schedule"]
        if not marks:
            return
        scopes = {scope.id for scope in WSSchedule.from_json(text_of(marks[0].attributes[SCHEDULE])).scopes}
        opened = [op for op in module.walk() if ws_mark(op) == "begin" and text_of(op.attributes[OP_BEGIN]) in scopes]
        for begin in reversed(opened):  # inner scopes first
            ops = opened_by(begin)
            if any(ws_mark(op) for op in ops) and not any(op.name in ("scf.for", "scf.while") for op in ops):
                _wrap(begin, ops)


def _wrap(begin: Op, ops: list[Op]) -> None:
    inside = {inner for op in ops for inner in op.walk()}
    escaping = [value for op in ops for value in op.results if any(user not in inside for user in value.users)]
    build = Builder.after(begin)
    zero, one = build.value(spelling.constant(0)), build.value(spelling.constant(1))
    poison = [
        build.value(Op("ub.poison", result_types=[value.type], properties={"value": "#ub.poison"}))
        for value in escaping
    ]
    body = Block(["i32", *(value.type for value in escaping)])
    loop = Op("scf.for", [zero, one, one, *poison], [value.type for value in escaping], regions=[Region([body])])
    build.insert(loop)
    for op in ops:
        body.append(op.detach())
    for value, result in zip(escaping, loop.results, strict=True):
        for use in list(value.uses):
            if use.op not in inside:
                use.op.set_operand(use.index, result)
    body.append(Op("scf.yield", escaping, loc=begin.loc))
