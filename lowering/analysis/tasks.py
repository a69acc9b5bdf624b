"""Tasks in TTGIR: the partitions of ``ttg.warp_specialize``, where their waves stand, and the barriers they share."""

from __future__ import annotations

import re

from amdwarp.errors import LoweringError

from ..ir import Module, Op, Value

SPECIALIZE = "ttg.warp_specialize"
PARTITIONS = "ttg.warp_specialize.partitions"
INIT, ARRIVE, WAIT = "amdg.init_barrier", "amdg.arrive_barrier", "amdg.wait_barrier"
BARRIERS = (INIT, ARRIVE, WAIT)

MARKS = "amdwarp.tasks."
"""Start of the names of what the front end says of a block: names, starts, registers, lines, file."""
TASK_STARTS = f"{MARKS}starts"

PLACED = f"{MARKS}placed"
"""Attribute of a module whose tasks, or barriers between them, are lowered here."""

RELEASE = "amdwarp.release"
"""Attribute of an arrival: what of the arriving wave is complete before it."""

NAMED_BARRIER = "amdwarp.named_barrier "
"""Assembly text that carries a named barrier through stock lowering, then its number, its waves, and 1 for a wait."""

_VIEWS = ("ttg.memdesc_index", "ttg.memdesc_subslice", "ttg.memdesc_reinterpret", "ttg.memdesc_reshape")


def specializations(module: Module) -> list[Op]:
    """Every ``ttg.warp_specialize`` of the module, in text order."""
    return module.ops(SPECIALIZE)


def named_barriers(module: Module) -> list[tuple[Op, int, int]]:
    """Every named barrier of the kernel's author, with its number and the waves that meet at it."""
    found = []
    for op in module.ops("tt.elementwise_inline_asm"):
        text = op.properties["asm_string"].strip('"')
        if text.startswith(NAMED_BARRIER):
            index, members, _ = map(int, text.removeprefix(NAMED_BARRIER).split())
            found.append((op, index, members))
    return found


def own_barriers(module: Module) -> bool:
    """Whether barriers of `amdwarp` stand in the module: in one without tasks those of stock Triton are left alone."""
    return any(RELEASE in op.attributes for op in module.ops(ARRIVE)) or bool(named_barriers(module))


def partitions_op(op: Op) -> Op:
    """The op inside a ``ttg.warp_specialize`` that holds captures and partition bodies."""
    return next(inner for inner in op.regions[1].block.ops if inner.name == PARTITIONS)


def integers(text: str) -> list[int]:
    """The numbers of an ``array<i32: 1, 2>`` attribute."""
    return [int(number) for number in re.findall(r"-?\d+", text.removeprefix("array<i32").removesuffix(">"))]


def array(numbers: list[int]) -> str:
    """The attribute that :func:`integers` reads."""
    return f"array<i32: {', '.join(map(str, numbers))}>" if numbers else "array<i32>"


def allocation_of(value: Value) -> Op | None:
    """The ``ttg.local_alloc`` behind a memory descriptor, through views and captures; None where it is not one."""
    while True:
        op = value.op
        if op is not None:
            if op.name == "ttg.local_alloc":
                return op
            if op.name not in _VIEWS:
                return None
            value = op.operands[0]
            continue
        holder = value.block.parent_op if value.block else None
        if holder is None or holder.name != PARTITIONS:
            return None
        # captures stand on the inner op, or on the outer one
        outer = holder if holder.operands else holder.parent_op
        if outer is None or value.index >= len(outer.operands):
            return None
        value = outer.operands[value.index]


def arrivals(module: Module) -> dict[Op, int]:
    """Lanes that complete a phase of the barriers in each allocation, as ``amdg.init_barrier`` states them.

    Raises:
        LoweringError: a barrier op whose allocation cannot be seen, an allocation that is initialised with different
            counts, or not at all.
    """
    counts: dict[Op, int] = {}
    for op in module.ops(INIT):
        home, count = _home(op), int(op.properties["count"].split(":")[0])
        if counts.setdefault(home, count) != count:
            raise LoweringError(
                f"a barrier is initialised with {count} arrivals, another of the same allocation with {counts[home]}",
                remedy="allocate them apart",
                construct="alloc_barriers",
                where=op.where,
            )
    for op in module.ops(ARRIVE, WAIT):
        if _home(op) not in counts:
            raise LoweringError(
                "the barrier is not initialised in this kernel",
                remedy="make it with amdwarp.alloc_barriers",
                construct="barrier_wait" if op.name == WAIT else "barrier_arrive",
                where=op.where,
            )
    return counts


