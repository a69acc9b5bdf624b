"""The streams of a window, from SSA dependence, and what may not stand in one.

A window's *memory* stream is its memory operations with what only they need or what only they feed; its *matrix*
stream the same for matrix multiplies. Nothing may lead from one to the other, or there would be nothing to weave. What
belongs to neither is the *vector* stream: a softmax of an earlier tile, for one. What two streams share is *free*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from amdwarp.errors import LoweringError

from ..dialect import Kind, Pipe, info, kind_of
from ..ir import Module, Op, Value
from .layouts import layout_of
from .linear import LANE, WARP
from .pricing import needs_scratch
from .types import LayoutError, parse_type
from .vmem_width import operand
from .windows import REGION, Stream, Window, mentioned, number_of

PASS = "chunk_streams"

Test = Callable[[Op, Module], bool]


def _is(*kinds: Kind) -> Test:
    return lambda op, module: kind_of(op) in kinds


def _writes_lds(op: Op, module: Module) -> bool:
    return op.name == "ttg.local_alloc" and bool(op.operands)


def _volatile(op: Op, module: Module) -> bool:
    return op.properties.get("isVolatile") == "true" or op.attributes.get("isVolatile") == "true"


def _branches(op: Op, module: Module) -> bool:
    """A masked access through pointers becomes a branch around it; a buffer access does not."""
    return op.name in ("tt.load", "tt.store", "ttg.async_copy_global_to_local") and operand(op, "mask") is not None


def _by_some_threads(op: Op, module: Module) -> bool:
    """A store through pointers whose value several threads hold: one of them stores, behind a branch."""
    if op.name != "tt.store":
        return False
    value = operand(op, "value")
    try:
        layout = layout_of(parse_type(value.type, module)) if value is not None else None
    except LayoutError:
        return True  # one value, which each thread has
    return layout is None or any(not any(basis) for name in (LANE, WARP) for basis in layout.bases.get(name, ()))


def _one_value(op: Op, module: Module) -> bool:
    return op.name == "tt.load" and not op.result.type.startswith("tensor<")


def _no_class(op: Op, module: Module) -> bool:
    return info(op).pipe is Pipe.TDM or op.name in ("tt.descriptor_load", "tt.descriptor_gather")


@dataclass(frozen=True)
class Rule:
    """One thing that may not stand in a window.

    Attributes:
        applies: whether an operation is such a thing.
        what: what it is, in a message.
        remedy: what to do.
        paired: whether it may not stand in a pair either.
    """

    applies: Test
    what: str
    remedy: str
    paired: bool = True


_OUT = "move it out"
_READ_ONLY = "single-region interleaving takes read-only memory operations: move the {what} out, or mark the memory "
_READ_ONLY += "operations and the MFMA as two regions with one pair"

RULES: tuple[Rule, ...] = (
    Rule(_is(Kind.CONTROL), "control flow", "a window is one straight run of operations: unroll it or move it out"),
    Rule(_is(Kind.BARRIER), "barrier", "put it in front of the window or behind it"),
    Rule(_is(Kind.WAIT), "wait", "put it in front of the window or behind it"),
    Rule(_is(Kind.SCHED), "scheduling operation", "a window has its own walls and groups: drop it"),
    Rule(_is(Kind.ATOMIC), "atomic", _OUT),
    Rule(_is(Kind.UNKNOWN), "operation of unknown effect", _OUT),
    Rule(_volatile, "volatile load", "volatile accesses keep their place: move it out, or drop volatile"),
    Rule(_no_class, "tensor copy", "LLVM has no scheduling class for it: move it out"),
    Rule(_branches, "masked access through pointers", "it becomes a branch: use a buffer operation, or drop the mask"),
    Rule(
        _by_some_threads,
        "store of a value that several threads hold",
        "only one of them stores it, which becomes a branch: use a buffer operation, spread the value over all "
        "threads, or move it out",
    ),
    Rule(
        _one_value,
        "load of a single value",
        "LLVM may make a scalar load of it, which no scheduling group takes: move it out",
    ),
    Rule(needs_scratch, "exchange between waves through LDS", "it has barriers of its own: " + _OUT),
    Rule(_is(Kind.COMMIT), "commit of asynchronous copies", _READ_ONLY, paired=False),
    Rule(_is(Kind.COPY), "copy into LDS", _READ_ONLY, paired=False),
    Rule(_is(Kind.STORE), "store", _READ_ONLY, paired=False),
    Rule(_writes_lds, "store", _READ_ONLY, paired=False),
)


def check_contents(window: Window, module: Module) -> None:
    """Refuse what may not stand in a window.

    Raises:
        LoweringError: naming the operation, its line, and what to do.
    """
    for op in window.ops:
        for rule in RULES:
            if (rule.paired or not window.paired) and rule.applies(op, module):
                if not rule.paired:
                    # two regions may not depend on each other either
                    _check_dataflow(window)
                raise _refused(window, op, rule)


def _refused(window: Window, op: Op, rule: Rule) -> LoweringError:
    article = "an" if rule.what[0] in "aeiou" else "a"
    what = rule.what if rule.what == "control flow" else f"{article} {rule.what}"
    where = mentioned(op, window.begin)
    mixes = not rule.paired and any(kind_of(other) is Kind.MFMA for other in window.ops)
    problem = f"the region mixes MFMA with {what} ({where})" if mixes else f"it holds {what} ({where})"
    return window.error(problem, rule.remedy.format(what=rule.what), PASS)


def is_memory(op: Op) -> bool:
    """Whether an operation belongs to the memory stream by what it is."""
    return kind_of(op) in (Kind.LOAD, Kind.STORE, Kind.COPY, Kind.COMMIT) or (
        op.name == "ttg.local_alloc" and bool(op.operands)
    )


def split(window: Window) -> dict[Op, Stream]:
    """The stream of each operation of a window.

    Raises:
        LoweringError: a value leads from one stream to the other; a window without one of them; a pair of the same
            kind twice.
    """
    ops = window.ops
    memory = [op for op in ops if is_memory(op)]
    matrix = [op for op in ops if kind_of(op) is Kind.MFMA]
    _check_presence(window, memory, matrix)
    if window.paired:
        _check_pair(window, memory, matrix)
    inside = set(ops)
    below = {Stream.MEMORY: _reached(memory, inside), Stream.MATRIX: _reached(matrix, inside)}
    above = {Stream.MEMORY: _needed(memory, inside), Stream.MATRIX: _needed(matrix, inside)}
    _check_dataflow(window)
    streams = {}
    for op in ops:
        touches = [s for s in (Stream.MEMORY, Stream.MATRIX) if op in below[s] or op in above[s]]
        streams[op] = touches[0] if len(touches) == 1 else Stream.FREE if touches else Stream.VECTOR
    return streams


def _check_presence(window: Window, memory: list[Op], matrix: list[Op]) -> None:
    transcendental = any(op.name.startswith("math.") for op in window.ops)
    if window.paired and not (matrix and memory):
        what = "memory operations and neither has MFMA" if memory else "MFMA and neither has memory operations"
        raise window.error(
            f"both regions of the pair hold {what}" if memory or matrix else "both regions of the pair are empty",
            "one region of a pair is memory only and the other MFMA only",
            PASS,
        )
    if not matrix:
        raise window.error("it has no MFMA to weave memory operations between", "put a dot into it, or drop it", PASS)
    if not memory and not transcendental:
        raise window.error(
            "it has no memory operation to weave between its MFMA", "put a load into it, or drop it", PASS
        )


def _check_pair(window: Window, memory: list[Op], matrix: list[Op]) -> None:
    crossing = _crossing(window, memory, matrix)
    if crossing is not None:
        source, user = crossing
        raise window.error(
            f"the two regions of the pair depend on each other: {mentioned(user, window.begin)} uses what "
            f"{mentioned(source, window.begin)} makes",
            "put what takes the product behind the window"
            if kind_of(source) is Kind.MFMA
            else "load one iteration ahead into other registers",
            PASS,
        )
    regions = {name: {number_of(op, REGION) for op in ops} for name, ops in (("memory", memory), ("MFMA", matrix))}
    if regions["memory"] & regions["MFMA"]:
        mixed = min(regions["memory"] & regions["MFMA"])
        # what the other region is full of does not belong here
        stray, what = (matrix, "MFMA") if 1 - mixed in regions["MFMA"] else (memory, "memory operations")
        first = next(op for op in stray if number_of(op, REGION) == mixed)
        raise window.error(
            f"region {mixed + 1} of the pair mixes MFMA with memory operations ({mentioned(first, window.begin)})",
            f"one region of a pair is memory only and the other MFMA only: move its {what} to the other region, or "
            "drop pair and the second region",
            PASS,
        )


def _crossing(window: Window, memory: list[Op], matrix: list[Op]) -> tuple[Op, Op] | None:
    """What one region of a pair makes, and what in the other uses it: a load and a product if there are such."""
    inside = set(window.ops)
    for load in memory:
        reached = _reached([load], inside)
        for product in matrix:
            if product in reached and number_of(load, REGION) != number_of(product, REGION):
                return load, product
    for op in window.ops:
        for value in op.operands:
            source = value.op
            if source not in inside or source is None or _shared(source, inside):
                continue
            if number_of(source, REGION) != number_of(op, REGION):
                return source, op
    return None


def _shared(op: Op, inside: set[Op]) -> bool:
    """A common subexpression that stock cleanups left in the first region for both."""
    return kind_of(op) in (Kind.PURE, Kind.VIEW) and not any(
        is_memory(source) or kind_of(source) is Kind.MFMA for source in _needed([op], inside)
    )


def _check_dataflow(window: Window) -> None:
    memory = [op for op in window.ops if is_memory(op)]
    matrix = [op for op in window.ops if kind_of(op) is Kind.MFMA]
    inside = set(window.ops)
    ahead, behind = "load one iteration ahead into other registers", "put what takes the product behind the window"
    for sources, sinks, what, remedy in ((memory, matrix, "loads", ahead), (matrix, memory, "makes", behind)):
        for source in sources:
            reached = _reached([source], inside)
            for sink in sinks:
                if sink in reached:
                    raise window.error(
                        f"its memory and its MFMA depend on each other: {mentioned(sink, window.begin)} uses what "
                        f"{mentioned(source, window.begin)} {what}",
                        remedy,
                        PASS,
                    )


def _reached(sources: Iterable[Op], inside: set[Op]) -> set[Op]:
    """The sources and every operation inside that uses them, directly or not."""
    return _closure(sources, inside, lambda op: (user for result in op.results for user in result.users))


def _needed(sinks: Iterable[Op], inside: set[Op]) -> set[Op]:
    """The sinks and every operation inside that they use, directly or not."""
    return _closure(sinks, inside, lambda op: (value.op for value in _all_operands(op) if value.op is not None))


def _all_operands(op: Op) -> Iterable[Value]:
    return (value for inner in op.walk() for value in inner.operands)


def _closure(start: Iterable[Op], inside: set[Op], step: Callable[[Op], Iterable[Op]]) -> set[Op]:
    found = set(start)
    pending = list(found)
    while pending:
        for near in step(pending.pop()):
            if near in inside and near not in found:
                found.add(near)
                pending.append(near)
    return found
