"""Scalar memory loads. They return out of order, so that only lgkmcnt(0) delivers them."""

from __future__ import annotations

from typing import Any

from amdwarp.asm import Immediate, Register
from amdwarp.emulator.bind import Binder, handles
from amdwarp.emulator.memory import POISON
from amdwarp.emulator.state import Batch, Closure, expand, merge

_DWORDS = {"dword": 1, "dwordx2": 2, "b96": 3, "dwordx4": 4, "dwordx8": 8, "dwordx16": 16}


def poison_scalars(b: Batch, first: int, count: int) -> None:
    """Mark scalar registers whose value is still on its way."""
    for at in range(first, first + count):
        b.s[at] = POISON


@handles(*(f"s_load_{size}" for size in _DWORDS), *(f"s_buffer_load_{size}" for size in _DWORDS))
def bind_scalar_load(binder: Binder) -> Closure:
    """Load consecutive dwords; the address is base plus offset (register, constant or both), cut to 4 bytes."""
    name = binder.inst.base
    count = _DWORDS[name.rsplit("_", 1)[1]]
    binder.need(3)
    first = binder.scalar(0, count)
    buffer = name.startswith("s_buffer")
    base_at = binder.scalar(1, 4 if buffer else 2)
    extra = binder.take("offset", 0)
    binder.ignore("glc", "nv", "scope", "th")
    scale = 4 * count if binder.flag("scale_offset") else 1
    op = binder.ops[2]
    if isinstance(op, Immediate):
        constant, scale = int(op.value), 1
        offset: Any = lambda b: constant  # noqa: E731
    elif isinstance(op, Register):
        offset = binder.scalar_source(2)
    else:
        raise binder.fail("operand 3 must be an offset")
    if buffer and binder.wide_target:
        raise binder.fail("buffer resources in scalar loads are not known for gfx1250")
    mask = 0xFFFFFFFFFFFF if buffer else 0xFFFFFFFFFFFFFFFF

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        for at, values in enumerate(zip(*payload[1], strict=True)):
            b.s[first + at] = merge(values)

    def run(b: Batch) -> None:
        bases, offsets = expand(b.pair(base_at), b.n), expand(offset(b), b.n)
        addresses = [((x & mask) + y * scale + extra) & ~3 for x, y in zip(bases, offsets, strict=True)]
        if min(addresses) == max(addresses):
            words = tuple(b.group.memory.read_scalar(addresses[0], count))
            rows: tuple[tuple[int, ...], ...] = (words,) * b.n
        else:
            rows = tuple(tuple(b.group.memory.read_scalar(address, count)) for address in addresses)
        poison_scalars(b, first, count)
        b.issue(b.sm, binder.inst, deliver, None, rows)
        if b.group.recorder is not None:
            b.group.recorder.access("scalar", "read", tuple(addresses), 4 * count, None)

    return run


#: Narrow loads of gfx1250: (bytes, sign-extended).
_NARROW = {"u8": (1, False), "i8": (1, True), "u16": (2, False), "i16": (2, True)}


@handles(*(f"s_load_{kind}" for kind in _NARROW))
def bind_narrow_load(binder: Binder) -> Closure:
    """Load a byte or short, extended to a register."""
    binder.need(3)
    size, is_signed = _NARROW[binder.inst.base.rsplit("_", 1)[1]]
    first, base_at, extra = binder.scalar(0, 1), binder.scalar(1, 2), binder.take("offset", 0)
    binder.ignore("nv", "scope", "th")
    offset, scale = binder.scalar_source(2), size if binder.flag("scale_offset") else 1
    if isinstance(binder.ops[2], Immediate):
        scale = 1

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        b.s[first] = merge(payload[1])

    def run(b: Batch) -> None:
        bases, offsets = expand(b.pair(base_at), b.n), expand(offset(b), b.n)
        addresses = [x + y * scale + extra for x, y in zip(bases, offsets, strict=True)]
        values = []
        for address in addresses:
            buffer, at = b.group.memory.bytes_at(address, size)
            whole = int.from_bytes(buffer.data[at : at + size].tobytes(), "little", signed=is_signed)
            values.append(whole & 0xFFFFFFFF)
        poison_scalars(b, first, 1)
        b.issue(b.sm, binder.inst, deliver, None, tuple(values))
        if b.group.recorder is not None:
            b.group.recorder.access("scalar", "read", tuple(addresses), size, None)

    return run


@handles("s_memtime", "s_memrealtime")
def bind_time(binder: Binder) -> Closure:
    """A clock: the number of instructions the wave has executed."""
    binder.need(1)
    first = binder.scalar(0, 2)

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        b.s[first], b.s[first + 1] = payload[1] & 0xFFFFFFFF, payload[1] >> 32

    def run(b: Batch) -> None:
        poison_scalars(b, first, 2)
        b.issue(b.sm, binder.inst, deliver, None, b.count)

    return run
