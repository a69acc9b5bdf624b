"""A typed schedule as tasks: ``ttg.warp_specialize`` with a region a role, and two barriers a version of a pipeline.

The role that starts at wave 0 becomes the default region; the others become partitions at the waves they name. What
follows lowers that form on every target (``docs/tasks.md``).
"""

from __future__ import annotations

from amdwarp.schedule.objects import WSOpRef, WSPipeline, WSRole, WSSchedule
from amdwarp.task_builder import TRUNK_STEP

from . import spelling
from .analysis.pipelines import attribute_of
from .analysis.tasks import MARKS
from .analysis.ws_kernel import WSKernel
from .analysis.ws_program import Thread, role_threads
from .ir import Block, Module, Op, Region, Value
from .rewriter import Builder
from .ws_layouts import relay_out
from .ws_sync import BetweenTasks, barrier_type
from .ws_threads import Env, Writer

LAYOUT = "#ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>, #ttg.shared_memory, mutable"

ROLES_FILE = "ws_roles"


class Captures:
    """What partitions take from outside: every partition has the same arguments."""

    def __init__(self, blocks: list[Block]) -> None:
        self.blocks = blocks
        self.values: list[Value] = []

    def inside(self, value: Value, block: Block) -> Value:
        """The argument of a partition's block that stands for a value from outside."""
        if value not in self.values:
            self.values.append(value)
            for one in self.blocks:
                one.add_arg(value.type, "", value.loc or (value.op.loc if value.op else None))
        return block.args[self.values.index(value)]


def write_tasks(kernel: WSKernel, module: Module, build: Builder, rings: dict[Op, Value], own: set[Op]) -> None:
    """Write every role and the op that runs them.

    Raises:
        LoweringError: a role with more waves than the kernel's layouts are for, or the first one with others.
    """
    schedule = kernel.schedule
    lanes = _number(module, "ttg.threads-per-warp")
    waves = _number(module, "ttg.num-warps")
    _check_waves(kernel, waves)
    full = {p.name: _barriers(build, p, _arrivals(schedule, p, 0) * lanes) for p in schedule.pipelines}
    empty = {p.name: _barriers(build, p, _arrivals(schedule, p, 1) * lanes) for p in schedule.pipelines}
    build.insert(spelling.local_barrier())
    threads = {thread.name: thread for thread in role_threads(kernel)}
    first, *others = sorted(schedule.roles, key=lambda role: role.warps_lo)
    home, blocks = Block(), [Block() for _ in others]
    inside = Builder(home, None, build.loc)
    _write(kernel, threads[first.name], inside, rings, full, empty, Env(kernel, own))
    inside.create("ttg.warp_yield")
    captures = Captures(blocks)
    for role, block in zip(others, blocks, strict=True):
        _partition(kernel, threads[role.name], block, captures, (rings, full, empty), build.loc)
        if role.num_warps < waves:
            relay_out(block, module, waves, role.num_warps)
    holder = Block()
    Builder(holder, None, build.loc).create("ttg.warp_specialize.partitions", captures.values)
    holder.ops[0].regions = []
    for block in blocks:
        holder.ops[0].add_region(Region([block]))
    op = build.insert(_specialize(home, holder, others))
    if any(role.max_nreg for role in schedule.roles):
        _budgets(module, op, [first, *others], [home, *blocks])


def _number(module: Module, name: str) -> int:
    return int(module.attributes[name].split(":")[0])


def _specialize(home: Block, holder: Block, others: list[WSRole]) -> Op:
    starts = ",".join(str(role.warps_lo) for role in others)
    names = {
        "partitionNumWarps": ", ".join(str(role.num_warps) for role in others),
        "warpGroupStartIds": ", ".join(str(role.warps_lo) for role in others),
    }
    return Op(
        "ttg.warp_specialize",
        regions=[Region([home]), Region([holder])],
        properties={name: f"array<i32: {value}>" for name, value in names.items()},
        attributes={"amdwarp.tasks.starts": f'"{starts}"'},
    )


