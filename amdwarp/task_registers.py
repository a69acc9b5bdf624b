"""Registers of tasks: what each is given of the budget, what it takes in the compiled text, and what that costs.

All waves of a workgroup are allocated the same number of vector registers on AMD, that of the task that takes most. A
budget is therefore a promise to check, not a size that the hardware gives: :func:`complete` compares, and says so.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .errors import UsageError
from .target import Target, get_target
from .tasks import LEAST_REGISTERS, REGISTER_STEP

METADATA = "tasks"
"""Key of the compiled kernel's metadata under which the tasks are listed."""

MOST_REGISTERS = {"gfx942": 512, "gfx950": 512, "gfx1250": 1024}
"""Vector registers that one wave can have, accumulation registers included."""


class TaskRegistersWarning(UserWarning):
    """A task takes more registers than its budget."""


@dataclass(frozen=True)
class TaskWaves:
    """A task as it was placed.

    Attributes:
        name: ``default``, ``task 0``, ``task 1 copy 2``, …
        waves: how many run it.
        start: the first of them.
        asked: registers of a thread its author asked for, or None.
        file: base name of the kernel's file.
        first, last: lines of the ``async_task`` in it.
    """

    name: str
    waves: int
    start: int
    asked: int | None
    file: str
    first: int
    last: int


def share(target: Target, waves: int) -> int:
    """Registers of a thread if all waves of one workgroup, alone on a compute unit, get the same."""
    even = target.vgprs // -(-waves // target.simds)
    return min(even, MOST_REGISTERS[target.arch]) // REGISTER_STEP * REGISTER_STEP


def budgets(
    tasks: Sequence[TaskWaves], arch: str, where: str | None = None, construct: str = "async_task"
) -> list[int] | None:
    """Registers of a thread of each task; None where no task asks for any.

    Tasks get what they ask for, at least 24. If the default task asks for nothing, it is given what the others leave of
    the pool, which is the even share of all waves. If it asks, the others, where they do not, share what is left of the
    pool evenly; a surplus stays unused.

    Args:
        tasks: the default task first.
        arch: the target.
        where: ``file:line`` for an error.
        construct: what asks, for an error.

    Raises:
        UsageError: the requests leave a task fewer than 24 registers.
    """
    trunk, others = tasks[0], tasks[1:]
    if all(task.asked is None for task in tasks):
        return None
    target = get_target(arch)
    pool = share(target, sum(task.waves for task in tasks)) * sum(task.waves for task in tasks)
    given = [None if task.asked is None else max(task.asked, LEAST_REGISTERS) for task in tasks]
    taken = sum(number * task.waves for number, task in zip(given, tasks, strict=True) if number is not None)
    open_waves = sum(task.waves for number, task in zip(given, tasks, strict=True) if number is None)
    left = pool - taken
    rest = left // open_waves // REGISTER_STEP * REGISTER_STEP if open_waves else LEAST_REGISTERS
    rest = min(rest, MOST_REGISTERS[arch])
    if left < 0 or rest < LEAST_REGISTERS:
        for_whom = "the default task" if trunk.asked is None else "the other tasks"
        short = f"leave {max(rest, 0)} a thread for {for_whom}" if open_waves else f"are {-left} too many"
        raise UsageError(
            f"the registers asked for {short}: {len(others) + 1} tasks of {sum(t.waves for t in tasks)} waves "
            f"share {pool} on {arch}",
            remedy="ask for fewer, or take fewer waves",
            construct=construct,
            where=where,
        )
    return [rest if number is None else number for number in given]


def needs(tasks: Sequence[TaskWaves], amdgcn: str) -> list[int]:
    """Vector registers of a thread that the instructions of each task name, by the line table of the text.

    The highest register number decides, as it does for the hardware. Copies of a task get the figure of all of them.
    """
    from .asm import parse

    owners = _owners(tasks, amdgcn)
    most = [{"v": 0, "a": 0} for _ in tasks]
    for inst in parse(amdgcn).instructions:
        owner = owners.get(inst.line)
        if owner is None:
            continue
        for half in (inst, inst.second):
            for operand in half.operands if half is not None else ():
                kind, index = getattr(operand, "kind", ""), getattr(operand, "index", 0)
                if kind in ("v", "a"):
                    most[owner][kind] = max(most[owner][kind], index + getattr(operand, "count", 1))
    # copies of a task come from the same lines, and the text does not tell them apart
    spans = [(task.file, task.first, task.last) for task in tasks]
    return [_total(most[spans.index(span)]["v"], most[spans.index(span)]["a"]) for span in spans]


