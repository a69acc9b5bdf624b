"""From an ``async_tasks`` block in a kernel's syntax tree to ``ttg.warp_specialize``, in Triton's code generator.

The block's ``__enter__`` gets here with the code generator and the ``with`` statement. Each task's statements are
visited once for each copy, with the insertion point in a region of its own, the layouts' number of waves that of the
task, and every value from outside replaced by an argument of the region: a capture.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .errors import UsageError
from .tasks import PlacedTask, TaskSpec, async_task, place

NAMES, STARTS, REGISTERS, LINES, FILE = (
    f"amdwarp.tasks.{name}" for name in ("names", "starts", "registers", "lines", "file")
)

TRUNK_STEP = 4
"""Triton's verifier of ``ttg.warp_specialize`` takes a kernel's ``num_warps`` in steps of this."""


@dataclass
class _Task:
    spec: TaskSpec
    node: ast.With
    where: str


@functools.cache
def _context_class() -> type:
    from triton.experimental.gluon.language._semantic import GluonCallerContext

    class TaskContext(GluonCallerContext):
        """Tells code inside a task how many waves run it, and which copy it is; helpers are compiled for each."""

        def __init__(self, num_warps: int, replica: int, default: bool) -> None:
            super().__init__(num_warps)
            self.replica, self.default = replica, default

        def mangle(self) -> str:
            return f"{super().mangle()}_T{self.replica}{'D' if self.default else ''}"

    return TaskContext


def current_task(generator: Any) -> int | None:
    """Number of the copy whose code is generated, or None outside of tasks."""
    return getattr(getattr(generator, "caller_context", None), "replica", None)


def build_block(generator: Any, node: ast.With) -> None:
    """Generate the tasks of a block.

    Raises:
        UsageError: the block breaks a rule; with its file and line.
    """
    where = _line(generator, node)
    if not generator.is_gluon:
        raise _refuse(
            "tasks need explicit layouts, which a @triton.jit kernel does not have",
            "write the kernel in Gluon, under @amdwarp.jit",
            where,
        )
    if current_task(generator) is not None:
        raise _refuse("a block of tasks cannot stand inside a task", "put its tasks into the outer block", where)
    if len(node.items) != 1 or node.items[0].optional_vars is not None:
        raise _refuse("it stands alone in its `with`, without `as`", "write `with amdwarp.async_tasks():`", where)
    tasks = list(_collect(generator, node.body))
    options = generator.builder.options
    placed, default_registers = place([(one.spec, one.where) for one in tasks], options.num_warps, options.arch, where)
    trunk = next(one for one in tasks if one.spec.default)
    others = [one for one in tasks if not one.spec.default]
    for one in tasks:
        _check_body(generator, one)
    if not others:
        with _context(generator, options.num_warps, 0, True):
            generator.visit_compound_statement(trunk.node.body)
        return
    if options.num_warps % TRUNK_STEP:
        raise _refuse(
            f"the kernel has num_warps={options.num_warps}, and Triton runs tasks beside a multiple of {TRUNK_STEP} "
            "only",
            f"compile with num_warps={TRUNK_STEP}, or leave only the default task",
            where,
        )
    _specialize(generator, node, trunk, [(others[one.task], one) for one in placed], default_registers)


# ---- what stands in the block


def _collect(generator: Any, body: list[ast.stmt]) -> Iterator[_Task]:
    """The tasks in the block, behind guards whose condition is known."""
    for statement in body:
        where = _line(generator, statement)
        if isinstance(statement, ast.Pass):
            continue
        if isinstance(statement, ast.If):
            yield from _collect(generator, _taken(generator, statement, where))
            continue
        call = statement.items[0].context_expr if isinstance(statement, ast.With) else None
        if not isinstance(statement, ast.With) or not isinstance(call, ast.Call) or not _makes_task(generator, call):
            raise _refuse(
                f"only tasks may stand in the block, not `{_first_line(statement)}`",
                "move it into a task, or out of the block",
                where,
            )
        if len(statement.items) != 1 or statement.items[0].optional_vars is not None:
            raise _refuse("an async_task stands alone in its `with`, without `as`", "write one `with` a task", where)
        generator.cur_node = statement
        arguments = [generator.visit(argument) for argument in call.args]
        keywords = dict(generator.visit(keyword) for keyword in call.keywords)
        yield _Task(async_task(*arguments, **keywords, _semantic=generator.semantic).spec, statement, where)


def _taken(generator: Any, statement: ast.If, where: str) -> list[ast.stmt]:
    value = generator.visit(statement.test)
    if hasattr(value, "handle"):
        raise _refuse(
            f"a guard around tasks must be known at compile time, `{ast.unparse(statement.test)}` is not",
            "make it a constexpr, or put the `if` into the task",
            where,
        )
    return statement.body if getattr(value, "value", value) else statement.orelse


def _makes_task(generator: Any, call: ast.Call) -> bool:
    try:
        return generator.visit(call.func) is async_task
    except Exception:  # a name that is not known: whatever it is, it is no task
        return False


def _check_body(generator: Any, task: _Task) -> None:
    for inner in ast.walk(task.node):
        if isinstance(inner, ast.Return):
            raise _refuse("a task cannot return", "let it end", _line(generator, inner))


# ---- the op


def _specialize(
    generator: Any,
    node: ast.With,
    trunk: _Task,
    workers: list[tuple[_Task, PlacedTask]],
    default_registers: int | None,
) -> None:
    from triton.compiler.code_generator import flatten_values_to_ir, unflatten_ir_values

    builder = generator.builder
    captured = _captures(generator, workers)
    outside, defined = dict(generator.lscope), dict(generator.local_defs)
    point = builder.get_insertion_point()

    block = builder.create_block()  # in the region around: loops cannot be made in a block that is nowhere
    builder.set_insertion_point_to_start(block)
    assigned = _visit(generator, trunk, builder.options.num_warps, 0, True)
    used = _used_outside(generator, node)
    given = {name: value for name, value in assigned.items() if name in used and _has_handles(value)}
    handles = flatten_values_to_ir(given.values())
    builder.create_warp_yield(handles)
    generator.lscope, generator.local_defs = dict(outside), dict(defined)

    builder.restore_insertion_point(point)
    op = builder.create_warp_specialize([one.get_type() for one in handles], [one.waves for _, one in workers])
    home = builder.new_block()
    op.get_default_region().push_back(home)
    block.merge_block_before(home)
    _annotate(generator, op, [trunk, *(task for task, _ in workers)], [one for _, one in workers], default_registers)
    _partitions(generator, op, workers, captured, outside)
    generator.lscope, generator.local_defs = dict(outside), dict(defined)
    builder.set_insertion_point_after(op.get_operation())
    results = [op.get_result(at) for at in range(len(handles))]
    for name, value in zip(given, unflatten_ir_values(results, [v.type for v in given.values()]), strict=True):
        generator.set_value(name, value)
    for name, value in assigned.items():
        if not _has_handles(value):
            generator.set_value(name, value)


def _partitions(
    generator: Any, op: Any, workers: list[tuple[_Task, PlacedTask]], captured: dict[str, Any], outside: dict[str, Any]
) -> None:
    """The regions of the other tasks; all have all captures as arguments."""
    from triton.compiler.code_generator import flatten_values_to_ir, unflatten_ir_values

    builder = generator.builder
    arguments = flatten_values_to_ir(captured.values())
    builder.create_block_with_parent(op.get_partition_op_holder(), [])
    regions = builder.create_warp_specialize_partitions(arguments, len(workers))
    for index, (task, one) in enumerate(workers):
        inner = builder.create_block_with_parent(regions.get_region(index), [value.get_type() for value in arguments])
        inside = [inner.get_argument(at) for at in range(len(arguments))]
        values = unflatten_ir_values(inside, [value.type for value in captured.values()])
        known = {name: value for name, value in outside.items() if not _has_handles(value)}
        generator.lscope = known | dict(zip(captured, values, strict=True))
        _visit(generator, task, one.waves, one.replica, False)
        builder.create_warp_return()


def _visit(generator: Any, task: _Task, num_warps: int, replica: int, default: bool) -> dict[str, Any]:
    """Generate a task's statements where the insertion point is; returns what they assign."""
    generator.local_defs = {}
    with _context(generator, num_warps, replica, default):
        generator.visit_compound_statement(task.node.body)
    return dict(generator.local_defs)


