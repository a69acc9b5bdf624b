"""Bank conflicts of LDS instructions, from the addresses of their lanes.

LDS serves the lanes of an instruction in phases. Within a phase each bank delivers one word a clk, and lanes that want
the same word share it; so a phase takes as many passes as the busiest bank has different words. The phase tables and
their sources stand in `parameters.json`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amdwarp.cycles.parameters import Parameters

Array = np.ndarray[Any, Any]

BANK_BYTES = 4


def passes(
    addresses: Array, active: Array | None, size: int, kind: str, parameters: Parameters, *, atomic: bool = False
) -> int:
    """Passes that one wave's instruction takes.

    Args:
        addresses: byte address of each lane, int64 [lanes].
        active: bool [lanes] of the lanes that access LDS, or None for all.
        size: bytes at each address.
        kind: ``read`` or ``write``.
        parameters: of the target.
        atomic: lanes that meet at one word follow each other.
    """
    width = max(size, BANK_BYTES)
    on = np.ones(addresses.shape, bool) if active is None else active
    lanes = int(on.sum())
    alignment = width if width & (width - 1) == 0 else BANK_BYTES
    if size >= BANK_BYTES and (addresses[on] % alignment).any():
        return -(-lanes // parameters.lds_unaligned_lanes)
    access = parameters.lds[kind, width]
    first = addresses // BANK_BYTES
    words = first[:, None] + np.arange(width // BANK_BYTES)
    total = 0
    for phase in access.phases:
        chosen = np.array(phase)
        wanted = words[chosen[on[chosen]]].reshape(-1)
        if wanted.size:
            different = wanted if atomic else np.unique(wanted)
            total += int(np.bincount(different % access.banks).max())
    return total * (parameters.lds_atomic_factor if atomic else 1)


def conflict_factor(addresses: Array, size: int, kind: str, parameters: Parameters) -> float:
    """Passes for each pass of an access of this width without conflicts; 1.0 means none."""
    floor = len(parameters.lds[kind, max(size, BANK_BYTES)].phases)
    return passes(addresses, None, size, kind, parameters) / floor


class PassCounter:
    """`passes` for the waves of a batch, remembered by what the addresses have in common."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._known: dict[Any, int] = {}

    def count(self, addresses: Array, mask: Array | None, size: int, kind: str) -> list[int]:
        """Passes of each wave of a batch; `addresses` and `mask` are [waves, lanes], `kind` is that of an access."""
        # every bank pattern repeats after 256 bytes
        relative = addresses - (addresses.min(axis=1, keepdims=True) & -256)
        result = []
        for wave, row in enumerate(relative):
            on = None if mask is None else mask[wave]
            key = (size, kind, row.tobytes(), None if on is None else on.tobytes())
            known = self._known.get(key)
            if known is None:
                access = "write" if kind == "write" else "read"
                known = passes(row, on, size, access, self._parameters, atomic=kind == "atomic")
                self._known[key] = known
            result.append(known)
        return result
