"""The stage construct as its user meets it: what it takes, how it refuses, what bare Triton makes of it."""

# ruff: noqa: PIE808, RET504 - what reads well in plain Python is not always taken by Triton's front end

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

import amdwarp
from amdwarp.errors import AmdwarpError, LoweringError, ProtocolError, UsageError
from amdwarp.stage import StageSpec, expand_order

ROW = gl.BlockedLayout([1], [64], [8], [0])
SIGNATURE = {"x": "*fp32", "y": "*fp32", "n": "i32"}


def line_of(mark: str) -> str:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = [i for i, line in enumerate(lines, start=1) if line.endswith(f"# at: {mark}")]
    return f"{__file__}:{number}"


def compiled(kernel: Any, constants: dict[str, Any] | None = None, **options: Any) -> Any:
    return amdwarp.compile(kernel, SIGNATURE, constants, "gfx950", **{"num_warps": 8, **options})


# ---- arguments

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"label": 3}, "warp_pipeline_stage: label must be a string or None, not 3"),
    ({"label": True}, "label must be a string or None, not True"),
    ({"label": "a\nb"}, "label must be one line of printable characters, not 'a\\nb'"),
    ({"scope": "intra_wave", "pair": 1 << 40}, "below 2**31, not 1099511627776"),
    ({"scope": "wave"}, "scope must be one of 'inter_wave', 'intra_wave', not 'wave'"),
    ({"scope": None}, "scope must be one of 'inter_wave', 'intra_wave', not None"),
    ({"label": "a", "priority": 4}, "warp_pipeline_stage 'a': priority must be an integer from 0 to 3, not 4"),
    ({"priority": -1}, "priority must be an integer from 0 to 3, not -1"),
    ({"priority": True}, "priority must be an integer from 0 to 3, not True"),
    ({"priority": 1.0}, "priority must be an integer from 0 to 3, not 1.0"),
    ({"priority": "1"}, "priority must be an integer from 0 to 3, not '1'"),
    ({"scope": "intra_wave", "priority": 0}, "priority belongs to scope='inter_wave' only; drop priority"),
    ({"pair": 0}, "pair belongs to scope='intra_wave' only; drop pair"),
    ({"scope": "intra_wave", "pair": -1}, "pair must be a non-negative integer below 2**31, not -1"),
    ({"scope": "intra_wave", "pair": False}, "pair must be a non-negative integer below 2**31, not False"),
    ({"scope": "intra_wave", "pair": "a"}, "pair must be a non-negative integer below 2**31, not 'a'"),
    ({"phase_gap": 0}, "phase_gap must be 1 or 2, not 0"),
    ({"phase_gap": 3}, "phase_gap must be 1 or 2, not 3"),
    ({"phase_gap": True}, "phase_gap must be 1 or 2, not True"),
    ({"phase_gap": 1.0}, "phase_gap must be 1 or 2, not 1.0"),
    ({"scope": "intra_wave", "phase_gap": 1}, "phase_gap belongs to scope='inter_wave' only; drop phase_gap"),
    ({"scope": "intra_wave", "phase_gap": 2}, "phase_gap belongs to scope='inter_wave' only; drop phase_gap"),
    ({"order": "M T2"}, "order belongs to scope='intra_wave' only; drop order"),
    *(
        ({"scope": "intra_wave", "order": order}, f"order must be groups of instructions, not {order!r}; write it like")
        for order in ("", "M X2", "2(M T", "2(M 3(T))", 5)
    ),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED, ids=[str(case[0]) for case in REFUSED])
def test_an_argument_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        StageSpec(**arguments)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"label": "load"},
        {"label": ""},
        *({"priority": n} for n in range(4)),
        {"phase_gap": 1},
        {"phase_gap": 2},
        {"scope": "intra_wave", "phase_gap": None},
        {"scope": "intra_wave"},
        {"scope": "intra_wave", "pair": 0},
        {"scope": "intra_wave", "pair": 7},
        {"scope": "intra_wave", "order": "2(M T2 V2) M8"},
    ],
    ids=str,
)
def test_an_argument_is_taken(arguments: dict[str, Any]) -> None:
    spec = StageSpec(**arguments)
    assert {name: getattr(spec, name) for name in arguments} == arguments


