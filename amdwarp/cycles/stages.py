"""Which stage of the kernel's source an instruction belongs to.

The text's line table says for each instruction the source line, and in a comment the lines it was inlined at. A stage
is a ``with warp_pipeline_stage("name")`` in a source file that can be read; an instruction belongs to it if any of its
lines lies in that block.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from amdwarp.asm import Program

_FRAME = re.compile(r"([^\s\[\]@;]+):(\d+):\d+")
_FILE = re.compile(r'^\s*\.file\s+\d+\s+(?:"([^"]*)"\s+)?"([^"]*)"')
CONSTRUCT = "warp_pipeline_stage"


@dataclass(frozen=True)
class Stage:
    """A stage of a source file: name, first and last line."""

    name: str
    first: int
    last: int


def stages_of_source(source: str) -> list[Stage]:
    """The stages that a Python source opens, in the order in which they stand there."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.With):
            continue
        for item in node.items:
            name = _stage_name(item.context_expr)
            if name is not None:
                found.append(Stage(name, node.lineno, node.end_lineno or node.lineno))
    return sorted(found, key=lambda stage: stage.first)


def _stage_name(node: ast.expr) -> str | None:
    if not isinstance(node, ast.Call):
        return None
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if called != CONSTRUCT:
        return None
    names = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "name")]
    if names and isinstance(names[0], ast.Constant) and isinstance(names[0].value, str):
        return names[0].value
    return f"stage at line {node.lineno}"


def stage_names(text: str, program: Program) -> list[str | None]:
    """For each instruction of a program the name of its stage, or None.

    Args:
        text: the text `program` was read from.
        program: whose instructions are wanted.
    """
    frames = _frames_by_line(text)
    known: dict[str, list[Stage]] = {}
    for path in _source_files(text):
        if path.is_file():
            try:
                known.setdefault(path.name, stages_of_source(path.read_text()))
            except (OSError, SyntaxError, UnicodeDecodeError):
                continue
    names: list[str | None] = []
    for inst in program.instructions:
        found = None
        for file, row in frames.get(inst.line, ()):
            for stage in known.get(file, ()):
                if stage.first <= row <= stage.last:
                    found = stage.name
        names.append(found)
    return names


def _source_files(text: str) -> list[Path]:
    files = []
    for line in text.splitlines():
        match = _FILE.match(line)
        if match:
            folder, name = match[1] or "", match[2]
            files.append(Path(name if name.startswith("/") else f"{folder}/{name}"))
    return files


def _frames_by_line(text: str) -> dict[int, list[tuple[str, int]]]:
    """For each line of the text the (file name, line) of the last line-table entry before it, innermost first."""
    frames: dict[int, list[tuple[str, int]]] = {}
    current: list[tuple[str, int]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(".loc"):
            _, _, comment = line.partition(";")
            current = [(match[1].rsplit("/", 1)[-1], int(match[2])) for match in _FRAME.finditer(comment)]
        frames[number] = current
    return frames
