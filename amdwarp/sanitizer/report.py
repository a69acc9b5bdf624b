"""What a check found: findings, and how they read in text and JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from amdwarp.asm import Instruction

#: kind: (severity, what it means). The order is that of a report.
KINDS: dict[str, tuple[str, str]] = {
    "deadlock": ("error", "waves wait for something that does not come"),
    "barrier-misuse": ("error", "a wave signals a barrier again before it has waited for it"),
    "register-early-read": ("error", "a register is read before the wait that covers its load"),
    "register-early-write": ("error", "a register is overwritten while a load to it is under way"),
    "wait-states": ("error", "too few wait states between two instructions"),
    "lds-unpublished-read": ("error", "LDS is read while the write is not ordered before it"),
    "lds-write-after-read": ("error", "LDS is overwritten while the read of its old contents is not ordered before it"),
    "lds-write-write": ("error", "LDS is written twice in no fixed order"),
    "lds-stale-read": ("error", "LDS is read that this use of a slot has not written"),
    "lds-lost-write": ("warning", "bytes written to LDS are never read, unlike the rest of the write"),
    "lds-uninitialised-read": ("error", "LDS is read that nobody has written"),
    "lds-out-of-bounds": ("error", "an access outside the workgroup's LDS"),
    "out-of-bounds": ("error", "an access outside every buffer"),
    "uninitialised-read": ("error", "memory is read that nobody has written"),
    "fault": ("error", "an operation that the program may not do"),
    "global-race": ("warning", "workgroups access the same memory in no fixed order"),
    "nondeterminism": ("warning", "the results differ between interleavings of the waves"),
}


def span(waves: Iterable[int]) -> str:
    """``0-3, 6``: wave numbers."""
    parts: list[str] = []
    ordered = sorted(set(waves))
    while ordered:
        run = 1
        while run < len(ordered) and ordered[run] == ordered[0] + run:
            run += 1
        parts.append(f"{ordered[0]}" if run == 1 else f"{ordered[0]}-{ordered[run - 1]}")
        ordered = ordered[run:]
    return ", ".join(parts)


@dataclass
class Site:
    """An instruction and the waves (of a workgroup) that executed it."""

    inst: Instruction
    waves: set[int]

    def __str__(self) -> str:
        named = f"wave{'s' if len(self.waves) > 1 else ''} {span(self.waves)}: " if self.waves else ""
        return f"{named}{self.inst.where}: {self.inst.text}"

    def to_json(self) -> dict[str, Any]:
        """Line and text of the assembly, line of the kernel's source or None, waves."""
        source = self.inst.source
        where = None if source is None else {"file": source.file, "line": source.line}
        return {"line": self.inst.line, "text": self.inst.text, "source": where, "waves": sorted(self.waves)}


@dataclass
class Finding:
    """One fault, however often it occurred.

    Attributes:
        kind: key of `KINDS`.
        problem: what happened, one sentence.
        remedy: what would order the two, or "".
        first, second: the instructions, the earlier one first; None where there is none.
        lds: first byte and byte behind the last of the LDS concerned, or None.
        workgroup: the first workgroup it was found in.
        count: how often it was found.
    """

    kind: str
    problem: str
    remedy: str = ""
    first: Site | None = None
    second: Site | None = None
    lds: tuple[int, int] | None = None
    workgroup: tuple[int, int, int] | None = None
    count: int = 1

    @property
    def severity(self) -> str:
        """``error`` or ``warning``."""
        return KINDS[self.kind][0]

    def __str__(self) -> str:
        lines = [f"{self.severity}: {self.kind}: {self.problem}"]
        lines += [f"    {site}" for site in (self.first, self.second) if site is not None]
        if self.lds is not None:
            lines.append(f"    LDS bytes {self.lds[0]} to {self.lds[1] - 1}")
        if self.remedy:
            both = self.first is not None and self.second is not None
            lines.append(f"    to {'order them' if both else 'mend it'}: {self.remedy}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON values."""
        return {
            "kind": self.kind,
            "severity": self.severity,
            "problem": self.problem,
            "remedy": self.remedy,
            "first": None if self.first is None else self.first.to_json(),
            "second": None if self.second is None else self.second.to_json(),
            "lds": None if self.lds is None else list(self.lds),
            "workgroup": None if self.workgroup is None else list(self.workgroup),
            "count": self.count,
        }


@dataclass
class Redundancy:
    """A barrier or wait that no dependence needed in this run."""

    inst: Instruction
    counter: str = ""

    def __str__(self) -> str:
        what = f"{self.counter} of " if self.counter else ""
        return f"redundant: {what}{self.inst.where}: {self.inst.text}"

    def to_json(self) -> dict[str, Any]:
        """The instruction as JSON values."""
        return Site(self.inst, set()).to_json() | {"counter": self.counter}


@dataclass
class Report:
    """Result of `amdwarp.sanitizer.check`.

    Attributes:
        findings: each fault once, ordered by kind and line.
        instructions: wave-instructions executed.
        seconds: wall time of the run.
        workgroups: workgroups run.
        deadlock: True if the waves did not come to an end.
        redundant: barriers and waits that no dependence needed, if asked for.
    """

    findings: list[Finding]
    instructions: int = 0
    seconds: float = 0.0
    workgroups: int = 0
    deadlock: bool = False
    redundant: list[Redundancy] | None = None

    @property
    def ok(self) -> bool:
        """True if nothing was found."""
        return not self.findings

    def __str__(self) -> str:
        lines = [str(finding) for finding in self.findings] + [str(item) for item in self.redundant or ()]
        errors = sum(finding.severity == "error" for finding in self.findings)
        warnings = len(self.findings) - errors
        found = "clean" if self.ok else f"{_count(errors, 'error')}, {_count(warnings, 'warning')}"
        lines.append(f"{found}: {_count(self.workgroups, 'workgroup')}, {self.instructions} wave-instructions")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        data: dict[str, Any] = {
            "findings": [finding.to_json() for finding in self.findings],
            "instructions": self.instructions,
            "seconds": self.seconds,
            "deadlock": self.deadlock,
            "workgroups": self.workgroups,
        }
        if self.redundant is not None:
            data["redundant"] = [item.to_json() for item in self.redundant]
        return data


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


@dataclass
class Collector:
    """Gathers findings; one kind between one pair of instructions is one finding."""

    found: dict[tuple[str, int, int], Finding] = field(default_factory=dict)
    workgroup: tuple[int, int, int] | None = None

    def add(self, finding: Finding) -> None:
        """Add a finding, or count it if it is known."""
        indices = [-1 if site is None else site.inst.index for site in (finding.first, finding.second)]
        key = (finding.kind, indices[0], indices[1])
        known = self.found.get(key)
        if known is None:
            finding.workgroup = self.workgroup
            self.found[key] = finding
            return
        known.count += 1
        for mine, its in ((known.first, finding.first), (known.second, finding.second)):
            if mine is not None and its is not None:
                mine.waves |= its.waves
        if known.lds is not None and finding.lds is not None:
            known.lds = min(known.lds[0], finding.lds[0]), max(known.lds[1], finding.lds[1])

    def ordered(self) -> list[Finding]:
        """The findings by kind and place."""
        kinds = list(KINDS)

        def place(finding: Finding) -> tuple[int, int, int]:
            lines = [-1 if site is None else site.inst.line for site in (finding.second, finding.first)]
            return kinds.index(finding.kind), lines[0], lines[1]

        return sorted(self.found.values(), key=place)