def test_repeats_of_an_order_are_written_out() -> None:
    assert expand_order("2(M T2 V2)  M8 3( R )") == "M T2 V2 M T2 V2 M8 R R R"


@gluon.jit
def one_stage(x, P: gl.constexpr, GAP: gl.constexpr, SCOPE: gl.constexpr, PAIR: gl.constexpr, LABEL: gl.constexpr):
    with amdwarp.warp_pipeline_stage(LABEL, scope=SCOPE, priority=P, pair=PAIR, phase_gap=GAP):  # at: helper stage
        y = x + 1
    return y


@amdwarp.jit
def arguments(
    x,
    y,
    n,
    P: gl.constexpr,
    GAP: gl.constexpr,
    SCOPE: gl.constexpr,
    PAIR: gl.constexpr,
    LABEL: gl.constexpr,
    L: gl.constexpr,
):
    offsets = gl.arange(0, 512, L)
    total = gl.zeros([512], gl.float32, L)
    for i in range(0, n):
        with amdwarp.warp_pipeline_stage(LABEL, scope=SCOPE, priority=P, pair=PAIR, phase_gap=GAP):  # at: stage
            value = gl.load(x + i * 512 + offsets)
        with amdwarp.warp_pipeline_stage("add"):
            total += value
    gl.store(y + offsets, total)


@amdwarp.jit
def through_a_helper(
    x,
    y,
    n,
    P: gl.constexpr,
    GAP: gl.constexpr,
    SCOPE: gl.constexpr,
    PAIR: gl.constexpr,
    LABEL: gl.constexpr,
    L: gl.constexpr,
):
    total = gl.zeros([512], gl.float32, L)
    for _i in range(0, n):
        total = one_stage(total, P, GAP, SCOPE, PAIR, LABEL)
    gl.store(y + gl.arange(0, 512, L), total)


GOOD = {"P": 1, "GAP": 1, "SCOPE": "inter_wave", "PAIR": None, "LABEL": "load", "L": ROW}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"P": 7}, "warp_pipeline_stage 'load' ({}): priority must be an integer from 0 to 3, not 7"),
        ({"GAP": 3}, "warp_pipeline_stage 'load' ({}): phase_gap must be 1 or 2, not 3"),
        ({"SCOPE": "both"}, "warp_pipeline_stage 'load' ({}): scope must be one of"),
        ({"PAIR": 1}, "warp_pipeline_stage 'load' ({}): pair belongs to scope='intra_wave' only; drop pair"),
        ({"LABEL": 5}, "warp_pipeline_stage ({}): label must be a string or None, not 5"),
    ],
    ids=["P", "GAP", "SCOPE", "PAIR", "LABEL"],
)
def test_the_user_sees_the_refusal_with_its_line(changes: dict[str, Any], words: str) -> None:
    for kernel, mark in ((arguments, "stage"), (through_a_helper, "helper stage")):
        with pytest.raises(UsageError) as caught:
            compiled(kernel, {**GOOD, **changes})
        assert str(caught.value).startswith(words.format(line_of(mark)))
        assert caught.value.where == line_of(mark)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


def test_a_stage_outside_of_a_kernel() -> None:
    with pytest.raises(UsageError, match="it has a meaning only inside a kernel"), amdwarp.warp_pipeline_stage("load"):
        pass


@amdwarp.jit
def computed_label(x, y, n):
    for i in range(0, n):
        with amdwarp.warp_pipeline_stage(i):  # at: computed label
            gl.store(y, i)


def test_an_argument_that_is_known_at_run_time_only() -> None:
    with pytest.raises(UsageError, match="label must be a string or None, not") as caught:
        compiled(computed_label)
    assert caught.value.where == line_of("computed label")


@amdwarp.jit
def misspelt(x, y, n):
    for i in range(0, n):
        with amdwarp.warp_pipeline_stage("load", prioriti=1):  # at: misspelt
            gl.store(y, i)


@amdwarp.jit
def unnamed_arguments(x, y, n):
    for i in range(0, n):
        with amdwarp.warp_pipeline_stage("load", "inter_wave", 1):  # at: unnamed
            gl.store(y, i)