def check_barriers(module: Module) -> None:
    """What is wrong with barriers whatever the tasks do.

    Raises:
        LoweringError: a barrier beyond its allocation, an arrival of more waves than complete a phase, or what
            `arrivals` refuses.
    """
    counts = arrivals(module)
    trunk, lanes = (int(module.attributes[f"ttg.{name}"].split(":")[0]) for name in ("num-warps", "threads-per-warp"))
    for op in module.ops(ARRIVE, WAIT):
        construct = "barrier_wait" if op.name == WAIT else "barrier_arrive"
        at, have = _index(op.operands[0]), _extent(_home(op))
        if at is not None and have is not None and not 0 <= at < have:
            raise LoweringError(
                f"barrier {at} of {have} that are allocated",
                remedy="allocate more",
                construct=construct,
                where=op.where,
            )
        waves, wanted = waves_of(op, trunk), arrivals_of(op, counts) // lanes
        if op.name == ARRIVE and waves > wanted:
            raise LoweringError(
                f"{waves} waves arrive at a barrier whose phase {wanted} complete",
                remedy=f"allocate it with arrivals={waves}: each wave of a task arrives",
                construct=construct,
                where=op.where,
            )


def check_named_barriers(module: Module, trunk: int, total: int) -> None:
    """What is wrong with named barriers: in a block of tasks one is met by one number of waves, which must exist.

    Args:
        module: TTGIR with the tasks in it.
        trunk: waves of the default task.
        total: waves of the kernel.

    Raises:
        LoweringError: with the line of the barrier.
    """
    wanted: dict[tuple[Op | None, int], int] = {}
    for op, index, members in named_barriers(module):
        block = next((around for around in op.ancestors() if around.name == SPECIALIZE), None)
        waves, first = waves_of(op, trunk), wanted.setdefault((block, index), members)
        if members != first:
            problem = f"named barrier {index} is for {members} waves here and for {first} elsewhere"
            remedy = "give it one num_warps everywhere, or take another index"
        elif members > total:
            problem = f"named barrier {index} is for {members} waves, and the kernel has {total}"
            remedy = "count the waves of the tasks that come to it"
        elif waves > members:
            problem = f"{waves} waves come to named barrier {index}, which is for {members}"
            remedy = "count every wave of each task that comes to it"
        else:
            continue
        raise LoweringError(problem, remedy=remedy, construct="named_barrier", where=op.where)


def _index(barrier: Value) -> int | None:
    """Which barrier of its allocation it is, where that is a constant."""
    view = barrier.op
    if view is None or view.name != "ttg.memdesc_index":
        return None
    number = view.operands[1].op
    if number is None or number.name != "arith.constant":
        return None
    return int(number.properties["value"].split(":")[0])


def _extent(alloc: Op) -> int | None:
    found = re.match(r"!ttg\.memdesc<(\d+)x", alloc.result.type)
    return int(found.group(1)) if found else None


def waves_of(op: Op, trunk: int) -> int:
    """Waves of the task that an op stands in; those of the trunk outside of partitions."""
    inner = op
    for around in op.ancestors():
        if around.name == PARTITIONS:
            block = around.parent_op
            assert block is not None
            region = inner.block.parent
            return integers(block.properties["partitionNumWarps"])[
                next(at for at, one in enumerate(around.regions) if one is region)
            ]
        inner = around
    return trunk


def _home(op: Op) -> Op:
    home = allocation_of(op.operands[0])
    if home is None:
        raise LoweringError(
            "the allocation of this barrier cannot be seen: it comes out of a branch or through a loop",
            remedy="index the barriers that alloc_barriers gave where you use them",
            construct=op.name,
            where=op.where,
        )
    return home


def arrivals_of(op: Op, counts: dict[Op, int]) -> int:
    """The count of the barrier that an arrive or wait uses."""
    return counts[_home(op)]


def described(op: Op) -> dict[str, list[str]]:
    """What the front end says of a block: its marks by name, each split at commas."""
    marks = {key.removeprefix(MARKS): text for key, text in op.attributes.items() if key.startswith(MARKS)}
    return {name: text.strip('"').split(",") for name, text in marks.items()}


def starts_of(op: Op, trunk: int) -> list[tuple[int, int]]:
    """(first wave, waves) of each non-default task, as its author asked, or one behind the other.

    Args:
        op: a ``ttg.warp_specialize`` with the mark ``starts``; partitions behind those it names are padding.
        trunk: waves of the default task.
    """
    asked = [int(number) for number in described(op)["starts"]]
    waves = integers(op.properties["partitionNumWarps"])[: len(asked)]
    places, following = [], trunk
    for start, count in zip(asked, waves, strict=True):
        places.append((following if start < 0 else start, count))
        following += count
    return places
