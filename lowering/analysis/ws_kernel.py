"""What a kernel offers to its typed schedule: the ops with ids, the loops that are scopes, guards and buffers.

``mark_stages`` leaves anchors: scheduling walls that carry ``amdwarp.ws.begin``, ``.end`` or ``.schedule``. What stands
between two anchors of an id is that op. Everything else is *unplaced*: arithmetic that each role computes for itself,
and waits, commits and barriers of the straight-line kernel, which the schedule's synchronization takes the place of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from amdwarp.errors import LoweringError
from amdwarp.schedule.kernel import OP_BEGIN, OP_END, REALISE, SCHEDULE
from amdwarp.schedule.objects import WSInstr, WSOpRef, WSSchedule, WSScope, WSSync

from ..dialect import Kind, is_pure, kind_of
from ..ir import Block, Module, Op, Value
from .lds import VIEWS
from .pipelines import text_of

PASS = "materialize_ws_schedule"
GUARD = "amdwarp.ws.guard"
"""On a condition that ``split_conditions`` has put into a ws_op."""
LOOP = "amdwarp.ws.loop"
"""On the anchor of a ws_op that held a loop when the front end was done, before stock passes fold any away."""


@dataclass
class WSRegion:
    """The ops that one ``ws_op`` names.

    Attributes:
        id: its id.
        begin, end: its anchors, in one block.
        guards: the ``scf.if`` ops between it and its scope, outermost first, with the branch it is in.
        scope: id of the scope it stands in.
        loop: the loop it wraps, if a scope of the schedule has its id.
    """

    id: str
    begin: Op
    end: Op
    guards: list[tuple[Op, int]] = field(default_factory=list)
    scope: str = WSScope.ROOT
    loop: Op | None = None

    @property
    def ops(self) -> list[Op]:
        block = self.begin.block
        return block.ops[block.index(self.begin) + 1 : block.index(self.end)]

    @property
    def where(self) -> str | None:
        return self.begin.where

    def walk(self) -> Iterator[Op]:
        for op in self.ops:
            yield from op.walk()

    def error(self, problem: str, remedy: str = "", where: str | None = None) -> LoweringError:
        return LoweringError(
            problem, remedy=remedy, construct=f"ws_op {self.id!r}", where=where or self.where, pass_name=PASS
        )


@dataclass
class WSKernel:
    """A function with a schedule.

    Attributes:
        function: the ``tt.func``.
        mark: the anchor that carries the schedule.
        declared, realise: what it says.
        schedule: the same without scopes that run no iteration.
        regions: the ops by id.
        owner: op -> the innermost region it belongs to.
        buffers: the allocation behind each buffer name that the schedule uses.
    """

    function: Op
    mark: Op
    declared: WSSchedule
    realise: str
    schedule: WSSchedule
    regions: dict[str, WSRegion] = field(default_factory=dict)
    owner: dict[Op, WSRegion] = field(default_factory=dict)
    buffers: dict[str, Op] = field(default_factory=dict)

    @property
    def root(self) -> Block:
        return self.function.regions[0].blocks[0]

    def block_of(self, scope: str) -> Block:
        """The block whose ops a scope schedules."""
        if scope == WSScope.ROOT:
            return self.root
        loop = self.regions[scope].loop
        assert loop is not None
        return loop.regions[0].block

    def error(self, problem: str, remedy: str = "", where: str | None = None) -> LoweringError:
        return LoweringError(
            problem, remedy=remedy, construct="ws_schedule", where=where or self.mark.where, pass_name=PASS
        )

    def pipeline_of(self, value: Value) -> str | None:
        """The pipeline that protects the buffer a memdesc is, or is a view of; None for any other buffer."""
        op = value.op
        while op is not None and op.name in VIEWS:
            op = op.operands[0].op
        for pipeline in self.schedule.pipelines:
            if op is not None and any(self.buffers[name] is op for name in pipeline.buffers):
                return pipeline.name
        return None

    def unplaced(self, op: Op) -> bool:
        return op not in self.owner


def opened_by(begin: Op) -> list[Op]:
    """The ops up to the anchor that closes what ``begin`` opens; none if there is no such anchor in the block."""
    block, depth = begin.block, 1
    found: list[Op] = []
    for op in block.ops[block.index(begin) + 1 :]:
        depth += {"begin": 1, "end": -1}.get(ws_mark(op) or "", 0)
        if not depth:
            return found
        found.append(op)
    return []


def ws_mark(op: Op) -> str | None:
    """``"begin"``, ``"end"`` or ``"schedule"`` for a mark or anchor of a typed schedule, else None."""
    for name, kind in ((OP_BEGIN, "begin"), (OP_END, "end"), (SCHEDULE, "schedule")):
        if name in op.attributes:
            return kind
    return None


def find_ws_kernel(module: Module) -> WSKernel | None:
    """The function that carries a schedule, with its ops, loops, guards and buffers found; None if there is none.

    Raises:
        LoweringError: several schedules, or ids, loops or buffers that do not fit the schedule.
    """
    marks = [op for op in module.walk() if ws_mark(op) == "schedule"]
    if not marks:
        return None
    if len(marks) > 1:
        raise LoweringError(
            f"the kernel has a schedule already ({marks[0].where})",
            remedy="annotate it once",
            construct="annotate_ws_schedule",
            where=marks[1].where,
            pass_name=PASS,
        )
    mark = marks[0]
    function = [op for op in mark.ancestors() if op.name == "tt.func"][-1]
    schedule = WSSchedule.from_json(text_of(mark.attributes[SCHEDULE]))
    kernel = WSKernel(function, mark, schedule, text_of(mark.attributes[REALISE]), schedule)
    if mark.block is not kernel.root:
        raise kernel.error("the schedule stands inside a loop or condition", "annotate it at the top of the kernel")
    _find_regions(kernel)
    kernel.schedule = _without_empty_scopes(kernel)
    _find_loops(kernel)
    _find_guards(kernel)
    _find_buffers(kernel)
    return kernel


def _find_regions(kernel: WSKernel) -> None:
    for block in dict.fromkeys(op.block for op in kernel.function.walk() if ws_mark(op) in ("begin", "end")):
        opened: list[WSRegion] = []
        for op in block.ops:
            if ws_mark(op) == "begin":
                region = WSRegion(text_of(op.attributes[OP_BEGIN]), op, op)
                if region.id in kernel.regions:
                    first = kernel.regions[region.id].where
                    raise region.error(f"an op of this id stands at {first} already", "give each op an id of its own")
                kernel.regions[region.id] = region
                opened.append(region)
            elif ws_mark(op) == "end":
                if not opened:
                    raise WSRegion(text_of(op.attributes[OP_END]), op, op).error(*_TORN)
                opened.pop().end = op
        if opened:
            raise opened[0].error(*_TORN)
    found = {region.begin: region for region in kernel.regions.values()}
    kernel.regions = {found[op].id: found[op] for op in kernel.function.walk() if op in found}
    for region in kernel.regions.values():
        for op in region.walk():
            if region.id not in [scope.id for scope in kernel.schedule.scopes] and ws_mark(op):
                inner = text_of(op.attributes.get(OP_BEGIN, op.attributes.get(OP_END, '""')))
                raise region.error(
                    f"op {inner!r} stands inside it ({op.where})",
                    "ops do not nest: close it before, or make it a scope",
                )


_TORN = "control flow leaves or enters it halfway", "let the whole op stand in one branch or loop body"


def _without_empty_scopes(kernel: WSKernel) -> WSSchedule:
    """The schedule without the scopes whose loops stock cleanups have folded away, since they run no iteration."""
    schedule = kernel.schedule
    inner = {scope.id: set(_referred(schedule, scope.id)) for scope in schedule.scopes}
    empty = {
        id
        for id, ids in inner.items()
        if id in kernel.regions and _is_empty(kernel.regions[id]) and not ids & set(kernel.regions)
    }
    empty |= {one for id in empty for one in inner[id]}
    scopes = [
        WSScope(scope.id, {role: [one for one in body if _stays(one, empty)] for role, body in scope.bodies})
        for scope in schedule.scopes
        if scope.id not in empty
    ]
    used = {one.pipeline for scope in scopes for _, body in scope.bodies for one in body if isinstance(one, WSSync)}
    pipelines = [one for one in schedule.pipelines if one.name in used]
    return replace(schedule, scopes=tuple(scopes), pipelines=tuple(pipelines)) if empty else schedule


def _referred(schedule: WSSchedule, scope: str) -> Iterator[str]:
    """Ids of the ops and scopes in a scope, and in the scopes inside it."""
    found = schedule.scope(scope)
    for _, body in found.bodies if found else ():
        for one in body:
            if isinstance(one, WSOpRef):
                yield one.id
                yield from _referred(schedule, one.id)


def _is_empty(region: WSRegion) -> bool:
    held_a_loop = LOOP in region.begin.attributes
    return (
        held_a_loop
        and all(is_free(op) or is_sync(op) for op in region.ops)
        and not any(op.regions for op in region.ops)
    )


def _stays(instr: WSInstr, empty: set[str]) -> bool:
    return not (isinstance(instr, WSOpRef) and instr.id in empty)


def _find_loops(kernel: WSKernel) -> None:
    for scope in kernel.schedule.scopes:
        if scope.id == WSScope.ROOT:
            continue
        region = kernel.regions.get(scope.id)
        if region is None:
            raise kernel.error(f"no ws_op in the kernel has the id {scope.id!r} of a scope", _have(kernel))
        loops = [op for op in region.ops if op.name in ("scf.for", "scf.while")]
        if len(loops) != 1 or loops[0].name != "scf.for":
            raise _no_scope(region, loops)
        region.loop = loops[0]
    for region in kernel.regions.values():
        if region.loop is None:
            for op in region.walk():
                kernel.owner[op] = region
    for region in kernel.regions.values():
        if region.loop is not None:
            kernel.owner.setdefault(region.loop, region)


def _no_scope(region: WSRegion, loops: list[Op]) -> LoweringError:
    if not loops:
        return region.error("a scope is one for loop, and this holds none", "wrap a loop, with range()")
    found = "a while loop" if len(loops) == 1 else f"{len(loops)} loops"
    return region.error(f"a scope is one for loop, and this holds {found}", "wrap just the loop, with range()")


def _have(kernel: WSKernel) -> str:
    return f"have {', '.join(kernel.regions) or 'none'}"


def _find_guards(kernel: WSKernel) -> None:
    loops = {region.loop: region.id for region in kernel.regions.values() if region.loop is not None}
    for region in kernel.regions.values():
        op = region.begin
        while (around := op.parent_op) is not None and around not in loops and around is not kernel.function:
            if around.name != "scf.if":
                raise region.error(
                    f"it stands in a loop ({around.where}) that is no scope", "name the loop by a WSScope"
                )
            if around.results:
                raise region.error(
                    f"the condition around it ({around.where}) gives a value, and holds a scope or an effect of no op",
                    "give the value in a condition of its own",
                )
            branch = around.regions.index(op.block.parent)  # type: ignore[arg-type]
            region.guards.insert(0, (around, branch))
            op = around
        if around is not None and around in loops:
            region.scope = loops[around]
        if region.guards and region.loop is None and (user := _user_outside(region)):
            raise region.error(
                f"it stands in a condition ({region.guards[0][0].where}) together with a scope or an effect of no op, "
                f"and its value is used outside of it ({user.where})",
                "let one op do both, or give them a condition of their own",
            )


def _user_outside(region: WSRegion) -> Op | None:
    inside = set(region.walk())
    return next((user for op in inside for value in op.results for user in value.users if user not in inside), None)


def _find_buffers(kernel: WSKernel) -> None:
    allocs = [op for op in kernel.function.walk() if op.name == "ttg.local_alloc"]
    for pipeline in kernel.schedule.pipelines:
        for name in pipeline.buffers:
            found = [op for op in allocs if name in _names_of(kernel, op)]
            if len(found) != 1:
                have = ", ".join(dict.fromkeys(name for op in allocs for name in _names_of(kernel, op)))
                what = "no LDS buffer has" if not found else f"{len(found)} LDS buffers have"
                raise kernel.error(f"{what} the name {name!r} of pipeline {pipeline.name!r}", f"have {have or 'none'}")
            alloc = found[0]
            if alloc.block is not kernel.root or alloc.operands:
                raise kernel.error(
                    f"the buffer {name!r} is made with contents, or inside a loop or condition",
                    "allocate it at the top of the kernel, empty",
                    alloc.where,
                )
            kernel.buffers[name] = alloc


def _names_of(kernel: WSKernel, alloc: Op) -> list[str]:
    location = alloc.location()
    region = kernel.owner.get(alloc)
    return [name for name in (location.name if location else None, region.id if region else None) if name]


def is_sync(op: Op) -> bool:
    """Whether an unplaced op is synchronization of the straight-line kernel, which the schedule replaces."""
    return kind_of(op) in (Kind.WAIT, Kind.COMMIT, Kind.BARRIER)


def is_free(op: Op) -> bool:
    """Whether each role may compute an unplaced op for itself."""
    if op.regions:
        return all(is_free(inner) or kind_of(inner) is Kind.CONTROL for inner in op.walk() if inner is not op)
    return is_pure(op) or kind_of(op) in (Kind.VIEW, Kind.HINT, Kind.SCHED)
