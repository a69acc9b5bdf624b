"""The rules of a stage list: what is refused, with which words and at which line."""

from __future__ import annotations

import pytest
from amdwarp.lowering.analysis.pipelines import attribute_of, find_pipelines, text_of
from amdwarp.lowering.passes import InterWave
from hypothesis import given
from hypothesis import strategies as st
from snippets import module

from amdwarp.errors import LoweringError

pytestmark = pytest.mark.usefixtures("needs_triton")

DOT = (
    "%d = tt.dot %left, %right, %acc : tensor<64x64xf16, #ttg.dot_op<{opIdx = 0, parent = #blocked}>> * "
    "tensor<64x64xf16, #ttg.dot_op<{opIdx = 1, parent = #blocked}>> -> tensor<64x64xf32, #blocked>"
)
OPERANDS = """
    %left = arith.constant dense<0.0> : tensor<64x64xf16, #ttg.dot_op<{opIdx = 0, parent = #blocked}>>
    %right = arith.constant dense<0.0> : tensor<64x64xf16, #ttg.dot_op<{opIdx = 1, parent = #blocked}>>
    %acc = arith.constant dense<0.0> : tensor<64x64xf32, #blocked>
"""


def loop(first: str = "", between: str = "", second: str = "", last: str = "", top: str = "", attrs: str = "") -> str:
    """A staged loop, whose stages open in lines 6 and 10 where one line stands for each part."""
    return f"""
    @buffer(r)
    @buffer(q)
    scf.for %i = %c0 to %n step %c1 : i32 {{
      {top}
      @begin(load{attrs})
      {first}
      @end
      {between}
      @begin(mfma)
      {second}
      @end
      {last}
    }}
"""


