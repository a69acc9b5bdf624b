"""The configuration of a plain product: what tuning found, what is shipped, or a rule that needs no run."""

from __future__ import annotations

from dataclasses import replace

from amdwarp.target import Target

from .plain_config import PlainConfig
from .plain_plan import tile_count
from .plain_problem import Operand, PlainProblem

#: Tiles to choose from, largest first: (m, n, waves).
TILES: tuple[tuple[int, int, int], ...] = ((128, 128, 4), (128, 64, 4), (64, 64, 4), (32, 64, 4), (16, 64, 2))
#: The same for products with E8M0 scales, whose tiles are at least 32x32.
TILES_MX: tuple[tuple[int, int, int], ...] = ((128, 128, 4), (64, 64, 4), (32, 64, 4), (32, 32, 4))


def choose_plain(problem: PlainProblem, target: Target, compute_units: int, *, parts: bool = True) -> PlainConfig:
    """A legal configuration: the largest tile that fits the extents and fills the GPU, with parts along a long K.

    A larger tile reads fewer operand bytes a flop. It pays once there are as many tiles as compute units; until then
    smaller tiles, and then parts along K, keep more of them busy.
    """
    fitting = _legal(problem, target)

    def fills(config: PlainConfig) -> bool:
        tiles = tile_count(problem, config)
        most = _most_parts(problem, config) if parts else 1
        return tiles >= compute_units or tiles * most >= 2 * compute_units

    chosen = next(filter(fills, fitting), fitting[-1])
    return _parted(chosen, problem, target, compute_units) if parts else chosen


def _legal(problem: PlainProblem, target: Target) -> list[PlainConfig]:
    """Legal tiles that fit the extents, largest first; the smallest legal one where none fits."""
    legal = [one for one in _candidates(problem, target) if not one.constraints(target, problem)]
    if not legal:
        small = _candidates(problem, target)[-1]
        legal = [replace(small, tile_k=small.tile_k // 2, stages=1)]
    return [one for one in legal if _fits(one, problem)] or legal[-1:]


def candidates(problem: PlainProblem, target: Target, compute_units: int) -> list[PlainConfig]:
    """Legal configurations to choose from, the rule's own first."""
    own = choose_plain(problem, target, compute_units)
    bases = _legal(problem, target)
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
    tiles = TILES_MX if problem.mx else TILES
    if not (_whole(problem.a, problem.m, problem.k) and _whole(problem.b, problem.n, problem.k)):
        # element by element, each with a mask: 128x128x64 of fp16 spilled 6 scalar registers on gfx942, 64x64x128 of
        # fp8 7 on gfx950, 16x64x64 of fp16 by two waves 41 there
        tiles, tile_k = ragged_tiles(tiles), min(tile_k, 64) if not problem.mx else tile_k
    if {problem.a.format, problem.b.format} & {"e2m3", "e3m2"}:
        # widening the elements of 128x128 spilled 264 registers on gfx950, of 64x64 26 on gfx1250
        tiles = small_tiles(tiles, 32 if target.wave_size == 32 else 64)
    return [PlainConfig(m, n, tile_k, num_warps=waves) for m, n, waves in tiles]


def ragged_tiles(tiles: tuple[tuple[int, int, int], ...] = TILES) -> tuple[tuple[int, int, int], ...]:
    """The tiles of operands that are loaded element by element, and their waves."""
    return tuple((m, n, max(waves, 4)) for m, n, waves in small_tiles(tiles))


def small_tiles(tiles: tuple[tuple[int, int, int], ...], edge: int = 64) -> tuple[tuple[int, int, int], ...]:
    """Those of no more than edge x edge elements."""
    return tuple(one for one in tiles if one[0] * one[1] <= edge * edge)


def _whole(operand: Operand, lines: int, k: int) -> bool:
    """Whether an operand is loaded 16 bytes a lane: contiguous runs that start and end on multiples of 16 elements."""
    if operand.shuffle:
        return True
    run, other = (k, operand.line) if operand.k == 1 else (lines, operand.k)
    return 1 in (operand.k, operand.line) and run % 16 == 0 and other % 16 == 0 and operand.array.address % 16 == 0


def _fits(config: PlainConfig, problem: PlainProblem) -> bool:
    """A tile is at most twice as large as the matrix in either direction."""
    return config.tile_m < 2 * max(problem.m, 16) and config.tile_n < 2 * max(problem.n, 64)


def _most_parts(problem: PlainProblem, config: PlainConfig) -> int:
    """Parts along K of four steps at least; 1 where none are legal."""
    steps = -(-problem.k // config.tile_k)
    return 1 if problem.groups else max(1, min(steps // 4, 32))


def _parted(config: PlainConfig, problem: PlainProblem, target: Target, compute_units: int) -> PlainConfig:
    """The same with parts along K where tiles alone leave most of the GPU idle.

    Four workgroups a compute unit, of four steps at least: modelled for M = 1 and N = K = 4096 on gfx950, 16 parts of
    64 tiles take 16,000 clk, 4 parts 25,000, and whole tiles 80,000.
    """
    tiles = tile_count(problem, config)
    if tiles >= compute_units:
        return config
    splits = min(4 * compute_units // max(tiles, 1), _most_parts(problem, config))
    if splits < 2:
        return config
    parted = replace(config, schedule="split_k", splits=splits)
    return parted if not parted.constraints(target, problem) else config
