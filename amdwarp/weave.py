"""Scheduling of a kernel that has intra-wave windows, with proof that LLVM did what was asked.

Prices come before LLVM, truth after it. So the kernel is compiled while it is being scheduled:

1. schedule with computed prices, compile, and count in the text;
2. where text and price differ, schedule once more with the counts, compile, and count again; a second difference is
   an error that shows both;
3. compare the order in the text with the one asked for. Where LLVM did not realise it, try the other placements
   (:class:`Placement`). A window of which more than 5 % of the anchors stand
   elsewhere, or a register spill that the kernel without its windows has not, is an error, or a warning if
   ``AMDWARP_WINDOWS`` says so.

The text that passed is kept, so that the compilation goes on without doing it again.
"""

from __future__ import annotations

import contextlib
import contextvars
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import env
from .errors import LoweringError, UsageError
from .lowering import bridge
from .lowering.analysis.pricing import Price
from .lowering.analysis.realised import (
    PASS,
    Asked,
    Realised,
    asked,
    copies_of,
    count_error,
    realised,
    recount,
    stretches,
)
from .lowering.ir import Module
from .lowering.pipeline import run_passes
from .lowering.text import print_module
from .resources import resources

POLICIES = ("error", "warn", "off", "drop")
_policy: contextvars.ContextVar[str | None] = contextvars.ContextVar("amdwarp_windows", default=None)

Corrections = dict[tuple[int, int], tuple[Price, ...]]


class WindowWarning(UserWarning):
    """A window that LLVM did not realise, where ``AMDWARP_WINDOWS`` asks for a warning only."""


def policy() -> str:
    """What becomes of windows: one that LLVM did not realise is an ``error``, a ``warn``ing, or nothing (``off``); with
    ``drop`` there are none, and the kernel is compiled as if their regions were not marked.

    Raises:
        UsageError: the variable says something else.
    """
    found = _policy.get() or env.WINDOWS.get()
    if found not in POLICIES:
        raise UsageError(f"{env.WINDOWS.name} is {found!r}", remedy=f"set it to one of {', '.join(POLICIES)}")
    return found


COMPLAINTS = "amdwarp_complaints"
"""Key of a kernel's complaints in its metadata, which Triton keeps beside the compiled kernel."""


def warn_of(compiled: Any) -> None:
    """Warn of the windows of a compiled kernel, whether it was just compiled or came from a cache."""
    for text in getattr(compiled.metadata, COMPLAINTS, ()):
        warnings.warn(text, WindowWarning, stacklevel=3)


@contextlib.contextmanager
def windows_are(value: str) -> Iterator[None]:
    """Compile under another policy for a while, whatever the environment says."""
    token = _policy.set(value)
    try:
        yield
    finally:
        _policy.reset(token)


@dataclass
class Lowered:
    """A scheduled module and what stock Triton makes of it.

    Attributes:
        module: our IR, scheduled.
        llir, amdgcn: the texts.
        metadata: of the kernel, as stock Triton noted it on the way.
        complaints: what a ``WindowWarning`` has to say of it.
    """

    module: Module
    llir: str
    amdgcn: str
    metadata: dict[str, Any]
    complaints: tuple[str, ...] = ()


@dataclass
class Attempt:
    """One way of placing a kernel's chunks, compiled.

    Attributes:
        lowered: the result.
        results: how its windows came out.
        faults: what is wrong with them; empty if nothing is.
    """

    lowered: Lowered
    results: list[Realised]
    faults: list[LoweringError]

    @property
    def misplaced(self) -> int:
        return sum(one.misplaced for one in self.results)


@dataclass(frozen=True)
class Placement:
    """Options of the passes that are tried in turn until LLVM realises every window.

    Attributes:
        interleave: as ``PlaceChunks`` has it.
        vector: as ``DistributeCover`` has it.
    """

    interleave: bool = True
    vector: bool = True


PLACEMENTS = tuple(Placement(interleave, vector) for vector in (True, False) for interleave in (True, False))

Passes = Callable[["Corrections | None", Placement], list[Any]]


