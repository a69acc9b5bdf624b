"""The passes for tasks: what they make of small modules, and what they refuse."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from amdwarp.lowering import bridge, task_functions
from amdwarp.lowering.bridge import filecheck, pretty
from amdwarp.lowering.ir import Module
from amdwarp.lowering.passes import CountBarriers, PlaceTasks, ReleaseArrivals, tasks
from amdwarp.lowering.passes.lower_tasks import LowerTasks

import amdwarp

pytestmark = pytest.mark.usefixtures("needs_triton")

BAR = "!ttg.memdesc<1xi64, #shared, #smem, mutable>"
RING = "!ttg.memdesc<2x1xi64, #shared, #smem, mutable>"
HEAD = """\
#shared = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "hip:gfx942",
                   "ttg.threads-per-warp" = 64 : i32, "ttg.total-num-warps" = 8 : i32} {
  tt.func public @kernel(%p: !tt.ptr<i32>, %phase: i32) {
    %c0 = arith.constant 0 : i32
"""


def module(body: str) -> Module:
    text = body.replace("BAR", BAR).replace("RING", RING)
    lines = [f'{line} loc("kernel.py":{at}:1)' if line.strip().startswith(("amdg", "%", "rocdl")) else line
             for at, line in enumerate(text.splitlines())]  # fmt: skip
    whole = HEAD + "\n".join(lines) + "\n    tt.return\n  }\n}\n"
    return bridge.read(bridge.parse_text(whole, bridge.new_context()))


TASKS = """
    %ring = ttg.local_alloc : () -> RING
    %b = ttg.memdesc_index %ring[%c0] : RING -> BAR
    amdg.init_barrier %b, 128 : BAR
    ttg.warp_specialize(%ring, %phase) attributes {MARKSrequestedRegisters = array<i32: 24, 24>, warpGroupStartIds = array<i32: 4, 5>}
    default {
      amdg.wait_barrier %b, %phase : BAR
      ttg.warp_yield
    }
    partition0(%r: RING, %q: i32) num_warps(1) {
      %zero = arith.constant 0 : i32
      %d = ttg.memdesc_index %r[%zero] : RING -> BAR
      %old = amdg.arrive_barrier %d, 1 {amdwarp.release = "all"} : BAR -> i32
      ttg.warp_return
    }
    partition1(%r: RING, %q: i32) num_warps(1) {
      ttg.warp_return
    } : (RING, i32) -> ()
"""  # noqa: E501


def test_counts_go_into_the_ops_through_captures_and_views() -> None:
    mod = module(TASKS.replace("MARKS", ""))
    ReleaseArrivals("gfx942").run(mod)
    CountBarriers(64).run(mod)
    text = pretty(mod)
    filecheck(
        text,
        """
        CHECK: amdg.init_barrier %{{.*}}, 1
        CHECK: %[[PARITY:.*]] = arith.andi %arg1, %{{.*}}
        CHECK-NEXT: %[[CODE:.*]] = arith.addi %[[PARITY]], %{{.*}}
        CHECK-NEXT: amdg.wait_barrier %{{.*}}, %[[CODE]]
        CHECK: rocdl.s.waitcnt 3952
        CHECK-NEXT: amdg.arrive_barrier %{{.*}}, 2
        """,
    )
    assert "amdwarp.release" not in text
    assert text.count("arith.constant 4 : i32") == 1  # two waves, above the phase


def test_releases_of_gfx1250() -> None:
    mod = module(TASKS.replace("MARKS", ""))
    ReleaseArrivals("gfx1250").run(mod)
    filecheck(
        pretty(mod),
        """
        CHECK: rocdl.s.wait.loadcnt 0
        CHECK-NEXT: rocdl.s.wait.storecnt 0
        CHECK-NEXT: rocdl.s.wait.asynccnt 0
        CHECK-NEXT: rocdl.s.wait.tensorcnt 0
        CHECK-NEXT: amdg.arrive_barrier %{{.*}}, 1
        """,
    )


@pytest.mark.parametrize(
    "starts, expected, total",
    [("-1", "warpGroupStartIds = array<i32: 4>", 5), ("6", "warpGroupStartIds = array<i32: 6, 4, 5>", 7)],
)
def test_padding_goes_and_gaps_are_filled(starts: str, expected: str, total: int) -> None:
    mod = module(TASKS.replace("MARKS", f'amdwarp.tasks.starts = "{starts}", '))
    PlaceTasks().run(mod)
    text = pretty(mod)
    assert expected in text
    assert f'"ttg.total-num-warps" = {total} : i32' in text
    assert "amdwarp.tasks.starts" not in text and "amdwarp.tasks.placed" in text


def test_blocks_of_others_stay() -> None:
    mod = module(TASKS.replace("MARKS", ""))
    PlaceTasks().run(mod)
    assert "warpGroupStartIds = array<i32: 4, 5>" in pretty(mod)
    assert '"ttg.total-num-warps" = 6 : i32' in pretty(mod)


def test_modules_without_tasks_get_no_passes() -> None:
    assert tasks(module("    amdg.init_barrier BADLY".partition("amdg")[0])) == ()


INIT = """
    %one = ttg.local_alloc : () -> BAR
    amdg.init_barrier %one, 64 : BAR
"""
REFUSALS = [
    (INIT.replace("64", "96"), "amdg.init_barrier .*counts 96 lanes, which are no whole waves of 64", 2),
    (INIT + "    %old = amdg.arrive_barrier %one, 2 : BAR -> i32", "counts more than once has no form", 3),
    (
        INIT + "    %old = amdg.arrive_barrier %one, 1 : BAR -> i32\n    %x = arith.addi %old, %old : i32",
        "the phase that an arrival gives back has no form on this target",
        3,
    ),
    (
        "\n    %ring = ttg.local_alloc : () -> RING\n    %b = ttg.memdesc_index %ring[%c0] : RING -> BAR\n"
        "    amdg.init_barrier %b, 64 : BAR\n    amdg.init_barrier %b, 128 : BAR",
        "alloc_barriers .*with 128 arrivals, another of the same allocation with 64; allocate them apart",
        4,
    ),
    (
        "\n    %one = ttg.local_alloc : () -> BAR\n    amdg.wait_barrier %one, %phase : BAR",
        "barrier_wait .*the barrier is not initialised in this kernel",
        2,
    ),
]


@pytest.mark.parametrize("body, text, line", REFUSALS, ids=["lanes", "count", "phase", "counts", "init"])
def test_barriers_that_have_no_counter(body: str, text: str, line: int) -> None:
    with pytest.raises(amdwarp.LoweringError, match=text) as caught:
        CountBarriers(64).run(module(body))
    assert f"(kernel.py:{line})" in str(caught.value)


def test_barriers_of_the_whole_workgroup() -> None:
    mod = module(TASKS.replace("MARKS", "") + "    rocdl.s.barrier")
    with pytest.raises(amdwarp.LoweringError, match=r"kernel.py:\d+\): a barrier of the whole workgroup"):
        PlaceTasks().run(mod)


# ---- the LLVM dialect


def lowered(arch: str, body: str) -> tuple[LowerTasks, Module]:
    text = f"""
module {{
  llvm.mlir.global internal @nbar2() {{addr_space = 3 : i32}} : !llvm.target<"amdgcn.named.barrier", 0> {{
    %0 = llvm.mlir.poison : !llvm.target<"amdgcn.named.barrier", 0>
    llvm.return %0 : !llvm.target<"amdgcn.named.barrier", 0>
  }}
  llvm.mlir.global external @global_smem() {{addr_space = 3 : i32, alignment = 16 : i64}} : !llvm.array<0 x i8>
  llvm.func @kernel(%phase: i32) {{
    %bar = llvm.mlir.addressof @global_smem : !llvm.ptr<3>
    %named = llvm.mlir.addressof @nbar2 : !llvm.ptr<3>
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %c29 = llvm.mlir.constant(29 : i64) : i64
    %c4 = llvm.mlir.constant(4 : i64) : i64
{body}
    llvm.return
  }}
}}"""
    context = bridge.new_context()
    mod = bridge.read(bridge.parse_text(text, context))
    edit = LowerTasks(arch, context, 100)
    edit.run(mod)
    return edit, bridge.read(bridge.write(mod, context))


POLL = """
    llvm.br ^poll
  ^poll:
    rocdl.s.sleep 1
    %word = llvm.load %bar : !llvm.ptr<3> -> i64
    %moved = llvm.lshr %word, %c29 : i64
    %cut = llvm.trunc %moved : i64 to i32
    %now = llvm.and %c1, %cut : i32
    %done = llvm.icmp "ne" %now, %phase : i32
    llvm.cond_br %done, ^done, ^poll
  ^done:
"""
ARRIVE = "    %old = rocdl.ds.atomic.barrier.arrive.rtn.b64 %bar, %c4 : !llvm.ptr<3>, i64 -> i64"
MEET = """
    rocdl.s.barrier.join %named : !llvm.ptr<3>
    rocdl.s.barrier.signal.var %named member_cnt = WAVES : !llvm.ptr<3>
    rocdl.s.barrier.wait id = 1
"""


def calls(mod: Module) -> list[str]:
    kernel = next(op for op in mod.ops("llvm.func") if op.properties["sym_name"] == '"kernel"')
    return [op.properties["callee"].removeprefix("@") for op in kernel.walk() if op.name == "llvm.call"]


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_what_the_target_lacks_becomes_calls(arch: str) -> None:
    wave = "    %w = rocdl.wave.id : i32\n    %u = llvm.add %w, %w : i32"
    edit, mod = lowered(arch, wave + POLL + ARRIVE + MEET.replace("WAVES", "2"))
    found = task_functions
    assert calls(mod) == [found.WAVE_ID, found.WAIT, found.ARRIVE, found.RENDEZVOUS]
    assert edit.added == 116 - 100  # from 112, the next multiple of 16, on
    assert not mod.ops("rocdl.wave.id", "rocdl.s.barrier.join", "rocdl.ds.atomic.barrier.arrive.rtn.b64")
    kernel = next(op for op in mod.ops("llvm.func") if op.properties["sym_name"] == '"kernel"')
    first = [op.name for op in kernel.regions[0].blocks[0].ops]
    assert first.index("llvm.store") < first.index("rocdl.barrier") < first.index("llvm.call")


def test_gfx1250_keeps_its_barriers_and_gets_fences() -> None:
    edit, mod = lowered("gfx1250", POLL + ARRIVE + MEET.replace("WAVES", "2"))
    assert calls(mod) == [task_functions.OBJECT_WAIT]
    assert edit.added == 0 and len(mod.ops("rocdl.s.barrier.join")) == 1
    arrive = mod.ops("rocdl.ds.atomic.barrier.arrive.rtn.b64")[0]
    before = arrive.block.ops[arrive.block.index(arrive) - 1]
    assert before.name == "llvm.fence" and before.properties["ordering"].startswith("5")


@pytest.mark.parametrize("arch", ["gfx942", "gfx1250"])
def test_a_barrier_of_one_wave_needs_no_other(arch: str) -> None:
    edit, mod = lowered(arch, MEET.replace("WAVES", "1"))
    assert not calls(mod) and edit.added == 0
    assert not mod.ops("rocdl.s.barrier.join", "rocdl.s.barrier.wait")


@pytest.mark.parametrize("arch", ["gfx942", "gfx1250"])
def test_numbers_of_waves_that_meet_do_not_share_a_counter(arch: str) -> None:
    edit, _ = lowered(arch, MEET.replace("WAVES", "2") + MEET.replace("WAVES", "4"))
    assert edit.added == (0 if arch == "gfx1250" else 120 - 100)


@pytest.mark.parametrize(
    "arch, body, text",
    [
        ("gfx942", POLL.replace('"ne"', '"eq"'), "a wait for a"),
        ("gfx942", POLL.replace("%word, %c29", "%word, %c4"), "a wait for a"),
        ("gfx942", POLL.replace("    %now = llvm.and %c1, %cut : i32\n", "").replace("%now", "%cut"), "a wait for a"),
        (
            "gfx942",
            MEET.replace("WAVES", "2").replace("    rocdl.s.barrier.join %named : !llvm.ptr<3>\n", ""),
            "a named",
        ),
        ("gfx942", ARRIVE + "\n    %x = llvm.add %old, %old : i64", "an arrival whose old phase is used"),
        ("gfx942", "    rocdl.s.barrier.signal id = -1", "rocdl.s.barrier.signal, which gfx942 lacks"),
    ],
)
def test_forms_that_are_not_known(arch: str, body: str, text: str) -> None:
    with pytest.raises(amdwarp.LoweringError, match=f"stock lowering of tasks left {text}"):
        lowered(arch, body)


def test_a_make_llir_that_does_without_the_pass() -> None:
    from amdwarp.lowering import codegen

    scope: dict[str, Any] = {}
    exec("def make_llir(src, metadata, options):\n    return ''", scope)
    parts = SimpleNamespace(passes=SimpleNamespace(ttgpuir=SimpleNamespace()))
    scope |= {"amd": parts, "llvm": parts}
    with pytest.raises(amdwarp.LoweringError, match="lowers tasks in another way than those this package was tried"):
        codegen.make_llir(SimpleNamespace(make_llir=scope["make_llir"]), None, None, {})
