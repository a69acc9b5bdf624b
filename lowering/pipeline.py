"""Runs passes over a module: one after the other, each timed, verified, dumped if asked, and named in its errors."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

from amdwarp.errors import AmdwarpError, LoweringError

from .ir import Module
from .text import print_module
from .verify import verify_module


class Pass(Protocol):
    """A rewrite of a module in place. Passes are dataclasses whose fields are their options."""

    @property
    def name(self) -> str:
        """Unique, in the words an error message uses, e.g. ``inter-wave``."""

    def run(self, module: Module) -> object:
        """Rewrite ``module``; a kernel it refuses is a LoweringError. What it returns is ignored."""


@dataclass(frozen=True)
class PassTiming:
    """Seconds a pass took, and the verification after it."""

    name: str
    seconds: float
    verify_seconds: float


def run_passes(
    module: Module,
    passes: Sequence[Pass],
    *,
    dump_to: Path | TextIO | None = None,
    dump_after: Collection[str] | None = None,
    verify: bool = True,
) -> list[PassTiming]:
    """Run ``passes`` over ``module`` in order.

    Args:
        module: changed in place; in an undefined state if a pass fails.
        passes: the passes.
        dump_to: a folder (made if missing) for one file ``NN-<pass>.mlir`` a pass, or a stream; None dumps nothing.
        dump_after: names of the passes to dump after; every pass if None.
        verify: check the module's structure after each pass.

    Returns:
        how long each took.

    Raises:
        AmdwarpError: a pass refused or broke the module; its ``pass_name`` is set. Any other exception in a pass
            becomes a LoweringError.
    """
    timings: list[PassTiming] = []
    for number, one in enumerate(passes, start=1):
        start = time.perf_counter()
        try:
            one.run(module)
            ran = time.perf_counter()
            if dump_to is not None and (dump_after is None or one.name in dump_after):
                _dump(module, number, one.name, dump_to)
            checking = time.perf_counter()
            if verify:
                verify_module(module)
        except AmdwarpError as error:
            _name_pass(error, one.name)
            raise
        except Exception as error:
            problem = f"internal error: {type(error).__name__}: {error}"
            raise LoweringError(problem, remedy="please report it with the kernel", pass_name=one.name) from error
        timings.append(PassTiming(one.name, ran - start, time.perf_counter() - checking))
    return timings


def _name_pass(error: AmdwarpError, name: str) -> None:
    if error.pass_name is None:
        error.pass_name = name
        error.args = (error._text(), *error.args[1:])


def _dump(module: Module, number: int, name: str, target: Path | TextIO) -> None:
    text = print_module(module)
    if isinstance(target, Path):
        target.mkdir(parents=True, exist_ok=True)
        (target / f"{number:02}-{name}.mlir").write_text(text, encoding="utf-8")
    else:
        target.write(f"// after {name}\n{text.rstrip()}\n\n")
