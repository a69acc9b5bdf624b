"""What the protocol check follows through a kernel, and what it refuses because it cannot."""

from __future__ import annotations

import pytest
from amdwarp.lowering.bridge import triton_version
from amdwarp.lowering.ir import Op
from amdwarp.lowering.passes import FenceEdges, InterWave
from snippets import SLOT, module

from amdwarp.errors import LoweringError, ProtocolError

pytestmark = pytest.mark.usefixtures("needs_triton")


def fences(body: str, functions: str = "") -> list[bool]:
    """Whether each edge of the staged code fences, once the check holds."""
    mod = module(body, functions=functions)
    InterWave().run(mod)
    FenceEdges().run(mod)
    edges = [op for op in mod.walk() if "between" in op.attributes.get("amdwarp.edge", "")]
    return [op.name == "ttg.barrier" for op in edges]


def refusal(body: str, functions: str = "") -> str:
    with pytest.raises(ProtocolError) as caught:
        fences(body, functions)
    assert caught.value.where is not None
    return str(caught.value)


def stages(first: str, second: str, third: str = "") -> str:
    parts = [("one", first), ("two", second), *([("three", third)] if third else [])]
    return "\n".join(f"    @begin({name})\n{text}\n    @end" for name, text in parts)


def looped(body: str, carried: tuple[str, ...] = (), values: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> str:
    """A loop over %i around ``body``, with loop-carried values if they are given."""
    head = f" iter_args({', '.join(carried)}) -> ({', '.join(types)})" if carried else ""
    result = f"%done:{len(carried)} = " if len(carried) > 1 else "%done = " if carried else ""
    tail = f"\n      scf.yield {', '.join(values)} : {', '.join(types)}" if carried else ""
    return f"    {result}scf.for %i = %c0 to %n step %c1{head} : i32 {{\n{body}{tail}\n    }}\n"


# ---- views


def test_halves_of_a_slot_are_apart_and_overlapping_parts_are_not() -> None:
    half = "!ttg.memdesc<32x64xf16, #shared, #smem, mutable, 64x64>"

    def text(offset: int) -> str:
        return f"""
    @ring(r, 2)
    @slot(s, r, c0, 2)
    %top = ttg.memdesc_subslice %s[0, 0] : {SLOT} -> {half}
    %low = ttg.memdesc_subslice %s[{offset}, 0] : {SLOT} -> {half}
    %w = arith.constant dense<0.0> : tensor<32x64xf16, #blocked>
""" + stages(
            f"    ttg.local_store %w, %top : tensor<32x64xf16, #blocked> -> {half}\n    @fence\n"[:-11],
            f"    ttg.local_store %w, %low : tensor<32x64xf16, #blocked> -> {half}",
        )

    message = refusal(text(0))
    assert "it stores to slot 0 of LDS buffer" in message
    assert "the other wave group may still be at the store into slot 0" in message
    fences(text(32))


@pytest.mark.parametrize(
    "view",
    [
        "%t = ttg.memdesc_trans %s {order = array<i32: 1, 0>} : " + SLOT + " -> @TRANS@",
        "%t = ttg.memdesc_reinterpret %s : " + SLOT + " -> @TRANS@",
    ],
    ids=["trans", "reinterpret"],
)
def test_a_view_is_still_its_slot(view: str) -> None:
    trans = "!ttg.memdesc<64x64xf16, #ttg.padded_shared<[512:+16] {order = [0, 1], shape = [64, 64]}>, #smem, mutable>"

    def text(slot: int) -> str:
        lines = (
            f"    @ring(r, 2)\n    @slot(s, r, c0, 2)\n    @slot(u, r, c{slot}, 2)\n    @store(s)\n    @store(u)\n    "
        )
        lines += view.replace("@TRANS@", trans) + "\n"
        read = f"    %a = ttg.local_load %t : {trans} -> tensor<64x64xf16, #blocked>"
        return lines + stages("    @store(u)", read)

    assert "it reads slot 0 of LDS buffer" in refusal(text(0))
    if triton_version() >= (3, 9):
        fences(text(1))


def test_a_slot_index_outside_of_the_ring() -> None:
    text = "    @ring(r, 3)\n    %k = arith.constant 3 : i32\n    @slot(s, r, k, 3)\n" + stages("    @store(s)", "")
    assert "slot index 3 lies outside of LDS buffer" in refusal(text)
    negative = """
    @ring(r, 3)
    @slot(z, r, c0, 3)
    @store(z)
""" + looped(
        """
      %j = arith.subi %i, %c1 : i32
      %k = arith.remsi %j, %c3 : i32
"""
        + stages("      @slot(s, r, k, 3)\n      @load(a, s)", "")
    )
    assert "slot index -1 lies outside of LDS buffer" in refusal(negative)


def test_buffers_chosen_at_run_time_are_not_followed() -> None:
    text = f"    @buffer(r)\n    @buffer(q)\n    %s = arith.select %flag, %r, %q : {SLOT}\n" + stages(
        "    @store(s)", ""
    )
    assert "cannot be checked" in refusal(text)


def test_buffers_chosen_by_a_branch_are_followed_on_both_sides() -> None:
    text = f"""
    @buffer(r)
    @buffer(q)
    @store(r)
    %s = scf.if %flag -> ({SLOT}) {{
      scf.yield %r : {SLOT}
    }} else {{
      scf.yield %q : {SLOT}
    }}
"""
    assert "it reads LDS buffer" in refusal(text + stages("    @store(s)", "    @load(a, r)"))
    assert fences(text + stages("    @store(s)", "    ", "    @load(a, r)")) == [True, False]


# ---- loops


def rotating(depth: int) -> str:
    """A ring as loop-carried views: read the first, store to the last, rotate."""
    names = [f"%v{i}" for i in range(depth)]
    slots = "".join(f"    @slot(s{i}, r, c{i}, {depth})\n    @store(s{i})\n" for i in range(depth))
    carried = tuple(f"{name} = %s{i}" for i, name in enumerate(names))
    body = stages("      @load(a, v0)", "      ", f"      @store(v{depth - 1})")
    return f"    @ring(r, {depth})\n{slots}" + looped(body, carried, (*names[1:], names[0]), (SLOT,) * depth)


def test_loop_carried_views() -> None:
    assert fences(rotating(3)) == [False, True, True]
    assert "the other wave group may still be at the store into slot 1" in refusal(rotating(2))


def test_a_loop_with_a_step_known_at_run_time() -> None:
    body = stages("      @load(a, r)", "      ")
    loop = looped(body).replace("step %c1", "step %m")
    assert fences("    @buffer(r)\n    @store(r)\n" + loop) == [False, False]
    body = stages("      @store(r)", "      @load(a, r)")
    assert "the other wave group may still be at the" in refusal("    @buffer(r)\n" + looped(body).replace("%c1", "%m"))


def test_a_condition_that_holds_only_late_is_followed() -> None:
    """The 50th iteration stores to what the stage before reads."""
    late = """
      %k = arith.constant @AT@ : i32
      %now = arith.cmpi eq, %i, %k : i32
"""
    body = stages("      @load(a, r)", "      scf.if %now {\n        @store(r)\n      }")
    text = "    @buffer(r)\n    @store(r)\n" + looped(late.replace("@AT@", "50") + body)
    assert "it stores to LDS buffer" in refusal(text)
    assert "starts after 5000" in refusal(text.replace("50 : i32", "5000 : i32"))


def test_a_slot_that_changes_every_other_iteration() -> None:
    def text(ahead: int) -> str:
        index = f"""
      %half = arith.divsi %i, %c2 : i32
      %later = arith.constant {ahead} : i32
      %k = arith.remsi %half, %c3 : i32
      %half2 = arith.addi %half, %later : i32
      %l = arith.remsi %half2, %c3 : i32
"""
        slots = "".join(f"    @slot(s{i}, r, c{i}, 3)\n    @store(s{i})\n" for i in range(3))
        body = stages(
            "      @slot(s, r, k, 3)\n      @load(a, s)", "      ", "      @slot(t, r, l, 3)\n      @store(t)"
        )
        return f"    @ring(r, 3)\n{slots}" + looped(index + body)

    fences(text(2))
    assert "the other wave group may still be at the" in refusal(text(1))


@pytest.mark.parametrize("count", [0, 1, 2, 7, 40])
def test_a_loop_of_known_length(count: int) -> None:
    body = stages("      @store(r)", "      @load(a, r)")
    text = f"    @buffer(r)\n    %last = arith.constant {count} : i32\n" + looped(body).replace("to %n", "to %last")
    if count == 0:
        assert fences(text) == [False, False]
    else:
        assert "it reads LDS buffer" in refusal(text)


# ---- control flow


def test_a_copy_under_a_condition_before_the_loop() -> None:
    def text(wait_outside: bool) -> str:
        wait = "    @wait(0)\n"
        head = "    @buffer(r)\n    @store(r)\n    scf.if %flag {\n      @copy(r)\n      @commit\n"
        return head + ("" if wait_outside else wait) + "    }\n" + (wait if wait_outside else "")

    for outside in (True, False):
        assert fences(text(outside) + stages("    @relaxed(a, r)", "")) == [False]
    assert "no wait covers it" in refusal(text(True).replace("    @wait(0)\n", "") + stages("    @relaxed(a, r)", ""))


def test_a_wait_under_a_condition_covers_nothing_on_the_other_side() -> None:
    head = "    @buffer(r)\n    @copy(r)\n    @commit\n    scf.if %flag {\n      @wait(0)\n    }\n"
    assert "no wait covers it" in refusal(head + stages("    @relaxed(a, r)", ""))
    both = head.replace("    }\n", "    } else {\n      @wait(0)\n    }\n")
    assert fences(both + stages("    @relaxed(a, r)", "")) == [False]


def test_one_condition_has_one_answer() -> None:
    text = """
    @buffer(r)
    @store(r)
    scf.if %flag {
      @copy(r)
      @commit
    }
    scf.if %flag {
      @wait(0)
    }
"""
    assert fences(text + stages("    @relaxed(a, r)", "")) == [False]


def test_an_early_return() -> None:
    text = """
    @buffer(r)
    @store(r)
    cf.cond_br %flag, ^leave, ^stay
  ^leave:
    tt.return
  ^stay:
"""
    assert fences(text + stages("    @store(r)", "    ", "    @load(a, r)")) == [True, False]
    assert "it reads LDS buffer" in refusal(text + stages("    @store(r)", "    @load(a, r)"))


def test_loops_that_are_not_scf_for_are_refused() -> None:
    backward = """
    @buffer(r)
    @store(r)
    cf.br ^again
  ^again:
    @load(z, r)
    cf.cond_br %flag, ^again, ^on
  ^on:
"""
    assert "a loop is not in the form of scf.for" in refusal(backward + stages("    @store(r)", ""))
    loop = """
    @buffer(r)
    scf.while : () -> () {
      @load(z, r)
      scf.condition(%flag)
    } do {
      scf.yield
    }
"""
    assert "scf.while holds shared-memory operations" in refusal(loop + stages("    @store(r)", ""))


CALLED = """
  tt.func private @touches(%b: !ttg.memdesc<64x64xf16, #shared, #smem, mutable>) attributes {noinline = true} {
    tt.return
  }
  tt.func private @waits(%y: i32) -> i32 attributes {noinline = true} {
    %t = ttg.async_wait {num = 0 : i32}
    tt.return %y : i32
  }
  tt.func private @deep(%y: i32) -> i32 attributes {noinline = true} {
    %r = tt.call @waits(%y) : (i32) -> i32
    tt.return %r : i32
  }
  tt.func private @harmless(%y: i32) -> i32 attributes {noinline = true} {
    %r = arith.addi %y, %y : i32
    tt.return %r : i32
  }
"""


def test_calls_that_are_not_inlined() -> None:
    rest = stages("    @store(r)", "    ", "    @load(a, r)")
    assert fences("    @buffer(r)\n    %z = tt.call @harmless(%n) : (i32) -> i32\n" + rest, CALLED) == [True, False]
    for call in (f"tt.call @touches(%r) : ({SLOT}) -> ()", "%z = tt.call @deep(%n) : (i32) -> i32"):
        assert "a function that is not inlined uses shared memory" in refusal(
            f"    @buffer(r)\n    {call}\n{rest}", CALLED
        )


def test_a_conditional_barrier_of_the_kernels_own() -> None:
    text = "    @buffer(r)\n    amdg.cond_barrier %flag\n" + stages("    @store(r)", "")
    assert "the kernel has a conditional barrier of its own" in refusal(text)


# ---- groups, waits and fences


def test_waits_with_tokens_cover_their_group() -> None:
    def text(token: str) -> str:
        return f"""
    @buffer(r)
    @buffer(q)
    @copy(r)
    %g0 = ttg.async_commit_group
    @copy(q)
    %g1 = ttg.async_commit_group
    %t = ttg.async_wait {token} {{num = 0 : i32}}
    @fence
""" + stages("    @relaxed(a, r)\n    @relaxed(b, q)", "")

    assert fences(text("%g1")) == [False]
    assert fences(text("%g0, %g1")) == [False]
    assert "no wait covers it" in refusal(text("%g0"))


TWO_RINGS = """
    @ring(r, 2)
    @ring(q, 2)
    @slot(p0, r, c0, 2)
    @slot(p1, q, c0, 2)
    @copy(p0)
    @commit
    @copy(p1)
    @commit
    @wait(0)
    scf.for %i = %c0 to %n step %c1 : i32 {
      %j = arith.addi %i, %c1 : i32
      %near = arith.remsi %i, %c2 : i32
      %far = arith.remsi %j, %c2 : i32
      @begin(one)
      @slot(a0, r, near, 2)
      @slot(b0, q, near, 2)
      @relaxed(a, a0)
      @relaxed(b, b0)
      @slot(a1, r, far, 2)
      @slot(b1, q, far, 2)
      @copy(a1)
      @commit
      @copy(b1)
      @commit
      @end
      WAITS
      @begin(two)
      @end
    }
"""


def test_two_groups_and_two_waits_an_iteration() -> None:
    def text(*waits: str) -> str:
        return TWO_RINGS.replace("WAITS", "\n      ".join(waits))

    assert fences(text("@wait(0)")) == [True, False]
    assert fences(text("@wait(1)", "@wait(0)")) == [True, False]
    assert "no wait covers it" in refusal(text("@wait(1)"))
    assert "no wait covers it" in refusal(text("@wait(2)", "@wait(1)"))


def test_copies_through_pointers() -> None:
    pointers = "tensor<64x64x!tt.ptr<f16>, #blocked>"
    head = f"    @buffer(r)\n    %ps = tt.splat %p : !tt.ptr<f16> -> {pointers}\n"
    copy = f"    %k = ttg.async_copy_global_to_local %ps, %r : {pointers} -> <64x64xf16, #shared, #smem, mutable>"
    copy += "\n    @commit\n"
    assert "no wait covers it" in refusal(head + copy + stages("    @relaxed(a, r)", ""))
    assert fences(head + copy + "    @wait(0)\n" + stages("    @relaxed(a, r)", "")) == [False]


def test_a_wait_before_the_loop_has_a_barrier_of_stock_triton() -> None:
    text = "    @buffer(r)\n    @copy(r)\n    @commit\n    @wait(0)\n"
    assert fences(text + stages("    @relaxed(a, r)", "    ")) == [False]


def test_a_barrier_without_lds_is_no_fence() -> None:
    def text(space: str) -> str:
        return "    @buffer(r)\n    @store(r)\n" + stages("    @store(r)", "", "    @load(a, r)").replace(
            "    @end\n    @begin(two)", f"    @end\n    ttg.barrier {space}\n    @begin(two)"
        )

    mod = module(text("global_read"))
    InterWave().run(mod)
    FenceEdges().run(mod)
    edge = next(op for op in mod.walk() if "between stage 'one'" in op.attributes.get("amdwarp.edge", ""))
    assert edge.properties["addrSpace"] == "3 : i32", "made a fence, and still what it was"


# ---- memory that is used again


def test_buffers_that_are_never_alive_together_may_share_memory() -> None:
    def text(last_use: str) -> str:
        return f"""
    @buffer(r)
    @copy(r)
    @commit
    {last_use}
    @buffer(q)
    @store(q)
""" + stages("    @load(a, q)", "")

    assert "it reads LDS buffer" not in (message := refusal(text("%z = arith.addi %n, %n : i32")))
    assert "it stores to LDS buffer" in message
    assert "while the copy into LDS buffer" in message
    assert fences(text("@wait(0)")) == [False]
    alive = text("%z = arith.addi %n, %n : i32") + "\n    @wait(0)\n    @relaxed(k, r)\n"
    assert fences(alive) == [False]


def test_a_buffer_made_in_the_loop_is_one_buffer() -> None:
    body = "      @buffer(r)\n" + stages("      @store(r)", "      @load(a, r)")
    assert "the other wave group may still be at the store into LDS buffer" in refusal(looped(body))


TURNED = "#ttg.blocked<{sizePerThread = [8, 1], threadsPerWarp = [8, 8], warpsPerCTA = [1, 8], order = [0, 1]}>"
CONVERT = f"%w = ttg.convert_layout %v : tensor<64x64xf16, #blocked> -> tensor<64x64xf16, {TURNED}>"


def test_scratch_memory_may_lie_over_a_dead_ring() -> None:
    head = "    @buffer(r)\n    @copy(r)\n    @commit\n"
    rest = "\n" + stages("    %k = arith.addi %n, %n : i32", "")
    message = refusal(head + "    " + CONVERT + rest)
    assert "its scratch memory may lie over LDS buffer" in message
    assert "which is not used any more" in message
    assert fences(head + "    @wait(0)\n    " + CONVERT + rest) == [False]
    assert fences(head + "    " + CONVERT + rest + "\n    @wait(0)\n    @relaxed(z, r)\n") == [False], (
        "the ring is alive"
    )


# ---- effort


def test_more_paths_than_can_be_followed() -> None:
    branches = "".join(
        f"    %y{i} = arith.constant {i} : i32\n    %f{i} = arith.cmpi slt, %n, %y{i} : i32\n"
        f"    %g{i} = arith.xori %f{i}, %flag : i1\n    scf.if %g{i} {{\n      @store(r)\n    }}\n"
        for i in range(13)
    )
    message = refusal("    @buffer(r)\n    @store(r)\n" + branches + stages("    @load(a, r)", ""))
    assert "more distinct paths through its shared-memory use than can be followed (4000)" in message


def test_more_iterations_than_can_be_followed() -> None:
    text = "    @buffer(r)\n    @store(r)\n    %last = arith.constant 100000 : i32\n"
    assert "more than 200000 operations on one path" in refusal(
        text + looped(stages("      @load(a, r)", "      @load(b, r)")).replace("to %n", "to %last")
    )


STEPS = """
    @ring(r, 3)
    %step = arith.constant 64 : i32
    %up = arith.constant 63 : i32
    @slot(z, r, c0, 3)
    @copy(z)
    @commit
    @wait(0)
    scf.for %i = %c0 to %n step %step : i32 {
      %tile = arith.divsi %i, %step : i32
      %next = arith.addi %tile, %c1 : i32
      %k = arith.remsi %tile, %c3 : i32
      %l = arith.remsi %next, %c3 : i32
      @begin(one)
      @slot(s, r, k, 3)
      @relaxed(a, s)
      @slot(t, r, l, 3)
      @copy(t)
      @commit
      @end
      @wait(0)
      @begin(two)
      @end
    }
    @slot(u, r, c1, 3)
    @copy(u)
    @commit
    %padded = arith.addi %n, %up : i32
    %whole = arith.divsi %padded, %step : i32
    %after = arith.remsi %whole, %c3 : i32
    %fresh = arith.cmpi eq, %after, %c1 : i32
    scf.if %fresh {
      @wait(0)
    }
    %tiles = arith.divsi COUNTED, %step : i32
    %last = arith.remsi %tiles, %c3 : i32
    @slot(e, r, last, 3)
    @begin(three)
    @relaxed(b, e)
    @end
    @begin(four)
    @end
"""


def test_the_last_iteration_may_be_a_part_of_a_step() -> None:
    """Tiles counted by a quotient that is rounded up are as many as the iterations; rounded down they may be fewer."""
    assert fences(STEPS.replace("COUNTED", "%padded"))[:2] == [True, False]
    assert "it reads slot 1" in (message := refusal(STEPS.replace("COUNTED", "%n")))
    assert "may not have landed: no wait covers it" in message


def test_partitions_of_waves_beside_stages_are_refused() -> None:
    mod = module(stages("", ""))
    (function,) = mod.functions()
    function.regions[0].blocks[0].insert(0, Op("ttg.warp_specialize"))
    with pytest.raises(LoweringError, match="a barrier of a wave pipeline is one of all waves") as caught:
        InterWave().run(mod)
    assert caught.value.construct == "warp_pipeline_stage 'one'"
