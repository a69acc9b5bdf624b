"""Wait states put in where a text lacks them."""

from __future__ import annotations

import numpy as np
import pytest
from handmade import PROLOGUE, text_of
from test_waitstates import PAIRS

from amdwarp.asm import parse
from amdwarp.sanitizer import check
from amdwarp.sanitizer.effects import program_effects
from amdwarp.sanitizer.padding import padded
from amdwarp.sanitizer.waitstates import shortfalls

#: The shorter way to the label has 7 wait states, where 8 are needed.
BODY = f"""
{PROLOGUE}
{"".join(f"v_mov_b32_e32 v{at}, 0 {chr(10)}" for at in range(12, 20))}
s_nop 1
v_mfma_f32_16x16x32_f16 v[20:23], v[12:15], v[16:19], 0
s_nop 4
s_cmp_eq_u32 s2, 0
s_cbranch_scc1 .LBB0_1
s_nop 7
s_nop 7
.LBB0_1:
v_mov_b32_e32 v20, 0
global_store_dword v1, v20, s[6:7]
s_endpgm
"""


def buffers() -> list[np.ndarray]:
    return [np.zeros(4096, np.uint32) for _ in range(2)]


@pytest.mark.parametrize(("target", "first", "second", "needed"), PAIRS, ids=lambda value: str(value)[:40])
def test_every_rule_holds_behind_it(target: str, first: str, second: str, needed: int) -> None:
    text = text_of(f"{first}\n{second}", target=target)
    program = parse(padded(text))
    assert shortfalls(program, program_effects(program)) == []
    assert (padded(text) == text) == (needed == 0)


def test_the_shorter_way_counts() -> None:
    text = text_of(BODY)
    made = padded(text)
    assert made == text.replace(".LBB0_1:\n", ".LBB0_1:\n\ts_nop 0\n") and padded(made) == made
    kinds = [[finding.kind for finding in check(each, buffers(), (1,)).findings] for each in (text, made)]
    assert kinds == [["wait-states"], []]


@pytest.mark.parametrize("text", ["", "no text", text_of("v_unheard_of v0\ns_endpgm")])
def test_what_cannot_be_read_stays_as_it_is(text: str) -> None:
    assert padded(text) == text
