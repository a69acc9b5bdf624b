"""Cross-lane operand forms of the vector ALU: DPP lane patterns and SDWA part-word selection.

Patterns after the AMD CDNA3 instruction set manual, chapters "DPP" and "SDWA": rows are 16 lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdwarp.asm import Register
from amdwarp.emulator.bind import LISTS, TYPES, Binder, Getter, vector_of
from amdwarp.emulator.memory import Array
from amdwarp.emulator.state import Batch


@dataclass(frozen=True)
class Dpp:
    """A bound DPP control.

    Attributes:
        lanes: int64 [lanes], the lane each lane reads from (0 where there is none).
        valid: bool [lanes], False where the pattern has no source.
        zeros: a lane without source reads 0 (else it is not written).
        inactive: disabled source lanes are read like enabled ones.
        enabled: bool [lanes], after row_mask and bank_mask.
    """

    lanes: Array
    valid: Array
    zeros: bool
    enabled: Array
    inactive: bool = False

    def read(self, b: Batch, row: int) -> Array:
        """uint32 [waves, lanes] of register `row` through the pattern."""
        moved: Array = b.r[0][row].take(self.lanes, axis=1)
        if self.zeros:
            moved = np.where(self._has_source(b), moved, np.uint32(0))
        return moved

    def _has_source(self, b: Batch) -> Array:
        if b.mask is None or self.inactive:
            return self.valid
        source_on: Array = b.mask.take(self.lanes, axis=1) & self.valid
        return source_on

    def mask(self, b: Batch) -> Array | None:
        """Lanes that are written."""
        on = self.enabled if self.zeros else self.enabled & self._has_source(b)
        if b.mask is not None:
            return on & b.mask
        return None if on.all() else np.broadcast_to(on, (b.n, on.shape[-1]))


def _pattern(binder: Binder, lane: Array) -> tuple[Array, Array]:
    """(source lane, in range) of the one lane pattern the instruction names."""
    inside, row = lane & 15, lane & ~15
    total = len(lane)
    choices: dict[str, Callable[[Any], tuple[Array, Array]]] = {
        "quad_perm": lambda p: (lane & ~3 | np.array(p)[lane & 3], lane >= 0),
        "row_shl": lambda n: (lane + n, inside + n < 16),
        "row_shr": lambda n: (lane - n, inside - n >= 0),
        "row_ror": lambda n: (row | (inside - n) & 15, lane >= 0),
        "row_mirror": lambda _: (row | 15 - inside, lane >= 0),
        "row_half_mirror": lambda _: (lane & ~7 | 7 - (lane & 7), lane >= 0),
        "wave_shl": lambda n: (lane + 1, lane + 1 < total),
        "wave_shr": lambda n: (lane - 1, lane >= 1),
        "wave_rol": lambda n: ((lane + 1) % total, lane >= 0),
        "wave_ror": lambda n: ((lane - 1) % total, lane >= 0),
        "row_newbcast": lambda n: (row | n, lane >= 0),
        "row_share": lambda n: (row | n, lane >= 0),
        "row_xmask": lambda n: (row | inside ^ n, lane >= 0),
        "dpp8": lambda p: (lane & ~7 | np.array(p)[lane & 7], lane >= 0),
    }
    found = [(name, binder.take(name)) for name in (*choices, "row_bcast") if name in binder.left]
    if len(found) != 1:
        raise binder.fail("a DPP form names exactly one lane pattern")
    name, value = found[0]
    if name == "row_bcast":
        if value == 15:
            return row - 1, row > 0
        if value == 31:
            return np.full_like(lane, 31), lane >= 32
        raise binder.fail("row_bcast takes 15 or 31")
    if name == "dpp8" and (not isinstance(value, tuple) or len(value) != 8 or max(value) > 7):
        raise binder.fail("dpp8 takes eight numbers from 0 to 7")
    if name == "quad_perm" and (not isinstance(value, tuple) or len(value) != 4 or max(value) > 3):
        raise binder.fail("quad_perm takes four numbers from 0 to 3")
    return choices[name](value)


def bind_dpp(binder: Binder) -> Dpp:
    """Read the DPP modifiers of an instruction."""
    lane = np.arange(binder.lanes)
    source, valid = _pattern(binder, lane)
    rows, banks = binder.take("row_mask", 15), binder.take("bank_mask", 15)
    enabled = ((rows >> (lane >> 4 & 3)) & 1 == 1) & ((banks >> (lane >> 2 & 3)) & 1 == 1)
    # LLVM writes the set bit as bound_ctrl:1, in older texts as bound_ctrl:0.
    zeros = binder.left.pop("bound_ctrl", None) is not None
    inactive = binder.take("fi", 0) == 1
    return Dpp(np.where(valid, source, 0), valid, zeros, enabled, inactive)


def dpp_source(binder: Binder, dpp: Dpp, at: int, kind: str) -> Getter:
    """Getter of vector operand `at` through a DPP pattern, with its modifiers."""
    op = binder.ops[at]
    size = int(kind[1:])
    if not isinstance(op, Register) or op.kind == "s" or op.count != max(1, size // 32):
        raise binder.fail(f"operand {at + 1} of a DPP form must be a vector register")
    row, dtype = binder.row(op), TYPES[kind]
    if size == 64:
        if not binder.inst.has("row_newbcast"):
            raise binder.fail("64-bit DPP forms have the pattern row_newbcast only")

        def read(b: Batch) -> Array:
            low, high = dpp.read(b, row).astype(np.uint64), dpp.read(b, row + 1).astype(np.uint64)
            wide: Array = low | high << np.uint64(32)
            return wide.view(dtype)

        return binder.with_modifiers(read, op, kind)
    if size == 32:
        return binder.with_modifiers(lambda b: dpp.read(b, row).view(dtype), op, kind)
    if op.half == "h":
        upper = np.uint32(16)
        return binder.with_modifiers(lambda b: (dpp.read(b, row) >> upper).astype(np.uint16).view(dtype), op, kind)
    return binder.with_modifiers(lambda b: dpp.read(b, row).astype(np.uint16).view(dtype), op, kind)


#: SDWA selection: (shift, mask)
SELECTIONS = {
    "BYTE_0": (0, 0xFF),
    "BYTE_1": (8, 0xFF),
    "BYTE_2": (16, 0xFF),
    "BYTE_3": (24, 0xFF),
    "WORD_0": (0, 0xFFFF),
    "WORD_1": (16, 0xFFFF),
    "DWORD": (0, 0xFFFFFFFF),
}


def sdwa_source(binder: Binder, at: int, which: int, kind: str) -> Getter:
    """Getter of operand `at` after its SDWA selection `src<which>_sel` and its modifiers."""
    op = binder.ops[at]
    name = binder.take(f"src{which}_sel", "DWORD")
    if name not in SELECTIONS or not isinstance(op, Register) or op.count != 1:
        raise binder.fail(f"operand {at + 1} has no SDWA selection that is known ({name})")
    shift, mask = SELECTIONS[name]
    size, dtype = int(kind[1:]), TYPES[kind]
    unsigned = TYPES[f"u{size}"]
    width = bin(mask).count("1")
    if op.kind == "s":
        index = op.index
        raw: Getter = lambda b: vector_of(b.s[index], "u32")  # noqa: E731
    else:
        row = binder.row(op)
        raw = lambda b: b.r[LISTS["u32"]][row]  # noqa: E731

    def select(b: Batch) -> Any:
        value = raw(b) >> np.uint32(shift) & np.uint32(mask)
        if op.sext:
            value = (value << np.uint32(32 - width)).view(np.int32) >> np.int32(32 - width)
            return value.view(np.uint32).astype(unsigned).view(dtype)
        return value.astype(unsigned).view(dtype)

    if op.sext and kind[0] == "f":
        raise binder.fail("sext needs an integer operand")
    if op.neg or op.absolute:
        plain = Register(op.kind, op.index, 1, op.neg, op.absolute)
        return binder.with_modifiers(select, plain, kind)
    return select


def sdwa_target(binder: Binder, at: int, kind: str) -> Callable[[Batch, Any, Array | None], None]:
    """Setter of vector operand `at` after dst_sel and dst_unused."""
    row = binder.vector(at, 1)
    name, unused = binder.take("dst_sel", "DWORD"), binder.take("dst_unused", "UNUSED_PAD")
    if name not in SELECTIONS or unused not in ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"):
        raise binder.fail(f"SDWA destination {name} {unused} is not known")
    shift, mask = SELECTIONS[name]
    size = int(kind[1:])
    if size > 32:
        raise binder.fail("SDWA has no 64-bit destination")
    keep = np.uint32(~(mask << shift) & 0xFFFFFFFF)
    width = bin(mask).count("1")

    def put(b: Batch, value: Any, on: Array | None) -> None:
        bits = np.asarray(value).view(TYPES[f"u{size}"]).astype(np.uint32) & np.uint32(mask)
        if unused == "UNUSED_SEXT":
            spread = (bits << np.uint32(32 - width)).view(np.int32) >> np.int32(32 - width)
            bits = spread.view(np.uint32) << np.uint32(shift)
        else:
            bits = bits << np.uint32(shift)
        if unused == "UNUSED_PRESERVE":
            bits = bits | (b.r[0][row] & keep)
        if on is None:
            b.r[0][row][...] = bits
        else:
            np.copyto(b.r[0][row], bits, where=on)

    return put
