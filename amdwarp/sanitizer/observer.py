"""The sanitizer as an observer of the emulator: it follows waits and barriers, and checks every access against them.

What can be said of the text alone is said before anything runs: which instructions may touch a register on its way
(`amdwarp.sanitizer.pending`) and which pairs stand too close (`amdwarp.sanitizer.waitstates`). At run time only memory
operations, waits, barriers, branches and those suspects are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from amdwarp.asm import Instruction, Program
from amdwarp.emulator.events import InstructionEvent
from amdwarp.errors import EmulatorError
from amdwarp.sanitizer.effects import COUNTER, QUEUES, VM, Effects, name_registers, program_effects
from amdwarp.sanitizer.order import ATOMIC, FINISHED, MAX_WAVES, TO_LDS, WRITE, Records
from amdwarp.sanitizer.pending import conflict, suspects
from amdwarp.sanitizer.report import Collector, Finding, Site, span
from amdwarp.sanitizer.shadow import LdsShadow
from amdwarp.sanitizer.slots import Clash
from amdwarp.sanitizer.spin import SpinWatch
from amdwarp.sanitizer.waitstates import Shortfall, shortfalls

_FLAGS = {"read": 0, "write": WRITE, "atomic": ATOMIC | WRITE}


@dataclass(frozen=True, slots=True)
class Operation:
    """A memory operation under way.

    Attributes:
        inst: index of the instruction.
        record: LDS record of wave `first`, or 0.
        first: first wave of the batch that issued it.
    """

    inst: int
    record: int
    first: int


class Sanitizer:
    """Observer of one launch; see `amdwarp.emulator.events` for the calls.

    Args:
        program: the kernel.
        collector: takes what is found.
    """

    def __init__(self, program: Program, collector: Collector) -> None:
        if program.waves > MAX_WAVES:
            raise EmulatorError(
                f"a workgroup of {program.waves} waves is more than the sanitizer follows ({MAX_WAVES})"
            )
        self.program, self.collector = program, collector
        self.effects = program_effects(program)
        self.waves = program.waves
        self.suspects = suspects(program, self.effects)
        self.shortfalls = shortfalls(program, self.effects)
        self.records = Records(self.waves)
        self.shadow: LdsShadow | None = None
        self.spin = SpinWatch(self.waves)
        self.position = [program.entry] * self.waves
        self.queues: dict[str, list[list[Operation]]] = {}
        self.ended: set[int] = set()
        self._executed: set[int] = set()
        self._watched = {at for pair in self.shortfalls for at in (pair.producer, pair.consumer)}
        self._handlers = [
            self._handler(inst, effects) for inst, effects in zip(program.instructions, self.effects, strict=True)
        ]
        self._fresh()

    def _handler(self, inst: Instruction, effects: Effects) -> Callable[[InstructionEvent], None] | None:
        if effects.waits:
            return self._wait
        if effects.queue:
            return self._memory
        return {"s_barrier": self._at_barrier, "s_endpgm": self._end}.get(
            inst.base, self._branch if _is_loop(self.program, inst) else None
        )

    def _fresh(self) -> None:
        self.queues = {queue: [[] for _ in range(self.waves)] for queue in QUEUES}
        self.ended = set()
        self.position = [self.program.entry] * self.waves

    # Calls of the emulator

    def wants(self, inst: Instruction) -> bool:
        """True for what the run-time checks look at."""
        return self._handlers[inst.index] is not None or inst.index in self.suspects or inst.index in self._watched

    def workgroup(self, index: tuple[int, int, int]) -> None:
        """A workgroup starts."""
        self.collector.workgroup = index
        self.records.reset()
        if self.shadow is not None:
            self.shadow.reset()
        self.spin.reset()
        self._fresh()

    def workgroup_end(self, index: tuple[int, int, int]) -> None:
        """A workgroup has ended."""
        if self.shadow is not None:
            self.shadow.finish()

    def instruction(self, event: InstructionEvent) -> None:
        """An instruction was issued."""
        at = event.inst.index
        self.position[event.first : event.last] = [at] * (event.last - event.first)
        if at in self.suspects:
            self._check_registers(event.inst, range(event.first, event.last))
        if at in self._watched:
            self._executed.add(at)
        handler = self._handlers[at]
        if handler is not None:
            handler(event)

    def barrier(self, waves: tuple[int, ...]) -> None:
        """A barrier released these waves."""
        self.records.barrier(waves, self.ended)
        self.spin.released(waves)
        missing = self.ended - set(waves)
        if missing:
            here = {self.position[wave] for wave in waves}
            first = Site(self.program.instructions[self.position[min(missing)]], missing)
            second = Site(self.program.instructions[min(here)], set(waves))
            problem = f"waves {span(waves)} stand at a barrier that waves {span(missing)} never reach: they have ended"
            self.collector.add(
                Finding("deadlock", problem, "every wave must pass the same number of barriers", first, second)
            )

    # Events

    def _wait(self, event: InstructionEvent) -> None:
        self._drain(self.effects[event.inst.index].waits, range(event.first, event.last))

    def _drain(self, limits: Iterable[tuple[str, int]], waves: range) -> None:
        """Finish all but the given number of operations of each queue."""
        records: list[int] = []
        owners: list[int] = []
        for queue, left in limits:
            for wave in waves:
                operations = self.queues[queue][wave]
                covered = len(operations) - left
                if covered <= 0:
                    continue
                for operation in operations[:covered]:
                    if operation.record:
                        records.append(operation.record + wave - operation.first)
                        owners.append(wave)
                del operations[:covered]
        if records:
            self.records.finish(records, owners)

    def _memory(self, event: InstructionEvent) -> None:
        effects = self.effects[event.inst.index]
        record = 0
        for access in event.accesses:
            if access.space == "lds":
                if self.shadow is None:
                    self.shadow = LdsShadow(event.batch.group.lds.size, self.records, self._clash)
                flags = _FLAGS[access.kind] | (TO_LDS if effects.to_lds else 0)
                if not record:
                    record = self.records.issue(event.inst.index, event.first, event.last, flags)
                if access.kind == "read":
                    self.shadow.read(access, event.inst.index, event.first, record)
                else:
                    self.shadow.write(access, event.inst.index, event.first, record, flags)
        operation = Operation(event.inst.index, record, event.first)
        for operations in self.queues[effects.queue][event.first : event.last]:
            operations.append(operation)

    def _at_barrier(self, event: InstructionEvent) -> None:
        self.spin.idle(range(event.first, event.last))

    def _end(self, event: InstructionEvent) -> None:
        waves = range(event.first, event.last)
        self._drain([(queue, 0) for queue in QUEUES], waves)
        self.ended.update(waves)
        self.spin.idle(waves)

    def _branch(self, event: InstructionEvent) -> None:
        if event.next_pc <= event.inst.index:
            self.spin.round(event)

    # Findings

    def _check_registers(self, inst: Instruction, waves: Iterable[int]) -> bool:
        """Report registers that `inst` touches while they are on their way; True if there are any."""
        user = self.effects[inst.index]
        found = False
        for wave in waves:
            for queue in QUEUES:
                operations = self.queues[queue][wave]
                for at, operation in enumerate(operations):
                    registers = conflict(self.effects[operation.inst], user)
                    if registers:
                        found = True
                        self._early(inst, wave, operation, registers, queue, len(operations) - at - 1)
        return found

    def _early(
        self, inst: Instruction, wave: int, operation: Operation, registers: int, queue: str, younger: int
    ) -> None:
        read = registers & self.effects[inst.index].reads
        kind = "register-early-read" if read else "register-early-write"
        what = "read" if read else "overwritten"
        problem = f"{name_registers(read or registers)} {what} before the wait that covers the load"
        remedy = f"s_waitcnt {COUNTER[queue]}({0 if queue == 'sm' else younger}) between them"
        loaded = self.program.instructions[operation.inst]
        self.collector.add(Finding(kind, problem, remedy, Site(loaded, {wave}), Site(inst, {wave})))

    def _clash(self, clash: Clash) -> None:
        """Turn a fault of the LDS shadow into a finding."""
        later = None if clash.later < 0 else Site(self.program.instructions[clash.later], set(clash.waves))
        index = int(self.records.inst[clash.earlier])
        if index < 0:
            finding = Finding(
                clash.kind, "LDS is read that nobody has written", "", None, later, (clash.low, clash.high)
            )
            self.collector.add(finding)
            return
        owner = int(self.records.wave[clash.earlier])
        earlier = Site(self.program.instructions[index], {owner})
        problem, remedy = self._explain(clash, earlier, owner)
        self.collector.add(Finding(clash.kind, problem, remedy, earlier, later, (clash.low, clash.high)))

    def _explain(self, clash: Clash, earlier: Site, owner: int) -> tuple[str, str]:
        """What is wrong and what would help."""
        if clash.kind == "lds-stale-read":
            return (
                "these bytes are left over from an earlier use of the slot",
                "let the write cover every byte that is read",
            )
        wait = self._missing_wait(clash.earlier, owner)
        others = set(clash.waves) - {owner}
        done = {"lds-write-after-read": "read", "lds-unpublished-read": "write"}.get(clash.kind, "first write")
        then = {"lds-write-after-read": "overwrites", "lds-unpublished-read": "reads"}.get(clash.kind, "writes")
        verb = then if len(clash.waves) == 1 else then[:-1]
        who = f"wave{'s' if len(clash.waves) > 1 else ''} {span(clash.waves)}"
        if wait:
            problem = f"the {done} of wave {owner} is still under way when {who} {verb} there"
        else:
            problem = f"no barrier stands between the {done} of wave {owner} and where {who} {verb} there"
        steps = [f"{wait} in wave {owner} behind line {earlier.inst.line}"] if wait else []
        if others:
            steps.append("then a barrier that both pass" if wait else "a barrier that both pass, between the two")
        return problem, ", ".join(steps)

    def _missing_wait(self, record: int, owner: int) -> str:
        """The wait that would cover `record` now, or "" if its owner has waited."""
        if self.records.flags[record] & FINISHED:
            return ""
        for queue in QUEUES:
            operations = self.queues[queue][owner]
            for at, operation in enumerate(operations):
                if operation.record and operation.record + owner - operation.first == record:
                    return f"s_waitcnt {COUNTER[queue]}({len(operations) - at - 1})"
        # The operation itself is being issued: nothing is younger.
        return f"s_waitcnt {COUNTER[VM]}(0)" if self.records.flags[record] & TO_LDS else f"s_waitcnt {COUNTER['ds']}(0)"

    def fault_registers(self, inst: Instruction, wave: int | None) -> bool:
        """Check the registers of an instruction that could not be carried out."""
        if inst.index not in self.suspects:
            return False
        return self._check_registers(inst, range(self.waves) if wave is None else (wave,))

    def finish(self) -> None:
        """Report what the text alone shows, of instructions that were executed."""
        for pair in self.shortfalls:
            if pair.producer in self._executed and pair.consumer in self._executed:
                self.collector.add(self._too_close(pair))

    def _too_close(self, pair: Shortfall) -> Finding:
        first, second = (Site(self.program.instructions[at], set()) for at in (pair.producer, pair.consumer))
        registers = f" ({name_registers(pair.registers)})" if pair.registers else ""
        problem = f"{pair.name}{registers}: {pair.needed} wait states are needed, {pair.found} are there"
        missing = pair.needed - pair.found
        return Finding("wait-states", problem, f"s_nop {min(missing, 8) - 1} between them", first, second)

    def positions(self) -> str:
        """Where each wave is."""
        places: dict[int, set[int]] = {}
        for wave, at in enumerate(self.position):
            places.setdefault(at, set()).add(wave)
        parts = []
        for at, waves in places.items():
            inst = self.program.instructions[at]
            parts.append(f"wave{'s' if len(waves) > 1 else ''} {span(waves)} at {inst.where}: '{inst.text}'")
        return "; ".join(parts)


def _is_loop(program: Program, inst: Instruction) -> bool:
    """True for a jump that may go back."""
    if not inst.base.startswith(("s_branch", "s_cbranch")):
        return False
    target: Any = inst.operands[0]
    return program.labels[target.name] <= inst.index
