"""Peer tables: one for each dtype and target, every figure modelled or read from the compiled text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.table import Table

from amdwarp.errors import AmdwarpError

from ..cases.gemm import PLAIN, STOCK, Shape, model_own, model_plain, model_stock, own_schedules, shape_text
from ..registry import Modelled

#: Modelled launches closer than this share are a tie, as in ``amdwarp.cycles.compare``.
TIE = 0.03
#: The family that takes every product, behind the schedules.
PLAIN_PEERS = (PLAIN,)
TITLES = {
    "stock": "stock tl.dot, default",
    "stock_pingpong_off": "stock tl.dot, ping-pong off",
    "stock_pingpong_on": "stock tl.dot, ping-pong on",
}
COLUMNS = ("kernel", "configuration", "clk/iter", "FLOP/clk/CU", "MFMA %", "VGPRs", "spills", "launch clk", "ratio", "")


@dataclass(frozen=True)
class Peer:
    """One line of a table: a variant, and its figures or why there are none."""

    variant: str
    result: Modelled | None
    problem: str = ""

    @property
    def own(self) -> bool:
        """It is a kernel of this package."""
        return self.variant not in TITLES

    @property
    def title(self) -> str:
        """For people."""
        return TITLES.get(self.variant, f"ours, {self.variant}")

    @property
    def clk(self) -> float | None:
        """Modelled clk of the launch."""
        return self.result.figures["kernel_clk"] if self.result is not None else None


def peers(
    shape: Shape,
    dtype: str,
    target: str,
    say: Callable[[str], object] = lambda text: None,
    stock: Sequence[str] | None = None,
) -> list[Peer]:
    """Model stock variants and this package's schedules on one product."""
    found = []
    for variant in (*(STOCK if stock is None else stock), *own_schedules(target, dtype), *PLAIN_PEERS):
        say(f"{variant} {shape_text(shape)} {dtype} {target}")
        build = model_plain if variant == PLAIN else model_own if variant not in STOCK else model_stock
        try:
            found.append(Peer(variant, build(variant, shape, dtype, target)))
        except AmdwarpError as error:
            found.append(Peer(variant, None, " ".join(str(error).split())))
    return found


def fastest_stock(lines: Sequence[Peer]) -> Peer | None:
    """What the others are compared with: the stock variant with the fewest modelled clk.

    None on an uncalibrated target, where a model's figures are bounds and rank nothing.
    """
    timed = [line for line in lines if not line.own and line.result is not None and line.result.calibrated]
    return min(timed, key=lambda line: line.clk or 0.0, default=None)


def ratio(line: Peer, reference: Peer | None) -> float | None:
    """Clk of the reference over clk of a line: above 1 it is the faster one."""
    if line.clk is None or reference is None or reference.clk is None:
        return None
    return reference.clk / line.clk


def verdict(value: float | None) -> str:
    """What a ratio means, in words."""
    if value is None:
        return ""
    if abs(1 / value - 1) < TIE:
        return "tie"
    return "fewer clk" if value > 1 else "MORE clk"


def table(lines: Sequence[Peer], shape: Shape, dtype: str, target: str) -> Table:
    """One table, for people."""
    title = _title(lines, shape, dtype, target)
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in COLUMNS:
        left = column in ("kernel", "configuration", "")
        made.add_column(column, justify="left" if left else "right", no_wrap=True)
    reference = fastest_stock(lines)
    for line in lines:
        if line.result is None:
            made.add_row(line.title, "-")
            continue
        figures, compiled, notes = line.result.figures, line.result.compiled, line.result.notes
        value = ratio(line, reference)
        steady, in_loop = "~" if notes["steady"] else "", "clk_per_iteration" in figures
        made.add_row(
            line.title,
            notes["config"],
            f"{steady}{figures['clk_per_iteration']:.0f}" if in_loop else "no loop",
            f"{figures['flop_per_clk']:.0f}" if in_loop else "",
            f"{figures['mfma_busy']:.1f}" if in_loop else "",
            f"{compiled['vgprs']:.0f}",
            f"{compiled['spills']:.0f}",
            f"{figures['kernel_clk']:.0f}",
            f"{value:.3f}" if value is not None else "",
            "reference" if line is reference else verdict(value),
        )
    return made


def _title(lines: Sequence[Peer], shape: Shape, dtype: str, target: str) -> str:
    results = [line.result for line in lines if line.result is not None]
    trust = "" if all(one.calibrated for one in results) else ", uncalibrated: bounds only"
    digests = ", ".join(dict.fromkeys(one.parameters for one in results)) or "none"
    return f"{shape_text(shape)} {dtype} on {target}: modelled, not measured (parameters {digests}{trust})"


def sentence(lines: Sequence[Peer]) -> str:
    """Where this package's best kernel stands."""
    reference = fastest_stock(lines)
    if any(line.result is not None and not line.result.calibrated for line in lines):
        return "The target is not calibrated: its figures are bounds, and nothing is compared."
    own = [line for line in lines if line.own and line.clk is not None]
    if not own:
        return "This package has no kernel here."
    best = min(own, key=lambda line: line.clk or 0.0)
    value = ratio(best, reference)
    if value is None or reference is None:
        return "There is nothing to compare with."
    words = {"tie": "ties with", "fewer clk": "takes fewer clk than", "MORE clk": "LOSES to"}[verdict(value)]
    return f"{best.title} {words} {reference.title}: ratio {value:.3f}, modelled."