def _annotate(
    generator: Any, op: Any, tasks: list[_Task], placed: list[PlacedTask], default_registers: int | None
) -> None:
    """Names, places, budgets and lines for the passes on TTGIR, in attributes that survive until then."""
    asked = [default_registers, *(one.registers for one in placed)]
    texts = {
        NAMES: ",".join(one.name for one in placed),
        STARTS: ",".join(str(-1 if one.start is None else one.start) for one in placed),
        REGISTERS: ",".join(str(-1 if number is None else number) for number in asked),
        LINES: ",".join(
            f"{_number(generator, one.node.lineno)}-{_number(generator, _last(one.node))}" for one in tasks
        ),
        FILE: os.path.basename(generator.file_name),
    }
    for name, text in texts.items():
        op.set_attr(name, generator.builder.get_string_attr(text))


def _span(generator: Any, node: ast.stmt) -> str:
    return f"{_number(generator, node.lineno)}-{_number(generator, _last(node))}"


def _last(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _captures(generator: Any, workers: list[tuple[_Task, PlacedTask]]) -> dict[str, Any]:
    """Values from outside that the tasks use, by name.

    Raises:
        UsageError: a tensor is among them.
    """
    captured: dict[str, Any] = {}
    for task, _ in workers:
        for name_node in _taken_from_outside(task.node.body, set()):
            value = generator.lscope.get(name_node.id)
            if value is None or name_node.id in captured or not _has_handles(value):
                continue
            if any(str(handle.get_type()).startswith("tensor<") for handle in _handles(value)):
                raise _refuse(
                    f"{name_node.id!r} is a tensor of the default task's waves, other waves do not have it",
                    "make it inside the task, or pass it through shared memory",
                    _line(generator, name_node),
                )
            captured[name_node.id] = value
    return captured


def _taken_from_outside(body: list[ast.stmt], own: set[str]) -> Iterator[ast.Name]:
    """Uses of names that the statements have not given a value of their own before, on whatever path.

    Args:
        body: statements of a task.
        own: names that have such a value; those that the statements give one on every path are added.
    """
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _loads(statement.test, own)
            sides = set(own), set(own)
            for side, known in zip((statement.body, statement.orelse), sides, strict=True):
                yield from _taken_from_outside(side, known)
            own |= sides[0] & sides[1]
        elif isinstance(statement, ast.For):
            yield from _loads(statement.iter, own)
            yield from _taken_from_outside(statement.body, own | _stored(statement.target))  # it may run no iteration
            yield from _taken_from_outside(statement.orelse, set(own))
        elif isinstance(statement, ast.While):
            yield from _loads(statement.test, own)
            yield from _taken_from_outside(statement.body, set(own))
            yield from _taken_from_outside(statement.orelse, set(own))
        elif isinstance(statement, ast.With):
            for item in statement.items:
                yield from _loads(item, own)
            yield from _taken_from_outside(statement.body, own)
        else:
            yield from _loads(statement, own)
            if isinstance(statement, ast.Assign) or (isinstance(statement, ast.AnnAssign) and statement.value):
                own |= _stored(statement)


def _loads(node: ast.AST, own: set[str]) -> Iterator[ast.Name]:
    for inner in ast.walk(node):
        name = inner.target if isinstance(inner, ast.AugAssign) else inner
        loads = isinstance(inner, ast.AugAssign) or (isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load))
        if loads and isinstance(name, ast.Name) and name.id not in own:
            yield name


