"""Loops of a program: natural loops of its control flow, innermost first where they nest."""

from __future__ import annotations

from dataclasses import dataclass

from amdwarp.asm import Program, Symbol


@dataclass(frozen=True)
class Loop:
    """A natural loop.

    Attributes:
        header: index of its first instruction.
        label: label of the header.
        tails: indices of the branches that jump back to it.
        body: indices of its instructions.
    """

    header: int
    label: str
    tails: frozenset[int]
    body: frozenset[int]


def branch_target(program: Program, index: int) -> int | None:
    """Where instruction `index` jumps to if it is a branch."""
    inst = program.instructions[index]
    if inst.base != "s_branch" and not inst.base.startswith("s_cbranch"):
        return None
    target = inst.operands[0]
    assert isinstance(target, Symbol)
    return program.labels[target.name]


@dataclass
class _Blocks:
    """Basic blocks: first and past-the-last instruction, successors and predecessors by block number."""

    spans: list[tuple[int, int]]
    successors: list[list[int]]
    predecessors: list[list[int]]


def _blocks(program: Program) -> _Blocks:
    count = len(program.instructions)
    targets = {index: branch_target(program, index) for index in range(count)}
    leaders = {program.entry, 0}
    for index, target in targets.items():
        if target is not None:
            leaders |= {target, index + 1}
        elif program.instructions[index].base == "s_endpgm":
            leaders.add(index + 1)
    firsts = sorted(leader for leader in leaders if leader < count)
    spans = list(zip(firsts, [*firsts[1:], count], strict=True))
    number = {first: at for at, first in enumerate(firsts)}
    successors: list[list[int]] = []
    for at, (_, end) in enumerate(spans):
        last, after = end - 1, [at + 1] if at + 1 < len(spans) else []
        target, base = targets[last], program.instructions[last].base
        if base == "s_endpgm":
            successors.append([])
        elif target is None:
            successors.append(after)
        else:
            successors.append([number[target]] + ([] if base == "s_branch" else after))
    predecessors: list[list[int]] = [[] for _ in spans]
    for at, following in enumerate(successors):
        for other in following:
            predecessors[other].append(at)
    return _Blocks(spans, successors, predecessors)


def _reachable(blocks: _Blocks, start: int, without: int | None) -> set[int]:
    """Blocks that `start` leads to on paths that do not enter `without`."""
    seen: set[int] = set()
    open_blocks = [] if start == without else [start]
    while open_blocks:
        at = open_blocks.pop()
        if at not in seen:
            seen.add(at)
            open_blocks += [other for other in blocks.successors[at] if other != without]
    return seen


def _label(program: Program, header: int, tails: frozenset[int]) -> str:
    """The label that the branches back to a header name, or one that stands there."""
    jumps = [program.instructions[tail] for tail in sorted(tails) if branch_target(program, tail) == header]
    names = [op.name for inst in jumps for op in inst.operands if isinstance(op, Symbol)]
    return next(iter(names), next((name for name, at in program.labels.items() if at == header), ""))


def find_loops(program: Program) -> list[Loop]:
    """The natural loops of a program, smaller before larger."""
    blocks = _blocks(program)
    entry = next(at for at, (first, end) in enumerate(blocks.spans) if first <= program.entry < end)
    reachable = _reachable(blocks, entry, None)
    loops = []
    for header in sorted(reachable):
        dominated = reachable - _reachable(blocks, entry, header)
        tails = [at for at in blocks.predecessors[header] if at in dominated]
        if not tails:
            continue
        body, open_blocks = {header}, list(tails)
        while open_blocks:
            at = open_blocks.pop()
            if at not in body:
                body.add(at)
                open_blocks += [other for other in blocks.predecessors[at] if other in reachable]
        first = blocks.spans[header][0]
        indices = frozenset(index for at in body for index in range(*blocks.spans[at]))
        ends = frozenset(blocks.spans[at][1] - 1 for at in tails)
        loops.append(Loop(first, _label(program, first, ends), ends, indices))
    return sorted(loops, key=lambda loop: (len(loop.body), loop.header))


def innermost(program: Program, loops: list[Loop]) -> list[int]:
    """For each instruction the number of the smallest loop around it, or ``len(loops)`` outside of all."""
    regions = [len(loops)] * len(program.instructions)
    for number in reversed(range(len(loops))):
        for index in loops[number].body:
            regions[index] = number
    return regions
