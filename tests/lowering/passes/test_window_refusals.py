"""What an intra-wave window refuses: the text and the line of each message, and that near misses are taken."""

from __future__ import annotations

import pytest
from amdwarp.lowering.passes import windows
from window_snippets import ACC, LEFT, PREFIX, RIGHT, SLOT, TILE, buffer_load, windowed

from amdwarp.errors import LoweringError, UsageError
from amdwarp.stage import StageSpec

POINTERS = "tensor<64x64x!tt.ptr<f16>, #blocked>"
GOOD = """
    @@open(weave)
    @@left(la)
    @@dot(d)
    @@close
"""
PAIR = """
    @@open(load, 0)
    @@left(la)
    @@close
    @@open(compute, 0)
    @@dot(d)
    @@close
"""
OFFSET = PREFIX.count("\n") + 1  # lines in front of a body


def refusal(body: str) -> str:
    """The message, with line numbers counted in ``body`` (its first line, which is empty, is 0)."""
    mod = windowed(body)
    with pytest.raises(LoweringError) as caught:
        for one in windows():
            one.run(mod)
    text = str(caught.value)
    for number in range(200, OFFSET, -1):
        for form in (f"kernel.py:{number}", f"line {number}"):
            text = text.replace(form, form.replace(str(number), f"L{number - OFFSET}"))
    return text


def inside(*lines: str) -> str:
    """``GOOD`` with lines in front of its closing anchor, the first of them line 4."""
    return GOOD.replace("    @@close", "".join(f"    {line}\n" for line in lines) + "    @@close")


@pytest.mark.usefixtures("needs_triton")
def test_the_good_ones_are_taken() -> None:
    for body in (GOOD, PAIR, PAIR + GOOD.replace("(la)", "(u)").replace("(d)", "(e)")):
        mod = windowed(body)
        for one in windows():
            one.run(mod)


SINGLE = {
    "a store": (
        f"ttg.local_store %v, %q : {TILE} -> {SLOT}",
        "intra_wave 'weave' (kernel.py:L1): the region mixes MFMA with a store (ttg.local_store, line L4); "
        "single-region interleaving takes read-only memory operations: move the store out, or mark the memory "
        "operations and the MFMA as two regions with one pair [chunk_streams]",
    ),
    "a global store": (
        '"amdg.buffer_store"(%v, %p, %offsets) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>}> : '
        "(tensor<64x64xf16, #blocked>, !tt.ptr<f16>, tensor<64x64xi32, #blocked>) -> ()",
        "the region mixes MFMA with a store (amdg.buffer_store, line L4)",
    ),
    "a filled allocation": (
        f"%z = ttg.local_alloc %v : ({TILE}) -> {SLOT}",
        "the region mixes MFMA with a store (ttg.local_alloc, line L4)",
    ),
    "a copy": ("@copy(q)", "the region mixes MFMA with a copy into LDS (amdg.buffer_load_to_local, line L4)"),
    "a commit": (
        "@commit",
        "the region mixes MFMA with a commit of asynchronous copies (ttg.async_commit_group, line L4)",
    ),
    "a wait": (
        "@wait(0)",
        "it holds a wait (ttg.async_wait, line L4); put it in front of the window or behind it [chunk_streams]",
    ),
    "a barrier": ("@fence", "it holds a barrier (ttg.barrier, line L4); put it in front of the window or behind it"),
    "a volatile load": (
        f"%ps = tt.splat %p : !tt.ptr<f16> -> {POINTERS}\n    %z = tt.load %ps {{isVolatile = true}} : {POINTERS}",
        "it holds a volatile load (tt.load, line L5); volatile accesses keep their place: move it out, or drop "
        "volatile [chunk_streams]",
    ),
    "a masked load through pointers": (
        f"%ps = tt.splat %p : !tt.ptr<f16> -> {POINTERS}\n    "
        "%k = tt.splat %flag : i1 -> tensor<64x64xi1, #blocked>\n    "
        f"%z = tt.load %ps, %k : {POINTERS}",
        "it holds a masked access through pointers (tt.load, line L6); it becomes a branch: use a buffer operation",
    ),
    "an atomic": (
        f"%ps = tt.splat %p : !tt.ptr<f16> -> {POINTERS}\n    "
        "%k = arith.constant dense<true> : tensor<64x64xi1, #blocked>\n    "
        f"%z = tt.atomic_rmw fadd, acq_rel, gpu, %ps, %v, %k : ({POINTERS}, {TILE}, tensor<64x64xi1, #blocked>) -> "
        f"{TILE}",
        "it holds an atomic (tt.atomic_rmw, line L6); move it out",
    ),
    "control flow": (
        "scf.if %flag {\n    }",
        "it holds control flow (scf.if, line L4); a window is one straight run of operations: unroll it or move it out",
    ),
    "unknown effects": (
        'tt.print "x" {hex = false, isSigned = array<i32: 1>} : %n : i32',
        "it holds an operation of unknown effect (tt.print, line L4); move it out",
    ),
    "a scheduling operation": (
        "rocdl.s.setprio 1",
        "it holds a scheduling operation (rocdl.s.setprio, line L4); a window has its own walls and groups: drop it",
    ),
    "an exchange between waves": (
        "%z = ttg.convert_layout %g : tensor<64x64xf16, #blocked> -> tensor<64x64xf16, #ttg.blocked<{sizePerThread = "
        "[8, 1], threadsPerWarp = [8, 8], warpsPerCTA = [1, 8], order = [0, 1]}>>",
        "it holds an exchange between waves through LDS (ttg.convert_layout, line L5); it has barriers of its own: "
        "move it out",
    ),
}


