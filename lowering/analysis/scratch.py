"""Which ops of a module go through scratch memory in LDS: asked of Triton's own allocation pass."""

from __future__ import annotations

from collections.abc import Sequence

from .. import bridge
from ..ir import Module, Op

ASKED = "amdwarp.scratch"
OFFSET = "allocation.offset"


def scratch_ops(module: Module, ops: Sequence[Op]) -> list[Op]:
    """Those of ``ops`` that Triton gives scratch memory to, in their order."""
    if not ops:
        return []
    for number, op in enumerate(ops):
        op.attributes[ASKED] = f"{number} : i32"
    try:
        mod = bridge.write(module, bridge.new_context())
    finally:
        for op in ops:
            del op.attributes[ASKED]
    bridge.allocate_lds(mod, module.attributes["ttg.target"].strip('"').removeprefix("hip:"))
    numbers = {
        int(op.attributes[ASKED].split(":")[0])
        for op in bridge.read(mod).walk()
        if ASKED in op.attributes and OFFSET in op.attributes
    }
    return [op for number, op in enumerate(ops) if number in numbers]
