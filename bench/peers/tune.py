"""Autotuning of the peer by the cycle model, over the space that such kernels are usually tuned over."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdwarp.asm import parse
from amdwarp.cycles import load, record, simulate
from amdwarp.cycles.occupancy import occupancy
from amdwarp.errors import AmdwarpError, UsageError

from .kernel import Config, compile_stock, has_pingpong
from .kinds import KINDS, kind_of

#: K that all candidates are ranked at, and how many are then ranked at the K that was asked for.
RANKING_K = 1024
FINALISTS = 6


def space(target: str = "gfx950", dtype: str = "fp16", m: int = 4096) -> tuple[Config, ...]:
    """The candidates for a target.

    Tiles of Triton's AMD matmul tutorial and of ROCm's GEMM tuning scripts, with both MFMA shapes, and the depths of
    pipelining at which stock Triton's ping-pong knows a schedule. ``kpack`` is for gfx942 only. Narrower elements take
    as many bytes along K; products of few rows take the tutorials' skinny tiles.
    """
    wider = 16 // KINDS[dtype].bits
    if m <= 64:
        rows = 16 if m <= 16 else 32 if m <= 32 else 64
        found = [
            Config(rows, bn, bk * wider, warps, stages, 16)
            for bn, warps in ((32, 2), (64, 4), (128, 4), (256, 8))
            for bk, stages in ((64, 2), (128, 2), (256, 2), (64, 3), (128, 3))
        ]
        return tuple(one for one in found if one.stages == 2 or target != "gfx942")
    found = [
        Config(bm, bn, bk * wider, warps, stages, mfma)
        for bm, bn, warps in ((256, 256, 8), (256, 128, 8), (256, 128, 4), (128, 128, 8), (128, 128, 4), (128, 64, 4))
        for bk, stages in ((64, 2), (32, 2), (32, 3))
        for mfma in (16, 32)
    ]
    # Deeper pipelines of the smaller tiles; those of the larger ones do not fit into LDS.
    found += [
        Config(bm, bn, 64 * wider, warps, 3, 16) for bm, bn, warps in ((256, 128, 8), (128, 128, 4), (128, 64, 4))
    ]
    if target == "gfx942":
        found = [one for one in found if one.stages == 2]
        found += [dataclasses.replace(one, kpack=2) for one in found if one.bk == 64 * wider]
    return tuple(found)


@dataclass(frozen=True)
class Candidate:
    """A configuration of the peer, and what the model makes of it.

    Attributes:
        config: what was compiled.
        clk: modelled clk of the launch, or None where it could not be had.
        pingpong: stock Triton's ping-pong pass rewrote its loop.
        problem: why there is no clk.
    """

    config: Config
    clk: int | None
    pingpong: bool = False
    problem: str = ""


def arguments(m: int, n: int, k: int, dtype: str) -> list[Any]:
    """Arguments of the peer, on zeros: its timing does not depend on the numbers."""
    kind = kind_of(dtype)
    stored = k // 2 if dtype == "mxfp4" else k
    arrays = [np.zeros((m, stored), kind.array), np.zeros((n, stored), kind.array), np.zeros((m, n), kind.out_array)]
    if dtype == "mxfp4":
        arrays += [np.zeros((m, k // 32), np.uint8), np.zeros((n, k // 32), np.uint8)]
    return [*arrays, m, n, k, stored, stored, n]


@functools.cache
def rank(
    shape: tuple[int, int, int], dtype: str, target: str, setting: bool | None, configs: tuple[Config, ...]
) -> tuple[Candidate, ...]:
    """Every configuration with its modelled clk, the fastest first; those that could not be modelled last."""
    rows = [_candidate(config, shape, dtype, target, setting) for config in configs]
    return tuple(sorted(rows, key=lambda row: (row.clk is None, row.clk or 0)))


def tune(
    shape: tuple[int, int, int],
    dtype: str,
    target: str,
    setting: bool | None,
    configs: tuple[Config, ...] | None = None,
) -> Config:
    """The configuration that the model finds fastest for a product.

    All are ranked at a K of at most `RANKING_K`, the best `FINALISTS` of them again at the product's own.

    Args:
        shape: M, N, K.
        dtype: one of ``kinds.KINDS``.
        target: arch.
        setting: of ping-pong; where it is on, only configurations count whose loop it rewrites.
        configs: the candidates, or None for `space`.

    Raises:
        UsageError: none could be modelled; says why the first could not.
    """
    m, n, k = shape
    ranked = min(k, RANKING_K * 16 // KINDS[dtype].bits)
    found = rank((m, n, ranked), dtype, target, setting, configs or space(target, dtype, m))
    usable = [row for row in found if row.clk is not None and (row.pingpong or not setting)]
    if not usable:
        why = next((row.problem for row in found if row.clk is None), "")
        if any(row.clk is not None for row in found):
            why = "ping-pong rewrites none of those that fit"
        raise UsageError(f"no configuration of the stock kernel can be modelled for {target}: {why}")
    finalists = tuple(row.config for row in usable[:FINALISTS])
    return rank(shape, dtype, target, setting, finalists)[0].config


def _candidate(config: Config, shape: tuple[int, int, int], dtype: str, target: str, setting: bool | None) -> Candidate:
    try:
        compiled = compile_stock(config, dtype, target, setting, shape[2] % config.bk == 0)
        clk = _clk(compiled.asm["amdgcn"], int(compiled.metadata.shared), config.grid(*shape[:2]), shape, dtype)
    except AmdwarpError as error:
        return Candidate(config, None, problem=str(error))
    except Exception as error:  # the stock compiler refuses configurations with errors of many types
        return Candidate(config, None, problem=f"{type(error).__name__}: {error}".splitlines()[0])
    return Candidate(config, clk, has_pingpong(compiled))


@functools.cache
def _clk(text: str, lds_bytes: int, grid: tuple[int, ...], shape: tuple[int, int, int], dtype: str) -> int:
    """Modelled clk of a launch; cached, because ping-pong leaves most texts as they are."""
    program = parse(text)
    parameters = load(program.target)
    args = arguments(*shape, dtype)
    trace = record(program, args, grid, workgroups=[0], lds_bytes=lds_bytes, parameters=parameters)
    shares = occupancy(program, lds_bytes, trace.workgroups, parameters)
    return simulate(trace, parameters, resident=shares.resident).total_clk * shares.rounds
