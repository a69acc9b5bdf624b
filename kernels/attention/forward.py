"""Attention of equally long sequences, and of sequences of any lengths one behind the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdwarp.runtime import is_tensor

from .operands import Checker, Operand, new_array
from .plan import compute
from .problem import (
    Problem,
    check_agree,
    check_extras,
    check_heads,
    check_inputs,
    check_layout,
    check_options,
    check_out,
    check_reach,
    out_dtype,
)

INTEGERS = ("i32", "i64")


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int | None, int | None] | None = None,
    sinks: Any = None,
    softcap: float | None = None,
    bias: Any = None,
    alibi: Any = None,
    return_lse: bool = False,
    layout: str = "bhsd",
    out: Any = None,
    schedule: Any = None,
    q_scale: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
) -> Any:
    """Softmax attention of a batch of equally long sequences. No gradient is recorded.

    `amdwarp.kernels.attention.options` states what each option means; rows and keys are aligned bottom-right.

    Args:
        q: (batch, query heads, rows, dim) fp16, bf16 or the GPU's fp8; a torch tensor or a numpy array. Elements of a
            head are contiguous, everything else may lie apart.
        k: (batch, key heads, keys, dim) of the same kind and dtype; key heads divide query heads.
        v: (batch, key heads, keys, dim of v). Head dims are multiples of 8 from 32 to 256.
        causal: a row sees keys up to its own position.
        scale: factor of q . k; 1/sqrt(dim) by default.
        window: (left, right) keys that a row sees around its position; None on a side leaves it open.
        sinks: (query heads,) fp32, one more logit of each head.
        softcap: bound of the scaled logits.
        bias: added to the logits; fp16, bf16 or fp32 that broadcasts to (batch, query heads, rows, keys).
        alibi: fp32 slopes, (query heads,) or (batch, query heads).
        return_lse: return the log-sum-exp of each row, too.
        layout: ``"bhsd"``, or ``"bshd"`` where q, k, v and out have rows before heads.
        out: where the result goes, of the shape of q with the heads of v; a new array by default. It has the dtype of
            q; for fp8 inputs it is fp16, bf16 or fp32, and bf16 by default.
        schedule: ``"plain"``, ``"ping_pong"``, ``"intra_wave"``, ``"tasks"``, a schedule of `configs`, or None for the
            default of the problem.
        q_scale, k_scale, v_scale: what fp8 elements are to be multiplied by: a number, or fp32 that broadcasts to
            (batch, query heads) for q and to (batch, key heads) for k and v.

    Returns:
        out, or (out, lse) with lse (batch, query heads, rows) fp32, natural logarithm.

    Raises:
        UsageError: an argument that the kernel cannot take, before anything is launched.
        UnsupportedTritonError: no Triton, or one of a version this package was not tried with.
    """
    checker = Checker("attention")
    axes = check_layout(checker, layout)
    extras = {"sinks": sinks, "alibi": alibi, "bias": bias, "q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale}
    options = check_options(checker, causal, scale, window, softcap, extras)
    query, key, value, target, compute_units = check_inputs(checker, q, k, v, (4, 4))
    batch, heads, rows = (query.shape[axis] for axis in axes)
    key_batch, key_heads, keys = (key.shape[axis] for axis in axes)
    check_agree(checker, "batch", key, key_batch, query, batch)
    for what, axis in zip(("batch", "heads", "keys"), axes, strict=True):
        check_agree(checker, what, value, value.shape[axis], key, key.shape[axis])
    check_heads(checker, heads, key_heads)
    shape = (*query.shape[:3], value.shape[3])
    result = check_out(checker, out, query, shape, (query, key, value))
    found = check_extras(checker, query, extras, batch, heads, key_heads, (rows, keys))
    lse = new_array(q, (batch, heads, rows), "fp32") if return_lse else None
    operands = {"q": query, "k": key, "v": value, "out": result}
    steps = {name: one.steps(axes) for name, one in operands.items()}
    for name in ("k", "v"):
        check_reach(checker, operands[name], steps[name][2])
    log_sums = None if lse is None else checker.operand("lse", lse, 3, ("fp32",))
    problem = Problem(
        checker, query, key, value, result, log_sums, batch, heads, key_heads, rows, keys, steps, options, target,
        compute_units, found,
    )  # fmt: skip
    if batch and rows:
        compute(problem, schedule)
    return result.value if lse is None else (result.value, lse)


def varlen_attention(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    *,
    max_seqlen_q: int | None = None,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int | None, int | None] | None = None,
    sinks: Any = None,
    softcap: float | None = None,
    alibi: Any = None,
    return_lse: bool = False,
    out: Any = None,
    schedule: Any = None,
    q_scale: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
) -> Any:
    """Softmax attention of sequences of any lengths, zero among them, that stand one behind the other.

    Each sequence is computed for itself, rows and keys aligned bottom-right within it. There is no bias: its keys have
    no common extent.

    Args:
        q: (rows of all sequences, query heads, dim), as `attention` takes it.
        k: (keys of all sequences, key heads, dim).
        v: (keys of all sequences, key heads, dim of v).
        cu_seqlens_q, cu_seqlens_k: (sequences + 1,) int32 or int64: where each sequence starts in q and in k, and where
            the last one ends. They never fall, and end within q and k: checked where they are in CPU memory.
        max_seqlen_q: rows of the longest sequence; read from cu_seqlens_q by default, which waits for a GPU.
        alibi: fp32 slopes, (query heads,) or (sequences, query heads).
        q_scale, k_scale, v_scale: as of `attention`, with sequences for batch.
        causal, scale, window, sinks, softcap, return_lse, out, schedule: as of `attention`. Rows of a given out that
            belong to no sequence keep what they hold; in a new one they are zeros.

    Returns:
        out (rows of all sequences, query heads, dim of v), or (out, lse) with lse (query heads, rows of all sequences)
        fp32, -inf where a row belongs to no sequence.

    Raises:
        UsageError, UnsupportedTritonError: as of `attention`.
    """
    checker = Checker("varlen_attention")
    extras = {"sinks": sinks, "alibi": alibi, "q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale}
    options = check_options(checker, causal, scale, window, softcap, extras)
    query, key, value, target, compute_units = check_inputs(checker, q, k, v, (3, 3))
    check_agree(checker, "keys", value, value.shape[0], key, key.shape[0])
    check_agree(checker, "heads", value, value.shape[1], key, key.shape[1])
    heads, key_heads = query.shape[1], key.shape[1]
    check_heads(checker, heads, key_heads)
    starts = {
        name: sequence_starts(checker, name, given, query, total)
        for name, given, total in (
            ("cu_seqlens_q", cu_seqlens_q, query.shape[0]),
            ("cu_seqlens_k", cu_seqlens_k, key.shape[0]),
        )
    }
    sequences = starts["cu_seqlens_q"].shape[0] - 1
    key_starts = starts["cu_seqlens_k"]
    check_agree(checker, "entries", key_starts, key_starts.shape[0], starts["cu_seqlens_q"], sequences + 1)
    rows = longest(checker, "max_seqlen_q", max_seqlen_q, starts["cu_seqlens_q"], query.shape[0])
    shape = (*query.shape[:2], value.shape[2])
    fresh = new_array(q, shape, out_dtype(query), 0.0) if out is None else out
    result = check_out(checker, fresh, query, shape, (query, key, value))
    found = check_extras(checker, query, extras, sequences, heads, key_heads, (0, 0))
    lse = new_array(q, (heads, query.shape[0]), "fp32", float("-inf")) if return_lse else None
    log_sums = None if lse is None else checker.operand("lse", lse, 2, ("fp32",))
    if log_sums is not None:
        log_sums = Operand("lse", lse, (1, *log_sums.shape), (0, *log_sums.strides), "fp32", log_sums.address, 4)
    operands = {"q": query, "k": key, "v": value, "out": result}
    steps = {name: (0, one.strides[1], one.strides[0]) for name, one in operands.items()}
    for name in ("k", "v"):
        check_reach(checker, operands[name], steps[name][2])
    problem = Problem(
        checker, query, key, value, result, log_sums, sequences, heads, key_heads, rows, key.shape[0], steps, options,
        target, compute_units, found | starts,
    )  # fmt: skip
    if sequences and rows:
        compute(problem, schedule)
    return result.value if lse is None else (result.value, lse)


def sequence_starts(checker: Checker, name: str, value: Any, q: Operand, total: int) -> Operand:
    """Starts of sequences as an operand; their values are checked where that costs no wait for a GPU."""
    one = checker.operand(name, value, 1, INTEGERS, unit=True)
    checker.same_place(q, one)
    if one.shape[0] < 1:
        raise checker.error(f"{name} is empty", "give one entry more than there are sequences")
    known = in_memory(value)
    if known is not None:
        if known[0] < 0 or (np.diff(known) < 0).any():
            raise checker.error(f"{name} falls, or begins below 0", "give the running sum of lengths, from 0")
        if known[-1] > total:
            raise checker.error(f"{name} ends at {known[-1]}, beyond the {total} that are there", "check the lengths")
    return one


def longest(checker: Checker, name: str, given: Any, starts: Operand, total: int) -> int:
    """Rows of the longest sequence: as given, which may be more than there are, or as counted; at most the total."""
    known = in_memory(starts.value)
    counted = None if known is None else int(np.diff(known).max(initial=0))
    if given is None and starts.shape[0] < 2:
        return 0
    if given is None:
        return int((starts.value[1:] - starts.value[:-1]).max()) if counted is None else counted
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < (counted or 0):
        raise checker.error(f"{name} is {given!r}", f"give the longest sequence's length, {counted}, or None")
    return min(int(given), total)


def in_memory(value: Any) -> Any:
    """The values of an array or CPU tensor as a numpy array of int64; None for what is on a GPU."""
    if is_tensor(value):
        return value.detach().numpy().astype(np.int64) if value.device.type == "cpu" else None
    return value.astype(np.int64)
