"""Make the shipped tables of choices: ``python -m amdwarp.kernels.attention.tables gfx950``.

Every schedule that takes a class of problems is run through the cycle model, and the fastest is written to
``tuned/<target>.json``: modelled, not measured. The file says with which parameters and which Triton, and keeps the
modelled clk of all candidates.
"""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import asdict
from typing import Any

import numpy as np

import amdwarp
from amdwarp.errors import AmdwarpError, UsageError
from amdwarp.runtime import compile_for, memory_span
from amdwarp.weave import windows_are

from ..shipped import made_by, write_table
from .configs import SCHEDULES, TABLES, PlainSchedule, Schedule, ScheduledGfx950, class_name

#: Heads of a key head, and their elements, rows and keys of one sequence of the problems that are modelled.
HEADS, KEY_HEADS = 64, 8
DIMS, KEYS = (64, 128), (512, 2048)
#: Candidates by name of their schedule.
PLAIN = (PlainSchedule(), PlainSchedule(block_m=64))


def candidates() -> list[tuple[str, Schedule]]:
    """Every schedule to try, where it can compute a problem."""
    others = [(name, one) for name, one in SCHEDULES.items() if name != "plain"]
    return [*(("plain", one) for one in PLAIN), *others]


def middle(schedule: Schedule, rows: int) -> list[int]:
    """Workgroups of the middle tiles of a head, which see as many keys as all of them do on average."""
    tiles = math.ceil(rows / schedule.block_m)
    found = sorted({(tiles - 1) // 2, tiles // 2})
    # one die has every `xcds`-th workgroup, and walks over the tiles of a head
    if isinstance(schedule, ScheduledGfx950):
        return [schedule.xcds * one for one in found]
    return found


def modelled(target: str, dim: int, keys: int, causal: bool, schedule: Schedule) -> tuple[float, Any]:
    """The modelled clk of a launch under a schedule, and the last estimate that is from.

    Raises:
        UsageError: the schedule cannot compute it.
    """
    from amdwarp.cycles import estimate

    from .forward import attention

    q = np.zeros((1, HEADS, keys, dim), np.float16)
    k, v = np.zeros((2, 1, KEY_HEADS, keys, dim), np.float16)
    with windows_are("off"), amdwarp.emulate(target, execute=False) as emulation:
        attention(q, k, v, causal=causal, schedule=schedule)
        launch, compiled, _ = emulation.records[-1]
        _, values = compile_for(launch, target)
    args = [memory_span(value) if isinstance(value, np.ndarray) else value for value in values]
    tiles = middle(schedule, keys) if causal else [0]
    made = [estimate(compiled, args, launch.grid, workgroups=[tile]) for tile in tiles]
    return sum(one.kernel_clk for one in made) / len(made), made[-1]


def make(target: str) -> dict[str, Any]:
    """The table of a target."""
    entries: dict[str, Any] = {}
    made = made_by(f"python -m amdwarp.kernels.attention.tables {target}")
    for dim, causal, keys in itertools.product(DIMS, (False, True), KEYS):
        label = class_name(dim, causal, keys)
        tried: dict[str, float] = {}
        for name, schedule in candidates():
            if schedule.constraints(target):
                continue
            try:
                clk, one = modelled(target, dim, keys, causal, schedule)
            except UsageError:
                continue
            except AmdwarpError as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)
                continue
            fields = {key: value for key, value in asdict(schedule).items() if value != getattr(SCHEDULES[name], key)}
            if clk < min(tried.values(), default=float("inf")):
                entries[label] = {"schedule": name, "fields": fields, "clk": clk}
            tried[" ".join([name, *(f"{key} {value}" for key, value in fields.items())])] = clk
            made |= {"parameters": one.parameters, "calibrated": one.calibrated}
        entries[label]["tried"] = tried
        print(label, tried, flush=True)
    return {"made": made, "entries": entries}


def main(arguments: list[str]) -> None:
    """Write the tables of some targets, of gfx950 by default."""
    for target in arguments or ("gfx950",):
        table = make(target)
        write_table(TABLES / f"{target}.json", table["made"], table["entries"])


if __name__ == "__main__":
    main(sys.argv[1:])
