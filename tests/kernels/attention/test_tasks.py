"""Attention as tasks on gfx1250: numbers, rescaling, races, refusals, mutations of each barrier, phase and wait."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from amdwarp.kernels.attention import TasksSchedule, attention, reference, varlen_attention
from amdwarp.kernels.attention.options import AttentionOptions
from amdwarp.lowering.analysis.tasks import ARRIVE, WAIT
from amdwarp.lowering.bridge import require_triton
from task_mutations import Edit, drop, flip, mutated, recount, refused_or

import amdwarp
from amdwarp.errors import UsageError
from amdwarp.resources import resources
from amdwarp.runtime import compile_for, run
from amdwarp.sanitizer import Report, check

Array = np.ndarray[Any, Any]
NEW = require_triton().version >= (3, 9)


def draw(*shape: int, dtype: Any = np.float16, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def compute(q: Array, k: Array, v: Array, schedule: Any = "tasks", **options: Any) -> tuple[Any, Array, Array]:
    """Emulate and compare with float64; the launch, the result and the log-sum-exp."""
    sinks = options.pop("sinks", None)
    with amdwarp.emulate("gfx1250") as emulation:
        out, lse = attention(q, k, v, sinks=sinks, return_lse=True, schedule=schedule, **options)
    given = AttentionOptions(**options)
    expected, expected_lse = reference.attention(q, k, v, given, sinks=sinks)
    bound, lse_bound = reference.tolerance(q, k, v, given, out_dtype=str(out.dtype), sinks=sinks)
    assert np.nan_to_num(np.abs(out.astype(np.float64) - expected) / bound, nan=np.inf).max() <= 1
    nothing = np.isneginf(expected_lse)
    assert (np.isneginf(lse) == nothing).all()
    assert (np.abs(np.where(nothing, 0, lse) - np.where(nothing, 0, expected_lse)) <= lse_bound).all()
    assert (out.astype(np.float64)[nothing] == 0).all()
    assert resources(emulation.records[-1][1].asm["amdgcn"]).vgpr_spills == 0
    return emulation.records[-1], out, lse


def test_heads_share_keys_and_the_rings_go_round() -> None:
    (launch, compiled, _), _, _ = compute(draw(1, 4, 150, 128), draw(1, 2, 456, 128), draw(1, 2, 456, 128))
    assert launch.kernel.__module__.endswith("tasks_gfx1250")
    names = [(one["name"], one["waves"]) for one in compiled.metadata.tasks]
    assert names == [("default", 4), ("task 0", 4), ("task 1", 1), ("task 1 copy 1", 1)]


def test_causal_with_sinks_and_rows_that_see_nothing() -> None:
    compute(draw(1, 2, 270, 64), draw(1, 1, 200, 64), draw(1, 1, 200, 64), causal=True, sinks=draw(2, dtype=np.float32))


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"causal": True},
    {"window": (40, 10)},
    {"causal": True, "window": (70, None)},
    {"causal": True, "softcap": 3.0, "scale": 0.3},
)


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["fp16", "bf16"])
def test_forms(dtype: Any, options: dict[str, Any]) -> None:
    for rows, keys in ((1, 1), (128, 64), (300, 500), (130, 64), (257, 1), (50, 0), (200, 100), (65, 129)):
        sinks = draw(2, dtype=np.float32) if rows % 2 == 0 else None
        q, k, v = (draw(2, heads, n, 64, dtype=dtype) for heads, n in ((2, rows), (1, keys), (1, keys)))
        compute(q, k, v, sinks=sinks, **options)


@pytest.mark.slow
@pytest.mark.parametrize("dim", [32, 64, 128])
@pytest.mark.parametrize("dim_v", [32, 64, 128])
def test_heads_of_v_may_be_others(dim: int, dim_v: int) -> None:
    compute(draw(1, 2, 130, dim), draw(1, 1, 200, dim), draw(1, 1, 200, dim_v))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"block_n": 32},
        {"lead": 1, "probabilities": 1},
        {"lead": 3, "ring": 5, "ahead": 1},
        {"ring": 2, "ahead": 1, "lead": 4},
        {"waves_m": 2, "waves_n": 2},
        {"block_m": 64, "pad": 32},
        {"lazy": False},
        {"threshold": 0.0},
    ],
    ids=str,
)
def test_schedules(changes: dict[str, Any]) -> None:
    schedule = dataclasses.replace(TasksSchedule(), **changes)
    for options in ({}, {"causal": True}):
        compute(draw(1, 2, 200, 64), draw(1, 1, 500, 64), draw(1, 1, 500, 64), schedule=schedule, **options)


def test_logits_that_grow_are_rescaled() -> None:
    """Each block's largest logit is 30 above the one before; then all rows are alike; then +-1e4."""
    q, k, v = np.ones((1, 1, 128, 64), np.float16), np.zeros((1, 1, 256, 64), np.float16), draw(1, 1, 256, 64)
    k[0, 0] = (np.arange(256) // 64 * 30.0 / 8.0)[:, None].astype(np.float16)
    compute(q, k, v)
    compute(q, np.ones_like(k), v)
    q[0, 0, ::2] = -1.0
    k[0, 0] = np.where(np.arange(256) % 2, 1250.0, -1250.0)[:, None]
    compute(q, k, v)


@pytest.mark.skipif(not NEW, reason="Triton 3.8 rescales with each block")
def test_o_is_left_alone_where_no_row_grows() -> None:
    """What an MFMA wave runs does not depend on values, but for the rescaling: keys of zeros skip it."""
    steps = []
    for keys in (np.zeros((1, 1, 512, 64), np.float16), np.repeat(np.arange(8), 64)[None, None, :, None] * 4.0):
        k = np.broadcast_to(keys, (1, 1, 512, 64)).astype(np.float16)
        (_, _, result), _, _ = compute(np.ones((1, 1, 128, 64), np.float16), k, draw(1, 1, 512, 64))
        steps.append(result.instructions)
    # 8 blocks, 4 waves, 64 multiplications in pairs
    assert steps[1] - steps[0] > 7 * 4 * 20


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    q, k = torch.randn(1, 130, 2, 64, dtype=torch.float16), torch.randn(1, 70, 2, 64, dtype=torch.float16)
    with amdwarp.emulate("gfx1250"):
        out = attention(q, k, k, layout="bshd", schedule="tasks")
    expected, _ = reference.attention(*(x.transpose(1, 2).numpy() for x in (q, k, k)), AttentionOptions())
    assert np.abs(out.transpose(1, 2).numpy() - expected).max() < 2e-3


# ---- refusals


def test_refusals() -> None:
    half = draw(1, 1, 128, 64)
    apart = np.zeros((1, 1, 128, 68), np.float16)[..., :64]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"bias": np.zeros((128, 128), np.float32)}, "attention as tasks has no bias"),
        ({"alibi": np.zeros(1, np.float32)}, "attention as tasks has no alibi"),
        ({"q": draw(1, 1, 128, 96), "k": draw(1, 1, 128, 96)}, "takes fp16 and bf16 heads of 32, 64 or 128 elements"),
        ({"v": draw(1, 1, 128, 256)}, "takes fp16 and bf16 heads of 32, 64 or 128 elements"),
        ({name: half.astype(ml_dtypes.float8_e4m3fn) for name in "qkv"}, "takes fp16 and bf16 heads of 32, 64 or 128"),
        ({"k": apart}, "rows that are 16-byte aligned, and those of k are not"),
        ({"schedule": TasksSchedule(ring=2)}, "2 copies under way need a ring of more than 2 slots, not 2"),
    ]
    for changes, text in cases:
        with amdwarp.emulate("gfx1250"), pytest.raises(UsageError) as caught:
            attention(**{"q": half, "k": half, "v": half, "schedule": "tasks"} | changes)
        assert text in str(caught.value), str(caught.value)
    starts = np.array([0, 128], np.int32)
    with amdwarp.emulate("gfx1250"), pytest.raises(UsageError, match="attention as tasks has no cu_seqlens_q"):
        varlen_attention(*[half[0].swapaxes(0, 1)] * 3, starts, starts, schedule="tasks")
    for arch in ("gfx942", "gfx950"):
        with amdwarp.emulate(arch), pytest.raises(UsageError, match=f"made for gfx1250, not for {arch}"):
            attention(half, half, half, schedule="tasks")