REFUSED = {
    "one stage in a loop": (
        "    scf.for %i = %c0 to %n step %c1 : i32 {\n      @begin(load)\n      @end\n    }\n",
        "warp_pipeline_stage 'load'",
        "a wave pipeline needs at least two stages, and this one stands alone",
        2,
    ),
    "one stage in straight code": (
        "    @begin(load)\n    @end\n",
        "warp_pipeline_stage 'load'",
        "needs at least two stages, and this one stands alone",
        1,
    ),
    "straight stages parted by a store": (
        "    @buffer(r)\n    @begin(load)\n    @end\n    @store(r)\n    @begin(mfma)\n    @end\n",
        "warp_pipeline_stage 'load'",
        "ttg.local_store (kernel.py:4) parts this one from the next",
        2,
    ),
    "straight stages parted by an MFMA": (
        OPERANDS + f"    @begin(load)\n    @end\n    {DOT}\n    @begin(mfma)\n    @end\n",
        "warp_pipeline_stage 'load'",
        "tt.dot (kernel.py:7) parts this one from the next",
        5,
    ),
    "a barrier in a stage": (
        loop(first="@fence"),
        "warp_pipeline_stage 'load'",
        "a barrier (kernel.py:7) stands inside the stage; move it between two stages",
        6,
    ),
    "a barrier in a branch in a stage": (
        loop(first="scf.if %flag {\n@fence\n}"),
        "warp_pipeline_stage 'load'",
        "a barrier (kernel.py:8) stands inside the stage",
        6,
    ),
    "a wait ahead of a copy": (
        loop(first="@wait(0)\n@copy(r)"),
        "warp_pipeline_stage 'load'",
        "ttg.async_wait (kernel.py:7) stands inside the stage, ahead of other memory operations; move it to the end",
        6,
    ),
    "a wait in a branch in a stage": (
        loop(first="scf.if %flag {\n@wait(0)\n}"),
        "warp_pipeline_stage 'load'",
        "ttg.async_wait (kernel.py:8) stands inside the stage",
        6,
    ),
    "a loop in a stage": (
        loop(second="scf.for %k = %c0 to %m step %c1 : i32 {\n@copy(r)\n}"),
        "warp_pipeline_stage 'mfma'",
        "a loop (kernel.py:11) stands inside the stage; unroll it with static_range",
        10,
    ),
    "a stage in a stage": (
        loop(first="@begin(inner)\n@end"),
        "warp_pipeline_stage 'inner'",
        "a stage opens inside the stage 'load' (kernel.py:6); close that one first",
        7,
    ),
    "a stage in a branch in a stage": (
        loop(first="scf.if %flag {\n@begin(inner)\n@end\n@begin(other)\n@end\n}"),
        "warp_pipeline_stage 'inner'",
        "a stage opens inside the stage 'load' (kernel.py:6)",
        8,
    ),
    "a store between stages": (
        loop(between="@store(r)"),
        "warp_pipeline_stage 'mfma'",
        "ttg.local_store (kernel.py:9) stands between stages; only waits and arithmetic may; move it into a stage",
        10,
    ),
    "a load between stages": (
        loop(between="@load(x1, r)"),
        "warp_pipeline_stage 'mfma'",
        "ttg.local_load (kernel.py:9) stands between stages",
        10,
    ),
    "a commit between stages": (
        loop(between="@commit"),
        "warp_pipeline_stage 'mfma'",
        "ttg.async_commit_group (kernel.py:9) stands between stages",
        10,
    ),
    "a commit after the last stage": (
        loop(last="@commit"),
        "warp_pipeline_stage 'load'",
        "ttg.async_commit_group (kernel.py:13) stands between stages",
        6,
    ),
    "an MFMA between stages": (
        OPERANDS + loop(between=DOT),
        "warp_pipeline_stage 'mfma'",
        "tt.dot (kernel.py:13) stands between stages",
        14,
    ),
    "a branch with a wait between stages": (
        loop(between="scf.if %flag {\n@wait(0)\n}"),
        "warp_pipeline_stage 'mfma'",
        "scf.if (kernel.py:9) stands between stages",
        12,
    ),
    "a wait at the top": (
        loop(top="@wait(0)"),
        "warp_pipeline_stage 'load'",
        "ttg.async_wait (kernel.py:5) stands at the top of the loop, before the first stage; put it after the last "
        "stage, and once before the loop",
        6,
    ),
    "a barrier at the top": (
        loop(top="@fence"),
        "warp_pipeline_stage 'load'",
        "ttg.barrier (kernel.py:5) stands at the top of the loop",
        6,
    ),
    "a gap on a later stage": (
        loop().replace("@begin(mfma)", "@begin(mfma, phase_gap = 2 : i32)"),
        "warp_pipeline_stage 'mfma'",
        "phase_gap may stand only on the first stage of a loop; move it there or drop it",
        10,
    ),
    "a gap in straight code": (
        "    @begin(load, phase_gap = 2 : i32)\n    @end\n    @begin(mfma)\n    @end\n",
        "warp_pipeline_stage 'load'",
        "phase_gap may stand only on the first stage of a loop",
        1,
    ),
    "a stage that ends elsewhere": (
        "    @begin(load)\n    cf.br ^next\n  ^next:\n    @end\n",
        "warp_pipeline_stage 'load'",
        "control flow leaves or enters the stage halfway; let the whole stage stand in one branch",
        1,
    ),
    "a stage that opens elsewhere": (
        "    scf.if %flag {\n      @end\n    }\n",
        "warp_pipeline_stage #0",
        "control flow leaves or enters the stage halfway",
        2,
    ),
    "a call in a stage": (
        loop(first="%z = tt.call @other(%i) : (i32) -> i32"),
        "warp_pipeline_stage 'load'",
        "a call of a function that is not inlined (kernel.py:7) stands inside the stage; drop noinline=True",
        6,
    ),
    "a stage without label": (
        loop(first="@fence").replace("@begin(load)", "@begin()"),
        "warp_pipeline_stage #0",
        "a barrier (kernel.py:7) stands inside the stage",
        6,
    ),
}
OTHER = "  tt.func private @other(%y: i32) -> i32 attributes {noinline = true} {\n    tt.return %y : i32\n  }\n"


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    body, construct, words, line = REFUSED[case]
    mod = module(body, functions=OTHER)
    with pytest.raises(LoweringError) as caught:
        InterWave().run(mod)
    error = caught.value
    assert words in str(error)
    assert error.construct == construct
    assert error.where == f"kernel.py:{line}"
    assert error.pass_name == "inter_wave"
    assert str(error).startswith(f"{construct} (kernel.py:{line}): ")


