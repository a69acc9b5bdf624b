"""Machine state: vector register file, batches of waves, results that are still on their way.

A `Batch` is a run of neighbouring waves at one pc. Its vector registers are views [waves, lanes] into the workgroup's
file [register, wave, lane]. A scalar register holds a Python int where all waves of the batch agree, else a tuple with
one int per wave; values are never changed in place, so identity of the object means identity of the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from amdwarp.asm import Instruction
from amdwarp.asm.program import EXEC
from amdwarp.emulator.memory import POISON, Array, GlobalMemory, Lds

if TYPE_CHECKING:
    from amdwarp.emulator.events import Recorder

Scalar = int | tuple[int, ...]
#: Executes one instruction on a batch; returns the next pc, STOP, or None for the following instruction.
Closure = Callable[["Batch"], int | None]

STOP = -1
RUNNING, AT_BARRIER, WAITING, ENDED = "running", "at a barrier", "waiting for a barrier", "ended"
#: Operations of one queue that may be under way: as many as the widest counter tells apart. Before one more is issued
#: the hardware waits for the oldest.
MOST_UNDER_WAY = 64
#: Queues of operations under way. gfx9 counts stores with the loads; the last three exist on gfx1250 only.
QUEUES = ("vm", "ds", "sm", "st", "asynchronous", "tensor")


class SplitError(Exception):
    """Raised by a branch whose waves disagree: `targets` holds the next pc of each wave."""

    def __init__(self, targets: list[int]) -> None:
        super().__init__("the waves go different ways")
        self.targets = targets


class RegisterFile:
    """Vector and accumulation registers of a workgroup: uint32 [register, wave, lane]; a0 stands behind the last v."""

    def __init__(self, registers: int, waves: int, lanes: int) -> None:
        self.data: Array = np.empty((registers, waves, lanes), np.uint32)
        self._views: dict[tuple[int, int], Views] = {}

    def reset(self) -> None:
        """Poison everything, for the next workgroup."""
        self.data[:] = POISON

    def view(self, first: int, last: int) -> Views:
        """Views of waves [first, last)."""
        key = (first, last)
        if key not in self._views:
            self._views[key] = Views(self.data[:, first:last])
        return self._views[key]


class Views:
    """A batch's registers: `u`, `f`, `i` are [register, wave, lane]; `r` lists them per register and type."""

    __slots__ = ("f", "i", "r", "u")

    def __init__(self, data: Array) -> None:
        self.u: Array = data
        self.f: Array = data.view(np.float32)
        self.i: Array = data.view(np.int32)
        self.r: tuple[list[Array], list[Array], list[Array]] = (list(self.u), list(self.f), list(self.i))


@dataclass(slots=True)
class Pending:
    """A memory operation that was issued and not yet waited for.

    Attributes:
        inst: the instruction.
        deliver: called at the covering wait with the batch and `payload`.
        payload: the first item is the active lanes (None for all); arrays have the wave as first axis.
        serial: number of the issue within the workgroup.
        early: of an LDS read: reads now and returns what to do at the wait (deliver, payload).
        size: of an LDS read: bytes at each address of ``payload[1]``; -1 for an LDS write.
        notifies: others may wait for it and its own wave never: an LDS atomic without a result, or a copy that arrives
            on a barrier object in LDS when it completes. It completes when some wave of the workgroup sleeps.
    """

    inst: Instruction
    deliver: Callable[[Batch, tuple[Any, ...]], None] | None
    payload: tuple[Any, ...]
    serial: int
    early: Callable[[Batch, tuple[Any, ...]], Any] | None = None
    size: int = 0
    notifies: bool = False
    _span: tuple[int, int] | None = None

    def span(self) -> tuple[int, int]:
        """Of an LDS read: the lowest byte of all lanes and the one behind the highest."""
        if self._span is None:
            addresses = self.payload[1]
            self._span = int(addresses.min()), int(addresses.max()) + self.size
        return self._span

    def part(self, low: int, high: int) -> Pending:
        """The same operation for waves [low, high) of its batch."""
        cut = tuple(item[low:high] if isinstance(item, (np.ndarray, tuple)) else item for item in self.payload)
        return Pending(self.inst, self.deliver, cut, self.serial, self.early, self.size, self.notifies)

    def settle(self, b: Batch) -> None:
        """Carry out an LDS operation now; a read keeps its result until the wait."""
        if self.early is not None:
            self.deliver, self.payload = self.early(b, self.payload)
        elif self.deliver is not None and self.size < 0:
            self.deliver(b, self.payload)
            self.deliver = None
        self.early, self.size = None, 0


