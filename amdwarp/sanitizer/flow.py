"""Control flow of a program: basic blocks and where each goes on."""

from __future__ import annotations

from dataclasses import dataclass

from amdwarp.asm import Program, Symbol

_JUMPS = ("s_branch", "s_cbranch")
_ENDS = ("s_endpgm",)


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions [first, last) that run one after the other; `successors` are numbers of blocks."""

    first: int
    last: int
    successors: tuple[int, ...]


def successors(program: Program, at: int) -> tuple[int, ...]:
    """Indices of the instructions that may run after instruction `at`."""
    inst = program.instructions[at]
    after = (at + 1,) if at + 1 < len(program.instructions) else ()
    if inst.base in _ENDS:
        return ()
    if not inst.base.startswith(_JUMPS):
        return after
    target = inst.operands[0]
    assert isinstance(target, Symbol)
    there = program.labels[target.name]
    to = (there,) if there < len(program.instructions) else ()
    return to if inst.base == "s_branch" else (*to, *after)


def blocks(program: Program) -> tuple[Block, ...]:
    """The basic blocks in text order."""
    count = len(program.instructions)
    starts = {0, program.entry}
    for inst in program.instructions:
        if inst.base.startswith((*_JUMPS, *_ENDS)):
            starts.update((*successors(program, inst.index), inst.index + 1))
    ordered = sorted(start for start in starts if start < count)
    number = {start: at for at, start in enumerate(ordered)}
    made = []
    for first, last in zip(ordered, [*ordered[1:], count], strict=True):
        made.append(Block(first, last, tuple(number[n] for n in successors(program, last - 1) if n in number)))
    return tuple(made)
