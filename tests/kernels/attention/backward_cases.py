"""One case of the backward's matrix: its inputs in memory full of NaN, and its check against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from amdwarp.kernels.attention import reference, reference_backward
from amdwarp.kernels.attention.backward import attention_backward, varlen_attention_backward
from conformance import FACTORS, TARGETS, Case, Inputs, draw, dtype_of, pairwise

import amdwarp
from amdwarp.runtime import compile_for
from amdwarp.sanitizer import check

MINE = FACTORS | {"form": ("bhsd", "bshd", "varlen"), "dtype": ("fp16", "bf16")}
#: Elements between the rows of a head, by seed: all strides in whole 16 bytes, and not.
PADDING = (8, 3)


def matrix() -> list[Case]:
    """Every case: pairwise coverage for each target; no two alike."""
    cases = []
    for target in TARGETS:
        for at, point in enumerate(pairwise(MINE, 40 + TARGETS.index(target))):
            if point["extra"] == "bias" and point["form"] == "varlen":
                point["extra"] = ("sinks", "softcap", "alibi")[at % 3]
            cases.append(Case(**point, target=target, seed=at % 2))
    return list(dict.fromkeys(cases))


def apart(array: Any, padding: int) -> Any:
    """The same array with NaN between its rows and behind it."""
    *outer, last = array.shape
    memory = np.full((*outer, last + padding), np.nan, array.dtype)
    memory[..., :last] = array
    return memory[..., :last]


def call(case: Case, inputs: Inputs) -> tuple[reference_backward.Gradients, Any, Any]:
    """Run a case's backward: the gradients, what they must be, and how far they may be off."""
    rng = np.random.default_rng((7, *map(ord, str(case))))
    kind, options, extras = dtype_of(case), inputs.options, inputs.extras
    douts = [rng.standard_normal((len(q), q.shape[1], case.dims[1])).astype(kind) for q in inputs.q]
    named = {"causal": options.causal, "window": options.window, "softcap": options.softcap, "scale": options.scale}
    if case.form == "varlen":
        starts = [np.cumsum([1, *(len(x) for x in xs)]).astype(np.int32) for xs in (inputs.q, inputs.k)]
        # a row and a key before the first sequence and behind the last one, of no sequence
        q, k, v, dout = (np.concatenate([xs[0][:0], *_fenced(xs)]) for xs in (inputs.q, inputs.k, inputs.v, douts))
        out, lse = reference.varlen_attention(q, k, v, *starts, options, **extras)
        dlse = _gradient_of(lse, rng)
        grads = varlen_attention_backward(
            *(apart(one, PADDING[case.seed]) for one in (dout, q, k, v, out.astype(kind))), lse.astype(np.float32),
            *starts, dlse=dlse, **named, **extras,
        )  # fmt: skip
        expected = reference_backward.varlen_attention_backward(dout, q, k, v, *starts, options, dlse=dlse, **extras)
        bound = _varlen_bound(dout, q, k, v, starts, options, dlse, extras)
        return grads, expected, bound
    q, k, v, dout = (np.stack(xs).swapaxes(1, 2) for xs in (inputs.q, inputs.k, inputs.v, douts))
    out, lse = reference.attention(q, k, v, options, **extras)
    dlse = _gradient_of(lse, rng) if case.seed else None
    given = [one if case.form == "bhsd" else one.swapaxes(1, 2) for one in (dout, q, k, v, out.astype(kind))]
    grads = attention_backward(
        *(apart(one, PADDING[case.seed]) for one in given), lse.astype(np.float32), dlse=dlse, layout=case.form,
        **named, **extras,
    )  # fmt: skip
    if case.form == "bshd":
        of_inputs = (one.swapaxes(1, 2) for one in (grads.q, grads.k, grads.v))
        grads = reference_backward.Gradients(*of_inputs, grads.sinks, grads.bias)
    expected = reference_backward.attention_backward(dout, q, k, v, options, dlse=dlse, **extras)
    return grads, expected, reference_backward.tolerance(dout, q, k, v, options, dlse=dlse, **extras)


def _fenced(parts: list[Any]) -> list[Any]:
    edge = np.ones((1, *parts[0].shape[1:]), parts[0].dtype)
    return [edge, *parts, edge]


def _gradient_of(lse: Any, rng: np.random.Generator) -> Any:
    """A gradient of lse, none where a row sees nothing."""
    return np.where(np.isneginf(lse), 0.0, rng.standard_normal(lse.shape)).astype(np.float32)


def _varlen_bound(
    dout: Any, q: Any, k: Any, v: Any, starts: list[Any], options: Any, dlse: Any, extras: dict[str, Any]
) -> reference_backward.Gradients:
    """The tolerance of each sequence for itself; 0 in rows and keys of no sequence."""
    bounds = [np.zeros(one.shape) for one in (q, k, v)]
    sinks = np.zeros(q.shape[1]) if "sinks" in extras else None
    for one in range(len(starts[0]) - 1):
        rows, keys = slice(*starts[0][one : one + 2]), slice(*starts[1][one : one + 2])
        parts = [part.swapaxes(0, 1)[None] for part in (dout[rows], q[rows], k[keys], v[keys])]
        part = reference_backward.tolerance(*parts, options, dlse=dlse[None, :, rows], **extras)
        for bound, where, found in zip(bounds, (rows, keys, keys), (part.q, part.k, part.v), strict=True):
            bound[where] = found[0].swapaxes(0, 1)
        if sinks is not None:
            sinks += part.sinks
    return reference_backward.Gradients(*bounds, sinks)


def compare(grads: Any, expected: Any, bound: Any) -> float:
    """Assert that gradients are within tolerance; the largest error as a fraction of it."""
    worst = 0.0
    for name in ("q", "k", "v", "sinks", "bias"):
        got, wanted, limit = (getattr(one, name) for one in (grads, expected, bound))
        if wanted is None:
            assert got is None
            continue
        got = np.asarray(got).astype(np.float64)
        assert got.shape == wanted.shape
        error = np.abs(got - wanted)
        assert (error[limit == 0] == 0).all(), name
        fraction = np.nan_to_num(error[limit > 0] / limit[limit > 0], nan=np.inf).max(initial=0)
        assert fraction <= 1, f"d{name} is {fraction:.2f} times the bound away"
        worst = max(worst, float(fraction))
    return worst


def verify(case: Case, seeds: int = 5, workgroups: int | None = 4) -> float:
    """Emulate a case, compare it, and have the sanitizer run a sample of workgroups over several interleavings.

    The sanitizer compares the bits of all results between its interleavings; the emulator's own further interleavings
    of the whole grid are compared here.
    """
    inputs = draw(case)
    with amdwarp.emulate(case.target) as emulation:
        found = call(case, inputs)
    worst = compare(*found)
    for launch, compiled, _ in emulation.records:
        _, values = compile_for(launch, case.target)
        report = check(compiled, values, launch.grid, seeds=seeds, workgroups=workgroups)
        assert report.ok, str(report)
    return worst


def same_bits(case: Case, seeds: int) -> None:
    """Whole grids under several interleavings give the same bits."""
    inputs = draw(case)
    results = []
    for seed in range(seeds):
        with amdwarp.emulate(case.target, seed=seed):
            grads, *_ = call(case, inputs)
        results.append(b"".join(np.ascontiguousarray(one).tobytes() for one in vars(grads).values() if one is not None))
    assert len(set(results)) == 1