def join_pending(left: Pending, right: Pending, waves: tuple[int, int], lanes: int) -> Pending:
    """The operation of two neighbouring batches as one."""
    items: list[Any] = []
    for x, y in zip(left.payload, right.payload, strict=True):
        if x is None and y is None:
            items.append(None)
            continue
        # None stands for all lanes.
        x = np.ones((waves[0], lanes), bool) if x is None else x
        y = np.ones((waves[1], lanes), bool) if y is None else y
        if isinstance(x, np.ndarray):
            items.append(np.concatenate((x, y)))
        else:
            items.append(x + y if isinstance(x, tuple) else x)
    notifies = left.notifies or right.notifies
    return Pending(left.inst, left.deliver, tuple(items), left.serial, left.early, left.size, notifies)


@dataclass
class Workgroup:
    """What the waves of a workgroup share."""

    registers: RegisterFile
    lds: Lds
    memory: GlobalMemory
    scratch: Array
    lanes: int
    recorder: Recorder | None = None
    serial: int = 0
    caches: dict[Any, Any] = field(default_factory=dict)
    barriers: dict[int, Any] = field(default_factory=dict)
    #: Runs the waves: it has a list `batches`.
    scheduler: Any = None
    #: Waves that have ended.
    ended: int = 0
    #: Stores have a counter of their own.
    split_counters: bool = False


