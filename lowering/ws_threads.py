"""Code of one thread of a typed schedule: its steps as straight code, loops with prologue and epilogue, guards.

Arithmetic that no op owns is copied to where a step needs it. How a thread synchronizes is left to a
:class:`Synchronization`: barriers between tasks, or waits and barriers of the workgroup in a single thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from amdwarp.schedule.objects import WSScope

from . import spelling
from .analysis.lds import SYNCED, VIEWS
from .analysis.ws_kernel import WSKernel, WSRegion, is_sync, ws_mark
from .analysis.ws_needs import free_operands
from .analysis.ws_program import Act, Copies, Phase, Step, Thread
from .dialect import Kind, kind_of
from .ir import Block, Op, Region, Value
from .rewriter import Builder
from .ws_env import Env, Key, Site
from .ws_loops import Loop


class Synchronization(Protocol):
    """How the points of a schedule become code."""

    phases: bool
    """Whether points need the phase of their barrier, beside the slot."""
    late: bool
    """Whether a commit may run behind the end of its span."""
    loop_attributes: dict[str, str]
    """Attributes for the steady state of each loop."""
    apart: bool
    """Whether loops shorter than prologue and epilogue are code of their own, so that neither has conditions."""

    def point(self, writer: Writer, build: Builder, site: Site) -> None:
        """Emit one synchronization point."""


class Writer:
    """Writes one thread.

    Args:
        kernel: the kernel as it was.
        thread: the thread's program.
        rings: buffer name -> its versions, as a value that the thread sees.
        sync: how points become code.
    """

    def __init__(self, kernel: WSKernel, thread: Thread, rings: dict[Op, Value], sync: Synchronization) -> None:
        self.kernel = kernel
        self.thread = thread
        self.rings = rings
        self.sync = sync
        self.state: dict[Key, Value] = {}
        self.scopes = {scope.id for scope in kernel.schedule.scopes}

    # ---- counters

    def write(self, build: Builder, env: Env) -> None:
        """The whole thread, from the root scope."""
        zero = build.value(spelling.constant(0))
        for step in (step for body in self.thread.bodies.values() for step in body):
            for key in self.counters(step):
                self.state.setdefault(key, zero)
        steps = sorted(enumerate(self.thread.bodies.get(WSScope.ROOT, [])), key=lambda item: (item[1].offset, item[0]))
        for position, step in steps:
            phase: Phase = ("steady", 0)
            self.step(build, env, Site(WSScope.ROOT, phase, position, step))

    def counters(self, step: Step) -> list[Key]:
        if step.act is Act.RUN:
            return []
        names = ("slot", "phase") if self.sync.phases and not self._late(step) else ("slot",)
        return [(name, step.role, step.pipeline, self._side(step)) for name in names]

    def _side(self, step: Step) -> str:
        """Whose counter a point goes by: a commit that runs late has one of its own."""
        if step.act in (Act.WAIT, Act.RELEASE):
            return "consume"
        return "commit" if self._late(step) else "produce"

    def _late(self, step: Step) -> bool:
        in_flight = self.kernel.schedule.pipeline(step.pipeline).in_flight
        return step.act is Act.COMMIT and self.sync.late and in_flight > 1

    def _turns(self, step: Step) -> bool:
        """Whether the counter moves on behind a point."""
        if step.act is Act.CLOSE:
            return self.sync.late and self.kernel.schedule.pipeline(step.pipeline).in_flight > 1
        return step.act in (Act.COMMIT, Act.RELEASE)

    def slot(self, step: Step) -> Value:
        return self.state["slot", step.role, step.pipeline, self._side(step)]

    def phase(self, step: Step) -> Value:
        return self.state["phase", step.role, step.pipeline, self._side(step)]

    def advance(self, build: Builder, step: Step) -> None:
        """The next version: slot and phase of one side of a pipeline."""
        slot, *phase = self.counters(step)
        depth = self.kernel.schedule.pipeline(step.pipeline).depth
        if depth == 1 and not phase:
            return
        one = build.value(spelling.constant(1))
        turned = [build.value(Op("arith.xori", [self.state[key], one], ["i32"])) for key in phase]
        if depth > 1:
            following = build.value(spelling.addi(self.state[slot], one))
            last = build.value(spelling.constant(depth))
            wraps = build.value(spelling.cmpi("eq", following, last))
            zero = build.value(spelling.constant(0))
            turned = [
                build.value(Op("arith.select", [wraps, new, self.state[key]], ["i32"]))
                for key, new in zip(phase, turned, strict=True)
            ]
            self.state[slot] = build.value(Op("arith.select", [wraps, zero, following], ["i32"]))
        self.state.update(zip(phase, turned, strict=True))

    # ---- steps

    def step(self, build: Builder, env: Env, site: Site) -> None:
        step = site.step
        if step.act is not Act.RUN:
            self.sync.point(self, build, site)
            if self._turns(step):
                self.advance(build, step)
            return
        region = self.kernel.regions[step.id]
        inner = env.fork()
        self._bind(build, inner, step, region)
        if region.loop is None:
            self._copy(self._guarded(build, inner, region), inner, region)
        elif self.thread.bodies.get(step.id):
            self._scope(build, inner, region)
        for op in region.ops:
            for result in op.results:
                if result in inner.map:
                    env.map[result] = inner.map[result]

    def _bind(self, build: Builder, env: Env, step: Step, region: WSRegion) -> None:
        """Select the version of each buffer that the op accesses."""
        for pipeline, alloc, role in self._touched(region):
            side = "consume" if role in self.kernel.schedule.sides(pipeline)[1] else "produce"
            slot = self.state["slot", role, pipeline, side]
            env.map[alloc.result] = build.value(
                Op("ttg.memdesc_index", [self.rings[alloc], slot], [alloc.result.type], loc=region.begin.loc)
            )

    def _touched(self, region: WSRegion) -> Iterable[tuple[str, Op, str]]:
        if region.loop is not None:
            return
        roles = [s.role for body in self.thread.bodies.values() for s in body if s.id == region.id]
        for pipeline in self.kernel.schedule.pipelines:
            for name in pipeline.buffers:
                alloc = self.kernel.buffers[name]
                if any(self._reaches(value, alloc) for value in free_operands(region.ops)):
                    yield pipeline.name, alloc, roles[0]

    def _reaches(self, value: Value, alloc: Op) -> bool:
        op = value.op
        while op is not None and op.name in VIEWS:
            op = op.operands[0].op
        return op is alloc

    def _condition(self, build: Builder, env: Env, region: WSRegion, guard: Op, branch: int) -> Value:
        condition = env.value(guard.operands[0], build, f"op {region.id!r}")
        if branch:
            true = build.value(spelling.constant(True, "i1"))
            condition = build.value(Op("arith.xori", [condition, true], ["i1"]))
        return condition

    def _scope(self, build: Builder, env: Env, region: WSRegion) -> None:
        """A child scope; a condition around it guards its synchronization too, and is the same in all roles."""
        holds = [self._condition(build, env, region, guard, branch) for guard, branch in region.guards]
        if not holds:
            Loop(self, region.id, env, build).write()
            return
        condition = holds[0]
        for more in holds[1:]:
            condition = build.value(spelling.andi(condition, more))
        self.under(build, condition, [env], lambda inside: Loop(self, region.id, env, inside).write())

    def _guarded(self, build: Builder, env: Env, region: WSRegion) -> Builder:
        """Open the source's conditions around an op; returns where its code goes."""
        for guard, branch in region.guards:
            condition = self._condition(build, env, region, guard, branch)
            inside = Block()
            inside.append(Op("scf.yield", loc=guard.loc))
            build.insert(Op("scf.if", [condition], regions=[Region([inside]), Region()], loc=guard.loc))
            build = Builder(inside, inside.ops[-1], guard.loc)
        return build

    def _copy(self, build: Builder, env: Env, region: WSRegion) -> None:
        user = f"op {region.id!r}"
        drop = any(kind_of(op) is Kind.COPY and self.kernel.pipeline_of(v) for op in region.walk() for v in op.operands)
        for op in region.ops:
            if ws_mark(op) or (drop and is_sync(op) and kind_of(op) is not Kind.BARRIER):
                continue
            for value in free_operands([op]):
                env.map[value] = env.value(value, build, user)
            copy = build.insert(op.clone(env.map))
            self._mark_synced(op, copy)

    def _mark_synced(self, old: Op, new: Op) -> None:
        """Reads of what copies have brought are ordered by our barriers: stock barrier insertion need not do it."""
        for before, after in zip(old.walk(), new.walk(), strict=True):
            if before.name != "ttg.local_load":
                continue
            name = self.kernel.pipeline_of(before.operands[0])
            arrivals = {
                s.copies for b in self.thread.bodies.values() for s in b if s.act is Act.WAIT and s.pipeline == name
            }
            if Copies.GROUPS in arrivals:
                after.attributes[SYNCED] = "true"

    def under(
        self,
        build: Builder,
        condition: Value,
        envs: Sequence[Env],
        write: Callable[[Builder], None],
        otherwise: Callable[[Builder], None] | None = None,
    ) -> None:
        """Write under a condition; what changes comes out of the ``scf.if``, unchanged where nothing happens."""
        before, known = dict(self.state), [dict(env.map) for env in envs]
        sides: list[tuple[Block, dict[Key, Value], dict[tuple[int, Value], Value]]] = []
        for one in (write, otherwise or (lambda inside: None)):
            block = Block()
            self._restore(before)
            for env, seen in zip(envs, known, strict=True):
                env.map = dict(seen)
            one(Builder(block, None, build.loc))
            sides.append((block, dict(self.state), self._made(envs, known)))
        keys = [key for key in before if any(state.get(key) is not before[key] for _, state, _ in sides)]
        names = list(dict.fromkeys(name for *_, made in sides for name in made))
        types = [before[key].type for key in keys]
        types += [next(made[name] for *_, made in sides if name in made).type for name in names]
        for block, state, made in sides:
            inside = Builder(block, None, build.loc)
            values = [state[key] for key in keys]
            for name, type_ in zip(names, types[len(keys) :], strict=True):
                poison = Op("ub.poison", result_types=[type_], properties={"value": "#ub.poison"})
                values.append(made[name] if name in made else inside.value(poison))
            inside.create("scf.yield", values)
        op = Op("scf.if", [condition], types, regions=[Region([block]) for block, *_ in sides])
        build.insert(op)
        self._restore(before | dict(zip(keys, op.results, strict=False)))
        for env, seen in zip(envs, known, strict=True):
            env.map = seen
        for (at, old), new in zip(names, op.results[len(keys) :], strict=True):
            envs[at].map[old] = new

    def _restore(self, values: dict[Key, Value]) -> None:
        self.state.clear()  # loops around hold on to it
        self.state.update(values)

    def _made(self, envs: Sequence[Env], known: Sequence[dict[Value, Value]]) -> dict[tuple[int, Value], Value]:
        """Values of ops that were made since, and that other ops use."""
        return {
            (at, old): new
            for at, (env, seen) in enumerate(zip(envs, known, strict=True))
            for old, new in env.map.items()
            if old not in seen and old.op in self.kernel.owner and self._used_later(old)
        }

    def _used_later(self, old: Value) -> bool:
        mine = self.kernel.owner[old.op] if old.op is not None else None
        return any(self.kernel.owner.get(user) is not mine for user in old.users)
