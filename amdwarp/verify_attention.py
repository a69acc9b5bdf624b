"""``amdwarp verify attention``: the same for the attention forward, against its float64 reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from .cycles.zoo import HEADS, KEY_HEADS
from .errors import UsageError
from .resources import Resources
from .runtime import Launch
from .target import get_target
from .verify import (
    DTYPES,
    POISON,
    SAMPLED_WORKGROUPS,
    Array,
    Case,
    Region,
    Verdict,
    check_memory,
    check_sample,
    relative_error,
    verified,
    written_tiles,
)

# A prompt of 4096 tokens, in the heads of a 70-billion-parameter Llama 3: rows, keys, elements of a head.
DEFAULT_SHAPES = ((4096, 4096, 128),)
RATIO = HEADS // KEY_HEADS


def verify_attention(
    shape: tuple[int, int, int],
    *,
    dtype: str = "fp16",
    arch: str = "gfx950",
    schedule: str | None = None,
    workgroups: int | None = SAMPLED_WORKGROUPS,
    causal: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Case:
    """Verify ``amdwarp.kernels.attention.attention`` of one sequence, 64 query heads over 8 key heads.

    Args:
        shape: rows and elements of a head, at least 1 (and what heads can have), and keys, 0 or more.
        dtype: ``"fp16"`` or ``"bf16"``.
        arch: the GPU to compile for and to emulate.
        schedule: name of a schedule, or None for the kernel's own choice.
        workgroups: how many to run, spread over the grid; None for all.
        causal: mask keys behind a row.
        progress: called with (workgroups done, workgroups to do).

    Raises:
        UsageError: an argument that is not understood, or that the kernel or this machine's memory cannot take.
        UnsupportedTritonError: no Triton, or one of a version this package was not tried with.
    """
    from .kernels.attention import attention
    from .kernels.attention.configs import schedule_name

    check_sample(dtype, workgroups)
    get_target(arch)
    q, k, v = _inputs(shape, dtype)
    out = np.full(q.shape, POISON, np.uint16).view(DTYPES[dtype])

    def judge(launch: Launch, used: Resources, done: int) -> Verdict:
        error, problem = compare(q, k, v, out, causal, tiles(launch, q.shape), done)
        # scalars that `tasks` keeps in lanes of vector registers never leave the registers
        if not problem and used.vgpr_spills:
            problem = f"{used.vgpr_spills} vector registers spilled"
        return schedule_name(launch.constexprs.get("S")), error, problem

    asked = Case("attention_causal" if causal else "attention", shape, dtype, arch, schedule or "auto")
    return verified(
        asked, lambda: attention(q, k, v, causal=causal, out=out, schedule=schedule), judge, workgroups, progress
    )


def _inputs(shape: tuple[int, ...], dtype: str) -> tuple[Array, Array, Array]:
    """Normal random q (1, heads, rows, dim), k and v (1, key heads, keys, dim), the same on every machine."""
    if len(shape) != 3 or shape[0] < 1 or shape[1] < 0 or shape[2] < 1:
        raise UsageError(
            f"shape {','.join(map(str, shape))} is no attention",
            remedy="give rows,keys,head dim, of which keys may be 0: --shape 256,256,64",
        )
    rows, keys, dim = shape
    of_q, of_k = HEADS * rows * dim, KEY_HEADS * keys * dim
    # q and out, k and v, of two bytes; random numbers of four before they are rounded
    check_memory((rows, keys, dim), 4 * of_q + 4 * of_k + 4 * max(of_q, of_k))
    rng = np.random.default_rng(0)
    heads = ((HEADS, rows), (KEY_HEADS, keys), (KEY_HEADS, keys))
    q, k, v = (rng.standard_normal((1, *one, dim), np.float32).astype(DTYPES[dtype]) for one in heads)
    return q, k, v


def tiles(launch: Launch, shape: tuple[int, ...]) -> Iterator[Region]:
    """What each workgroup of a launch writes of an output (1, heads, rows, dim): query heads and rows."""
    made: Any = launch.constexprs.get("S") or launch.constexprs["F"]
    fold = getattr(made, "fold", 1)  # few rows: those of all query heads of a key head are one tile
    step = math.ceil(made.block_m / fold)
    for head in range(0, shape[1], fold):
        for row in range(0, shape[2], step):
            yield slice(head, head + fold), slice(row, row + step)


def compare(
    q: Array, k: Array, v: Array, out: Array, causal: bool, regions: Iterable[Region], workgroups: int
) -> tuple[float | None, str]:
    """Check what ``workgroups`` workgroups wrote into a poisoned ``out``.

    Returns:
        the relative error (Frobenius norm) over the written tiles, and what is wrong, or "".
    """
    from .kernels.attention import reference
    from .kernels.attention.options import AttentionOptions

    options = AttentionOptions(causal=causal)
    found, problem = written_tiles(out[0], regions, ("head", "row"), workgroups)
    if problem:
        return None, problem
    square = norm = worst = 0.0
    for heads, rows in found:
        part = q[:, heads, rows]
        # of a causal tile the keys that its last row sees, with which rows and keys end together again
        seen = max(0, min(rows.stop, q.shape[2]) + k.shape[2] - q.shape[2]) if causal else k.shape[2]
        of_key = slice(heads.start // RATIO, heads.start // RATIO + 1)
        keys, values = k[:, of_key, :seen], v[:, of_key, :seen]
        expected, _ = reference.attention(part, keys, values, options)
        bound, _ = reference.tolerance(part, keys, values, options, out_dtype=str(out.dtype))
        difference = np.abs(out[:, heads, rows].astype(np.float64) - expected)
        worst = max(worst, float(np.nan_to_num(difference / bound, nan=np.inf).max()))
        square += float(np.sum(difference**2))
        norm += float(np.sum(expected**2))
    return relative_error(square, norm), "" if worst <= 1 else f"an element is {worst:.3g} times its bound away"
