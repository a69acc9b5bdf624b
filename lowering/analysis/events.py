"""LDS accesses on one path of a kernel, in epochs: how many barriers each wave group had executed (``timeline.py``)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir import Op
from .lds import Access, Region

Epochs = tuple[int, int]
NEVER: Epochs = (1 << 60, 1 << 60)
LOW, HIGH = 0, 1


@dataclass(eq=False)
class Event:
    """One LDS access on one path.

    Attributes:
        op: the op that makes it.
        access, region: what it does, and where; no region for the scratch memory of an op.
        stage: opening anchor of the stage it is in, or None outside of every pipeline.
        start, finish: epochs of the two groups.
        group: index of its commit group, for a copy that a wait can cover.
        barriers: barriers that all waves passed since, each with the epochs before it.
        waited: the wait that covers it, for a copy; that waits for nothing if the copy is not finished by it.
    """

    op: Op
    access: Access
    region: Region | None
    stage: Op | None
    start: Epochs
    finish: Epochs = NEVER
    group: int | None = None
    barriers: list[tuple[Op, Epochs]] = field(default_factory=list)
    waited: Op | None = None


def alike(a: Event, b: Event) -> bool:
    return a.op is b.op and a.region == b.region


def is_fence(barrier: Op) -> bool:
    """Whether a barrier also completes its wave's LDS accesses."""
    if barrier.name == "ttg.barrier":
        return bool(int(barrier.properties["addrSpace"].split(":")[0]) & 1)
    return barrier.name in ("gpu.barrier", "rocdl.barrier")


def is_integer(type_text: str) -> bool:
    return type_text == "index" or (type_text[:1] == "i" and type_text[1:].isdigit())


def next_op(op: Op) -> Op | None:
    """The next op in the block that is not arithmetic or a scheduling wall."""
    block = op.block
    for following in block.ops[block.index(op) + 1 :]:
        if following.name.startswith(("rocdl.sched", "rocdl.s.setprio", "arith.")):
            continue
        return following
    return None
