"""Lane permutations by a scalar selector and pseudo-scalar operations of gfx1250."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdwarp.asm.table_gfx1250 import PSEUDO_SCALAR
from amdwarp.emulator.bind import Binder, handles
from amdwarp.emulator.ops import OPS
from amdwarp.emulator.state import Batch, Closure, expand, merge


@handles("v_permlane16_b32", "v_permlanex16_b32")
def bind_permlane16(binder: Binder) -> Closure:
    """Each lane reads the lane of its own row of 16 (x16: of the other row) that its 4 bits of the selectors name.

    op_sel[0] reads disabled lanes too; else a lane whose source is disabled gets 0 with op_sel[1] and keeps its value
    without.
    """
    binder.need(4)
    row, put = binder.vector(1, 1), binder.target(0, "u32")
    low, high = binder.scalar_source(2), binder.scalar_source(3)
    select = binder.take("op_sel", (0, 0))
    inactive, zeros = bool(select[0]), bool(select[1])
    lane = np.arange(binder.lanes)
    home = (lane & ~15) ^ (16 if "x16" in binder.inst.base else 0)
    shift, upper = lane % 8 * 4, lane & 8 != 0

    def run(b: Batch) -> None:
        words = np.array([expand(low(b), b.n), expand(high(b), b.n)], np.int64)
        chosen = np.where(upper, words[1][:, None], words[0][:, None]) >> shift & 15
        source = home + chosen
        values = np.take_along_axis(b.r[0][row], source, axis=1)
        if inactive or b.mask is None:
            put(b, values, b.mask)
            return
        on = np.take_along_axis(b.mask, source, axis=1)
        if zeros:
            put(b, np.where(on, values, np.uint32(0)), b.mask)
        else:
            put(b, values, b.mask & on)

    return run


_SCALARS = {f"v_s_{name}_{kind}": f"v_{name}_{kind}" for name in PSEUDO_SCALAR for kind in ("f32", "f16")}


@handles(*_SCALARS)
def bind_pseudo_scalar(binder: Binder) -> Closure:
    """A transcendental operation on a scalar register, whatever exec says."""
    binder.need(2)
    kind, _, function = OPS[_SCALARS[binder.inst.base]]
    assert function is not None
    source, put = binder.source(1, kind), binder.scalar_target(0)
    operate: Any = function

    def run(b: Batch) -> None:
        value = np.atleast_1d(np.asarray(operate(np.atleast_1d(source(b)))))
        put(b, merge(value.view(f"u{value.itemsize}").reshape(-1).tolist()))

    return run
