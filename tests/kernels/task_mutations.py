"""Passes that break one op of a kernel's tasks, before any pass that lowers them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from amdwarp.lowering import passes, spelling
from amdwarp.lowering.analysis.tasks import INIT, WAIT
from amdwarp.lowering.ir import Module, Op
from amdwarp.lowering.rewriter import Builder

from amdwarp.errors import LoweringError

Edit = Callable[[Module], None]


@dataclass(frozen=True)
class Mutate:
    """A pass that runs an edit."""

    edit: Edit
    name: str = "mutate"

    def run(self, module: Module) -> None:
        self.edit(module)


@contextmanager
def mutated(monkeypatch: pytest.MonkeyPatch, edit: Edit) -> Iterator[None]:
    """Compilations in here are of mutants."""
    stock = passes.tasks
    monkeypatch.setattr(passes, "tasks", lambda module: (Mutate(edit), *stock(module)))
    yield
    monkeypatch.setattr(passes, "tasks", stock)


def refused_or(found: Callable[[], bool]) -> bool:
    """Whether a mutant is refused when it is compiled, or something is found in it."""
    try:
        return found()
    except LoweringError:
        return True


def drop(kind: str, at: int) -> Edit:
    """Without an op."""

    def edit(module: Module) -> None:
        module.ops(kind)[at].erase()

    return edit


def flip(at: int) -> Edit:
    """Wait for the other phase."""

    def edit(module: Module) -> None:
        op = module.ops(WAIT)[at]
        build = Builder.before(op)
        one = build.value(spelling.constant(1))
        op.set_operand(1, build.value(Op("arith.xori", [op.operands[1], one], ["i32"])))

    return edit


def recount(which: int, by: int) -> Edit:
    """So many waves more on the barriers of an allocation, by the order in which they are initialised."""

    def edit(module: Module) -> None:
        homes = {}
        for op in module.ops(INIT):
            source = op.operands[0].op
            assert source is not None
            homes.setdefault(id(source.operands[0]), []).append(op)
        lanes = 32 if "gfx1250" in module.attributes["ttg.target"] else 64
        for op in list(homes.values())[which]:
            op.properties["count"] = f"{int(op.properties['count'].split(':')[0]) + by * lanes} : i32"

    return edit
