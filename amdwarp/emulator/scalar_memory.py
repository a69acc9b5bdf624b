"""Scalar stores and atomics, and scalar scratch loads. They count in lgkmcnt; memory changes at issue.

The value that an atomic returns (glc) stands in the registers of its data and comes with lgkmcnt(0).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdwarp.asm import Immediate, Register
from amdwarp.emulator.bind import Binder, Getter, handles
from amdwarp.emulator.memory import Fault
from amdwarp.emulator.salu import signed
from amdwarp.emulator.smem import poison_scalars
from amdwarp.emulator.state import Batch, Closure, expand, merge

_DWORDS = {"dword": 1, "dwordx2": 2, "dwordx4": 4}


def scalar_addresses(binder: Binder, at: int) -> Callable[[Batch], list[int]]:
    """Addresses of the waves from base and offset operands `at` and `at` + 1, cut to 4 bytes."""
    buffer = "_buffer_" in binder.inst.base
    base_at = binder.scalar(at, 4 if buffer else 2)
    extra = binder.take("offset", 0)
    unit = 64 if "_scratch_" in binder.inst.base else 1
    binder.ignore("nv")
    op = binder.ops[at + 1]
    scaled = unit if isinstance(op, Register) else 1
    offset: Getter
    if isinstance(op, Immediate):
        constant = int(op.value)
        offset = lambda b: constant  # noqa: E731
    elif isinstance(op, Register):
        offset = binder.scalar_source(at + 1)
    else:
        raise binder.fail(f"operand {at + 2} must be an offset")
    mask = 0xFFFFFFFFFFFF if buffer else 0xFFFFFFFFFFFFFFFF

    def addresses(b: Batch) -> list[int]:
        bases, offsets = expand(b.pair(base_at), b.n), expand(offset(b), b.n)
        return [((x & mask) + scaled * y + extra) & ~3 for x, y in zip(bases, offsets, strict=True)]

    return addresses


def _write(b: Batch, address: int, words: list[int]) -> None:
    buffer, at = b.group.memory.bytes_at(address, 4 * len(words))
    if not buffer.writable:
        raise Fault(f"{buffer.name} is read-only", remedy="pass a writeable array")
    for step, word in enumerate(words):
        buffer.data[at + 4 * step : at + 4 * step + 4] = list(word.to_bytes(4, "little"))


def _note(b: Batch, kind: str, addresses: list[int], size: int) -> None:
    if b.group.recorder is not None:
        b.group.recorder.access("scalar", kind, tuple(addresses), size, None)


@handles(*(f"{kind}_store_{size}" for kind in ("s", "s_buffer", "s_scratch") for size in _DWORDS))
def bind_scalar_store(binder: Binder) -> Closure:
    """Store consecutive dwords."""
    count = _DWORDS[binder.inst.base.rsplit("_", 1)[1]]
    binder.need(3)
    first, addresses_of = binder.scalar(0, count), scalar_addresses(binder, 1)
    binder.ignore("glc")

    def run(b: Batch) -> None:
        addresses = addresses_of(b)
        values = [expand(b.s[first + at], b.n) for at in range(count)]
        _note(b, "write", addresses, 4 * count)
        for wave, address in enumerate(addresses):
            _write(b, address, [value[wave] for value in values])
        b.issue(b.sm, binder.inst, None, None)

    return run


@handles(*(f"s_scratch_load_{size}" for size in _DWORDS))
def bind_scalar_scratch_load(binder: Binder) -> Closure:
    """Load consecutive dwords; a register offset counts in units of 64 bytes."""
    count = _DWORDS[binder.inst.base.rsplit("_", 1)[1]]
    binder.need(3)
    first, addresses_of = binder.scalar(0, count), scalar_addresses(binder, 1)
    binder.ignore("glc")

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        for at, values in enumerate(zip(*payload[1], strict=True)):
            b.s[first + at] = merge(values)

    def run(b: Batch) -> None:
        addresses = addresses_of(b)
        rows = tuple(tuple(b.group.memory.read_scalar(address, count)) for address in addresses)
        _note(b, "read", addresses, 4 * count)
        poison_scalars(b, first, count)
        b.issue(b.sm, binder.inst, deliver, None, rows)

    return run


#: operation: function of old value, operand and width in bits
OPERATIONS: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda old, new, bits: old + new,
    "sub": lambda old, new, bits: old - new,
    "and": lambda old, new, bits: old & new,
    "or": lambda old, new, bits: old | new,
    "xor": lambda old, new, bits: old ^ new,
    "swap": lambda old, new, bits: new,
    "umin": lambda old, new, bits: min(old, new),
    "umax": lambda old, new, bits: max(old, new),
    "smin": lambda old, new, bits: min(signed(old, bits), signed(new, bits)),
    "smax": lambda old, new, bits: max(signed(old, bits), signed(new, bits)),
    "inc": lambda old, new, bits: 0 if old >= new else old + 1,
    "dec": lambda old, new, bits: new if old == 0 or old > new else old - 1,
}
_NAMES = [
    f"{kind}_atomic_{name}{tail}"
    for kind in ("s", "s_buffer")
    for name in (*OPERATIONS, "cmpswap")
    for tail in ("", "_x2")
]


@handles(*_NAMES)
def bind_scalar_atomic(binder: Binder) -> Closure:
    """Read-modify-write, wave after wave; cmpswap has the new value before the one it compares with."""
    binder.need(3)
    base = binder.inst.base
    bits = 64 if base.endswith("_x2") else 32
    name = base.split("_atomic_")[1].removesuffix("_x2")
    words = bits // 32
    compares = name == "cmpswap"
    first = binder.scalar(0, 2 * words if compares else words)
    addresses_of, returns = scalar_addresses(binder, 1), binder.flag("glc")
    mask = (1 << bits) - 1

    def change(old: int, data: list[int]) -> int:
        if compares:
            return data[0] if old == data[1] else old
        return OPERATIONS[name](old, data[0], bits) & mask

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        for at in range(words):
            b.s[first + at] = merge([old >> 32 * at & 0xFFFFFFFF for old in payload[1]])

    def run(b: Batch) -> None:
        addresses, found = addresses_of(b), []
        _note(b, "atomic", addresses, bits // 8)
        for wave, address in enumerate(addresses):
            if address % (bits // 8):
                raise Fault(f"a scalar atomic needs addresses that are multiples of {bits // 8}")
            raw = [expand(b.s[first + at], b.n)[wave] for at in range(words * (1 + compares))]
            data = [sum(raw[words * part + at] << 32 * at for at in range(words)) for part in range(1 + compares)]
            old = sum(word << 32 * at for at, word in enumerate(b.group.memory.read_scalar(address, words)))
            new = change(old, data)
            _write(b, address, [new >> 32 * at & 0xFFFFFFFF for at in range(words)])
            found.append(old)
        if returns:
            poison_scalars(b, first, words)
        b.issue(b.sm, binder.inst, deliver if returns else None, None, tuple(found))

    return run