def test_constraints() -> None:
    assert TasksSchedule().constraints("gfx1250") == []
    for change, text in (
        ({"block_m": 256}, "block_m = 256 is none of 64, 128"),
        ({"block_n": True}, "block_n = True is none of 32, 64"),
        ({"waves_n": 4}, "waves_n = 4 is none of 1, 2"),
        ({"dim": 96}, "dim = 96 is none of 32, 64, 128"),
        ({"pad": 0}, "pad = 0 is none of 16, 32"),
        ({"lead": 0}, "lead = 0 is no int of at least 1"),
        ({"lazy": 1}, "lazy = 1 is no bool"),
        ({"threshold": "8"}, "threshold = '8' is no number"),
        ({"threshold": 20.0}, "threshold = 20.0 leaves 0 to 14, where P fits into fp16"),
        ({"ahead": 3}, "3 copies under way need a ring of more than 3 slots, not 3"),
        ({"ring": 7}, "the rings take 351584 bytes of LDS, gfx1250 has 327680"),
        ({"waves_m": 2}, "2 waves multiply, and Triton runs tasks beside a multiple of 4 only"),
    ):
        wrong = dataclasses.replace(TasksSchedule(), **change).constraints("gfx1250")
        assert any(text in one for one in wrong), (change, wrong)


