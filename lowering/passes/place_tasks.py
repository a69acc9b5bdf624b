"""place_tasks: the waves of each task, and no others.

Stock Triton gives every group of tasks whole groups of four waves, and fills up with an empty partition; on AMD that
would be waves that only take registers. Here tasks follow one another, or start where their author said.

Before (four default waves, one task of one wave)::

    ttg.warp_specialize {partitionNumWarps = [1, 2, 1], warpGroupStartIds = [4, 6, 5], amdwarp.tasks.starts = "-1"}
    module attributes {ttg.total-num-warps = 8}

After::

    ttg.warp_specialize {partitionNumWarps = [1], warpGroupStartIds = [4]}
    module attributes {ttg.total-num-warps = 5}

Waves that nobody asked for, in a gap that start ids leave, get empty partitions: stock lowering keeps a state for as
many waves as the partitions have.

Blocks that came from elsewhere (``gl.warp_specialize``) stay as they are, and the kernel has as many waves as its
largest block needs. Refuses when: stages or barriers of the whole workgroup (``rocdl.s.barrier``) stand in a kernel
with tasks, since the waves of other tasks would not come.
"""

from __future__ import annotations

from dataclasses import dataclass

from amdwarp.errors import LoweringError

from ..analysis.tasks import (
    MARKS,
    PLACED,
    TASK_STARTS,
    array,
    check_barriers,
    check_named_barriers,
    integers,
    partitions_op,
    specializations,
    starts_of,
)
from ..ir import Block, Module, Op, Region

_WORKGROUP = ("rocdl.s.barrier", "amdg.cond_barrier", "rocdl.barrier", "gpu.barrier")


@dataclass(frozen=True)
class PlaceTasks:
    name: str = "place_tasks"

    def run(self, module: Module) -> None:
        blocks = specializations(module)
        for op in module.ops(*_WORKGROUP) if blocks else ():
            raise LoweringError(
                "a barrier of the whole workgroup in a kernel with tasks: other tasks do not come to it",
                remedy="wave pipeline stages belong in kernels without tasks; between tasks use alloc_barriers",
                construct=op.name,
                where=op.where,
            )
        check_barriers(module)
        trunk = int(module.attributes["ttg.num-warps"].split(":")[0])
        total = trunk
        for op in blocks:
            if TASK_STARTS in op.attributes:
                _place(op, trunk)
            waves = integers(op.properties["partitionNumWarps"])
            starts = integers(op.properties["warpGroupStartIds"])
            total = max([total, *(start + count for start, count in zip(starts, waves, strict=True))])
        check_named_barriers(module, trunk, total)
        module.attributes[PLACED] = "1 : i32"
        module.attributes["ttg.total-num-warps"] = f"{total} : i32"


def _place(op: Op, trunk: int) -> None:
    places = starts_of(op, trunk)
    holder = partitions_op(op)
    for region in holder.regions[len(places) :]:
        for block in region.blocks:
            for inner in list(reversed(block.ops)):
                inner.erase()
    del holder.regions[len(places) :]
    places += _idle(holder, places, trunk)
    op.properties["partitionNumWarps"] = array([waves for _, waves in places])
    op.properties["warpGroupStartIds"] = array([start for start, _ in places])
    for name in ("actualRegisters", "requestedRegisters"):
        op.properties.pop(name, None)
    for name in [name for name in op.attributes if name.startswith(MARKS)]:
        del op.attributes[name]


def _idle(holder: Op, places: list[tuple[int, int]], trunk: int) -> list[tuple[int, int]]:
    """Empty partitions for the waves between tasks; their (first wave, waves), one each."""
    taken = {wave for start, count in places for wave in range(start, start + count)}
    found: list[tuple[int, int]] = []
    for wave in range(trunk, max(taken)):
        if wave not in taken:
            block = Block()
            for argument in holder.regions[0].blocks[0].args:
                block.add_arg(argument.type, loc=argument.loc)
            block.append(Op("ttg.warp_return", loc=holder.loc))
            holder.add_region(Region([block]))
            found.append((wave, 1))
    return found
