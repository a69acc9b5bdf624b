"""The rarer LDS instructions: atomics with two operands or two addresses, counters, addresses from the lane number.

Like every LDS operation they stand in their wave's queue and are carried out at the wait that covers them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from amdwarp.asm.program import M0
from amdwarp.emulator.atomics import packed_add
from amdwarp.emulator.bind import Binder, handles
from amdwarp.emulator.ds import (
    active,
    address_getter,
    all_lanes,
    atomic_lanes,
    note_lds,
    poison,
    put_dwords,
    take_dwords,
)
from amdwarp.emulator.memory import Array, Fault, gather_block, scatter_block
from amdwarp.emulator.state import Batch, Closure, expand

#: operation: (operands, function of old value and operand, or of old value and the pair of operands)
OPERATIONS: dict[str, tuple[int, Callable[[Any, Any], Any]]] = {
    "add": (1, np.add),
    "sub": (1, np.subtract),
    "rsub": (1, lambda old, new: new - old),
    "inc": (1, lambda old, top: old.dtype.type(0) if old >= top else old + old.dtype.type(1)),
    "dec": (1, lambda old, top: top if old == 0 or old > top else old - old.dtype.type(1)),
    "min": (1, lambda old, new: new if new < old else old),
    "max": (1, lambda old, new: new if new > old else old),
    "and": (1, np.bitwise_and),
    "or": (1, np.bitwise_or),
    "xor": (1, np.bitwise_xor),
    "mskor": (2, lambda old, pair: old & ~pair[0] | pair[1]),
    "cmpst": (2, lambda old, pair: pair[1] if old == pair[0] else old),
    "wrap": (2, lambda old, pair: old - pair[0] if old >= pair[0] else old + pair[1]),
    "pk_add_f16": (1, lambda old, new: packed_add(old, new, np.float16)),
    "pk_add_bf16": (1, lambda old, new: packed_add(old, new, None)),
}
_KINDS = {"u32": "u4", "i32": "i4", "b32": "u4", "f32": "f4", "u64": "u8", "i64": "i8", "b64": "u8", "f64": "f8"}
_TYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("add", "sub", "rsub", "inc", "dec"), ("u32", "u64")),
    **dict.fromkeys(("min", "max"), ("u32", "i32", "f32", "u64", "i64", "f64")),
    **dict.fromkeys(("and", "or", "xor", "mskor"), ("b32", "b64")),
    "cmpst": ("b32", "b64", "f32", "f64"),
}


def _names() -> dict[str, tuple[str, str, bool]]:
    """Mnemonic to (operation, numpy type, returns the old value)."""
    pairs = [(op, kind) for op, kinds in _TYPES.items() for kind in kinds] + [("add", "f64")]
    names: dict[str, tuple[str, str, bool]] = {}
    for op, kind in pairs:
        names[f"ds_{op}_{kind}"] = (op, _KINDS[kind], False)
        names[f"ds_{op}_rtn_{kind}"] = (op, _KINDS[kind], True)
    for kind in ("f16", "bf16"):
        names[f"ds_pk_add_{kind}"] = (f"pk_add_{kind}", "u4", False)
        names[f"ds_pk_add_rtn_{kind}"] = (f"pk_add_{kind}", "u4", True)
    names["ds_wrap_rtn_b32"] = ("wrap", "u4", True)
    return names


_NAMES = _names()


def aligned(addresses: Array, size: int, on: Array) -> None:
    """Refuse addresses that are no multiple of `size`."""
    if np.any(addresses[on] % size):
        raise Fault(f"an LDS atomic needs addresses that are multiples of {size}")


@handles(*_NAMES)
def bind_atomic(binder: Binder) -> Closure:
    """Read-modify-write, lane after lane: (result), address, one or two operands."""
    name, kind, returns = _NAMES[binder.inst.base]
    operands, function = OPERATIONS[name]
    size = int(kind[1])
    count, first = size // 4, int(returns)
    binder.need(1 + first + operands)
    row = binder.vector(0, count) if returns else 0
    data = [binder.vector(first + 1 + at, count) for at in range(operands)]
    address = address_getter(binder, first, binder.take("offset", 0))

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        mask, addresses, values, on = payload
        words = b.group.lds.data.view(kind)
        operand = values.view(kind)
        found = atomic_lanes(words, addresses // size, operand if operands == 2 else operand[..., 0], function, on)
        if returns:
            put_dwords(b, row, found[..., None].view(np.uint32), mask)

    def run(b: Batch) -> None:
        addresses = address(b)
        on = all_lanes(b, active(b, addresses, size))
        aligned(addresses, size, on)
        note_lds(b, "atomic", addresses, size, on)
        values = np.concatenate([take_dwords(b, at, count) for at in data], axis=-1)
        if returns:
            poison(b, row, count)
        b.issue(b.ds, binder.inst, deliver, b.mask, addresses, values, on, size=-1)
        b.ds[-1].notifies = not returns

    return run


@handles(*(f"ds_wrxchg2{step}_rtn_b{bits}" for step in ("", "st64") for bits in (32, 64)))
def bind_exchange_two(binder: Binder) -> Closure:
    """Exchange at two addresses, in units of the element (times 64 with st64)."""
    size = int(binder.inst.base[-2:]) // 8
    count, unit = size // 4, size * (64 if "st64" in binder.inst.base else 1)
    binder.need(4)
    row, data = binder.vector(0, 2 * count), [binder.vector(at, count) for at in (2, 3)]
    offsets = [binder.take(name, 0) * unit for name in ("offset0", "offset1")]
    getters = [address_getter(binder, 1, offset) for offset in offsets]
    kind = f"u{size}"

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        mask, both, values, on = payload
        words, pair = b.group.lds.data.view(kind), values.view(kind)
        found = [
            atomic_lanes(words, both[..., at] // size, pair[..., at], lambda old, new: new, on[..., at])
            for at in (0, 1)
        ]
        put_dwords(b, row, np.stack(found, axis=-1).view(np.uint32), mask)

    def run(b: Batch) -> None:
        both = [address(b) for address in getters]
        lanes = [all_lanes(b, active(b, addresses, size)) for addresses in both]
        for addresses, on in zip(both, lanes, strict=True):
            aligned(addresses, size, on)
            note_lds(b, "atomic", addresses, size, on)
        values = np.concatenate([take_dwords(b, at, count) for at in data], axis=-1)
        poison(b, row, 2 * count)
        b.issue(b.ds, binder.inst, deliver, b.mask, np.stack(both, -1), values, np.stack(lanes, -1), size=-1)

    return run


@handles("ds_condxchg32_rtn_b64")
def bind_conditional_exchange(binder: Binder) -> Closure:
    """Two dwords: each is exchanged with the lower 31 bits of its operand where that has bit 31 set."""
    binder.need(3)
    row, data = binder.vector(0, 2), binder.vector(2, 2)
    address = address_getter(binder, 1, binder.take("offset", 0))

    def exchange(old: Any, new: Any) -> Any:
        return new & np.uint32(0x7FFFFFFF) if new >> np.uint32(31) else old

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        mask, addresses, values, on = payload
        words = b.group.lds.data.view(np.uint32)
        found = [atomic_lanes(words, addresses // 4 + at, values[..., at], exchange, on) for at in (0, 1)]
        put_dwords(b, row, np.stack(found, axis=-1), mask)

    def run(b: Batch) -> None:
        addresses = address(b) & ~7
        on = all_lanes(b, active(b, addresses, 8))
        note_lds(b, "atomic", addresses, 8, on)
        values = take_dwords(b, data, 2)
        poison(b, row, 2)
        b.issue(b.ds, binder.inst, deliver, b.mask, addresses, values, on, size=-1)

    return run


def m0_addresses(b: Batch, offset: int, step: int) -> Array:
    """M0 + offset + lane * step as int64 [waves, lanes]."""
    start = np.array(expand(b.s[M0], b.n), np.int64)[:, None] + offset
    return start + step * np.arange(b.group.lanes, dtype=np.int64)


@handles("ds_append", "ds_consume")
def bind_count(binder: Binder) -> Closure:
    """Add (append) or subtract the number of enabled lanes at M0 + offset; every lane gets the old value."""
    binder.need(1)
    row, offset = binder.vector(0, 1), binder.take("offset", 0)
    sign = 1 if binder.inst.base == "ds_append" else -1

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        mask, addresses, amounts = payload
        words = b.group.lds.data.view(np.uint32)
        old = np.zeros((b.n, b.group.lanes, 1), np.uint32)
        for wave in range(b.n):
            at = int(addresses[wave, 0]) // 4
            old[wave] = words[at]
            words[at] = (int(words[at]) + sign * int(amounts[wave])) & 0xFFFFFFFF
        put_dwords(b, row, old, mask)

    def run(b: Batch) -> None:
        addresses = m0_addresses(b, offset, 0)
        amounts = all_lanes(b, b.mask).sum(axis=1)
        first = np.zeros((b.n, b.group.lanes), bool)
        first[:, 0] = True
        b.group.lds.check(addresses, 4, first)
        aligned(addresses, 4, first)
        note_lds(b, "atomic", addresses, 4, first)
        poison(b, row, 1)
        b.issue(b.ds, binder.inst, deliver, b.mask, addresses, amounts, size=-1)

    return run


@handles("ds_read_addtid_b32")
def bind_read_by_lane(binder: Binder) -> Closure:
    """Read a dword at M0 + offset + 4 * lane."""
    binder.need(1)
    row, offset = binder.vector(0, 1), binder.take("offset", 0)

    def put(b: Batch, payload: tuple[Any, ...]) -> None:
        put_dwords(b, row, payload[1], payload[0])

    def read_now(b: Batch, payload: tuple[Any, ...]) -> Any:
        mask, addresses, on = payload
        return put, (mask, gather_block(b.group.lds.data, addresses, 4, on))

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        put(b, read_now(b, payload)[1])

    def run(b: Batch) -> None:
        addresses = m0_addresses(b, offset, 4)
        on = active(b, addresses, 4)
        note_lds(b, "read", addresses, 4, on)
        poison(b, row, 1)
        b.issue(b.ds, binder.inst, deliver, b.mask, addresses, on, early=read_now, size=4)

    return run


@handles("ds_write_addtid_b32")
def bind_write_by_lane(binder: Binder) -> Closure:
    """Write a dword at M0 + offset + 4 * lane."""
    binder.need(1)
    row, offset = binder.vector(0, 1), binder.take("offset", 0)

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        _, addresses, values, on = payload
        scatter_block(b.group.lds.data, addresses, values, 4, on)

    def run(b: Batch) -> None:
        addresses = m0_addresses(b, offset, 4)
        on = active(b, addresses, 4)
        values = take_dwords(b, row, 1)
        note_lds(b, "write", addresses, 4, on, values)
        b.issue(b.ds, binder.inst, deliver, b.mask, addresses, values, on, size=-1)

    return run


@handles("ds_nop")
def bind_ds_nop(binder: Binder) -> Closure:
    """An LDS instruction that does nothing but count."""
    binder.need(0)
    return lambda b: b.issue(b.ds, binder.inst, None, None)
