"""LDS instructions.

A wave's LDS operations form a queue that is carried out in order, and as late as its waits allow: an operation issued
before a wait that does not cover it has not touched LDS. A missing wait or barrier between two waves therefore shows as
a wrong number. Destination registers hold poison until the wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from amdwarp.emulator.bind import Binder, handles
from amdwarp.emulator.memory import POISON, Array, Fault, gather_block, scatter_block
from amdwarp.emulator.state import Batch, Closure

#: What an early read leaves to be done at the wait: deliver function and payload.
Settled = tuple[Callable[[Batch, tuple[Any, ...]], None], tuple[Any, ...]]

#: An address that drops a write (and makes a read return 0) on purpose.
DROPPED = 0x7FFFFFFF


def poison(b: Batch, row: int, count: int) -> None:
    """Poison the enabled lanes of registers whose value is still on its way."""
    if b.mask is None:
        b.u[row : row + count] = POISON
    else:
        np.copyto(b.u[row : row + count], np.uint32(POISON), where=b.mask)


def put_dwords(b: Batch, row: int, values: Array, mask: Array | None) -> None:
    """Write uint32 [waves, lanes, dwords] to consecutive registers."""
    count = values.shape[-1]
    moved = values.transpose(2, 0, 1)
    if mask is None:
        b.u[row : row + count] = moved
    else:
        np.copyto(b.u[row : row + count], moved, where=mask)


def address_getter(binder: Binder, at: int, offset: int) -> Callable[[Batch], Array]:
    """Byte addresses int64 [waves, lanes] from vector register operand `at` plus a constant."""
    row = binder.vector(at, 1)
    add = np.uint32(offset)
    if offset:
        return lambda b: (b.r[0][row] + add).astype(np.int64)
    return lambda b: b.r[0][row].astype(np.int64)


def active(b: Batch, addresses: Array, size: int) -> Array | None:
    """Lanes that access LDS: enabled and not dropped. Addresses outside the allocation are a Fault."""
    mask = b.mask
    lds = b.group.lds
    top = int(addresses.max()) if mask is None else int(np.max(addresses, initial=0, where=mask))
    if top + size <= lds.size:
        return mask
    kept = (addresses < DROPPED) | (addresses > DROPPED + 0x10000)
    mask = kept if mask is None else mask & kept
    lds.check(addresses, size, mask)
    return mask


def note_lds(b: Batch, kind: str, addresses: Array, size: int, mask: Array | None, values: Array | None = None) -> None:
    """Report an access to the observer."""
    if b.group.recorder is not None:
        b.group.recorder.access("lds", kind, addresses, size, mask, None, values)


# Reads

#: mnemonic: (bytes, signed, part of the register: "" all, "lo", "hi")
READS = {
    "ds_read_b32": (4, False, ""),
    "ds_read_b64": (8, False, ""),
    "ds_read_b96": (12, False, ""),
    "ds_read_b128": (16, False, ""),
    "ds_read_u8": (1, False, ""),
    "ds_read_i8": (1, True, ""),
    "ds_read_u16": (2, False, ""),
    "ds_read_i16": (2, True, ""),
    "ds_read_u8_d16": (1, False, "lo"),
    "ds_read_u8_d16_hi": (1, False, "hi"),
    "ds_read_i8_d16": (1, True, "lo"),
    "ds_read_i8_d16_hi": (1, True, "hi"),
    "ds_read_u16_d16": (2, False, "lo"),
    "ds_read_u16_d16_hi": (2, False, "hi"),
}


@handles(*READS)
def bind_read(binder: Binder) -> Closure:
    """Read consecutive bytes; a byte or short is extended to a register."""
    size, is_signed, part = READS[binder.inst.base]
    binder.need(2)
    count = max(1, size // 4)
    row = binder.vector(0, count)
    address = address_getter(binder, 1, binder.take("offset", 0))
    spare = np.uint32(32 - 8 * size) if size < 4 else np.uint32(0)

    def put(b: Batch, payload: tuple[Any, ...]) -> None:
        values = payload[1]
        if part:
            values = put_half(values, payload[-1], part)
        put_dwords(b, row, values, payload[0])

    def read_now(b: Batch, payload: tuple[Any, ...]) -> Settled:
        mask, addresses, on = payload[:3]
        values = gather_block(b.group.lds.data, addresses, size, on)
        if is_signed:
            values = ((values << spare).view(np.int32) >> spare.view(np.int32)).view(np.uint32)
        return put, (mask, values, *payload[3:])

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        put(b, read_now(b, payload)[1])

    def run(b: Batch) -> None:
        addresses = address(b)
        on = active(b, addresses, size)
        note_lds(b, "read", addresses, size, on)
        old = (b.r[0][row].copy(),) if part else ()
        poison(b, row, count)
        b.issue(b.ds, binder.inst, deliver, b.mask, addresses, on, *old, early=read_now, size=size)

    return run


def put_half(values: Array, old: Array, part: str) -> Array:
    """uint32 [waves, lanes, 1] with the low 16 bits of `values` in the named half and `old` in the other."""
    if part == "lo":
        return values & np.uint32(0xFFFF) | (old & np.uint32(0xFFFF0000))[..., None]
    return values << np.uint32(16) | (old & np.uint32(0xFFFF))[..., None]


def all_lanes(b: Batch, on: Array | None) -> Array:
    """`on` as an array, so that a payload splits and joins by waves."""
    return np.ones((b.n, b.group.lanes), bool) if on is None else on


#: mnemonic tail: lanes of a group and the elements of a lane; see `transposed`.
TRANSPOSED = {"b64_tr_b16": (16, 2), "b64_tr_b8": (8, 2), "b64_tr_b4": (4, 2), "b96_tr_b6": (6, 3)}


def transposed(values: Array, bits: int) -> Array:
    """Transpose the elements of groups of 16 lanes.

    The 16 lanes of a group hold a matrix with rows of 16 elements, a lane holding consecutive elements and the next
    lane what follows. Lane i of the group receives column i.

    Args:
        values: uint32 [waves, lanes, dwords].
        bits: width of an element: 16, 8, 6 or 4.
    """
    waves, lanes, dwords = values.shape
    per = 32 * dwords // bits
    if bits == 16:
        elements = values.view(np.uint16)
    elif bits == 8:
        elements = values.view(np.uint8)
    else:
        flat = np.unpackbits(values.view(np.uint8).reshape(waves, lanes, -1), axis=-1, bitorder="little")
        elements = (flat.reshape(waves, lanes, per, bits) @ (1 << np.arange(bits))).astype(np.uint8)
    grid = elements.reshape(waves, lanes // 16, per, 16).transpose(0, 1, 3, 2)
    columns = np.ascontiguousarray(grid).reshape(waves, lanes, per)
    if bits in (16, 8):
        return columns.view(np.uint32)
    spread = columns[..., None] >> np.arange(bits) & 1
    packed = np.packbits(spread.reshape(waves, lanes, -1).astype(np.uint8), axis=-1, bitorder="little")
    return packed.view(np.uint32)


@handles(*(f"ds_read_{tail}" for tail in TRANSPOSED))
def bind_read_transposed(binder: Binder) -> Closure:
    """Read and transpose within groups of 16 lanes."""
    bits, count = TRANSPOSED[binder.inst.base[len("ds_read_") :]]
    size = 4 * count
    binder.need(2)
    row = binder.vector(0, count)
    address = address_getter(binder, 1, binder.take("offset", 0))

    def put(b: Batch, payload: tuple[Any, ...]) -> None:
        put_dwords(b, row, payload[1], payload[0])

    def read_now(b: Batch, payload: tuple[Any, ...]) -> Settled:
        mask, addresses, on = payload
        return put, (mask, transposed(gather_block(b.group.lds.data, addresses, size, on), bits))

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        put(b, read_now(b, payload)[1])

    def run(b: Batch) -> None:
        addresses = address(b)
        on = active(b, addresses, size)
        note_lds(b, "read", addresses, size, on)
        poison(b, row, count)
        b.issue(b.ds, binder.inst, deliver, b.mask, addresses, on, early=read_now, size=size)

    return run


def _two_offsets(binder: Binder, size: int) -> tuple[int, int]:
    unit = size * (64 if "st64" in binder.inst.base else 1)
    return binder.take("offset0", 0) * unit, binder.take("offset1", 0) * unit


@handles("ds_read2_b32", "ds_read2_b64", "ds_read2st64_b32", "ds_read2st64_b64")
def bind_read_two(binder: Binder) -> Closure:
    """Two reads at offsets in units of the element (times 64 with st64)."""
    size = int(binder.inst.base[-2:]) // 8
    binder.need(2)
    count = size // 4
    row = binder.vector(0, 2 * count)
    getters = [address_getter(binder, 1, offset) for offset in _two_offsets(binder, size)]

    def put(b: Batch, payload: tuple[Any, ...]) -> None:
        put_dwords(b, row, payload[1], payload[0])

    def read_now(b: Batch, payload: tuple[Any, ...]) -> Settled:
        mask, both, first_on, second_on = payload
        data = b.group.lds.data
        first = gather_block(data, both[..., 0], size, first_on)
        second = gather_block(data, both[..., 1], size, second_on)
        return put, (mask, np.concatenate((first, second), axis=-1))

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        put(b, read_now(b, payload)[1])

    def run(b: Batch) -> None:
        both = [address(b) for address in getters]
        lanes = [active(b, addresses, size) for addresses in both]
        for addresses, on in zip(both, lanes, strict=True):
            note_lds(b, "read", addresses, size, on)
        poison(b, row, 2 * count)
        b.issue(b.ds, binder.inst, deliver, b.mask, np.stack(both, axis=-1), *lanes, early=read_now, size=size)

    return run


# Writes

#: mnemonic: (bytes, data starts at the upper half of its register)
WRITES = {
    "ds_write_b8": (1, False),
    "ds_write_b16": (2, False),
    "ds_write_b32": (4, False),
    "ds_write_b64": (8, False),
    "ds_write_b96": (12, False),
    "ds_write_b128": (16, False),
    "ds_write_b8_d16_hi": (1, True),
    "ds_write_b16_d16_hi": (2, True),
}


def take_dwords(b: Batch, row: int, count: int) -> Array:
    """A copy of consecutive registers as uint32 [waves, lanes, dwords]."""
    return b.u[row : row + count].transpose(1, 2, 0).copy()


@handles(*WRITES)
def bind_write(binder: Binder) -> Closure:
    """Write consecutive bytes; the data are read at issue."""
    size, upper = WRITES[binder.inst.base]
    binder.need(2)
    count = max(1, size // 4)
    row = binder.vector(1, count)
    address = address_getter(binder, 0, binder.take("offset", 0))

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        _, addresses, values, on = payload
        scatter_block(b.group.lds.data, addresses, values, size, on)

    def run(b: Batch) -> None:
        addresses = address(b)
        on = active(b, addresses, size)
        values = take_dwords(b, row, count)
        if upper:
            values = values >> np.uint32(16)
        note_lds(b, "write", addresses, size, on, values)
        b.issue(b.ds, binder.inst, deliver, b.mask, addresses, values, on, size=-1)

    return run


@handles("ds_write2_b32", "ds_write2_b64", "ds_write2st64_b32", "ds_write2st64_b64")
def bind_write_two(binder: Binder) -> Closure:
    """Two writes at offsets in units of the element (times 64 with st64)."""
    size = int(binder.inst.base[-2:]) // 8
    binder.need(3)
    count = size // 4
    rows = (binder.vector(1, count), binder.vector(2, count))
    getters = [address_getter(binder, 0, offset) for offset in _two_offsets(binder, size)]

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        _, *pieces = payload
        for at in (0, 3):
            addresses, values, on = pieces[at : at + 3]
            scatter_block(b.group.lds.data, addresses, values, size, on)

    def run(b: Batch) -> None:
        pieces: list[Any] = []
        for row, address in zip(rows, getters, strict=True):
            addresses = address(b)
            on = active(b, addresses, size)
            values = take_dwords(b, row, count)
            note_lds(b, "write", addresses, size, on, values)
            pieces += [addresses, values, on]
        b.issue(b.ds, binder.inst, deliver, b.mask, *pieces, size=-1)

    return run


# Atomics

#: operation: (type, function of old value and operand); the others stand in `amdwarp.emulator.ds_atomics`
ATOMICS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "add_f32": ("f4", np.add),
    "wrxchg_b32": ("u4", lambda old, new: new),
    "wrxchg_b64": ("u8", lambda old, new: new),
}


def atomic_lanes(words: Array, index: Array, operand: Array, function: Any, mask: Array) -> Array:
    """Apply `function` lane after lane to `words[index]`; returns what each lane found."""
    found = np.zeros(index.shape, words.dtype)
    for wave, lane in zip(*np.nonzero(mask), strict=True):
        at = index[wave, lane]
        found[wave, lane] = words[at]
        words[at] = function(words[at], operand[wave, lane])
    return found


_ATOMIC_NAMES = {
    "ds_add_f32": ("add_f32", False),
    "ds_add_rtn_f32": ("add_f32", True),
    "ds_wrxchg_rtn_b32": ("wrxchg_b32", True),
    "ds_wrxchg_rtn_b64": ("wrxchg_b64", True),
}


@handles(*_ATOMIC_NAMES)
def bind_atomic(binder: Binder) -> Closure:
    """Read-modify-write, lane after lane."""
    name, returns = _ATOMIC_NAMES[binder.inst.base]
    kind, function = ATOMICS[name]
    size = int(kind[1])
    count = size // 4
    first = 1 if returns else 0
    binder.need(2 + first)
    row = binder.vector(0, count) if returns else 0
    data = binder.vector(first + 1, count)
    address = address_getter(binder, first, binder.take("offset", 0))

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        mask, addresses, values, on = payload
        words = b.group.lds.data.view(kind)
        found = atomic_lanes(words, addresses // size, values.view(kind)[..., 0], function, on)
        if returns:
            put_dwords(b, row, found[..., None].view(np.uint32), mask)

    def run(b: Batch) -> None:
        addresses = address(b)
        on = all_lanes(b, active(b, addresses, size))
        if np.any(addresses[on] % size):
            raise Fault(f"an LDS atomic needs addresses that are multiples of {size}")
        note_lds(b, "atomic", addresses, size, on)
        values = take_dwords(b, data, count)
        if returns:
            poison(b, row, count)
        b.issue(b.ds, binder.inst, deliver, b.mask, addresses, values, on, size=-1)

    return run


@handles("ds_cmpstore_rtn_b32", "ds_cmpstore_rtn_b64")
def bind_compare_swap(binder: Binder) -> Closure:
    """Compare with the second data operand and store the first; the old value is returned."""
    binder.need(4)
    kind = "u" + str(int(binder.inst.base[-2:]) // 8)
    size = int(kind[1])
    count = size // 4
    row, compare, new = (binder.vector(at, count) for at in (0, 3, 2))
    address = address_getter(binder, 1, binder.take("offset", 0))

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        mask, addresses, values, on = payload
        words = b.group.lds.data.view(kind)
        pairs = values.view(kind)
        found = atomic_lanes(words, addresses // size, pairs, lambda old, p: p[1] if old == p[0] else old, on)
        put_dwords(b, row, found[..., None].view(np.uint32), mask)

    def run(b: Batch) -> None:
        addresses = address(b)
        on = all_lanes(b, active(b, addresses, size))
        note_lds(b, "atomic", addresses, size, on)
        values = np.concatenate([take_dwords(b, at, count) for at in (compare, new)], axis=-1)
        poison(b, row, count)
        b.issue(b.ds, binder.inst, deliver, b.mask, addresses, values, on, size=-1)

    return run
