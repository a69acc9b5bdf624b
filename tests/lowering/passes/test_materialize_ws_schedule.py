"""materialize_ws_schedule: the forms it makes, and the same numbers as the straight-line kernel, without races."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amdwarp.lowering.bridge import filecheck

from amdwarp import WSRole, WSSchedule
from amdwarp.sanitizer import check

pytestmark = pytest.mark.usefixtures("needs_triton")

LENGTHS = (32, 64, 96, 224)


def same_as_straight(plan: WSSchedule, how: str, arch: str, **constants: Any) -> None:
    from ws_kernels import compiled, emulated, operands

    straight, made = compiled(plan, "none", arch, **constants), compiled(plan, how, arch, **constants)
    for k in LENGTHS:
        expected = emulated(straight, operands(k))
        assert np.isfinite(expected).all()
        np.testing.assert_array_equal(emulated(made, operands(k), seed=k), expected)


def race_free(plan: WSSchedule, how: str, arch: str, seeds: int, k: int = 160) -> None:
    from ws_kernels import compiled, operands

    report = check(compiled(plan, how, arch), operands(k), (1,), seeds=seeds)
    assert report.ok, "\n".join(map(str, report.findings))


# ---- forms


def test_as_one_software_pipeline() -> None:
    from ws_kernels import compiled, schedule

    filecheck(
        compiled(schedule(1, 2), "pipeline", "gfx950").asm["amdwarp"],
        """
        CHECK: %a_tile = ttg.local_alloc : () -> !ttg.memdesc<2x64x32xf16
        CHECK: %b_tile = ttg.local_alloc : () -> !ttg.memdesc<2x32x64xf16
        CHECK: [[ONE:%.*]] = arith.cmpi slt
        CHECK: scf.if [[ONE]]
        CHECK: amdg.buffer_load_to_local
        CHECK: amdg.buffer_load_to_local
        CHECK: ttg.async_commit_group
        CHECK: } else {
        CHECK: scf.for
        CHECK-NEXT: ttg.async_wait {num = 0 : i32}
        CHECK-NEXT: ttg.barrier local
        CHECK-NEXT: ttg.memdesc_index %a_tile[[[PRODUCED:%.*]]]
        CHECK-NEXT: amdg.buffer_load_to_local
        CHECK-NEXT: ttg.memdesc_index %b_tile[[[PRODUCED]]]
        CHECK-NEXT: amdg.buffer_load_to_local
        CHECK-NEXT: ttg.async_commit_group
        CHECK: ttg.memdesc_index %a_tile[[[CONSUMED:%.*]]]
        CHECK-NEXT: ttg.memdesc_index %b_tile[[[CONSUMED]]]
        CHECK-NEXT: ttg.local_load {{.*}}syncedViaAsyncWait = true
        CHECK-NEXT: ttg.local_load {{.*}}syncedViaAsyncWait = true
        CHECK-NEXT: tt.dot
        CHECK-NOT: ttg.barrier
        CHECK: scf.yield
        CHECK: scf.if [[ONE]]
        CHECK-NEXT: ttg.async_wait {num = 0 : i32}
        CHECK-NEXT: ttg.barrier local
        CHECK: tt.dot
        CHECK: tt.store
        CHECK-NOT: rocdl.sched.barrier
        """,
    )


def test_a_longer_distance_keeps_more_copies_under_way() -> None:
    from ws_kernels import compiled, schedule

    filecheck(
        compiled(schedule(2, 3), "pipeline", "gfx950").asm["amdwarp"],
        """
        CHECK: ttg.local_alloc : () -> !ttg.memdesc<3x64x32xf16
        CHECK: scf.for
        CHECK-NEXT: ttg.async_wait {num = 1 : i32}
        CHECK: scf.yield
        CHECK: ttg.async_wait {num = 1 : i32}
        CHECK: tt.dot
        CHECK: ttg.async_wait {num = 0 : i32}
        CHECK: tt.dot
        """,
    )


def test_an_acquire_has_a_barrier_of_its_own_where_no_wait_stands_between() -> None:
    from ws_kernels import compiled, schedule

    filecheck(
        compiled(schedule(0, 1), "pipeline", "gfx950").asm["amdwarp"],
        """
        CHECK: scf.for
        CHECK-NEXT: ttg.barrier local
        CHECK: amdg.buffer_load_to_local
        CHECK: ttg.async_wait {num = 0 : i32}
        CHECK-NEXT: ttg.barrier local
        CHECK: tt.dot
        CHECK-NOT: ttg.barrier
        CHECK: scf.yield
        """,
    )


def test_as_tasks() -> None:
    from ws_kernels import compiled, schedule

    filecheck(
        compiled(schedule(1, 2, 2), "tasks", "gfx1250").asm["amdwarp"],
        """
        CHECK: ttg.total-num-warps" = 8
        CHECK: [[FULL:%.*]] = ttg.local_alloc : () -> !ttg.memdesc<2x1xi64
        CHECK-COUNT-2: amdg.init_barrier {{%.*}}, 128
        CHECK: [[EMPTY:%.*]] = ttg.local_alloc : () -> !ttg.memdesc<2x1xi64
        CHECK-COUNT-2: amdg.init_barrier {{%.*}}, 128
        CHECK: ttg.barrier local
        CHECK: ttg.warp_specialize(
        CHECK: default
        CHECK-NOT: scf.if
        CHECK: scf.for
        CHECK-NEXT: ttg.memdesc_index [[FULL]][[[SLOT:%.*]]]
        CHECK-NEXT: amdg.wait_barrier
        CHECK-NEXT: ttg.memdesc_index %a_tile[[[SLOT]]]
        CHECK: tt.dot
        CHECK-NEXT: ttg.memdesc_index [[EMPTY]][[[SLOT]]]
        CHECK-NEXT: amdg.arrive_barrier
        CHECK: tt.store
        CHECK: ttg.warp_yield
        CHECK: partition0({{.*}}num_warps(4)
        CHECK: scf.if
        CHECK: amdg.wait_barrier
        CHECK: ttg.async_copy_global_to_local
        CHECK: ttg.async_commit_group
        CHECK: scf.for
        CHECK: amdg.wait_barrier
        CHECK: ttg.async_commit_group
        CHECK: ttg.async_wait {num = 1 : i32}
        CHECK: amdg.arrive_barrier
        CHECK: scf.yield
        CHECK: scf.if
        CHECK-NEXT: ttg.async_wait {num = 0 : i32}
        CHECK: amdg.arrive_barrier
        CHECK: ttg.warp_return
        """,
    )


def test_stages_that_agree_within_a_role_cancel() -> None:
    from ws_kernels import compiled, schedule

    texts = [compiled(schedule(stage, 3), "tasks", "gfx950").asm["amdwarp"] for stage in (0, 2)]
    assert texts[0] == texts[1]
    assert "scf.if" not in texts[0]


def test_nothing_happens_without_a_schedule() -> None:
    from ws_kernels import compiled, schedule

    text = compiled(schedule(), "none", "gfx950").asm["amdwarp"]
    assert "amdwarp.ws" not in text
    assert "!ttg.memdesc<64x32xf16" in text


# ---- numbers


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1250"])
@pytest.mark.parametrize("how", ["pipeline", "tasks"])
@pytest.mark.parametrize("shape", [pytest.param((1, 2, 1), marks=pytest.mark.newest), (2, 4, 2)], ids=str)
def test_same_numbers_as_straight_through(shape: tuple[int, int, int], how: str, arch: str) -> None:
    from ws_kernels import schedule

    same_as_straight(schedule(*shape), how, arch)


@pytest.mark.parametrize("how", ["pipeline", "tasks"])
@pytest.mark.parametrize("later", [1, 2])
def test_values_are_carried_to_later_stages(later: int, how: str) -> None:
    from ws_kernels import reading_ahead

    same_as_straight(reading_ahead(later), how, "gfx950")
    race_free(reading_ahead(later), how, "gfx950", 1)


@pytest.mark.parametrize("how", ["pipeline", "tasks"])
def test_two_pipelines_of_different_depth(how: str) -> None:
    from ws_kernels import split_schedule

    same_as_straight(split_schedule(1, 2), how, "gfx950")
    race_free(split_schedule(1, 2), how, "gfx950", 2)


@pytest.mark.parametrize("how", ["pipeline", "tasks"])
def test_a_loop_of_known_length(how: str) -> None:
    from ws_kernels import compiled, emulated, operands, schedule

    plan = schedule(2, 3, 2)
    for steps in (1, 2, 3, 5):
        made, straight = (compiled(plan, one, "gfx950", STEPS=steps) for one in (how, "none"))
        assert "scf.if" not in made.asm["amdwarp"]
        np.testing.assert_array_equal(emulated(made, operands(32 * steps)), emulated(straight, operands(32 * steps)))


@pytest.mark.parametrize("how", ["pipeline", "tasks"])
def test_conditions_of_the_source_guard_ops(how: str) -> None:
    from ws_kernels import compiled, emulated, operands, schedule

    plan = schedule(1, 2, 1, "clear_b")
    made, straight = (compiled(plan, one, "gfx950", GUARD=True) for one in (how, "none"))
    for first in (0, 2, 9):
        args = [*operands(160)[:6], first]
        expected = emulated(straight, args)
        assert (expected == 0).all() == (first == 9)
        np.testing.assert_array_equal(emulated(made, args), expected)


@pytest.mark.parametrize("how", ["pipeline", "tasks"])
def test_a_scope_inside_a_scope(how: str) -> None:
    from ws_kernels import tiles_compiled, tiles_run

    made, straight = (tiles_compiled(one) for one in (how, "none"))
    for m, k in ((64, 32), (128, 96), (192, 160)):
        np.testing.assert_array_equal(tiles_run(made, m, k, seed=m), tiles_run(straight, m, k))


@pytest.mark.parametrize("how", ["pipeline", "tasks"])
def test_a_condition_around_a_scope(how: str) -> None:
    from ws_kernels import tiles_compiled, tiles_run

    kernel = tiles_compiled(how, 128)
    assert np.isnan(tiles_run(kernel, 64, 96)).all()
    np.testing.assert_array_equal(tiles_run(kernel, 128, 96), tiles_run(tiles_compiled("none"), 128, 96))


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1250"])
def test_any_role_may_stand_at_wave_0(arch: str) -> None:
    from ws_kernels import swapped_schedule

    same_as_straight(swapped_schedule(), "tasks", arch)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1250"])
@pytest.mark.parametrize("how", ["pipeline", "tasks"])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("in_flight", [1, 2, 3])
def test_every_stage_depth_and_lag(stage: int, depth: int, in_flight: int, how: str, arch: str) -> None:
    from ws_kernels import schedule

    if in_flight > depth or (how == "pipeline" and depth <= stage):
        pytest.skip("no such schedule")
    same_as_straight(schedule(stage, depth, in_flight), how, arch)


# ---- races


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1250"])
@pytest.mark.parametrize("how", ["pipeline", "tasks"])
def test_free_of_races(how: str, arch: str) -> None:
    from ws_kernels import schedule

    race_free(schedule(2, 3, 2), how, arch, 2)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1250"])
@pytest.mark.parametrize("how", ["pipeline", "tasks"])
@pytest.mark.parametrize("shape", [(0, 1, 1), (1, 2, 1), (2, 3, 2), (1, 4, 3)], ids=str)
def test_free_of_races_in_ten_orders(shape: tuple[int, int, int], how: str, arch: str) -> None:
    from ws_kernels import schedule

    race_free(schedule(*shape), how, arch, 10)


# ---- stages of a wave pipeline


def test_as_stages_of_a_wave_pipeline() -> None:
    from ws_kernels import wide_compiled

    filecheck(
        wide_compiled("inter_wave").asm["amdwarp"],
        """
        CHECK: scf.if
        CHECK: ttg.async_wait {num = 1 : i32}
        CHECK: amdg.cond_barrier
        CHECK: scf.for
        CHECK-NOT: ttg.async_wait
        CHECK: amdg.buffer_load_to_local
        CHECK: ttg.async_commit_group
        CHECK: ttg.local_load
        CHECK: rocdl.s.setprio
        CHECK: ttg.async_wait {num = 1 : i32}
        CHECK: barrier
        CHECK: tt.dot
        CHECK: scf.yield
        CHECK: amdg.cond_barrier
        """,
    )


@pytest.mark.parametrize("how", ["inter_wave", "pipeline", "tasks"])
def test_eight_waves_a_role(how: str) -> None:
    from ws_kernels import emulated, operands, wide_compiled

    for k in (64, 128, 192, 448):
        args = operands(k, 128, 128)
        expected = emulated(wide_compiled("none"), args, tile=128)
        np.testing.assert_array_equal(emulated(wide_compiled(how), args, seed=k, tile=128), expected)


def test_stages_are_free_of_races() -> None:
    from ws_kernels import operands, wide_compiled

    report = check(wide_compiled("inter_wave"), operands(320, 128, 128), (1,), seeds=3)
    assert report.ok, "\n".join(map(str, report.findings))


def test_stages_need_a_version_more_than_their_distance() -> None:
    from ws_kernels import wide_compiled

    from amdwarp.errors import LoweringError

    with pytest.raises(LoweringError, match="as one software pipeline it gets stuck in producer_acquire of 'smem'"):
        wide_compiled("inter_wave", stage=2, depth=2)
    with pytest.raises(LoweringError) as caught:
        wide_compiled("inter_wave", stage=0, depth=2)
    assert "a barrier stands inside of the memory stage, which reads what it has just copied" in str(caught.value)


# ---- registers


def test_budgets_of_roles_are_compared_with_what_they_take(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from ws_kernels import compiled, emulated, line_of, operands, schedule

    plan = schedule()
    roles = [WSRole("mma", warps_lo=0, warps_hi=4, max_nreg=24), WSRole("load", warps_lo=4, warps_hi=8)]
    told = rf"mma \({re.escape(line_of('schedule'))}\) takes \d+ registers a thread of a budget of 24; on AMD all"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))  # what another run has compiled is not warned of again
    with pytest.warns(UserWarning, match=told):
        kernel = compiled(replace(plan, roles=roles), "tasks", "gfx950", STEPS=0)
    mma, load = kernel.metadata.tasks
    assert (mma["name"], load["name"]) == ("mma", "load")
    assert mma["needs"] == mma["allocated"] > load["needs"] > 0
    straight = compiled(plan, "none", "gfx950")
    np.testing.assert_array_equal(emulated(kernel, operands(96)), emulated(straight, operands(96)))


def test_registers_that_do_not_fit_are_refused_with_the_line_of_the_schedule() -> None:
    from ws_kernels import compiled, line_of, schedule

    from amdwarp.errors import UsageError

    roles = [WSRole(name, warps_lo=lo, warps_hi=lo + 4, max_nreg=504) for name, lo in (("mma", 0), ("load", 4))]
    with pytest.raises(UsageError) as caught:
        compiled(replace(schedule(1, 3), roles=roles), "tasks", "gfx942")
    assert str(caught.value) == (
        f"WSRole ({line_of('schedule')}): the registers asked for are 1984 too many: 2 tasks of 8 waves share 2048 on "
        "gfx942; ask for fewer, or take fewer waves"
    )


# ---- one thread that cannot


def test_one_thread_that_would_wait_for_itself_is_refused() -> None:
    from ws_kernels import compiled, line_of, schedule

    from amdwarp.errors import LoweringError

    with pytest.raises(LoweringError) as caught:
        compiled(schedule(2, 2), "pipeline", "gfx950")
    assert str(caught.value) == (
        f"ws_schedule ({line_of('schedule')}): as one software pipeline it gets stuck in producer_acquire of 'smem', "
        "iteration 2: what it waits for comes later in the same thread; raise the pipeline's depth above the distance "
        "of its stages, or realise it as tasks [materialize_ws_schedule]"
    )


def test_one_thread_that_would_wait_for_data_of_its_own_is_told_of_the_stage() -> None:
    from ws_kernels import line_of
    from ws_refused import build, chain, kernel

    from amdwarp.errors import LoweringError

    with pytest.raises(LoweringError) as caught:
        build("second pipeline", chain(made=1, used=0), how="pipeline")
    assert str(caught.value) == (
        f"ws_schedule ({line_of('schedule', kernel.fn.__code__.co_filename)}): as one software pipeline it gets stuck "
        "in consumer_wait of 'q', iteration 0: what it waits for comes later in the same thread; role 'adds' has not "
        "committed this iteration: move its commit before the wait, lower its stage, or raise that of 'ends', or "
        "realise it as tasks; no depth brings the data [materialize_ws_schedule]"
    )


def test_roles_whose_stages_are_far_apart_are_no_single_thread() -> None:
    from ws_kernels import line_of
    from ws_refused import build, kernel, plan, release, wait

    from amdwarp.errors import LoweringError

    late = plan(add=[wait("p", 1000), "read", "add", release("p", 1000)])
    with pytest.raises(LoweringError) as caught:
        build("", late, how="pipeline")
    assert str(caught.value) == (
        f"ws_schedule ({line_of('schedule', kernel.fn.__code__.co_filename)}): as one software pipeline its last steps "
        "run 1000 iterations behind the first, and at most 64 are written out; bring the roles' stages closer "
        "together, or realise it as tasks [materialize_ws_schedule]"
    )
    assert "amdwarp.ws" not in build("", late).asm["amdwarp"]


@pytest.mark.parametrize(
    ("how", "made", "used", "depth"),
    [
        ("pipeline", 1, 1, 3),  # the stage of 'ends' cancels within the role, and yet counts in one thread
        ("pipeline", 1, 2, 3),
        ("pipeline", 1, 1, 1),
        ("tasks", 1, 1, 3),
        ("tasks", 1, 0, 3),
    ],
)
def test_a_role_that_passes_on_what_it_has_read(how: str, made: int, used: int, depth: int) -> None:
    from ws_refused import BK, BM, build, chain, sums

    kernel = build("second pipeline", chain(made, used, depth), how=how)
    for trips in (0, 1, 2, 7):
        for seed in (0, 1, 2):
            np.testing.assert_array_equal(*sums(kernel, trips, seed))
    x, y = np.ones((6, BM, BK), np.float16), np.zeros((6, BM, BK), np.float32)
    report = check(kernel, [x, y, 5, 0], (1,), seeds=2)
    assert report.ok, "\n".join(map(str, report.findings))


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_versions_that_a_thread_cannot_tell_apart_change_nothing(stage: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from amdwarp.lowering.analysis import ws_program
    from ws_refused import build, plan, release, wait

    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    points, executed = ws_program._points, []
    monkeypatch.setattr(ws_program, "_points", lambda *args: executed.append(points(*args)) or executed[-1])
    add = [wait("p", stage), "read", "add", release("p", stage)]

    def made(depth: int) -> tuple[str, int]:
        executed.clear()
        text = build("", plan(add=add, depth=depth), how="pipeline").asm["amdwarp"]
        return text, sum(map(len, executed))

    near = {depth: made(depth) for depth in (stage + 1, stage + 2, 2 * stage + 3, 9, 18, 36)}
    assert near[18][1] == near[36][1] > 0
    monkeypatch.setattr(ws_program, "_near", lambda kernel, _: kernel.schedule)
    for depth, (text, steps) in near.items():
        all_text, all_steps = made(depth)
        assert text == all_text
        assert steps <= all_steps
    assert near[36][1] < all_steps / 10


# ---- roles with other numbers of waves than the kernel


@pytest.mark.parametrize(("arch", "sizes"), [("gfx942", {"load": 1}), ("gfx950", {"load": 2}), ("gfx1250", {"mma": 1})])
def test_roles_with_fewer_waves(arch: str, sizes: dict[str, int]) -> None:
    from ws_kernels import resized

    same_as_straight(resized(**sizes), "tasks", arch)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1250"])
@pytest.mark.parametrize("sizes", [{"load": 1}, {"load": 2}, {"mma": 1}, {"mma": 2}], ids=str)
def test_roles_with_fewer_waves_are_free_of_races(arch: str, sizes: dict[str, int]) -> None:
    from ws_kernels import resized

    same_as_straight(resized(**sizes), "tasks", arch)
    race_free(resized(**sizes), "tasks", arch, 10)


def test_roles_with_more_waves_than_the_layouts_are_refused() -> None:
    from ws_kernels import compiled, line_of, resized

    from amdwarp.errors import LoweringError

    with pytest.raises(LoweringError) as caught:
        compiled(resized(load=8), "tasks", "gfx950")
    assert str(caught.value) == (
        f"ws_schedule ({line_of('schedule')}): role 'load' has 8 waves, and the layouts of the kernel are for 4; give "
        "it at most 4 waves, or compile with num_warps=8 and put it at wave 0 [materialize_ws_schedule]"
    )


def test_tasks_stand_beside_a_multiple_of_four_waves() -> None:
    from ws_refused import build, plan

    from amdwarp.errors import LoweringError

    roles = [WSRole("adds", warps_lo=0, warps_hi=2), WSRole("loads", warps_lo=2, warps_hi=4)]
    with pytest.raises(LoweringError, match="the kernel has num_warps=2, and Triton runs tasks beside a multiple of 4"):
        build("", replace(plan(), num_warps=4, roles=roles), num_warps=2)


def test_the_role_at_wave_0_has_the_waves_of_the_kernel() -> None:
    from ws_kernels import compiled, line_of, schedule

    from amdwarp.errors import LoweringError

    roles = [WSRole("mma", warps_lo=0, warps_hi=2), WSRole("load", warps_lo=2, warps_hi=6)]
    with pytest.raises(LoweringError) as caught:
        compiled(replace(schedule(), num_warps=6, roles=roles), "tasks", "gfx950")
    assert str(caught.value) == (
        f"ws_schedule ({line_of('schedule')}): role 'mma' stands at wave 0 with 2 waves, and the kernel is compiled "
        "for 4; compile with num_warps=2, or give the role 4 waves [materialize_ws_schedule]"
    )
