"""Where a text leaves fewer wait states between two instructions than `amdwarp.sanitizer.hazards` asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from amdwarp.asm import Immediate, Instruction, Program, Symbol
from amdwarp.sanitizer.effects import Effects
from amdwarp.sanitizer.flow import successors
from amdwarp.sanitizer.hazards import FARTHEST, RULES, TARGETS, Facts, Rule, facts_of


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A pair with too few wait states between: indices of the instructions, what is met, states needed and there."""

    producer: int
    consumer: int
    name: str
    registers: int
    needed: int
    found: int


def wait_states(inst: Instruction) -> int:
    """Wait states that `inst` counts for."""
    if inst.base == "s_nop" and inst.operands and isinstance(inst.operands[0], Immediate):
        return int(inst.operands[0].value) + 1
    return 1


def shortfalls(program: Program, effects: Sequence[Effects]) -> list[Shortfall]:
    """Every pair on some path through the text that a rule finds too close."""
    if program.target not in TARGETS:
        return []
    code = zip(program.instructions, effects, strict=True)
    facts = [facts_of(inst, effect, program.target) for inst, effect in code]
    following_of = [successors(program, at) for at in range(len(facts))]
    found: list[Shortfall] = []
    for producer in facts:
        active = [(rule, bits) for rule in RULES if (bits := rule.source(producer))]
        if active:
            found += _from(following_of, facts, producer, active)
    found += _register_file_hazards(program)
    return found


def _from(
    following_of: Sequence[tuple[int, ...]], facts: Sequence[Facts], producer: Facts, active: list[tuple[Rule, int]]
) -> Iterator[Shortfall]:
    """Walk on from `producer` as far as a rule reaches."""
    reach = max(rule.reach for rule, _ in active)
    start = producer.inst.index
    work = [(following, 0, tuple(bits for _, bits in active)) for following in following_of[start]]
    seen: dict[int, int] = {}
    while work:
        at, states, bits = work.pop()
        if states >= reach or seen.get(at, reach) <= states:
            continue
        seen[at] = states
        consumer = facts[at]
        writes = consumer.effects.writes
        if consumer.is_valu or consumer.is_memory or consumer.matrix is not None:
            for (rule, _), dangerous in zip(active, bits, strict=True):
                if dangerous and states < rule.reach:
                    met, needed = rule.hit(producer, consumer)
                    if dangerous & met and states < min(needed, FARTHEST):
                        yield Shortfall(start, at, rule.name, dangerous & met, needed, states)
        if writes:
            bits = tuple(dangerous & ~writes for dangerous in bits)
        states += wait_states(consumer.inst)
        if states < reach and any(bits):
            work += [(following, states, bits) for following in following_of[at]]


def _register_file_hazards(program: Program) -> Iterator[Shortfall]:
    """s_setreg before s_getreg or s_setreg of the same hardware register: 2 wait states."""
    for inst in program.instructions:
        if not inst.base.startswith("s_setreg"):
            continue
        name = _hardware_register(inst)
        work = [(following, 0) for following in successors(program, inst.index)]
        while work:
            at, states = work.pop()
            other = program.instructions[at]
            if other.base.startswith(("s_setreg", "s_getreg")) and _hardware_register(other) == name and states < 2:
                yield Shortfall(inst.index, at, "a hardware register accessed behind s_setreg", 0, 2, states)
            states += wait_states(other)
            if states < 2:
                work += [(following, states) for following in successors(program, at)]


def _hardware_register(inst: Instruction) -> str:
    for operand in inst.operands:
        if isinstance(operand, Symbol) and operand.name.startswith("hwreg("):
            return operand.name[len("hwreg(") : -1].split(",")[0].strip()
    return ""
