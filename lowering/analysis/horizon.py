"""How many iterations of a loop of unknown length show everything that its shared-memory use can do.

A walk numbers the iterations from the loop's start, so what it sees depends on how far it goes. The use of a ring
repeats with the ring's depth, and with every number that the kernel divides a loop-carried integer by on the way to a
slot index or to a condition around shared memory; a number that such an integer is compared with delays it. Both count
in steps of that integer: ``k // 64`` changes in every iteration of a loop over ``k`` in steps of 64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..ir import Op, Value
from .lds import NotFollowedError, shape_of, touches_lds
from .pipelines import anchor_of

MAX_TRIPS = 160
_PERIODS = ("arith.remsi", "arith.remui", "arith.divsi", "arith.divui", "arith.floordivsi", "arith.ceildivsi")
_LIMITS = ("arith.cmpi", "arith.minsi", "arith.maxsi", "arith.minui", "arith.maxui", "arith.muli")


def horizon(function: Op) -> int:
    """Iterations to follow a loop of ``function`` for.

    Raises:
        NotFollowedError: they are more than a walk can follow.
    """
    varies: dict[Value, bool] = {}
    period, delay = 1, 0
    for op, root, depth in _roots(function):
        made_of = _Slice(root, varies)
        period = math.lcm(period, depth, made_of.period)
        delay = max(delay, made_of.delay)
        if delay + 2 * period + 2 > MAX_TRIPS:
            raise NotFollowedError(
                op, f"a slot index or a condition repeats only after {period} iterations, or starts after {delay}"
            )
    return delay + 2 * period + 2


def _roots(function: Op) -> Iterator[tuple[Op, Value, int]]:
    """Integers that decide what is done to shared memory: op, value, and depth of the ring it selects from."""
    for op in function.walk():
        if op.name == "ttg.memdesc_index":
            yield op, op.operands[1], shape_of(op.operands[0].type)[0]
        elif op.name == "cf.cond_br":
            yield op, op.operands[0], 1
        elif op.name in ("scf.if", "scf.for") and any(
            touches_lds(inner) or anchor_of(inner) for inner in op.walk() if inner is not op
        ):
            for value in op.operands[: 1 if op.name == "scf.if" else 3]:
                yield op, value, 1


@dataclass
class _Slice:
    """The integer ops that one value is made of.

    Attributes:
        periods: numbers that something loop-carried is divided by.
        limits: numbers that something loop-carried is compared with.
        strides: how far the loop-carried integers get in one iteration, 1 where that is not known.
    """

    root: Value
    varies: dict[Value, bool]
    periods: set[int] = field(default_factory=set)
    limits: set[int] = field(default_factory=set)
    strides: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        done: set[Value] = set()
        todo = [self.root]
        while todo:
            value = todo.pop()
            if value in done:
                continue
            done.add(value)
            if value.op is not None:
                self._count(value.op)
            elif (stride := _stride(value)) is not None:
                self.strides.add(stride)
            todo.extend(_sources(value))

    @property
    def period(self) -> int:
        """Iterations after which the value repeats."""
        whole = math.lcm(1, *(abs(n) for n in self.periods if n))
        return math.lcm(1, *(whole // math.gcd(whole, stride) for stride in self.strides or {1}))

    @property
    def delay(self) -> int:
        """Iterations after which no comparison changes any more."""
        return -(-max((abs(n) for n in self.limits), default=0) // min(self.strides, default=1))

    def _count(self, op: Op) -> None:
        numbers = [number for value in op.operands if (number := _number(value)) is not None]
        if not numbers or not any(self._is_varying(value) for value in op.operands):
            return
        if op.name in _PERIODS:
            self.periods.update(numbers)
        elif op.name == "arith.andi":
            self.periods.update(number + 1 for number in numbers)
        elif op.name in ("arith.shrsi", "arith.shrui"):
            self.periods.update(1 << min(abs(number), 32) for number in numbers)
        elif op.name in _LIMITS and op.operands[0].type != "i1":
            self.limits.update(numbers)

    def _is_varying(self, value: Value) -> bool:
        """Whether a value may differ between iterations of a loop or depend on how many there were."""
        if value not in self.varies:
            around = value.op or value.owner.parent_op
            self.varies[value] = around is not None and around.name == "scf.for"
            self.varies[value] = self.varies[value] or any(self._is_varying(v) for v in _sources(value))
        return self.varies[value]


def _stride(argument: Value) -> int | None:
    """How far an argument of a loop's body gets in one iteration; None for an argument of anything else."""
    loop = argument.owner.parent_op
    if loop is None or loop.name != "scf.for":
        return None
    if argument.index == 0:
        return abs(_number(loop.operands[2]) or 1)
    yielded = loop.regions[0].block.ops[-1].operands[argument.index - 1]
    if yielded.op is not None and yielded.op.name == "arith.addi" and argument in yielded.op.operands:
        other = [value for value in yielded.op.operands if value is not argument]
        return abs(_number(other[0]) or 1) if other else 1
    return 1


def _sources(value: Value) -> list[Value]:
    """What a value is made of: operands, and what loops and conditions hand on."""
    home = value.op
    if home is None:
        around = value.owner.parent_op
        if around is None or around.name != "scf.for":
            return []
        if value.index == 0:
            return list(around.operands[:3])
        yielded = around.regions[0].block.ops[-1].operands
        return [around.operands[2 + value.index], yielded[value.index - 1]]
    if home.name == "scf.for":
        return [home.operands[3 + value.index], home.regions[0].block.ops[-1].operands[value.index]]
    if home.name in ("scf.if", "scf.execute_region"):
        ends = [region.blocks[0].ops[-1] for region in home.regions if region.blocks]
        return [*home.operands, *(end.operands[value.index] for end in ends)]
    return list(home.operands)


def _number(value: Value) -> int | None:
    if value.op is None or value.op.name != "arith.constant":
        return None
    text = value.op.properties.get("value", "").split(":")[0].strip()
    return int(text) if text.lstrip("-").isdigit() else None
