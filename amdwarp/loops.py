"""Loops of an AMDGCN text with barriers or priorities in them, and what stands between the barriers."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from .lowering.analysis.realised import slot_of

LETTERS = "MRWGSCT"
_LABEL = re.compile(r"^(\.?\w+):")
_BRANCH = re.compile(r"s_c?branch\w*\s+(\.?\w+)")
_PRIORITY = re.compile(r"s_setprio\s+(\d)")


@dataclass(frozen=True)
class LoopReport:
    """An innermost loop of the text with barriers or priorities in it.

    Attributes:
        label: of its first block.
        barriers: in one iteration.
        priorities: values set, in order.
        parts: instructions between barriers, a count by letter each.
    """

    label: str
    barriers: int
    priorities: list[int]
    parts: list[dict[str, int]]


def by_letter(counts: Counter[str]) -> dict[str, int]:
    """Counts of instruction classes, in the order in which reports list them."""
    return {letter: counts[letter] for letter in LETTERS if counts[letter]}


@dataclass
class _Block:
    """A basic block: its label or "", its lines, and the blocks that may follow."""

    label: str
    lines: list[str]
    after: list[int]


def _blocks(amdgcn: str) -> list[_Block]:
    blocks = [_Block("", [], [])]
    for line in amdgcn.splitlines():
        text = line.strip()
        if match := _LABEL.match(text):
            blocks.append(_Block(match.group(1), [], []))
            continue
        blocks[-1].lines.append(text)
        if _BRANCH.match(text):
            blocks.append(_Block("", [], []))
    at = {block.label: index for index, block in enumerate(blocks) if block.label}
    for index, block in enumerate(blocks):
        last = block.lines[-1] if block.lines else ""
        match = _BRANCH.match(last)
        if match and match.group(1) in at:
            block.after.append(at[match.group(1)])
        if not last.startswith(("s_branch", "s_endpgm")) and index + 1 < len(blocks):
            block.after.append(index + 1)
    return blocks


def loops(amdgcn: str) -> list[LoopReport]:
    """Innermost loops that hold barriers or priorities."""
    blocks = _blocks(amdgcn)
    before: dict[int, list[int]] = {}
    for index, block in enumerate(blocks):
        for successor in block.after:
            before.setdefault(successor, []).append(index)
    bodies: dict[int, set[int]] = {}
    for index, block in enumerate(blocks):
        for head in block.after:
            body = _body(index, head, before) if head <= index else set()
            if head in body and any(successor in body for successor in blocks[head].after):
                bodies[head] = bodies.get(head, set()) | body
    inner = {h: b for h, b in bodies.items() if not any(o != h and bodies[o] < b for o in bodies)}
    reports = [
        _loop(blocks[head].label, [line for index in sorted(body) for line in blocks[index].lines])
        for head, body in inner.items()
    ]
    return [report for report in reports if report.barriers or report.priorities]


def _body(last: int, head: int, before: dict[int, list[int]]) -> set[int]:
    """The blocks from which ``last`` is reached without passing ``head``, with both; empty if ``head`` is not one."""
    body, pending = {last}, [last]
    while pending:
        index = pending.pop()
        for one in before.get(index, []) if index != head else []:
            if one not in body:
                body.add(one)
                pending.append(one)
    return body if head in body and 0 not in body - {head} else set()


def _loop(label: str, lines: list[str]) -> LoopReport:
    parts: list[Counter[str]] = [Counter()]
    priorities = []
    for line in lines:
        if line.startswith(("s_barrier_wait", "s_barrier")) and not line.startswith("s_barrier_signal"):
            parts.append(Counter())
        elif match := _PRIORITY.match(line):
            priorities.append(int(match.group(1)))
        elif slot := slot_of(line):
            parts[-1][slot.value] += 1
    barriers = len(parts) - 1
    if barriers:
        # one iteration ends where the next begins
        parts[0] = parts.pop() + parts[0]
    return LoopReport(label, barriers, priorities, [by_letter(part) for part in parts])
