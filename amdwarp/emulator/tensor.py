"""Tensor copies of gfx1250: a wave moves a tile of up to five dimensions between global memory and LDS.

The descriptor stands in scalar registers. Group 0 (4 dwords): bits 0-1 count (0: nothing is moved), dword 1 the LDS
address, dwords 2-3 the global address (57 bits) and in bits 30-31 the type 2. Group 1 (8 dwords): bits 0-15 multicast
mask, 16-17 log2 of the element's bytes, 18 barrier, 19 iteration, 20 padding, 22-24 log2 of the pad interval in dwords
minus 1, 25-31 pad amount in dwords minus 1, 32-47 LDS address of the barrier object divided by 8; from bit 48 on tensor
sizes 0 and 1 (32 bits each), tile sizes 0, 1 and 2 (16 bits each), strides 0 and 1 (48 bits each, in elements; the
innermost stride is 1). Groups 2 and 3 (4 dwords each): tensor sizes 2 and 3, stride 2 (48 bits), tile size 3; stride 3
(48 bits), tensor size 4, tile size 4. After the description of these fields in Triton's lowering for gfx1250.

Bit 31 of group 0 makes the second dimension a list of rows (gather, scatter), which groups 2 and 3 hold: up to 16
numbers of 16 bits, or with bit 30 up to 8 of 32; tile size 1 is how many. As Triton's compiled kernels fill it.

Sizes count from the tile's own start: what lies beyond reads as 0 and is not stored. A dimension with tile size 0 does
not exist. Loads put the pad amount behind every pad interval of LDS bytes; stores do not skip it (Triton widens their
tile by the padding, which then lies beyond the tensor). A load's LDS bytes hold poison until the TENSORcnt wait. A
store reads LDS at issue and again at the wait, and stores poison where the two differ. Which lanes are on does not
matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from amdwarp.asm import Symbol
from amdwarp.emulator.bind import Binder, handles
from amdwarp.emulator.mbarrier import arrive
from amdwarp.emulator.memory import POISON, Array, Fault, gather_block, scatter_block
from amdwarp.emulator.state import Batch, Closure, expand
from amdwarp.emulator.vmem import operand_count

_TYPE = 2
_ITERATE, _BARRIER = 1 << 19, 1 << 18
_BY_ROWS, _WIDE_ROWS = 1 << 31, 1 << 30


def _field(words: list[int], start: int, bits: int) -> int:
    """`bits` bits from bit `start` of consecutive dwords."""
    whole = sum(word << 32 * at for at, word in enumerate(words))
    return whole >> start & (1 << bits) - 1


@dataclass(frozen=True)
class Tile:
    """A decoded descriptor; lists run from the innermost dimension outwards.

    Attributes:
        size: bytes of an element.
        sizes, tile, strides: tensor sizes behind the tile's start, tile sizes, strides (all in elements).
        interval, amount: padding in bytes; 0 for none.
        barrier: LDS address of the barrier object that the completed copy arrives on, or None.
        rows: what the second dimension's positions stand for, or None where they count up.
    """

    lds: int
    address: int
    size: int
    sizes: tuple[int, ...]
    tile: tuple[int, ...]
    strides: tuple[int, ...]
    interval: int
    amount: int
    barrier: int | None
    rows: tuple[int, ...] | None = None

    def elements(self) -> tuple[Array, Array]:
        """(offset in global memory in bytes, inside the tensor) of every element of the tile, flat."""
        offset: Array = np.zeros(1, np.int64)
        inside: Array = np.ones(1, bool)
        for axis, (size, tile, stride) in enumerate(zip(self.sizes, self.tile, self.strides, strict=True)):
            at = np.arange(tile) if axis != 1 or self.rows is None else np.array(self.rows, np.int64)
            offset = (at[:, None] * stride + offset[None, :]).reshape(-1)
            inside = ((at < size)[:, None] & inside[None, :]).reshape(-1)
        return offset * self.size, inside

    def places(self, *, padded: bool) -> Array:
        """LDS address of every element, flat."""
        at = np.arange(int(np.prod(self.tile)), dtype=np.int64) * self.size
        if self.amount and padded:
            at += at // self.interval * self.amount
        return at + self.lds


def decode(words: list[int]) -> Tile | None:
    """The tile that descriptor groups (12 or 20 dwords) describe; None where there is nothing to move.

    Raises:
        Fault: the descriptor is malformed, or uses what is not known.
    """
    group0, group1, rest = words[:4], words[4:12], words[12:]
    if group0[0] & 3 == 0:
        return None
    if group0[3] >> 30 != _TYPE:
        raise Fault(f"the tensor descriptor has type {group0[3] >> 30}, not {_TYPE}")
    if group0[0] & ~(3 | _BY_ROWS | _WIDE_ROWS):
        raise Fault(f"the tensor descriptor's first dword {group0[0]:#x} asks for a mode that is not known")
    flags = group1[0]
    if flags & _ITERATE or flags & 0xFFFF:
        raise Fault("iteration and multicast of tensor copies are not known")
    sizes = [_field(group1, 48, 32), _field(group1, 80, 32)]
    tile = [_field(group1, at, 16) for at in (112, 128, 144)]
    strides = [1, _field(group1, 160, 48), _field(group1, 208, 48)]
    rows = _rows(group0[0], tile, rest) if group0[0] & _BY_ROWS else None
    if rows is not None:
        tile[2] = 0
    elif rest:
        group2, group3 = rest[:4], rest[4:8]
        sizes += [group2[0], group2[1], _field(group3, 48, 32)]
        tile += [_field(group2, 112, 16), _field(group3, 80, 16)]
        strides += [_field(group2, 64, 48), _field(group3, 0, 48)]
    used = 0
    while used < len(tile) and tile[used]:
        used += 1
    if any(tile[used:]):
        raise Fault(f"the tensor descriptor has tile sizes {tile} with a gap")
    if used > len(sizes):
        raise Fault("a tile of three dimensions needs descriptor groups 2 and 3")
    interval = 4 << (flags >> 22 & 7) + 1 if flags >> 20 & 1 else 0
    amount = 4 * ((flags >> 25) + 1) if interval else 0
    return Tile(
        lds=group0[1],
        address=group0[2] | (group0[3] & 0x1FFFFFF) << 32,
        size=1 << (flags >> 16 & 3),
        sizes=tuple(sizes[:used]),
        tile=tuple(tile[:used]),
        strides=tuple(strides[:used]),
        interval=interval,
        amount=amount,
        barrier=8 * (group1[1] & 0xFFFF) if flags & _BARRIER else None,
        rows=rows,
    )


def _rows(first: int, tile: list[int], words: list[int]) -> tuple[int, ...]:
    """The row numbers of a gather or scatter."""
    bits = 32 if first & _WIDE_ROWS else 16
    if not words or not 0 < tile[1] <= 256 // bits:
        raise Fault(f"a list of {tile[1]} rows does not stand in the tensor descriptor")
    return tuple(_field(words, bits * at, bits) for at in range(tile[1]))


def _reader(binder: Binder) -> Any:
    """Function that gives the tiles of the waves of a batch."""
    groups = [op for op in binder.ops if op != Symbol("null")]
    if len(groups) not in (2, 4) or groups != list(binder.ops[: len(groups)]):
        raise binder.fail("two or four descriptor groups expected")
    starts = [(binder.scalar(at, count), count) for at, count in enumerate((4, 8, 4, 4)[: len(groups)])]

    def read(b: Batch) -> list[Tile | None]:
        rows = [expand(b.s[start + at], b.n) for start, count in starts for at in range(count)]
        return [decode([row[wave] for row in rows]) for wave in range(b.n)]

    return read


#: What one wave moves: LDS addresses, global addresses, elements inside the tensor, values (all flat), element bytes,
#: barrier object.
Piece = tuple[Array, Array, Array, Array, int, int | None]


def _piece(b: Batch, wave: int, tile: Tile, *, load: bool) -> Piece:
    offsets, inside = tile.elements()
    places = tile.places(padded=load)
    addresses = (offsets + tile.address).view(np.uint64)
    try:
        b.group.lds.check(places[None], tile.size, None if load else inside[None])
        if load:
            values = b.group.memory.gather(addresses[None], tile.size, inside[None])
        else:
            values = gather_block(b.group.lds.data, places[None], tile.size, inside[None])
    except Fault as fault:
        raise Fault(fault.problem, wave, None, fault.remedy) from None
    return places, addresses, inside, values[0], tile.size, tile.barrier


def _note(b: Batch, pieces: list[Piece | None], *, load: bool) -> None:
    """Report the accesses: one element a column, padded to the longest tile."""
    recorder = b.group.recorder
    known = [piece for piece in pieces if piece is not None]
    if recorder is None or not known:
        return
    size, longest = known[0][4], max(len(piece[0]) for piece in known)
    places = np.zeros((b.n, longest), np.int64)
    addresses = np.zeros((b.n, longest), np.uint64)
    inside, there = np.zeros((b.n, longest), bool), np.zeros((b.n, longest), bool)
    values = np.zeros((b.n, longest, known[0][3].shape[-1]), np.uint32)
    for wave, piece in enumerate(pieces):
        if piece is not None:
            count = len(piece[0])
            places[wave, :count], addresses[wave, :count], inside[wave, :count] = piece[:3]
            there[wave, :count], values[wave, :count] = True, piece[3]
    recorder.access("global", "read" if load else "write", addresses, size, inside, None, None if load else values)
    if load:
        recorder.access("lds", "write", places, size, there, there & ~inside, values)
    else:
        recorder.access("lds", "read", places, size, inside)
    barriers = [-1 if piece is None or piece[5] is None else piece[5] for piece in pieces]
    if max(barriers) >= 0:
        column = np.array(barriers, np.int64)[:, None]
        recorder.access("lds", "atomic", column, 8, column >= 0)


def _notify(b: Batch, at: int, piece: Piece) -> None:
    if piece[5] is not None:
        arrive(b.group, piece[5], 1)
        if b.group.recorder is not None:
            b.group.recorder.notified(piece[5], b.first + at, 1)


@handles("tensor_load_to_lds")
def bind_tensor_load(binder: Binder) -> Closure:
    """Copy a tile to LDS."""
    operand_count(binder, len(binder.ops))
    read = _reader(binder)

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        for at, piece in enumerate(payload[1]):
            if piece is not None:
                scatter_block(b.group.lds.data, piece[0][None], piece[3][None], piece[4], None)
                _notify(b, at, piece)

    def run(b: Batch) -> None:
        tiles = read(b)
        pieces = [None if tile is None else _piece(b, at, tile, load=True) for at, tile in enumerate(tiles)]
        _note(b, pieces, load=True)
        if b.ds and any(piece is not None for piece in pieces):
            b.settle_reads(*_span(pieces))
        for piece in pieces:
            if piece is not None:
                poison = np.full_like(piece[3], POISON)
                scatter_block(b.group.lds.data, piece[0][None], poison[None], piece[4], None)
        b.issue(b.tensor, binder.inst, deliver, None, tuple(pieces))
        b.tensor[-1].notifies = any(piece is not None and piece[5] is not None for piece in pieces)

    return run


def _span(pieces: list[Piece | None]) -> tuple[Array, Array]:
    low = [np.int64(1) << 40 if piece is None else piece[0].min() for piece in pieces]
    high = [np.int64(0) if piece is None else piece[0].max() + piece[4] for piece in pieces]
    return np.array(low, np.int64), np.array(high, np.int64)


@handles("tensor_store_from_lds")
def bind_tensor_store(binder: Binder) -> Closure:
    """Copy a tile from LDS."""
    operand_count(binder, len(binder.ops))
    read = _reader(binder)

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        for at, piece in enumerate(payload[1]):
            if piece is not None:
                places, addresses, inside, early, size, _ = piece
                late = gather_block(b.group.lds.data, places[None], size, inside[None])[0]
                values = np.where(early == late, early, np.uint32(POISON))
                b.group.memory.scatter(addresses[None], values[None], size, inside[None])
                _notify(b, at, piece)

    def run(b: Batch) -> None:
        tiles = read(b)
        pieces = [None if tile is None else _piece(b, at, tile, load=False) for at, tile in enumerate(tiles)]
        _note(b, pieces, load=False)
        b.issue(b.tensor, binder.inst, deliver, None, tuple(pieces))
        b.tensor[-1].notifies = any(piece is not None and piece[5] is not None for piece in pieces)

    return run
