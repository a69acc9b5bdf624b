"""The configuration of a plain product: what tuning found, what is shipped, or a rule that needs no run."""

from __future__ import annotations

from dataclasses import replace

from amdwarp.target import Target

from .plain_config import PlainConfig
from .plain_plan import PlainProblem, tile_count

#: Tiles to choose from, largest first: (m, n, waves).
_TILES = ((128, 128, 4), (128, 64, 4), (64, 64, 4), (32, 64, 4), (16, 64, 2))


def choose_plain(problem: PlainProblem, target: Target, compute_units: int, *, parts: bool = True) -> PlainConfig:
    """A legal configuration: the largest tile that fits the extents and fills the GPU, with parts along a long K.

    A larger tile reads fewer operand bytes a flop. It pays once there are as many tiles as compute units; until then
    smaller tiles, and then parts along K, keep more of them busy.
    """
    legal = [config for config in _candidates(problem, target) if not config.constraints(target, problem)]
    fitting = [one for one in legal if _fits(one, problem)] or legal[-1:]
    chosen = next((one for one in fitting if tile_count(problem, one) >= compute_units), fitting[-1])
    return _parted(chosen, problem, target, compute_units) if parts else chosen


def candidates(problem: PlainProblem, target: Target, compute_units: int) -> list[PlainConfig]:
    """Legal configurations to choose from, the rule's own first."""
    own = choose_plain(problem, target, compute_units)
    bases = [one for one in _candidates(problem, target) if _fits(one, problem)]
    steps = -(-problem.k // own.tile_k)
    found = [own, *bases]
    for one in bases:
        tiles = tile_count(problem, one)
        found += [replace(one, schedule="split_k", splits=parts) for parts in (2, 4, 8, 16) if parts * 4 <= steps]
        if tiles > compute_units:
            found += [replace(one, schedule="persistent")]
        if tiles % compute_units:
            found += [replace(one, schedule="stream_k")]
    legal = [one for one in found if not one.constraints(target, problem)]
    return list(dict.fromkeys(legal))


def _candidates(problem: PlainProblem, target: Target) -> list[PlainConfig]:
    narrow = max(problem.a.element_bytes, problem.b.element_bytes)
    tile_k = 128 if problem.mx or narrow <= 1 else 64 if narrow <= 2 else 32
    found = [PlainConfig(m, n, tile_k, num_warps=waves) for m, n, waves in _TILES]
    if problem.mx:
        found = [PlainConfig(m, n, tile_k) for m, n in ((128, 128), (64, 64), (32, 64), (32, 32))]
    # wide elements and unaligned rows take registers for their offsets: the small ones are always there
    return found if problem.mx else [*found, replace(found[-1], tile_k=tile_k // 2, stages=1)]


def _fits(config: PlainConfig, problem: PlainProblem) -> bool:
    """A tile is at most twice as large as the matrix in either direction."""
    return config.tile_m < 2 * max(problem.m, 16) and config.tile_n < 2 * max(problem.n, 64)


def _parted(config: PlainConfig, problem: PlainProblem, target: Target, compute_units: int) -> PlainConfig:
    """The same with parts along K where tiles alone leave most of the GPU idle.

    Four workgroups a compute unit, of four steps at least: modelled for M = 1 and N = K = 4096 on gfx950, 16 parts of
    64 tiles take 16,000 clk, 4 parts 25,000, and whole tiles 80,000.
    """
    tiles, steps = tile_count(problem, config), -(-problem.k // config.tile_k)
    if tiles >= compute_units:
        return config
    splits = min(4 * compute_units // max(tiles, 1), steps // 4, 32)
    if problem.groups or splits < 2:
        return config
    parted = replace(config, schedule="split_k", splits=splits)
    return parted if not parted.constraints(target, problem) else config
