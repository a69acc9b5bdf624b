"""Atomics on global memory: read-modify-write at issue, lane after lane; vmcnt covers the returned value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from amdwarp.asm import Register
from amdwarp.emulator.bind import Binder, handles
from amdwarp.emulator.ds import all_lanes, atomic_lanes, poison, put_dwords, take_dwords
from amdwarp.emulator.floats import bf16_bits, bf16_value
from amdwarp.emulator.memory import Fault
from amdwarp.emulator.state import Batch, Closure
from amdwarp.emulator.vmem import Locator, buffer_locator, flat_locator, global_locator, note, operand_count

#: tail: (numpy type, function of old value and operand)
ATOMICS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "add": ("u4", np.add),
    "sub": ("u4", np.subtract),
    "smin": ("i4", np.minimum),
    "umin": ("u4", np.minimum),
    "smax": ("i4", np.maximum),
    "umax": ("u4", np.maximum),
    "and": ("u4", np.bitwise_and),
    "or": ("u4", np.bitwise_or),
    "xor": ("u4", np.bitwise_xor),
    "swap": ("u4", lambda old, new: new),
    "inc": ("u4", lambda old, top: np.uint32(0) if old >= top else old + np.uint32(1)),
    "dec": ("u4", lambda old, top: top if old == 0 or old > top else old - np.uint32(1)),
    "inc_x2": ("u8", lambda old, top: np.uint64(0) if old >= top else old + np.uint64(1)),
    "dec_x2": ("u8", lambda old, top: top if old == 0 or old > top else old - np.uint64(1)),
    "add_x2": ("u8", np.add),
    "sub_x2": ("u8", np.subtract),
    "smin_x2": ("i8", np.minimum),
    "umin_x2": ("u8", np.minimum),
    "smax_x2": ("i8", np.maximum),
    "umax_x2": ("u8", np.maximum),
    "and_x2": ("u8", np.bitwise_and),
    "or_x2": ("u8", np.bitwise_or),
    "xor_x2": ("u8", np.bitwise_xor),
    "swap_x2": ("u8", lambda old, new: new),
    "add_f32": ("f4", np.add),
    "add_f64": ("f8", np.add),
    "min_f64": ("f8", lambda old, new: new if new < old else old),
    "max_f64": ("f8", lambda old, new: new if new > old else old),
    "min_num_f32": ("f4", np.fmin),
    "max_num_f32": ("f4", np.fmax),
    "pk_add_f16": ("u4", lambda old, new: packed_add(old, new, np.float16)),
    "pk_add_bf16": ("u4", lambda old, new: packed_add(old, new, None)),
    "cmpswap": ("u4", lambda old, pair: pair[0] if old == pair[1] else old),
    "cmpswap_x2": ("u8", lambda old, pair: pair[0] if old == pair[1] else old),
}


def packed_add(old: Any, new: Any, dtype: Any) -> Any:
    """Two dwords added as pairs of f16, or of bf16 where `dtype` is None."""
    pair = np.array([old, new], np.uint32)
    if dtype is not None:
        halves = pair.view(dtype).reshape(2, 2)
        return (halves[0] + halves[1]).astype(dtype).view(np.uint32)[0]
    values = bf16_value(pair.view(np.uint16).reshape(2, 2))
    bits = bf16_bits(values[0] + values[1])
    return np.uint32(bits[0] | bits[1] << np.uint32(16))


def bind_atomic(binder: Binder, tail: str, locator: Locator, data: int, target: int | None) -> Closure:
    """Read-modify-write lane after lane; with sc0 (glc) the old value is returned."""
    kind, function = ATOMICS[tail]
    size = int(kind[1])
    count = size // 4
    compare = tail.startswith("cmpswap")
    source = binder.vector(data, 2 * count if compare else count)
    row = None if target is None else binder.vector(target, count)

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        if row is not None:
            put_dwords(b, row, payload[1], payload[0])

    def run(b: Batch) -> None:
        located = locator(b, size)
        addresses, on, _ = located
        lanes = all_lanes(b, on)
        values = take_dwords(b, source, 2 * count if compare else count).view(kind)
        operand = values if compare else values[..., 0]
        note(b, "atomic", located, size)
        old = np.zeros((b.n, b.group.lanes), kind)
        if lanes.any():
            found = b.group.memory.locate(addresses, size, lanes)
            if found is None:
                raise Fault("an atomic touches several buffers at once")
            buffer, offsets = found
            if np.any(offsets[lanes] % size):
                raise Fault(f"an atomic needs addresses that are multiples of {size}")
            old = atomic_lanes(buffer.words(size).view(kind), offsets // size, operand, function, lanes)
        if row is not None:
            poison(b, row, count)
        b.issue(b.stores if row is None else b.vm, binder.inst, deliver, b.mask, old[..., None].view(np.uint32))

    return run


def _returns(binder: Binder) -> bool:
    """True if the old value is asked for."""
    policy = binder.inst.modifier("th")
    return binder.inst.has("sc0") or binder.inst.has("glc") or (isinstance(policy, str) and "RETURN" in policy)


@handles(*(f"global_atomic_{tail}" for tail in ATOMICS))
def bind_global_atomic(binder: Binder) -> Closure:
    """Global atomic: (result), address, data, base."""
    returns = _returns(binder)
    first = 1 if returns else 0
    operand_count(binder, 3 + first)
    ops = binder.ops
    binder.ops = (*ops[:first], ops[first], ops[first + 2], ops[first + 1])
    tail = binder.inst.base[len("global_atomic_") :]
    return bind_atomic(binder, tail, global_locator(binder, first), first + 2, 0 if returns else None)


@handles(*(f"buffer_atomic_{tail}" for tail in ATOMICS))
def bind_buffer_atomic(binder: Binder) -> Closure:
    """Buffer atomic: data (also the result), address, resource, offset."""
    returns = _returns(binder)
    operand_count(binder, 4)
    tail = binder.inst.base[len("buffer_atomic_") :]
    if returns and tail.startswith("cmpswap"):
        op = binder.ops[0]
        assert isinstance(op, Register)
        binder.ops = (*binder.ops, Register(op.kind, op.index, op.count // 2))
        return bind_atomic(binder, tail, buffer_locator(binder, 1), 0, 4)
    return bind_atomic(binder, tail, buffer_locator(binder, 1), 0, 0 if returns else None)


@handles(*(f"flat_atomic_{tail}" for tail in ATOMICS))
def bind_flat_atomic(binder: Binder) -> Closure:
    """Flat atomic on global memory: (result), address, data."""
    returns = _returns(binder)
    first = 1 if returns else 0
    operand_count(binder, 2 + first)
    tail = binder.inst.base[len("flat_atomic_") :]
    return bind_atomic(binder, tail, flat_locator(binder, first), first + 1, 0 if returns else None)
