"""One case of the conformance matrix: what it is made of, its inputs, and its check against float64."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields
from typing import Any

import ml_dtypes
import numpy as np
from amdwarp.kernels.attention import attention, decode, paged_attention, reference, varlen_attention
from amdwarp.kernels.attention.options import AttentionOptions

import amdwarp
from amdwarp.asm import parse
from amdwarp.emulator import launch as run_text
from amdwarp.resources import resources
from amdwarp.runtime import compile_for, memory_span
from amdwarp.sanitizer import check
from amdwarp.weave import windows_are

FORMS = ("bhsd", "bshd", "varlen", "paged", "paged_varlen", "decode")
TARGETS = ("gfx942", "gfx950", "gfx1250")
FACTORS: dict[str, tuple[Any, ...]] = {
    "form": FORMS,
    "mask": ("none", "causal", "window", "causal_window", "left_open"),
    "extra": ("none", "sinks", "softcap", "alibi", "bias", "all"),
    "dtype": ("fp16", "bf16", "e4m3", "e5m2"),
    "dims": ((64, 64), (128, 128), (32, 32), (80, 80), (96, 64), (192, 128), (256, 256)),
    "heads": ((2, 2), (4, 2), (3, 1)),
    "lengths": ("equal", "more keys", "more rows", "one key", "empty"),
}
# What schedules take; their kernels have tiles of 256 rows, and of 128 as tasks, and blocks of 64 keys.
SCHEDULED: dict[str, tuple[Any, ...]] = {
    "form": ("bhsd", "bshd"),
    "mask": ("none", "causal"),
    "extra": ("none", "sinks"),
    "dtype": ("fp16", "bf16"),
    "dims": ((64, 64), (128, 128)),
    "heads": ((2, 2), (4, 2), (3, 1)),
    "lengths": ("blocks", "ragged", "fewer keys", "many keys", "one key", "empty"),
    "schedule": ("ping_pong", "intra_wave"),
}
TASKS = SCHEDULED | {
    "mask": ("none", "causal", "window", "causal_window", "left_open"),
    "extra": ("none", "sinks", "softcap"),
    "dims": ((64, 64), (128, 128), (32, 32), (32, 128), (128, 64)),
    "schedule": ("tasks",),
}
SCHEDULE_LENGTHS = {
    "blocks": (256, 320),
    "ragged": (130, 257),
    "fewer keys": (270, 200),
    "many keys": (33, 650),
    "one key": (257, 1),
    "empty": (40, 0),
}
WINDOWS = {"window": (19, 6), "causal_window": (23, 40), "left_open": (None, 9)}
# rows and keys of each of two sequences; the short ones are for a cache
LENGTHS = {
    "equal": ((37, 37), (20, 20)),
    "more keys": ((20, 75), (33, 90)),
    "more rows": ((70, 20), (40, 39)),
    "one key": ((18, 1), (1, 1)),
    "empty": ((21, 0), (0, 40)),
}


@dataclass(frozen=True)
class Case:
    """One point of the matrix, and a seed for its numbers."""

    form: str
    mask: str
    extra: str
    dtype: str
    dims: tuple[int, int]
    heads: tuple[int, int]
    lengths: str
    target: str
    seed: int = 0
    schedule: str | None = None

    def __str__(self) -> str:
        parts = [getattr(self, one.name) for one in fields(self)]
        parts = [part for part in parts if part is not None]
        return "-".join("x".join(map(str, part)) if isinstance(part, tuple) else str(part) for part in parts)


def pairwise(factors: dict[str, tuple[Any, ...]], seed: int) -> list[dict[str, Any]]:
    """Points that hold every pair of values of two factors at least once, greedily chosen."""
    rng = np.random.default_rng(seed)
    names = list(factors)
    open_pairs = {
        (a, b, x, y)
        for a, b in itertools.combinations(range(len(names)), 2)
        for x in range(len(factors[names[a]]))
        for y in range(len(factors[names[b]]))
    }
    points = []
    while open_pairs:
        best: tuple[int, tuple[int, ...], set[Any]] = (-1, (), set())
        start = sorted(open_pairs)[rng.integers(len(open_pairs))]
        for _ in range(40):
            point = [int(rng.integers(len(factors[name]))) for name in names]
            point[start[0]], point[start[1]] = start[2], start[3]
            covered = {
                pair
                for a, b in itertools.combinations(range(len(names)), 2)
                if (pair := (a, b, point[a], point[b])) in open_pairs
            }
            if len(covered) > best[0]:
                best = (len(covered), tuple(point), covered)
        open_pairs -= best[2]
        points.append({name: factors[name][at] for name, at in zip(names, best[1], strict=True)})
    return points


def matrix() -> list[Case]:
    """Every case: pairwise coverage for each target, twice, from different seeds; no two alike."""
    cases = []
    for seed, target in itertools.product((0, 1), TARGETS):
        for at, point in enumerate(pairwise(FACTORS, TARGETS.index(target) + 10 * seed)):
            if point["extra"] == "bias" and point["form"] not in ("bhsd", "bshd"):
                point["extra"] = ("sinks", "softcap", "alibi")[at % 3]
            cases.append(Case(**point, target=target, seed=seed))
    return list(dict.fromkeys(cases))


def scheduled_matrix() -> list[Case]:
    """Every case of a schedule other than the plain one: pairwise coverage, twice, from different seeds."""
    cases = []
    for seed, (factors, target) in itertools.product((0, 1), ((SCHEDULED, "gfx950"), (TASKS, "gfx1250"))):
        cases += [Case(**point, target=target, seed=seed) for point in pairwise(factors, 20 + seed)]
    return list(dict.fromkeys(cases))


def dtype_of(case: Case) -> Any:
    """The numpy type of a case's elements: CDNA3 has fp8 formats of its own."""
    fnuz = case.target == "gfx942"
    return {
        "fp16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "e4m3": ml_dtypes.float8_e4m3fnuz if fnuz else ml_dtypes.float8_e4m3fn,
        "e5m2": ml_dtypes.float8_e5m2fnuz if fnuz else ml_dtypes.float8_e5m2,
    }[case.dtype]


