"""Split and named barriers of gfx1250.

A wave signals a barrier and goes on; it waits for it later. When as many waves have signalled as are members, the
barrier completes, and every wave that waits for this completion goes on. Barrier -1 has all live waves of the workgroup
as members; -3 those of the cluster, which is the workgroup itself in a launch without clusters. Named barriers (1 to
16) have the number of members that ``s_barrier_init`` or a signal through M0 gives; a wave waits for the one it has
joined (any positive number in ``s_barrier_wait`` means that one).

M0 of the forms that take a register: bits 0-5 the barrier, bits 16-22 the member count. As Triton's
warp-specialised kernels use them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from amdwarp.asm import Immediate, Register
from amdwarp.asm.program import M0
from amdwarp.emulator.bind import Binder, Getter, handles
from amdwarp.emulator.memory import Fault
from amdwarp.emulator.state import RUNNING, STOP, WAITING, Batch, Closure, Workgroup, expand

WORKGROUP, CLUSTER = -1, -3
_NAMED = range(1, 17)


@dataclass
class Barrier:
    """One barrier of a workgroup.

    Attributes:
        members: waves that must signal; None for all live ones, 0 while no one has said.
        arrived: waves that have since the last completion.
        completions: how often it has completed.
        waiting: batches that wait for it.
    """

    number: int
    members: int | None
    arrived: int = 0
    completions: int = 0
    waiting: list[Batch] = field(default_factory=list)

    def complete_if_due(self, group: Workgroup) -> None:
        """Release those who wait if every member has signalled."""
        members = group.registers.data.shape[1] - group.ended if self.members is None else self.members
        if not self.arrived or self.arrived < members:
            return
        if self.arrived > members:
            raise Fault(f"{self.arrived} waves have signalled barrier {self.number}, which has {members} members")
        self.arrived = 0
        self.completions += 1
        released, self.waiting = self.waiting, []
        for b in released:
            b.state = RUNNING
            pass_barrier(b, self)


def pass_barrier(b: Batch, barrier: Barrier) -> None:
    """`b` leaves the barrier."""
    b.seen[barrier.number] = barrier.completions
    if b.group.recorder is not None:
        b.group.recorder.leave(barrier.number, b.first, b.last, barrier.completions)


def barrier_of(group: Workgroup, number: int) -> Barrier:
    """The barrier `number`."""
    known = group.barriers.get(number)
    if known is None:
        known = group.barriers[number] = Barrier(number, 0 if number in _NAMED else None)
    found: Barrier = known
    return found


def wave_ended(b: Batch) -> None:
    """The waves of `b` are no members of the workgroup's barrier any more."""
    b.group.ended += b.n
    for number in (WORKGROUP, CLUSTER):
        if number in b.group.barriers:
            b.group.barriers[number].complete_if_due(b.group)


def _constant(binder: Binder, at: int) -> int | None:
    op = binder.ops[at]
    if isinstance(op, Immediate) and isinstance(op.value, int):
        if op.value in _NAMED or op.value in (WORKGROUP, CLUSTER):
            return op.value
        raise binder.fail(f"barrier {op.value} is not known")
    return None


def _from_m0(binder: Binder, at: int) -> Getter:
    if binder.ops[at] != Register("s", M0):
        raise binder.fail("a barrier is named by a number or by m0")

    def get(b: Batch) -> tuple[int, int]:
        values = set(expand(b.s[M0], b.n))
        if len(values) != 1:
            raise Fault("the waves of a batch name different barriers", remedy="launch with lockstep=1")
        value = values.pop()
        return value & 0x3F, value >> 16 & 0x7F

    return get


def _signal(b: Batch, number: int) -> None:
    barrier = barrier_of(b.group, number)
    if barrier.members == 0:
        raise Fault(f"named barrier {number} has no member count")
    if b.group.recorder is not None:
        b.group.recorder.arrive(number, b.first, b.last, barrier.completions)
    barrier.arrived += b.n
    barrier.complete_if_due(b.group)


@handles("s_barrier_signal", "s_barrier_signal_var")
def bind_signal(binder: Binder) -> Closure:
    """Signal; through M0 with a member count other than 0 the named barrier also takes this count."""
    binder.need(1)
    number = _constant(binder, 0)
    if number is not None:
        fixed = number
        return lambda b: _signal(b, fixed)
    get = _from_m0(binder, 0)

    def run(b: Batch) -> None:
        named, members = get(b)
        if members:
            initialise(b.group, named, members)
        _signal(b, named)

    return run


@handles("s_barrier_signal_isfirst")
def bind_signal_first(binder: Binder) -> Closure:
    """Signal; SCC says whether this wave is the first since the last completion."""
    binder.need(1)
    number = _constant(binder, 0)
    if number is None:
        raise binder.fail("a number expected")

    def run(b: Batch) -> None:
        first = barrier_of(b.group, number).arrived == 0
        b.scc = (int(first), *(0,) * (b.n - 1)) if first and b.n > 1 else int(first)
        _signal(b, number)

    return run


@handles("s_barrier_wait")
def bind_wait(binder: Binder) -> Closure:
    """Wait until the barrier has completed once more than when the wave last left it."""
    binder.need(1)
    number = _constant(binder, 0)
    if number is None:
        raise binder.fail("a number expected")
    after = binder.inst.index + 1

    def run(b: Batch) -> int | None:
        which = number
        if number > 0:
            if b.named == 0:
                raise Fault("the wave waits for a named barrier and has joined none")
            which = b.named
        barrier = barrier_of(b.group, which)
        if barrier.completions > b.seen.get(which, 0):
            pass_barrier(b, barrier)
            return None
        b.pc, b.state = after, WAITING
        barrier.waiting.append(b)
        return STOP

    return run


def initialise(group: Workgroup, number: int, members: int) -> None:
    """Set the member count of a named barrier."""
    if number not in _NAMED:
        raise Fault(f"barrier {number} is no named barrier")
    known = group.barriers.get(number)
    if known is None:
        group.barriers[number] = Barrier(number, members)
    else:
        known.members = members


@handles("s_barrier_init")
def bind_init(binder: Binder) -> Closure:
    """Initialise a named barrier: its member count stands in M0."""
    binder.need(1)
    number, get = _constant(binder, 0), _m0_members(binder)
    if number is None:
        named = _from_m0(binder, 0)
        return lambda b: initialise(b.group, *named(b))
    fixed = number
    return lambda b: initialise(b.group, fixed, get(b))


def _m0_members(binder: Binder) -> Any:
    def get(b: Batch) -> int:
        values = set(expand(b.s[M0], b.n))
        if len(values) != 1:
            raise Fault("the waves of a batch name different barriers", remedy="launch with lockstep=1")
        return values.pop() >> 16 & 0x7F

    return get


@handles("s_barrier_join")
def bind_join(binder: Binder) -> Closure:
    """Make a named barrier the one that this wave waits for."""
    binder.need(1)
    number = _constant(binder, 0)
    get = None if number is not None else _from_m0(binder, 0)

    def run(b: Batch) -> None:
        which = number if number is not None else get(b)[0]  # type: ignore[misc]
        b.named = which
        b.seen[which] = barrier_of(b.group, which).completions

    return run
