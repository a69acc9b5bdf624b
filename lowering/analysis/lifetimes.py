"""When LDS buffers are alive: Triton lays buffers over each other whose lifetimes do not meet.

A lifetime is an interval of positions in the text of the function: from the ``ttg.local_alloc`` to the last use of the
buffer, of a view of it, or of a value that may stand for it (loop arguments, results of ``scf.if``). A use in a loop
that the buffer was made outside of lasts to the end of the loop. Where it is wrong it is too short, so that more pairs
count as sharing memory than do.
"""

from __future__ import annotations

from ..ir import Block, Op, Value
from .lds import is_memdesc

LOOPS = ("scf.for", "scf.while")


class Lifetimes:
    """Of the buffers of one function."""

    def __init__(self, function: Op) -> None:
        self._function = function
        self._position = {op: i for i, op in enumerate(function.walk())}
        self._end: dict[Op, int] = {}
        self._intervals: dict[Value, tuple[int, int]] = {}

    def apart(self, a: Value, b: Value) -> bool:
        """Whether two allocations are never alive together, so that they may share memory."""
        (start_a, end_a), (start_b, end_b) = self._interval(a), self._interval(b)
        return end_a < start_b or end_b < start_a

    def dead_at(self, op: Op, alloc: Value) -> bool:
        """Whether ``alloc`` is not alive at ``op``, whose scratch memory may then lie over it."""
        start, end = self._interval(alloc)
        return not start <= self._position[op] <= end

    def _interval(self, alloc: Value) -> tuple[int, int]:
        if alloc not in self._intervals:
            home = alloc.op
            assert home is not None
            stand_ins = _stand_ins(alloc)
            ends = [self._last(user, home) for value in stand_ins for user in value.users]
            # a buffer that a loop hands on to its next iteration lives all through that loop
            around = [op for op in home.ancestors() if op.name in LOOPS and _arguments(op) & stand_ins]
            ends += [self._end_of(op) for op in around]
            start = min(self._position[op] for op in (home, *around))
            self._intervals[alloc] = (start, max(ends, default=start))
        return self._intervals[alloc]

    def _last(self, user: Op, home: Op) -> int:
        around = set(home.ancestors())
        loops = [op for op in user.ancestors() if op.name in LOOPS and op not in around]
        return self._end_of(loops[-1]) if loops else self._position[user]

    def _end_of(self, op: Op) -> int:
        if op not in self._end:
            self._end[op] = max(self._position[inner] for inner in op.walk())
        return self._end[op]


def _stand_ins(alloc: Value) -> set[Value]:
    """The allocation's value and every memdesc value that may be a part of it."""
    found, todo = {alloc}, [alloc]
    while todo:
        for use in todo.pop().uses:
            for value in (*use.op.results, *_passed_to(use.op, use.index)):
                if is_memdesc(value.type) and value not in found:
                    found.add(value)
                    todo.append(value)
    return found


def _arguments(loop: Op) -> set[Value]:
    return {arg for region in loop.regions for block in region.blocks for arg in block.args}


def _passed_to(op: Op, index: int) -> list[Value]:
    """Block arguments and results of the op around that an operand may become."""
    blocks: list[Block] = [*op.successors, *(block for region in op.regions for block in region.blocks)]
    values = [arg for block in blocks for arg in block.args]
    around = op.parent_op
    if op.name in ("scf.yield", "scf.condition") and around is not None:
        values += around.results
        values += _arguments(around)
    return values