# ---- races


def launched(causal: bool = False) -> tuple[Any, Array]:
    """A launch whose rings all go round twice, and the array it writes."""
    out = np.zeros((1, 1, 100, 64), np.float16)
    with amdwarp.emulate("gfx1250") as emulation:
        attention(
            draw(1, 1, 100, 64), draw(1, 1, 500, 64), draw(1, 1, 500, 64), causal=causal, schedule="tasks", out=out
        )
    return emulation.records[-1][0], out


def judged(launch: Any, seeds: int) -> Report:
    compiled, values = compile_for(launch, "gfx1250")
    return check(compiled, values, launch.grid, seeds=seeds)


def test_no_races_over_two_interleavings() -> None:
    launch, out = launched()
    before = out.tobytes()
    report = judged(launch, 2)
    assert report.ok, str(report)
    assert out.tobytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_ten_interleavings_without_races_and_bit_for_bit(causal: bool) -> None:
    launch, out = launched(causal)
    before = out.tobytes()
    report = judged(launch, 10)
    assert report.ok, str(report)
    for seed in range(10):
        out[:] = 0
        with amdwarp.emulate("gfx1250", seed=seed):
            run(launch)
        assert out.tobytes() == before


# ---- mutations

# MFMA: K before the loop; K, S, P and V in it; 1 / sum. Softmax: S, P, P for 1 / sum. Load: K, V.
WAITS = ("k ahead", "k", "s empty", "p", "v", "last p", "s", "p empty", "last p empty", "k empty", "v empty")
ARRIVALS = ("k ahead", "s ahead", "k", "s", "p", "v", "s read", "p given", "last p", "k given", "v given")
COUNTS = ("k full", "k empty", "v full", "v empty", "s full", "s empty", "p full", "p empty")


def mutations() -> dict[str, Edit]:
    found: dict[str, Edit] = {}
    for at, name in enumerate(WAITS):
        found[f"wait for {name} dropped"] = drop(WAIT, at)
        found[f"phase of {name} flipped"] = flip(at)
    for at, name in enumerate(ARRIVALS):
        found[f"arrival {name} dropped"] = drop(ARRIVE, at)
    for at, name in enumerate(COUNTS):
        found[f"{name} counts one more"] = recount(at, 1)
        if name not in ("k full", "v full"):  # 0 arrivals are none
            found[f"{name} counts one less"] = recount(at, -1)
    found["copies of K not waited for"] = drop("amdg.async_tdm_wait", 0)
    found["copies of V not waited for"] = drop("amdg.async_tdm_wait", 2)
    return found


def caught(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seeds: int) -> bool:
    """Whether the sanitizer finds something in a mutant; mutants stay out of the cache."""
    launch, _ = launched()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    with mutated(monkeypatch, mutations()[name]):
        report = judged(launch, seeds)
    return not report.ok


@pytest.mark.slow
@pytest.mark.parametrize("name", mutations())
def test_mutations_are_caught(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert refused_or(lambda: caught(name, monkeypatch, tmp_path, 3))


def test_a_flipped_phase_is_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert caught("phase of s empty flipped", monkeypatch, tmp_path, 1)