@amdwarp.jit
def no_with(x, y, n):
    for i in range(0, n):
        amdwarp.warp_pipeline_stage("load")  # at: no with
        gl.store(y, i)


@amdwarp.jit
def kept_for_later(x, y, n):
    for i in range(0, n):
        stage = amdwarp.warp_pipeline_stage("load")  # at: kept
        with stage:
            gl.store(y, i)


@amdwarp.jit
@triton.jit
def no_with_in_triton(x, y, n):
    for i in range(0, n):
        amdwarp.warp_pipeline_stage("load")  # at: no with in triton
        tl.store(y, i)


NAMES = "scope, priority, pair, phase_gap, order"
CALLS: dict[str, tuple[Any, str]] = {
    "misspelt": (misspelt, f"unknown argument 'prioriti'; it takes label, {NAMES}"),
    "unnamed": (unnamed_arguments, f"3 arguments without a name; label comes first; name {NAMES}"),
    "no with": (no_with, "it is called without with; write: with amdwarp.warp_pipeline_stage(...): and a block"),
    "kept": (kept_for_later, "it is called without with; write: with"),
    "no with in triton": (no_with_in_triton, "it is called without with; write: with"),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_call_that_is_none_of_a_stage(case: str) -> None:
    kernel, words = CALLS[case]
    with pytest.raises(UsageError) as caught:
        compiled(kernel)
    assert str(caught.value).startswith(f"warp_pipeline_stage ({line_of(case)}): {words}")


def test_a_wrong_call_outside_of_a_kernel() -> None:
    with pytest.raises(UsageError, match="unknown argument 'name'"):
        amdwarp.warp_pipeline_stage(name="load")


@amdwarp.jit
def lone_stage(x, y, n, L: gl.constexpr):
    offsets = gl.arange(0, 512, L)
    for i in range(0, n):
        with amdwarp.warp_pipeline_stage("all"):  # at: lone stage
            gl.store(y + i * 512 + offsets, gl.load(x + i * 512 + offsets))


def test_a_refusal_of_a_pass_reaches_the_user() -> None:
    with pytest.raises(LoweringError, match="needs at least two stages") as caught:
        compiled(lone_stage, {"L": ROW})
    assert caught.value.where == line_of("lone stage")
    with pytest.raises(LoweringError, match=r"need 8 waves, two on each SIMD, and this kernel has 4; .*num_warps=8"):
        compiled(arguments, {**GOOD, "L": gl.BlockedLayout([1], [64], [4], [0])}, num_warps=4)


def test_a_label_of_any_characters() -> None:
    label = 'say "l\u00f6ad" \\ now'
    text = compiled(arguments, {**GOOD, "LABEL": label}).asm["amdwarp"]
    assert text.count("amdg.cond_barrier") == 2
    with pytest.raises(LoweringError) as caught:
        compiled(arguments, {**GOOD, "LABEL": label, "GAP": 2, "L": gl.BlockedLayout([1], [64], [4], [0])}, num_warps=4)
    assert caught.value.construct == f"warp_pipeline_stage {label!r}"


# ---- @triton.jit


@amdwarp.jit
@triton.jit
def added(x, y, n, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros([B], tl.float32)
    for i in range(0, n):
        with amdwarp.warp_pipeline_stage("load", priority=1):
            value = tl.load(x + i * B + offsets)
        with amdwarp.warp_pipeline_stage("add", priority=0):
            total += value * 2.0
    tl.store(y + offsets, total)


@triton.jit
def add_stages(x, offsets, total):
    with amdwarp.warp_pipeline_stage("load", priority=1):
        value = tl.load(x + offsets)
    with amdwarp.warp_pipeline_stage("add", priority=0):
        total += value * 2.0
    return total


@amdwarp.jit
@triton.jit
def added_by_a_helper(x, y, n, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros([B], tl.float32)
    for i in range(0, n):
        total = add_stages(x + i * B, offsets, total)
    tl.store(y + offsets, total)


@pytest.mark.parametrize("kernel", [added, added_by_a_helper], ids=["in the loop", "in a helper"])
@pytest.mark.parametrize("num_stages", [1, 2, 3])
def test_a_triton_kernel_is_staged_and_not_pipelined_by_stock_passes(kernel: Any, num_stages: int) -> None:
    text = compiled(kernel, {"B": 512}, num_stages=num_stages).asm["amdwarp"]
    loop = text.partition("scf.for")[2].partition("scf.yield")[0]
    load, add = loop.partition("rocdl.s.setprio 0")[::2]
    assert "tt.load" in load or "amdg.buffer_load" in load
    assert "arith.addf" in add and "arith.addf" not in load
    assert loop.count("rocdl.s.barrier") == 2
    assert text.count("amdg.cond_barrier") == 2
    assert len(re.findall(r"tt\.load|amdg\.buffer_load", text)) == 1, "a pipelined loop would have one in its prologue"


def test_stock_ping_pong_leaves_staged_loops_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "off"))
    before = compiled(added, {"B": 512}, num_stages=2).asm["amdgcn"]
    monkeypatch.setenv("TRITON_HIP_USE_BLOCK_PINGPONG", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "on"))
    assert compiled(added, {"B": 512}, num_stages=2).asm["amdgcn"] == before


