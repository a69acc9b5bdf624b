"""Values of a typed schedule's new code: what each old value is where the code is being written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .analysis.ws_kernel import WSKernel, is_free
from .analysis.ws_needs import free_operands
from .analysis.ws_program import Phase, Step
from .ir import Op, Value
from .rewriter import Builder

Key = tuple[str, ...]
"""A value that a thread carries: a counter, a loop-carried value at some offset."""


@dataclass(frozen=True)
class Site:
    """Where a synchronization point is emitted."""

    scope: str
    phase: Phase
    position: int
    step: Step


class Env:
    """Values of the new code for values of the kernel as it was; arithmetic is copied at its first use.

    Attributes:
        map: old value -> new value, known at the current place.
        shared: ops of the kernel whose values may be used as they are; None where nothing from outside is visible.
        capture: brings an argument of the kernel or an LDS buffer to such a place.
    """

    def __init__(
        self,
        kernel: WSKernel,
        shared: set[Op] | None,
        known: dict[Value, Value] | None = None,
        capture: Callable[[Value], Value] | None = None,
    ) -> None:
        self.kernel = kernel
        self.shared = shared
        self.map = dict(known or {})
        self.capture = capture

    def fork(self) -> Env:
        """A copy for a place inside, whose new values are not visible outside."""
        return Env(self.kernel, self.shared, self.map, self.capture)

    def value(self, old: Value, build: Builder, user: str = "") -> Value:
        if old in self.map:
            return self.map[old]
        op = old.op
        if self.shared is not None and ((op is None and old.block is self.kernel.root) or op in self.shared):
            return old
        if self.capture is not None and (op is None or op.name == "ttg.local_alloc") and old.block is self.kernel.root:
            return self.capture(old)
        if op is None or op in self.kernel.owner or not is_free(op):
            raise self._unknown(old, user)
        for operand in free_operands([op]):
            self.map[operand] = self.value(operand, build, user)
        copy = op.clone(self.map)
        build.insert(copy)
        return self.map[old]

    def _unknown(self, old: Value, user: str) -> Exception:
        region = self.kernel.owner.get(old.op) if old.op is not None else None
        if region is None:
            return self.kernel.error(f"a value that {user or 'the schedule'} needs cannot be computed in its role")
        return region.error(
            f"its value is used by {user or 'the schedule'}, whose role does not run it before",
            "let one role run both, in this order, or pass the value on through a buffer of a pipeline",
        )
