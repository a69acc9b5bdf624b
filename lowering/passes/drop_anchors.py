"""drop_anchors: remove what only our own passes read.

Before::

    rocdl.sched.barrier {amdwarp.stage.begin = "load"}
    rocdl.s.barrier {amdwarp.edge = "…"}

After::

    rocdl.s.barrier

Refuses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..analysis.pipelines import PHASE, anchor_of
from ..analysis.protocol import EDGE
from ..ir import Module


@dataclass(frozen=True)
class DropAnchors:
    name: str = "drop_anchors"

    def run(self, module: Module) -> None:
        for op in list(module.walk()):
            if anchor_of(op):
                op.erase()
            else:
                op.attributes.pop(EDGE, None)
                op.attributes.pop(PHASE, None)
