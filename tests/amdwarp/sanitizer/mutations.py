"""Breaks good kernels one instruction at a time and counts what the sanitizer notices.

    python tests/amdwarp/sanitizer/mutations.py [kernel ...]

Each mutant drops or weakens one counter of one wait, drops one barrier, drops one arrival on a barrier in LDS, lets one
polling loop wait for the other phase, or moves one LDS offset by a slot of the ring.
A mutant *can change an outcome* if the emulator, over several interleavings of single waves, computes something else
than the kernel it was made from, or fails. The rate is that of the mutants among those that
`amdwarp.sanitizer.check` reports.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from amdwarp.asm import parse
from amdwarp.emulator import launch
from amdwarp.errors import AmdwarpError
from amdwarp.sanitizer import Report, check
from amdwarp.sanitizer.effects import program_effects
from amdwarp.sanitizer.polls import polls

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))

#: Interleavings that decide whether a mutant can change an outcome.
SEEDS = 4
_COUNTER = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")
_LDS_BYTES = 160 << 10
_LIMITS = {"vmcnt": 63, "lgkmcnt": 15}
_SPLIT = re.compile(r"\s*(s_wait_(?:load|store|ds|km|async|tensor)cnt) (0x[0-9a-f]+|\d+)")
_LDS = re.compile(r"\s*ds_(read|write|load|store)")
_OFFSET = re.compile(r"\boffset:(\d+)")
_LITERAL = re.compile(r"(?<=[ ,])(0x[0-9a-f]+|\d+)\b")


@dataclass(frozen=True)
class Mutant:
    """A changed text: what was changed, and in which line (from 1)."""

    change: str
    line: int
    text: str


def wait_mutants(text: str) -> Iterator[Mutant]:
    """Each counter of each wait, dropped and raised by one."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        split = _SPLIT.match(line)
        if split:
            count = int(split[2], 0)
            yield Mutant(f"drop {line.strip()}", at + 1, _replace(lines, at, ""))
            yield Mutant(f"{line.strip()} -> {count + 1}", at + 1, _replace(lines, at, f"\t{split[1]} {count + 1:#x}"))
        if not line.strip().startswith("s_waitcnt"):
            continue
        counters = {match[1]: int(match[2]) for match in _COUNTER.finditer(line)}
        for name, count in counters.items():
            for value in (None, count + 1):
                if value is not None and value >= _LIMITS[name]:
                    continue
                left = {key: number for key, number in counters.items() if key != name}
                if value is not None:
                    left[name] = value
                spelled = " ".join(f"{key}({number})" for key, number in left.items())
                what = f"drop {name}({count})" if value is None else f"{name}({count}) -> ({value})"
                yield Mutant(what, at + 1, _replace(lines, at, f"\ts_waitcnt {spelled}" if left else ""))


def _replace(lines: list[str], at: int, line: str) -> str:
    return "\n".join([*lines[:at], line, *lines[at + 1 :]])


def barrier_mutants(text: str) -> Iterator[Mutant]:
    """Each barrier dropped; of a split one the wait alone, and both halves."""
    lines = text.split("\n")
    signal = None
    for at, line in enumerate(lines):
        words = line.split()
        if words[:1] == ["s_barrier"]:
            yield Mutant("drop s_barrier", at + 1, _replace(lines, at, ""))
        elif words[:1] == ["s_barrier_signal"]:
            signal = at
        elif words[:1] == ["s_barrier_wait"]:
            yield Mutant("drop s_barrier_wait", at + 1, _replace(lines, at, ""))
            if signal is not None:
                without = [*lines[:signal], "", *lines[signal + 1 :]]
                yield Mutant("drop both halves of a barrier", at + 1, _replace(without, at, ""))


_ARRIVAL = re.compile(r"\s*ds_(inc|add|sub|dec)_u\d+ |\s*ds_atomic_barrier_arrive")
_OTHER = {"scc0": "scc1", "scc1": "scc0", "vccz": "vccnz", "vccnz": "vccz", "execz": "execnz", "execnz": "execz"}
_TURN = re.compile(r"\s*s_cbranch_(\w+)")


