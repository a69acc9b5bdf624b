"""Global memory and LDS.

Global memory is a set of numpy buffers, each at a virtual 64-bit address with a gap around it, so that no 32-bit offset
from one reaches another. LDS is one byte array per workgroup.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from amdwarp.errors import EmulatorError, UsageError

Array = np.ndarray[Any, Any]

#: What registers and LDS hold before they are written, and the destination of a load between issue and wait: a NaN as
#: f32, in both halves as f16 and bf16, and in every byte as fp8 (e4m3 and e5m2); as an address it lies nowhere.
POISON = 0xFFFF7FFF

#: First virtual address: above 32 bits, within the 48 that a buffer descriptor holds.
_FIRST_BASE = 0x0100_0000_0000
#: Gap between buffers: more than any 32-bit offset plus immediate.
_GAP = 0x2_0000_0000

_WORD: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}


class Fault(Exception):
    """A lane's access that cannot be carried out.

    Args:
        problem: what is wrong.
        wave, lane: where in the batch (wave relative to the batch), or None where all are concerned.
    """

    def __init__(self, problem: str, wave: int | None = None, lane: int | None = None, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem, self.wave, self.lane, self.remedy = problem, wave, lane, remedy


@dataclass
class Buffer:
    """A contiguous block of the caller's memory at a virtual address."""

    base: int
    data: Array
    name: str
    writable: bool = True

    @property
    def end(self) -> int:
        """First address behind the buffer."""
        return self.base + self.data.nbytes

    def words(self, size: int) -> Array:
        """The block as words of `size` bytes (a trailing rest is left out)."""
        usable = self.data.nbytes // size * size
        words: Array = self.data[:usable].view(_WORD[size])
        return words


def as_bytes(array: Array, name: str) -> Array:
    """`array`'s own memory as a flat byte array, never a copy.

    Raises:
        UsageError: its elements do not lie in one contiguous block.
    """
    if array.size == 0:
        return np.empty(0, np.uint8)
    order = np.argsort([-abs(stride) for stride in array.strides], kind="stable")
    block = array.transpose(order)
    if not block.flags.c_contiguous:
        raise UsageError(
            f"{name} is no contiguous block of memory (shape {array.shape}, strides {array.strides})",
            remedy="pass its base array, or a copy made with numpy.ascontiguousarray",
        )
    flat: Array = block.reshape(-1).view(np.uint8)
    return flat


def _merge(blocks: list[Array]) -> Array:
    """One byte array over blocks that overlap each other, in order of their addresses; keeps their memory alive."""
    if len(blocks) == 1:
        return blocks[0]
    start = int(blocks[0].__array_interface__["data"][0])
    end = max(int(block.__array_interface__["data"][0]) + block.nbytes for block in blocks)
    # numpy makes an array of whatever offers this interface, and holds on to the object
    whole = SimpleNamespace(
        blocks=blocks,
        __array_interface__={
            "version": 3,
            "typestr": "|u1",
            "shape": (end - start,),
            "data": (start, not any(block.flags.writeable for block in blocks)),
        },
    )
    return np.asarray(whole)


