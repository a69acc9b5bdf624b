"""Barriers in the produced LLVM IR against the plan: stock barrier insertion runs after us and may add its own.

Every planned edge of a pipeline is one barrier between two full scheduling walls, and a pipeline starts and ends at
conditional barriers. Any other barrier between those was put there by stock code generation; it stands inside a stage,
holds both wave groups up, and shifts the phase between them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from amdwarp.errors import ProtocolError

_LABEL = re.compile(r"^([\w.$-]+|\"[^\"]+\"):")
_BARRIER = re.compile(r"call void @llvm\.amdgcn\.s\.barrier(?:\.signal)?\(")
_BARRIER_END = re.compile(r"call void @llvm\.amdgcn\.s\.barrier\.wait\(|^\s*br label ")
_WALL = re.compile(r"call void @llvm\.amdgcn\.sched\.barrier\(i32 0\)")
_GROUP = re.compile(r"call void @llvm\.amdgcn\.sched\.group\.barrier\(")
_WORK = re.compile(r"@llvm\.amdgcn\.(?:mfma|smfmac|wmma|swmmac|raw\.ptr\.buffer|ds\.|global)|\b(?:load|store)\b")
_TARGETS = re.compile(r"label %([\w.$-]+|\"[^\"]+\")")
_DEBUG = re.compile(r"!dbg !(\d+)")


class _Kind(Enum):
    WALL = "wall"
    BARRIER = "barrier"
    WORK = "work"
    GROUP = "group"


@dataclass
class _Block:
    """One basic block: its barriers, walls and memory or matrix instructions, in order."""

    label: str
    lines: list[str] = field(default_factory=list)
    items: list[tuple[_Kind, str]] = field(default_factory=list)
    successors: list[_Block] = field(default_factory=list)
    predecessors: list[_Block] = field(default_factory=list)

    @property
    def is_conditional_barrier(self) -> bool:
        return any(map(_BARRIER.search, self.lines)) and all(
            _BARRIER.search(line) or _BARRIER_END.search(line) for line in self.lines
        )

    @property
    def parts_groups(self) -> bool:
        """Only one of the wave groups executes a barrier behind this block."""
        return len(self.successors) == 2 and any(block.is_conditional_barrier for block in self.successors)


def check_text(llir: str) -> None:
    """Check every pipeline in the LLVM IR of a kernel that has one.

    Raises:
        ProtocolError: a barrier that the plan does not have, with the kernel line it was put at.
    """
    for function in re.findall(r"^define [^\n]*\{\n.*?^\}", llir, re.M | re.S):
        for line in _unplanned(_blocks(function)):
            raise ProtocolError(
                "stock barrier insertion put a barrier inside a stage",
                remedy="use one LDS allocation for each operand, loads marked as synchronised (load_shared_relaxed), "
                "and slots that Triton sees are different: (i + d) % depth of one counter i",
                construct="warp_pipeline_stage",
                where=_source_of(line, llir),
                pass_name="membar",
            )


def _blocks(function: str) -> list[_Block]:
    blocks = [_Block("")]
    for line in function.splitlines()[1:-1]:
        if match := _LABEL.match(line):
            blocks.append(_Block(match.group(1)))
        elif line.strip() and not line.lstrip().startswith(("#dbg", ";")):
            blocks[-1].lines.append(line)
    by_label = {block.label: block for block in blocks}
    for block in blocks:
        block.items = _without_windows([(kind, line) for line in block.lines if (kind := _kind(line))])
        last = " ".join(block.lines[-1:])
        block.successors = [by_label[name] for name in dict.fromkeys(_TARGETS.findall(last)) if name in by_label]
        for successor in block.successors:
            successor.predecessors.append(block)
    return blocks


def _without_windows(items: list[tuple[_Kind, str]]) -> list[tuple[_Kind, str]]:
    """Without the walls of intra-wave windows, which lie inside stages: a closing one follows scheduling groups."""
    kept: list[tuple[_Kind, str]] = []
    grouped = False
    for kind, line in items:
        if kind is _Kind.WALL and grouped:
            opening = max((i for i, (known, _) in enumerate(kept) if known is _Kind.WALL), default=None)
            if opening is not None:
                del kept[opening]
        elif kind is not _Kind.GROUP:
            kept.append((kind, line))
        grouped = kind is _Kind.GROUP
    return kept


def _kind(line: str) -> _Kind | None:
    if _WALL.search(line):
        return _Kind.WALL
    if _BARRIER.search(line):
        return _Kind.BARRIER
    if _GROUP.search(line):
        return _Kind.GROUP
    return _Kind.WORK if _WORK.search(line) else None


def _unplanned(blocks: list[_Block]) -> Iterator[str]:
    """Barriers in pipeline code that are on no edge."""
    for block in blocks:
        for opening, closing in _edges(block):
            yield from _barriers(_before(block, opening))
            yield from _barriers(_after(block, closing))
            yield from _barriers(block.items[opening:closing][2:])


def _edges(block: _Block) -> Iterator[tuple[int, int]]:
    """Positions of the two walls around a planned barrier; further barriers in between are not planned."""
    walls = [i for i, (kind, _) in enumerate(block.items) if kind is _Kind.WALL]
    for opening, closing in itertools.pairwise(walls):
        inside = [kind for kind, _ in block.items[opening + 1 : closing]]
        if inside and all(kind is _Kind.BARRIER for kind in inside):
            yield opening, closing


def _barriers(items: Iterable[tuple[_Kind, str]]) -> Iterator[str]:
    return (line for kind, line in items if kind is _Kind.BARRIER)


def _before(block: _Block, position: int) -> Iterator[tuple[_Kind, str]]:
    """What may run before an item, back to a wall or to where the groups part."""
    todo, seen = [(block, position)], {id(block): position}
    while todo:
        current, end = todo.pop()
        for item in reversed(current.items[:end]):
            if item[0] is _Kind.WALL:
                break
            yield item
        else:
            for previous in current.predecessors:
                starts_here = previous.is_conditional_barrier or previous.parts_groups
                if not starts_here and seen.get(id(previous), -1) < len(previous.items):
                    seen[id(previous)] = len(previous.items)
                    todo.append((previous, len(previous.items)))


def _after(block: _Block, position: int) -> Iterator[tuple[_Kind, str]]:
    """What may run after an item, up to a wall or to where the groups meet again."""
    todo, seen = [(block, position + 1)], {id(block)}
    while todo:
        current, start = todo.pop()
        for item in current.items[start:]:
            if item[0] is _Kind.WALL:
                break
            yield item
        else:
            fresh = [] if current.parts_groups else [b for b in current.successors if id(b) not in seen]
            seen.update(map(id, fresh))
            todo.extend((successor, 0) for successor in fresh)


def _source_of(line: str, llir: str) -> str | None:
    """``file:line`` of an instruction from its debug location."""
    match = _DEBUG.search(line)
    if match is None:
        return None
    location = re.search(rf"^!{match.group(1)} = .*DILocation\(line: (\d+),.*?scope: !(\d+)", llir, re.M)
    if location is None:
        return None
    file = re.search(rf"^!{location.group(2)} = .*?file: !(\d+)", llir, re.M)
    name = file and re.search(
        rf"^!{file.group(1)} = !DIFile\(filename: \"([^\"]*)\"(?:, directory: \"([^\"]*)\")?", llir, re.M
    )
    if not name:
        return f"line {location.group(1)}"
    folder = f"{name.group(2)}/" if name.group(2) else ""
    return f"{folder}{name.group(1)}:{location.group(1)}"
