"""Location texts and the top-level splitter."""

from __future__ import annotations

import pytest
from amdwarp.lowering.location import resolve_location, split_top_level

ALIASES = {
    "#loc": 'loc("k.py":7:1)',
    "#loc1": 'loc("acc"(#loc))',
    "#loc2": 'loc("/x/triton/language/standard.py":43:9)',
    "#loc3": "loc(callsite(#loc2 at #loc1))",
    "#loc4": "loc(#loc5)",
    "#loc5": "loc(#loc4)",
    "#loc6": "loc(unknown)",
    "#loc7": "loc(callsite(#loc6 at #loc))",
}


@pytest.mark.parametrize(
    ("text", "where", "name"),
    [
        ("#loc", "k.py:7", None),
        ("#loc1", "k.py:7", "acc"),
        ("#loc3", "k.py:7", None),
        ("#loc7", "k.py:7", None),
        ("loc(#loc1)", "k.py:7", "acc"),
        ('"a b.py":3:14', "a b.py:3", None),
        ('"a.py":3:14 to 4:2', "a.py:3", None),
        ('"x"("y"("a.py":1:2))', "a.py:1", "y"),
        ('fused<{a = "]"}>[#loc6, "q.py":2:2]', "q.py:2", None),
        ('fused["n at m"("q.py":2:2), #loc]', "q.py:2", "n at m"),
        ('callsite("f at g"("f.py":1:1) at callsite("g.py":2:2 at "h.py":3:3))', "f.py:1", "f at g"),
        ('"quo\\22te.py":1:1', 'quo"te.py:1', None),
    ],
)
def test_resolves(text: str, where: str, name: str | None) -> None:
    found = resolve_location(text, ALIASES)
    assert found is not None
    assert (found.where, found.name) == (where, name)


@pytest.mark.parametrize("text", [None, "", "unknown", "#loc4", "#nothing", '"only a name"'])
def test_nothing_to_resolve(text: str | None) -> None:
    assert resolve_location(text, ALIASES) is None


def test_callers_are_innermost_first() -> None:
    found = resolve_location('callsite("f.py":1:1 at callsite("g.py":2:2 at "h.py":3:3))', {})
    assert found is not None
    assert [caller.file for caller in found.callers] == ["g.py", "h.py"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("a", ["a"]),
        ("i32, tensor<2xf32, #a>, (i32, i32) -> ()", ["i32", "tensor<2xf32, #a>", "(i32, i32) -> ()"]),
        ('"a, b", [1, 2], {x = 1, y = "}"}', ['"a, b"', "[1, 2]", '{x = 1, y = "}"}']),
        ("affine_set<(d0) : (d0 >= 0)>, b", ["affine_set<(d0) : (d0 >= 0)>", "b"]),
    ],
)
def test_split(text: str, parts: list[str]) -> None:
    assert split_top_level(text) == parts