def _total(vector: int, accumulation: int) -> int:
    """Accumulation registers start behind the others, at a multiple of 4."""
    return vector if not accumulation else -(-vector // 4) * 4 + accumulation


def _owners(tasks: Sequence[TaskWaves], amdgcn: str) -> dict[int, int]:
    """Line of the text -> the task whose source line, the outermost one where code is inlined, it came from."""
    place = re.compile(r"([^\s\[\]@/]+):(\d+):\d+")
    owners: dict[int, int] = {}
    owner: int | None = None
    for number, line in enumerate(amdgcn.splitlines(), 1):
        if line.lstrip().startswith(".loc"):
            found = place.findall(line.partition(";")[2])
            owner = _task_at(tasks, *found[-1]) if found else None
        elif owner is not None:
            owners[number] = owner
    return owners


def _task_at(tasks: Sequence[TaskWaves], file: str, line: str) -> int | None:
    at = int(line)
    if not at:
        return None
    return next((i for i, task in enumerate(tasks) if task.file == file and task.first <= at <= task.last), None)


def announce(module: Any, metadata: dict[str, Any]) -> None:
    """Note the tasks of a module in TTGIR, with their budgets, in the metadata of a compilation.

    Raises:
        UsageError: budgets that do not fit.
    """
    from .lowering.analysis.tasks import described, specializations, starts_of
    from .lowering.ws_tasks import ROLES_FILE

    trunk = int(module.attributes["ttg.num-warps"].split(":")[0])
    arch = module.attributes["ttg.target"].strip('"').removeprefix("hip:")
    entries: list[dict[str, Any]] = []
    for op in specializations(module):
        marks = described(op)
        if "names" not in marks:  # a block that says no more than where its waves start
            continue
        places = [(0, trunk), *starts_of(op, trunk)]
        names, lines = marks["names"], [one.split("-") for one in marks["lines"]]
        names = names if len(names) == len(lines) else ["default", *names]  # roles of a schedule all have names
        asked = [None if number == "-1" else int(number) for number in marks["registers"]]
        tasks = [
            TaskWaves(name, waves, start, request, marks["file"][0], int(first), int(last))
            for name, (start, waves), request, (first, last) in zip(names, places, asked, lines, strict=True)
        ]
        typed = marks["file"] == [ROLES_FILE]  # lines of no kernel: the one of the schedule is meant
        wheres = [op.where if typed else f"{task.file}:{task.first}" for task in tasks]
        given: list[int | None] = [*(budgets(tasks, arch, wheres[0], "WSRole" if typed else "async_task") or [])]
        given = given or [None] * len(tasks)
        entries += [
            asdict(task) | {"budget": budget, "where": where}
            for task, budget, where in zip(tasks, given, wheres, strict=True)
        ]
    if entries:
        metadata[METADATA] = entries


def waves_wanted(metadata: dict[str, Any]) -> int:
    """Waves of a SIMD that the largest budget leaves room for, where the default task asked for one; 0 otherwise."""
    entries = metadata.get(METADATA, ())
    if not entries or entries[0]["asked"] is None:
        return 0
    return get_target(str(metadata["arch"])).vgprs // max(entry["budget"] for entry in entries)


def complete(amdgcn: str, metadata: dict[str, Any]) -> str:
    """Add to each task of the metadata what it takes in the text, and warn of each that exceeds its budget.

    An entry then has the fields of :class:`TaskWaves`, ``budget`` (None without one), ``needs``, and ``allocated``:
    registers of a thread of every wave of the kernel.

    Returns:
        the text as it came.
    """
    entries = metadata.get(METADATA, ())
    if not entries:
        return amdgcn
    from .resources import resources

    allocated = resources(amdgcn).vgprs
    tasks = [TaskWaves(**{name: entry[name] for name in TaskWaves.__dataclass_fields__}) for entry in entries]
    for entry, need in zip(entries, needs(tasks, amdgcn), strict=True):
        entry |= {"needs": need, "allocated": allocated}
        if entry["budget"] is not None and need > entry["budget"]:
            warnings.warn(
                f"{entry['name']} ({entry['where']}) takes {need} registers a thread of a budget of "
                f"{entry['budget']}; on AMD all waves get the same number, here {allocated}",
                TaskRegistersWarning,
                stacklevel=2,
            )
    return amdgcn
