"""Structured and swizzled buffer addresses.

After the AMD CDNA3 instruction set manual, chapter "Buffer addressing": with a stride, records are counted and an
access is in range where its index is below num_records and (if idxen or add_tid give the index) its offset within the
stride. A swizzled buffer interleaves index_stride records dword by dword.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amdwarp.emulator.memory import Array, Fault
from amdwarp.emulator.state import Batch, expand

_SWIZZLE, _ADD_TID = 1 << 31, 1 << 23
#: Bytes that stay together in a swizzled buffer.
_ELEMENT = 4


def is_structured(words: list[Any]) -> bool:
    """True if a resource asks for swizzling or adds the lane's number to the index."""
    return any(
        word & mask
        for value, mask in ((words[1], _SWIZZLE), (words[3], _ADD_TID))
        for word in (value if isinstance(value, tuple) else (value,))
    )


def _columns(words: list[Any], waves: int) -> list[Array]:
    return [np.array(expand(word, waves), np.int64)[:, None] for word in words]


def locate(
    b: Batch, words: list[Any], index: Any, offset: Any, shift: Any, size: int, indexed: bool
) -> tuple[Array, Array, None]:
    """Addresses and lanes in range.

    Args:
        b: the batch.
        words: the four words of the resource.
        index, offset: int64 [waves, lanes] (or 0) from the instruction.
        shift: the scalar offset, one int or one for each wave.
        size: bytes of the access.
        indexed: the instruction has idxen.
    """
    low, high, records, flags = _columns(words, b.n)
    (scalar,) = _columns([shift], b.n)
    stride, adds = high >> 16 & 0x3FFF, flags & _ADD_TID != 0
    # With add_tid the data format's bits extend the stride.
    stride = np.where(adds, stride | (flags >> 15 & 15) << 14, stride)
    lanes = np.arange(b.group.lanes, dtype=np.int64)
    index = np.asarray(index, np.int64) + np.where(adds, lanes, 0)
    offset = np.broadcast_to(np.asarray(offset, np.int64), (b.n, b.group.lanes))
    linear = stride * index + offset
    swizzles = high & _SWIZZLE != 0
    inside = linear
    if swizzles.any():
        if size > _ELEMENT:
            raise Fault(f"an access of {size} bytes to a swizzled buffer is not known", remedy="access single dwords")
        together = 8 << (flags >> 21 & 3)
        rows = index // together * stride + offset // _ELEMENT * _ELEMENT
        spread = rows * together + index % together * _ELEMENT + offset % _ELEMENT
        inside = np.where(swizzles, spread, linear)
    raw = inside + scalar + size <= records
    counted = (index < records) & ((offset < stride) | ~(adds | indexed))
    on = np.broadcast_to(np.where(stride == 0, raw, counted), (b.n, b.group.lanes))
    addresses = low + ((high & 0xFFFF) << 32) + scalar + inside
    return addresses.view(np.uint64), on if b.mask is None else on & b.mask, None
