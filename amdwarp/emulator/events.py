"""What an observer of an execution sees.

An observer is any object with some of the methods of `Observer`; a method it lacks is not called. Without an observer
no event is built. Order of the calls within a workgroup:

* `workgroup(index)` before its first instruction, `workgroup_end(index)` after its last;
* `instruction(event)` after each instruction of a batch (neighbouring waves in lockstep), at its issue. A memory
  operation has `accesses`; the addresses are those of the active lanes (`Access.mask`);
* `complete(event)` at the wait that covers a memory operation (loads and stores, vector and scalar), after its data
  were delivered: `serial` is that of the issue. Registers and LDS hold poison from issue to here;
* `barrier(waves)` when a barrier releases all live waves of the workgroup;
* `unmet(inst, waiting, ended)` before it, the first time that waves which have ended are not among them;
* `arrive` and `leave` at the two halves of a split barrier of gfx1250 (-1: workgroup, -3: cluster, above 0: named);
* `notified` where a tensor copy, or an asynchronous arrive, has completed by itself and arrived on a barrier object in
  LDS; the `complete` of the copies before it follows. Arrivals of lanes are atomic accesses of their instruction;
* `error` is not reported: it propagates from `launch`.

Arrays in events are views of machine state or shared with it: copy what is to be kept, change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from amdwarp.asm import Instruction
from amdwarp.emulator.memory import Array
from amdwarp.emulator.state import STOP, Batch, Closure, Pending, SplitError


@dataclass(frozen=True, slots=True)
class Access:
    """A memory access of a batch.

    Attributes:
        space: ``global``, ``lds``, ``scratch`` or ``scalar``.
        kind: ``read``, ``write`` or ``atomic``.
        addresses: int64 or uint64 [waves, lanes], byte addresses (LDS: within the workgroup's allocation); scalar
            loads: one int per wave.
        size: bytes at each address.
        mask: bool [waves, lanes] of lanes that access memory, or None for all.
        filled: bool [waves, lanes] of lanes of a direct-to-LDS load that write zeros, or None for none.
        values: of a write to LDS or global memory: uint32 [waves, lanes, dwords], of which the low `size` bytes are
            written.
    """

    space: str
    kind: str
    addresses: Any
    size: int
    mask: Array | None
    filled: Array | None = None
    values: Array | None = None


@dataclass(frozen=True, slots=True)
class InstructionEvent:
    """One instruction executed by waves [first, last).

    Attributes:
        inst: the instruction.
        first, last: the waves.
        mask: bool [waves, lanes] of enabled lanes before the instruction, or None for all.
        accesses: memory accesses, empty for others.
        serials: numbers of the memory operations issued by it.
        next_pc: where the waves go on (a branch that splits the batch: the pc of the instruction itself).
        batch: the waves' machine state behind the instruction.
    """

    inst: Instruction
    first: int
    last: int
    mask: Array | None
    accesses: tuple[Access, ...]
    serials: tuple[int, ...]
    next_pc: int
    batch: Batch


@dataclass(frozen=True, slots=True)
class CompletionEvent:
    """A memory operation of waves [first, last) that the wait `at` covers."""

    inst: Instruction
    first: int
    last: int
    serial: int


class Observer(Protocol):
    """The full set of calls; see the module's text."""

    def wants(self, inst: Instruction) -> bool:
        """True if `instruction` is to be called for this one; asked once for each, before anything runs."""
        return True

    def workgroup(self, index: tuple[int, int, int]) -> None:
        """A workgroup starts."""

    def workgroup_end(self, index: tuple[int, int, int]) -> None:
        """A workgroup has ended."""

    def instruction(self, event: InstructionEvent) -> None:
        """An instruction was issued."""

    def complete(self, event: CompletionEvent) -> None:
        """A memory operation was waited for."""

    def barrier(self, waves: tuple[int, ...]) -> None:
        """A barrier released these waves."""

    def unmet(self, inst: Instruction, waiting: tuple[int, ...], ended: tuple[int, ...]) -> None:
        """The barrier `inst` releases waves although others have ended without reaching it."""

    def arrive(self, barrier: int, first: int, last: int, completions: int) -> None:
        """Waves [first, last) have signalled a split barrier, which had completed `completions` times before."""

    def leave(self, barrier: int, first: int, last: int, completions: int) -> None:
        """Waves [first, last) go on behind their wait for the completion number `completions` of a split barrier."""

    def notified(self, address: int, wave: int, arrivals: int) -> None:
        """What `wave` had under way has completed and arrived on the barrier object at LDS `address`."""


def _nothing(*_: Any) -> None:
    return None


def _always(inst: Instruction) -> bool:
    return True


class Recorder:
    """Collects what one instruction does and passes it to the observer."""

    def __init__(self, observer: Any, instructions: Sequence[Instruction] = ()) -> None:
        self._instructions = instructions
        self.workgroup = getattr(observer, "workgroup", _nothing)
        self.workgroup_end = getattr(observer, "workgroup_end", _nothing)
        self.barrier = getattr(observer, "barrier", _nothing)
        self.unmet = getattr(observer, "unmet", _nothing)
        self.arrive = getattr(observer, "arrive", _nothing)
        self.leave = getattr(observer, "leave", _nothing)
        self.notified = getattr(observer, "notified", _nothing)
        self._wants = getattr(observer, "wants", _always)
        self._instruction = getattr(observer, "instruction", _nothing)
        self._complete = getattr(observer, "complete", _nothing)
        self._accesses: list[Access] = []

    def access(self, *fields: Any) -> None:
        """Note an access of the current instruction; the arguments are the fields of `Access`."""
        self._accesses.append(Access(*fields))

    def observed(self, inst: Instruction, closure: Closure) -> Closure:
        """`closure` with a report of what it did, or itself where the observer does not want to know."""
        if self._instruction is _nothing or not self._wants(inst):
            return closure
        pc = inst.index

        def run(b: Batch) -> int | None:
            mask, serial = b.mask, b.group.serial
            self._accesses = []
            try:
                following = closure(b)
            except SplitError:
                self._report(inst, b, mask, serial, pc)
                raise
            self._report(
                inst, b, mask, serial, pc + 1 if following is None else b.pc if following == STOP else following
            )
            return following

        return run

    def _report(self, inst: Instruction, b: Batch, mask: Array | None, serial: int, next_pc: int) -> None:
        """Report the current instruction; `serial` is the last number given before it."""
        serials = tuple(range(serial + 1, b.group.serial + 1))
        self._instruction(InstructionEvent(inst, b.first, b.last, mask, tuple(self._accesses), serials, next_pc, b))

    def complete(self, b: Batch, pending: Pending) -> None:
        """Report a delivery."""
        if self._complete is _nothing:
            return
        inst = pending.inst
        # What was bound may carry another name of the same operation.
        inst = self._instructions[inst.index] if self._instructions else inst
        self._complete(CompletionEvent(inst, b.first, b.last, pending.serial))
