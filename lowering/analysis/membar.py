"""Barriers in the produced LLVM IR against the plan: stock barrier insertion runs after us and may add its own.

Every planned edge of a pipeline is one barrier between two full scheduling walls. A barrier inside a pipeline's code that
is not preceded by a wall was put there by stock code generation; it stands inside a stage, holds both wave groups up,
and shifts the phase between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from amdwarp.errors import ProtocolError

_LABEL = re.compile(r"^([\w.$-]+|\"[^\"]+\"):")
_BARRIER = re.compile(r"call void @llvm\.amdgcn\.s\.barrier(?:\.signal)?\(")
_WALL = re.compile(r"call void @llvm\.amdgcn\.sched\.barrier\(i32 0\)")
_WORK = re.compile(r"@llvm\.amdgcn\.(?:mfma|smfmac|wmma|raw\.ptr\.buffer|ds\.|global)|\b(?:load|store)\b.*addrspace\(3\)")
_TARGETS = re.compile(r"label %([\w.$-]+|\"[^\"]+\")")
_DEBUG = re.compile(r"!dbg !(\d+)")


@dataclass
class _Block:
    label: str
    lines: list[str]

    @property
    def targets(self) -> list[str]:
        return _TARGETS.findall(self.lines[-1]) if self.lines else []


def check_text(llir: str) -> None:
    """Check every pipeline in the LLVM IR of one kernel; nothing happens for a kernel without walls.

    Raises:
        ProtocolError: a barrier that the plan does not have, with the kernel line it was put at.
    """
    if not _WALL.search(llir):
        return
    for function in re.findall(r"^define [^\n]*\{\n.*?^\}", llir, re.M | re.S):
        blocks = list(_blocks(function))
        inside = _loop_blocks(blocks)
        for block in blocks:
            if line := _unplanned(block, block.label in inside):
                raise ProtocolError(
                    "stock barrier insertion put a barrier inside a stage",
                    remedy="use one LDS allocation for each operand and loads marked as synchronised "
                    "(load_shared_relaxed), or move the LDS access to another stage",
                    construct="warp_pipeline_stage",
                    where=_source_of(line, llir),
                    pass_name="membar",
                )


def _blocks(function: str) -> Iterator[_Block]:
    current = _Block("", [])
    for line in function.splitlines()[1:-1]:
        if match := _LABEL.match(line):
            yield current
            current = _Block(match.group(1), [])
        elif line.strip():
            current.lines.append(line)
    yield current


def _loop_blocks(blocks: list[_Block]) -> set[str]:
    """Labels of blocks on a cycle that holds a wall: from a back edge's target to its source in layout order."""
    position = {block.label: i for i, block in enumerate(blocks)}
    inside: set[str] = set()
    for i, block in enumerate(blocks):
        for target in block.targets:
            start = position.get(target, len(blocks))
            body = blocks[start : i + 1]
            # an outer loop also has walls in it; only the innermost cycle around them is a pipeline
            if body and any(map(_WALL.search, (x for b in body for x in b.lines))) and not _holds_cycle(body, position):
                inside.update(b.label for b in body)
    return inside


def _holds_cycle(body: list[_Block], position: dict[str, int]) -> bool:
    first = position[body[0].label]
    return any(
        first <= position.get(target, -1) <= position[block.label]
        for block in body
        for target in block.targets
        if not (block is body[-1] and target == body[0].label)
    )


def _unplanned(block: _Block, in_loop: bool) -> str | None:
    """The first barrier in pipeline code with work between it and the wall before it; None if there is none."""
    walls = [i for i, line in enumerate(block.lines) if _WALL.search(line)]
    if not walls:
        if not in_loop:
            return None
        return next((line for line in block.lines if _BARRIER.search(line)), None)
    first = 0 if in_loop else walls[0]
    behind_wall = False
    for i, line in enumerate(block.lines[: walls[-1] + 1]):
        if _WALL.search(line):
            behind_wall = True
        elif i >= first and _BARRIER.search(line):
            if not behind_wall:
                return line
            behind_wall = False
        elif _WORK.search(line):
            behind_wall = False
    return None


def _source_of(line: str, llir: str) -> str | None:
    """``file:line`` of an instruction from its debug location."""
    match = _DEBUG.search(line)
    if match is None:
        return None
    location = re.search(rf"^!{match.group(1)} = .*DILocation\(line: (\d+),.*?scope: !(\d+)", llir, re.M)
    if location is None:
        return None
    file = re.search(rf"^!{location.group(2)} = .*?file: !(\d+)", llir, re.M)
    name = file and re.search(rf"^!{file.group(1)} = !DIFile\(filename: \"([^\"]*)\"(?:, directory: \"([^\"]*)\")?", llir, re.M)
    if not name:
        return f"line {location.group(1)}"
    folder = f"{name.group(2)}/" if name.group(2) else ""
    return f"{folder}{name.group(1)}:{location.group(1)}"
