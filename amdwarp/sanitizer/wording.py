"""Findings in words: what happened, and what would order the two."""

from __future__ import annotations

from collections.abc import Sequence

from amdwarp.asm import Instruction
from amdwarp.sanitizer.effects import Effects, name_registers, spell_wait
from amdwarp.sanitizer.memory import MemoryClash
from amdwarp.sanitizer.order import FINISHED, Records
from amdwarp.sanitizer.queues import Operation, Queues
from amdwarp.sanitizer.report import Finding, Site, span
from amdwarp.sanitizer.slots import Clash
from amdwarp.sanitizer.waitstates import Shortfall

#: kind: (what the earlier operation is, what the later one does: of one wave, of several).
_VERBS = {
    "lds-unpublished-read": ("write", "reads", "read"),
    "lds-write-after-read": ("read", "overwrites", "overwrite"),
    "lds-write-write": ("first write", "writes", "write"),
}


def waves_text(waves: set[int]) -> str:
    """``wave 3`` or ``waves 0-3``."""
    return f"wave{'s' if len(waves) > 1 else ''} {span(waves)}"


class Wording:
    """Turns what the shadows report into findings."""

    def __init__(self, code: Sequence[Instruction], records: Records, queues: Queues) -> None:
        self.code, self.records, self.queues = code, records, queues
        self.effects: Sequence[Effects] = ()

    def lds(self, clash: Clash) -> Finding:
        """A fault between two LDS operations."""
        later = None if clash.later < 0 else Site(self.code[clash.later], set(clash.waves))
        place = (clash.low, clash.high)
        index = int(self.records.inst[clash.earlier])
        if index < 0:
            return Finding(clash.kind, "LDS is read that nobody has written", "", None, later, place)
        owner = int(self.records.wave[clash.earlier])
        earlier = Site(self.code[index], {owner})
        if clash.kind == "lds-stale-read":
            problem = "these bytes are left over from an earlier use of the slot"
            remedy = "write every byte that is read, in the slot that is read"
        elif clash.kind == "lds-lost-write":
            end = "overwritten" if clash.later >= 0 else "left at the end"
            problem, remedy = f"these bytes, visible to others, are {end} without having been read", ""
        else:
            problem, remedy = self._race(clash, earlier, owner)
        return Finding(clash.kind, problem, remedy, earlier, later, place)

    def _race(self, clash: Clash, earlier: Site, owner: int) -> tuple[str, str]:
        done, one, several = _VERBS[clash.kind]
        waves = set(clash.waves)
        then = f"{waves_text(waves)} {one if len(waves) == 1 else several} there"
        wait = self._missing_wait(clash.earlier, owner)
        meet = bool(waves - {owner})
        if wait:
            problem = f"the {done} of wave {owner} is still under way when {then}"
            remedy = f"{wait} in wave {owner} behind line {earlier.inst.line}"
            return problem, remedy + (", then a barrier that both pass" if meet else "")
        return f"no barrier stands between the {done} of wave {owner} and where {then}", "a barrier that both pass"

    def _missing_wait(self, record: int, owner: int) -> str:
        """The wait that would cover `record` now, or "" if its owner has waited."""
        if self.records.flags[record] & FINISHED:
            return ""
        # An operation that is just being issued stands in no queue yet, and nothing is younger.
        queue = self.effects[int(self.records.inst[record])].queue
        return self.queues.wait_for(record, owner) or spell_wait(self.queues.target, queue, 0)

    def memory(self, clash: MemoryClash, later: Site) -> Finding:
        """A fault in global memory."""
        earlier = None if clash.earlier < 0 else Site(self.code[clash.earlier], set())
        remedy = "an atomic of each workgroup on one address, between the two" if clash.kind == "global-race" else ""
        return Finding(clash.kind, clash.problem, remedy, earlier, later)

    def early(self, inst: Instruction, wave: int, operation: Operation, registers: int, wait: str) -> Finding:
        """A register touched before the wait that covers its load."""
        read = registers & self.effects[inst.index].reads
        kind, what = ("register-early-read", "read") if read else ("register-early-write", "overwritten")
        problem = f"{name_registers(read or registers)} {what} before the wait that covers the load"
        loaded = Site(self.code[operation.inst], {wave})
        return Finding(kind, problem, f"{wait} between them", loaded, Site(inst, {wave}))

    def too_close(self, pair: Shortfall) -> Finding:
        """Too few wait states."""
        first, second = (Site(self.code[at], set()) for at in (pair.producer, pair.consumer))
        registers = f" ({name_registers(pair.registers)})" if pair.registers else ""
        problem = f"{pair.name}{registers}: {pair.needed} wait states are needed, {pair.found} are there"
        missing = pair.needed - pair.found
        nops = ["s_nop 7"] * (missing // 8) + ([f"s_nop {missing % 8 - 1}"] if missing % 8 else [])
        return Finding("wait-states", problem, f"{', '.join(nops)} between them", first, second)

    def never_reached(self, waves: set[int], missing: set[int], position: Sequence[int]) -> Finding:
        """A barrier that some waves do not come to."""
        first, second = Site(self.code[position[min(missing)]], missing), Site(self.code[position[min(waves)]], waves)
        problem = f"{waves_text(waves)} stand at a barrier that {waves_text(missing)}, which ended, never reach"
        return Finding("deadlock", problem, "every wave must pass as many barriers as the others", first, second)

    def signalled_twice(self, inst: Instruction, waves: set[int]) -> Finding:
        """A split barrier that waves signal again before they have waited for it."""
        problem = f"{waves_text(waves)} signal the barrier again without having waited: it completes too early"
        return Finding("barrier-misuse", problem, "s_barrier_wait before it", None, Site(inst, waves))

    def positions(self, position: Sequence[int]) -> str:
        """Where each wave is."""
        places: dict[int, set[int]] = {}
        for wave, at in enumerate(position):
            places.setdefault(at, set()).add(wave)
        parts = (
            f"{waves_text(waves)} at {self.code[at].where}: '{self.code[at].text}'" for at, waves in places.items()
        )
        return "; ".join(parts)
