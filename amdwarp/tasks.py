"""``async_tasks`` and ``async_task``: parts of a kernel that run on waves of their own, usable inside Gluon kernels.

::

    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            ...                                        # the kernel's own num_warps waves
        with amdwarp.async_task(num_warps=1, num_regs=48):
            ...                                        # one more wave

This file has the arguments and their rules; ``task_builder.py`` makes ``ttg.warp_specialize`` of the block.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from .errors import UsageError
from .stage import _is_int, _kernel_line, _plain
from .target import get_target

DEFAULT = "default"
REGISTER_STEP = 8
LEAST_REGISTERS = 24
"""Fewest registers a thread of a task is given; a smaller request is raised to it."""


@dataclass(frozen=True)
class TaskSpec:
    """The checked arguments of one ``async_task``.

    Attributes:
        default: the task that the kernel's own waves run.
        num_warps: waves of each copy; None for the default task.
        num_regs: registers of a thread, a multiple of 8; None leaves it open.
        replicate: copies, each with waves of its own.
        start: first wave of the first copy in the workgroup, or None to have it placed.
    """

    default: bool
    num_warps: int | None = None
    num_regs: int | None = None
    replicate: int = 1
    start: int | None = None

    def __post_init__(self) -> None:
        if self.num_regs is not None and (
            not _is_int(self.num_regs) or self.num_regs < REGISTER_STEP or self.num_regs % REGISTER_STEP
        ):
            raise self.error(f"num_regs must be a positive multiple of {REGISTER_STEP}, not {self.num_regs!r}")
        if self.default:
            given = {"num_warps": self.num_warps, "warp_group_start_id": self.start}
            for name, value in given.items():
                if value is not None:
                    raise self.error(f"the default task takes no {name}: it has the kernel's waves", f"drop {name}")
            if self.replicate != 1:
                raise self.error("the default task cannot be replicated", "replicate a task with num_warps")
            return
        if not _is_int(self.num_warps) or self.num_warps is None or self.num_warps < 1:
            raise self.error(
                f"num_warps must be a positive integer, not {self.num_warps!r}",
                'give async_task("default") or num_warps',
            )
        if self.num_warps & (self.num_warps - 1):
            raise self.error(
                f"num_warps must be a power of two, not {self.num_warps}", "layouts spread over such numbers of waves"
            )
        if not _is_int(self.replicate) or self.replicate < 1:
            raise self.error(f"replicate must be a positive integer, not {self.replicate!r}")
        if self.start is not None and (not _is_int(self.start) or self.start < 0):
            raise self.error(f"warp_group_start_id must be a non-negative integer, not {self.start!r}")

    def error(self, problem: str, remedy: str = "") -> UsageError:
        return UsageError(problem, remedy=remedy, construct='async_task "default"' if self.default else "async_task")


@dataclass(frozen=True)
class PlacedTask:
    """One copy of a non-default task: its waves and registers, as asked for.

    Attributes:
        task: number of its ``async_task`` in the block, counting from 0 without the default one.
        replica: which copy, from 0.
        waves: how many waves run it.
        start: its first wave, or None to have it placed.
        registers: of a thread, or None.
        where: ``file:line`` of the ``async_task``.
    """

    task: int
    replica: int
    waves: int
    start: int | None
    registers: int | None
    where: str | None

    @property
    def name(self) -> str:
        return f"task {self.task}" + (f" copy {self.replica}" if self.replica else "")


def place(
    specs: list[tuple[TaskSpec, str | None]], trunk: int, arch: str, where: str | None
) -> tuple[list[PlacedTask], int | None]:
    """The copies of non-default tasks with their waves, and the registers that the default task asks for.

    Args:
        specs: the tasks of a block in order, each with its line.
        trunk: waves of the default task.
        arch: the target.
        where: line of the block.

    Raises:
        UsageError: a rule of ``docs/tasks.md`` does not hold.
    """
    defaults = [(spec, line) for spec, line in specs if spec.default]
    others = [(spec, line) for spec, line in specs if not spec.default]
    if len(defaults) != 1:
        problem = f"a block needs exactly one default task, this one has {len(defaults)}"
        line = defaults[1][1] if defaults else where
        raise _block_error(problem, 'write one `with amdwarp.async_task("default"):`', line)
    _all_or_none(others, "num_regs", [spec.num_regs for spec, _ in others])
    _all_or_none(others, "warp_group_start_id", [spec.start for spec, _ in others])
    placed = [
        PlacedTask(
            number,
            copy,
            spec.num_warps or 0,
            None if spec.start is None else spec.start + copy * (spec.num_warps or 0),
            spec.num_regs,
            line,
        )
        for number, (spec, line) in enumerate(others)
        for copy in range(spec.replicate)
    ]
    _check_ranges(placed, trunk)
    _check_total(placed, trunk, arch)
    return placed, defaults[0][0].num_regs


def _all_or_none(others: list[tuple[TaskSpec, str | None]], name: str, values: list[int | None]) -> None:
    given = [value is not None for value in values]
    if any(given) and not all(given):
        line = others[given.index(False)][1]
        raise _block_error(
            f"{name} is given for some of the non-default tasks and not for all",
            f"give all of them {name}, or none",
            line,
        )


def _check_ranges(placed: list[PlacedTask], trunk: int) -> None:
    taken = [("the default task", 0, trunk)]
    for one in placed:
        if one.start is None:
            continue
        end = one.start + one.waves
        for name, low, high in taken:
            if one.start < high and low < end:
                raise UsageError(
                    f"waves {one.start} to {end - 1} of {one.name} overlap waves {low} to {high - 1} of {name}",
                    remedy="give each task waves of its own",
                    construct="async_task",
                    where=one.where,
                )
        taken.append((one.name, one.start, end))


def _check_total(placed: list[PlacedTask], trunk: int, arch: str) -> None:
    target = get_target(arch)
    most = 1024 // target.wave_size
    total, ends = trunk, [trunk]
    for one in placed:
        total += one.waves
        ends.append(total if one.start is None else one.start + one.waves)
        if max(ends) > most:
            raise UsageError(
                f"the tasks up to {one.name} need {max(ends)} waves; a workgroup on {arch} has at most {most}",
                remedy="take fewer waves or copies",
                construct="async_task",
                where=one.where,
            )


def _block_error(problem: str, remedy: str, where: str | None) -> UsageError:
    return UsageError(problem, remedy=remedy, construct="async_tasks", where=where)


class async_task:
    """One task of an ``async_tasks`` block: ``with amdwarp.async_task(num_warps=4): ...`` in a Gluon kernel.

    Args:
        kind: ``"default"`` for the task that the kernel's own waves run; left out for any other.
        num_warps: waves of the task, a power of two; they come on top of the kernel's ``num_warps``.
        num_regs: registers of a thread that the task is to get along with, a multiple of 8.
        replicate: copies of the task, each with waves of its own; they tell themselves apart by
            ``async_task_replica_id()``.
        warp_group_start_id: first wave of the task in the workgroup; copies follow it.

    Raises:
        UsageError: while the kernel is compiled, for any other argument.
    """

    __triton_builtin__ = True
    __slots__ = ("spec",)

    def __init__(
        self,
        kind: Any = None,
        *,
        num_warps: Any = None,
        num_regs: Any = None,
        replicate: Any = 1,
        warp_group_start_id: Any = None,
        _semantic: Any = None,
    ) -> None:
        kind = _plain(kind)
        try:
            if kind not in (None, DEFAULT):
                raise UsageError(f'the first argument is "default" or left out, not {kind!r}', construct="async_task")
            self.spec = TaskSpec(
                kind == DEFAULT, _plain(num_warps), _plain(num_regs), _plain(replicate), _plain(warp_group_start_id)
            )
        except UsageError as error:
            error.locate(_kernel_line())
            raise

    def __enter__(self) -> async_task:
        raise UsageError(
            "a task stands only right inside an async_tasks block",
            remedy="put it in `with amdwarp.async_tasks():`",
            construct="async_task",
            where=_kernel_line(),
        )

    def __exit__(self, *_: object) -> None: ...


class async_tasks:
    """A block of tasks that run at the same time, each on waves of its own; it ends when all of them have.

    Inside stand only ``async_task`` blocks, and ``if``s on compile-time values around them. What a task other than the
    default one uses from outside is captured by itself: scalars, pointers, shared memory. What the default task
    assigns is there behind the block; what another task assigns is its own.

    Raises:
        UsageError: while the kernel is compiled, for a block that a rule forbids.
    """

    __triton_builtin__ = True
    __slots__ = ("_body",)

    def __init__(self, _semantic: Any = None) -> None:
        self._body: Any = None

    def __enter__(self) -> async_tasks:
        from .task_builder import build_block

        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        if caller is None or caller.f_code.co_name != "visit_With" or "node" not in caller.f_locals:
            raise UsageError(
                "it has a meaning only inside a kernel", remedy="use it under @amdwarp.jit", construct="async_tasks"
            )
        node = caller.f_locals["node"]
        self._body = (node, node.body)
        build_block(caller.f_locals["self"], node)
        node.body = []  # the body has been visited, task by task
        return self

    def __exit__(self, *_: object) -> None:
        node, node.body = self._body


def async_task_replica_id(_semantic: Any = None, _generator: Any = None) -> Any:
    """Which copy of a replicated task this is: a compile-time integer from 0; 0 in a task with one copy.

    Raises:
        UsageError: outside of a task.
    """
    from .task_builder import current_task

    replica = current_task(_generator)
    if replica is None:
        raise UsageError(
            "it has a meaning only inside a task",
            remedy="use it in an `async_task` block",
            construct="async_task_replica_id",
            where=_kernel_line(),
        )
    from triton.language.core import constexpr

    return constexpr(replica)


async_task_replica_id.__triton_builtin__ = True  # type: ignore[attr-defined]