def _stored(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _used_outside(generator: Any, node: ast.With) -> set[str]:
    """Names that the function uses somewhere outside of the block."""
    last = _last(node)
    return {
        inner.id
        for inner in ast.walk(generator.jit_fn.parse())
        if isinstance(inner, ast.Name) and not node.lineno <= inner.lineno <= last
    }


def _handles(value: Any) -> list[Any]:
    handles: list[Any] = []
    value._flatten_ir(handles)
    return handles


def _has_handles(value: Any) -> bool:
    return hasattr(value, "_flatten_ir") and bool(_handles(value))


@contextlib.contextmanager
def _context(generator: Any, num_warps: int, replica: int, default: bool) -> Iterator[None]:
    before = generator.caller_context
    generator.caller_context = _context_class()(num_warps, replica, default)
    try:
        yield
    finally:
        generator.caller_context = before


# ---- errors


def _line(generator: Any, node: Any) -> str:
    return f"{generator.file_name}:{_number(generator, node.lineno)}"


def _number(generator: Any, line: int) -> int:
    return int(generator.begin_line + line)


def _first_line(statement: ast.stmt) -> str:
    return ast.unparse(statement).splitlines()[0]


def _refuse(problem: str, remedy: str, where: str) -> UsageError:
    return UsageError(problem, remedy=remedy, construct="async_tasks", where=where)
