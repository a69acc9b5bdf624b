"""What the text of a program says before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from amdwarp.asm import Program
from amdwarp.sanitizer.effects import Effects, program_effects
from amdwarp.sanitizer.guesses import guesses
from amdwarp.sanitizer.pending import suspects
from amdwarp.sanitizer.polls import Poll, polls
from amdwarp.sanitizer.waitstates import Shortfall, shortfalls


@dataclass(frozen=True, slots=True)
class Static:
    """Facts of a program; instructions are named by their index.

    Attributes:
        effects: of each instruction.
        suspects: instructions that may touch a register on its way, and the operations that bring it.
        guesses: loads that an atomic confirms.
        shortfalls: pairs that stand too close.
        polls: LDS reads by which a wave waits.
    """

    effects: tuple[Effects, ...] = ()
    suspects: Mapping[int, frozenset[int]] = field(default_factory=dict)
    guesses: frozenset[int] = frozenset()
    shortfalls: tuple[Shortfall, ...] = ()
    polls: Mapping[int, Poll] = field(default_factory=dict)


@lru_cache(maxsize=8)
def static(program: Program) -> Static:
    """The facts of `program`, kept for the programs used last."""
    effects = program_effects(program)
    return Static(
        effects,
        suspects(program, effects),
        guesses(program, effects),
        tuple(shortfalls(program, effects)),
        polls(program, effects),
    )
