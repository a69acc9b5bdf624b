"""Calls that Triton does not inline: which function, and whether it has anything to do with shared memory or stages."""

from __future__ import annotations

from collections.abc import Callable

from ..ir import Op
from .lds import is_memdesc, touches_lds

FUNCTIONS = ("tt.func", "func.func", "llvm.func")


def callee_of(call: Op) -> Op | None:
    """The function a ``tt.call`` runs, or None if it is not in the module."""
    wanted = call.properties.get("callee", "").lstrip("@").strip('"')
    top = [op for op in call.ancestors() if op.name in FUNCTIONS][-1:]
    siblings = top[0].parent.ops if top and top[0].parent is not None else []
    return next((op for op in siblings if op.properties.get("sym_name", "").strip('"') == wanted), None)


def reaches(call: Op, test: Callable[[Op], bool]) -> bool:
    """Whether ``test`` holds for an op of the function called or of one it calls; True for an unknown one."""
    seen: set[Op] = set()
    todo = [call]
    while todo:
        function = callee_of(todo.pop())
        if function is None:
            return True
        if function in seen:
            continue
        seen.add(function)
        for op in function.walk():
            if op.name == "tt.call":
                todo.append(op)
            elif op is not function and test(op):
                return True
    return False


def touches_lds_anywhere(call: Op) -> bool:
    """Whether a call takes a buffer, or runs code that touches or orders shared memory."""
    return any(is_memdesc(value.type) for value in (*call.operands, *call.results)) or reaches(call, touches_lds)