@pytest.mark.parametrize("waves", [1, 4, 16])
def test_eight_waves_are_needed(waves: int) -> None:
    body = "    @begin(load)\n    @end\n    @begin(mfma)\n    @end\n"
    text = module(body)
    text.attributes['"ttg.num-warps"' if '"ttg.num-warps"' in text.attributes else "ttg.num-warps"] = f"{waves} : i32"
    words = f"need 8 waves, two on each SIMD, and this kernel has {waves}; .*num_warps=8"
    with pytest.raises(LoweringError, match=words) as caught:
        InterWave().run(text)
    assert caught.value.where == "kernel.py:1"


CONVERT = "%w = ttg.convert_layout %v : tensor<64x64xf16, #blocked> -> tensor<64x64xf16, #other>"
SCRATCH = {"inside a stage": loop(first=CONVERT), "between stages": loop(between=CONVERT)}
OTHER_LAYOUT = "#ttg.blocked<{sizePerThread = [8, 1], threadsPerWarp = [8, 8], warpsPerCTA = [1, 8], order = [0, 1]}>"
SAME_LAYOUT = "#ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [8, 8], warpsPerCTA = [8, 1], order = [1, 0]}>"


@pytest.mark.parametrize("place", SCRATCH)
def test_scratch_memory_is_refused_where_the_groups_are_apart(place: str) -> None:
    mod = module(SCRATCH[place].replace("#other", OTHER_LAYOUT))
    line = 7 if place == "inside a stage" else 9
    words = rf"ttg.convert_layout \(kernel.py:{line}\) moves data between waves through shared memory"
    with pytest.raises(LoweringError, match=words) as caught:
        InterWave().run(mod)
    assert caught.value.where == f"kernel.py:{6 if line == 7 else 10}"
    assert not [op for op in mod.walk() if "amdwarp.scratch" in op.attributes]


def test_a_conversion_that_needs_no_scratch_is_taken() -> None:
    mod = module(SCRATCH["inside a stage"].replace("#other", SAME_LAYOUT))
    InterWave().run(mod)
    assert len(mod.ops("amdg.cond_barrier")) == 2


ACCEPTED = {
    "arithmetic and a wait between": loop(between="%y = arith.addi %i, %n : i32\n@wait(0)"),
    "a wait at the end of a stage": loop(first="@copy(r)\n@commit\n@wait(0)\n%y = arith.addi %i, %n : i32"),
    "arithmetic at the top": loop(top="%y = arith.addi %i, %n : i32"),
    "a barrier on an edge": loop(last="@fence"),
    "a branch in a stage": loop(first="scf.if %flag {\n@copy(r)\n}"),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted(case: str) -> None:
    (function,) = module(ACCEPTED[case]).functions()
    (pipeline,) = find_pipelines(function)
    assert [stage.label for stage in pipeline.stages] == ["load", "mfma"]
    assert pipeline.loop is not None
    assert pipeline.gap == 1


def test_the_order_and_the_options_of_stages() -> None:
    (function,) = module(loop(attrs=", phase_gap = 2 : i32, priority = 3 : i32")).functions()
    (pipeline,) = find_pipelines(function)
    assert pipeline.gap == 2
    assert [stage.priority for stage in pipeline.stages] == [3, None]
    assert pipeline.uses_priority
    assert [stage.index for stage in pipeline.stages] == [0, 1]


@given(text=st.text(max_size=20))
def test_strings_in_attributes(text: str) -> None:
    written = attribute_of(text)
    assert text_of(written) == text
    assert written.isascii() and written.isprintable()
    assert '"' not in written[1:-1]
