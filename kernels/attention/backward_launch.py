"""From a checked problem to the launches of its backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amdwarp.runtime import Launch, is_tensor, run

from .backward_plan import SUM_ROWS, VECTOR, BackwardKind, BackwardTile, tiles
from .operands import EXTENT_LIMIT, Operand, new_array
from .plan import kernel
from .problem import Problem
from .reference_backward import Gradients

PARTS = 256  # parts of a sink's gradient that are added at once
Steps = tuple[int, int, int]


@dataclass(frozen=True)
class Backward:
    """A backward to compute.

    Attributes:
        forward: the forward; its out and lse are the results of it.
        dout: gradient of out, and like out.
        dlse: gradient of lse, and like lse; None for none.
        varlen: sequences stand one behind the other, and `steps` have 0 for the batch.
        bias_gradient: the gradient of the bias is wanted.
        steps: operand name -> strides of (batch, head, row), elements; of q, k, v, out, dout, dq, dk, dv.
        dq, dk, dv: where the gradients go.
    """

    forward: Problem
    dout: Operand
    dlse: Operand | None
    varlen: bool
    bias_gradient: bool
    steps: dict[str, Steps]
    dq: Operand
    dk: Operand
    dv: Operand

    @property
    def unit(self) -> int:
        """8 if every row of every operand starts 16-byte aligned, else 1."""
        forward = self.forward
        operands = (forward.q, forward.k, forward.v, forward.out, self.dout, self.dq, self.dk, self.dv)
        aligned = all(one.address % (VECTOR * one.itemsize) == 0 for one in operands)
        whole = not any(step % VECTOR for steps in self.steps.values() for step in steps)
        return VECTOR if aligned and whole else 1

    @property
    def lse_steps(self) -> dict[str, int]:
        """Strides of lse, dlse and delta, which are contiguous."""
        rows = self.forward.q.shape[0] if self.varlen else self.forward.rows
        return {"lse_batch": 0 if self.varlen else self.forward.heads * rows, "lse_head": rows}


def run_backward(problem: Backward) -> Gradients:
    """Launch the kernels; returns the gradients."""
    forward = problem.forward
    kind = BackwardKind.of(forward.options, problem.bias_gradient, problem.varlen, problem.unit)
    of_keys, of_rows = tiles(forward.dim, forward.dim_v, forward.target.arch)
    rows = problem.lse_steps["lse_head"]
    batch = 1 if problem.varlen else forward.batch
    delta = new_array(forward.q.value, (batch, forward.heads, rows), "fp32")
    dsinks = _sum_rows(problem, kind, of_keys, delta, (batch, rows))
    shared = _shared(problem, delta)
    if forward.batch and forward.keys:
        grid = (_blocks(forward.keys, of_keys.keys), forward.key_heads, forward.batch)
        arguments = shared | {"dk_ptr": problem.dk.value, "dv_ptr": problem.dv.value}
        _launch(problem, "backward_keys", grid, arguments, kind, of_keys)
    dbias, steps = None, dict.fromkeys(("dbias_batch", "dbias_head", "dbias_row"), 0)
    bias = forward.extras.get("bias")
    if bias is not None and problem.bias_gradient:
        batch_step, head_step = forward.heads * forward.rows * forward.keys, forward.rows * forward.keys
        dbias = new_array(forward.q.value, bias.shape, "fp32", 0.0)
        steps = {"dbias_batch": batch_step, "dbias_head": head_step, "dbias_row": forward.keys}
    if forward.batch and forward.rows:
        grid = (_blocks(forward.rows, of_rows.rows), forward.heads, forward.batch)
        arguments = shared | {"dq_ptr": problem.dq.value, "dbias_ptr": dbias} | steps
        _launch(problem, "backward_rows", grid, arguments, kind, of_rows)
    if bias is not None and dbias is not None:
        dbias = _sum_to(dbias, tuple(map(int, bias.value.shape)))
    return Gradients(problem.dq.value, problem.dk.value, problem.dv.value, dsinks, dbias)


def _sum_rows(problem: Backward, kind: BackwardKind, tile: BackwardTile, delta: Any, extents: tuple[int, int]) -> Any:
    """Fill delta; returns the gradient of the sinks, if there are any."""
    batch, rows = extents
    forward, sinks = problem.forward, problem.forward.extras.get("sinks")
    blocks = _blocks(rows, SUM_ROWS)
    parts = batch * blocks
    dsinks = partial = None
    if sinks is not None:
        dsinks = new_array(forward.q.value, (forward.heads,), "fp32", None if parts else 0.0)
        partial = new_array(forward.q.value, (forward.heads, parts), "fp32")
    if not parts:
        return dsinks
    arguments = {
        "out_ptr": forward.out.value,
        "dout_ptr": problem.dout.value,
        "lse_ptr": _value(forward.lse),
        "dlse_ptr": _value(problem.dlse),
        "sinks_ptr": _value(sinks),
        "delta_ptr": delta,
        "dsinks_ptr": partial,
        "rows": rows,
        "parts": parts,
    }
    _launch(problem, "backward_rows_sum", (blocks, forward.heads, batch), arguments, kind, tile)
    if partial is not None:
        arguments = {"parts_ptr": partial, "dsinks_ptr": dsinks, "parts": parts}
        run(Launch(kernel("backward_kernels", "backward_sinks"), (forward.heads,), arguments, {"BLOCK": PARTS}))
    return dsinks


def _shared(problem: Backward, delta: Any) -> dict[str, Any]:
    """The arguments that the kernels of keys and of rows have in common."""
    forward, options = problem.forward, problem.forward.options
    extras = forward.extras
    alibi, bias = extras.get("alibi"), extras.get("bias")
    left, right = (min(reach or 0, EXTENT_LIMIT) for reach in options.reach)
    arguments: dict[str, Any] = {
        "q_ptr": forward.q.value,
        "k_ptr": forward.k.value,
        "v_ptr": forward.v.value,
        "dout_ptr": problem.dout.value,
        "lse_ptr": _value(forward.lse),
        "delta_ptr": delta,
        "alibi_ptr": _value(alibi),
        "bias_ptr": _value(bias),
        "cu_rows_ptr": _value(extras.get("cu_seqlens_q")),
        "cu_keys_ptr": _value(extras.get("cu_seqlens_k")),
        "rows": forward.rows,
        "keys": forward.keys,
        "group": forward.ratio,
        "left": left,
        "right": right,
        "scale": options.scale_of(forward.dim),
        "softcap": float(options.softcap or 0.0),
    }
    slopes = (0, 0) if alibi is None else alibi.strides
    arguments |= {"alibi_batch": slopes[0], "alibi_head": slopes[1]}
    across = (0, 0, 0, 0) if bias is None else bias.strides
    return arguments | dict(zip(("bias_batch", "bias_head", "bias_row", "bias_key"), across, strict=True))


def _launch(
    problem: Backward,
    name: str,
    grid: tuple[int, int, int],
    arguments: dict[str, Any],
    kind: BackwardKind,
    tile: BackwardTile,
) -> None:
    function = kernel("backward_kernels", name)
    arguments = arguments | problem.lse_steps
    for operand, steps in problem.steps.items():
        for axis, step in zip(("batch", "head", "row"), steps, strict=True):
            arguments[f"{operand}_{axis}"] = step // kind.unit
    given = {one: arguments[one] for one in function.arg_names if arguments.get(one) is not None}
    constants: dict[str, Any] = {one: None for one, value in arguments.items() if value is None}
    constants |= {"KIND": kind, "TILE": tile}
    run(Launch(function, grid, given, constants, tile.options(problem.forward.target)))


def _value(operand: Operand | None) -> Any:
    return None if operand is None else operand.value


def _blocks(extent: int, tile: int) -> int:
    return -(-extent // tile)


def _sum_to(gradient: Any, shape: tuple[int, ...]) -> Any:
    """Summed over the axes along which an array of `shape` was broadcast, in one order."""
    missing = len(gradient.shape) - len(shape)
    axes = [at for at, extent in enumerate((*(1,) * missing, *shape)) if extent == 1 and gradient.shape[at] != 1]
    if axes and is_tensor(gradient):
        gradient = gradient.sum(dim=axes)
    elif axes:
        gradient = gradient.sum(axis=tuple(axes))
    return gradient.reshape(shape)
