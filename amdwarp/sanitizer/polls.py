"""Reads of LDS by which a wave waits for other waves: found in the text.

A *poll* is an LDS read (or an atomic that returns the old value) whose result decides whether a loop goes round again,
where the loop does nothing else: no barrier, no store, no matrix instruction. ::

    again:
        ds_read_b32 v4, v2              the poll
        s_waitcnt lgkmcnt(0)
        v_readfirstlane_b32 s4, v4
        s_cmp_ge_u32 s4, s5
        s_cbranch_scc1 go               the branch it decides; a wave has acquired when it leaves here
        s_sleep 1
        s_branch again
    go:

An atomic that returns the old value and decides a jump ahead is one too: the last wave to arrive goes on.

A compiler may put a copy of the read before the loop; that one is a poll too. A loop that walks through LDS (a search)
is none: what it reads decides where it reads next.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from amdwarp.asm import Program, Symbol
from amdwarp.sanitizer.effects import DS, EXEC_BITS, SCC_BIT, SM, VCC_BITS, Effects
from amdwarp.sanitizer.flow import successors

#: Instructions behind a read among which a loop is looked for.
_LONGEST = 256
#: Instructions between a read before the loop and the loop.
_AHEAD = 32
_READS = ("ds_read_b32", "ds_read_b64", "ds_load_b32", "ds_load_b64")
_NOT_IN_A_WAIT = (
    *("s_barrier", "s_endpgm", "v_mfma", "v_smfmac", "v_wmma", "v_swmmac"),
    *("s_setpc", "s_swappc", "s_call", "s_set_pc", "s_swap_pc"),
)


@dataclass(frozen=True, slots=True)
class Poll:
    """A read that waits.

    Attributes:
        read: index of the read.
        inside: indices of the instructions of the loop (and of the way into it); behind them the wait is over.
        branches: the jumps that may leave `inside`.
        writes: registers that `inside` writes.
        once: it is not repeated; `inside` is empty.
    """

    read: int
    inside: frozenset[int]
    branches: frozenset[int]
    writes: int
    once: bool = False


def polls(program: Program, effects: Sequence[Effects]) -> dict[int, Poll]:
    """The polls of a program by the index of the read."""
    found: dict[int, Poll] = {}
    if not may_poll(program):
        return found
    for inst in program.instructions:
        if _may_poll(inst.base, effects[inst.index]):
            # A loop that polls several words only if there is none that polls this one alone.
            for alone in (True, False):
                poll = _in_loop(program, effects, inst.index, _loop(program, effects, inst.index, alone))
                if poll is not None:
                    found[inst.index] = poll
                    break
    waits = [poll.inside for poll in found.values()]
    for inst in program.instructions:
        if inst.index not in found and _may_poll(inst.base, effects[inst.index]):
            ahead = _ahead(program, effects, inst.index, waits)
            if ahead is not None:
                found[inst.index] = ahead
    return found


def may_poll(program: Program) -> bool:
    """True if `polls` may find one, without a look at the operands: for texts that nobody has accepted yet."""
    if any(_is_atomic(inst.base) for inst in program.instructions):
        return True
    reads = [inst.index for inst in program.instructions if inst.base in _READS]
    for inst in program.instructions if reads else ():
        if inst.base.startswith(("s_branch", "s_cbranch")) and inst.operands and isinstance(inst.operands[0], Symbol):
            loop = range(program.labels.get(inst.operands[0].name, inst.index + 1), inst.index + 1)
            inside = bisect_left(reads, loop.start) < bisect_left(reads, loop.stop)
            if inside and len(loop) <= _LONGEST and not any(_is_work(program.instructions[at].base) for at in loop):
                return True
    return False


def _is_work(base: str) -> bool:
    """True for what no loop that waits holds."""
    return base.startswith((*_NOT_IN_A_WAIT, "ds_write", "ds_store", "global_store", "buffer_store", "buffer_load"))


def _may_poll(base: str, effect: Effects) -> bool:
    return effect.queue == DS and bool(effect.delivers) and (base in _READS or _is_atomic(base))


def _is_atomic(base: str) -> bool:
    """True for an LDS atomic that returns the old value, of a word that is no barrier object."""
    return base.startswith("ds_") and "_rtn_" in base and "barrier_arrive" not in base


def _loop(program: Program, effects: Sequence[Effects], read: int, alone: bool) -> list[int]:
    """Where a wave that reads may come by before it reads again, if it does nothing but wait; in text order.

    Args:
        alone: it reads nothing else from LDS meanwhile.
    """
    forward, near, before = {read}, deque((read,)), dict[int, set[int]]()
    while near and len(forward) <= _LONGEST:
        for after in successors(program, at := near.popleft()):
            if after == read or (_waits(program, effects, after) and not (alone and effects[after].queue == DS)):
                before.setdefault(after, set()).add(at)
                if after not in forward:
                    forward.add(after)
                    near.append(after)
    inside, work = set(before.get(read, ())), list(before.get(read, ()))
    while work:
        for at in before.get(work.pop(), set()) - inside:
            inside.add(at)
            work.append(at)
    return sorted(inside | {read}) if inside else []


def _waits(program: Program, effects: Sequence[Effects], at: int) -> bool:
    """True for what may stand in a loop that waits."""
    effect, base = effects[at], program.instructions[at].base
    if base.startswith(_NOT_IN_A_WAIT):
        return False
    if effect.queue == DS:
        return bool(effect.delivers) and "barrier_arrive" not in base
    return effect.queue in ("", SM)


def _decided(program: Program, at: int, tainted: int) -> bool:
    """True for a conditional jump on what is tainted."""
    base = program.instructions[at].base
    if not base.startswith("s_cbranch"):
        return False
    bits = SCC_BIT if "scc" in base else VCC_BITS if "vcc" in base else EXEC_BITS
    return bool(bits & tainted)


def _step(effect: Effects, tainted: int) -> int:
    return tainted | effect.writes if effect.reads & tainted else tainted & ~effect.writes


def _in_loop(program: Program, effects: Sequence[Effects], read: int, loop: Sequence[int]) -> Poll | None:
    """The poll that `read` is within a loop, or None."""
    if not loop:
        return None
    tainted, decides = effects[read].delivers, False
    address = effects[read].operands[1]
    first = loop.index(read) + 1
    for at in (*loop[first:], *loop[: first - 1]):
        decides |= _decided(program, at, tainted)
        tainted = _step(effects[at], tainted)
    # A jump within the loop may decide too: compilers set a flag on either way and look at it where they meet.
    jumps = (at for at in loop if program.instructions[at].base.startswith(("s_branch", "s_cbranch")))
    branches = {at for at in jumps if not set(successors(program, at)) <= set(loop)}
    if not decides or not branches or tainted & address:
        return None
    writes = 0
    for at in loop:
        writes |= effects[at].writes
    return Poll(read, frozenset(loop), frozenset(branches), writes)


def _ahead(program: Program, effects: Sequence[Effects], read: int, waits: Sequence[frozenset[int]]) -> Poll | None:
    """The poll that `read` is before a loop that waits or, for an atomic, before a jump; or None."""
    tainted, writes = effects[read].delivers, effects[read].writes
    for at in range(read + 1, min(read + _AHEAD, len(effects))):
        if _decided(program, at, tainted):
            for into in successors(program, at):
                way = _way_into(program, effects, into, waits)
                if way is not None:
                    return Poll(read, frozenset(range(read, at + 1)) | way, frozenset((at,)), writes)
            is_atomic = _is_atomic(program.instructions[read].base)
            return Poll(read, frozenset(), frozenset((at,)), 0, once=True) if is_atomic else None
        if program.instructions[at].base.startswith(("s_branch", "s_cbranch")) or not _waits(program, effects, at):
            return None
        tainted, writes = _step(effects[at], tainted), writes | effects[at].writes
    return None


def _way_into(
    program: Program, effects: Sequence[Effects], at: int, waits: Sequence[frozenset[int]]
) -> frozenset[int] | None:
    """The instructions from `at` on into a loop that waits, the loop included; None if another way is taken."""
    passed: set[int] = set()
    while len(passed) < _AHEAD:
        for loop in waits:
            if at in loop:
                return frozenset(passed) | loop
        after = successors(program, at)
        if len(after) != 1 or not _waits(program, effects, at) or at in passed:
            return None
        passed.add(at)
        at = after[0]
    return None
