"""One loop of a thread of a typed schedule: prologue, steady state and epilogue.

Steps at offset ``o`` run ``o`` iterations behind. The first turns run only what is due, each turn under the condition
that the loop has so many iterations; the last turns run what is left. In between there is a loop without conditions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from . import spelling
from .analysis.ws_needs import loop_needs, loop_of
from .analysis.ws_program import Act, Phase, Step
from .ir import Block, Op, Region, Value
from .rewriter import Builder
from .ws_env import Env, Key, Site

if TYPE_CHECKING:
    from .ws_threads import Writer


class Loop:
    """One loop of a thread: prologue, steady state, epilogue."""

    def __init__(self, writer: Writer, scope: str, env: Env, build: Builder) -> None:
        self.writer, self.scope, self.build = writer, scope, build
        self.kernel, self.thread = writer.kernel, writer.thread
        self.region, self.loop, self.body = loop_of(self.kernel, scope)
        self.steps = list(enumerate(self.thread.bodies[scope]))
        self.depth = self.thread.depth(scope)
        self.needs = loop_needs(self.kernel, self.thread, scope)
        user = f"op {scope!r}"
        self.env = env
        for value in self.needs.outer:
            if not self._is_buffer(value):
                env.map[value] = env.value(value, build, user)
        self.low, self.high, self.step = (env.map[bound] for bound in self.loop.operands[:3])
        self.trips = _constant_trips(self.loop)
        self.least = 0
        self.keys: list[Key] = []
        for offset, positions in self.needs.args.items():
            self._carry(self._iv(offset), self.low)
            for position in positions:
                self._carry(self._arg(offset, position), env.map[self.loop.operands[3 + position]])
        for value, (_, distance) in self.needs.carried.items():
            poison = Op("ub.poison", result_types=[value.type], properties={"value": "#ub.poison"})
            nothing = build.value(poison)
            for age in range(1, distance + 1):
                self._carry(self._aged(value, age), nothing)

    def _is_buffer(self, value: Value) -> bool:
        return self.kernel.pipeline_of(value) is not None

    def _iv(self, offset: int) -> Key:
        return ("iv", self.scope, str(offset))

    def _arg(self, offset: int, position: int) -> Key:
        return ("arg", self.scope, str(offset), str(position))

    def _aged(self, value: Value, age: int) -> Key:
        """What an op computed so many turns ago."""
        return ("aged", self.scope, str(list(self.needs.carried).index(value)), str(age))

    def _carry(self, key: Key, value: Value) -> None:
        self.writer.state[key] = value
        self.keys.append(key)

    def write(self) -> None:
        if self.writer.sync.apart and self.trips is None and self.depth:
            self._apart(self.build, self.depth)
        else:
            self._whole(self.build)
        for key in self.keys:
            del self.writer.state[key]

    def _apart(self, build: Builder, trips: int) -> None:
        """The loop for at least so many iterations; for fewer, code of its own for each number."""

        def long_enough(inside: Builder) -> None:
            self.least, self.trips = trips, None if trips == self.depth else trips
            self._whole(inside)

        def too_short(inside: Builder) -> None:
            self.least, self.trips = 0, None
            if trips > 1:
                self._apart(inside, trips - 1)
            else:
                self._results()

        self.build = build
        condition = self._at_least(trips)
        assert isinstance(condition, Value)
        self.writer.under(build, condition, [self.env], long_enough, too_short)

    def _whole(self, build: Builder) -> None:
        """Prologue, steady state and epilogue."""
        self.build = build
        conditions = {d: self._at_least(d) for d in range(1, self.depth + 1)}
        for turn in range(self.depth):
            when = functools.partial(_same, conditions[turn + 1])
            self._turn(build, ("prologue", turn), self._takes(0, turn), when)
        self._steady()
        for turn in range(self.depth):
            later = {offset: conditions[offset - turn] for offset in range(turn + 1, self.depth + 1)}
            self._turn(build, ("epilogue", turn), self._takes(turn + 1, self.depth), later.__getitem__)
        self._results()

    def _results(self) -> None:
        for position, offset in self.needs.results.items():
            self.env.map[self.loop.results[position]] = self.writer.state[self._arg(offset, position)]

    def _takes(self, low: int, high: int) -> list[tuple[int, Step]]:
        """The steps at some offsets, with their positions."""
        return [(position, step) for position, step in self.steps if low <= step.offset <= high]

    def _at_least(self, trips: int) -> Value | bool:
        """Whether the loop has so many iterations."""
        if self.trips is not None:
            return self.trips >= trips
        if trips <= self.least:
            return True
        before = self._ahead(trips - 1)
        return self.build.value(spelling.cmpi("slt", before, self.high))

    def _ahead(self, turns: int) -> Value:
        """The induction variable of iteration ``turns``."""
        if not turns:
            return self.low
        count = self.build.value(spelling.constant(turns, self.low.type))
        return self.build.value(spelling.addi(self.low, self.build.value(spelling.muli(self.step, count))))

    def _steady(self) -> None:
        if self.trips is not None and self.trips <= self.depth:
            return
        state = self.writer.state
        start = self._ahead(self.depth)
        carried = [key for key in state if key in self.keys or self._turns(key)]
        block = Block([self.low.type, *(state[key].type for key in carried)])
        loop = Op(
            "scf.for",
            [start, self.high, self.step, *(state[key] for key in carried)],
            [state[key].type for key in carried],
            properties=self.loop.properties,
            attributes={**self.loop.attributes, **self.writer.sync.loop_attributes},
            regions=[Region([block])],
            loc=self.loop.loc,
        )
        self.build.insert(loop)
        for arg in block.args:
            arg.loc = self.body.args[0].loc
        state.update(zip(carried, block.args[1:], strict=True))
        inside = Builder(block, None, self.loop.loc)
        self._turn(inside, ("steady", 0), self._takes(0, self.depth), functools.partial(_same, True))
        inside.create("scf.yield", [state[key] for key in carried])
        state.update(zip(carried, loop.results, strict=True))

    def _turns(self, key: Key) -> bool:
        """Whether a counter moves in this loop or one inside it."""
        return key[0] in ("slot", "phase") and key in _moved(self.writer, self.scope)

    def _turn(
        self, build: Builder, phase: Phase, steps: list[tuple[int, Step]], when: Callable[[int], Value | bool]
    ) -> None:
        """One turn of the loop: the steps that take part, each under the condition of its offset."""
        envs = {offset: self._iteration(offset) for offset in dict.fromkeys(step.offset for _, step in steps)}
        last = {step.offset: position for position, step in steps}
        index = 0
        while index < len(steps):
            condition = when(steps[index][1].offset)
            chunk = []
            while index < len(steps) and when(steps[index][1].offset) is condition:
                chunk.append(steps[index])
                index += 1
            if condition is False:
                continue

            def write(inside: Builder, chunk: list[tuple[int, Step]] = chunk) -> None:
                for position, step in chunk:
                    site = Site(self.scope, phase, position, step)
                    self.writer.step(inside, envs[step.offset], site)
                    if last[step.offset] == position:
                        self._next(inside, envs[step.offset], step.offset)
                if phase[0] == "prologue":  # all under one condition: without it there is no such turn
                    self._age(envs)

            if condition is True:
                write(build)
            else:
                assert isinstance(condition, Value)
                self.writer.under(build, condition, list(envs.values()), write)
        if phase[0] != "prologue":
            self._age(envs)

    def _age(self, envs: dict[int, Env]) -> None:
        """The turn is over: what was computed in it is one turn old now."""
        state = self.writer.state
        for value, (made, distance) in self.needs.carried.items():
            for age in range(distance, 1, -1):
                state[self._aged(value, age)] = state[self._aged(value, age - 1)]
            if made in envs and value in envs[made].map:
                state[self._aged(value, 1)] = envs[made].map[value]

    def _iteration(self, offset: int) -> Env:
        env, state = self.env.fork(), self.writer.state
        env.map[self.body.args[0]] = state[self._iv(offset)]
        for position in self.needs.args[offset]:
            env.map[self.body.args[1 + position]] = state[self._arg(offset, position)]
        for value, (made, distance) in self.needs.carried.items():
            if 0 < offset - made <= distance:
                env.map[value] = state[self._aged(value, offset - made)]
        return env

    def _next(self, build: Builder, env: Env, offset: int) -> None:
        """The loop-carried values of an offset's next iteration."""
        state, yielded = self.writer.state, self.body.ops[-1].operands
        following = {
            self._arg(offset, position): env.value(yielded[position], build, f"the next turn of {self.scope!r}")
            for position in self.needs.args[offset]
        }
        following[self._iv(offset)] = build.value(spelling.addi(state[self._iv(offset)], self.step))
        state.update(following)


def _same(condition: Value | bool, _offset: int) -> Value | bool:
    return condition


def _moved(writer: Writer, scope: str) -> set[Key]:
    """The counters that move in a scope and the scopes inside it."""
    moved: set[Key] = set()
    for step in writer.thread.bodies.get(scope, []):
        if step.act is Act.RUN and step.id in writer.scopes:
            moved |= _moved(writer, step.id)
        else:
            moved |= set(writer.counters(step))
    return moved


def _constant_trips(loop: Op) -> int | None:
    """Iterations of a loop whose bounds are constants."""
    bounds = []
    for value in loop.operands[:3]:
        if value.op is None or value.op.name != "arith.constant":
            return None
        bounds.append(int(value.op.properties["value"].split(":")[0]))
    low, high, step = bounds
    return max(0, -(-(high - low) // step))