class GlobalMemory:
    """Every buffer of a launch, with bounds checks."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self._bases: list[int] = []
        self._next = _FIRST_BASE

    def add(self, array: Array, name: str) -> int:
        """Make `array` visible; returns its virtual address."""
        data = as_bytes(array, name)
        buffer = Buffer(self._next, data, name, bool(data.flags.writeable))
        self._next += (data.nbytes + 0xFFFF) // 0x10000 * 0x10000 + _GAP
        self.buffers.append(buffer)
        self._bases.append(buffer.base)
        return buffer.base

    def add_all(self, arrays: list[tuple[Array, str]]) -> list[int]:
        """Add arrays; those that overlap in the caller's memory do so here. Addresses in the given order."""
        blocks = [as_bytes(array, name) for array, name in arrays]
        starts = [int(block.__array_interface__["data"][0]) for block in blocks]
        bases = [0] * len(arrays)
        group: list[int] = []
        end = -1
        for at in [*sorted(range(len(arrays)), key=starts.__getitem__), -1]:
            if group and (at < 0 or starts[at] >= end):
                merged = _merge([blocks[i] for i in group])
                base = self.add(merged, " and ".join(arrays[i][1] for i in group))
                for i in group:
                    bases[i] = base + starts[i] - starts[group[0]]
                group, end = [], -1
            if at >= 0:
                group.append(at)
                end = max(end, starts[at] + blocks[at].nbytes)
        return bases

    def find(self, address: int) -> Buffer | None:
        """The buffer that holds `address`, or None."""
        at = bisect_right(self._bases, address) - 1
        if at < 0 or address >= self.buffers[at].end:
            return None
        return self.buffers[at]

    def describe(self, address: int) -> str:
        """Where `address` lies relative to the nearest buffer."""
        at = bisect_right(self._bases, address) - 1
        if at < 0 or address - self.buffers[at].end > _GAP:
            return f"address {address:#x} lies far from every buffer"
        buffer = self.buffers[at]
        return f"address {address:#x} lies {address - buffer.end} bytes behind the end of {buffer.name}"

    def locate(self, addresses: Array, size: int, mask: Array | None) -> tuple[Buffer, Array] | None:
        """Find the one buffer that all active addresses fall into.

        Args:
            addresses: uint64 [waves, lanes].
            size: bytes read or written at each.
            mask: active lanes, or None for all.

        Returns:
            The buffer and the int64 offsets in it (garbage where inactive), or None if they fall into several.

        Raises:
            Fault: some active address lies outside every buffer.
        """
        active = addresses if mask is None else addresses[mask]
        low, high = int(active.min()), int(active.max())
        buffer = self.find(low)
        if buffer is not None and high + size <= buffer.end:
            return buffer, (addresses - np.uint64(buffer.base)).view(np.int64)
        self._check_lanes(addresses, size, mask)
        return None

    def _check_lanes(self, addresses: Array, size: int, mask: Array | None) -> None:
        on = np.ones(addresses.shape, bool) if mask is None else mask
        for wave, lane in zip(*np.nonzero(on), strict=True):
            address = int(addresses[wave, lane])
            buffer = self.find(address)
            if buffer is None or address + size > buffer.end:
                problem = self.describe(address if buffer is None else address + size - 1)
                raise Fault(f"{size} bytes at {address:#x} are outside every buffer: {problem}", int(wave), int(lane))

    def gather(self, addresses: Array, size: int, mask: Array | None) -> Array:
        """Read `size` bytes (1, 2, 4, 8, 12, 16) at each address.

        Returns:
            uint32 [waves, lanes, dwords] (bytes and shorts zero-extended); zeros where inactive.

        Raises:
            Fault: some active address lies outside every buffer.
        """
        shape = addresses.shape
        if mask is not None and not mask.any():
            return np.zeros((*shape, max(1, size // 4)), np.uint32)
        found = self.locate(addresses, size, mask)
        if found is None:
            out = np.zeros((*shape, max(1, size // 4)), np.uint32)
            for buffer, inside in self._split(addresses, mask):
                part = gather_block(buffer.data, (addresses - np.uint64(buffer.base)).view(np.int64), size, inside)
                out[inside] = part[inside]
            return out
        return gather_block(found[0].data, found[1], size, mask)

    def _split(self, addresses: Array, mask: Array | None) -> list[tuple[Buffer, Array]]:
        """(buffer, lanes inside it) for every buffer touched."""
        on = np.ones(addresses.shape, bool) if mask is None else mask
        pieces = []
        for buffer in self.buffers:
            inside = on & (addresses >= np.uint64(buffer.base)) & (addresses < np.uint64(buffer.end))
            if inside.any():
                pieces.append((buffer, inside))
        return pieces

    def scatter(self, addresses: Array, values: Array, size: int, mask: Array | None) -> None:
        """Write the low `size` bytes of uint32 [waves, lanes, dwords] `values`; a later lane wins over an earlier one.

        Raises:
            Fault: some active address lies outside every buffer, or in a read-only one.
        """
        if mask is not None and not mask.any():
            return
        found = self.locate(addresses, size, mask)
        pieces = [(found[0], mask)] if found is not None else self._split(addresses, mask)
        for buffer, lanes in pieces:
            if not buffer.writable:
                raise Fault(f"{buffer.name} is read-only", remedy="pass a writeable array")
            scatter_block(buffer.data, (addresses - np.uint64(buffer.base)).view(np.int64), values, size, lanes)

    def read_scalar(self, address: int, dwords: int) -> list[int]:
        """`dwords` dwords at `address`, for scalar loads.

        Raises:
            Fault: they lie outside every buffer.
        """
        buffer = self.find(address)
        if buffer is None or address + 4 * dwords > buffer.end:
            raise Fault(f"a scalar load of {dwords} dwords: {self.describe(address)}")
        at = address - buffer.base
        return [int(word) for word in buffer.data[at : at + 4 * dwords].view(np.uint32)]

    def bytes_at(self, address: int, size: int) -> tuple[Buffer, int]:
        """The buffer and offset of `size` bytes at `address`.

        Raises:
            EmulatorError: they lie outside every buffer.
        """
        buffer = self.find(address)
        if buffer is None or address + size > buffer.end:
            raise EmulatorError(self.describe(address))
        return buffer, address - buffer.base


def _granule(offsets: Array, size: int, mask: Array | None) -> int:
    """The widest word that divides `size` and every active offset."""
    if size == 1:
        return 1
    merged = int(np.bitwise_or.reduce(offsets, axis=None)) if mask is None else int(np.bitwise_or.reduce(offsets[mask]))
    merged |= size | 16
    return merged & -merged


def gather_block(data: Array, offsets: Array, size: int, mask: Array | None) -> Array:
    """Read `size` bytes of the flat byte array `data` at every active int64 offset [waves, lanes].

    Returns:
        uint32 [waves, lanes, dwords]; zeros where inactive.
    """
    word = _granule(offsets, size, mask)
    at = offsets if mask is None else np.where(mask, offsets, 0)
    usable = data[: data.nbytes // word * word].view(_WORD[word])
    if usable.size == 0:
        return np.zeros((*offsets.shape, max(1, size // 4)), np.uint32)
    index = at >> (word.bit_length() - 1) if word > 1 else at
    if size == word:
        raw = usable.take(index)
    else:
        raw = usable.take(index[..., None] + np.arange(size // word))
    if size < 4:
        out: Array = _narrow(raw, word, size)[..., None]
    else:
        out = raw.reshape(*offsets.shape, size // word).view(np.uint32)
    if mask is not None:
        out = np.where(mask[..., None], out, np.uint32(0))
    return out


def _narrow(raw: Array, word: int, size: int) -> Array:
    if word == size:
        return raw.astype(np.uint32)
    low, high = raw[..., 0].astype(np.uint32), raw[..., 1].astype(np.uint32)
    joined: Array = low | high << np.uint32(8)
    return joined


def scatter_block(data: Array, offsets: Array, values: Array, size: int, mask: Array | None) -> None:
    """Write the low `size` bytes of uint32 `values` [waves, lanes, dwords] at every active offset of `data`."""
    word = _granule(offsets, size, mask)
    if mask is not None:
        offsets, values = offsets[mask], values[mask]
    usable = data[: data.nbytes // word * word].view(_WORD[word])
    index = offsets >> (word.bit_length() - 1) if word > 1 else offsets
    if size < 4:
        parts = np.ascontiguousarray(values[..., 0]).view(np.uint8).reshape(*index.shape, 4)[..., :size]
        parts = np.ascontiguousarray(parts).view(_WORD[word])
    else:
        parts = np.ascontiguousarray(values).view(_WORD[word])
    if size == word:
        usable[index] = parts[..., 0]
    else:
        usable[index[..., None] + np.arange(size // word)] = parts


class Lds:
    """A workgroup's local memory, poisoned until written."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.data: Array = np.empty((size + 15) // 16 * 16, np.uint8)
        self.reset()

    def reset(self) -> None:
        """Poison everything, for the next workgroup."""
        self.data.view(np.uint32)[:] = POISON

    def check(self, addresses: Array, size: int, mask: Array | None) -> None:
        """Raise a Fault if `size` bytes at some active address (int64 [waves, lanes]) leave the allocation."""
        active = addresses if mask is None else addresses[mask]
        if active.size and (int(active.max()) + size > self.size or int(active.min()) < 0):
            bad = (addresses + size > self.size) | (addresses < 0)
            if mask is not None:
                bad &= mask
            wave, lane = (int(axis[0]) for axis in np.nonzero(bad))
            raise Fault(
                f"LDS address {int(addresses[wave, lane]):#x} + {size} is outside the workgroup's {self.size} bytes",
                wave,
                lane,
            )
