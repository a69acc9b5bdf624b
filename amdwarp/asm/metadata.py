"""The metadata note of an AMDGCN text: the small part of YAML that LLVM writes there."""

from __future__ import annotations

from typing import Any

from amdwarp.asm.program import Argument, Metadata
from amdwarp.errors import EmulatorError


def _fail(line: int, text: str, problem: str) -> EmulatorError:
    return EmulatorError(f"{problem}: '{text.strip()}'", where=f"line {line}", construct="metadata note")


def _scalar(text: str) -> Any:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text, 0)
    except ValueError:
        return text


class _Lines:
    """Cursor over the (number, indent, content) of the note's non-empty lines."""

    def __init__(self, lines: list[tuple[int, str]]) -> None:
        self.rows: list[tuple[int, int, str]] = []
        for number, text in lines:
            content = text.strip()
            if content and content not in ("---", "..."):
                self.rows.append((number, len(text) - len(text.lstrip(" ")), content))
        self.at = 0

    def peek(self) -> tuple[int, int, str] | None:
        return self.rows[self.at] if self.at < len(self.rows) else None


def _block(lines: _Lines, indent: int) -> Any:
    row = lines.peek()
    if row is not None and row[2].startswith("- "):
        return _sequence(lines, row[1])
    return _mapping(lines, indent)


def _sequence(lines: _Lines, indent: int) -> list[Any]:
    items: list[Any] = []
    while (row := lines.peek()) is not None and row[1] == indent and row[2].startswith("- "):
        number, _, content = row
        inner = content[2:].lstrip()
        if ":" in inner:
            shift = indent + len(content) - len(inner)
            lines.rows[lines.at] = (number, shift, inner)
            items.append(_mapping(lines, shift))
        else:
            lines.at += 1
            items.append(_scalar(inner))
    return items


def _mapping(lines: _Lines, indent: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    while (row := lines.peek()) is not None and row[1] == indent and not row[2].startswith("- "):
        number, _, content = row
        key, colon, rest = content.partition(":")
        if not colon:
            raise _fail(number, content, "this is no 'key: value'")
        lines.at += 1
        rest = rest.strip()
        if rest and rest not in ("|-", "|", ">-"):
            result[key] = [] if rest == "[]" else {} if rest == "{}" else _scalar(rest)
            continue
        below = lines.peek()
        deeper = below is not None and (below[1] > indent or (below[1] == indent and below[2].startswith("- ")))
        result[key] = _block(lines, below[1]) if below is not None and deeper else ""
    return result


def _argument(item: dict[str, Any], at: int) -> Argument:
    offset, size, kind = (item.get(key) for key in (".offset", ".size", ".value_kind"))
    if not isinstance(offset, int) or not isinstance(size, int) or not isinstance(kind, str):
        raise EmulatorError(f"argument {at} lacks its offset, size or kind", construct="metadata note")
    return Argument(offset, size, kind, str(item.get(".address_space", "")), str(item.get(".name", "")))


def parse_metadata(lines: list[tuple[int, str]], kernel: str | None) -> tuple[Metadata, str]:
    """Read the note.

    Args:
        lines: (line number, text) between ``.amdgpu_metadata`` and its end.
        kernel: the kernel to pick; None where the text names only one.

    Returns:
        The kernel's metadata and the target triple (``amdhsa.target``).

    Raises:
        EmulatorError: the note is malformed or lacks the kernel.
    """
    cursor = _Lines(lines)
    root = _mapping(cursor, 0)
    left = cursor.peek()
    if left is not None:
        raise _fail(left[0], left[2], "unexpected indentation")
    listed = root.get("amdhsa.kernels")
    kernels = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    found = [entry for entry in kernels if kernel is None or entry.get(".name") == kernel]
    if len(found) != 1:
        names = ", ".join(str(entry.get(".name")) for entry in kernels) or "none"
        problem = f"the note describes the kernels {names}, not exactly one '{kernel}'"
        raise EmulatorError(problem, construct="metadata note")
    entry = found[0]
    items = entry.get(".args") or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise EmulatorError(f"the arguments of kernel '{kernel}' are no list", construct="metadata note")
    arguments = tuple(_argument(item, at) for at, item in enumerate(items))
    number = {key: value for key, value in entry.items() if isinstance(value, int)}
    missing = [key for key in (".kernarg_segment_size", ".wavefront_size", ".vgpr_count") if key not in number]
    if missing:
        raise EmulatorError(f"kernel '{kernel}' has no {', '.join(missing)}", construct="metadata note")
    return Metadata(
        name=str(entry.get(".name")),
        arguments=arguments,
        kernarg_size=number[".kernarg_segment_size"],
        lds_bytes=number.get(".group_segment_fixed_size", 0),
        scratch_bytes=number.get(".private_segment_fixed_size", 0),
        vgprs=number[".vgpr_count"],
        agprs=number.get(".agpr_count", 0),
        sgprs=number.get(".sgpr_count", 0),
        vgpr_spills=number.get(".vgpr_spill_count", 0),
        sgpr_spills=number.get(".sgpr_spill_count", 0),
        wave_size=number[".wavefront_size"],
        max_workgroup_size=number.get(".max_flat_workgroup_size", 0),
    ), str(root.get("amdhsa.target", ""))