@pytest.mark.usefixtures("needs_triton")
@pytest.mark.parametrize("case", SINGLE)
def test_what_may_not_stand_in_a_single_region(case: str) -> None:
    line, message = SINGLE[case]
    lines = ["@@global(g)", line] if "exchange" in case else [line]
    assert message in refusal(inside(*lines))


PAIRED = ("a wait", "a barrier", "a volatile load", "an atomic", "control flow", "unknown effects")


@pytest.mark.usefixtures("needs_triton")
@pytest.mark.parametrize("case", PAIRED)
def test_what_may_not_stand_in_a_pair_either(case: str) -> None:
    line = SINGLE[case][0]
    body = PAIR.replace("    @@close", f"    {line}\n    @@close", 1)
    assert "it holds " in refusal(body)


ONE_OF_MANY = (
    "only one of them stores it, which becomes a branch: use a buffer operation, spread the value over all threads, or "
    "move it out [chunk_streams]"
)
FEW = "#ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [8, 8], warpsPerCTA = [8, 1], order = [1, 0]}>"
SOME_THREADS = {
    "a scalar": "tt.store %p, %half : !tt.ptr<f16>",
    "a tile for half the waves": f"tt.store %few, %little : tensor<32x64x!tt.ptr<f16>, {FEW}>",
}


@pytest.mark.usefixtures("needs_triton")
@pytest.mark.parametrize("case", SOME_THREADS)
def test_a_store_by_some_threads_is_a_branch(case: str) -> None:
    """32 x 64 elements, eight a thread, fill four of eight waves."""
    before = f"""
    %half = arith.constant 1.0 : f16
    %few = tt.splat %p : !tt.ptr<f16> -> tensor<32x64x!tt.ptr<f16>, {FEW}>
    %little = arith.constant dense<1.0> : tensor<32x64xf16, {FEW}>"""
    message = refusal(before + PAIR.replace("    @@close", f"    {SOME_THREADS[case]}\n    @@close", 1))
    assert message.startswith("intra_wave 'load' (kernel.py:L4): it holds a store of a value that several threads hold")
    assert f"(tt.store, line L6); {ONE_OF_MANY}" in message


@pytest.mark.usefixtures("needs_triton")
def test_a_store_by_all_threads_is_taken() -> None:
    pointers = f"\n    %ps = tt.splat %p : !tt.ptr<f16> -> {POINTERS}"
    store = f"    tt.store %ps, %v : {POINTERS}\n    @@close"
    mod = windowed(pointers + PAIR.replace("    @@close", store, 1))
    for one in windows():
        one.run(mod)


@pytest.mark.usefixtures("needs_triton")
def test_a_load_of_a_single_value() -> None:
    assert (
        "it holds a load of a single value (tt.load, line L4); LLVM may make a scalar load of it, which no scheduling "
        "group takes: move it out [chunk_streams]"
    ) in refusal(inside("%z = tt.load %p : !tt.ptr<f16>"))


@pytest.mark.usefixtures("needs_triton")
@pytest.mark.parametrize("case", ["a store", "a copy", "a commit", "a global store"])
def test_writes_may_stand_in_a_pair(case: str) -> None:
    mod = windowed(PAIR.replace("    @@close", f"    {SINGLE[case][0]}\n    @@close", 1))
    for one in windows():
        one.run(mod)


