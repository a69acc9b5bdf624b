"""Attention of the newest tokens of each sequence to a key/value cache, in pages or in one piece."""

from __future__ import annotations

from typing import Any

import numpy as np

from .configs import DECODE_ROWS, MAX_SPLITS
from .forward import INTEGERS, in_memory, longest, sequence_starts
from .operands import Checker, Operand, new_array
from .plan import run_plain
from .problem import (
    Problem,
    check_agree,
    check_extras,
    check_heads,
    check_inputs,
    check_options,
    check_out,
    check_reach,
    out_dtype,
)


def paged_attention(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    block_table: Any,
    lengths: Any,
    *,
    cu_seqlens_q: Any = None,
    max_seqlen_q: int | None = None,
    causal: bool = True,
    scale: float | None = None,
    window: tuple[int | None, int | None] | None = None,
    sinks: Any = None,
    softcap: float | None = None,
    alibi: Any = None,
    return_lse: bool = False,
    out: Any = None,
    splits: int | None = None,
    q_scale: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
) -> Any:
    """Softmax attention to a paged cache that has the keys of the rows themselves already.

    Rows are the last of their sequence. Keys of a sequence may be shared between workgroups (split-KV), whose partial
    results a second kernel joins in a fixed order: the result depends on `splits` in its last bits and on nothing else.

    Args:
        q: (batch, rows, query heads, dim) with 1 to 8 rows, as `attention` takes elements; or, with cu_seqlens_q,
            (rows of all sequences, query heads, dim) with any number of them.
        k_cache: (pages, page size, key heads, dim); a page has a power of two of keys.
        v_cache: (pages, page size, key heads, dim of v).
        block_table: (batch, most pages of a sequence) int32 or int64: pages of each sequence in order. Entries that
            its length does not reach are not read.
        lengths: (batch,) int32 or int64: keys of each sequence, 0 among them. What lies beyond in a page has no effect,
            NaN or not; with a window, neither has what no row sees.
        cu_seqlens_q, max_seqlen_q: as of `varlen_attention`.
        splits: workgroups that share the keys of a sequence, 1 to 32; as many as fill the GPU by default. With
            cu_seqlens_q there is one.
        causal, scale, window, sinks, softcap, alibi, return_lse, out, q_scale, k_scale, v_scale: as of `attention`.

    Returns:
        out, of the shape of q with the heads of v; or (out, lse) with lse (batch, query heads, rows) fp32, with
        cu_seqlens_q (query heads, rows of all sequences).

    Raises:
        UsageError: an argument that the kernel cannot take, before anything is launched. Lengths and pages are checked
            where they are in CPU memory.
        UnsupportedTritonError: no Triton, or one of a version this package was not tried with.
    """
    checker = Checker("paged_attention")
    extras = {"sinks": sinks, "alibi": alibi, "q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale}
    options = check_options(checker, causal, scale, window, softcap, extras)
    query, key, value, target, units = check_inputs(checker, q, k_cache, v_cache, (4 if cu_seqlens_q is None else 3, 4))
    key, value = _renamed(key, "k_cache"), _renamed(value, "v_cache")
    for axis, what in enumerate(("pages", "page size", "heads")):
        check_agree(checker, what, value, value.shape[axis], key, key.shape[axis])
    page, key_heads = key.shape[1:3]
    if page < 1 or page & (page - 1):
        raise checker.error(f"k_cache has pages of {page} keys", "make it a power of two")
    table = checker.operand("block_table", block_table, 2, INTEGERS, unit=True)
    counts = checker.operand("lengths", lengths, 1, INTEGERS, unit=True)
    checker.same_place(query, table, counts)
    batch = table.shape[0]
    check_agree(checker, "entries", counts, counts.shape[0], table, batch)
    _check_pages(checker, table, counts, key.shape[0], page)
    found = {"block_table": table, "lengths": counts}
    axes, batch_axis = (0, 2, 1), True
    if cu_seqlens_q is None:
        check_agree(checker, "batch", query, query.shape[0], table, batch)
        rows, heads = query.shape[1:3]
        _check_rows(checker, rows)
    else:
        starts = sequence_starts(checker, "cu_seqlens_q", cu_seqlens_q, query, query.shape[0])
        check_agree(checker, "sequences", starts, starts.shape[0] - 1, table, batch)
        rows = longest(checker, "max_seqlen_q", max_seqlen_q, starts, query.shape[0])
        heads, batch_axis = query.shape[1], False
        found["cu_seqlens_q"] = starts
        if splits not in (None, 1):
            raise checker.error(f"splits is {splits!r} with cu_seqlens_q", "leave it out: keys are not split there")
        splits = 1
    check_heads(checker, heads, key_heads)
    shape = (*query.shape[:-1], value.shape[3])
    fill = None if batch_axis else 0.0
    fresh = new_array(q, shape, out_dtype(query), fill) if out is None else out
    result = check_out(checker, fresh, query, shape, (query, key, value))
    found |= check_extras(checker, query, extras, batch, heads, key_heads, (0, 0))
    lse, log_sums = _lse(checker, q, return_lse, (batch, heads, rows) if batch_axis else (heads, query.shape[0]))
    steps = {name: one.steps(axes) for name, one in (("k", key), ("v", value))}
    for name, one in (("q", query), ("out", result)):
        steps[name] = one.steps(axes) if batch_axis else (0, one.strides[1], one.strides[0])
    for one, step in ((key, steps["k"][2]), (value, steps["v"][2])):
        check_reach(checker, one, step)
    problem = Problem(
        checker, query, key, value, result, log_sums, batch, heads, key_heads, rows, table.shape[1] * page, steps,
        options, target, units, found, page,
    )  # fmt: skip
    if batch and rows:
        run_plain(problem, None, _splits(checker, splits, problem))
    return result.value if lse is None else (result.value, lse)


def decode(
    q: Any,
    k: Any,
    v: Any,
    lengths: Any = None,
    *,
    causal: bool = True,
    scale: float | None = None,
    window: tuple[int | None, int | None] | None = None,
    sinks: Any = None,
    softcap: float | None = None,
    alibi: Any = None,
    return_lse: bool = False,
    out: Any = None,
    splits: int | None = None,
    q_scale: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
) -> Any:
    """Softmax attention of 1 to 8 rows a sequence to a cache in one piece, its keys split between workgroups.

    Args:
        q: (batch, rows, query heads, dim).
        k: (batch, most keys, key heads, dim).
        v: (batch, most keys, key heads, dim of v).
        lengths: (batch,) int32 or int64: keys of each sequence; all of them by default. What lies beyond has no effect.
        causal, scale, window, sinks, softcap, alibi, return_lse, out, splits, q_scale, k_scale, v_scale: as of
            `paged_attention`.

    Returns:
        out (batch, rows, query heads, dim of v), or (out, lse) with lse (batch, query heads, rows) fp32.

    Raises:
        UsageError, UnsupportedTritonError: as of `paged_attention`.
    """
    checker = Checker("decode")
    extras = {"sinks": sinks, "alibi": alibi, "q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale}
    options = check_options(checker, causal, scale, window, softcap, extras)
    query, key, value, target, units = check_inputs(checker, q, k, v, (4, 4))
    batch, rows, heads = query.shape[:3]
    check_agree(checker, "batch", key, key.shape[0], query, batch)
    for axis, what in enumerate(("batch", "keys", "heads")):
        check_agree(checker, what, value, value.shape[axis], key, key.shape[axis])
    check_heads(checker, heads, key.shape[2])
    _check_rows(checker, rows)
    found: dict[str, Operand] = {}
    if lengths is not None:
        counts = checker.operand("lengths", lengths, 1, INTEGERS, unit=True)
        checker.same_place(query, counts)
        check_agree(checker, "entries", counts, counts.shape[0], query, batch)
        _check_lengths(checker, counts, key.shape[1])
        found["lengths"] = counts
    shape = (*query.shape[:3], value.shape[3])
    result = check_out(checker, out, query, shape, (query, key, value))
    found |= check_extras(checker, query, extras, batch, heads, key.shape[2], (0, 0))
    lse, log_sums = _lse(checker, q, return_lse, (batch, heads, rows))
    named = {"q": query, "k": key, "v": value, "out": result}
    steps = {name: one.steps((0, 2, 1)) for name, one in named.items()}
    for name in ("k", "v"):
        check_reach(checker, named[name], steps[name][2])
    problem = Problem(
        checker, query, key, value, result, log_sums, batch, heads, key.shape[2], rows, key.shape[1], steps, options,
        target, units, found,
    )  # fmt: skip
    if batch:
        run_plain(problem, None, _splits(checker, splits, problem))
    return result.value if lse is None else (result.value, lse)


def _renamed(one: Operand, name: str) -> Operand:
    return Operand(name, one.value, one.shape, one.strides, one.dtype, one.address, one.itemsize)


def _lse(checker: Checker, q: Any, wanted: bool, shape: tuple[int, ...]) -> tuple[Any, Operand | None]:
    """The array that log-sum-exp goes to, and the same as an operand with a batch dimension; None twice if unwanted."""
    if not wanted:
        return None, None
    value = new_array(q, shape, "fp32", float("-inf"))
    one = checker.operand("lse", value, len(shape), ("fp32",))
    lead = 3 - len(shape)
    return value, Operand("lse", value, (1,) * lead + shape, (0,) * lead + one.strides, "fp32", one.address, 4)


def _check_rows(checker: Checker, rows: int) -> None:
    if not 1 <= rows <= DECODE_ROWS:
        raise checker.error(
            f"q has {rows} rows a sequence",
            f"pass 1 to {DECODE_ROWS}; paged_attention takes more with cu_seqlens_q, attention without a cache",
        )


def _check_lengths(checker: Checker, counts: Operand, most: int) -> None:
    known = in_memory(counts.value)
    if known is not None and known.size and (known.min() < 0 or known.max() > most):
        worst = known.max() if known.max() > most else known.min()
        raise checker.error(f"lengths has {worst}", f"give lengths from 0 to {most}, which the cache has room for")


def _check_pages(checker: Checker, table: Operand, counts: Operand, pages: int, page: int) -> None:
    _check_lengths(checker, counts, table.shape[1] * page)
    known, entries = in_memory(counts.value), in_memory(table.value)
    if known is None or entries is None:
        return
    reached = np.arange(table.shape[1])[None, :] < -(-known // page)[:, None]
    wrong = entries[reached & ((entries < 0) | (entries >= pages))]
    if wrong.size:
        raise checker.error(f"block_table has page {wrong[0]}", f"give pages from 0 to {pages - 1}")


def _splits(checker: Checker, given: Any, problem: Problem) -> int:
    """How many workgroups share the keys of a sequence: as asked for, or enough to fill the GPU twice."""
    if given is not None:
        if isinstance(given, bool) or not isinstance(given, int | np.integer) or not 1 <= given <= MAX_SPLITS:
            raise checker.error(f"splits is {given!r}", f"give a number from 1 to {MAX_SPLITS}, or None")
        return int(given)
    workgroups = problem.batch * problem.key_heads
    enough = -(-2 * problem.compute_units // workgroups)
    worthwhile = -(-problem.keys // 256)  # fewer keys than that cost less than joining the parts
    return max(1, min(enough, worthwhile, MAX_SPLITS))