def signal_mutants(text: str) -> Iterator[Mutant]:
    """Each arrival on a barrier in LDS dropped; the jump behind each poll turned round."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        if _ARRIVAL.match(line):
            yield Mutant(f"drop {line.split(';')[0].strip()}", at + 1, _replace(lines, at, ""))
    program = parse(text)
    for poll in polls(program, program_effects(program)).values():
        first = program.instructions[poll.read].line
        jump = next((at for at in range(first, len(lines)) if _TURN.match(lines[at])), None)
        if jump is not None:
            condition = _TURN.match(lines[jump])[1]  # type: ignore[index]
            turned = lines[jump].replace(condition, _OTHER[condition], 1)
            yield Mutant(f"{lines[jump].strip()} -> {_OTHER[condition]}", jump + 1, _replace(lines, jump, turned))


def offset_mutants(text: str, slot: int) -> Iterator[Mutant]:
    """Each LDS offset and each constant that an LDS address is made of, moved by `slot` bytes up and down."""
    lines = text.split("\n")
    makers = _address_makers(lines)
    for at, line in enumerate(lines):
        code = line.split(";")[0]
        if _LDS.match(code):
            match = _OFFSET.search(code)
            values = [(match.span(1), int(match[1]))] if match else []
        elif at in makers:
            match = None
            values = [(m.span(1), int(m[1], 0)) for m in _LITERAL.finditer(code) if _is_offset(int(m[1], 0), code)]
        else:
            continue
        for (low, high), value in values:
            for moved in (value + slot, value - slot):
                if moved >= 0 and (match is None or moved < 1 << 16):
                    yield Mutant(
                        f"{value} -> {moved}", at + 1, _replace(lines, at, code[:low] + str(moved) + code[high:])
                    )


def _is_offset(value: int, code: str) -> bool:
    """True for what may be the place of a slot: no mask, no byte selector, no negative step."""
    limit = 1 << 15 if re.match(r"\s*s_\w+k_", code) else _LDS_BYTES
    return 1024 <= value < limit and value % 16 == 0


def _address_makers(lines: list[str]) -> set[int]:
    """Lines whose result may reach m0 or the address of an LDS access, over any number of steps."""
    code = [line.split(";")[0].replace(",", " ").split() for line in lines]
    wanted: set[str] = {"m0"}
    for words in code:
        if words and words[0].startswith(("ds_read", "ds_load")):
            wanted.add(words[2])
        elif words and words[0].startswith(("ds_write", "ds_store", "global_load_async_to_lds")):
            wanted.add(words[1])
        elif words and words[0] == "tensor_load_to_lds":
            wanted.add(f"s{int(words[1][2:].split(':')[0]) + 1}")
    found: set[int] = set()
    arithmetic = re.compile(r"(s|v)_(add|sub|or|xor|mov|cselect|lshl|mul|addk|and|movk|cndmask|mad|bitop3)\w*$")
    while True:
        before = len(found), len(wanted)
        for at, words in enumerate(code):
            if len(words) > 2 and arithmetic.match(words[0]) and words[1] in wanted:
                found.add(at)
                wanted |= {word for word in words[2:] if re.match(r"[sv]\d+$", word)}
        if before == (len(found), len(wanted)):
            return found


def mutants(text: str, slots: Sequence[int]) -> Iterator[Mutant]:
    """All of them; `slots` are the sizes in bytes of a slot of each ring."""
    yield from wait_mutants(text)
    yield from barrier_mutants(text)
    yield from signal_mutants(text)
    for slot in slots:
        yield from offset_mutants(text, slot)


def _copy(args: list[Any]) -> list[Any]:
    return [value.copy() if isinstance(value, np.ndarray) else value for value in args]


def outcome(text: str, run: Any, seed: int | None, limit: int) -> Any:
    """What a text computes: the bytes of its buffers, or the words of its error."""
    args = _copy(run.args)
    try:
        launch(text, args, run.grid, seed=seed, lockstep=1, lds_bytes=run.lds_bytes, max_instructions=limit)
    except AmdwarpError as error:
        return str(error)
    return [value.tobytes() for value in args if isinstance(value, np.ndarray)]


@dataclass
class Verdict:
    """A mutant, whether it can change an outcome, and what the sanitizer said."""

    mutant: Mutant
    changes: bool
    report: Report | None

    @property
    def noticed(self) -> bool:
        """True if the sanitizer reported anything."""
        return self.report is None or not self.report.ok


def judge(run: Any, slots: Sequence[int], seeds: int = SEEDS, only: slice = slice(None)) -> list[Verdict]:
    """Try every mutant of a kernel (or those of `only`)."""
    expected = outcome(run.text, run, 0, 50_000_000)
    waves = parse(run.text).waves
    good = launch(run.text, _copy(run.args), run.grid, lds_bytes=run.lds_bytes)
    limit = 4 * good.instructions // (waves * good.workgroups) + 5000
    verdicts = []
    for mutant in list(mutants(run.text, slots))[only]:
        changes = any(outcome(mutant.text, run, seed, limit) != expected for seed in range(seeds))
        try:
            report = check(mutant.text, _copy(run.args), run.grid, lds_bytes=run.lds_bytes, max_instructions=limit)
        except AmdwarpError:
            report = None
        verdicts.append(Verdict(mutant, changes, report))
    return verdicts


def main() -> None:
    """Print the rate, and every mutant that changes an outcome unnoticed."""
    import sanitizer_corpus

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("kernels", nargs="*", help="arch/name; all of MUTATED by default")
    parser.add_argument("--verbose", action="store_true", help="list every mutant")
    options = parser.parse_args()
    noticed = changing = extra = 0
    for name in options.kernels or sanitizer_corpus.MUTATED:
        verdicts = judge(sanitizer_corpus.CASES[name].build(), sanitizer_corpus.MUTATED.get(name, ()))
        bad = [v for v in verdicts if v.changes]
        seen = [v for v in bad if v.noticed]
        more = sum(v.noticed and not v.changes for v in verdicts)
        print(
            f"{name}: {len(verdicts)} mutants, {len(bad)} change an outcome, {len(seen)} of them noticed; {more} others"
        )
        for v in verdicts:
            if (v.changes and not v.noticed) or options.verbose:
                print(f"    line {v.mutant.line}: {v.mutant.change}: changes={v.changes} noticed={v.noticed}")
        noticed, changing, extra = noticed + len(seen), changing + len(bad), extra + more
    print(f"noticed {noticed} of {changing} ({100 * noticed / max(changing, 1):.1f} %)")


if __name__ == "__main__":
    main()
