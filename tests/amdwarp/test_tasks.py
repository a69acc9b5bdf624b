"""Tasks: what the kernels compute on each target, and what is refused, by text and line."""

# ruff: noqa: SIM117 - in a kernel a `with` stands alone
from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import amdwarp
from amdwarp.emulator import launch
from amdwarp.sanitizer import check

ARCHS = ("gfx942", "gfx950", "gfx1250")
SIZE = 256


@amdwarp.jit
def copy_kernel(x, y, steps, LANES: gl.constexpr, SIZE: gl.constexpr, WAVES: gl.constexpr, RING: gl.constexpr):
    ring = gl.allocate_shared_memory(gl.float32, [RING, SIZE], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full = amdwarp.alloc_barriers(RING, arrivals=WAVES)
    empty = amdwarp.alloc_barriers(RING, arrivals=4)
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            own: gl.constexpr = gl.BlockedLayout([1], [LANES], [gl.num_warps()], [0])
            offsets = gl.arange(0, SIZE, layout=own)
            total = gl.zeros([SIZE], gl.float32, layout=own)
            for step in range(steps):
                amdwarp.barrier_wait(full.index(step % RING), step // RING & 1)
                value = ring.index(step % RING).load(own)
                amdwarp.barrier_arrive(empty.index(step % RING), release="lds")
                gl.store(y + step * SIZE + offsets, value)
                total += value
        with amdwarp.async_task(num_warps=WAVES):
            wide: gl.constexpr = gl.BlockedLayout([1], [LANES], [gl.num_warps()], [0])
            for step in range(steps):
                value = gl.load(x + step * SIZE + gl.arange(0, SIZE, layout=wide))
                amdwarp.barrier_wait(empty.index(step % RING), step // RING & 1 ^ 1)
                ring.index(step % RING).store(value)
                amdwarp.barrier_arrive(full.index(step % RING))
    gl.store(y + steps * SIZE + offsets, total)


def lanes(arch: str) -> int:
    return amdwarp.get_target(arch).wave_size


def compiled(kernel: Any, arch: str, waves: int = 4, **constexprs: Any) -> Any:
    signature = {"x": "*fp32", "y": "*fp32", "steps": "i32"}
    return amdwarp.compile(kernel, signature, {"LANES": lanes(arch), **constexprs}, arch, num_warps=waves)


@pytest.mark.parametrize("waves, ring", [(1, 1), (2, 3), (4, 2)])
@pytest.mark.parametrize("arch", ARCHS)
def test_two_tasks_copy_through_a_ring(arch: str, waves: int, ring: int) -> None:
    kernel = compiled(copy_kernel, arch, SIZE=SIZE, WAVES=waves, RING=ring)
    steps = 7
    x = np.random.default_rng(1).random(steps * SIZE, np.float32)
    y = np.zeros((steps + 1) * SIZE, np.float32)
    assert kernel.metadata.num_warps == 4 + waves
    launch(kernel.asm["amdgcn"], [x, y, steps], (1,), lds_bytes=kernel.metadata.shared)
    assert np.array_equal(y[: steps * SIZE], x)
    assert np.allclose(y[steps * SIZE :], x.reshape(steps, SIZE).sum(0))


@amdwarp.jit
def copies_kernel(x, y, steps, LANES: gl.constexpr, SIZE: gl.constexpr, COPIES: gl.constexpr, BLEND: gl.constexpr):
    """Each copy of a task loads every COPIES-th step into a slot of its own."""
    ring = gl.allocate_shared_memory(gl.float32, [COPIES, SIZE], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full = amdwarp.alloc_barriers(COPIES, arrivals=1)
    empty = amdwarp.alloc_barriers(COPIES, arrivals=4)
    factor = 2.0
    with amdwarp.async_tasks():
        with amdwarp.async_task(num_warps=1, replicate=COPIES, warp_group_start_id=6):
            slot: gl.constexpr = amdwarp.async_task_replica_id()
            for turn in range(gl.cdiv(steps - slot, COPIES)):
                fill(ring.index(slot), x + (turn * COPIES + slot) * SIZE, empty.index(slot), turn & 1 ^ 1, LANES, SIZE)
                amdwarp.barrier_arrive(full.index(slot))
        with amdwarp.async_task("default"):
            own: gl.constexpr = gl.BlockedLayout([1], [LANES], [gl.num_warps()], [0])
            offsets = gl.arange(0, SIZE, layout=own)
            for step in range(steps):
                slot = step % COPIES
                amdwarp.barrier_wait(full.index(slot), step // COPIES & 1)
                value = ring.index(slot).load(own)
                amdwarp.barrier_arrive(empty.index(slot))
                gl.store(y + step * SIZE + offsets, value * factor + amdwarp.async_task_replica_id())
        if BLEND:
            with amdwarp.async_task(num_warps=1, warp_group_start_id=4):
                wide: gl.constexpr = gl.BlockedLayout([1], [LANES], [1], [0])
                gl.store(y + steps * SIZE + gl.arange(0, SIZE, layout=wide), gl.full([SIZE], factor, gl.float32, wide))


@gluon.jit
def fill(slot, source, empty, phase, LANES: gl.constexpr, SIZE: gl.constexpr):
    wide: gl.constexpr = gl.BlockedLayout([1], [LANES], [gl.num_warps()], [0])
    value = gl.load(source + gl.arange(0, SIZE, layout=wide))
    amdwarp.barrier_wait(empty, phase)
    slot.store(value)


@pytest.mark.parametrize("blend", [False, True])
@pytest.mark.parametrize("arch", ARCHS)
def test_copies_guards_and_captured_values(arch: str, blend: bool) -> None:
    kernel = compiled(copies_kernel, arch, SIZE=SIZE, COPIES=3, BLEND=blend)
    steps = 8
    x = np.random.default_rng(2).random(steps * SIZE, np.float32)
    y = np.zeros((steps + 1) * SIZE, np.float32)
    assert kernel.metadata.num_warps == 9
    launch(kernel.asm["amdgcn"], [x, y, steps], (1,), lds_bytes=kernel.metadata.shared)
    assert np.array_equal(y[: steps * SIZE], 2 * x)
    assert np.array_equal(y[steps * SIZE :], np.full(SIZE, 2.0 * blend, np.float32))


@amdwarp.jit
def guarded_kernel(x, y, steps, LANES: gl.constexpr, SIZE: gl.constexpr, APART: gl.constexpr):
    with amdwarp.async_tasks():
        if APART:
            with amdwarp.async_task(num_warps=1):
                store_from(x, y, steps, LANES, SIZE)
        else:
            pass
        with amdwarp.async_task("default", num_regs=64):
            if not APART:
                store_from(x, y, steps, LANES, SIZE)


@gluon.jit
def store_from(x, y, steps, LANES: gl.constexpr, SIZE: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [LANES], [gl.num_warps()], [0])
    offsets = gl.arange(0, SIZE, layout=layout)
    gl.store(y + offsets, gl.load(x + offsets) + steps)


@pytest.mark.parametrize("apart, waves", [(False, 4), (True, 5)])
@pytest.mark.parametrize("arch", ARCHS)
def test_a_default_task_alone_is_the_kernel(arch: str, apart: bool, waves: int) -> None:
    kernel = compiled(guarded_kernel, arch, SIZE=SIZE, APART=apart)
    assert kernel.metadata.num_warps == waves
    assert ("ttg.warp_specialize" in kernel.asm["amdwarp"]) is apart
    x, y = np.arange(SIZE, dtype=np.float32), np.zeros(SIZE, np.float32)
    launch(kernel.asm["amdgcn"], [x, y, 3], (1,), lds_bytes=kernel.metadata.shared)
    assert np.array_equal(y, x + 3)


@amdwarp.jit
def tiles_kernel(x, y, steps, LANES: gl.constexpr, SIZE: gl.constexpr):
    """A block in a loop: tasks start anew for each tile, and the default task's sum goes round."""
    slot = gl.allocate_shared_memory(gl.float32, [SIZE], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full = amdwarp.alloc_barriers(1, arrivals=2)
    own: gl.constexpr = gl.BlockedLayout([1], [LANES], [4], [0])
    total = gl.zeros([SIZE], gl.float32, own)
    for step in range(steps):
        with amdwarp.async_tasks():
            with amdwarp.async_task("default"):
                amdwarp.barrier_wait(full.index(0), step & 1)
                total += slot.load(own)
            with amdwarp.async_task(num_warps=2):
                wide: gl.constexpr = gl.BlockedLayout([1], [LANES], [2], [0])
                turned: gl.constexpr = gl.BlockedLayout([2], [LANES], [2], [0])
                slot.store(gl.load(x + step * SIZE + gl.arange(0, SIZE, layout=turned)))
                slot.store(slot.load(wide) + 1)
                amdwarp.barrier_arrive(full.index(0))
    gl.store(y + gl.arange(0, SIZE, layout=own), total)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_block_in_a_loop_and_a_barrier_of_one_task(arch: str) -> None:
    kernel = compiled(tiles_kernel, arch, SIZE=SIZE)
    steps = 5
    x, y = np.random.default_rng(4).random(steps * SIZE, np.float32), np.zeros(SIZE, np.float32)
    report = check(kernel, [x, y, steps], (1,), seeds=3)
    assert report.ok, report
    assert np.allclose(y, x.reshape(steps, SIZE).sum(0) + steps)


@amdwarp.jit
def named_kernel(x, y, steps, LANES: gl.constexpr, SIZE: gl.constexpr):
    slot = gl.allocate_shared_memory(gl.float32, [SIZE], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            own: gl.constexpr = gl.BlockedLayout([1], [LANES], [4], [0])
            for step in range(steps):
                amdwarp.named_barrier_wait(0, 6)
                value = slot.load(own)
                amdwarp.named_barrier_arrive(1, 6)
                gl.store(y + step * SIZE + gl.arange(0, SIZE, layout=own), value)
        with amdwarp.async_task(num_warps=2):
            wide: gl.constexpr = gl.BlockedLayout([1], [LANES], [2], [0])
            for step in range(steps):
                slot.store(gl.load(x + step * SIZE + gl.arange(0, SIZE, layout=wide)))
                amdwarp.named_barrier_arrive(0, 6)
                amdwarp.named_barrier_wait(1, 6)


@pytest.mark.parametrize("arch", ARCHS)
def test_named_barriers(arch: str) -> None:
    kernel = compiled(named_kernel, arch, SIZE=SIZE)
    steps = 5
    x, y = np.random.default_rng(4).random(steps * SIZE, np.float32), np.zeros(steps * SIZE, np.float32)
    report = check(kernel, [x, y, steps], (1,), seeds=3)
    assert report.ok, report
    assert np.array_equal(y, x)


@amdwarp.jit
def lonely_kernel(x, y, steps, LANES: gl.constexpr, SIZE: gl.constexpr, NAMED: gl.constexpr):
    """Only the default task is left: its waves meet at barriers of their own."""
    slot = gl.allocate_shared_memory(gl.float32, [SIZE], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    barriers = amdwarp.alloc_barriers(2, arrivals=4)
    own: gl.constexpr = gl.BlockedLayout([1], [LANES], [4], [0])
    turned: gl.constexpr = gl.BlockedLayout([SIZE // LANES], [LANES], [4], [0])
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            for step in range(steps):
                slot.store(gl.load(x + step * SIZE + gl.arange(0, SIZE, layout=own)))
                if NAMED:
                    amdwarp.named_barrier_wait(0, 4)
                else:
                    amdwarp.barrier_arrive(barriers.index(0), release="lds")
                    amdwarp.barrier_wait(barriers.index(0), step & 1)
                value = slot.load(turned)
                amdwarp.barrier_arrive(barriers.index(1))
                amdwarp.barrier_wait(barriers.index(1), step & 1)
                gl.store(y + step * SIZE + gl.arange(0, SIZE, layout=turned), value)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("arch", ARCHS)
def test_barriers_where_no_other_task_is_left(arch: str, named: bool) -> None:
    kernel = compiled(lonely_kernel, arch, SIZE=SIZE, NAMED=named)
    x, y = np.random.default_rng(5).random(3 * SIZE, np.float32), np.zeros(3 * SIZE, np.float32)
    report = check(kernel, [x, y, 3], (1,), seeds=3)
    assert report.ok, report
    assert np.array_equal(y, x)


@amdwarp.jit
def names_again_kernel(x, y, steps, LANES: gl.constexpr, SIZE: gl.constexpr):
    """The other task gives names of the default one values of its own; phases count on beyond 1."""
    slot = gl.allocate_shared_memory(gl.float32, [SIZE], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full, empty = amdwarp.alloc_barriers(1, arrivals=1), amdwarp.alloc_barriers(1, arrivals=4)
    own: gl.constexpr = gl.BlockedLayout([1], [LANES], [4], [0])
    value = gl.zeros([SIZE], gl.float32, own)
    last = steps + 1
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            for step in range(steps):
                amdwarp.barrier_wait(full.index(0), step)
                value += slot.load(own)
                amdwarp.barrier_arrive(empty.index(0), release="lds")
        with amdwarp.async_task(num_warps=1):
            wide: gl.constexpr = gl.BlockedLayout([1], [LANES], [1], [0])
            for step in range(steps):
                value = gl.load(x + step * SIZE + gl.arange(0, SIZE, layout=wide))
                last = step
                amdwarp.barrier_wait(empty.index(0), step + 1)
                slot.store(value)
                amdwarp.barrier_arrive(full.index(0), release="lds")
    gl.store(y + gl.arange(0, SIZE, layout=own), value + last.to(gl.float32))


@pytest.mark.parametrize("arch", ARCHS)
def test_names_of_the_default_task_and_phases_beyond_one(arch: str) -> None:
    kernel = compiled(names_again_kernel, arch, SIZE=SIZE)
    x = np.random.default_rng(7).integers(0, 9, (5, SIZE)).astype(np.float32)
    for steps in (0, 1, 5):
        y = np.zeros(SIZE, np.float32)
        report = check(kernel, [x, y, steps], (1,), seeds=2)
        assert report.ok, report
        assert np.array_equal(y, x[:steps].sum(0) + steps + 1)


@amdwarp.jit
def plain_kernel(x):
    gl.store(x + gl.arange(0, 256, layout=gl.BlockedLayout([1], [64], [4], [0])), 1.0)


def test_a_kernel_without_tasks_or_barriers_is_lowered_by_stock_code(monkeypatch: pytest.MonkeyPatch) -> None:
    from amdwarp.lowering import codegen

    seen = []
    real = codegen.has_tasks
    monkeypatch.setattr(codegen, "has_tasks", lambda src: seen.append(real(src)) or seen[-1])
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    amdwarp.compile(plain_kernel, {"x": "*fp32"}, target="gfx950", num_warps=4)
    compiled(lonely_kernel, "gfx950", SIZE=SIZE, NAMED=True)
    compiled(copy_kernel, "gfx950", SIZE=SIZE, WAVES=1, RING=1)
    assert seen == [False, True, True]


def test_stock_kernels_and_keys_are_left_alone() -> None:
    """A stock kernel still meets the stock refusal, and a kernel with tasks has a key of its own."""
    from triton.backends.amd import compiler

    before = compiler.HIPBackend.make_llir
    first = compiled(copy_kernel, "gfx942", SIZE=SIZE, WAVES=1, RING=1)
    second = compiled(copy_kernel, "gfx942", SIZE=SIZE, WAVES=2, RING=1)
    assert first.hash != second.hash
    assert compiler.HIPBackend.make_llir is before
    assert compiler.amd.__name__.startswith("triton._C.libtriton")


def test_the_example_of_the_docs(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", text, re.S)[0]
    file = tmp_path / "docs_tasks.py"
    file.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("docs_tasks", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, y = np.random.default_rng(6).random(4 * SIZE, np.float32), np.zeros(4 * SIZE, np.float32)
    report = check(module.compiled, [x, y, 4], (1,), seeds=2)
    assert report.ok, report
    assert np.array_equal(y, 2 * x)