class Batch:
    """Waves [first, last) of a workgroup at one pc."""

    __slots__ = (
        *QUEUES,
        "count",
        "executed",
        "f",
        "first",
        "group",
        "i",
        "last",
        "mask",
        "masks",
        "mode",
        "n",
        "named",
        "pc",
        "r",
        "s",
        "scc",
        "seen",
        "slept",
        "state",
        "u",
    )
    vm: list[Pending]
    ds: list[Pending]
    sm: list[Pending]
    st: list[Pending]
    asynchronous: list[Pending]
    tensor: list[Pending]

    def __init__(self, group: Workgroup, first: int, last: int, scalars: list[Scalar], pc: int) -> None:
        views = group.registers.view(first, last)
        self.group, self.first, self.last, self.n = group, first, last, last - first
        self.u, self.f, self.i, self.r = views.u, views.f, views.i, views.r
        self.s = scalars
        self.scc: Scalar = 0
        self.mode = 0
        self.pc = pc
        self.state = RUNNING
        for name in QUEUES:
            setattr(self, name, [])
        # gfx1250 barriers: the completions each one had when these waves left it, and the one they have joined.
        self.seen: dict[int, int] = {}
        self.named = 0
        self.mask: Array | None = None
        self.masks: dict[int, tuple[Scalar, Scalar, Array]] = {}
        self.count = 0
        # How often these waves have given way to others.
        self.slept = 0
        self.executed = 0
        self.refresh_exec()

    # Scalar pairs and lane masks

    def pair(self, index: int) -> Scalar:
        """The 64-bit value of s[index:index+1]."""
        low, high = self.s[index], self.s[index + 1]
        if type(low) is int and type(high) is int:
            return low | high << 32
        lows, highs = expand(low, self.n), expand(high, self.n)
        return tuple(x | y << 32 for x, y in zip(lows, highs, strict=True))

    def set_pair(self, index: int, value: Scalar) -> None:
        """Write s[index:index+1]."""
        if type(value) is int:
            self.s[index], self.s[index + 1] = value & 0xFFFFFFFF, value >> 32
        else:
            assert isinstance(value, tuple)
            self.s[index] = merge([x & 0xFFFFFFFF for x in value])
            self.s[index + 1] = merge([x >> 32 for x in value])
        if index == EXEC:
            self.refresh_exec()

    def refresh_exec(self) -> None:
        """Recompute the lane mask after exec was written."""
        low, high = self.s[EXEC], self.s[EXEC + 1]
        full = 0xFFFFFFFF
        if low == full and (high == full or self.group.lanes == 32):
            self.mask = None
        else:
            self.mask = self.lane_mask(EXEC)

    def lane_mask(self, index: int) -> Array:
        """s[index:index+1] (one register with 32 lanes) as bool [waves, lanes]; the result must not be written to."""
        low, high = self.s[index], self.s[index + 1]
        known = self.masks.get(index)
        if known is not None and known[0] is low and known[1] is high:
            return known[2]
        if self.group.lanes == 32:
            words = np.array(expand(low, self.n), np.uint32)
        else:
            words = np.array([expand(low, self.n), expand(high, self.n)], np.uint32).T.copy()
        bits = np.unpackbits(words.view(np.uint8).reshape(self.n, -1), axis=1, bitorder="little").view(bool)
        self.masks[index] = (low, high, bits)
        return bits

    def set_lane_mask(self, index: int, bits: Array) -> None:
        """Write bool [waves, lanes] to s[index:index+1] (one register with 32 lanes)."""
        words = np.packbits(bits, axis=1, bitorder="little").view(np.uint32).tolist()
        self.s[index] = merge([row[0] for row in words])
        if self.group.lanes == 64:
            self.s[index + 1] = merge([row[1] for row in words])
        self.masks[index] = (self.s[index], self.s[index + 1], bits)
        if index == EXEC:
            self.refresh_exec()

    # Waits

    def issue(
        self, queue: list[Pending], inst: Instruction, deliver: Any, *payload: Any, early: Any = None, size: int = 0
    ) -> None:
        """Append an operation to one of the `QUEUES`; see `Pending`."""
        self.group.serial += 1
        queue.append(Pending(inst, deliver, payload, self.group.serial, early, size))
        if len(queue) > MOST_UNDER_WAY:
            self.drain(queue, MOST_UNDER_WAY)

    @property
    def stores(self) -> list[Pending]:
        """The queue of vector memory stores."""
        return self.st if self.group.split_counters else self.vm

    def settle_reads(self, low: Array, high: Array) -> None:
        """Before a wave writes LDS [low, high) (int64 [waves]) past its queue: carry out its own reads from there."""
        last = 0
        bottom, top = int(low.min()), int(high.max())
        for at, pending in enumerate(self.ds, 1):
            if pending.size <= 0:
                continue
            least, most = pending.span()
            if least >= top or most <= bottom:
                continue
            addresses = pending.payload[1].reshape(self.n, -1)
            if ((addresses < high[:, None]) & (addresses + pending.size > low[:, None])).any():
                last = at
        for pending in self.ds[:last]:
            pending.settle(self)

    def drain(self, queue: list[Pending], left: int) -> None:
        """Deliver the oldest operations of `queue` until `left` remain."""
        recorder = self.group.recorder
        count = len(queue) - left
        if count > 1 and self.n > 1 and self._hides_order(queue[:count]):
            self._deliver_by_wave(queue[:count])
            if recorder is not None:
                for pending in queue[:count]:
                    recorder.complete(self, pending)
        elif count > 0:
            for pending in queue[:count]:
                if pending.deliver is not None:
                    pending.deliver(self, pending.payload)
                if recorder is not None:
                    recorder.complete(self, pending)
        if count > 0:
            del queue[:count]

    def _hides_order(self, operations: list[Pending]) -> bool:
        """True if LDS reads and writes are mixed: in lockstep no wave's write would come before another's read."""
        sizes = [pending.size for pending in operations]
        return min(sizes) < 0 < max(sizes)

    def _deliver_by_wave(self, operations: list[Pending]) -> None:
        """Carry out LDS operations of the first wave, then of the second, and so on."""
        for at in range(self.n):
            window = Window(self, at)
            for pending in operations:
                part = pending.part(at, at + 1)
                if part.deliver is not None:
                    part.deliver(window, part.payload)  # type: ignore[arg-type]

    # Splitting and joining

    def split(self, keys: Sequence[Any]) -> list[Batch]:
        """One batch for each run of waves with equal `keys`; registers stay where they are."""
        bounds = [0, *(at for at in range(1, self.n) if keys[at] != keys[at - 1]), self.n]
        parts = []
        for low, high in pairwise(bounds):
            scalars: list[Scalar] = [x if type(x) is int else merge(x[low:high]) for x in self.s]  # type: ignore[index]
            part = Batch(self.group, self.first + low, self.first + high, scalars, self.pc)
            part.scc = self.scc if isinstance(self.scc, int) else merge(self.scc[low:high])
            for name in QUEUES:
                setattr(part, name, [pending.part(low, high) for pending in getattr(self, name)])
            part.state, part.count, part.mode = self.state, self.count, self.mode
            part.slept = self.slept
            part.seen, part.named = dict(self.seen), self.named
            parts.append(part)
        return parts

    def joins(self, other: Batch) -> bool:
        """True if `other` is the neighbour behind this batch, at the same pc with the same operations under way."""
        same = self.pc == other.pc and self.state == other.state and self.mode == other.mode
        if self.last != other.first or not same or self.seen != other.seen or self.named != other.named:
            return False
        for name in QUEUES:
            mine, its = getattr(self, name), getattr(other, name)
            if [(p.inst, p.deliver) for p in mine] != [(p.inst, p.deliver) for p in its]:
                return False
        return True

    def join(self, other: Batch) -> Batch:
        """This batch and its neighbour `other` as one."""
        waves = (self.n, other.n)

        def both(x: Scalar, y: Scalar) -> Scalar:
            if type(x) is int and x == y:
                return x
            return expand(x, waves[0]) + expand(y, waves[1])

        scalars = [both(x, y) for x, y in zip(self.s, other.s, strict=True)]
        joined = Batch(self.group, self.first, other.last, scalars, self.pc)
        joined.scc = both(self.scc, other.scc)
        lanes = self.group.lanes
        for name in QUEUES:
            mine, its = getattr(self, name), getattr(other, name)
            setattr(joined, name, [join_pending(x, y, waves, lanes) for x, y in zip(mine, its, strict=True)])
        joined.seen, joined.named = dict(self.seen), self.named
        joined.state, joined.count, joined.mode = self.state, max(self.count, other.count), self.mode
        joined.slept = max(self.slept, other.slept)
        return joined


class Window:
    """One wave of a batch, as far as the delivery of an LDS operation needs it."""

    __slots__ = ("first", "group", "last", "n", "r", "u")

    def __init__(self, b: Batch, at: int) -> None:
        self.group, self.n = b.group, 1
        self.first, self.last = b.first + at, b.first + at + 1
        views = b.group.registers.view(self.first, self.last)
        self.u, self.r = views.u, views.r


def expand(value: Scalar, waves: int) -> tuple[int, ...]:
    """One int for each wave."""
    return (value,) * waves if isinstance(value, int) else value


def merge(values: Sequence[int]) -> Scalar:
    """An int where all waves agree, else a tuple."""
    first = values[0]
    for value in values:
        if value != first:
            return tuple(values)
    return first
