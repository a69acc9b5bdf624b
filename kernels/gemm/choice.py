"""The configuration of a plain product: what tuning found, what is shipped, or a rule that needs no run."""

from __future__ import annotations

from dataclasses import replace

from amdwarp.target import Target

from .plain_config import PlainConfig
from .plain_plan import tile_count
from .plain_problem import Operand, PlainProblem

#: Tiles to choose from, largest first: (m, n, waves).
TILES: tuple[tuple[int, int, int], ...] = ((128, 128, 4), (128, 64, 4), (64, 64, 4), (32, 64, 4), (16, 64, 2))
#: The same for products with E8M0 scales.
TILES_MX: tuple[tuple[int, int, int], ...] = ((128, 128, 4), (64, 64, 4), (32, 64, 4), (16, 64, 4))
#: And of six-bit elements, whose 16x64x128 spills 5 registers on gfx950.
TILES_MX6: tuple[tuple[int, int, int], ...] = ((64, 64, 8), (32, 64, 4), (32, 32, 4))


def choose_plain(problem: PlainProblem, target: Target, compute_units: int, *, parts: bool = True) -> PlainConfig:
    """A legal configuration: the largest tile that fits the extents and fills the GPU, with parts along a long K.

    A larger tile reads fewer operand bytes a flop. It pays once there are as many tiles as compute units; until then
    smaller tiles, and then parts along K, keep more of them busy.
    """
    fitting = legal_tiles(problem, target)

    def fills(config: PlainConfig) -> bool:
        tiles = tile_count(problem, config)
        most = _most_parts(problem, config) if parts else 1
        return tiles >= compute_units or tiles * most >= 2 * compute_units

    chosen = next(filter(fills, fitting), fitting[-1])
    return _parted(chosen, problem, target, compute_units) if parts else chosen


def legal_tiles(problem: PlainProblem, target: Target) -> list[PlainConfig]:
    """Legal tiles that fit the extents, largest first; the smallest legal one where none fits."""
    legal = [one for one in _candidates(problem, target) if not one.constraints(target, problem)]
    if not legal:
        small = _candidates(problem, target)[-1]
        legal = [replace(small, tile_k=small.tile_k // 2, stages=1)]
    return [one for one in legal if _fits(one, problem)] or legal[-1:]


def candidates(problem: PlainProblem, target: Target, compute_units: int) -> list[PlainConfig]:
    """Legal configurations to choose from, the rule's own first."""
    own = choose_plain(problem, target, compute_units)
    bases = legal_tiles(problem, target)
    steps = -(-problem.k // own.tile_k)
    found = [own, *bases]
    for one in bases:
        tiles = tile_count(problem, one)
        found += [replace(one, schedule="split_k", splits=parts) for parts in (2, 4, 8, 16) if parts * 4 <= steps]
        # masks of ragged matrices and the arguments of every further tile together: 8 to 128 scalars spilled
        streams = whole(problem) and problem.n % 16 == 0
        if tiles > compute_units and streams:
            found += [replace(one, schedule="persistent")]
        if tiles % compute_units and streams:
            found += [replace(one, schedule="stream_k")]
    legal = [one for one in found if not one.constraints(target, problem)]
    return list(dict.fromkeys(legal))


def _candidates(problem: PlainProblem, target: Target) -> list[PlainConfig]:
    if problem.mx:
        return _candidates_mx(problem, target)
    narrow = max(problem.a.element_bytes, problem.b.element_bytes)
    tile_k = 128 if narrow <= 1 else 64 if narrow <= 2 else 32
    if whole(problem):
        tiles = TILES if problem.n % 16 == 0 else ragged_columns()[problem.blockwise :]
        # modelled on gfx942 for 4096x4096x8192 of fp16: two workgroups a compute unit take 543,260 clk with 16-row MFMA
        # and 550,656 with the compiler's 32; of int8 279,630 and 288,334
        rows = {(128, 128): 16} if target.arch == "gfx942" else {}
        return [PlainConfig(m, n, tile_k, num_warps=waves, mfma=rows.get((m, n), 0)) for m, n, waves in tiles]
    # element by element, each with a mask: 128x128x64 of fp16 spilled 6 scalar registers on gfx942, 64x64x128 of
    # fp8 7 on gfx950, 16x64x64 of fp16 by two waves 41 there, a pipelined 32x64x64 with block scales 4 on gfx1250
    stages = 1 if problem.blockwise and target.arch == "gfx1250" else 2
    return [PlainConfig(m, n, min(tile_k, 64), num_warps=waves, stages=stages) for m, n, waves in ragged_tiles()]


def _candidates_mx(problem: PlainProblem, target: Target) -> list[PlainConfig]:
    if {problem.a.format, problem.b.format} & {"e2m3", "e3m2"}:
        # widening the elements of 128x128 spilled 264 registers on gfx950, of 64x64 26 on gfx1250, and by four waves
        # with a ragged K 20 on gfx950
        tiles = small_tiles(TILES_MX6, 32 if target.wave_size == 32 else 64)
        return [PlainConfig(m, n, 128, num_warps=waves) for m, n, waves in tiles]
    made = []
    tiles = TILES_MX if problem.n % 16 == 0 else ((128, 64, 8), *TILES_MX[1:])
    for m, n, waves in tiles if whole(problem) else ragged_tiles(TILES_MX):
        # few rows are bound by the latency of a step: 16x4096x8192 of fp4 on gfx950, 8 parts, is modelled at 10,329 clk
        # in steps of 512 elements and 14,291 of 256; 32 rows at 13,917 in steps of 512 and 26,785 of 128
        longest = 512 if m <= 32 and whole(problem) else 128
        # element by element, pipelined: 5 to 8 scalars spilled on gfx1250
        stages = 1 if target.arch == "gfx1250" and not whole(problem) else 2
        made.append(PlainConfig(m, n, max(128, min(longest, _power(problem.k))), num_warps=waves, stages=stages))
    return made


def _power(extent: int) -> int:
    """The largest power of two that is not larger."""
    return 1 << max(extent.bit_length() - 1, 0)


def ragged_tiles(tiles: tuple[tuple[int, int, int], ...] = TILES) -> tuple[tuple[int, int, int], ...]:
    """The tiles of operands that are loaded element by element, and their waves."""
    return tuple((m, n, max(waves, 4)) for m, n, waves in small_tiles(tiles))


def ragged_columns() -> tuple[tuple[int, int, int], ...]:
    """The tiles of outputs whose elements are stored one by one, and their waves.

    Each element's mask takes two scalars: four waves spilled 47 to 122 of them in 128x128 on gfx950, and 1 to 3 in
    128x64 on gfx1250; eight still 3 in 128x128 with scales of blocks or E8M0 on gfx950.
    """
    return tuple((m, n, 8 if m * n >= 128 * 64 else waves) for m, n, waves in TILES)


def small_tiles(tiles: tuple[tuple[int, int, int], ...], edge: int = 64) -> tuple[tuple[int, int, int], ...]:
    """Those of no more than edge x edge elements."""
    return tuple(one for one in tiles if one[0] * one[1] <= edge * edge)


def whole(problem: PlainProblem) -> bool:
    """Whether both operands are loaded 16 bytes a lane."""
    return _whole(problem.a, problem.m, problem.k) and _whole(problem.b, problem.n, problem.k)


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
