"""What the forms of a wave pipeline become in the produced program, also beside stock Triton's stages."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest
import triton
from stage_forms import form, forms, loop_counts, persistent, store_ring, two_loops
from stage_kernels import SIGNATURE, TILES, ops, ring_of
from stock_stages import ours, stock
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon._runtime import GluonASTSource

import amdwarp

pytestmark = pytest.mark.usefixtures("needs_triton")


def conditional_barriers(amdgcn: str) -> int:
    """Barriers that a wave skips by a branch over it."""
    pattern = r"s_cbranch_execz (\.LBB\d+_\d+)\n(?:(?!\.LBB)[^\n]*\n)*?\s+s_barrier\n(?:(?!\.LBB)[^\n]*\n)*?\1:"
    return len(re.findall(pattern, amdgcn))


# kernel -> barriers, priorities and MFMAs of one iteration
LOOPS: list[tuple[str, Any, tuple[int, int, int]]] = [
    ("two stages", lambda: ring_of(), (2, 2, 4)),
    ("no priorities", lambda: ring_of(PRIORITY=False), (2, 0, 4)),
    ("gap 2", lambda: ring_of(R=4, D=2, GAP=2, WAIT0=0, WAIT=0), (2, 2, 4)),
    ("wait at the end of a stage", lambda: ring_of(WHERE="load_end"), (2, 2, 4)),
    ("three stages", lambda: form(store_ring), (3, 3, 4)),
    ("stages in a helper", lambda: form(forms, FORM="helper"), (2, 2, 4)),
    ("stages in a branch", lambda: form(forms, FORM="if"), (2, 0, 4)),
    ("the author's barriers", lambda: form(forms, FORM="barrier"), (2, 0, 4)),
    ("unrolled by two", lambda: form(forms, FORM="unrolled"), (4, 4, 8)),
    ("the first of two", lambda: form(two_loops), (2, 2, 4)),
    ("no priority in the first of two", lambda: form(two_loops, PRIORITY1=None), (2, 0, 4)),
]


@pytest.mark.parametrize(("name", "make", "counts"), LOOPS, ids=[case[0] for case in LOOPS])
def test_a_loop_has_one_barrier_an_edge_and_one_priority_a_stage(name: str, make: Any, counts: tuple[int, ...]) -> None:
    found = loop_counts(make().asm["amdgcn"])
    unrolled = found[2] // counts[2]  # LLVM may unroll the loop
    assert found == tuple(unrolled * count for count in counts)


@pytest.mark.parametrize("gap", [1, 2])
def test_the_groups_part_before_and_meet_after(gap: int) -> None:
    kernel = ring_of() if gap == 1 else ring_of(R=4, D=2, GAP=2, WAIT0=0, WAIT=0)
    assert ops(kernel.asm["amdwarp"], "amdg.cond_barrier") == 2 * gap
    assert conditional_barriers(kernel.asm["amdgcn"]) >= 2


def test_the_priority_is_reset_behind_the_loop() -> None:
    text = ring_of().asm["amdwarp"]
    tail = text.rpartition("scf.for")[0]
    assert re.findall(r"rocdl\.s\.setprio (\d)", tail) == ["1", "0", "1", "0"]
    assert "setprio" not in ring_of(PRIORITY=False).asm["amdgcn"]


def test_straight_code() -> None:
    text = form(forms, FORM="flat").asm["amdwarp"]
    assert ops(text, "amdg.cond_barrier") == 2
    assert ops(text, "rocdl.s.barrier", "ttg.barrier") == 1 + 7, "eight stages have seven edges"
    assert re.findall(r"rocdl\.s\.setprio (\d)", text) == ["1", *("0", "1") * 3, "0", "0"]


def test_a_loop_in_a_persistent_loop() -> None:
    text = form(persistent).asm["amdwarp"]
    outer, _, inner = text.partition("scf.for")[2].partition("scf.for")
    assert outer.count("amdg.cond_barrier") == 1, "the groups part inside the outer loop"
    assert inner.count("amdg.cond_barrier") == 1


@pytest.mark.parametrize(
    ("changes", "conditional"),
    [
        ({}, 2),
        ({"GAP1": 2, "GAP2": 2}, 4),
        ({"GAP1": 2}, 6),
        ({"GAP2": 2}, 6),
        ({"AHEAD": True}, 4),
        ({"BETWEEN": "wait"}, 4),
        ({"BETWEEN": "store"}, 4),
    ],
    ids=str,
)
def test_back_to_back_loops_are_joined_where_that_is_safe(changes: dict[str, Any], conditional: int) -> None:
    assert ops(form(two_loops, **changes).asm["amdwarp"], "amdg.cond_barrier") == conditional


# ---- the same kernel with stock Triton's stages


@functools.cache
def with_stock_stages(**constants: Any) -> Any:
    types = {**SIGNATURE, **dict.fromkeys([*TILES, *constants], "constexpr")}
    names = stock.arg_names
    attrs = {(names.index(p),): [["tt.divisibility", 16], ["tt.pointer_range", 32]] for p in ("a", "b", "c")}
    attrs |= {(names.index(p),): [["tt.divisibility", 16]] for p in ("M", "N", "K")}
    source = GluonASTSource(stock, types, {**TILES, **constants}, attrs)
    return triton.compile(source, target=GPUTarget("hip", "gfx950", 64), options={"num_warps": 8})


@functools.cache
def with_our_stages(**constants: Any) -> Any:
    hints = dict.fromkeys(("M", "N", "K"), "D")
    return amdwarp.compile(ours, SIGNATURE, {**TILES, **constants}, "gfx950", attrs=hints, num_warps=8)


@pytest.mark.parametrize("shape", ["two", "three", "late", "plain"])
def test_as_many_barriers_and_priorities_as_stock_stages(shape: str) -> None:
    mine = loop_counts(with_our_stages(R=4, SHAPE=shape).asm["amdgcn"])
    theirs = loop_counts(with_stock_stages(R=4, SHAPE=shape).asm["amdgcn"])
    assert mine == theirs
