"""release_arrivals: an arrival on a barrier comes after the wave's own global accesses and asynchronous copies.

LDS accesses are waited for in any case (``passes/lower_tasks.py``).

Before::

    %p = amdg.arrive_barrier %b {amdwarp.release = "all"}

After, on gfx942 and gfx950 (``vmcnt(0)`` and nothing else), and on gfx1250::

    rocdl.s.waitcnt 0x0f70
    %p = amdg.arrive_barrier %b

    rocdl.s.wait.loadcnt 0; rocdl.s.wait.storecnt 0; rocdl.s.wait.asynccnt 0; rocdl.s.wait.tensorcnt 0
    %p = amdg.arrive_barrier %b

``"lds"`` puts nothing there: an earlier ``wait_group`` has said how far copies must be. Refuses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..analysis.tasks import ARRIVE, RELEASE
from ..ir import Module, Op
from ..rewriter import Builder

_VMCNT_0 = 0x0F70  # s_waitcnt of gfx9: expcnt 7 and lgkmcnt 15 mean no wait
_COUNTERS = ("loadcnt", "storecnt", "asynccnt", "tensorcnt")


@dataclass(frozen=True)
class ReleaseArrivals:
    """
    Attributes:
        arch: the target.
    """

    arch: str
    name: str = "release_arrivals"

    def run(self, module: Module) -> None:
        for op in module.ops(ARRIVE):
            if op.attributes.pop(RELEASE, None) == '"all"':
                build = Builder.before(op)
                for wait in self._waits():
                    build.insert(wait)

    def _waits(self) -> list[Op]:
        if self.arch != "gfx1250":
            return [Op("rocdl.s.waitcnt", properties={"bitfield": f"{_VMCNT_0} : i32"})]
        return [Op(f"rocdl.s.wait.{counter}", properties={"count": "0 : i16"}) for counter in _COUNTERS]
