"""How many iterations of a loop of unknown length show everything that its shared-memory use can do.

A walk numbers the iterations from the loop's start, so what it sees depends on how far it goes. The use of a ring
repeats with the ring's depth, and with every number that the kernel divides a loop-carried integer by on the way to a
slot index or to a condition around shared memory; a number that such an integer is compared with delays it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

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
    seen = _Slice(function)
    period = math.lcm(1, *seen.depths, *(abs(n) for n in seen.periods if n))
    delay = max((abs(n) for n in seen.limits), default=0)
    trips = delay + 2 * period + 2
    if trips > MAX_TRIPS:
        raise NotFollowedError(
            seen.last or function,
            f"a slot index or a condition repeats only after {period} iterations or starts after {delay}",
        )
    return trips


class _Slice:
    """The integer ops that slot indices, and conditions around shared memory, are made of."""

    def __init__(self, function: Op) -> None:
        self.depths: set[int] = {1}
        self.periods: set[int] = set()
        self.limits: set[int] = set()
        self.last: Op | None = None
        self._varies: dict[Value, bool] = {}
        done: set[Value] = set()
        todo = list(self._roots(function))
        while todo:
            value = todo.pop()
            if value in done:
                continue
            done.add(value)
            if value.op is not None:
                self._count(value.op)
            todo.extend(_sources(value))

    def _roots(self, function: Op) -> Iterator[Value]:
        for op in function.walk():
            if op.name == "ttg.memdesc_index":
                self.depths.add(shape_of(op.operands[0].type)[0])
                yield op.operands[1]
            elif op.name == "cf.cond_br":
                yield op.operands[0]
            elif op.name in ("scf.if", "scf.for") and any(
                touches_lds(inner) or anchor_of(inner) for inner in op.walk() if inner is not op
            ):
                yield from op.operands[: 1 if op.name == "scf.if" else 3]

    def _count(self, op: Op) -> None:
        numbers = [number for value in op.operands if (number := _number(value)) is not None]
        if not numbers or not any(self._is_varying(value) for value in op.operands):
            return
        before = len(self.periods), len(self.limits)
        if op.name in _PERIODS:
            self.periods.update(numbers)
        elif op.name == "arith.andi":
            self.periods.update(number + 1 for number in numbers)
        elif op.name in ("arith.shrsi", "arith.shrui"):
            self.periods.update(1 << min(abs(number), 32) for number in numbers)
        elif op.name in _LIMITS and op.operands[0].type != "i1":
            self.limits.update(numbers)
        if before != (len(self.periods), len(self.limits)):
            self.last = op

    def _is_varying(self, value: Value) -> bool:
        """Whether a value may differ between iterations of a loop or depend on how many there were."""
        if value not in self._varies:
            around = value.op or value.owner.parent_op
            self._varies[value] = around is not None and around.name == "scf.for"
            self._varies[value] = self._varies[value] or any(self._is_varying(v) for v in _sources(value))
        return self._varies[value]


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
