"""Which instructions may touch a register before the wait that covers its load: a may-analysis of the control flow.

For each queue the state holds, youngest first, the loads that may be the n-th youngest operation under way. A wait for
n forgets those from the n-th on; where paths meet, the sets of each age are joined. An instruction that the analysis
clears needs no look at run time; the others are *suspects*, watched while the program runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from amdwarp.asm import Program
from amdwarp.emulator.state import MOST_UNDER_WAY
from amdwarp.sanitizer.effects import IN_ORDER, QUEUES, Effects
from amdwarp.sanitizer.flow import blocks

#: Loads by age, youngest first, for each queue in the order of QUEUES.
State = tuple[tuple[frozenset[int], ...], ...]

_NONE: State = ((),) * len(QUEUES)


def _step(state: list[list[frozenset[int]]], at: int, effects: Effects) -> None:
    """The state behind instruction `at`."""
    for queue, left in effects.waits:
        del state[QUEUES.index(queue)][left:]
    if effects.queue:
        ages = state[QUEUES.index(effects.queue)]
        ages.insert(0, frozenset((at,)) if effects.delivers else frozenset())
        if len(ages) > MOST_UNDER_WAY:
            ages[MOST_UNDER_WAY - 1 :] = [ages[MOST_UNDER_WAY - 1] | ages[MOST_UNDER_WAY]]


def _join(left: State, right: State) -> State:
    joined = []
    for mine, its in zip(left, right, strict=True):
        longer, shorter = (mine, its) if len(mine) >= len(its) else (its, mine)
        rows = [a | b for a, b in zip(longer, shorter, strict=False)]
        joined.append((*rows, *longer[len(shorter) :]))
    return tuple(joined)


def conflict(load: Effects, user: Effects) -> int:
    """Registers of `load` that `user` may not touch while they are on their way.

    Loads of one in-order queue may write a register one after the other.
    """
    if user.queue == load.queue and load.queue in IN_ORDER:
        return load.delivers & (user.reads | (user.writes & ~user.delivers))
    return load.delivers & user.touches


def suspects(program: Program, effects: Sequence[Effects]) -> dict[int, frozenset[int]]:
    """Instructions that may touch a register on its way: index to the loads concerned."""
    flow = blocks(program)
    states: dict[int, State] = {at: _NONE for at, block in enumerate(flow) if block.first == program.entry}
    work = list(states)
    while work:
        at = work.pop()
        state = [list(ages) for ages in states[at]]
        for index in range(flow[at].first, flow[at].last):
            _step(state, index, effects[index])
        after: State = tuple(tuple(ages) for ages in state)
        for following in flow[at].successors:
            known = states.get(following)
            joined = after if known is None else _join(known, after)
            if joined != known:
                states[following] = joined
                work.append(following)
    found: dict[int, frozenset[int]] = {}
    for at, start in states.items():
        found.update(_suspects_of_block(start, range(flow[at].first, flow[at].last), effects))
    return found


def _suspects_of_block(start: State, indices: range, effects: Sequence[Effects]) -> dict[int, frozenset[int]]:
    found: dict[int, frozenset[int]] = {}
    state = [list(ages) for ages in start]
    under_way, registers = _under_way(state, effects)
    for index in indices:
        effect = effects[index]
        if registers & effect.touches:
            guilty = frozenset(load for load in under_way if conflict(effects[load], effect))
            if guilty:
                found[index] = guilty
        if effect.waits or effect.queue:
            _step(state, index, effect)
            under_way, registers = _under_way(state, effects)
    return found


def _under_way(state: list[list[frozenset[int]]], effects: Sequence[Effects]) -> tuple[set[int], int]:
    """All loads that may be under way, and their registers."""
    loads: set[int] = set().union(*(ages for queue in state for ages in queue))
    registers = 0
    for load in loads:
        registers |= effects[load].delivers
    return loads, registers