@dataclass
class Inputs:
    """Sequences of a case, each with its rows and keys, and the arrays that are options."""

    q: list[Any]
    k: list[Any]
    v: list[Any]
    options: AttentionOptions
    extras: dict[str, Any]


def draw(case: Case) -> Inputs:
    """Random sequences: rows (rows, heads, dim), keys and values alike."""
    rng = np.random.default_rng((case.seed, *map(ord, str(case))))
    kind = dtype_of(case)
    heads, key_heads = case.heads
    pairs = [SCHEDULE_LENGTHS[case.lengths]] if case.schedule else list(LENGTHS[case.lengths])
    if not case.schedule and case.form in ("bhsd", "bshd"):
        pairs = [pairs[0]] * 2
    if case.form in ("paged", "decode"):
        pairs = [(3, keys) for _, keys in pairs] if case.seed else [(1, keys) for _, keys in pairs]

    def some(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(kind)

    q = [some(rows, heads, case.dims[0]) for rows, _ in pairs]
    k = [some(keys, key_heads, case.dims[0]) for _, keys in pairs]
    v = [some(keys, key_heads, case.dims[1]) for _, keys in pairs]
    extras: dict[str, Any] = {}
    if case.extra in ("sinks", "all"):
        extras["sinks"] = rng.standard_normal(heads).astype(np.float32)
    if case.extra in ("alibi", "all"):
        extras["alibi"] = rng.uniform(0.01, 0.5, heads).astype(np.float32)
    if case.extra in ("bias", "all") and case.form in ("bhsd", "bshd"):
        extras["bias"] = rng.standard_normal((heads, pairs[0][0], pairs[0][1])).astype(np.float32)
    options = AttentionOptions(
        causal=case.mask in ("causal", "causal_window"),
        window=WINDOWS.get(case.mask),
        softcap=3.0 if case.extra in ("softcap", "all") else None,
        scale=0.3 if case.seed else None,
    )
    return Inputs(q, k, v, options, extras)


def call(case: Case, inputs: Inputs) -> tuple[list[Any], list[Any]]:
    """Run the kernel of a case's form: out (rows, heads, dim of v) and lse (heads, rows) of each sequence."""
    q, k, v, o = inputs.q, inputs.k, inputs.v, inputs.options
    named = {"causal": o.causal, "window": o.window, "softcap": o.softcap, "scale": o.scale, "return_lse": True}
    named |= inputs.extras
    if case.form in ("bhsd", "bshd"):
        stacked = [np.stack(x) for x in (q, k, v)]
        if case.form == "bhsd":
            stacked = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in stacked]
        out, lse = attention(*stacked, layout=case.form, schedule=case.schedule, **named)
        return list(out.swapaxes(1, 2) if case.form == "bhsd" else out), list(lse)
    starts = [np.cumsum([0, *(len(x) for x in xs)]).astype(np.int32) for xs in (q, k)]
    if case.form == "varlen":
        out, lse = varlen_attention(*map(np.concatenate, (q, k, v)), *starts, **named)
    lengths = np.array([len(x) for x in k], np.int32 if case.seed else np.int64)
    if case.form == "decode":
        most = int(lengths.max()) + 5
        caches = [np.full((len(k), most, *x[0].shape[1:]), np.nan).astype(x[0].dtype) for x in (k, v)]
        for cache, parts in zip(caches, (k, v), strict=True):
            for one, part in enumerate(parts):
                cache[one, : len(part)] = part
        out, lse = decode(np.stack(q), *caches, lengths, splits=None if case.seed else 3, **named)
        return list(out), list(lse)
    if case.form.startswith("paged"):
        k_cache, v_cache, table = paged(k, v, 16 if case.seed else 8)
    if case.form == "paged":
        out, lse = paged_attention(np.stack(q), k_cache, v_cache, table, lengths, splits=2, **named)
        return list(out), list(lse)
    if case.form == "paged_varlen":
        out, lse = paged_attention(np.concatenate(q), k_cache, v_cache, table, lengths, cu_seqlens_q=starts[0], **named)
    cuts = starts[0][1:-1]
    return np.split(out, cuts), np.split(lse, cuts, axis=1)


