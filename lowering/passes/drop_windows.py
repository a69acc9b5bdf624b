"""drop_windows: a kernel without its intra-wave windows, to compare a scheduled one with.

Before::

    rocdl.sched.barrier {amdwarp.stage.begin = "w", scope = "intra_wave"}
    …
    rocdl.sched.barrier {amdwarp.stage.end = "w", scope = "intra_wave"}

After::

    …

Refuses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..analysis.windows import marks
from ..ir import Module


@dataclass(frozen=True)
class DropWindows:
    name: str = "drop_windows"

    def run(self, module: Module) -> None:
        for op in [op for op in module.walk() if marks(op)]:
            op.erase()