@amdwarp.jit
@triton.jit
def unrolled(x, y, n, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros([B], tl.float32)
    for i in tl.range(0, n, loop_unroll_factor=2):
        with amdwarp.warp_pipeline_stage("load", priority=1):
            value = tl.load(x + i * B + offsets)
        with amdwarp.warp_pipeline_stage("add", priority=0):
            total += value * 2.0
    tl.store(y + offsets, total)


def test_a_loop_that_triton_unrolls_is_joined_with_its_rest() -> None:
    text = compiled(unrolled, {"B": 512}).asm["amdwarp"]
    assert text.count("scf.for") == 2
    assert text.count("amdg.cond_barrier") == 2
    assert text.count("rocdl.s.barrier") == 4 + 2


@amdwarp.jit
@triton.jit
def product(x, y, z, n, B: tl.constexpr):
    rows, ks = tl.arange(0, B), tl.arange(0, 64)
    total = tl.zeros([B, B], tl.float32)
    for k in range(0, n, 64):
        with amdwarp.warp_pipeline_stage("load", priority=1):
            left = tl.load(x + rows[:, None] * n + (k + ks)[None, :])
            right = tl.load(y + rows[None, :] * n + (k + ks)[:, None])
        with amdwarp.warp_pipeline_stage("mfma", priority=0):
            total = tl.dot(left, right, total)  # at: dot
    tl.store(z + rows[:, None] * B + rows[None, :], total)


def test_a_dot_whose_operands_go_through_shared_memory_is_refused() -> None:
    signature = {"x": "*fp16", "y": "*fp16", "z": "*fp32", "n": "i32"}
    for stages in (1, 2):
        with pytest.raises(ProtocolError) as caught:
            amdwarp.compile(product, signature, {"B": 128}, "gfx950", num_warps=8, num_stages=stages)
        error = caught.value
        assert error.construct == "warp_pipeline_stage 'mfma'"
        assert re.search(r"it reads LDS buffer '\w+' with no barrier since the store into LDS buffer", str(error))
        assert "cannot be staged: fill a ring of buffers in one stage and read it in another, in Gluon" in str(error)
        assert error.where is not None and error.where.startswith(__file__)


@amdwarp.jit
@triton.jit
def summed(x, y, n, B: tl.constexpr, AXIS: tl.constexpr):
    rows, columns = tl.arange(0, B), tl.arange(0, B)
    total = tl.zeros([B], tl.float32)
    for i in range(0, n):
        with amdwarp.warp_pipeline_stage("load"):
            value = tl.load(x + i * B * B + rows[:, None] * B + columns[None, :])
        with amdwarp.warp_pipeline_stage("sum"):  # at: sum stage
            total += tl.sum(value, AXIS)  # at: sum
    tl.store(y + rows, total)


def test_a_reduction_is_staged_inside_a_wave_and_refused_across_waves() -> None:
    text = compiled(summed, {"B": 64, "AXIS": 1}).asm["amdwarp"]
    assert text.count("amdg.cond_barrier") == 2
    assert "tt.reduce" in text.partition("scf.for")[2]
    with pytest.raises(LoweringError) as caught:
        compiled(summed, {"B": 64, "AXIS": 0})
    assert f"tt.reduce ({line_of('sum')}) moves data between waves through shared memory" in str(caught.value)
    assert caught.value.where == line_of("sum stage")


# ---- bare Triton


@gluon.jit
def marked(x, y, n, L: gl.constexpr):
    offsets = gl.arange(0, 512, L)
    total = gl.zeros([512], gl.float32, L)
    for i in range(0, n):
        with amdwarp.warp_pipeline_stage("load", priority=1, phase_gap=2):
            value = gl.load(x + i * 512 + offsets)
        with amdwarp.warp_pipeline_stage("add", priority=0):
            total += value
    gl.store(y + offsets, total)


@gluon.jit
def unmarked(x, y, n, L: gl.constexpr):
    offsets = gl.arange(0, 512, L)
    total = gl.zeros([512], gl.float32, L)
    for i in range(0, n):
        value = gl.load(x + i * 512 + offsets)
        total += value
    gl.store(y + offsets, total)


@triton.jit
def marked_triton(x, y, n, B: tl.constexpr):
    rows, ks = tl.arange(0, B), tl.arange(0, 64)
    total = tl.zeros([B, B], tl.float32)
    for k in range(0, n, 64):
        with amdwarp.warp_pipeline_stage("load", priority=1):
            left = tl.load(x + rows[:, None] * n + (k + ks)[None, :])
        with amdwarp.warp_pipeline_stage("mfma", scope="intra_wave", pair=3):
            total = tl.dot(left, tl.trans(left), total)
    tl.store(y + rows[:, None] * B + rows[None, :], total)


@triton.jit
def unmarked_triton(x, y, n, B: tl.constexpr):
    rows, ks = tl.arange(0, B), tl.arange(0, 64)
    total = tl.zeros([B, B], tl.float32)
    for k in range(0, n, 64):
        left = tl.load(x + rows[:, None] * n + (k + ks)[None, :])
        total = tl.dot(left, tl.trans(left), total)
    tl.store(y + rows[:, None] * B + rows[None, :], total)


def bare(kernel: Any, source: Any, constants: dict[str, Any], **options: Any) -> str:
    """The instructions of a kernel compiled by stock Triton, without places and names."""
    types = {**SIGNATURE, **dict.fromkeys(constants, "constexpr")}
    made = triton.compile(
        source(kernel, types, constants, {}),
        target=GPUTarget("hip", "gfx950", 64),
        options={"num_warps": 8, **options},
    )
    assert "amdwarp" not in made.asm
    text = made.asm["amdgcn"].partition(".section")[0]
    lines = (re.sub(r"\s*(;.*|//.*)?$", "", line) for line in text.splitlines())
    kept = [
        line for line in lines if line.strip() and not re.match(r"\s*\.(loc|file|cfi)|\.?L\w*tmp\d+:|\.Lfunc", line)
    ]
    assert len(kept) > 40
    return "\n".join(kept).replace(kernel.fn.__name__, "kernel")


def test_marks_vanish_on_bare_triton() -> None:
    assert bare(marked, GluonASTSource, {"L": ROW}) == bare(unmarked, GluonASTSource, {"L": ROW})


@pytest.mark.parametrize("num_stages", [1, 2])
def test_marks_vanish_on_bare_triton_from_a_triton_kernel(num_stages: int) -> None:
    with_marks = bare(marked_triton, ASTSource, {"B": 64}, num_stages=num_stages)
    assert with_marks == bare(unmarked_triton, ASTSource, {"B": 64}, num_stages=num_stages)


def test_a_wrong_argument_is_refused_on_bare_triton_too() -> None:
    constants = {**GOOD, "P": 9}
    types = {**SIGNATURE, **dict.fromkeys(constants, "constexpr")}
    stock = gluon.jit(arguments.fn)
    with pytest.raises(Exception, match="priority must be an integer from 0 to 3, not 9") as caught:
        triton.compile(GluonASTSource(stock, types, constants, {}), target=GPUTarget("hip", "gfx950", 64))
    assert not isinstance(caught.value, AmdwarpError)