def paged(k: list[Any], v: list[Any], page: int) -> tuple[Any, Any, Any]:
    """Caches with the pages of all sequences shuffled, NaN wherever no key is, and entries that point nowhere."""
    most = max(1, max(-(-len(x) // page) for x in k))
    pages = len(k) * most + 1
    table = np.full((len(k), most), 10**9, np.int32)
    caches = [np.full((pages, page, *x[0].shape[1:]), np.nan).astype(x[0].dtype) for x in (k, v)]
    free = iter(np.random.default_rng(5).permutation(pages))
    for one in range(len(k)):
        for at in range(-(-len(k[one]) // page)):
            table[one, at] = number = next(free)
            for cache, parts in zip(caches, (k, v), strict=True):
                piece = parts[one][at * page : (at + 1) * page]
                cache[number, : len(piece)] = piece
    return caches[0], caches[1], table


def compare(case: Case, inputs: Inputs, outs: list[Any], lses: list[Any]) -> float:
    """Assert that results are within tolerance; the largest error as a fraction of it."""
    worst = 0.0
    extras = inputs.extras
    for q, k, v, out, lse in zip(inputs.q, inputs.k, inputs.v, outs, lses, strict=True):
        one_q, one_k, one_v = (x.swapaxes(0, 1)[None] for x in (q, k, v))
        expected, expected_lse = reference.attention(one_q, one_k, one_v, inputs.options, **extras)
        bound, lse_bound = reference.tolerance(one_q, one_k, one_v, inputs.options, out_dtype=str(out.dtype), **extras)
        got, got_lse = out.swapaxes(0, 1)[None].astype(np.float64), lse[None].astype(np.float64)
        assert got.shape == expected.shape and got_lse.shape == expected_lse.shape
        nothing = np.isneginf(expected_lse)
        assert (np.isneginf(got_lse) == nothing).all()
        assert (got[nothing] == 0).all()
        error = np.abs(got - expected) / bound
        lse_error = np.abs(np.where(nothing, 0, got_lse) - np.where(nothing, 0, expected_lse)) / lse_bound
        assert np.nan_to_num(error, nan=np.inf).max(initial=0) <= 1, f"out is {error.max():.2f} times the bound away"
        assert np.nan_to_num(lse_error, nan=np.inf).max(initial=0) <= 1, f"lse is {lse_error.max():.2f} times away"
        worst = max(worst, float(error.max(initial=0)), float(lse_error.max(initial=0)))
    return worst


SAMPLE = 4  # workgroups that are run again: what one does depends on its own sequence alone


def verify(case: Case, seeds: int = 5) -> float:
    """Emulate a case and compare it; then some workgroups of each launch under the sanitizer and in other orders.

    A schedule's kernel must not spill either, and loses no write. Of the plain kernel, lost writes are no race, and are
    let pass: LDS bytes that stock code generation stores and then does not read. They were followed to two places.
    Stock pipelining stores P of a last tile even where a loop has no iteration, and only the read is left out; and LLVM
    moves the read of a row vector, which is converted ahead of a loop, behind the branch around it. (A branch around
    each walk of the kernel mends the first, and aborts LLVM on gfx942, Triton 3.9.)
    """
    inputs = draw(case)
    with amdwarp.emulate(case.target) as emulation:
        outs, lses = call(case, inputs)
    worst = compare(case, inputs, outs, lses)
    for launch, compiled, _ in emulation.records:
        some = min(2 if case.schedule else SAMPLE, int(np.prod(launch.grid)))
        results = [value for name, value in launch.args.items() if name in ("out_ptr", "lse_ptr")]
        before = [value.tobytes() for value in results]
        with windows_are("off"):
            _, values = compile_for(launch, case.target)
        program, shared = parse(compiled.asm["amdgcn"]), compiled.metadata.shared
        report = check(program, values, launch.grid, workgroups=some, lds_bytes=shared)
        if case.schedule:
            assert report.ok, str(report)
            used = resources(compiled.asm["amdgcn"])
            # tasks keep some scalars in lanes of vector registers
            assert (used.vgpr_spills if case.schedule == "tasks" else used.spills) == 0, used
        assert not [one for one in report.findings if one.kind != "lds-lost-write"], str(report)
        spans = [memory_span(value) if isinstance(value, np.ndarray) else value for value in values]
        for seed in range(1, seeds):
            run_text(program, spans, launch.grid, workgroups=some, seed=seed, lds_bytes=shared)
            assert [value.tobytes() for value in results] == before, f"seed {seed} gives other bits"
    return worst
