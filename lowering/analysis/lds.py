"""What an op does to shared memory (LDS): which allocation, which ring slot, which part, and how it completes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from ..ir import Op, Value
from .scalars import Lin, Scalar

ASYNC_WRITES = (
    "amdg.buffer_load_to_local",
    "ttg.async_copy_global_to_local",
    "amdg.async_tdm_copy_global_to_local",
)
COMMITS = ("ttg.async_commit_group",)
ASYNC_WAITS = ("ttg.async_wait",)
VIEWS = ("ttg.memdesc_index", "ttg.memdesc_subslice", "ttg.memdesc_trans", "ttg.memdesc_reshape")
# Ops that go through a scratch allocation of their own; stock code generation puts their barriers.
SCRATCH = ("ttg.convert_layout", "tt.reduce", "tt.scan", "tt.histogram", "tt.gather", "tt.atomic_rmw", "tt.atomic_cas")
SYNCED = "ttg.amdg.syncedViaAsyncWait"


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
        depth: leading dimension of the allocation (the ring depth).
        known: False where a slot index could not be followed.
        box: (offset, size) per remaining dimension, or None where a view hides it.
    """

    alloc: Value
    name: str
    slot: int | None = None
    depth: int = 1
    known: bool = True
    box: tuple[tuple[int, int], ...] | None = None

    def overlaps(self, other: Region) -> bool:
        if self.alloc is not other.alloc:
            return False
        if self.slot is not None and other.slot is not None and self.slot != other.slot:
            return False
        if self.slot is None or other.slot is None or self.box is None or other.box is None:
            return True
        return len(self.box) != len(other.box) or all(
            a < b + m and b < a + n for (a, n), (b, m) in zip(self.box, other.box, strict=True)
        )

    def __str__(self) -> str:
        if self.slot is not None:
            return f"slot {self.slot} of {self.name}"
        return self.name if self.known else f"{self.name} (slot index not known)"


def shape_of(type_text: str) -> tuple[int, ...]:
    """Dimensions of a ``!ttg.memdesc<3x128x64xf16, …>`` or ``tensor<…>`` type; () where there are none."""
    match = re.search(r"<((?:\d+x)+)", type_text)
    return tuple(int(n) for n in match.group(1).split("x") if n) if match else ()


def allocate(op: Op) -> Region:
    """The region of a ``ttg.local_alloc``."""
    shape = shape_of(op.result.type)
    location = op.location()
    name = (location.name if location else None) or op.result.name.lstrip("%") or "an allocation"
    return Region(op.result, f"LDS buffer {name!r}", depth=shape[0] if shape else 1)


def view(op: Op, source: Region, index: Scalar | None) -> Region:
    """The region a view op (``VIEWS``) selects out of ``source``.

    Args:
        index: the resolved index of a ``ttg.memdesc_index``; None for the other views.
    """
    if op.name == "ttg.memdesc_index":
        if source.slot is not None or isinstance(index, Lin) or index is None:
            return replace(source, known=source.slot is not None, box=None)
        return replace(source, slot=index, box=tuple((0, n) for n in shape_of(op.result.type)))
    if op.name == "ttg.memdesc_subslice":
        offsets = [int(n) for n in re.findall(r"-?\d+", op.properties["offsets"].split(":", 1)[1])]
        sizes = shape_of(op.result.type)
        box = source.box
        if source.slot is None or box is None or len(box) != len(offsets):
            return source
        return replace(source, box=tuple((b + o, n) for (b, _), o, n in zip(box, offsets, sizes, strict=True)))
    return replace(source, box=None)


def accesses(op: Op, regions: Mapping[Value, Region]) -> list[tuple[Access, Region]]:
    """The LDS accesses of one op, views and waits aside. ``regions`` maps the memdesc values seen so far."""
    touched = [(value, regions[value]) for value in op.operands if value in regions]
    if op.name in ASYNC_WRITES:
        return [(Access.ASYNC_WRITE, region) for _, region in touched]
    if op.name == "ttg.local_load":
        relaxed = op.attributes.get(SYNCED) in ("true", "unit")
        return [(Access.RELAXED_READ if relaxed else Access.READ, region) for _, region in touched]
    if op.name in VIEWS or op.name in ("ttg.local_dealloc", "scf.yield", "scf.for", "scf.if", "tt.return"):
        return []
    if op.name == "ttg.local_store":
        return [(Access.WRITE, region) for _, region in touched]
    if op.name == "ttg.local_alloc" and op.operands:
        return [(Access.WRITE, allocate(op))]
    # an op that is not known may do anything to the buffers it takes
    return [(access, region) for _, region in touched for access in (Access.READ, Access.WRITE)]