class Weaver:
    """Schedules one kernel with windows.

    Args:
        context: MLIR context of the compilation.
        passes: the passes for some corrections and a placement; for no corrections (None), those that drop the
            windows.
        lower: from a wheel module to its LLVM IR, its AMDGCN text, and the kernel's metadata.
        keep_in: folder for dumps, or None.
    """

    def __init__(
        self,
        context: Any,
        passes: Passes,
        lower: Callable[[Any], tuple[str, str, dict[str, Any]]],
        keep_in: Path | None = None,
    ) -> None:
        self.context = context
        self.passes = passes
        self.lower = lower
        self.keep_in = keep_in
        self._spills_before: int | None = None
        self._lowered: dict[str, Lowered] = {}

    def run(self, module: Module) -> Lowered:
        """Schedule ``module``, which is not changed.

        Raises:
            LoweringError: a pass refuses the kernel; prices that the text contradicts twice; a window that LLVM did
                not realise.
        """
        best = None
        for placement in PLACEMENTS:
            attempt = self._settle(module, placement)
            if not attempt.faults:
                return attempt.lowered
            if best is None or attempt.misplaced < best.misplaced:
                best = attempt
        assert best is not None
        if policy() == "error":
            raise best.faults[0]
        return replace(best.lowered, complaints=tuple(map(str, best.faults)) if policy() == "warn" else ())

    def _settle(self, module: Module, placement: Placement) -> Attempt:
        """Schedule and compile; where prices and text differ, once more with the text's counts."""
        corrections: Corrections = {}
        for last in (False, True):
            lowered = self._attempt(module, corrections, placement)
            windows, found = asked(lowered.module), stretches(lowered.amdgcn)
            wrong = {window.number: _recounted(window, found) for window in windows}
            if not any(wrong.values()):
                break
            if last:
                window = next(window for window in windows if wrong[window.number])
                raise count_error(window, wrong[window.number])
            for number, prices in wrong.items():
                corrections.update({(number, index): price for index, price in prices.items()})
        results = realised(windows, found)
        return Attempt(lowered, results, list(self._faults(module, lowered, results)))

    def _attempt(
        self, module: Module, corrections: Corrections | None, placement: Placement = PLACEMENTS[0]
    ) -> Lowered:
        candidate = module.clone()
        run_passes(candidate, self.passes(corrections, placement), dump_to=self.keep_in)
        text = print_module(candidate)
        # Placements may come to the same, and LLVM takes most of the time.
        if text not in self._lowered:
            made = bridge.parse_text(text, self.context, keep_in=self.keep_in)
            self._lowered[text] = Lowered(candidate, *self.lower(made))
        return self._lowered[text]

    def _faults(self, module: Module, lowered: Lowered, results: list[Realised]) -> Iterator[LoweringError]:
        for one in results:
            if not one.ok:
                yield order_error(one)
        spills = resources(lowered.amdgcn).spills
        if spills:
            if self._spills_before is None:
                self._spills_before = resources(self._attempt(module, None).amdgcn).spills
            if spills > self._spills_before:
                yield spill_error(results[0].asked, spills, self._spills_before)


def _recounted(window: Asked, found: list[Any]) -> dict[int, tuple[Price, ...]]:
    copies = copies_of(window, found)
    return recount(window, copies[0]) if copies else {}


def order_error(one: Realised) -> LoweringError:
    return LoweringError(
        f"LLVM did not realise it: {one.misplaced} of its {one.anchors} memory and transcendental instructions stand "
        f"elsewhere than asked for; asked {shortened(one.asked.order)}, got {shortened(one.order)}",
        remedy="make the window smaller, or free registers; AMDWARP_WINDOWS=warn compiles it nevertheless",
        construct=one.asked.construct,
        where=one.asked.where,
        pass_name=PASS,
    )


def spill_error(window: Asked, spills: int, before: int) -> LoweringError:
    return LoweringError(
        f"the kernel spills {spills} registers, and {before} without its windows",
        remedy="load fewer registers ahead, or make the windows smaller; AMDWARP_WINDOWS=warn compiles it nevertheless",
        construct=window.construct,
        where=window.where,
        pass_name=PASS,
    )


def shortened(order: str, most: int = 160) -> str:
    """An order as run lengths: ``RMMRMM`` is ``R M2 R M2``."""
    runs: list[list[Any]] = []
    for letter in order:
        if runs and runs[-1][0] == letter:
            runs[-1][1] += 1
        else:
            runs.append([letter, 1])
    text = " ".join(letter + (str(count) if count > 1 else "") for letter, count in runs)
    return text if len(text) <= most else text[: most - 1] + "…"
