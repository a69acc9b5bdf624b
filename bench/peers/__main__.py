"""``python -m amdwarp.bench.peers``: print the peer tables."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from rich.console import Console

from amdwarp.errors import AmdwarpError, UsageError
from amdwarp.target import TARGETS

#: Columns that a whole table takes.
WIDTH = 165

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    target: Annotated[list[str] | None, typer.Option(help="gfx950 by default; may repeat.")] = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help="fp16, bf16, fp8, int8, mxfp4; the first two by default; may repeat.")
    ] = None,
    shape: Annotated[str, typer.Option(help="M,N,K.")] = "4096,4096,4096",
    stock: Annotated[
        list[str] | None,
        typer.Option(
            help="Variants of the stock kernel: stock, stock_pingpong_off, stock_pingpong_on; all by default."
        ),
    ] = None,
) -> None:
    """Compile stock tl.dot and this package's kernels, model both, and print one table a dtype and target."""
    from amdwarp.bench.cases.gemm import STOCK
    from amdwarp.bench.peers.kinds import kind_of
    from amdwarp.bench.peers.tables import peers, sentence, table

    size = _shape(shape)
    for one in stock or []:
        if one not in STOCK:
            raise UsageError(f"unknown stock variant {one!r}", remedy=f"use one of {', '.join(STOCK)}")
    for one in target or []:
        if one not in TARGETS:
            raise UsageError(f"unknown target {one!r}", remedy=f"use one of {', '.join(TARGETS)}")
    errors, console = Console(stderr=True), Console()
    # a cut table would hide figures
    console.width = max(console.width, WIDTH)
    for arch in target or ["gfx950"]:
        for kind in dtype or ["fp16", "bf16"]:
            kind_of(kind)
            say = lambda text: errors.print(text, markup=False, highlight=False)  # noqa: E731
            lines = peers(size, kind, arch, say, tuple(stock or STOCK))
            console.print(table(lines, size, kind, arch))
            for line in lines:
                if line.result is None:
                    console.print(f"{line.variant}: {line.problem}", markup=False, highlight=False, soft_wrap=True)
            console.print(sentence(lines) + "\n", markup=False, highlight=False, soft_wrap=True)


def _shape(text: str) -> tuple[int, int, int]:
    try:
        m, n, k = (int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        raise UsageError(f"shape {text!r} is not M,N,K", remedy="write it like --shape 4096,4096,4096") from None
    if min(m, n, k) < 1 or any(extent % 16 for extent in (m, n, k)):
        raise UsageError(f"shape {text!r} is not of multiples of 16", remedy="the stock kernel is compiled for those")
    return m, n, k


def script() -> int:
    """Run it; an expected error is one line and exit code 2."""
    try:
        app(standalone_mode=False)
    except AmdwarpError as error:
        text = str(error)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        text = error.format_message()
    else:
        return 0
    print(f"amdwarp: {' '.join(text.split())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    code = script()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the Triton 3.9 wheel prints pages about its own leaked objects when the interpreter ends
