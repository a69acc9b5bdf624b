"""Gradients of the kernels in the emulator: against float64, under the sanitizer, and on values that break things."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from amdwarp.kernels.attention import reference, reference_backward
from amdwarp.kernels.attention.backward import attention_backward, varlen_attention_backward
from amdwarp.kernels.attention.options import AttentionOptions

import amdwarp
from amdwarp.errors import UsageError

pytest.importorskip("triton")
sys.path.insert(0, str(Path(__file__).parent))

from backward_cases import MINE, compare, matrix, same_bits, verify
from conformance import TARGETS, Case

CASES = matrix()
FEW = [
    Case("bhsd", "causal", "all", "fp16", (64, 64), (4, 2), "more keys", "gfx950"),
    Case("varlen", "window", "sinks", "bf16", (80, 80), (3, 1), "empty", "gfx942", 1),
    Case("bshd", "causal", "none", "fp16", (32, 32), (2, 2), "more rows", "gfx1250", 1),
]
HALF = np.float16


def test_the_matrix_covers_every_pair_on_every_target():
    assert len(CASES) >= 120
    for target in TARGETS:
        mine = [case for case in CASES if case.target == target]
        for at, a in enumerate(MINE):
            for b in list(MINE)[at + 1 :]:
                got = {(getattr(case, a), getattr(case, b)) for case in mine}
                missing = {(x, y) for x in MINE[a] for y in MINE[b]} - got
                # only bhsd and bshd take a bias; pairs of a bias with something else may have gone with that
                assert all(pair[0] == "bias" or pair[1] == "bias" for pair in missing), (target, a, b, missing)


@pytest.mark.parametrize("case", FEW, ids=str)
def test_few(case):
    verify(case, seeds=2, workgroups=2)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_whole(case):
    verify(case)


@pytest.mark.parametrize("target", [pytest.param(one, marks=pytest.mark.slow) for one in TARGETS])
def test_interleavings_give_the_same_bits(target):
    same_bits(Case("bhsd", "causal_window", "sinks", "fp16", (64, 64), (4, 2), "more rows", target, 1), seeds=5)


def run(q, k, v, dout, target="gfx950", **named):
    """Gradients of the kernels from the float64 forward, what they must be, and how far they may be off."""
    arrays = {name: named.pop(name) for name in ("sinks", "alibi", "bias") if name in named}
    present = {name: name in arrays for name in ("sinks", "alibi", "bias")}
    options = AttentionOptions(**named, **present)
    out, lse = reference.attention(q, k, v, options, **arrays)
    with amdwarp.emulate(target):
        got = attention_backward(dout, q, k, v, out.astype(q.dtype), lse.astype(np.float32), **named, **arrays)
    expected = reference_backward.attention_backward(dout, q, k, v, options, **arrays)
    return got, expected, reference_backward.tolerance(dout, q, k, v, options, **arrays)


def draw(*shape, seed=0, dtype=HALF):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def four(rows=20, keys=24, heads=2, key_heads=1, dim=32):
    q, dout = draw(1, heads, rows, dim), draw(1, heads, rows, dim, seed=1)
    return q, draw(1, key_heads, keys, dim, seed=2), draw(1, key_heads, keys, dim, seed=3), dout


def test_rows_that_see_nothing_give_zeros_and_no_nan():
    q, k, v, dout = four(rows=40, keys=9)
    got, *rest = run(q, k, v, dout, causal=True)
    compare(got, *rest)
    assert (got.q[:, :, :31] == 0).all()
    assert (got.q[:, :, 32:] != 0).any()
    bias = np.full((40, 9), -np.inf, np.float32)
    bias[7] = 0
    got, *rest = run(q, k, v, dout, bias=bias)
    compare(got, *rest)
    assert (np.delete(got.q, 7, axis=2) == 0).all()
    assert (np.delete(got.bias, 7, axis=0) == 0).all()


@pytest.mark.slow
def test_large_logits():
    # probabilities are 0 and 1, but where the largest two logits are close; nothing overflows on the way
    q, k, v, dout = four()
    got, *rest = run(q, k, v, dout, scale=3000.0)
    compare(got, *rest)
    got, *rest = run(q, k, v, dout, softcap=10.0, scale=3000.0)
    compare(got, *rest)


@pytest.mark.slow
def test_equal_keys_and_one_key():
    q, k, v, dout = four()
    got, *rest = run(q, np.ascontiguousarray(np.broadcast_to(k[:, :, :1], k.shape)), v, dout)
    compare(got, *rest)
    got, *rest = run(q, k[:, :, :1], v[:, :, :1], dout)
    compare(got, *rest)
    assert (np.abs(got.q) < 1e-2).all()  # one key has probability 1 whatever q is


@pytest.mark.parametrize("missing", ["batch", "rows", "keys"])
def test_nothing_to_do(missing):
    q, k, v, dout = four()
    if missing == "batch":
        q, k, v, dout = q[:0], k[:0], v[:0], dout[:0]
    elif missing == "rows":
        q, dout = q[:, :, :0], dout[:, :, :0]
    else:
        k, v = k[:, :, :0], v[:, :, :0]
    sinks = np.ones(2, np.float32)
    got, *rest = run(q, k, v, dout, sinks=sinks)
    compare(got, *rest)
    assert not np.any(got.sinks)


def test_gradients_are_those_that_finite_differences_of_the_forward_give():
    """Each element of q, k, v and sinks moved alone in float64; the kernels are as near as fp16 lets them."""
    q, k, v, dout = four(rows=3, keys=5)
    sinks = draw(2, dtype=np.float32)
    options = AttentionOptions(causal=True, softcap=2.0, sinks=True)
    got, _, bound = run(q, k, v, dout, causal=True, softcap=2.0, sinks=sinks)
    at = {"q": q, "k": k, "v": v, "sinks": sinks}

    def loss(**moved):
        arrays = {name: one.astype(np.float64) for name, one in at.items()} | moved
        return (reference.attention(**arrays, options=options)[0] * dout).sum()

    for name, value in at.items():
        for index in np.ndindex(*value.shape):
            up, down = value.astype(np.float64), value.astype(np.float64)
            up[index] += 1e-4
            down[index] -= 1e-4
            difference = (loss(**{name: up}) - loss(**{name: down})) / 2e-4
            found = float(getattr(got, name)[index])
            assert abs(found - difference) <= getattr(bound, name)[index] + 1e-6, (name, index)


# ---- refusals

Q, K, V, OUT = (np.zeros(shape, HALF) for shape in ((2, 4, 8, 64), (2, 2, 16, 64), (2, 2, 16, 32), (2, 4, 8, 32)))
LSE, STARTS = np.zeros((2, 4, 8), np.float32), np.array([0, 3, 8], np.int32)
DENSE = {"dout": OUT, "q": Q, "k": K, "v": V, "out": OUT, "lse": LSE}
FLAT = {"dout": OUT[0].swapaxes(0, 1), "q": Q[0].swapaxes(0, 1), "k": K[0].swapaxes(0, 1), "v": V[0].swapaxes(0, 1)}
FLAT |= {"out": OUT[0].swapaxes(0, 1), "lse": LSE[0], "cu_seqlens_q": STARTS, "cu_seqlens_k": STARTS}


def fp8(array):
    import ml_dtypes

    return array.astype(ml_dtypes.float8_e4m3fn)


REFUSALS = [
    ({"q": fp8(Q), "k": fp8(K), "v": fp8(V)}, "there is no backward in fp8; convert q, k and v to fp16 or bf16"),
    ({"out": OUT[:, :, :7]}, r"out is \[2, 4, 7, 32\]; pass one of \[2, 4, 8, 32\]"),
    ({"dout": Q}, r"dout is \[2, 4, 8, 64\]; pass one of \[2, 4, 8, 32\]"),
    ({"dout": OUT.astype(np.float32)}, "dout is float32; pass float16"),
    ({"lse": LSE[:, :, :7]}, r"lse is \[2, 4, 7\]; pass one of \[2, 4, 8\]"),
    ({"lse": LSE.astype(HALF)}, "lse is float16; pass float32"),
    ({"lse": np.zeros((2, 8, 4), np.float32).swapaxes(1, 2)}, "lse is not contiguous; pass a contiguous lse"),
    ({"dlse": np.zeros((2, 4, 1), np.float32)}, r"dlse is \[2, 4, 1\]; pass one of \[2, 4, 8\]"),
    ({"layout": "sbhd"}, "layout is 'sbhd'; take bhsd or bshd"),
    ({"k": K[:, :, :, :32]}, "k has heads of 32 elements and q of 64"),
    ({"k": np.zeros((2, 3, 16, 64), HALF), "v": np.zeros((2, 3, 16, 32), HALF)}, "4 query heads over 3 key heads"),
    ({"sinks": np.zeros(3, np.float32)}, r"sinks is \[3\]; pass one logit a query head"),
    ({"scale": -1.0}, "scale is -1.0; give a finite positive number"),
]


@pytest.mark.parametrize(
    "changes,text", REFUSALS, ids=lambda one: str(next(iter(one))) if isinstance(one, dict) else ""
)
def test_refusals(changes, text):
    with amdwarp.emulate("gfx950") as emulation, pytest.raises(UsageError, match=text):
        attention_backward(**(DENSE | changes))
    assert not emulation.records


@pytest.mark.parametrize(
    "changes,text",
    [
        ({"cu_seqlens_q": STARTS[::-1].copy()}, "cu_seqlens_q falls"),
        ({"cu_seqlens_k": np.array([0, 3, 17], np.int32)}, "cu_seqlens_k ends at 17, beyond the 16 that are there"),
        ({"cu_seqlens_k": STARTS[:2]}, "cu_seqlens_k has entries 2 and cu_seqlens_q has 3"),
        ({"max_seqlen_k": 2}, "max_seqlen_k is 2; give the longest sequence's length"),
        ({"lse": LSE[0, :, :5]}, r"lse is \[4, 5\]; pass one of \[4, 8\]"),
    ],
    ids=lambda one: str(next(iter(one))) if isinstance(one, dict) else "",
)
def test_refusals_of_sequences(changes, text):
    with amdwarp.emulate("gfx950") as emulation, pytest.raises(UsageError, match=text):
        varlen_attention_backward(**(FLAT | changes))
    assert not emulation.records


def test_outside_of_the_emulator_cpu_memory_is_refused():
    with pytest.raises(UsageError, match="q is in CPU memory"):
        attention_backward(**DENSE)
