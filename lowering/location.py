"""Source positions: from the text of an MLIR location, through its aliases, to file, line, column and name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class SourceLocation:
    """Where an op comes from.

    Attributes:
        file: path as the front end wrote it.
        line, column: 1-based, as printed.
        name: the variable or value name attached to the location, or None.
        callers: positions this one was inlined into, innermost caller first.
    """

    file: str
    line: int
    column: int
    name: str | None = None
    callers: tuple[SourceLocation, ...] = ()

    @property
    def where(self) -> str:
        """``file:line`` in the kernel: the innermost position that is not inside Triton's own library."""
        frames = (self, *self.callers)
        best = next((frame for frame in frames if not _LIBRARY.search(frame.file)), self)
        return f"{best.file}:{best.line}"


_LIBRARY = re.compile(r"[/\\]triton[/\\](language|experimental)[/\\]")
_STRING = r'"((?:[^"\\]|\\.)*)"'
_FILE = re.compile(_STRING + r":(\d+):(\d+)")
_NAME = re.compile(_STRING)
_WRAP = re.compile(r"loc\((.*)\)", re.S)
_MAX_DEPTH = 200  # aliases that refer to each other would otherwise never end


def resolve_location(loc: str | None, aliases: Mapping[str, str]) -> SourceLocation | None:
    """The position a location text stands for, or None if it names no file.

    Args:
        loc: location with or without its ``loc(…)`` wrapper: an alias, ``"f.py":3:4``, ``"name"(…)``,
            ``callsite(… at …)``, ``fused<…>[…]`` or ``unknown``.
        aliases: alias name -> its text.
    """
    return _resolve(loc.strip(), aliases, 0) if loc else None


def _resolve(text: str, aliases: Mapping[str, str], depth: int) -> SourceLocation | None:
    if depth > _MAX_DEPTH:
        return None
    if wrapped := _WRAP.fullmatch(text):
        text = wrapped.group(1).strip()
    if text.startswith("#"):
        body = aliases.get(text)
        return _resolve(body, aliases, depth + 1) if body else None
    if match := _FILE.match(text):
        return SourceLocation(_unescape(match.group(1)), int(match.group(2)), int(match.group(3)))
    if match := _NAME.match(text):
        inner = text[match.end() :].strip()
        found = _resolve(inner[1:-1].strip(), aliases, depth + 1) if inner.startswith("(") else None
        return replace(found, name=found.name or _unescape(match.group(1))) if found else None
    if text.startswith("callsite("):
        return _resolve_callsite(text, aliases, depth)
    if text.startswith("fused"):
        start = _close(text, 5) if text[5:6] == "<" else 5
        for part in split_top_level(text[start:].strip()[1:-1]):
            if found := _resolve(part, aliases, depth + 1):
                return found
    return None


def _resolve_callsite(text: str, aliases: Mapping[str, str], depth: int) -> SourceLocation | None:
    callee, caller = _split_at(text[len("callsite(") : -1])
    inner, outer = _resolve(callee, aliases, depth + 1), _resolve(caller, aliases, depth + 1)
    if inner is None or outer is None:
        return inner or outer
    frames = (replace(outer, callers=()), *outer.callers)
    return replace(inner, callers=inner.callers + frames)


def _split_at(text: str) -> tuple[str, str]:
    """Split ``callee at caller`` at the ``at`` that is in no bracket or string."""
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in _OPEN:
            depth += 1
        elif token in _CLOSE:
            depth -= 1
        elif token == " at " and depth == 0:
            return text[: match.start()].strip(), text[match.end() :].strip()
    return text.strip(), ""


_OPEN, _CLOSE = frozenset("([{<"), frozenset(")]}>")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|->|[<>]=| at |[()\[\]{}<>,]')


def split_top_level(text: str) -> list[str]:
    """Split at the commas that stand in no bracket and no string; the parts are stripped, and "" gives []."""
    parts: list[str] = []
    depth = start = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in _OPEN:
            depth += 1
        elif token in _CLOSE:
            depth -= 1
        elif token == "," and depth == 0:
            parts.append(text[start : match.start()].strip())
            start = match.end()
    tail = text[start:].strip()
    return [*parts, tail] if tail or parts else []


def _close(text: str, start: int) -> int:
    """Position after the bracket that closes the one at ``start``."""
    depth = 0
    for match in _TOKEN.finditer(text, start):
        depth += (match.group() in _OPEN) - (match.group() in _CLOSE)
        if depth == 0:
            return match.end()
    return len(text)


def _unescape(text: str) -> str:
    """The characters of a printed MLIR string: ``\\22`` and the like are bytes in hexadecimal."""
    return re.sub(r'\\([0-9A-Fa-f]{2}|["\\])', lambda m: m[1] if len(m[1]) == 1 else chr(int(m[1], 16)), text)
