"""Drawn pipelines: the protocol check against a plain simulation of the two wave groups' traces.

The simulation unrolls the lowered kernel for each trip count, writes down what each group executes, and orders two
accesses by looking for a barrier between the completion of the one and the start of the other.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from amdwarp.lowering.bridge import triton_version
from amdwarp.lowering.ir import Block, Module, Op, Value
from amdwarp.lowering.passes import FenceEdges, InterWave, JoinPipelines
from amdwarp.lowering.passes.fence_edges import make_fence
from hypothesis import given, settings
from hypothesis import strategies as st
from snippets import module

from amdwarp.errors import ProtocolError

pytestmark = pytest.mark.usefixtures("needs_triton")

KINDS = {
    "copy": "@copy({slot})",
    "relaxed": "@relaxed({name}, {slot})",
    "load": "@load({name}, {slot})",
    "store": "@store({slot})",
}


# ---- drawing


@dataclass
class Loop:
    """A staged loop: what each stage does, and which edges wait."""

    gap: int
    stages: list[list[tuple[str, int]]]  # (kind of access, slot relative to the iteration)
    waits: list[int | None]

    def lines(self, names: Iterator[int], depth: int, bound: str) -> Iterator[str]:
        yield f"scf.for %i = %c0 to {bound} step %c1 : i32 {{"
        for number, accesses in enumerate(self.stages):
            gap = ", phase_gap = 2 : i32" if self.gap == 2 and not number else ""
            yield f"@begin(s{number}{gap})"
            for kind, ahead in accesses:
                name = next(names)
                yield f"%o{name} = arith.constant {ahead} : i32"
                yield f"%j{name} = arith.addi %i, %o{name} : i32"
                yield f"%k{name} = arith.remsi %j{name}, %depth : i32"
                yield f"@slot(t{name}, r, k{name}, {depth})"
                yield KINDS[kind].format(slot=f"t{name}", name=f"v{name}")
            if any(kind == "copy" for kind, _ in accesses):
                yield "@commit"
            yield "@end"
            if self.waits[number] is not None:
                yield f"@wait({self.waits[number]})"
        yield "}"


@dataclass
class Drawn:
    """Copies and a wait, then one staged loop or two back to back, all over one ring."""

    depth: int
    prologue: list[int]
    prologue_wait: int | None
    loops: list[Loop]

    def text(self) -> str:
        names = iter(range(1000))
        lines = [f"@ring(r, {self.depth})", f"%depth = arith.constant {self.depth} : i32"]
        for slot in self.prologue:
            name = next(names)
            lines += [f"%k{name} = arith.constant {slot % self.depth} : i32"]
            lines += [f"@slot(p{name}, r, k{name}, {self.depth})", f"@copy(p{name})", "@commit"]
        if self.prologue_wait is not None:
            lines.append(f"@wait({self.prologue_wait})")
        for loop, bound in zip(self.loops, ("%n", "%m"), strict=False):
            lines += loop.lines(names, self.depth, bound)
        return "\n".join(f"    {line}" for line in lines) + "\n"


@st.composite
def pipelines(draw: Any, loops: int = 1) -> Drawn:
    """Half of them tame: the ring full at first, few accesses, most edges waiting for everything."""
    tame = draw(st.booleans())
    depth = draw(st.integers(3, 4) if tame else st.integers(1, 4))
    access = st.tuples(st.sampled_from(list(KINDS)), st.integers(0, depth - 1))
    most = 1 if tame else 2

    def loop() -> Loop:
        stages = draw(st.lists(st.lists(access, max_size=most), min_size=2, max_size=4 if loops == 1 else 2))
        waits = [draw(st.sampled_from([0, 0, 0, 1] if tame else [None, 0, 0, 1, 2])) for _ in stages]
        return Loop(draw(st.sampled_from([1, 1, 2])), stages, waits)

    if tame:
        return Drawn(depth, list(range(depth)), 0, [loop() for _ in range(loops)])
    prologue = draw(st.lists(st.integers(0, 3), max_size=4, unique=True))
    return Drawn(depth, prologue, draw(st.sampled_from([None, 0, 0, 1])), [loop() for _ in range(loops)])


# ---- the simulation


@dataclass
class Step:
    """One access of one group: how many barriers the group had passed when it started and when it was complete."""

    op: Op
    kind: str
    slot: int
    start: int
    group: int = -1
    done: int | None = None


@dataclass
class Trace:
    """What one wave group executes."""

    high: bool
    trips: Iterator[int]
    steps: list[Step] = field(default_factory=list)
    values: dict[Value, int] = field(default_factory=dict)
    slots: dict[Value, int] = field(default_factory=dict)
    groups: list[int] = field(default_factory=lambda: [0])
    barriers: int = 0

    def run(self, block: Block) -> None:
        for op in block.ops:
            self._op(op)

    def _op(self, op: Op) -> None:
        if op.name == "arith.constant" and op.result.type == "i32":
            self.values[op.result] = int(op.properties["value"].split(" :")[0])
        elif op.name in ("arith.addi", "arith.remsi") and all(v in self.values for v in op.operands):
            a, b = (self.values[v] for v in op.operands)
            self.values[op.result] = a + b if op.name == "arith.addi" else a % b
        elif op.name == "ttg.memdesc_index":
            self.slots[op.result] = self.values[op.operands[1]]
        elif op.name == "scf.for":
            for number in range(next(self.trips)):
                self.values[op.regions[0].block.args[0]] = number
                self.run(op.regions[0].block)
        elif op.name == "ttg.async_commit_group":
            self.groups.append(0)
        elif op.name == "ttg.async_wait":
            self._wait(len(self.groups) - 1 - int(op.properties["num"].split(" :")[0]))
        elif op.name == "ttg.barrier":
            self._complete(lambda step: step.kind != "copy")
            self.barriers += 1
        elif op.name == "rocdl.s.barrier":
            self.barriers += 1
        elif op.name == "amdg.cond_barrier":
            self.barriers += self.high == (op.attributes["amdwarp.phase"] == '"high"')
        else:
            self._access(op)

    def _access(self, op: Op) -> None:
        slots = [self.slots[v] for v in op.operands if v in self.slots]
        if not slots:
            return
        relaxed = op.attributes.get("ttg.amdg.syncedViaAsyncWait") == "true"
        kinds = {"ttg.local_load": "relaxed" if relaxed else "load", "ttg.local_store": "store"}
        kind = kinds.get(op.name, "copy")
        step = Step(op, kind, slots[0], self.barriers)
        if kind == "copy":
            step.group = len(self.groups) - 1
            self.groups[-1] += 1
        self.steps.append(step)

    def _wait(self, covered: int) -> None:
        if covered > 0 and (self.groups[covered - 1] or triton_version() >= (3, 9)):
            self._complete(lambda step: step.kind == "copy" and step.group < covered)

    def _complete(self, chosen: Any) -> None:
        for step in self.steps:
            if step.done is None and chosen(step):
                step.done = self.barriers


def race(mod: Module, all_trips: Iterable[tuple[int, ...]]) -> tuple[tuple[int, ...], Step, Step] | None:
    """Trip counts and two conflicting accesses of two waves that no barrier orders."""
    (function,) = mod.functions()
    for trips in all_trips:
        traces = [Trace(high, iter(trips)) for high in (False, True)]
        for trace in traces:
            trace.run(function.regions[0].blocks[0])
        assert traces[0].barriers == traces[1].barriers, "the groups do not meet again"
        for first in traces:
            for second in traces:
                for i, x in enumerate(first.steps):
                    for y in second.steps[i + 1 :]:
                        writes = "copy" in (x.kind, y.kind) or "store" in (x.kind, y.kind)
                        ordered = x.done is not None and x.done < y.start
                        if writes and x.slot == y.slot and not ordered:
                            return trips, x, y
    return None


# ---- the comparison


def test_the_check_agrees_with_the_simulation() -> None:
    seen: Counter[str] = Counter()
    trips = [(count,) for count in range(9)]

    @settings(max_examples=150, deadline=None, derandomize=True, database=None)
    @given(drawn=pipelines())
    def each(drawn: Drawn) -> None:
        text = drawn.text()
        mod = module(text)
        InterWave().run(mod)
        try:
            FenceEdges().run(mod)
        except ProtocolError as error:
            if "needs a barrier inside the stage" in str(error) or "is read before anything was copied" in str(error):
                return
            best = module(text)
            InterWave().run(best)
            for op in best.ops("rocdl.s.barrier"):
                make_fence(op)
            assert race(best, trips) is not None, f"refused for no race: {error}\n{text}"
            seen["refused"] += 1
            return
        found = race(mod, trips)
        assert found is None, f"taken with a race: {found}\n{text}"
        seen["taken"] += any(stage for loop in drawn.loops for stage in loop.stages)

    each()
    assert min(seen["refused"], seen["taken"]) >= 20, seen


def test_joined_loops_have_no_race() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=80, deadline=None, derandomize=True, database=None)
    @given(drawn=pipelines(loops=2))
    def each(drawn: Drawn) -> None:
        text = drawn.text()
        mod = module(text)
        InterWave().run(mod)
        try:
            FenceEdges().run(mod)
        except ProtocolError:
            return
        before = len(mod.ops("amdg.cond_barrier"))
        JoinPipelines().run(mod)
        found = race(mod, itertools.product(range(5), range(5)))
        assert found is None, f"a race: {found}\n{text}"
        seen["joined" if len(mod.ops("amdg.cond_barrier")) < before else "apart"] += 1

    each()
    assert seen["joined"] >= 15, seen
    assert seen["apart"] >= 2, seen