MESSAGES = {
    "a load that the product uses": (
        GOOD.replace("@@dot(d)", "@@dot(d, la)"),
        "intra_wave 'weave' (kernel.py:L1): its memory and its MFMA depend on each other: tt.dot, line L3 uses what "
        "ttg.local_load, line L2 loads; load one iteration ahead into other registers [chunk_streams]",
    ),
    "a pair that depends on each other": (
        PAIR.replace("@@dot(d)", "@@dot(d, la)"),
        "intra_wave 'load' (kernel.py:L1): the two regions of the pair depend on each other: tt.dot, line L5 uses what "
        "ttg.local_load, line L2 makes; load one iteration ahead into other registers [chunk_streams]",
    ),
    "a load that the product uses through LDS": (
        GOOD.replace(
            "    @@left(la)\n    @@dot(d)",
            f"    @@global(g)\n    %z = ttg.local_alloc %g : ({TILE}) -> {SLOT}\n    "
            f"%la = ttg.local_load %z : {SLOT} -> {LEFT}\n    @@dot(d, la)",
        ),
        "intra_wave 'weave' (kernel.py:L1): its memory and its MFMA depend on each other: tt.dot, line L5 uses what "
        "amdg.buffer_load, line L2 loads; load one iteration ahead into other registers [chunk_streams]",
    ),
    "a pair whose product uses the load through LDS": (
        PAIR.replace("@@left(la)", "@@global(g)").replace(
            "@@dot(d)",
            f"%z = ttg.local_alloc %g : ({TILE}) -> {SLOT}\n    %la = ttg.local_load %z : {SLOT} -> {LEFT}\n    "
            "@@dot(d, la)",
        ),
        "intra_wave 'load' (kernel.py:L1): the two regions of the pair depend on each other: tt.dot, line L7 uses what "
        "amdg.buffer_load, line L2 makes; load one iteration ahead into other registers [chunk_streams]",
    ),
    "a store of the product": (
        GOOD.replace("@@dot(d)", f"@@dot(d)\n    %m32 = ttg.local_alloc %d : ({ACC}) -> {SLOT.replace('f16', 'f32')}"),
        "intra_wave 'weave' (kernel.py:L1): its memory and its MFMA depend on each other: ttg.local_alloc, line L4 "
        "uses what tt.dot, line L3 makes; put what takes the product behind the window [chunk_streams]",
    ),
    "a store of the product in the other region of a pair": (
        "\n    @@open(first, 0)\n    @@dot(d)\n    @@close\n    @@open(second, 0)\n"
        f"    %m32 = ttg.local_alloc %d : ({ACC}) -> {SLOT.replace('f16', 'f32')}\n    @@close\n",
        "intra_wave 'first' (kernel.py:L1): the two regions of the pair depend on each other: ttg.local_alloc, line L5 "
        "uses what tt.dot, line L2 makes; put what takes the product behind the window [chunk_streams]",
    ),
    "no MFMA": (
        GOOD.replace("    @@dot(d)\n", ""),
        "intra_wave 'weave' (kernel.py:L1): it has no MFMA to weave memory operations between; put a dot into it, or "
        "drop it [chunk_streams]",
    ),
    "no memory": (
        GOOD.replace("    @@left(la)\n", ""),
        "intra_wave 'weave' (kernel.py:L1): it has no memory operation to weave between its MFMA; put a load into it, "
        "or drop it [chunk_streams]",
    ),
    "a pair of memory": (
        PAIR.replace("@@dot(d)", "@@right(lb)"),
        "intra_wave 'load' (kernel.py:L1): both regions of the pair hold memory operations and neither has MFMA; one "
        "region of a pair is memory only and the other MFMA only [chunk_streams]",
    ),
    "a pair of MFMA": (
        PAIR.replace("@@left(la)", "@@dot(e)"),
        "intra_wave 'load' (kernel.py:L1): both regions of the pair hold MFMA and neither has memory operations; one "
        "region of a pair is memory only and the other MFMA only [chunk_streams]",
    ),
    "a pair that mixes": (
        PAIR.replace("@@dot(d)", "@@dot(d)\n    @@right(lb)"),
        "intra_wave 'load' (kernel.py:L1): region 2 of the pair mixes MFMA with memory operations (ttg.local_load, "
        "line L6); one region of a pair is memory only and the other MFMA only: move its memory operations to the "
        "other region, or drop pair and the second region [chunk_streams]",
    ),
    "a pair apart": (
        PAIR.replace("    @@open(compute", "    @fence\n    @@open(compute"),
        "intra_wave 'compute' (kernel.py:L5): the two regions of pair 0 are not adjacent: an operation (ttg.barrier, "
        "line L4) stands between them; move it into one of the regions, or in front of the first [open_windows]",
    ),
    "a pair with another region between": (
        PAIR.replace("    @@open(compute", "    @@open(other, 1)\n    @@close\n    @@open(compute"),
        "intra_wave 'load' (kernel.py:L1): the two regions of pair 0 are not adjacent: the intra_wave region 'other' "
        "stands between them; put the second right behind the first [open_windows]",
    ),
    "a pair of one": (
        GOOD.replace("open(weave)", "open(weave, 5)"),
        "intra_wave 'weave' (kernel.py:L1): pair 5 marks this region only; mark a second region with the same pair "
        "right behind it [open_windows]",
    ),
    "a pair of three": (
        PAIR + "    @@open(more, 0)\n    @@dot(e)\n    @@close\n",
        "intra_wave 'more' (kernel.py:L7): pair 0 marks three regions in a row; a pair is two regions, one of memory "
        "and one of MFMA: put both into these two, or number the third anew [open_windows]",
    ),
    "a window in a window": (
        GOOD.replace("@@dot(d)", "@@open(inner)\n    @@close"),
        "intra_wave 'inner' (kernel.py:L3): it opens inside the intra_wave region 'weave'; close that one first: "
        "windows do not nest [open_windows]",
    ),
    "a stage in a window": (
        GOOD.replace("@@dot(d)", "@begin(load)\n    @end"),
        "intra_wave 'weave' (kernel.py:L1): an inter-wave stage opens inside it (rocdl.sched.barrier, line L3); put "
        "the window inside the stage instead [open_windows]",
    ),
    "a window over a branch": (
        "\n    scf.if %flag {\n    @@open(weave)\n    @@left(la)\n    }\n    @@dot(d)\n    @@close\n",
        "intra_wave 'weave' (kernel.py:L2): it does not close in the block it opens in; keep control flow out of the "
        "region, and the whole region inside one branch or loop body [open_windows]",
    ),
    "a dot off the matrix unit": (
        GOOD.replace(
            "@@dot(d)",
            f"%d = tt.dot %fl, %fr, %fa : {TILE.replace('#blocked', '#fl')} * {TILE.replace('#blocked', '#fr')} -> "
            "tensor<64x64xf32, #blocked>",
        ),
        "intra_wave 'weave' (kernel.py:L4): none of its dots uses the matrix unit; give their results an MFMA or WMMA "
        "layout [chunk_streams]",
    ),
}


