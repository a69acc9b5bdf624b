"""What a block of tasks may be: each rule refused by text, and by the line of the kernel that breaks it."""

# ruff: noqa: SIM117, F841
from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import amdwarp

# Each kernel takes x, y and n; the line at fault ends in `# HERE`.


@amdwarp.jit
def no_default(x, y, n):
    with amdwarp.async_tasks():  # HERE
        with amdwarp.async_task(num_warps=1):
            gl.store(y, n)


@amdwarp.jit
def two_defaults(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            gl.store(y, n)
        with amdwarp.async_task("default"):  # HERE
            gl.store(y, n)


@amdwarp.jit
def other_word(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("main"):  # HERE
            gl.store(y, n)


@amdwarp.jit
def odd_registers(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            gl.store(y, n)
        with amdwarp.async_task(num_warps=1, num_regs=20):  # HERE
            gl.store(y, n)


@amdwarp.jit
def some_registers(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            gl.store(y, n)
        with amdwarp.async_task(num_warps=1, num_regs=32):
            gl.store(y, n)
        with amdwarp.async_task(num_warps=1):  # HERE
            gl.store(y, n)


@amdwarp.jit
def too_many_registers(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):  # HERE
            gl.store(y, n)
        with amdwarp.async_task(num_warps=4, num_regs=504):
            gl.store(y, n)


@amdwarp.jit
def some_starts(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            gl.store(y, n)
        with amdwarp.async_task(num_warps=1):  # HERE
            gl.store(y, n)
        with amdwarp.async_task(num_warps=1, warp_group_start_id=4):
            gl.store(y, n)


@amdwarp.jit
def negative_start(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            gl.store(y, n)
        with amdwarp.async_task(num_warps=1, warp_group_start_id=-1):  # HERE
            gl.store(y, n)


@amdwarp.jit
def over_default(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            gl.store(y, n)
        with amdwarp.async_task(num_warps=2, warp_group_start_id=3):  # HERE
            gl.store(y, n)


@amdwarp.jit
def over_copy(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            gl.store(y, n)
        with amdwarp.async_task(num_warps=1, replicate=2, warp_group_start_id=4):
            gl.store(y, n)
        with amdwarp.async_task(num_warps=2, warp_group_start_id=5):  # HERE
            gl.store(y, n)


@amdwarp.jit
def statement_between(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            gl.store(y, n)
        n += 1  # HERE
        with amdwarp.async_task(num_warps=1):
            gl.store(y, n)


@amdwarp.jit
def loop_around(x, y, n):
    with amdwarp.async_tasks():
        for _ in range(n):  # HERE
            with amdwarp.async_task("default"):
                gl.store(y, n)


@amdwarp.jit
def stage_between(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.warp_pipeline_stage("load"):  # HERE
            gl.store(y, n)


@amdwarp.jit
def runtime_guard(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            gl.store(y, n)
        if n > 3:  # HERE
            with amdwarp.async_task(num_warps=1):
                gl.store(y, n)


@amdwarp.jit
def copied_default(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default", replicate=2):  # HERE
            gl.store(y, n)


@amdwarp.jit
def no_copies(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            gl.store(y, n)
        with amdwarp.async_task(num_warps=1, replicate=0):  # HERE
            gl.store(y, n)


@amdwarp.jit
def waves_for_default(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default", num_warps=4):  # HERE
            gl.store(y, n)


@amdwarp.jit
def start_for_default(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default", warp_group_start_id=0):  # HERE
            gl.store(y, n)


@amdwarp.jit
def no_waves(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            gl.store(y, n)
        with amdwarp.async_task():  # HERE
            gl.store(y, n)


@amdwarp.jit
def three_waves(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            gl.store(y, n)
        with amdwarp.async_task(num_warps=3):  # HERE
            gl.store(y, n)


@amdwarp.jit
def too_many_waves(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            gl.store(y, n)
        with amdwarp.async_task(num_warps=8):
            gl.store(y, n)
        with amdwarp.async_task(num_warps=4, replicate=6):  # HERE
            gl.store(y, n)


@amdwarp.jit
def nested_block(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            with amdwarp.async_tasks():  # HERE
                with amdwarp.async_task("default"):
                    gl.store(y, n)
        with amdwarp.async_task(num_warps=1):
            gl.store(y, n)


@gluon.jit
def helper_with_block(y, n):
    with amdwarp.async_tasks():  # HERE
        with amdwarp.async_task("default"):
            gl.store(y, n)


@amdwarp.jit
def block_in_helper(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            helper_with_block(y, n)
        with amdwarp.async_task(num_warps=1):
            gl.store(y, n)


@amdwarp.jit
def returning(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            gl.store(y, n)
        with amdwarp.async_task(num_warps=1):
            if n > 3:
                return  # HERE


@amdwarp.jit
def tensor_capture(x, y, n):
    values = gl.arange(0, 256, layout=gl.BlockedLayout([1], [64], [4], [0]))
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            gl.store(y + values, values)
        with amdwarp.async_task(num_warps=4):
            gl.store(x + values, values)  # HERE


@amdwarp.jit
def named_block(x, y, n):
    with amdwarp.async_tasks() as block:  # HERE
        with amdwarp.async_task("default"):
            gl.store(y, n)


@amdwarp.jit
def named_task(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default") as task:  # HERE
            gl.store(y, n)


@amdwarp.jit
def task_alone(x, y, n):
    with amdwarp.async_task("default"):  # HERE
        gl.store(y, n)


@amdwarp.jit
def id_outside(x, y, n):
    gl.store(y, amdwarp.async_task_replica_id())  # HERE


@amdwarp.jit
@triton.jit
def block_in_triton(x, y, n):
    with amdwarp.async_tasks():  # HERE
        with amdwarp.async_task("default"):
            tl.store(y, n)


@amdwarp.jit
def stages_in_tasks(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            for _ in range(n):
                with amdwarp.warp_pipeline_stage("first"):  # HERE
                    gl.store(y, n)
                with amdwarp.warp_pipeline_stage("second"):
                    gl.store(x, n)
        with amdwarp.async_task(num_warps=1):
            gl.store(y, n)


@amdwarp.jit
def barriers_in_task(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            gl.store(y, n)
        with amdwarp.async_task(num_warps=1):
            amdwarp.alloc_barriers(1, arrivals=1)  # HERE


@amdwarp.jit
def no_barriers(x, y, n):
    amdwarp.alloc_barriers(0, arrivals=1)  # HERE


@amdwarp.jit
def no_arrivals(x, y, n):
    amdwarp.alloc_barriers(1, arrivals=0)  # HERE


@amdwarp.jit
def many_arrivals(x, y, n):
    amdwarp.alloc_barriers(1, arrivals=1024)  # HERE


@amdwarp.jit
def barriers_unindexed(x, y, n):
    barriers = amdwarp.alloc_barriers(2, arrivals=1)
    amdwarp.barrier_arrive(barriers)  # HERE


@amdwarp.jit
def other_memory(x, y, n):
    slot = gl.allocate_shared_memory(gl.float32, [1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    amdwarp.barrier_wait(slot, 0)  # HERE


@amdwarp.jit
def strange_release(x, y, n):
    barriers = amdwarp.alloc_barriers(2, arrivals=1)
    amdwarp.barrier_arrive(barriers.index(0), release="some")  # HERE


@amdwarp.jit
def phase_two(x, y, n):
    barriers = amdwarp.alloc_barriers(2, arrivals=1)
    amdwarp.barrier_wait(barriers.index(0), 2)  # HERE


@amdwarp.jit
def phase_of_64_bits(x, y, n):
    barriers = amdwarp.alloc_barriers(2, arrivals=1)
    amdwarp.barrier_wait(barriers.index(0), n.to(gl.int64))  # HERE


@amdwarp.jit
def far_named_barrier(x, y, n):
    amdwarp.named_barrier_wait(8, 4)  # HERE


@amdwarp.jit
def lonely_named_barrier(x, y, n):
    amdwarp.named_barrier_arrive(0, 1)  # HERE


@amdwarp.jit
@triton.jit
def barrier_in_triton(x, y, n):
    amdwarp.alloc_barriers(1, arrivals=1)  # HERE


@amdwarp.jit
def barrier_by_branch(x, y, n):
    one = amdwarp.alloc_barriers(1, arrivals=1)
    other = amdwarp.alloc_barriers(1, arrivals=1)
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            chosen = one.index(0)
            for _ in range(n):
                amdwarp.barrier_wait(chosen, 0)  # HERE
                chosen = other.index(0)
        with amdwarp.async_task(num_warps=1):
            gl.store(y, n)


@amdwarp.jit
def two_tasks(x, y, n):
    with amdwarp.async_tasks():  # HERE
        with amdwarp.async_task("default"):
            gl.store(y, n)
        with amdwarp.async_task(num_warps=1):
            gl.store(x, n)


@amdwarp.jit
def barrier_too_far(x, y, n):
    barriers = amdwarp.alloc_barriers(2, arrivals=4)
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            amdwarp.barrier_arrive(barriers.index(1))
        with amdwarp.async_task(num_warps=1):
            amdwarp.barrier_wait(barriers.index(2), 0)  # HERE


@amdwarp.jit
def waves_beyond_the_count(x, y, n):
    barriers = amdwarp.alloc_barriers(2, arrivals=1)
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            amdwarp.barrier_wait(barriers.index(1), 0)
        with amdwarp.async_task(num_warps=1):
            amdwarp.barrier_arrive(barriers.index(1))
        with amdwarp.async_task(num_warps=2):
            amdwarp.barrier_arrive(barriers.index(1))  # HERE


@amdwarp.jit
def waves_beyond_the_count_without_tasks(x, y, n):
    barriers = amdwarp.alloc_barriers(1, arrivals=1)
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            amdwarp.barrier_arrive(barriers.index(0))  # HERE


@amdwarp.jit
def tensor_on_one_path(x, y, n):
    values = gl.load(x + gl.arange(0, 256, gl.BlockedLayout([1], [64], [4], [0])))
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            gl.store(y, n)
        with amdwarp.async_task(num_warps=1):
            for _ in range(n):
                values = gl.load(x + gl.arange(0, 256, gl.BlockedLayout([1], [64], [1], [0])))
            gl.store(y, gl.sum(values, 0))  # HERE


@amdwarp.jit
def barriers_beyond_lds(x, y, n):
    amdwarp.alloc_barriers(100_000, arrivals=1)  # HERE


@amdwarp.jit
def release_at_run_time(x, y, n):
    barriers = amdwarp.alloc_barriers(1, arrivals=4)
    amdwarp.barrier_arrive(barriers.index(0), release=n)  # HERE


@amdwarp.jit
def named_for_two_numbers(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            amdwarp.named_barrier_arrive(0, 5)
        with amdwarp.async_task(num_warps=1):
            amdwarp.named_barrier_wait(0, 4)  # HERE


@amdwarp.jit
def named_for_too_many(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            gl.store(y, n)
        with amdwarp.async_task(num_warps=1):
            amdwarp.named_barrier_wait(0, 6)  # HERE


@amdwarp.jit
def named_for_too_few(x, y, n):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            amdwarp.named_barrier_wait(0, 2)  # HERE
        with amdwarp.async_task(num_warps=1):
            amdwarp.named_barrier_wait(0, 2)


REFUSALS: list[tuple[Any, str]] = [
    (no_default, "async_tasks .*exactly one default task, this one has 0"),
    (two_defaults, "async_tasks .*exactly one default task, this one has 2"),
    (other_word, """async_task .*the first argument is "default" or left out, not 'main'"""),
    (odd_registers, "async_task .*num_regs must be a positive multiple of 8, not 20"),
    (some_registers, "num_regs is given for some of the non-default tasks and not for all"),
    (too_many_registers, "async_task .*leave 8 a thread for the default task: 2 tasks of 8 waves share 2048 on gfx942"),
    (some_starts, "warp_group_start_id is given for some of the non-default tasks and not for all"),
    (negative_start, "warp_group_start_id must be a non-negative integer, not -1"),
    (over_default, "waves 3 to 4 of task 0 overlap waves 0 to 3 of the default task"),
    (over_copy, "waves 5 to 6 of task 1 overlap waves 5 to 5 of task 0 copy 1"),
    (statement_between, r"only tasks may stand in the block, not `n \+= 1`"),
    (loop_around, "only tasks may stand in the block, not `for _ in range"),
    (stage_between, "only tasks may stand in the block, not `with amdwarp.warp_pipeline_stage"),
    (runtime_guard, "a guard around tasks must be known at compile time, `n > 3` is not"),
    (copied_default, "the default task cannot be replicated; replicate a task with num_warps"),
    (no_copies, "replicate must be a positive integer, not 0"),
    (waves_for_default, "the default task takes no num_warps: it has the kernel's waves"),
    (start_for_default, "the default task takes no warp_group_start_id"),
    (no_waves, 'num_warps must be a positive integer, not None; give async_task."default". or num_warps'),
    (three_waves, "num_warps must be a power of two, not 3"),
    (too_many_waves, "the tasks up to task 1 copy 1 need 20 waves; a workgroup on gfx942 has at most 16"),
    (nested_block, "a block of tasks cannot stand inside a task"),
    (block_in_helper, "a block of tasks cannot stand inside a task"),
    (returning, "a task cannot return"),
    (tensor_capture, "'values' is a tensor of the default task's waves, other waves do not have it"),
    (named_block, "it stands alone in its `with`, without `as`"),
    (named_task, "an async_task stands alone in its `with`, without `as`"),
    (task_alone, "a task stands only right inside an async_tasks block"),
    (id_outside, "async_task_replica_id .*it has a meaning only inside a task"),
    (block_in_triton, "tasks need explicit layouts, which a @triton.jit kernel does not have"),
    (stages_in_tasks, "a barrier of a wave pipeline is one of all waves, and here are waves apart"),
    (barriers_in_task, "alloc_barriers .*barriers are made before the block of tasks"),
    (no_barriers, "count must be a positive integer, not 0"),
    (no_arrivals, "arrivals must be a positive integer, not 0"),
    (many_arrivals, "arrivals = 1024 is more than a barrier counts"),
    (barriers_unindexed, r"barrier_arrive .*it takes one barrier of alloc_barriers; write barriers.index\(i\)"),
    (other_memory, "barrier_wait .*it takes one barrier of alloc_barriers"),
    (strange_release, "release must be one of 'all', 'lds', not 'some'"),
    (phase_two, "phase must be 0 or 1, not 2"),
    (phase_of_64_bits, "phase must be a scalar int32, not int64"),
    (far_named_barrier, "index must be an integer from 0 to 7, not 8"),
    (lonely_named_barrier, "num_warps must be an integer from 2 to 16, not 1"),
    (barrier_in_triton, "alloc_barriers .*barriers belong in Gluon kernels"),
    (barrier_too_far, "barrier_wait .*barrier 2 of 2 that are allocated; allocate more"),
    (waves_beyond_the_count, "barrier_arrive .*2 waves arrive at a barrier whose phase 1 complete; allocate it with"),
    (
        waves_beyond_the_count_without_tasks,
        "4 waves arrive at a barrier whose phase 1 complete; allocate it with arriv",
    ),
    (tensor_on_one_path, "'values' is a tensor of the default task's waves, other waves do not have it"),
    (barriers_beyond_lds, "100000 barriers of 8 bytes do not fit into the 65536 bytes of LDS; take one for each slot"),
    (release_at_run_time, "barrier_arrive .*release must be one of 'all', 'lds', not "),
    (named_for_two_numbers, "named barrier 0 is for [45] waves here and for [45] elsewhere; give it one num_warps"),
    (named_for_too_many, "named barrier 0 is for 6 waves, and the kernel has 5; count the waves of the tasks that"),
    (named_for_too_few, "4 waves come to named barrier 0, which is for 2; count every wave of each task that comes"),
    (barrier_by_branch, "the allocation of this barrier cannot be seen"),
]


def line_at_fault(kernel: Any) -> int:
    function = helper_with_block.fn if kernel is block_in_helper else kernel.fn
    lines, first = inspect.getsourcelines(function)
    return first + next(at for at, line in enumerate(lines) if line.rstrip().endswith("# HERE"))


@pytest.mark.parametrize("kernel, text", REFUSALS, ids=[kernel.__name__ for kernel, _ in REFUSALS])
def test_refused_with_its_line(kernel: Any, text: str) -> None:
    with pytest.raises(amdwarp.AmdwarpError) as caught:
        amdwarp.compile(kernel, {"x": "*i32", "y": "*i32", "n": "i32"}, target="gfx942", num_warps=4)
    message = str(caught.value)
    assert re.search(text, message), message
    assert f"test_task_rules.py:{line_at_fault(kernel)})" in message, message


def test_waves_of_the_kernel_come_in_fours() -> None:
    with pytest.raises(
        amdwarp.UsageError, match="the kernel has num_warps=2, and Triton runs tasks beside a"
    ) as caught:
        amdwarp.compile(two_tasks, {"x": "*i32", "y": "*i32", "n": "i32"}, target="gfx942", num_warps=2)
    assert f"test_task_rules.py:{line_at_fault(two_tasks)})" in str(caught.value)


def test_constructs_outside_of_a_kernel_are_refused() -> None:
    with pytest.raises(amdwarp.UsageError, match="async_tasks: it has a meaning only inside a kernel"):
        with amdwarp.async_tasks():
            pass
    with pytest.raises(amdwarp.UsageError, match="a task stands only right inside"):
        with amdwarp.async_task("default"):
            pass
    for call in (
        lambda: amdwarp.async_task_replica_id(),
        lambda: amdwarp.alloc_barriers(1, 1),
        lambda: amdwarp.barrier_arrive(None),
        lambda: amdwarp.barrier_wait(None, 0),
        lambda: amdwarp.named_barrier_wait(0, 4),
    ):
        with pytest.raises(amdwarp.UsageError, match="it has a meaning only inside a"):
            call()
