"""Layouts of a role that has fewer waves than the kernel is compiled for.

A layout says which wave holds which part of a tensor. For half as many waves, each holds what two had: along the
dimension with the most waves, or the elements of the last basis. Lanes hold what they held, so that copies straight to
LDS, whose lanes write in order, stay legal. From four waves to two::

    #ttg.blocked<{…, warpsPerCTA = [4, 1], …}>                    warpsPerCTA = [2, 1]
    #ttg.linear<{register = […], warp = [[8, 0], [16, 0]], …}>    register = […, [16, 0]], warp = [[8, 0]]
    #ttg.amd_wmma<{ctaLayout = {warp = [[0, 1], [1, 0]]}, …}>     ctaLayout = {register = [[1, 0]], warp = [[0, 1]]}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from .ir import Block, Module

ALIAS = re.compile(r"#\w+\b(?![.<])")
WAVES = re.compile(r"(?<=warpsPerCTA = \[)[\d, ]+(?=\])")
_LIST = r"\[((?:\[[\d, ]*\](?:, )?)*)\]"
BASES = re.compile(rf"(?:register = {_LIST}, (lane = {_LIST}, )?)?warp = {_LIST}")
BASIS = re.compile(r"\[[\d, ]*\]")


def relay_out(block: Block, module: Module, have: int, want: int) -> None:
    """Give the tensors of a block, and of everything inside, layouts for fewer waves.

    Args:
        block: new code of a role.
        module: whose layout aliases its types name.
        have, want: waves of the layouts, and of the role; powers of two.
    """
    aliases = {name: text for name, text in module.before.items() if name.startswith("#")}
    for op in block.walk():
        values = [*op.results, *(arg for region in op.regions for inner in region.blocks for arg in inner.args)]
        for value in values:
            value.type = for_waves(value.type, aliases, have, want)
        for name, text in op.properties.items():
            if "tensor<" in text:
                op.properties[name] = for_waves(text, aliases, have, want)


def for_waves(text: str, aliases: Mapping[str, str], have: int, want: int) -> str:
    """A type, or an attribute that names one, with the layouts of its tensors for fewer waves."""
    if "tensor<" not in text:
        return text
    resolved = _resolved(text, tuple(sorted(aliases.items())))
    steps = (have // want).bit_length() - 1
    waves = WAVES.sub(lambda found: _fewer(found.group(), steps), resolved)
    return BASES.sub(lambda found: _moved(found, steps), waves)


@lru_cache(maxsize=4096)
def _resolved(text: str, aliases: tuple[tuple[str, str], ...]) -> str:
    table = dict(aliases)
    while found := next((one for one in ALIAS.finditer(text) if one.group() in table), None):
        text = text[: found.start()] + table[found.group()] + text[found.end() :]
    return text


def _fewer(extents: str, steps: int) -> str:
    waves = [int(one) for one in extents.split(",")]
    for _ in range(steps):
        waves[waves.index(max(waves))] //= 2
    return ", ".join(map(str, waves))


def _moved(found: re.Match[str], steps: int) -> str:
    """The last bases of waves as the last of registers, but for those along which nothing changes."""
    register, lanes, _, warp = found.groups()
    waves = BASIS.findall(warp)
    kept, gone = waves[: len(waves) - steps], waves[len(waves) - steps :]
    moved = [one for one in gone if any(int(n) for n in re.findall(r"\d+", one))]
    registers = [*BASIS.findall(register or ""), *moved]
    text = f"register = [{', '.join(registers)}], " if register is not None or registers else ""
    return f"{text}{lanes or ''}warp = [{', '.join(kept)}]"
