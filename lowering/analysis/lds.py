"""What an op does to shared memory (LDS): which allocation, which ring slot, which part, and how it completes."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from ..dialect import Kind, Space, info, kind_of
from ..ir import Op, Value
from .scalars import Scalar

VIEWS = (
    "ttg.memdesc_index",
    "ttg.memdesc_subslice",
    "ttg.memdesc_trans",
    "ttg.memdesc_reshape",
    "ttg.memdesc_reinterpret",
)
COMMITS = ("ttg.async_commit_group",)
ASYNC_WAITS = ("ttg.async_wait",)
# Copies whose commit groups ttg.async_wait counts; the tensor data mover of gfx1250 has a counter of its own.
COUNTED_COPIES = ("amdg.buffer_load_to_local", "ttg.async_copy_global_to_local")
PASS_ON = (
    "ttg.local_dealloc",
    "scf.yield",
    "scf.for",
    "scf.if",
    "scf.execute_region",
    "tt.return",
    "cf.br",
    "cf.cond_br",
)
SYNCED = "ttg.amdg.syncedViaAsyncWait"


class NotFollowedError(Exception):
    """The walk met something it cannot run; carries the op."""

    def __init__(self, op: Op, why: str) -> None:
        super().__init__(why)
        self.op = op
        self.why = why


class OutOfRingError(NotFollowedError):
    """A slot index that lies outside of its ring."""


class Access(Enum):
    ASYNC_WRITE = "copy into"
    READ = "read of"
    RELAXED_READ = "relaxed read of"
    WRITE = "store into"

    @property
    def writes(self) -> bool:
        return self in (Access.ASYNC_WRITE, Access.WRITE)


@dataclass(frozen=True)
class Region:
    """A part of one allocation.

    Attributes:
        alloc: the ``ttg.local_alloc`` result.
        name: its name in messages.
        slot: leading index, an int, or None where it is the whole allocation or not known.
        known: False where a slot index could not be followed.
        ring: the region is the allocation as it was made, whose leading dimension an index selects from.
        full: it is all of the slot, or of the allocation.
        box: (offset, size) per remaining dimension, or None where a view hides it.
    """

    alloc: Value
    name: str
    slot: int | None = None
    known: bool = True
    ring: bool = False
    full: bool = True
    box: tuple[tuple[int, int], ...] | None = None

    def overlaps(self, other: Region) -> bool:
        """Whether two parts of one allocation may have an element in common."""
        if self.slot is not None and other.slot is not None and self.slot != other.slot:
            return False
        if self.slot is None or other.slot is None or self.box is None or other.box is None:
            return True
        return len(self.box) != len(other.box) or all(
            a < b + m and b < a + n for (a, n), (b, m) in zip(self.box, other.box, strict=True)
        )

    def meets(self, other: Region) -> bool:
        """Whether two parts of one allocation certainly have an element in common."""
        if any(region.slot is None and region.full for region in (self, other)):
            return True
        if self.slot is None or self.slot != other.slot:
            return False
        boxes = self.box is not None and other.box is not None
        return self.full or other.full or (boxes and self.overlaps(other))

    def __str__(self) -> str:
        if self.slot is not None:
            return f"slot {self.slot} of {self.name}"
        return self.name if self.known else f"{self.name} (slot index not known)"


def is_memdesc(type_text: str) -> bool:
    return type_text.startswith("!ttg.memdesc<")


@functools.cache
def shape_of(type_text: str) -> tuple[int, ...]:
    """Dimensions of a ``!ttg.memdesc<3x128x64xf16, …>`` or ``tensor<…>`` type; () where there are none."""
    match = re.search(r"<((?:\d+x)+)", type_text)
    return tuple(int(n) for n in match.group(1).split("x") if n) if match else ()


def allocate(op: Op) -> Region:
    """The region of a ``ttg.local_alloc``."""
    location = op.location()
    name = (location.name if location else None) or op.result.name.lstrip("%") or "an allocation"
    return Region(op.result, f"LDS buffer {name!r}", ring=True)


def view(op: Op, source: Region, index: Scalar | None) -> Region:
    """The region a view op (``VIEWS``) selects out of ``source``.

    Args:
        index: the resolved index of a ``ttg.memdesc_index``; None for the other views.

    Raises:
        OutOfRingError: the index is a number outside of the ring.
    """
    if op.name == "ttg.memdesc_index":
        return _indexed(op, source, index)
    if op.name != "ttg.memdesc_subslice":
        return replace(source, ring=False, box=None)
    offsets = [int(n) for n in re.findall(r"-?\d+", op.properties["offsets"].split(":", 1)[1])]
    box = None
    if source.slot is not None and source.box is not None and len(offsets) == len(source.box):
        sizes = shape_of(op.result.type)
        box = tuple((b + o, n) for (b, _), o, n in zip(source.box, offsets, sizes, strict=True))
    return replace(source, ring=False, full=False, box=box)


def _indexed(op: Op, source: Region, index: Scalar | None) -> Region:
    depth = shape_of(op.operands[0].type)[0]
    if isinstance(index, int) and not 0 <= index < depth:
        raise OutOfRingError(op, f"slot index {index} lies outside of {source.name}, which has {depth} slots")
    if not source.ring or not isinstance(index, int):
        # an index into a view is not followed: it counts as all of what the view may be
        known = source.known and (source.slot is not None or isinstance(index, int))
        return replace(source, ring=False, full=False, known=known, box=None)
    return replace(source, slot=index, ring=False, box=tuple((0, n) for n in shape_of(op.result.type)))


def accesses(op: Op, regions: Mapping[Value, Region]) -> list[tuple[Access, Region]]:
    """The LDS accesses of one op that is not a view, wait or barrier.

    Args:
        regions: what the memdesc values seen so far stand for.

    Raises:
        NotFollowedError: it takes a memdesc that is not in ``regions``, or does something else than read or write it.
    """
    if op.name == "ttg.local_alloc":
        return [(Access.WRITE, allocate(op))] if op.operands else []
    buffers = [value for value in op.operands if is_memdesc(value.type)]
    if not buffers or op.name in PASS_ON:
        return []
    unknown = next((value for value in buffers if value not in regions), None)
    if unknown is not None:
        raise NotFollowedError(op, f"which allocation {unknown.name or 'a buffer'} is part of is not known")
    access = _access_of(op)
    if access is None:
        raise NotFollowedError(op, f"what {op.name} does to shared memory is not followed")
    return [(access, regions[value]) for value in buffers]


def _access_of(op: Op) -> Access | None:
    known, touched = info(op), info(op).reads | info(op).writes
    if known.kind is Kind.COPY and Space.LDS in known.writes:
        return Access.ASYNC_WRITE
    if touched != {Space.LDS} or any(is_memdesc(result.type) for result in op.results):
        return None
    if known.kind is Kind.LOAD:
        return Access.RELAXED_READ if op.attributes.get(SYNCED) in ("true", "unit") else Access.READ
    return Access.WRITE if known.kind is Kind.STORE else None


def site(op: Op) -> str | None:
    """``file:line`` of an op, and where the function that it stands in was called if that is another one."""
    here, location = op.where, op.location()
    called = [f"{frame.file}:{frame.line}" for frame in location.callers] if location is not None else []
    return f"{here}, called at {called[-1]}" if called and called[-1] != here else here


def uses_scratch(op: Op) -> bool:
    """Whether the lowering of the op may go through LDS of its own."""
    return info(op).scratch or (kind_of(op) is Kind.ATOMIC and bool(op.results))


def touches_lds(op: Op) -> bool:
    """Whether an op reads, writes, views or orders shared memory, or may do so in a function it calls."""
    if op.name in (*VIEWS, *COMMITS, *ASYNC_WAITS, "tt.call") or kind_of(op) is Kind.BARRIER or uses_scratch(op):
        return True
    return any(is_memdesc(value.type) for value in (*op.operands, *op.results))
