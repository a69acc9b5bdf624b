"""What a typed schedule must keep on the kernel it is for, checked before any rewrite, one rule a function."""

from __future__ import annotations

from collections.abc import Iterator

from amdwarp.schedule.objects import WSOpRef, WSScope, WSSync
from amdwarp.schedule.programs import entries, offsets
from amdwarp.target import Target

from ..dialect import Kind, Space, effects, kind_of
from ..ir import Module, Op, Value
from .lds import VIEWS, is_memdesc
from .types import TensorType, parse_type
from .ws_kernel import GUARD, WSKernel, WSRegion, is_free, is_sync, ws_mark
from .ws_needs import loop_needs
from .ws_program import role_threads

STRUCTURE = ("scf.for", "scf.if", "scf.yield", "tt.return")


def check_kernel(kernel: WSKernel, module: Module, target: Target) -> None:
    """Raise ``LoweringError`` for the first rule that schedule and kernel break together."""
    kernel.declared.check(target)
    for rule in (_ids, _placed, _effects, _guards, _accesses, _copies, _shared_buffers, _order):
        rule(kernel)
    _lds_bytes(kernel, module, target)
    for thread in role_threads(kernel):
        for scope in kernel.schedule.scopes:
            if scope.id != WSScope.ROOT:
                loop_needs(kernel, thread, scope.id)


def references(kernel: WSKernel, region: WSRegion) -> list[tuple[WSScope, str]]:
    """The scopes and roles that run an op, in the schedule's order."""
    return [
        (scope, role)
        for scope in kernel.schedule.scopes
        for role, body in scope.bodies
        if any(isinstance(one, WSOpRef) and one.id == region.id for one in body)
    ]


def _ids(kernel: WSKernel) -> None:
    for scope in kernel.schedule.scopes:
        for role, body in scope.bodies:
            for one in body:
                if not isinstance(one, WSOpRef):
                    continue
                region = kernel.regions.get(one.id)
                if region is None:
                    raise kernel.error(
                        f"role {role!r} runs op {one.id!r} in {scope.id!r}, and no ws_op in the kernel has this id",
                        f"have {', '.join(kernel.regions) or 'none'}",
                    )
                if region.scope != scope.id:
                    raise region.error(
                        f"role {role!r} runs it in scope {scope.id!r}, and it stands in {region.scope!r}",
                        "refer to it in the scope it stands in",
                    )


def _placed(kernel: WSKernel) -> None:
    for region in kernel.regions.values():
        if region.loop is None and not references(kernel, region) and not _only_allocates(region):
            raise region.error("no role runs it", f"add {region.id!r} to a body of scope {region.scope!r}")


def _only_allocates(region: WSRegion) -> bool:
    return all(op.name == "ttg.local_alloc" or is_free(op) for op in region.walk())


def _effects(kernel: WSKernel) -> None:
    for op in kernel.function.walk():
        if op is kernel.function or not kernel.unplaced(op) or ws_mark(op) or op.name in STRUCTURE:
            continue
        if any(kernel.owner.get(around) for around in op.ancestors() if around.name != "scf.for"):
            continue
        if is_free(op) or is_sync(op) or op.name in ("ttg.local_alloc", "ttg.local_dealloc"):
            continue
        if any(is_free(around) for around in op.ancestors() if around is not kernel.function):
            continue
        raise kernel.error(
            f"{op.name} has an effect and stands in no ws_op",
            "put it into one, and let a role run it",
            op.where,
        )


def _guards(kernel: WSKernel) -> None:
    for region in kernel.regions.values():
        inside = [op for op in region.ops if GUARD in op.attributes]
        for guard in [*(guard for guard, _ in region.guards), *inside]:
            if reached := next((op for op in _slice(kernel, guard.operands[0]) if op in kernel.owner), None):
                if any(is_memdesc(v.type) and kernel.pipeline_of(v) for v in reached.operands):
                    raise region.error(
                        f"the condition around it ({guard.where}) reads a pipeline's buffer ({reached.where})",
                        "synchronization is unconditional, and a condition must be the same in all roles: compute it "
                        "from arguments",
                    )
                raise region.error(
                    f"the condition around it ({guard.where}) takes a value of op {kernel.owner[reached].id!r}",
                    "a condition must be the same in all roles: compute it from arguments",
                )


def _slice(kernel: WSKernel, value: Value) -> Iterator[Op]:
    """Ops that a value is computed from, through loop arguments too."""
    seen: set[Value] = set()
    todo = [value]
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        if one.op is not None:
            yield one.op
            if one.op in kernel.owner and one.op.name != "scf.for":
                continue
            todo += [operand for op in one.op.walk() for operand in op.operands]
        elif (loop := one.block.parent_op if one.block else None) is not None and loop.name == "scf.for" and one.index:
            todo += [loop.operands[2 + one.index], loop.regions[0].block.ops[-1].operands[one.index - 1]]