def _budgets(module: Module, op: Op, roles: list[WSRole], blocks: list[Block]) -> None:
    """Say what each role asks for, and which instructions are its own: role ``i`` is line ``i`` of a file of no kernel.

    The line table of the compiled text then tells roles apart, whose source lines are interleaved.
    """
    module.before |= module.after  # a location inside another one is looked up at once
    module.after = {}
    for line, (_, block) in enumerate(zip(roles, blocks, strict=True), start=1):
        for inner in block.walk():
            if inner.loc is not None:
                inner.loc = f'callsite({inner.loc} at "{ROLES_FILE}":{line}:1)'
    numbers = range(1, len(roles) + 1)
    marks = {
        "names": [role.name.replace(",", " ") for role in roles],
        "registers": [str(role.max_nreg or -1) for role in roles],
        "lines": [f"{number}-{number}" for number in numbers],
        "file": [ROLES_FILE],
    }
    op.attributes |= {f"{MARKS}{name}": attribute_of(",".join(values)) for name, values in marks.items()}


def _check_waves(kernel: WSKernel, waves: int) -> None:
    """The kernel's layouts are for its own number of waves, and can be laid out anew for fewer.

    A role that moves whole tiles (by the tensor data mover) has none, and takes any number. The first role is run by
    the kernel's waves.
    """
    first = min(kernel.schedule.roles, key=lambda role: role.warps_lo)
    if waves % TRUNK_STEP and len(kernel.schedule.roles) > 1:
        raise kernel.error(
            f"the kernel has num_warps={waves}, and Triton runs tasks beside a multiple of {TRUNK_STEP} only",
            f"compile with num_warps={TRUNK_STEP}, or realise the schedule as one thread",
        )
    for role in kernel.schedule.roles:
        if role is first and role.num_warps != waves:
            raise kernel.error(
                f"role {role.name!r} stands at wave 0 with {role.num_warps} waves, and the kernel is compiled for "
                f"{waves}",
                f"compile with num_warps={role.num_warps}, or give the role {waves} waves",
            )
        if role.num_warps > waves and _has_tensors(kernel, role.name):
            raise kernel.error(
                f"role {role.name!r} has {role.num_warps} waves, and the layouts of the kernel are for {waves}",
                f"give it at most {waves} waves, or compile with num_warps={role.num_warps} and put it at wave 0",
            )


def _has_tensors(kernel: WSKernel, role: str) -> bool:
    """Whether an op of the role has operands or results that are spread over lanes."""
    ids = [one.id for scope in kernel.schedule.scopes for one in scope.body(role) if isinstance(one, WSOpRef)]
    ops = (op for id in ids if kernel.regions[id].loop is None for op in kernel.regions[id].walk())
    return any(value.type.startswith("tensor<") for op in ops for value in (*op.operands, *op.results))


def _arrivals(schedule: WSSchedule, pipeline: WSPipeline, side: int) -> int:
    """Waves that complete a phase of the full (0) or the empty (1) barrier."""
    return sum(schedule.role(name).num_warps for name in schedule.sides(pipeline.name)[side])


def _barriers(build: Builder, pipeline: WSPipeline, count: int) -> Value:
    type_ = f"!ttg.memdesc<{pipeline.depth}x1xi64, {LAYOUT}>"
    barriers = build.value(Op("ttg.local_alloc", result_types=[type_]))
    for slot in range(pipeline.depth):
        at = build.value(spelling.constant(slot))
        one = build.value(Op("ttg.memdesc_index", [barriers, at], [barrier_type(type_)]))
        build.create("amdg.init_barrier", [one], properties={"count": f"{count} : i32"})
    return barriers


Parts = tuple[dict[Op, Value], dict[str, Value], dict[str, Value]]


def _partition(
    kernel: WSKernel, thread: Thread, block: Block, captures: Captures, parts: Parts, loc: str | None
) -> None:
    """Write a role into a partition, where nothing from outside is visible but captures."""
    rings, full, empty = parts
    names = {step.pipeline for body in thread.bodies.values() for step in body if step.pipeline}
    mine = {n: p for p in kernel.schedule.pipelines for n in p.buffers if p.name in names}
    here = {kernel.buffers[n]: captures.inside(rings[kernel.buffers[n]], block) for n in mine}
    signals, frees = ({n: captures.inside(side[n], block) for n in sorted(names)} for side in (full, empty))
    inside = Builder(block, None, loc)
    env = Env(kernel, None, capture=lambda value: captures.inside(value, block))
    _write(kernel, thread, inside, here, signals, frees, env)
    inside.create("ttg.warp_return")


def _write(
    kernel: WSKernel,
    thread: Thread,
    build: Builder,
    rings: dict[Op, Value],
    full: dict[str, Value],
    empty: dict[str, Value],
    env: Env,
) -> None:
    Writer(kernel, thread, rings, BetweenTasks(thread, full, empty)).write(build, env)
