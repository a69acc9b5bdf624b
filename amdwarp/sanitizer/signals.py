"""Barriers that waves build of LDS: counters and flags that some waves change and others poll.

A word of LDS that single addresses are written or changed by atomically is a *cell*. Each change passes on what its
wave comes after: its own LDS operations before it (the queue keeps its order) and what it has waited for. A wave that
leaves a polling loop comes after the changes that it *must* have seen: of the changes in the order they were made, the
shortest run behind which the loop would have ended. So a loop that ends one arrival too early is found, even where all
arrivals had been made when it was left; the loop is carried out again on what the cell held before.

The run is that of single waves; changes that another run would make in another order are other runs (``--seeds``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from amdwarp.emulator.memory import Array
from amdwarp.sanitizer.order import Records

#: Changes of a cell that are told apart; older ones count as one.
_KEPT = 64
#: Distinct addresses of an operation that may be cells; more are data.
MOST = 8


@dataclass(slots=True)
class Change:
    """A change of a cell: the record that made it, its value behind it, and the records that it passes on."""

    record: int
    value: bytes
    passed: Array


@dataclass(slots=True)
class Cell:
    """A word that waves change to tell others.

    Attributes:
        changes: in the order they were made.
        under_way: passed on by changes that were issued and not yet made.
        first: record of the first write, an atomic left out, or 0.
    """

    address: int
    size: int
    changes: list[Change] = field(default_factory=list)
    under_way: dict[tuple[int, int], Array] = field(default_factory=dict)
    first: int = 0


class Cells:
    """The cells of a workgroup.

    Args:
        records: the operations.
    """

    def __init__(self, records: Records) -> None:
        self.records = records
        self.reset()

    def reset(self) -> None:
        """Forget everything, for the next workgroup."""
        self._cells: dict[tuple[int, int], Cell] = {}
        #: Addresses of barrier objects of the hardware.
        self.objects: set[int] = set()
        self._issued: dict[tuple[int, int], list[Cell]] = {}

    def within(self, low: int, high: int) -> list[Cell]:
        """The cells that bytes [low, high) touch."""
        return [cell for cell in self._cells.values() if cell.address < high and low < cell.address + cell.size]

    def issued(
        self, operation: tuple[int, int], addresses: list[int], size: int, record: int, passed: Array, plain: bool
    ) -> None:
        """An operation (its number, the wave) changes these addresses; `plain`: a write, no atomic."""
        cells = [self._cells.setdefault((address, size), Cell(address, size)) for address in addresses]
        for cell in cells:
            cell.under_way[operation] = np.append(passed, record)
            if plain and not cell.first and not cell.changes:
                cell.first = record
        self._issued[operation] = cells

    def made(self, operation: tuple[int, int], lds: Array) -> None:
        """An operation has been carried out."""
        for cell in self._issued.pop(operation, ()):
            passed = cell.under_way.pop(operation)
            self._append(cell, int(passed[-1]), passed, lds)

    def arrived(self, address: int, size: int, record: int, passed: Array, lds: Array) -> None:
        """Something has changed a cell by itself."""
        cell = self._cells.setdefault((address, size), Cell(address, size))
        self._append(cell, record, np.append(passed, record), lds)

    def _append(self, cell: Cell, record: int, passed: Array, lds: Array) -> None:
        value = lds[cell.address : cell.address + cell.size].tobytes()
        cell.changes.append(Change(record, value, passed))
        if len(cell.changes) > _KEPT:
            first, second = cell.changes[:2]
            second.passed = np.unique(np.concatenate((first.passed, second.passed)))
            del cell.changes[0]

    def acquire(self, cell: Cell, wave: int, ends: Callable[[bytes], bool | None] | None) -> None:
        """A wave has seen what it waited for in a cell.

        Args:
            ends: whether a value of the cell would have ended the wait (None: that cannot be told); without it the
                wave comes after everything.
        """
        bit = np.uint32(1 << wave)
        needed = len(cell.changes)
        if ends is not None:
            seen = [at for at, change in enumerate(cell.changes) if self.records.seen[change.record] & bit]
            for at in range(max(seen, default=0), len(cell.changes)):
                verdict = ends(cell.changes[at].value)
                if verdict is None:
                    break
                if verdict:
                    needed = at + 1
                    break
        parts = [change.passed for change in cell.changes[:needed]]
        if needed == len(cell.changes):
            parts += cell.under_way.values()
        if parts:
            self.records.come_after(np.unique(np.concatenate(parts)), wave)
