"""Shadow of global memory: races between workgroups, and reads of what nobody wrote.

Workgroups of a launch run in no fixed order, so an access of one may meet an access of another at any time. What orders
two of them is an atomic of each on the same address, the earlier one's behind its access and the later one's before its
own; such atomics are taken for a release and an acquire. Storing the value that is there already is no race.

The shadow grows with the memory that is touched, in pages, whatever the size of the buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from amdwarp.emulator.events import Access
from amdwarp.emulator.memory import Array, Buffer, GlobalMemory

#: Bytes of a page.
_PAGE = 4096
_WIDEST = 16
#: An atomic on more addresses than this is data, no flag.
_FLAGS = 16
#: Workgroup number that stands for several.
_MANY = -1
_COLUMNS = ("writer", "write_time", "write_inst", "write_atomic", "reader", "read_time", "read_inst")
_THEN = {"read": "reads", "write": "writes", "atomic": "changes"}
_DONE = {"read": "read", "write": "written"}


@dataclass(frozen=True, slots=True)
class MemoryClash:
    """A fault in global memory: kind of finding, index of the earlier instruction or -1, and what happened."""

    kind: str
    earlier: int
    problem: str


class _Pages:
    """Rows for the granules of touched pages: parallel columns, and the bytes last written."""

    def __init__(self, granule: int) -> None:
        self.granule, self.count = granule, 0
        self.columns: dict[str, Array] = {name: np.zeros(4 * self.per_page, np.int32) for name in _COLUMNS}
        self.content: Array = np.zeros((4 * self.per_page, granule), np.uint8)

    @property
    def per_page(self) -> int:
        """Rows of one page."""
        return _PAGE // self.granule

    def add(self, count: int) -> Array:
        """Numbers of `count` new pages."""
        numbers = np.arange(self.count, self.count + count)
        self.count += count
        while self.count * self.per_page > len(self.content):
            self.columns = {name: np.concatenate((c, np.zeros_like(c))) for name, c in self.columns.items()}
            self.content = np.concatenate((self.content, np.zeros_like(self.content)))
        return numbers

    def split(self, granule: int) -> None:
        """Go on with narrower granules; what is known of one holds for its parts."""
        times = self.granule // granule
        self.columns = {name: np.repeat(column, times) for name, column in self.columns.items()}
        self.content = self.content.reshape(-1, granule)
        self.granule = granule


@dataclass(slots=True)
class _Part:
    """The part of an access that falls into one buffer.

    Attributes:
        offsets: byte offset of each lane.
        rows: row of each granule.
        at: its byte offset.
        content: bytes that a store writes, uint8 [granules, bytes], or None where they are not known.
    """

    buffer: Buffer
    kind: str
    inst: int
    rows: Array
    at: Array
    content: Array | None


class MemoryShadow:
    """The shadow of a launch.

    Args:
        report: called with each fault.
        uninitialised: names of the buffers that hold nothing until written.
        races: look for races between workgroups.
    """

    def __init__(self, report: Callable[[MemoryClash], None], uninitialised: frozenset[str], races: bool) -> None:
        self.report, self.uninitialised, self.races = report, uninitialised, races
        self.pages = _Pages(_WIDEST)
        self.tables: dict[int, Array] = {}
        self.group, self.time = 0, 1
        self.known: dict[int, int] = {}
        self.flags: dict[int, dict[int, int]] = {}

    @property
    def active(self) -> bool:
        """False if there is nothing to look for."""
        return self.races or bool(self.uninitialised)

    def workgroup(self) -> None:
        """The next workgroup starts."""
        self.group += 1
        self.known = {}

    def access(self, memory: GlobalMemory, access: Access, inst: int, acquires: bool, is_guess: bool = False) -> None:
        """Check and note an access of the current workgroup.

        `acquires`: an atomic whose result is waited for; `is_guess`: a load that an atomic confirms, which may then
        meet atomics in any order.
        """
        mask = access.mask
        addresses = access.addresses.reshape(-1) if mask is None else access.addresses[mask]
        if addresses.size == 0:
            return
        if access.kind == "atomic" and self.races:
            self._synchronise(addresses, acquires)
        values = access.values
        if values is not None:
            values = values.reshape(-1, values.shape[-1]) if mask is None else values[mask]
        low, high = int(addresses.min()), int(addresses.max())
        only = memory.find(low)
        for buffer in (only,) if only is not None and high < only.end else memory.buffers:
            if self.races or buffer.name in self.uninitialised:
                inside = (addresses >= np.uint64(buffer.base)) & (addresses < np.uint64(buffer.end))
                if inside.any():
                    offsets = (addresses[inside] - np.uint64(buffer.base)).view(np.int64)
                    part = self._part(buffer, access, inst, offsets, None if values is None else values[inside])
                    self._check(part, is_guess)
                    if not is_guess:
                        self._note(part)

    def _synchronise(self, addresses: Array, acquires: bool) -> None:
        """An atomic: what is known of its flag is known from here on, and what was done so far is known behind it."""
        places = np.unique(addresses)
        if places.size > _FLAGS:
            return
        self.time += 1
        for address in places.tolist():
            flag = self.flags.setdefault(address, {})
            if acquires:
                self.known.update({group: max(time, self.known.get(group, 0)) for group, time in flag.items()})
            flag.update(self.known)
            flag[self.group] = self.time

    def _part(self, buffer: Buffer, access: Access, inst: int, offsets: Array, values: Array | None) -> _Part:
        width, pages = access.size, self.pages
        low = int(np.bitwise_or.reduce(offsets)) | width
        if low & (pages.granule - 1):
            pages.split(low & -low)
        granule = pages.granule
        at = offsets if width == granule else (offsets[:, None] + np.arange(0, width, granule)).reshape(-1)
        content = None
        if values is not None:
            content = (
                np.ascontiguousarray(values).view(np.uint8).reshape(len(offsets), -1)[:, :width].reshape(-1, granule)
            )
        # A buffer's range check may cut a wide access short.
        inside = at < buffer.data.nbytes
        if not inside.all():
            at, content = at[inside], None if content is None else content[inside]
        return _Part(buffer, access.kind, inst, self._rows(buffer, at), at, content)

    def _rows(self, buffer: Buffer, at: Array) -> Array:
        table = self.tables.get(buffer.base)
        if table is None:
            table = self.tables[buffer.base] = np.full(buffer.data.nbytes // _PAGE + 1, -1, np.int64)
        page = at // _PAGE
        number = table.take(page)
        if (number < 0).any():
            new = np.unique(page[number < 0])
            table[new] = self.pages.add(len(new))
            number = table.take(page)
        rows: Array = number * self.pages.per_page + at % _PAGE // self.pages.granule
        return rows

    def _check(self, part: _Part, is_guess: bool) -> None:
        writer = self.pages.columns["writer"].take(part.rows)
        if part.buffer.name in self.uninitialised and part.kind != "write":
            nobody = writer == 0
            if nobody.any():
                span = self._span(part, nobody)
                self.report(MemoryClash("uninitialised-read", -1, f"{span} are read, which nobody has written"))
        if not self.races:
            return
        written = (writer != 0) & (writer != self.group)
        if part.kind == "atomic" or is_guess:
            written &= self.pages.columns["write_atomic"].take(part.rows) == 0
        if written.any() and part.content is not None:
            written &= (self.pages.content[part.rows] != part.content).any(axis=1)
        self._unordered(written, part, "write")
        if part.kind != "read":
            reader = self.pages.columns["reader"].take(part.rows)
            self._unordered((reader != 0) & (reader != self.group), part, "read")

    def _unordered(self, other: Array, part: _Part, before: str) -> None:
        """Report the pieces marked, which other workgroups have accessed, unless atomics order them."""
        if not other.any():
            return
        rows, columns = part.rows[other], self.pages.columns
        who = columns["writer" if before == "write" else "reader"].take(rows)
        time, inst = columns[f"{before}_time"].take(rows), columns[f"{before}_inst"].take(rows)
        bad = ~self._is_before(who, time)
        for earlier in np.unique(inst[bad]).tolist():
            own = np.zeros(len(other), bool)
            own[np.flatnonzero(other)[bad & (inst == earlier)]] = True
            problem = f"one workgroup {_THEN[part.kind]} {self._span(part, own)}, {_DONE[before]} by another workgroup"
            self.report(MemoryClash("global-race", earlier, problem))

    def _is_before(self, groups: Array, times: Array) -> Array:
        """Which accesses, of these workgroups at these times, atomics order before what comes now."""
        behind = np.zeros(len(groups), np.int64)
        for group in np.unique(groups).tolist():
            behind[groups == group] = self.known.get(group, 0)
        ordered: Array = times < behind
        return ordered

    def _span(self, part: _Part, pieces: Array) -> str:
        at = part.at[pieces]
        return f"bytes {int(at.min())} to {int(at.max()) + self.pages.granule - 1} of {part.buffer.name}"

    def _note(self, part: _Part) -> None:
        columns = self.pages.columns
        if part.kind == "read":
            reader = columns["reader"].take(part.rows)
            # what comes behind this read comes behind an earlier one that is ordered before it
            only = (reader == 0) | (reader == self.group)
            if self.known and not only.all():
                only |= self._is_before(reader, columns["read_time"].take(part.rows))
            columns["reader"][part.rows] = np.where(only, self.group, _MANY)
            columns["read_time"][part.rows] = self.time
            columns["read_inst"][part.rows] = part.inst
            return
        columns["writer"][part.rows] = self.group
        columns["write_time"][part.rows] = self.time
        columns["write_inst"][part.rows] = part.inst
        columns["write_atomic"][part.rows] = part.kind == "atomic"
        if part.content is not None:
            self.pages.content[part.rows] = part.content
