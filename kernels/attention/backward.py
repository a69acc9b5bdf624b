"""Gradients of attention: the calls, and their checks."""

from __future__ import annotations

from typing import Any

from .backward_launch import Backward, Steps, run_backward
from .forward import longest, sequence_starts
from .operands import HALVES, Checker, Operand, new_array
from .problem import (
    Problem,
    check_agree,
    check_extras,
    check_heads,
    check_inputs,
    check_layout,
    check_options,
    check_reach,
    check_total,
)
from .reference_backward import Gradients


def attention_backward(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int | None, int | None] | None = None,
    sinks: Any = None,
    softcap: float | None = None,
    bias: Any = None,
    alibi: Any = None,
    dlse: Any = None,
    layout: str = "bhsd",
    bias_gradient: bool = True,
) -> Gradients:
    """Gradients of `attention` with the same options, from its output and lse.

    Sums have one order whatever runs first, so results are the same bits each time. Beside the gradients there is one
    fp32 a row of memory; for the gradient of a bias, one for each element of (batch, query heads, rows, keys) too.

    Args:
        dout: gradient of the output, like out.
        q: (batch, query heads, rows, dim) fp16 or bf16; a torch tensor or a numpy array. Elements of a head are
            contiguous, everything else may lie apart.
        k: (batch, key heads, keys, dim) of the same kind and dtype.
        v: (batch, key heads, keys, dim of v).
        out: (batch, query heads, rows, dim of v), the output of the forward.
        lse: (batch, query heads, rows) fp32 of the forward, contiguous.
        causal, scale, window, softcap: as in `AttentionOptions`.
        sinks, bias, alibi: arrays as the forward took them. ALiBi slopes get no gradient.
        dlse: gradient of lse, like lse; None for none.
        layout: ``"bhsd"``, or ``"bshd"`` where q, k, v, out and dout have rows before heads.
        bias_gradient: whether the gradient of a bias is wanted.

    Returns:
        gradients of q, k and v, of their dtype and shape; of sinks and of bias in fp32, of their shape.

    Raises:
        UsageError: an argument that the kernels cannot take, before anything is launched.
        UnsupportedTritonError: no Triton, or one of a version this package was not tried with.
    """
    checker = Checker("attention_backward")
    axes = check_layout(checker, layout)
    extras = {"sinks": sinks, "alibi": alibi, "bias": bias}
    options = check_options(checker, causal, scale, window, softcap, extras)
    query, key, value, target, units = _inputs(checker, q, k, v, 4)
    batch, heads, rows = (query.shape[axis] for axis in axes)
    key_batch, key_heads, keys = (key.shape[axis] for axis in axes)
    check_agree(checker, "batch", key, key_batch, query, batch)
    for what, axis in zip(("batch", "heads", "keys"), axes, strict=True):
        check_agree(checker, what, value, value.shape[axis], key, key.shape[axis])
    check_heads(checker, heads, key_heads)
    result, gradient = _results(checker, query, (*query.shape[:3], value.shape[3]), out, dout)
    sums = _sums(checker, query, (batch, heads, rows), lse, dlse)
    found = check_extras(checker, query, extras, batch, heads, key_heads, (rows, keys))
    operands = {"q": query, "k": key, "v": value, "out": result, "dout": gradient}
    operands |= {name: _new(checker, name, one, None) for name, one in (("dq", query), ("dk", key), ("dv", value))}
    steps = {name: one.steps(axes) for name, one in operands.items()}
    forward = Problem(
        checker, query, key, value, result, sums[0], batch, heads, key_heads, rows, keys, steps, options, target,
        units, found,
    )  # fmt: skip
    return _run(forward, gradient, sums[1], False, operands, bias_gradient)


