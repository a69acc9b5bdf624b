"""The conformance matrix: form x layout x epilogue x schedule x target x shape, every legal pair of values covered.

Each case runs in the emulator under the sanitizer and is compared with float64 within `reference.expect`'s bound. The
matrix is drawn once from a fixed seed. The default run takes a small part of it; ``-m slow`` the whole.
"""

from __future__ import annotations

import itertools
import random
import zlib

import ml_dtypes
import numpy as np
import pytest
from amdwarp.kernels import gemm
from amdwarp.kernels.gemm import PlainConfig, reference
from amdwarp.kernels.gemm.dtypes import FORMATS, fp8_for

import amdwarp

pytest.importorskip("triton")

FACTORS = {
    "target": ("gfx942", "gfx950", "gfx1250"),
    "form": (
        *("fp16", "bf16", "fp32", "xf32", "fp16 batched", "bf16 shuffled", "fp16 rows", "bf16 columns"),
        *("e4m3", "e5m2", "e4m3 e5m2", "e4m3 lines", "e4m3 blocks", "i8", "i8 lines"),
        *("mx e4m3 e4m3", "mx e5m2 e2m1", "mx e2m1 e2m1", "mx e2m3 e3m2", "mx e3m2 e4m3"),
    ),
    "layout": ("nn", "nt", "tn", "tt", "strided"),
    "epilogue": (
        *("none", "scale", "bias", "bias row", "relu", "gelu", "gelu_tanh", "silu", "swiglu", "residual", "all"),
        *("out float32", "out fp8"),
    ),
    "schedule": ("tiles", "persistent", "split_k", "atomic", "stream_k", "scheduled"),
    "shape": (
        (1, 2, 32),
        (1, 34, 96),
        (16, 16, 64),
        (33, 50, 160),
        (40, 66, 320),
        (65, 18, 32),
        (20, 48, 1),
        (7, 10, 37),
    ),
}
CASES = 440


def legal(case):
    """Whether a case, or a part of one, is something that the API takes."""
    form, target, schedule = case.get("form", ""), case.get("target"), case.get("schedule")
    epilogue, layout, shape = case.get("epilogue"), case.get("layout"), case.get("shape")
    grouped = form in ("fp16 rows", "bf16 columns")
    rules = (
        form != "xf32" or target in (None, "gfx942"),
        not form.startswith("mx") or (target != "gfx942" and (shape is None or shape[2] % 32 == 0)),
        form != "bf16 shuffled" or layout in (None, "nt"),
        form != "bf16 shuffled" or epilogue != "swiglu",
        not grouped or (schedule in (None, "tiles", "persistent") and epilogue not in ("residual", "all", "bias row")),
        form != "bf16 columns" or epilogue in (None, "none", "scale", "out float32", "out fp8"),
        form != "i8" or epilogue in (None, "none"),
        not form.startswith("i8") or schedule != "atomic",
        schedule != "scheduled" or form in ("", "fp16", "bf16"),
        schedule != "scheduled"
        or (target != "gfx1250" and epilogue in (None, "none") and layout in (None, "nn", "nt")),
        schedule != "scheduled" or target != "gfx942" or shape is None or shape == (16, 16, 64),
    )
    return all(rules)


def pairs(case):
    """The pairs of values that a case covers."""
    return set(itertools.combinations(sorted(case.items(), key=lambda item: item[0]), 2))


def matrix():
    """Cases that cover every legal pair, then more of them at random, greedily and from one seed."""
    rng = random.Random(6)
    names = sorted(FACTORS)
    wanted = [
        pair
        for one, other in itertools.combinations(names, 2)
        for pair in (((one, x), (other, y)) for x in FACTORS[one] for y in FACTORS[other])
        if legal(dict(pair))
    ]
    left, cases, impossible = dict.fromkeys(wanted), [], set()
    while left or len(cases) < CASES:
        start = dict(next(iter(left))) if left else {}
        case = complete(start, names, left, rng)
        if case is None:
            pair = next(iter(left))
            impossible.add(pair)
            del left[pair]
            continue
        if case in cases:
            continue
        cases.append(case)
        for pair in pairs(case):
            left.pop(pair, None)
    return cases, impossible


def complete(start, names, left, rng):
    """A legal case around some values, each further value the one that covers most; None if there is none."""
    for _ in range(40):
        case = dict(start)
        for name in rng.sample([one for one in names if one not in case], len(names) - len(case)):
            options = [value for value in FACTORS[name] if legal(case | {name: value})]
            if not options:
                break
            gain = {value: sum(pair in left for pair in pairs(case | {name: value})) for value in options}
            case[name] = max(options, key=lambda value: (gain[value], rng.random()))
        if len(case) == len(names):
            return case
    return None


MATRIX, IMPOSSIBLE = matrix()


def name_of(case):
    return "-".join(str(case[name]).replace(" ", "_") for name in FACTORS)


# ---- one case


