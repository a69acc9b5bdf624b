"""fence_edges: the protocol check, and fences on just the edges that an LDS dependence needs.

Before::

    rocdl.s.barrier {amdwarp.edge = "between stage 'load' and stage 'mfma'"}

After, if some read or store must have finished there::

    ttg.barrier local {amdwarp.edge = …}

Refuses when: a rule of ``analysis/protocol.py`` does not hold and no fence could make it hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import spelling
from ..analysis.events import is_fence
from ..analysis.pipelines import anchor_of
from ..analysis.protocol import check_function
from ..ir import Module, Op
from ..rewriter import replace


@dataclass(frozen=True)
class FenceEdges:
    name: str = "fence_edges"

    def run(self, module: Module) -> None:
        for function in module.functions():
            if any(anchor_of(op) for op in function.walk()):
                while mends := check_function(function):
                    for barrier in mends:
                        make_fence(barrier)


def make_fence(barrier: Op) -> Op:
    """The barrier that stands in its place and also completes LDS accesses."""
    if is_fence(barrier):
        return barrier
    if barrier.name == "ttg.barrier":
        spaces = int(barrier.properties["addrSpace"].split(":")[0]) | spelling.BARRIER_SPACES["local"]
        barrier.properties["addrSpace"] = f"{spaces} : i32"
        return barrier
    fence = spelling.local_barrier()
    fence.attributes.update(barrier.attributes)
    replace(barrier, fence)
    return fence
