"""Every mnemonic of gfx942 and gfx950 is either executed or refused with a reason.

`cdna_instructions.txt` beside this file holds one line for each mnemonic that LLVM's assembler takes for the target.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from amdwarp.asm import Program, parse, parse_instruction
from amdwarp.asm.cdna import ALIASES, REFUSED, missing_on
from amdwarp.asm.reader import split_mnemonic
from amdwarp.emulator.bind import bind
from amdwarp.errors import EmulatorError

TARGETS = ("gfx942", "gfx950")
#: Vector registers that the lines may name.
VECTORS = 128


@cache
def lines() -> dict[str, tuple[str, ...]]:
    """The lines of each target."""
    found: dict[str, list[str]] = {target: [] for target in TARGETS}
    for row in Path(__file__).with_name("cdna_instructions.txt").read_text().splitlines():
        if not row.startswith("#"):
            targets, line = row.split("\t")
            for target in TARGETS if targets == "both" else (targets,):
                found[target].append(line)
    return {target: tuple(rows) for target, rows in found.items()}


def outcome(program: Program, line: str) -> str:
    """``executed``, or the reason why not."""
    base = ALIASES.get(split_mnemonic(line.split(" ")[0])[0], line.split(" ")[0])
    if base in REFUSED:
        with pytest.raises(EmulatorError) as caught:
            parse_instruction(line)
        assert REFUSED[base] in str(caught.value) and line in str(caught.value)
        return REFUSED[base]
    assert callable(bind(program, parse_instruction(line), VECTORS))
    return "executed"


@pytest.mark.parametrize("target", TARGETS)
def test_executed_or_refused_with_a_reason(
    program_text: Any, target: str, record_property: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    program = parse(program_text(["out:", "s_nop 0"], arch=target))
    counts = Counter(outcome(program, line) for line in lines()[target])
    assert sum(counts.values()) == len(lines()[target]) > 1100
    assert counts["executed"] > 1000
    with capsys.disabled():
        print(
            f"\n{target}: {counts['executed']} mnemonics executed, {sum(counts.values()) - counts['executed']} refused"
        )
    for reason, count in counts.items():
        record_property(reason, count)


def test_what_one_target_lacks() -> None:
    names = {target: {split_mnemonic(line.split(" ")[0])[0] for line in rows} for target, rows in lines().items()}
    names = {target: {ALIASES.get(name, name) for name in found} for target, found in names.items()}
    for target, other in (TARGETS, TARGETS[::-1]):
        lacks = {name for name in names[other] if missing_on(name, target)}
        assert lacks - set(REFUSED) == names[other] - names[target] - set(REFUSED)
        assert not {name for name in names[target] if missing_on(name, target)}


def test_every_row_is_of_the_target_or_refused() -> None:
    """No mnemonic that LLVM does not take for the target is executed on it."""
    from amdwarp.asm.table import TABLE
    from amdwarp.asm.table_gfx1250 import ONLY

    for target, rows in lines().items():
        names = {split_mnemonic(line.split(" ")[0])[0] for line in rows}
        names = {ALIASES.get(name, name) for name in names}
        assert [name for name in TABLE if name not in names and name not in ONLY and not missing_on(name, target)] == []


def test_refused_ones_have_no_row() -> None:
    from amdwarp.asm.table import TABLE

    assert not set(REFUSED) & set(TABLE)
    assert all(len(reason.split()) > 3 for reason in REFUSED.values())
