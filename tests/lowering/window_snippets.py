"""TTGIR snippets with intra-wave regions, for the tests of the passes on windows."""

from __future__ import annotations

import re

from amdwarp.lowering.ir import Module
from amdwarp.lowering.spelling import mask_attribute
from snippets import SLOT, TILE, module

MMA = "#ttg.amd_mfma<{version = 4, warpsPerCTA = [2, 4], instrShape = [16, 16, 32], isTransposed = true}>"
LEFT_LAYOUT = f"#ttg.dot_op<{{opIdx = 0, parent = {MMA}, kWidth = 8}}>"
RIGHT_LAYOUT = f"#ttg.dot_op<{{opIdx = 1, parent = {MMA}, kWidth = 8}}>"
LEFT = f"tensor<64x64xf16, {LEFT_LAYOUT}>"
RIGHT = f"tensor<64x64xf16, {RIGHT_LAYOUT}>"
ACC = f"tensor<64x64xf32, {MMA}>"
WALL = "rocdl.sched.barrier"

PREFIX = f"""
    %l = arith.constant dense<1.0> : {LEFT}
    %r = arith.constant dense<1.0> : {RIGHT}
    %acc = arith.constant dense<0.0> : {ACC}
    %far = arith.constant dense<64> : tensor<64x64xi32, #blocked>
    %s = ttg.local_alloc : () -> {SLOT}
    %q = ttg.local_alloc : () -> {SLOT}
"""
_SHORT = re.compile(r"^(\s*)@@(\w+)(?:\(([^)]*)\))?[ \t]*$", re.M)


def windowed(body: str) -> Module:
    """The module of a kernel with ``body``, after operands for it.

    Lines that start with ``@@`` are macros on top of those of ``snippets.module``: ``@@open(label)`` and
    ``@@open(label, 0)`` (with a pair id) and ``@@close`` are the anchors of an intra-wave region; ``@@left(x)`` and
    ``@@right(x)`` read a dot operand from LDS (4 instructions each), ``@@global(x)`` loads a tile from
    global memory (1 of 128 bits), ``@@dot(d)`` multiplies (4 MFMA), ``@@dot(d, x)`` with ``x`` as the left operand.
    """
    return module(PREFIX + _SHORT.sub(lambda match: match.group(1) + _expand(match), body))


def buffer_load(offsets: str) -> str:
    """A global load in the generic form, which every Triton reads."""
    types = "(!tt.ptr<f16>, tensor<64x64xi32, #blocked>) -> tensor<64x64xf16, #blocked>"
    return f'"amdg.buffer_load"(%p, {offsets}) <{{operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>}}> : {types}'


def _expand(match: re.Match[str]) -> str:
    name, args = match.group(2), [part.strip() for part in (match.group(3) or "").split(",") if part.strip()]
    if name == "open":
        return _anchor("begin", args[0] if args else "", args[1:])
    if name == "close":
        return _anchor("end", "", [])
    if name in ("left", "right"):
        return f"%{args[0]} = ttg.local_load %s : {SLOT} -> {LEFT if name == 'left' else RIGHT}"
    if name == "global":
        return f"%{args[0]} = {buffer_load('%offsets')}"
    left = args[1] if len(args) > 1 else "l"
    return f"%{args[0]} = tt.dot %{left}, %r, %acc : {LEFT} * {RIGHT} -> {ACC}"


def _anchor(kind: str, label: str, pair: list[str]) -> str:
    parts = [f'amdwarp.stage.{kind} = "{label}"', 'amdwarp.stage.scope = "intra_wave"']
    parts += [f"amdwarp.stage.pair = {number} : i32" for number in pair]
    return f'"rocdl.sched.barrier"() <{{mask = {mask_attribute(0)}}}> {{{", ".join(parts)}}} : () -> ()'


__all__ = ["ACC", "LEFT", "LEFT_LAYOUT", "RIGHT", "SLOT", "TILE", "buffer_load", "windowed"]
