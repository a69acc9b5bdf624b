"""hoist_staging: conversions that stock passes put into a window go in front of it.

A ``tt.dot`` in a ``@triton.jit`` kernel takes its operands in the layout of the matrix unit. Stock passes convert them
right before the dot, often through LDS, with a store, a barrier and a load that the author never wrote. Where the
converted value comes from outside of the window, the conversion needs nothing of it.

Before::

    rocdl.sched.barrier {amdwarp.window = 1, …}
    %next = amdg.buffer_load …
    %m = ttg.local_alloc %a : (tensor<…, #blocked>) -> !ttg.memdesc<…>
    %x = ttg.local_load %m : … -> tensor<…, #ttg.dot_op<…>>
    %r = tt.dot %x, …

After::

    %m = ttg.local_alloc %a
    %x = ttg.local_load %m
    rocdl.sched.barrier {amdwarp.window = 1, …}
    %next = amdg.buffer_load …
    %r = tt.dot %x, …

Only buffers that nothing can write to (a memory descriptor that is not ``mutable``) move, and layout conversions for
which waves exchange data.
Refuses nothing: what cannot move is judged by the next pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..analysis.pricing import needs_scratch
from ..analysis.windows import Window, windows_of
from ..dialect import Kind, is_pure, kind_of
from ..ir import Module, Op, Value

LOADS = ("ttg.local_load", "amdg.local_load_packed_transposed")


@dataclass(frozen=True)
class HoistStaging:
    name: str = "hoist_staging"

    def run(self, module: Module) -> None:
        for window in windows_of(module):
            _hoist(window, module)


def _hoist(window: Window, module: Module) -> None:
    inside = set(window.ops)
    wanted: list[Op] = []
    for op in window.ops:
        fits = _stages(op, module) or (is_pure(op) and _needed_by_staging(op, module))
        if fits and not _leans_on(op.operands, inside):
            wanted.append(op)
            inside.discard(op)
    for op in wanted:
        op.attributes = {k: v for k, v in op.attributes.items() if not k.startswith("amdwarp.window")}
        op.move_before(window.begin)


def _leans_on(values: tuple[Value, ...], inside: set[Op]) -> bool:
    return any(value.op in inside for value in values)


def _stages(op: Op, module: Module) -> bool:
    if op.name == "ttg.convert_layout":
        return needs_scratch(op, module)
    if op.name == "ttg.local_alloc":
        return bool(op.operands) and _constant_buffer(op.result)
    if op.name in LOADS or kind_of(op) is Kind.VIEW:
        return _constant_buffer(op.operands[0])
    return False


def _constant_buffer(value: Value) -> bool:
    return value.type.startswith("!ttg.memdesc") and ", mutable" not in value.type


def _needed_by_staging(op: Op, module: Module) -> bool:
    """Arithmetic whose only users are conversions: a cast in front of one, for example."""
    users = [user for result in op.results for user in result.users]
    return bool(users) and all(_stages(user, module) for user in users)
