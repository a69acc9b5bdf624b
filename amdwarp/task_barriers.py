"""Barriers between tasks, usable inside Gluon kernels.

A barrier counts arrivals of waves; as many as it was made for complete a phase. Phases are numbered 0, 1, 0, 1, …, and
``barrier_wait(barrier, phase)`` waits until the phase of that number is complete. See ``docs/tasks.md`` for what is in
memory when.
"""

from __future__ import annotations

from typing import Any

from .errors import UsageError
from .stage import _is_int, _kernel_line, _plain
from .target import get_target

RELEASE = "amdwarp.release"
RELEASES = ("all", "lds")
NAMED_BARRIERS = range(8)
BARRIER_BYTES = 8


def alloc_barriers(count: Any, arrivals: Any, _semantic: Any = None, _generator: Any = None) -> Any:
    """Make barriers in LDS, each in phase 0; before the block of tasks.

    Args:
        count: how many, a compile-time integer; ``barriers.index(i)`` is one of them.
        arrivals: waves that complete a phase: a task of ``w`` waves that arrives once arrives ``w`` times.

    Returns:
        a shared memory descriptor of int64 [count, 1].

    Raises:
        UsageError: other arguments, or a place inside a task.
    """
    from .task_builder import current_task

    _check_place("alloc_barriers", _semantic)
    count, arrivals = _plain(count), _plain(arrivals)
    for name, value in {"count": count, "arrivals": arrivals}.items():
        if not _is_int(value) or value < 1:
            raise _error("alloc_barriers", f"{name} must be a positive integer, not {value!r}")
    lanes = arrivals * _semantic.builder.options.warp_size
    if lanes >= 1 << 16:
        raise _error("alloc_barriers", f"arrivals = {arrivals} is more than a barrier counts", "take fewer waves")
    room = get_target(_semantic.builder.options.arch).lds_bytes
    if count * BARRIER_BYTES > room:
        problem = f"{count} barriers of {BARRIER_BYTES} bytes do not fit into the {room} bytes of LDS"
        raise _error("alloc_barriers", problem, "take one for each slot of a ring")
    if current_task(_generator) is not None:
        raise _error("alloc_barriers", "barriers are made before the block of tasks", "move it out of the task")
    from triton.experimental.gluon import language as gl

    layout = gl.SwizzledSharedLayout(1, 1, 1, [0])
    barriers = gl.allocate_shared_memory(gl.int64, [count, 1], layout, _semantic=_semantic)
    for at in range(count):
        one = barriers.index(at, _semantic=_semantic)
        _semantic.builder.create_lds_barrier_init(one.handle, lanes)
    return barriers


def barrier_arrive(barrier: Any, *, release: Any = "all", _semantic: Any = None) -> None:
    """Every wave of the task arrives once, behind its own memory accesses so far.

    Args:
        barrier: one of ``alloc_barriers``.
        release: ``"all"``: LDS and global accesses, asynchronous copies among them, are complete; ``"lds"``: LDS
            accesses are, and copies as far as a ``wait_group`` before it says.

    Raises:
        UsageError: other arguments.
    """
    _check_place("barrier_arrive", _semantic)
    kind = _plain(release)
    if not isinstance(kind, str) or kind not in RELEASES:
        raise _error("barrier_arrive", f"release must be one of {', '.join(map(repr, RELEASES))}, not {kind!r}")
    builder = _semantic.builder
    phase = builder.create_lds_barrier_arrive(_handle("barrier_arrive", barrier), 1)
    phase.set_attr(RELEASE, builder.get_string_attr(kind))


def barrier_wait(barrier: Any, phase: Any, _semantic: Any = None) -> None:
    """Wait until the phase of this number is complete; everything released by its arrivals is visible then.

    Args:
        barrier: one of ``alloc_barriers``.
        phase: 0 or 1: an integer, or a scalar int32 of the kernel, whose lowest bit counts. Waiting for phase 1 of a
            fresh barrier goes through.

    Raises:
        UsageError: other arguments.
    """
    _check_place("barrier_wait", _semantic)
    number = _plain(phase)
    if _is_int(number) and number not in (0, 1):
        raise _error("barrier_wait", f"phase must be 0 or 1, not {number!r}", "take step // ring & 1")
    handle = _handle("barrier_wait", barrier)
    value = _semantic.to_tensor(phase)
    if str(value.handle.get_type()) != "i32":
        raise _error("barrier_wait", f"phase must be a scalar int32, not {value.type}", "take step // ring & 1")
    _semantic.builder.create_lds_barrier_wait(handle, value.handle)


def named_barrier_wait(index: Any, num_warps: Any, _semantic: Any = None) -> None:
    """Every wave of the task meets others at a named barrier, and goes on when `num_warps` waves have come.

    LDS accesses of all that came are complete then. A named barrier needs no allocation and no phase.

    Args:
        index: which barrier, a compile-time integer from 0 to 7.
        num_warps: waves that meet, those that only arrive included: a compile-time integer.

    Raises:
        UsageError: other arguments.
    """
    _named("named_barrier_wait", index, num_warps, 1, _semantic)


def named_barrier_arrive(index: Any, num_warps: Any, _semantic: Any = None) -> None:
    """Every wave of the task counts as having come to a named barrier, and goes on; arguments as `named_barrier_wait`.

    Raises:
        UsageError: other arguments.
    """
    _named("named_barrier_arrive", index, num_warps, 0, _semantic)


def _named(construct: str, index: Any, num_warps: Any, waits: int, semantic: Any) -> None:
    from .lowering.analysis.tasks import NAMED_BARRIER

    _check_place(construct, semantic)
    index, num_warps = _plain(index), _plain(num_warps)
    if not _is_int(index) or index not in NAMED_BARRIERS:
        raise _error(construct, f"index must be an integer from 0 to 7, not {index!r}")
    most = 1024 // semantic.builder.options.warp_size
    if not _is_int(num_warps) or not 2 <= num_warps <= most:
        raise _error(construct, f"num_warps must be an integer from 2 to {most}, not {num_warps!r}")
    builder = semantic.builder
    text = f"{NAMED_BARRIER}{index} {num_warps} {waits}"
    builder.create_inline_asm(text, "=s", [], [builder.get_int32_ty()], False, 1)


def _handle(construct: str, barrier: Any) -> Any:
    shape = getattr(getattr(barrier, "type", None), "shape", None)
    kind = str(getattr(barrier, "dtype", ""))
    if not hasattr(barrier, "index") or kind != "int64" or shape is None or list(shape) != [1]:
        raise _error(construct, "it takes one barrier of alloc_barriers", "write barriers.index(i)")
    return barrier.handle


def _check_place(construct: str, semantic: Any) -> None:
    if semantic is None:
        raise _error(construct, "it has a meaning only inside a kernel", "use it in a Gluon kernel")
    if not hasattr(semantic.builder, "create_lds_barrier_init"):
        raise _error(construct, "barriers belong in Gluon kernels", "write the kernel in Gluon, under @amdwarp.jit")


def _error(construct: str, problem: str, remedy: str = "") -> UsageError:
    return UsageError(problem, remedy=remedy, construct=construct, where=_kernel_line())


for _construct in (alloc_barriers, barrier_arrive, barrier_wait, named_barrier_arrive, named_barrier_wait):
    setattr(_construct, "__triton_builtin__", True)  # noqa: B010