class Run:
    """Operands, the call and what is expected of one case."""

    def __init__(self, case):
        self.case = case
        self.form, self.epilogue, self.layout = case["form"], case["epilogue"], case["layout"]
        self.m, self.columns, self.k = case["shape"]
        self.n = self.columns // 2 if self.epilogue == "swiglu" else self.columns
        self.rng = np.random.default_rng(zlib.crc32(name_of(case).encode()))

    def placed(self, x, transposed):
        """The same matrix in the memory order that the layout asks for."""
        if self.layout == "strided":
            apart = np.zeros((*x.shape[:-2], x.shape[-2] * 2, x.shape[-1] * 3), x.dtype)
            apart[..., ::2, ::3] = x
            return apart[..., ::2, ::3]
        return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) if transposed else np.ascontiguousarray(x)

    def normal(self, *shape, dtype=np.float32):
        return np.asarray(self.rng.standard_normal(shape)).astype(dtype)

    def options(self):
        """(keyword arguments of the call, those of the reference)."""
        e, call, expected = self.epilogue, {}, {}
        activation = {"all": "gelu"}.get(e, e if e in gemm.ACTIVATIONS or e == "gelu" else None)
        if e in ("scale", "all", "gelu_tanh", "out fp8"):
            call["scale"] = expected["scale"] = 0.5
        if e in ("bias", "all", "relu", "swiglu", "silu") or e == "bias row":
            rows = e == "bias row"
            shape = (self.m if rows else self.columns,)
            if self.form == "fp16 rows":
                shape = (3, self.columns)
            bias = self.normal(*shape, dtype=ml_dtypes.bfloat16)
            call["bias"] = bias
            if rows:
                call["bias_axis"] = "row"
            wide = bias.astype(np.float64)
            expected["bias"] = wide[:, None] if rows else wide
        if activation:
            call["activation"] = expected["activation"] = activation
        if e in ("residual", "all"):
            residual = self.placed(self.normal(self.m, self.n, dtype=np.float16), True)
            call |= {"residual": residual, "beta": 0.25}
            expected |= {"residual": residual.astype(np.float64), "beta": 0.25}
        return call, expected

    def out_dtype(self, default):
        if self.epilogue == "out fp8":
            return fp8_for("float8_e4m3fn", self.case["target"])
        return "float32" if self.epilogue == "out float32" else default

    def config(self):
        how = self.case["schedule"]
        if how == "scheduled":
            return "intra_wave" if self.case["target"] == "gfx942" else "inter_wave_128"
        tile_k, waves = 32, 2
        if self.form.startswith("mx") or self.form == "e4m3 blocks":
            tile_k, waves = 128, 4 if self.form.startswith("mx") else 2
        elif self.form[:2] in ("e4", "e5", "i8"):
            tile_k = 64
        how = {
            "tiles": {},
            "persistent": {"schedule": "persistent", "programs": 2},
            "split_k": {"schedule": "split_k", "splits": 3},
            "atomic": {"schedule": "split_k", "splits": 2, "atomic": True},
            "stream_k": {"schedule": "stream_k", "programs": 5},
        }[how]
        return PlainConfig(32, 32, tile_k, waves, **how)

    def run(self):
        """(result, what is expected) pairs."""
        call, expected = self.options()
        call["schedule"] = self.config()
        kind = self.form.split()[0]
        if kind in ("fp16", "bf16", "fp32", "xf32"):
            return self.floats(kind, call, expected)
        return self.mx(call, expected) if kind == "mx" else self.bytes(call, expected)

    def floats(self, kind, call, expected):
        dtype = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}.get(kind, np.float32)
        if kind == "xf32":
            call["precision"] = "xf32"
            expected["fraction"] = 10
        name = self.out_dtype(np.dtype(dtype).name)
        call["out_dtype"] = name
        batch = (2,) if self.form == "fp16 batched" else ()
        a = self.placed(self.normal(*batch, self.m, self.k, dtype=dtype), self.layout[0] == "t")
        b = self.placed(self.normal(self.k, self.columns, dtype=dtype), self.layout[-1] == "t")
        left, right = a.astype(np.float64), b.astype(np.float64)
        if self.form == "fp16 rows":
            return self.rows(a, dtype, name, call, expected)
        if self.form == "bf16 columns":
            ends = np.array([0, self.k // 3, self.k], np.int32)
            out = gemm.grouped_matmul(a, b, ends, **call)
            cuts = list(itertools.pairwise([0, *ends.tolist()]))
            return [
                (out[at], reference.expect(left[:, i:j], right[i:j], name, **expected))
                for at, (i, j) in enumerate(cuts)
            ]
        weight = gemm.shuffle_weight(b.T) if self.form == "bf16 shuffled" else b
        return [(gemm.matmul(a, weight, **call), reference.expect(left, right, name, **expected))]

    def rows(self, a, dtype, name, call, expected):
        b = self.normal(3, self.k, self.columns, dtype=dtype)
        b = np.stack([self.placed(one, False) for one in b])
        if self.layout[-1] == "t":
            b = np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)
        ends = np.array([self.m // 2, self.m // 2, self.m - self.m // 5], np.int32)
        bias = expected.pop("bias", None)
        out = gemm.grouped_matmul(a, b, ends, **call)
        made = []
        for at, (i, j) in enumerate(itertools.pairwise([0, *ends.tolist()])):
            own = expected if bias is None else expected | {"bias": bias[at]}
            made.append((out[i:j], reference.expect(a[i:j].astype(float), b[at].astype(float), name, **own)))
        rest = out[ends[-1] :]
        zero = np.zeros(rest.shape)
        return [*made, (rest, reference.Expected(zero, zero))]

    def bytes(self, call, expected):
        kinds = self.form.split()
        if kinds[0] == "i8":
            draw = [self.rng.integers(-128, 128, s).astype(np.int8) for s in ((self.m, self.k), (self.k, self.columns))]
            expected["roundings"] = 0
        else:
            both = [kinds[0], kinds[1] if len(kinds) > 1 and kinds[1].startswith("e") else kinds[0]]
            types = [
                fp8_for({"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}[one], self.case["target"]) for one in both
            ]
            draw = [
                self.normal(*shape, dtype=getattr(ml_dtypes, one))
                for shape, one in zip(((self.m, self.k), (self.k, self.columns)), types, strict=True)
            ]
        a, b = self.placed(draw[0], self.layout[0] == "t"), self.placed(draw[1], self.layout[-1] == "t")
        left, right = a.astype(np.float64), b.astype(np.float64)
        scales = {}
        if "lines" in kinds:
            scales = {"scale_a": self.normal(self.m, 1) ** 2, "scale_b": self.normal(1, self.columns) ** 2}
            expected["scale"] = expected.get("scale", 1.0) * scales["scale_a"].astype(float) * scales["scale_b"]
        elif "blocks" in kinds:
            groups = -(-self.k // 128)
            scales = {"scale_a": self.normal(self.m, groups) ** 2}
            scales["scale_b"] = self.normal(groups, -(-self.columns // 128)) ** 2
            left = left * np.repeat(scales["scale_a"].astype(float), 128, 1)[:, : self.k]
            right = (
                right * np.repeat(scales["scale_b"].astype(float), 128, 0)[: self.k].repeat(128, 1)[:, : self.columns]
            )
        exact = kinds == ["i8"]
        name = "int32" if exact else self.out_dtype("bfloat16")
        function = gemm.int8_matmul if kinds[0] == "i8" else gemm.scaled_matmul
        return [(function(a, b, **scales, out_dtype=name, **call), reference.expect(left, right, name, **expected))]

    def mx(self, call, expected):
        made = []
        for format, lines, axis in zip(self.form.split()[1:], (self.m, self.columns), (1, 0), strict=True):
            stored = FORMATS[format].stored(self.k)
            shape, scale = (
                ((lines, stored), (lines, self.k // 32)) if axis else ((stored, lines), (self.k // 32, lines))
            )
            if format in ("e4m3", "e5m2"):
                data = self.normal(*shape, dtype=ml_dtypes.float8_e4m3fn if format == "e4m3" else ml_dtypes.float8_e5m2)
            else:
                data = self.rng.integers(0, 256, shape).astype(np.uint8)
            factors = self.rng.integers(122, 132, scale).astype(np.uint8)
            values = reference.unpack(data, format, axis) * np.repeat(reference.e8m0(factors), 32, axis)
            transposed = self.layout[0 if axis else -1] == "t"
            made.append((self.placed(data, transposed), self.placed(factors, not transposed), values, format))
        (a, sa, left, fa), (b, sb, right, fb) = made
        name = self.out_dtype("bfloat16")
        out = gemm.scaled_matmul(a, b, sa, sb, format_a=fa, format_b=fb, out_dtype=name, **call)
        return [(out, reference.expect(left, right, name, **expected))]


def conforms(case):
    run = Run(case)
    with amdwarp.emulate(case["target"], sanitize=True):
        results = run.run()
    for out, expected in results:
        assert out.shape == expected.value.shape
        wrong = ~(np.abs(out.astype(np.float64) - expected.value) <= expected.bound)
        assert not wrong.any(), f"{wrong.sum()} of {wrong.size} elements, first at {np.argwhere(wrong)[0]}"


@pytest.mark.parametrize("case", MATRIX[:: len(MATRIX) // 12], ids=name_of)
def test_a_part_of_the_matrix(case):
    conforms(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", MATRIX, ids=name_of)
def test_the_whole_matrix(case):
    conforms(case)


def test_every_legal_pair_is_covered():
    assert len(MATRIX) >= 400 and all(map(legal, MATRIX))
    covered = set().union(*map(pairs, MATRIX))
    names = sorted(FACTORS)
    for one, other in itertools.combinations(names, 2):
        for x, y in itertools.product(FACTORS[one], FACTORS[other]):
            pair = ((one, x), (other, y))
            assert pair in covered or pair in IMPOSSIBLE or not legal(dict(pair)), pair
    # what the rules leave no case for, as an xf32 product by a scheduled kernel: none that both rules alone allow
    assert len(IMPOSSIBLE) < 20
