"""Linear layouts: against Triton's own conversion, and the algebra on its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from amdwarp.lowering.analysis.layouts import layout, layout_of
from amdwarp.lowering.analysis.linear import LinearLayout, Tile, log2
from amdwarp.lowering.analysis.types import LayoutError, parse_encoding, parse_type
from amdwarp.lowering.ir import Block, Module, Op, Region
from hypothesis import given, settings
from hypothesis import strategies as st

CHILD = Path(__file__).parents[1] / "layout_grid.py"
# how many cases each group of the grid has at least, so that an emptied grid does not pass
LEAST = {"mfma": 6000, "wmma": 1400, "blocked": 1500, "others": 70}


@pytest.fixture(scope="module")
def grid() -> dict[str, Any]:
    done = subprocess.run([sys.executable, str(CHILD)], capture_output=True, text=True, timeout=300, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("@result ")]
    if not lines:
        pytest.fail(f"exit status {done.returncode}\n{done.stderr[-4000:]}")
    return json.loads(lines[0].removeprefix("@result "))  # type: ignore[no-any-return]


@pytest.mark.usefixtures("needs_triton")
@pytest.mark.parametrize("group", LEAST)
def test_layouts_equal_tritons(grid: dict[str, Any], group: str) -> None:
    assert grid[group]["misses"] == []
    assert grid[group]["checked"] >= LEAST[group]


def module(**aliases: str) -> Module:
    before = {f"#{name}": text for name, text in aliases.items()}
    return Module(Op("builtin.module", regions=[Region([Block()])]), before)


BLOCKED = "#ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [8, 8], warpsPerCTA = [4, 1], order = [1, 0]}>"


def test_aliases_are_followed_and_kept_apart() -> None:
    one, two = module(a=BLOCKED), module(a=BLOCKED.replace("[4, 1]", "[1, 4]"))
    assert layout_of(parse_type("tensor<64x64xf16, #a>", one)).bases["warp"] == ((8, 0), (16, 0))
    assert layout_of(parse_type("tensor<64x64xf16, #a>", two)).bases["warp"] == ((0, 0), (0, 0))
    assert parse_type("tensor<64x64x!tt.ptr<f16>, #a>", one).element == "!tt.ptr<f16>"


def test_a_memdesc_keeps_its_allocation() -> None:
    text = "!ttg.memdesc<32x64xf16, #ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>, "
    part = parse_type(text + "#ttg.shared_memory, mutable, 128x64>", module())
    assert (part.shape, part.alloc_shape, part.is_memdesc, part.bits) == ((32, 64), (128, 64), True, 16)


def test_padding_is_kept_beside_the_offsets() -> None:
    one = parse_encoding("#ttg.padded_shared<[512:+16, 1024:+8] {order = [0, 1], shape = [64, 128]}>")
    assert one.padding == ((512, 16), (1024, 8))
    assert layout(one, (64, 128)).column("offset", "dim0")[:6] == [1, 2, 4, 8, 16, 32]
    bases = "#ttg.padded_shared<[512:+16] {offset = [[0, 1], [1, 0], [0, 2]], block = []}>"
    assert layout(parse_encoding(bases), (2, 4)).bases["offset"] == ((0, 1), (1, 0), (0, 2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tensor<8x8xf16>", "a type without layout has no place in registers or LDS"),
        ("tensor<8x8xf16, #ttg.nvidia_mma<{}>>", "layout #ttg.nvidia_mma is not known"),
        ("f16", "f16 is no tensor and no memory descriptor"),
    ],
)
def test_unknown_types_are_errors(text: str, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        layout_of(parse_type(text, module()))


bits = st.integers(0, 5)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["register", "lane", "warp"]), bits, st.integers(0, 1)), max_size=6))
def test_a_tile_covers_each_element_once(steps: list[tuple[str, int, int]]) -> None:
    tile = Tile(2, ("register", "lane", "warp", "block"))
    for name, bit, dim in steps:
        tile.extend(name, dim, 1 << bit % 3)
    shape = tuple(tile.sizes)
    one = tile.fit(shape, [], [1, 0])
    total = shape[0] * shape[1]
    count = one.in_size("register") * one.in_size("lane") * one.in_size("warp")
    assert count == total
    vectors = [one.flat(basis) for bases in one.bases.values() for basis in bases]
    reached = {0}
    for vector in vectors:
        reached |= {value ^ vector for value in reached}
    assert len(reached) == total


@settings(deadline=None)
@given(st.permutations(range(6)))
def test_over_finds_the_offset_of_every_element(order: list[int]) -> None:
    outs = {"dim0": 8, "dim1": 8}
    units = [(1 << i, 0) for i in range(3)] + [(0, 1 << i) for i in range(3)]
    memory = LinearLayout({"offset": tuple(units[i] for i in order)}, outs)
    tensor = LinearLayout({"register": tuple(units[3:]), "lane": tuple(units[:3])}, outs)
    where = tensor.over(memory)
    for register in range(8):
        for lane in range(8):
            (offset,) = where.apply(register=register, lane=lane)
            assert memory.apply(offset=offset) == tensor.apply(register=register, lane=lane)


def test_over_refuses_an_element_that_is_not_there() -> None:
    outs = {"dim0": 4}
    with pytest.raises(ValueError, match="not in the other"):
        LinearLayout({"register": ((1,), (2,))}, outs).over(LinearLayout({"offset": ((1,),)}, outs))


def test_log2_takes_powers_of_two_only() -> None:
    assert [log2(n) for n in (1, 2, 64)] == [0, 1, 6]
    with pytest.raises(ValueError, match="12 is not a power of two"):
        log2(12)