def accesses(kernel: WSKernel, region: WSRegion) -> Iterator[tuple[Op, str, bool, bool]]:
    """(op, pipeline, reads, writes) of each access of an op to a pipeline's buffer."""
    for op in region.walk():
        if op.name in (*VIEWS, "ttg.local_alloc", "ttg.local_dealloc"):
            continue
        for value in op.operands:
            if not is_memdesc(value.type):
                continue
            name = kernel.pipeline_of(value)
            if name is None:
                if _origin(value) is None:
                    raise region.error(
                        f"which buffer {op.name} ({op.where}) accesses cannot be followed",
                        "index the allocation in place",
                    )
                continue
            known = effects(op)
            reads, writes = Space.LDS in known.reads, Space.LDS in known.writes
            yield op, name, reads, writes


def _origin(value: Value) -> Op | None:
    op = value.op
    while op is not None and op.name in VIEWS:
        op = op.operands[0].op
    return op if op is not None and op.name == "ttg.local_alloc" else None


def _accesses(kernel: WSKernel) -> None:
    """Ops inside the spans of their pipelines, writes on the producer's side and reads on the consumer's."""
    for region in kernel.regions.values():
        if region.loop is not None:
            continue
        touched = list(accesses(kernel, region))
        users = references(kernel, region)
        for scope, role in users:
            entry = next(e for e in entries(scope, role) if isinstance(e.instr, WSOpRef) and e.instr.id == region.id)
            for op, pipeline, reads, writes in touched:
                _check_access(
                    region, role, op, pipeline, _side(kernel, scope, role, entry.spans, pipeline), reads, writes
                )
        _check_copies_of_roles(region, [role for _, role in users], bool(touched))


def _side(kernel: WSKernel, scope: WSScope, role: str, spans: tuple[WSSync, ...], pipeline: str) -> WSSync | None:
    """The span of a pipeline that is open where an entry stands, in its scope or around it."""
    mine = next((span for span in spans if span.pipeline == pipeline), None)
    while mine is None and scope.id != WSScope.ROOT:
        inner = scope.id
        scope, entry = next(
            (one, entry)
            for one in kernel.schedule.scopes
            if one.id != inner
            for entry in entries(one, role)
            if isinstance(entry.instr, WSOpRef) and entry.instr.id == inner
        )
        mine = next((span for span in entry.spans if span.pipeline == pipeline), None)
    return mine


def _check_access(
    region: WSRegion, role: str, op: Op, pipeline: str, span: WSSync | None, reads: bool, writes: bool
) -> None:
    if span is None:
        raise region.error(
            f"role {role!r} runs it outside of a span of {pipeline!r}, whose buffer {op.name} accesses ({op.where})",
            f"put it between the points of {pipeline!r}",
        )
    if span.kind.produces and reads:
        raise region.error(
            f"{op.name} ({op.where}) reads a buffer of {pipeline!r}, and role {role!r} produces it",
            "let a consumer read it",
        )
    if not span.kind.produces and writes:
        raise region.error(
            f"{op.name} ({op.where}) writes a buffer of {pipeline!r}, and role {role!r} consumes it",
            "let a producer write it",
        )


def _check_copies_of_roles(region: WSRegion, roles: list[str], touches: bool) -> None:
    if len(roles) < 2:
        return
    both = " and ".join(map(repr, roles[:2]))
    if touches:
        raise region.error(
            f"roles {both} run it, and it accesses a pipeline's buffer", "let one role run it, or split it"
        )
    for op in region.walk():
        if effects(op).writes:
            raise region.error(
                f"roles {both} run it, and {op.name} ({op.where}) would take effect twice", "let one role run it"
            )


def _copies(kernel: WSKernel) -> None:
    """Asynchronous copies into LDS belong to a pipeline: only its points know when they have landed."""
    for region in kernel.regions.values():
        for op in region.walk() if region.loop is None else ():
            if kind_of(op) is Kind.COPY and Space.LDS in effects(op).writes:
                into = [v for v in op.operands if is_memdesc(v.type)]
                if not any(kernel.pipeline_of(v) for v in into):
                    raise region.error(
                        f"{op.name} ({op.where}) copies into a buffer of no pipeline", "name the buffer in a WSPipeline"
                    )