def varlen_attention_backward(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    *,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int | None, int | None] | None = None,
    sinks: Any = None,
    softcap: float | None = None,
    alibi: Any = None,
    dlse: Any = None,
) -> Gradients:
    """Gradients of `varlen_attention` with the same options, from its output and lse.

    Args:
        dout: gradient of the output, like out.
        q: (rows of all sequences, query heads, dim) fp16 or bf16.
        k: (keys of all sequences, key heads, dim).
        v: (keys of all sequences, key heads, dim of v).
        out: (rows of all sequences, query heads, dim of v), the output of the forward.
        lse: (query heads, rows of all sequences) fp32 of the forward, contiguous.
        cu_seqlens_q, cu_seqlens_k: as the forward took them.
        max_seqlen_q, max_seqlen_k: rows and keys of the longest sequence; read from cu_seqlens by default, which waits
            for a GPU.
        causal, scale, window, softcap: as in `AttentionOptions`.
        sinks, alibi: arrays as the forward took them. ALiBi slopes get no gradient.
        dlse: gradient of lse, like lse; None for none.

    Returns:
        gradients of q, k and v, of their dtype and shape, zeros in rows and keys that belong to no sequence; of sinks
        in fp32.

    Raises:
        UsageError, UnsupportedTritonError: as of `attention_backward`.
    """
    checker = Checker("varlen_attention_backward")
    extras = {"sinks": sinks, "alibi": alibi}
    options = check_options(checker, causal, scale, window, softcap, extras)
    query, key, value, target, units = _inputs(checker, q, k, v, 3)
    check_agree(checker, "keys", value, value.shape[0], key, key.shape[0])
    check_agree(checker, "heads", value, value.shape[1], key, key.shape[1])
    heads, key_heads = query.shape[1], key.shape[1]
    check_heads(checker, heads, key_heads)
    of_q = sequence_starts(checker, "cu_seqlens_q", cu_seqlens_q, query, query.shape[0])
    of_k = sequence_starts(checker, "cu_seqlens_k", cu_seqlens_k, query, key.shape[0])
    check_agree(checker, "entries", of_k, of_k.shape[0], of_q, of_q.shape[0])
    rows = longest(checker, "max_seqlen_q", max_seqlen_q, of_q, query.shape[0])
    keys = longest(checker, "max_seqlen_k", max_seqlen_k, of_k, key.shape[0])
    result, gradient = _results(checker, query, (*query.shape[:2], value.shape[2]), out, dout)
    sums = _sums(checker, query, (heads, query.shape[0]), lse, dlse)
    sequences = of_q.shape[0] - 1
    found = check_extras(checker, query, extras, sequences, heads, key_heads, (0, 0))
    operands = {"q": query, "k": key, "v": value, "out": result, "dout": gradient}
    operands |= {name: _new(checker, name, one, 0.0) for name, one in (("dq", query), ("dk", key), ("dv", value))}
    steps: dict[str, Steps] = {name: (0, one.strides[1], one.strides[0]) for name, one in operands.items()}
    found |= {"cu_seqlens_q": of_q, "cu_seqlens_k": of_k}
    forward = Problem(
        checker, query, key, value, result, sums[0], sequences, heads, key_heads, rows, keys, steps, options, target,
        units, found,
    )  # fmt: skip
    return _run(forward, gradient, sums[1], True, operands, False)


def _inputs(checker: Checker, q: Any, k: Any, v: Any, rank: int) -> Any:
    """q, k and v, of a type that has a backward."""
    found = check_inputs(checker, q, k, v, (rank, rank))
    if found[0].dtype not in HALVES:
        raise checker.error(
            f"q is {found[0].value.dtype}, and there is no backward in fp8", "convert q, k and v to fp16 or bf16"
        )
    return found


def _results(checker: Checker, q: Operand, shape: tuple[int, ...], out: Any, dout: Any) -> tuple[Operand, Operand]:
    """The forward's output and its gradient as operands."""
    made = []
    for name, value in (("out", out), ("dout", dout)):
        one = checker.operand(name, value, len(shape), (q.dtype,), unit=True)
        if one.shape != shape:
            raise checker.error(f"{name} is {list(one.shape)}", f"pass one of {list(shape)}")
        checker.same_place(q, one)
        made.append(one)
    return made[0], made[1]


def _sums(checker: Checker, q: Operand, shape: tuple[int, ...], lse: Any, dlse: Any) -> tuple[Operand, Operand | None]:
    """The forward's lse and its gradient as operands."""
    made: list[Operand | None] = []
    for name, value in (("lse", lse), ("dlse", dlse)):
        if value is None and name == "dlse":
            made.append(None)
            continue
        one = checker.operand(name, value, len(shape), ("fp32",))
        if one.shape != shape:
            raise checker.error(f"{name} is {list(one.shape)}", f"pass one of {list(shape)}")
        reach = 1
        for extent, stride in zip(reversed(one.shape), reversed(one.strides), strict=True):
            if extent > 1 and stride != reach and 0 not in one.shape:
                raise checker.error(f"{name} is not contiguous", f"pass a contiguous {name}")
            reach *= extent
        checker.same_place(q, one)
        made.append(one)
    first = made[0]
    assert first is not None
    return first, made[1]


def _new(checker: Checker, name: str, like: Operand, fill: float | None) -> Operand:
    made = new_array(like.value, like.shape, like.dtype, fill)
    return checker.operand(name, made, len(like.shape), (like.dtype,))


def _run(
    forward: Problem,
    dout: Operand,
    dlse: Operand | None,
    varlen: bool,
    operands: dict[str, Operand],
    bias_gradient: bool,
) -> Gradients:
    for name, one in operands.items():
        check_reach(forward.checker, one, forward.steps[name][2])
    bias = forward.extras.get("bias")
    if bias is not None:
        for step in bias.strides[2:]:
            check_reach(forward.checker, bias, step)
    check_total(forward.checker, "batch", forward.batch)
    check_total(forward.checker, "query heads", forward.heads)
    gradients = [operands[name] for name in ("dq", "dk", "dv")]
    return run_backward(
        Backward(forward, dout, dlse, varlen, bias is not None and bias_gradient, forward.steps, *gradients)
    )
