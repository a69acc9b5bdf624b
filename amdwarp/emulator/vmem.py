"""Vector memory: buffer, global and flat loads, stores and atomics.

Loads read memory at issue and write their registers (or LDS) at the covering vmcnt wait; until then the destination
holds poison. Stores and atomics change memory at issue. All of them count in vmcnt, in order.

Bounds after the AMD CDNA3 instruction set manual, chapter "Buffer resource": a raw buffer access is in range dword by
dword where offset + size <= num_records; out of range, loads give 0 and stores are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdwarp.asm import Symbol
from amdwarp.asm.program import M0
from amdwarp.emulator import structured
from amdwarp.emulator.bind import Binder, handles
from amdwarp.emulator.ds import DROPPED, all_lanes, poison, put_dwords, put_half, take_dwords
from amdwarp.emulator.memory import POISON, Array, scatter_block
from amdwarp.emulator.state import Batch, Closure, expand

#: What an address function gives: uint64 addresses [waves, lanes], lanes that access memory (None for all), and dwords
#: [waves, lanes] in range where a lane is cut short (None where none is).
Located = tuple[Array, Array | None, Array | None]
Locator = Callable[[Batch, int], Located]

#: load tail: (bytes, registers, signed, part of the register: "" all, "lo", "hi")
LOADS: dict[str, tuple[int, int, bool, str]] = {
    "dword": (4, 1, False, ""),
    "dwordx2": (8, 2, False, ""),
    "dwordx3": (12, 3, False, ""),
    "dwordx4": (16, 4, False, ""),
    "ubyte": (1, 1, False, ""),
    "sbyte": (1, 1, True, ""),
    "ushort": (2, 1, False, ""),
    "sshort": (2, 1, True, ""),
    "ubyte_d16": (1, 1, False, "lo"),
    "ubyte_d16_hi": (1, 1, False, "hi"),
    "sbyte_d16": (1, 1, True, "lo"),
    "sbyte_d16_hi": (1, 1, True, "hi"),
    "short_d16": (2, 1, False, "lo"),
    "short_d16_hi": (2, 1, False, "hi"),
}
STORES: dict[str, tuple[int, int, bool]] = {
    "dword": (4, 1, False),
    "dwordx2": (8, 2, False),
    "dwordx3": (12, 3, False),
    "dwordx4": (16, 4, False),
    "byte": (1, 1, False),
    "short": (2, 1, False),
    "byte_d16_hi": (1, 1, True),
    "short_d16_hi": (2, 1, True),
}
_CACHE_BITS = ("sc0", "sc1", "nt", "glc", "slc")
#: Cache policies of gfx1250.
_SCOPES = ("SCOPE_CU", "SCOPE_SE", "SCOPE_DEV", "SCOPE_SYS")
_POLICY = re.compile(r"TH_(?:LOAD|STORE|ATOMIC)_[A-Z_]+$")


def wave_column(value: Any, waves: int) -> Array:
    """A scalar register as int64 [waves, 1]."""
    return np.array(expand(value, waves), np.int64)[:, None]


# Addresses


def buffer_locator(binder: Binder, at: int) -> Locator:
    """Address function of a buffer instruction whose address operands start at `at`: vaddr, resource, soffset."""
    offen, idxen = binder.flag("offen"), binder.flag("idxen")
    immediate = binder.take("offset", 0)
    if binder.flag("addr64") or (idxen and binder.wide_target):
        raise binder.fail("structured buffer addresses (idxen, addr64) are not known on this target")
    first = binder.vector(at, offen + idxen) if offen or idxen else None
    if first is None and binder.ops[at] != Symbol("off"):
        raise binder.fail("'off' expected where there is neither offen nor idxen")
    row = first + idxen if offen and first is not None else None
    resource = binder.scalar(at + 1, 4)
    scalar_offset = binder.scalar_source(at + 2)
    # gfx1250: 57 bits of address, then 45 bits of size; gfx9: 48 bits, and 32 from bit 64 on.
    large, top = binder.wide_target, 0x1FFFFFF if binder.wide_target else 0xFFFF

    def locate(b: Batch, size: int) -> Located:
        values: list[Any] = [*b.s[resource : resource + 4], scalar_offset(b)]
        if row is None:
            inside = np.full((b.n, b.group.lanes), immediate, np.int64)
        else:
            inside = b.r[0][row].astype(np.int64)
            if immediate:
                inside += immediate
        if not large and (idxen or structured.is_structured(values)):
            index = b.r[0][first].astype(np.int64) if idxen and first is not None else 0
            return structured.locate(b, values[:4], index, inside, values[4], size, idxen)
        if not all(type(value) is int for value in values):
            values = [wave_column(value, b.n) for value in values]
        low, high, third, fourth, shift = values
        base: Any = low | (high & top) << 32
        records: Any = high >> 25 | third << 7 | (fourth & 0x3F) << 39 if large else third
        if type(shift) is not int or shift:
            inside = inside + shift
        addresses = (inside + base).view(np.uint64)
        if type(records) is int and int(inside.max()) + size <= records:
            return addresses, b.mask, None
        on = inside < records
        cut = inside + size > records
        short = np.clip((records - inside) >> 2, 0, size // 4) if size > 4 and (on & cut).any() else None
        if size <= 4:
            on = ~cut
        if b.mask is not None:
            on = on & b.mask
        return addresses, on, short

    return locate


def global_locator(binder: Binder, at: int) -> Locator:
    """Address function of a global instruction: 64-bit vaddr and ``off``, or 32-bit vaddr and a 64-bit scalar base."""
    offset = binder.take("offset", 0)
    base = binder.ops[at + 1]
    if base == Symbol("off"):
        row = binder.vector(at, 2)

        def locate(b: Batch, size: int) -> Located:
            out = np.empty((b.n, b.group.lanes), np.uint64)
            halves = out.view(np.uint32)
            halves[:, 0::2] = b.r[0][row]
            halves[:, 1::2] = b.r[0][row + 1]
            return (out.view(np.int64) + offset).view(np.uint64), b.mask, None

        return locate
    index, row32 = binder.scalar(at + 1, 2), binder.vector(at, 1)
    # gfx1250: the offset register is signed, and with scale_offset counts elements.
    which, scales = 2 if binder.wide_target else 0, binder.flag("scale_offset")

    def locate_scalar(b: Batch, size: int) -> Located:
        start = np.array(expand(b.pair(index), b.n), np.uint64).view(np.int64)[:, None]
        inside = b.r[which][row32].astype(np.int64)
        if scales:
            inside *= size
        return (inside + (start + offset)).view(np.uint64), b.mask, None

    return locate_scalar


def flat_locator(binder: Binder, at: int) -> Locator:
    """Address function of a flat instruction: a 64-bit vaddr, which must lie in global memory."""
    offset, row = binder.take("offset", 0), binder.vector(at, 2)

    def locate(b: Batch, size: int) -> Located:
        wide = b.r[0][row].astype(np.int64) | b.r[0][row + 1].astype(np.int64) << 32
        return (wide + offset).view(np.uint64), b.mask, None

    return locate


# Loads, stores, atomics on global memory


def read_located(b: Batch, located: Located, size: int) -> Array:
    """uint32 [waves, lanes, dwords] at `located`; zeros where out of range."""
    addresses, on, short = located
    if short is None:
        return b.group.memory.gather(addresses, size, on)
    lanes = all_lanes(b, on)
    parts = [
        b.group.memory.gather(addresses + np.uint64(4 * at), 4, lanes & (short > at))[..., 0] for at in range(size // 4)
    ]
    return np.stack(parts, axis=-1)


def write_located(b: Batch, located: Located, values: Array, size: int) -> None:
    """Write uint32 [waves, lanes, dwords] to `located`."""
    addresses, on, short = located
    if short is None:
        b.group.memory.scatter(addresses, values, size, on)
        return
    lanes = all_lanes(b, on)
    for at in range(size // 4):
        part = values[..., at : at + 1]
        b.group.memory.scatter(addresses + np.uint64(4 * at), part, 4, lanes & (short > at))


def sign_extended(values: Array, size: int) -> Array:
    spare = 32 - 8 * size
    return ((values << np.uint32(spare)).view(np.int32) >> np.int32(spare)).view(np.uint32)


def note(b: Batch, kind: str, located: Located, size: int, values: Array | None = None) -> None:
    if b.group.recorder is not None:
        b.group.recorder.access("global", kind, located[0], size, located[1], None, values)


def bind_load(binder: Binder, locator: Locator, form: tuple[int, int, bool, str]) -> Closure:
    """A load to registers."""
    size, count, is_signed, part = form
    row = binder.vector(0, count)

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        put_dwords(b, row, payload[1], payload[0])

    def run(b: Batch) -> None:
        located = locator(b, size)
        values = read_located(b, located, size)
        if is_signed:
            values = sign_extended(values, size)
        if part:
            values = put_half(values, b.r[0][row], part)
        note(b, "read", located, size)
        poison(b, row, count)
        b.issue(b.vm, binder.inst, deliver, b.mask, values)

    return run


def bind_store(binder: Binder, locator: Locator, form: tuple[int, int, bool], data: int) -> Closure:
    """A store; its data stand in operand `data`."""
    size, count, upper = form
    row = binder.vector(data, count)

    def run(b: Batch) -> None:
        located = locator(b, size)
        values = take_dwords(b, row, count)
        if upper:
            values = values >> np.uint32(16)
        note(b, "write", located, size, values)
        write_located(b, located, values, size)
        b.issue(b.stores, binder.inst, None, b.mask)

    return run


def operand_count(binder: Binder, count: int) -> None:
    binder.need(count)
    if not binder.wide_target:
        binder.ignore(*_CACHE_BITS)
        return
    binder.ignore("nv")
    scope, policy = binder.take("scope", "SCOPE_CU"), binder.take("th", "TH_LOAD_RT")
    if scope not in _SCOPES or not isinstance(policy, str) or not _POLICY.match(policy):
        raise binder.fail(f"cache policy scope:{scope} th:{policy} is not known")


@handles(*(f"buffer_load_{tail}" for tail in LOADS))
def bind_buffer_load(binder: Binder) -> Closure:
    """Buffer load to registers, or with ``lds`` straight to LDS."""
    form = LOADS[binder.inst.base[len("buffer_load_") :]]
    if binder.flag("lds"):
        operand_count(binder, 3)
        immediate = binder.inst.modifier("offset")
        return bind_to_lds(binder, buffer_locator(binder, 0), form, immediate if isinstance(immediate, int) else 0)
    operand_count(binder, 4)
    return bind_load(binder, buffer_locator(binder, 1), form)


@handles(*(f"buffer_store_{tail}" for tail in STORES))
def bind_buffer_store(binder: Binder) -> Closure:
    """Buffer store."""
    operand_count(binder, 4)
    return bind_store(binder, buffer_locator(binder, 1), STORES[binder.inst.base[len("buffer_store_") :]], 0)


@handles(*(f"global_load_{tail}" for tail in LOADS))
def bind_global_load(binder: Binder) -> Closure:
    """Global load to registers."""
    operand_count(binder, 3)
    return bind_load(binder, global_locator(binder, 1), LOADS[binder.inst.base[len("global_load_") :]])


@handles(*(f"global_store_{tail}" for tail in STORES))
def bind_global_store(binder: Binder) -> Closure:
    """Global store: address, data, base."""
    operand_count(binder, 3)
    address = binder.ops[0], binder.ops[2]
    data = binder.ops[1]
    binder.ops = (*address, data)
    return bind_store(binder, global_locator(binder, 0), STORES[binder.inst.base[len("global_store_") :]], 2)


@handles(*(f"flat_load_{tail}" for tail in LOADS))
def bind_flat_load(binder: Binder) -> Closure:
    """Flat load from global memory."""
    operand_count(binder, 2)
    return bind_load(binder, flat_locator(binder, 1), LOADS[binder.inst.base[len("flat_load_") :]])


@handles(*(f"flat_store_{tail}" for tail in STORES))
def bind_flat_store(binder: Binder) -> Closure:
    """Flat store to global memory."""
    operand_count(binder, 2)
    return bind_store(binder, flat_locator(binder, 0), STORES[binder.inst.base[len("flat_store_") :]], 1)


# Direct to LDS

LDS_LOADS = {tail: LOADS[tail] for tail in ("dword", "dwordx3", "dwordx4", "ubyte", "sbyte", "ushort", "sshort")}


@handles(*(f"global_load_lds_{tail}" for tail in LDS_LOADS))
def bind_global_load_lds(binder: Binder) -> Closure:
    """Global load straight to LDS."""
    operand_count(binder, 2)
    form = LDS_LOADS[binder.inst.base[len("global_load_lds_") :]]
    immediate = binder.inst.modifier("offset")
    return bind_to_lds(binder, global_locator(binder, 0), form, immediate if isinstance(immediate, int) else 0)


def bind_to_lds(binder: Binder, locator: Locator, form: tuple[int, int, bool, str], immediate: int) -> Closure:
    """A load to LDS: lane l writes at M0 + immediate + l * size; a byte or short is extended to a dword.

    The destination of the enabled lanes is poisoned at issue and written at the wait; lanes out of the buffer's range
    write zeros, disabled lanes nothing. M0 = 0x7fffffff drops the whole copy.
    """
    width, _, is_signed, part = form
    size = max(4, width)
    if part or size == 8:
        raise binder.fail("a load to LDS moves a byte, a short or 1, 3 or 4 dwords for each lane")
    step = np.arange(binder.lanes, dtype=np.int64) * size
    poisoned = np.full(binder.lanes * size // 4, POISON, np.uint32).view(np.uint8)

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        on, starts, values = payload
        if on is None:
            write_rows(b.group.lds.data, starts, values.reshape(b.n, -1).view(np.uint8))
        else:
            scatter_block(b.group.lds.data, starts[:, None] + step, values, size, on)

    def run(b: Batch) -> None:
        located = locator(b, width)
        values = read_located(b, located, width)
        if is_signed:
            values = sign_extended(values, width)
        base = np.array(expand(b.s[M0], b.n), np.int64)
        starts, on, lds = base + immediate, b.mask, b.group.lds
        dropped = base == DROPPED
        if dropped.any():
            on = all_lanes(b, on) & ~dropped[:, None]
        if on is not None or starts.min() < 0 or starts.max() + len(poisoned) > lds.size:
            lds.check(starts[:, None] + step, size, on)
        if b.group.recorder is not None:
            note(b, "read", located, width)
            filled = None if located[1] is None else ~located[1]
            b.group.recorder.access("lds", "write", starts[:, None] + step, size, on, filled, values)
        if b.ds:
            b.settle_reads(starts, starts + len(poisoned))
        if on is None:
            write_rows(lds.data, starts, [poisoned] * b.n)
        elif on.any():
            scatter_block(lds.data, starts[:, None] + step, np.full_like(values, POISON), size, on)
        b.issue(b.vm, binder.inst, deliver, on, starts, values)

    return run


def write_rows(data: Array, starts: Array, rows: Sequence[Array] | Array) -> None:
    """Write one run of bytes for each wave; a later wave wins over an earlier one."""
    for start, row in zip(starts.tolist(), rows, strict=True):
        data[start : start + len(row)] = row
