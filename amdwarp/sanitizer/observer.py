"""The sanitizer as an observer of the emulator: it follows waits and barriers, and checks every access against them.

What can be said of the text alone is said before anything runs (`amdwarp.sanitizer.static`). At run time only memory
operations, waits, barriers, jumps back and those suspects are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from amdwarp.asm import Instruction, Program
from amdwarp.emulator.events import Access, CompletionEvent, InstructionEvent
from amdwarp.emulator.memory import Array
from amdwarp.emulator.state import WAITING
from amdwarp.errors import EmulatorError
from amdwarp.sanitizer.effects import DS, QUEUES, TN, Effects, spell_wait
from amdwarp.sanitizer.memory import MemoryClash, MemoryShadow
from amdwarp.sanitizer.order import APART, ARRIVE, ATOMIC, MAX_WAVES, TENSOR, WRITE, Records
from amdwarp.sanitizer.pending import conflict
from amdwarp.sanitizer.queues import Operation, Queues
from amdwarp.sanitizer.redundant import Needs
from amdwarp.sanitizer.report import Collector, Finding, Site
from amdwarp.sanitizer.shadow import LdsShadow
from amdwarp.sanitizer.slots import Clash
from amdwarp.sanitizer.spin import SpinWatch
from amdwarp.sanitizer.static import Static, static
from amdwarp.sanitizer.waiting import Waiting
from amdwarp.sanitizer.wording import Wording

_FLAGS = {"read": 0, "write": WRITE, "atomic": ATOMIC | WRITE}
_Handler = Callable[[InstructionEvent], None]


class Sanitizer:
    """Observer of one launch; see `amdwarp.emulator.events` for the calls.

    Args:
        program: the kernel.
        collector: takes what is found.
        uninitialised: names of the buffers that hold nothing until written.
        races: look for races between workgroups.
        redundant: note what each wait and barrier is needed for.
    """

    def __init__(
        self,
        program: Program,
        collector: Collector,
        uninitialised: frozenset[str] = frozenset(),
        races: bool = False,
        redundant: bool = False,
    ) -> None:
        if program.waves > MAX_WAVES:
            raise EmulatorError(
                f"{program.waves} waves in a workgroup are more than the {MAX_WAVES} that can be followed"
            )
        self.program, self.collector, self.waves = program, collector, program.waves
        self.effects: tuple[Effects, ...] = ()
        self.static = Static()
        self.records = Records(self.waves)
        self.needs = Needs(self.records) if redundant else None
        self.queues = Queues(program.target, self.waves, self.records, self.needs)
        self.wording = Wording(program.instructions, self.records, self.queues)
        self.shadow: LdsShadow | None = None
        self.lds: Array = np.zeros(0, np.uint8)
        self.waiting: Waiting | None = None
        self.memory = MemoryShadow(self._memory_clash, uninitialised, races)
        self.spin = SpinWatch(self.waves)
        self._executed: set[int] = set()
        self._watched: set[int] = set()
        self._handlers: list[_Handler | None] = []
        self._begin()

    def _analyse(self) -> None:
        """Find what the text alone says; done when the emulator has accepted every instruction."""
        known = self.static = static(self.program)
        self.effects = self.wording.effects = known.effects
        if known.polls or any(_arrives(inst) for inst in self.program.instructions):
            self.waiting = Waiting(self.program, self.effects, known.polls, self.records, self.queues, self._early_poll)
        self._watched = {at for pair in known.shortfalls for at in (pair.producer, pair.consumer)}
        code = zip(self.program.instructions, self.effects, strict=True)
        self._handlers = [self._handler(inst, effects) for inst, effects in code]

    def _handler(self, inst: Instruction, effects: Effects) -> _Handler | None:
        """What is to be done at an instruction."""
        if effects.waits:
            return self._wait
        if effects.queue:
            return self._memory
        if self.waiting is not None and inst.index in self.waiting.branches:
            return self._deciding_branch
        if _is_loop(self.program, inst):
            return self._branch
        table = {
            "s_barrier": self._at_barrier,
            "s_barrier_signal": self._at_signal,
            "s_barrier_signal_isfirst": self._at_signal,
            "s_barrier_wait": self._at_split_barrier,
            "s_endpgm": self._end,
        }
        return table.get(inst.base)

    def _begin(self) -> None:
        self.queues.reset()
        self.ended: set[int] = set()
        self.scratch: Array | None = None
        self.position = [self.program.entry] * self.waves
        self._now: Site | None = None
        self._owed: set[tuple[int, int]] = set()
        self._twice: set[int] = set()
        self._arriving: dict[tuple[int, int], list[tuple[int, list[int]]]] = {}
        if self.waiting is not None:
            self.waiting.reset()

    # Calls of the emulator

    def wants(self, inst: Instruction) -> bool:
        """True for what the run-time checks look at."""
        if not self._handlers:
            self._analyse()
        return (
            self._handlers[inst.index] is not None or inst.index in self.static.suspects or inst.index in self._watched
        )

    def workgroup(self, index: tuple[int, int, int]) -> None:
        """A workgroup starts."""
        self.collector.workgroup = index
        self.records.reset()
        if self.shadow is not None:
            self.shadow.reset()
        if self.needs is not None:
            self.needs.reset()
        self.memory.workgroup()
        self.spin.reset()
        self._begin()

    def workgroup_end(self, index: tuple[int, int, int]) -> None:
        """A workgroup has ended."""
        if self.shadow is not None:
            self.shadow.finish()

    def instruction(self, event: InstructionEvent) -> None:
        """An instruction was issued."""
        at = event.inst.index
        self.position[event.first : event.last] = [at] * (event.last - event.first)
        if at in self.static.suspects:
            self.check_registers(event.inst, range(event.first, event.last))
        if at in self._watched:
            self._executed.add(at)
        handler = self._handlers[at]
        if handler is not None:
            handler(event)

    def barrier(self, waves: tuple[int, ...]) -> None:
        """A barrier released these waves."""
        self.records.barrier(waves, self.ended)
        self._passed()
        self.spin.released(waves)
        if self.needs is not None:
            self.needs.barrier(self.position[wave] for wave in waves)
        missing = self.ended - set(waves)
        if missing:
            self.collector.add(self.wording.never_reached(set(waves), missing, self.position))

    def _passed(self) -> None:
        """Some waves have passed a barrier."""
        if self.shadow is not None:
            self.shadow.slots.barrier()

    def arrive(self, barrier: int, first: int, last: int, completions: int) -> None:
        """Waves [first, last) have signalled a split barrier."""
        waves = range(first, last)
        self.records.arrive((barrier, completions + 1), waves)
        # Named barriers may have waves that only signal.
        self._twice = {wave for wave in waves if (barrier, wave) in self._owed and barrier < 0}
        self._owed.update((barrier, wave) for wave in waves)

    def leave(self, barrier: int, first: int, last: int, completions: int) -> None:
        """Waves [first, last) go on behind a split barrier."""
        waves = range(first, last)
        self.records.leave((barrier, completions), waves, self.ended)
        self._owed.difference_update((barrier, wave) for wave in waves)
        self._passed()
        self.spin.released(waves)

    def notified(self, address: int, wave: int, arrivals: int) -> None:
        """What a wave had under way is done and has arrived on a barrier object."""
        assert self.waiting is not None
        record, over = self._arriving[address, wave].pop(0)
        self.waiting.arrived(address, wave, record, over, self.lds)

    def complete(self, event: CompletionEvent) -> None:
        """A memory operation was carried out."""
        if self.waiting is not None:
            self.waiting.complete(event, self.lds)

    # Events

    def _wait(self, event: InstructionEvent) -> None:
        at = event.inst.index
        if self.needs is not None:
            self.needs.executed.add(at)
        self.queues.drain(self.effects[at].waits, range(event.first, event.last), at)

    def _memory(self, event: InstructionEvent) -> None:
        effects = self.effects[event.inst.index]
        record, stores = 0, False
        for access in event.accesses:
            if access.space == "lds" and access.kind == "atomic" and _arrives(event.inst):
                self._arrival(event, access, record)
            elif access.space == "lds":
                apart = 0 if effects.queue == DS else APART | TENSOR if effects.queue == TN else APART
                record = self._lds(event, access, record, apart)
            elif access.space == "global":
                stores |= access.kind != "read"
                if self.needs is not None:
                    self.needs.meetings.access(event.batch.group.memory, access, event.first)
                if self.memory.active:
                    self._now = Site(event.inst, set(range(event.first, event.last)))
                    at = event.inst.index
                    self.memory.access(
                        event.batch.group.memory, access, at, bool(effects.delivers), at in self.static.guesses
                    )
            elif access.space == "scratch":
                self._scratch(event, access)
        operation = Operation(event.inst.index, record, event.first, stores)
        self.queues.issue(effects.queue, operation, event.first, event.last)

    def _arrival(self, event: InstructionEvent, access: Access, record: int) -> None:
        """Waves arrive on barrier objects, behind everything in the queue of the instruction.

        LDS operations do so in their turn; copies, of which `record` is one, when they are done (`notified`).
        """
        queue = self.effects[event.inst.index].queue
        flags = ARRIVE | WRITE | ATOMIC | (0 if queue == DS else APART)
        own = self._lds_record(event, flags)
        self._shadow(event).write(access, event.inst.index, event.first, own, flags)
        assert self.waiting is not None
        if queue == DS:
            self.waiting.changes(event, access, own)
        for wave in range(event.first, event.last):
            row = wave - event.first
            on = access.addresses[row] if access.mask is None else access.addresses[row][access.mask[row]]
            over = self.queues.records_of(queue, wave) + ([record + row] if record else [])
            self.waiting.cells.objects.update(np.unique(on).tolist())
            for address in np.unique(on).tolist() if queue != DS else ():
                self._arriving.setdefault((address, wave), []).append((own + row, over))

    def _shadow(self, event: InstructionEvent) -> LdsShadow:
        if self.shadow is None:
            self.shadow = LdsShadow(event.batch.group.lds.size, self.records, self._clash, self.needs)
            self.lds = event.batch.group.lds.data
        return self.shadow

    def _lds_record(self, event: InstructionEvent, flags: int) -> int:
        """Records for the LDS accesses of an instruction, one for each wave."""
        record = self.records.issue(event.inst.index, event.first, event.last, flags)
        if self.needs is not None:
            self.needs.issued(record, self.records.count)
        return record

    def _lds(self, event: InstructionEvent, access: Access, record: int, flags: int) -> int:
        """An access to LDS; the accesses of one instruction share a record, whose number is returned."""
        shadow, waiting, at = self._shadow(event), self.waiting, event.inst.index
        flags |= _FLAGS[access.kind]
        polled = waiting is not None and at in waiting.polls and waiting.reads(event, access)
        if polled and access.kind == "read":
            return record
        record = record or self._lds_record(event, flags)
        if access.kind != "read":
            shadow.write(access, at, event.first, record, flags)
            if waiting is not None and not flags & APART:
                waiting.changes(event, access, record)
            return record
        if waiting is not None and waiting.cells.objects:
            waiting.looks(event, access)
        shadow.read(access, at, event.first, record)
        return record

    def _scratch(self, event: InstructionEvent, access: Access) -> None:
        """Private memory: a wave reads only dwords that some lane of it has written.

        Lanes are not told apart, since a compiler may restore a register in lanes where it holds nothing.
        """
        if self.scratch is None:
            self.scratch = np.zeros((self.waves, event.batch.group.scratch.shape[-1] // 4 + 1), bool)
        steps = np.arange((access.size + 3) // 4)
        for wave in range(event.first, event.last):
            row = wave - event.first
            offsets = access.addresses[row] if access.mask is None else access.addresses[row][access.mask[row]]
            at = np.unique(offsets >> 2)[:, None] + steps
            known = self.scratch[wave, at]
            if access.kind == "write":
                self.scratch[wave, at] = True
            elif not known.all():
                problem = (
                    f"private memory is read from byte {4 * int(at[~known].min())} on, which the wave has not written"
                )
                self.collector.add(Finding("uninitialised-read", problem, "", None, Site(event.inst, {wave})))

    def _at_barrier(self, event: InstructionEvent) -> None:
        if self.needs is not None:
            self.needs.executed.add(event.inst.index)
        self.spin.idle(range(event.first, event.last))

    def _at_signal(self, event: InstructionEvent) -> None:
        if self._twice:
            self.collector.add(self.wording.signalled_twice(event.inst, self._twice))
            self._twice = set()

    def _at_split_barrier(self, event: InstructionEvent) -> None:
        if event.batch.state == WAITING:
            self.spin.idle(range(event.first, event.last))

    def _end(self, event: InstructionEvent) -> None:
        waves = range(event.first, event.last)
        self.queues.drain([(queue, 0) for queue in QUEUES], waves, event.inst.index)
        self.ended.update(waves)
        self.spin.idle(waves)

    def _branch(self, event: InstructionEvent) -> None:
        if event.next_pc <= event.inst.index:
            self.spin.round(event)

    def _deciding_branch(self, event: InstructionEvent) -> None:
        assert self.waiting is not None
        if self.waiting.leaves(event):
            self._passed()
        self._branch(event)

    # Findings

    def _early_poll(self, first: int, poll: int, wave: int, low: int, high: int) -> None:
        self._clash(Clash("lds-unpublished-read", first, poll, frozenset((wave,)), low, high))

    def check_registers(self, inst: Instruction, waves: Iterable[int]) -> bool:
        """Report registers that `inst` touches while they are on their way; True if there are any."""
        user, found = self.effects[inst.index], False
        for wave in waves:
            for queue, younger, operation in self.queues.under_way(wave):
                registers = conflict(self.effects[operation.inst], user)
                if registers:
                    found = True
                    wait = spell_wait(self.program.target, queue, younger)
                    self.collector.add(self.wording.early(inst, wave, operation, registers, wait))
        return found

    def _clash(self, clash: Clash) -> None:
        self.collector.add(self.wording.lds(clash))

    def _memory_clash(self, clash: MemoryClash) -> None:
        assert self._now is not None
        self.collector.add(self.wording.memory(clash, self._now))

    def finish(self) -> None:
        """Report what the text alone shows, of instructions that were executed."""
        for pair in self.static.shortfalls:
            if pair.producer in self._executed and pair.consumer in self._executed:
                self.collector.add(self.wording.too_close(pair))


def _arrives(inst: Instruction) -> bool:
    """True for an instruction that arrives on a barrier object in LDS."""
    return "barrier_arrive" in inst.base or inst.base.startswith("tensor_")


def _is_loop(program: Program, inst: Instruction) -> bool:
    """True for a jump that may go back."""
    if not inst.base.startswith(("s_branch", "s_cbranch")):
        return False
    target: Any = inst.operands[0]
    return program.labels[target.name] <= inst.index