@pytest.mark.usefixtures("needs_triton")
@pytest.mark.parametrize("case", MESSAGES)
def test_what_makes_no_window(case: str) -> None:
    body, message = MESSAGES[case]
    if "off the matrix unit" in case:
        layout = "#ttg.dot_op<{opIdx = @, parent = #blocked}>"
        operands = ((f"#f{side}", layout.replace("@", str(i))) for i, side in enumerate("lr"))
        for name, text in operands:
            body = body.replace(name, text)
        left, right = (TILE.replace("#blocked", layout.replace("@", str(i))) for i in range(2))
        constants = f"    %fl = arith.constant dense<1.0> : {left}\n    %fr = arith.constant dense<1.0> : {right}\n"
        body = "\n" + constants + "    %fa = arith.constant dense<0.0> : tensor<64x64xf32, #blocked>\n" + body[1:]
    assert message in refusal(body)


def test_arguments_of_the_other_scope() -> None:
    with pytest.raises(UsageError, match="priority belongs to scope='inter_wave' only; drop priority"):
        StageSpec("w", "intra_wave", priority=1)
    with pytest.raises(UsageError, match="pair belongs to scope='intra_wave' only; drop pair"):
        StageSpec("w", "inter_wave", pair=0)
    for gap in (1, 2):
        with pytest.raises(UsageError, match="phase_gap belongs to scope='inter_wave' only; drop phase_gap"):
            StageSpec("w", "intra_wave", phase_gap=gap)


@pytest.mark.usefixtures("needs_triton")
def test_what_both_streams_need_is_no_dependence() -> None:
    shared = "%k = arith.addi %n, %m : i32\n    %z = tt.splat %k : i32 -> tensor<64x64xi32, #blocked>\n    "
    load = "%o = arith.addi %offsets, %z : tensor<64x64xi32, #blocked>\n    "
    load += f"%g = {buffer_load('%o')}"
    scale = f"%f = arith.sitofp %k : i32 to f32\n    %y = tt.splat %f : f32 -> {ACC}\n    "
    dot = f"%d = tt.dot %l, %r, %y : {LEFT} * {RIGHT} -> {ACC}"
    body = GOOD.replace("@@left(la)", shared + load).replace("@@dot(d)", scale + dot)
    mod = windowed(body)
    for one in windows():
        one.run(mod)
    order = [op.name for op in mod.walk()]
    first = order.index("rocdl.sched.barrier")
    assert order[first + 1] == "arith.addi"  # in front of both
