"""Make the shipped tables of choices: ``python -m amdwarp.kernels.gemm.tables gfx950``.

Candidates of each product of ``PRODUCTS`` are run through the cycle model, one workgroup each, and the fastest is
written to ``tuned/<target>.json``: modelled, not measured. The file says with which parameters and which Triton.
"""

from __future__ import annotations

import sys
from typing import Any

import amdwarp
from amdwarp.target import TARGETS, get_target

from ..shipped import made_by, write_table
from . import dense, scaled
from .ahead import ArraySpec
from .dispatch import recording
from .dtypes import fp8_for
from .plain_problem import PlainProblem
from .tuning import TABLES, entry_of, product_class, rank

#: Decode and small batches of a linear layer, for which no scheduled kernel is made: (m, n, k).
SHAPES = ((1, 4096, 4096), (16, 4096, 4096), (32, 8192, 4096))
DTYPES = ("bfloat16", "float8_e4m3fn", "int8")


def problems(target: str) -> list[PlainProblem]:
    """The products of a target's table, as their functions would run them."""
    with amdwarp.emulate(target), recording() as found:
        for dtype in DTYPES:
            for m, n, k in SHAPES:
                name = fp8_for(dtype, target)
                a, b = ArraySpec((m, k), name).blank(), ArraySpec((n, k), name).blank().T
                if dtype == "bfloat16":
                    dense.matmul(a, b)
                elif dtype == "int8":
                    scaled.int8_matmul(a, b)
                else:
                    scaled.scaled_matmul(a, b)
    return found


def make(target: str) -> dict[str, Any]:
    """The table of a target."""
    record = get_target(target)
    entries: dict[str, Any] = {}
    made = made_by(f"python -m amdwarp.kernels.gemm.tables {target}")
    for problem in problems(target):
        ranked = rank(problem, record, record.compute_units)
        best = ranked[0]
        made |= {"parameters": best.parameters, "calibrated": best.calibrated}
        entries[product_class(problem)] = entry_of(best.config) | {"clk": best.clk}
        print(product_class(problem), entries[product_class(problem)], flush=True)
    return {"made": made, "entries": entries}


def main(arguments: list[str]) -> None:
    """Write the tables of some targets, of all by default."""
    for target in arguments or TARGETS:
        table = make(target)
        write_table(TABLES / f"{target}.json", table["made"], table["entries"])


if __name__ == "__main__":
    main(sys.argv[1:])