def _shared_buffers(kernel: WSKernel) -> None:
    """A buffer that no pipeline protects belongs to one role."""
    users: dict[Op, tuple[str, WSRegion]] = {}
    for region in kernel.regions.values():
        if region.loop is not None:
            continue
        for op in region.walk():
            for value in op.operands:
                alloc = _origin(value) if is_memdesc(value.type) else None
                if alloc is None or kernel.pipeline_of(value):
                    continue
                for _, role in references(kernel, region):
                    first, before = users.setdefault(alloc, (role, region))
                    if first != role:
                        raise region.error(
                            f"role {role!r} accesses an LDS buffer ({alloc.where}) that role {first!r} accesses in op "
                            f"{before.id!r}",
                            "protect it by a WSPipeline",
                        )


Place = tuple[str, int, int]
"""An entry of a role's body: the scope, its position there, and its offset in iterations."""


def _order(kernel: WSKernel) -> None:
    """Within a role, ops on a buffer that no pipeline protects keep the kernel's order, at one stage."""
    regions = [region for region in kernel.regions.values() if region.loop is None]
    touched = {region.id: _unprotected(kernel, region) for region in regions}
    regions = [region for region in regions if touched[region.id]]
    for role in kernel.schedule.roles if len(regions) > 1 else ():
        places = _places(kernel, role.name, WSScope.ROOT, ())
        mine = [region for region in regions if region.id in places]
        for at, second in enumerate(mine):
            for first in mine[:at]:
                both = touched[first.id].keys() & touched[second.id].keys()
                alloc = next((a for a in both if touched[first.id][a] or touched[second.id][a]), None)
                if alloc is not None and not _in_order(places[first.id], places[second.id]):
                    raise second.error(
                        f"role {role.name!r} does not run it behind op {first.id!r} at the same stage, and both access "
                        f"an LDS buffer of no pipeline ({alloc.where})",
                        "keep the kernel's order and give both one stage, or protect the buffer by a WSPipeline",
                    )


def _unprotected(kernel: WSKernel, region: WSRegion) -> dict[Op, bool]:
    """The allocations of no pipeline that an op accesses, and whether it writes them."""
    found: dict[Op, bool] = {}
    for op in region.walk():
        known = effects(op)
        if Space.LDS not in known.reads and Space.LDS not in known.writes:
            continue
        for value in op.operands:
            alloc = _origin(value) if is_memdesc(value.type) else None
            if alloc is not None and not kernel.pipeline_of(value):
                found[alloc] = found.get(alloc, False) or Space.LDS in known.writes
    return found


def _places(kernel: WSKernel, role: str, id: str, above: tuple[Place, ...]) -> dict[str, tuple[Place, ...]]:
    """Where a role runs each op: the entries on the way from the root."""
    scope = kernel.schedule.scope(id)
    if scope is None:
        return {id: above}
    found = {}
    for position, (entry, offset) in enumerate(offsets(kernel.schedule, scope, role)):
        if isinstance(entry.instr, WSOpRef):
            found.update(_places(kernel, role, entry.instr.id, (*above, (id, position, offset))))
    return found


def _in_order(first: tuple[Place, ...], second: tuple[Place, ...]) -> bool:
    one, other = next(
        (pair for pair in zip(first, second, strict=False) if pair[0] != pair[1]), (first[-1], second[-1])
    )
    return one[1] <= other[1] and one[2] == other[2]


def buffer_bytes(type_: TensorType, versions: int = 1) -> int:
    """LDS bytes of so many versions of a buffer, padding included."""
    elements = versions
    for extent in type_.shape:
        elements *= extent
    padding = type_.encoding.padding if type_.encoding is not None else ()
    elements += sum((elements - 1) // interval * amount for interval, amount in padding)
    return elements * type_.bits // 8


def _lds_bytes(kernel: WSKernel, module: Module, target: Target) -> None:
    total = 0
    parts = []
    for pipeline in kernel.schedule.pipelines:
        types = [parse_type(kernel.buffers[name].result.type, module) for name in pipeline.buffers]
        size = sum(buffer_bytes(type_, pipeline.depth) for type_ in types)
        total += size
        parts.append(f"{pipeline.name!r} {pipeline.depth} x {sum(map(buffer_bytes, types))}")
    protected = set(kernel.buffers.values())
    others = [op for op in kernel.function.walk() if op.name == "ttg.local_alloc" and op not in protected]
    total += sum(buffer_bytes(parse_type(op.result.type, module)) for op in others)
    if total > target.lds_bytes:
        raise kernel.error(
            f"its buffers take {total} bytes of LDS ({', '.join(parts)}), and {target.arch} has {target.lds_bytes}",
            "lower a depth or take smaller tiles",
        )
