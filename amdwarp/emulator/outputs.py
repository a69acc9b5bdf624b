"""What becomes of a vector ALU result before it is written: MODE's rounding, the output modifier, clamp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from amdwarp.emulator.bind import TYPES, Binder
from amdwarp.emulator.differences import SUMS_OF_DIFFERENCES
from amdwarp.emulator.modes import clamped_output, moded, operation, scaled_output
from amdwarp.emulator.ops import Function


def _wide(function: Function) -> Function:
    """`function` on int64 sources."""
    return lambda *args: function(*(np.asarray(arg).astype(np.int64) for arg in args))


def _sum_of_products(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


_ADD, _SUB, _MAD = _wide(np.add), _wide(np.subtract), _wide(_sum_of_products)

#: Integer operations that clamp: exact operation on the sources.
_CLAMPED: dict[str, Function] = {
    **{f"v_add_{kind}": _ADD for kind in ("u32", "i32", "u16", "i16")},
    **{f"v_sub_{kind}": _SUB for kind in ("u32", "i32", "u16", "i16")},
    **{f"v_subrev_{kind}": _wide(lambda a, b: b - a) for kind in ("u32", "u16")},
    **{f"v_mad_{kind}": _MAD for kind in ("u16", "i16", "u32_u16", "i32_i16", "legacy_u16", "legacy_i16")},
    "v_mad_u32_u24": _wide(lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c),
    "v_mad_i32_i24": _wide(lambda a, b, c: (a << 40 >> 40) * (b << 40 >> 40) + c),
    "v_mul_lo_u16": _wide(np.multiply),
    **SUMS_OF_DIFFERENCES,
}

_OMOD = {("mul", 2): 2.0, ("mul", 4): 4.0, ("div", 2): 0.5}


def output_factor(binder: Binder) -> float | None:
    """The factor of the output modifier mul:2, mul:4 or div:2."""
    for name in ("mul", "div"):
        if name in binder.left:
            value = binder.take(name)
            if (name, value) not in _OMOD:
                raise binder.fail(f"the output modifier {name}:{value} is not known")
            return _OMOD[name, value]
    return None


def clamped(binder: Binder, function: Function | None, kind: str, sources: Sequence[str] = ()) -> Function | None:
    """`function` under MODE, followed by omod and clamp if the instruction has them.

    Args:
        binder: the instruction.
        function: from sources of the types `sources` to `kind`; None moves its source.
        kind: type of the result.
        sources: types of the sources; where none are given they are not flushed.
    """
    factor, clamp = output_factor(binder), binder.flag("clamp")
    base = binder.inst.base
    if function is not None and not binder.plain_mode and any(source[0] == "f" for source in sources):
        binder.cell.used = True
        function = moded(operation(base), function, kind, sources, binder.cell)
    if not clamp and factor is None:
        return function
    plain = function if function is not None else np.positive
    if kind[0] == "f":
        binder.cell.used = not binder.plain_mode
        if factor is not None:
            plain = scaled_output(plain, kind, factor, binder.cell)
        return clamped_output(plain, kind, binder.cell) if clamp else plain
    if factor is not None:
        raise binder.fail("an output modifier needs a floating-point result")
    if sources and sources[0][0] == "f":
        # Conversions to integers saturate as they are.
        return plain
    if base not in _CLAMPED:
        raise binder.fail("clamp is not known for this integer operation")
    exact, limits = _CLAMPED[base], np.iinfo(TYPES[kind])
    return lambda *args: np.clip(exact(*args), limits.min, limits.max).astype(TYPES[kind])
