"""join_pipelines: two pipelines back to back keep their phase instead of rejoining and parting again.

Before::

    scf.for … {first pipeline}
    s.setprio 0
    amdg.cond_barrier %low
    ttg.barrier local
    … thread id …
    amdg.cond_barrier %high
    s.setprio 1
    scf.for … {second pipeline}

After::

    scf.for … {first pipeline}
    … thread id …
    s.setprio 1
    scf.for … {second pipeline}

Only arithmetic and priorities may stand between; the first must be a loop, whose last edge serves as the edge between
the two; the gaps must agree; and the protocol check must hold with the barriers gone. Where one of these does not, the
barriers stay. Refuses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from amdwarp.errors import ProtocolError

from ..analysis.lds import uses_scratch
from ..analysis.pipelines import anchor_of
from ..analysis.protocol import check_function
from ..dialect import Kind, is_pure, kind_of
from ..ir import Block, Module, Op

COND_BARRIER = "amdg.cond_barrier"


@dataclass(frozen=True)
class JoinPipelines:
    name: str = "join_pipelines"

    def run(self, module: Module) -> None:
        for function in module.functions():
            for loop in [op for op in function.walk() if _is_staged_loop(op)]:
                _join(function, loop)


def _is_staged_loop(op: Op) -> bool:
    return op.name == "scf.for" and any(anchor_of(inner) for inner in op.regions[0].block.ops)


def _opens_pipeline(op: Op) -> bool:
    return anchor_of(op) == "begin" or _is_staged_loop(op)


def _join(function: Op, loop: Op) -> None:
    """Take the barriers between ``loop`` and the pipeline right behind it out, if the protocol still holds."""
    block = loop.block
    rest = block.ops[block.index(loop) + 1 :]
    between = list(takewhile(lambda op: not _opens_pipeline(op), rest))
    if len(between) == len(rest):
        return
    barriers = [op for op in between if kind_of(op) is Kind.BARRIER]
    resets = [op for op in between if op.name == "rocdl.s.setprio"]
    if not all(
        (is_pure(op) and not any(map(uses_scratch, op.walk()))) or op in barriers or op in resets for op in between
    ):
        return
    gap = len(barriers) // 2
    shape = [op.name == COND_BARRIER for op in barriers]
    if shape != [True] * gap + [False] + [True] * gap:
        return  # the gaps differ, or the kernel has a barrier of its own there
    spots = {op: block.index(op) for op in barriers}
    for op in barriers:
        op.detach()
    if not _holds(function):
        _restore(block, spots)
        return
    for op in barriers:
        op.drop_operands()
    if len(resets) == 2:
        resets[0].erase()


def _holds(function: Op) -> bool:
    try:
        return not check_function(function)
    except ProtocolError:
        return False


def _restore(block: Block, spots: dict[Op, int]) -> None:
    for op, index in spots.items():
        block.insert(index, op)
