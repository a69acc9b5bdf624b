"""What the functions refuse, by name, and the forms that they take without a kernel."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from amdwarp.kernels.attention import PlainSchedule, attention, decode, paged_attention, varlen_attention

import amdwarp
from amdwarp.errors import UsageError

HALF = np.float16


def zeros(*shape, dtype=HALF):
    return np.zeros(shape, dtype)


Q, K, V = zeros(2, 4, 8, 64), zeros(2, 2, 16, 64), zeros(2, 2, 16, 32)
STARTS = np.array([0, 3, 8], np.int32)
CACHE, TABLE, COUNTS = zeros(6, 16, 2, 64), np.array([[0, 1], [2, 3]], np.int32), np.array([17, 32], np.int32)


def with_changes(function, defaults, changes):
    return function(**{**defaults, **changes})


def dense(**changes):
    return with_changes(attention, {"q": Q, "k": K, "v": V}, changes)


def varlen(**changes):
    flat = {"q": zeros(8, 4, 64), "k": zeros(8, 2, 64), "v": zeros(8, 2, 64)}
    return with_changes(varlen_attention, flat | {"cu_seqlens_q": STARTS, "cu_seqlens_k": STARTS}, changes)


def paged(**changes):
    caches = {"k_cache": CACHE, "v_cache": CACHE, "block_table": TABLE, "lengths": COUNTS}
    return with_changes(paged_attention, {"q": zeros(2, 1, 4, 64)} | caches, changes)


def contiguous(**changes):
    return with_changes(decode, {"q": zeros(2, 1, 4, 64), "k": zeros(2, 9, 2, 64), "v": zeros(2, 9, 2, 64)}, changes)


def eight(**changes):
    return dense(
        **{name: one.astype(ml_dtypes.float8_e4m3fn) for name, one in (("q", Q), ("k", K), ("v", V))}, **changes
    )


def overlapping():
    return np.lib.stride_tricks.as_strided(zeros(4096), (2, 4, 8, 32), (64, 64, 64, 2))


MEMORY = zeros(64, 32)
READ_ONLY = zeros(2, 4, 8, 32)
READ_ONLY.flags.writeable = False
REFUSALS = [
    (dense, {"layout": "sbhd"}, "attention: layout is 'sbhd'; take bhsd or bshd"),
    (dense, {"q": [1]}, "q is a list; pass a torch tensor or a numpy array"),
    (dense, {"q": np.ma.masked_array(Q)}, "q is a masked array, whose mask no kernel sees; pass q.filled(0)"),
    (dense, {"q": Q.astype(np.float32)}, "q is float32; pass float16 or bfloat16 or"),
    (dense, {"q": Q[0]}, "q has 3 dimensions, not 4; reshape it"),
    (dense, {"q": Q[..., ::2], "k": K[..., :32]}, "q has elements 2 apart in its last dimension; copy q"),
    (dense, {"q": Q[:, ::-1]}, "q has a negative stride; copy q"),
    (dense, {"k": K.astype(ml_dtypes.bfloat16)}, "k is bfloat16 and q is float16; convert one of them"),
    (dense, {"q": zeros(2, 4, 8, 24), "k": zeros(2, 2, 16, 24)}, "q has heads of 24 elements"),
    (dense, {"v": zeros(2, 2, 16, 264)}, "v has heads of 264 elements"),
    (dense, {"v": zeros(2, 2, 16, 36)}, "v has heads of 36 elements"),
    (dense, {"k": zeros(2, 2, 16, 32)}, "k has heads of 32 elements and q of 64; only v may have others"),
    (dense, {"k": zeros(3, 2, 16, 64)}, "k has batch 3 and q has 2; they must be equal"),
    (dense, {"v": zeros(2, 2, 15, 64)}, "v has keys 15 and k has 16; they must be equal"),
    (dense, {"k": zeros(2, 3, 16, 64), "v": zeros(2, 3, 16, 64)}, "4 query heads over 3 key heads"),
    (dense, {"causal": 1}, "attention: causal is 1; give True or False"),
    (dense, {"softcap": -1.0}, "softcap is -1.0"),
    (dense, {"softcap": 1e30}, "softcap is 1e+30; give one up to 1000, or None for no cap"),
    (dense, {"sinks": np.zeros(3, np.float32)}, "sinks is [3]; pass one logit a query head, [4]"),
    (dense, {"sinks": np.zeros(4)}, "sinks is float64; pass float32"),
    (dense, {"alibi": np.zeros(3, np.float32)}, "alibi is [3], which does not fill [2, 4]"),
    (dense, {"bias": zeros(8, 15)}, "bias is [8, 15], which does not fill [2, 4, 8, 16]"),
    (dense, {"bias": np.zeros((8, 16), bool)}, "bias is bool; pass float16 or bfloat16 or float32"),
    (dense, {"q_scale": 2.0}, "q_scale is given and q is float16; leave q_scale out: scales are for fp8"),
    (dense, {"out": zeros(2, 4, 8, 64)}, "out is [2, 4, 8, 64]; pass one of [2, 4, 8, 32], or none"),
    (dense, {"out": zeros(2, 4, 8, 32, dtype=np.float32)}, "out is float32; pass float16"),
    (dense, {"out": READ_ONLY}, "out is read-only; pass a writeable one, or none"),
    (dense, {"out": overlapping()}, "elements of out lie over each other"),
    (dense, {"bias": MEMORY[:8, :16], "out": MEMORY.reshape(2, 4, 8, 32)}, "out lies over bias in memory"),
    (dense, {"layout": ["bhsd"]}, "attention: layout is ['bhsd']; take bhsd or bshd"),
    (dense, {"scale": 1e39}, "scale is 1e+39, which fp32 cannot hold; give one up to 2**127"),
    (dense, {"scale": 10**400}, "which fp32 cannot hold; give one up to 2**127"),
    (dense, {"softcap": 1e-39}, "softcap is 1e-39, which fp32 cannot hold; give one from 2**-126 on"),
    (eight, {"q_scale": 1e39}, "q_scale is 1e+39; give a finite number that fp32 can hold"),
    (dense, {"out": Q[..., :32]}, "out lies over q in memory; pass one with memory of its own"),
    (dense, {"schedule": "fast"}, "schedule is 'fast'; take one of"),
    (dense, {"schedule": PlainSchedule(block_m=48)}, "PlainSchedule: block_m = 48 is none of 16, 32, 64, 128"),
    (dense, {"schedule": PlainSchedule(num_warps=3)}, "num_warps = 3 is no power of two from 1 to 8"),
    (dense, {"schedule": PlainSchedule(splits=0)}, "splits = 0 is no int of at least 1"),
    (varlen, {"cu_seqlens_q": np.array([0, 5, 3], np.int32)}, "varlen_attention: cu_seqlens_q falls, or begins"),
    (varlen, {"cu_seqlens_k": np.array([0, 5, 9], np.int32)}, "cu_seqlens_k ends at 9, beyond the 8 that are there"),
    (varlen, {"cu_seqlens_k": np.array([0, 8], np.int32)}, "cu_seqlens_k has entries 2 and cu_seqlens_q has 3"),
    (varlen, {"cu_seqlens_q": np.zeros(0, np.int32)}, "cu_seqlens_q is empty; give one"),
    (varlen, {"cu_seqlens_q": np.zeros(3, np.int16)}, "cu_seqlens_q is int16; pass int32 or int64"),
    (varlen, {"max_seqlen_q": 4}, "max_seqlen_q is 4; give the longest sequence's length, 5, or None"),
    (varlen, {"window": 3}, "varlen_attention: window is 3"),
    (paged, {"lengths": np.array([1, 33], np.int32)}, "lengths has 33; give lengths from 0 to 32"),
    (paged, {"lengths": np.array([-1, 3], np.int32)}, "lengths has -1"),
    (paged, {"block_table": np.array([[0, 6], [2, 3]], np.int32)}, "block_table has page 6; give pages from 0 to 5"),
    (paged, {"k_cache": zeros(6, 12, 2, 64), "v_cache": zeros(6, 12, 2, 64)}, "of 12 keys; make it a power of two"),
    (paged, {"q": zeros(2, 9, 4, 64)}, "q has 9 rows a sequence; pass 1 to 8"),
    (paged, {"q": zeros(3, 1, 4, 64)}, "q has batch 3 and block_table has 2"),
    (paged, {"splits": 33}, "splits is 33; give a number from 1 to 32, or None"),
    (paged, {"q": zeros(8, 4, 64), "cu_seqlens_q": STARTS, "splits": 2}, "splits is 2 with cu_seqlens_q; leave it out"),
    (contiguous, {"lengths": np.array([10, 0], np.int32)}, "decode: lengths has 10; give lengths from 0 to 9"),
    (contiguous, {"v": zeros(2, 8, 2, 64)}, "v has keys 8 and k has 9"),
]  # fmt: skip


@pytest.mark.parametrize("function,changes,text", REFUSALS, ids=[text[:60] for _, _, text in REFUSALS])
def test_refusals(function, changes, text):
    with amdwarp.emulate("gfx950"), pytest.raises(UsageError) as caught:
        function(**changes)
    assert text in str(caught.value)


def test_refuses_fp8_of_another_gpu():
    fnuz = zeros(1, 1, 8, 64, dtype=ml_dtypes.float8_e4m3fnuz)
    with (
        amdwarp.emulate("gfx950"),
        pytest.raises(UsageError, match="q is float8_e4m3fnuz, which gfx950 does not multiply"),
    ):
        attention(fnuz, fnuz, fnuz)
    with amdwarp.emulate("gfx1250"), pytest.raises(UsageError, match="num_warps = 1 is no power of two from 2 to 8"):
        dense(schedule=PlainSchedule(num_warps=1))


def test_refuses_cpu_memory_outside_of_the_emulator():
    with pytest.raises(UsageError, match="q is in CPU memory; move it to an AMD GPU, or run inside"):
        dense()


def test_nothing_to_compute_launches_nothing():
    with amdwarp.emulate("gfx950") as emulation:
        out, lse = attention(zeros(0, 4, 8, 64), zeros(0, 2, 16, 64), zeros(0, 2, 16, 32), return_lse=True)
        assert out.shape == (0, 4, 8, 32) and lse.shape == (0, 4, 8)
        out = attention(zeros(2, 4, 0, 64), K, V)
        assert out.shape == (2, 4, 0, 32)
        out, lse = varlen_attention(
            zeros(3, 2, 64), zeros(0, 1, 64), zeros(0, 1, 64), STARTS[:1], STARTS[:1], return_lse=True
        )
        assert (out == 0).all() and np.isneginf(lse).all()
        assert varlen(q=zeros(0, 4, 64), cu_seqlens_q=np.zeros(3, np.int32)).shape == (0, 4, 64)
        nobody = {"block_table": TABLE[:0], "lengths": COUNTS[:0]}
        assert paged(q=zeros(0, 1, 4, 64), **nobody).shape == (0, 1, 4, 64)
    assert not emulation.records


def test_a_longest_sequence_beyond_all_launches_no_more():
    with amdwarp.emulate("gfx950") as emulation:
        varlen(max_seqlen_q=2**40)
        varlen(max_seqlen_q=np.int64(8))
    assert [launch.grid for launch, _, _ in emulation.records] == [(1, 2, 2)] * 2


@pytest.mark.parametrize("heads", [slice(None, None, 2), slice(0, 1)], ids=["strided", "one for all"])
def test_sinks_and_slopes_of_any_strides(heads):
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal(x.shape).astype(HALF) for x in (Q, K, V))
    sinks, alibi = rng.standard_normal(8).astype(np.float32), rng.random((2, 8)).astype(np.float32)
    sinks, alibi = np.broadcast_to(sinks[heads], 4), alibi[:, heads]
    with amdwarp.emulate("gfx950"):
        found = attention(q, k, v, sinks=sinks, alibi=alibi)
        wanted = attention(q, k, v, sinks=sinks.copy(), alibi=np.broadcast_to(alibi, (2, 4)).copy())
    np.testing.assert_array_equal(found, wanted)


def test_scalars_of_numpy_are_numbers():
    small = [x.astype(ml_dtypes.float8_e4m3fn) for x in (Q + HALF(1), K + HALF(1), V + HALF(1))]
    one, window = np.float32(0.5), (np.int64(3), None)
    with amdwarp.emulate("gfx950"):
        found = attention(*small, scale=one, window=window, causal=np.True_, q_scale=one, v_scale=np.array(one))
        wanted = attention(*small, scale=0.5, window=(3, None), causal=True, q_scale=0.5, v_scale=0.5)
    np.testing.assert_array_equal(found, wanted)


def test_refuses_views_that_memory_does_not_hold():
    torch = pytest.importorskip("torch")
    tensors = {name: torch.from_numpy(one) for name, one in (("q", Q), ("k", K), ("v", V))}
    with amdwarp.emulate("gfx950"), pytest.raises(UsageError, match="k is a negated or conjugated view"):
        dense(**tensors | {"k": torch._neg_view(tensors["k"])})
