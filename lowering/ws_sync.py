"""How the points of a typed schedule become code: in a single thread, and between tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import spelling
from .analysis.ws_program import Act, Copies, Thread
from .ir import Op, Value
from .rewriter import Builder
from .ws_threads import Site, Writer

TDM_WAIT = "amdg.async_tdm_wait"


def wait_for_copies(build: Builder, copies: Copies, outstanding: int) -> None:
    """Wait until at most so many groups, or operations of the data mover, are outstanding."""
    if copies is Copies.GROUPS:
        build.insert(spelling.async_wait(outstanding))
    elif copies is Copies.TENSOR:
        properties = {"num": f"{outstanding} : i32"}
        build.create(TDM_WAIT, [], ["!ttg.async.token"], properties=properties)


def close_group(build: Builder, copies: Copies) -> None:
    """End a group of copies."""
    if copies is Copies.GROUPS:
        build.insert(spelling.async_commit_group())


@dataclass
class SingleThread:
    """All waves run everything: a wait is one for the wave's own copies and a barrier behind it.

    The barrier also frees what every wave has read before it, so an acquire needs one of its own only where none stands
    between it and the release (``ws_program.Thread.fences``).
    """

    thread: Thread
    loop_attributes: dict[str, str] = field(default_factory=dict)
    apart: bool = False
    phases: bool = False
    late: bool = False

    def point(self, writer: Writer, build: Builder, site: Site) -> None:
        step = site.step
        if step.act is Act.ACQUIRE and (site.scope, site.position) in self.thread.fences:
            build.insert(spelling.local_barrier())
        elif step.act is Act.CLOSE:
            close_group(build, step.copies)
        elif step.act is Act.WAIT:
            wait_for_copies(build, step.copies, self.thread.waits.get((site.scope, site.phase, site.position), 0))
            build.insert(spelling.local_barrier())


@dataclass
class BetweenTasks:
    """Each role on waves of its own: a full and an empty barrier for each version of a pipeline.

    Attributes:
        thread: the role's program.
        full, empty: pipeline -> its barriers, [depth, 1] of int64 in LDS, as the role sees them.
    """

    thread: Thread
    full: dict[str, Value]
    empty: dict[str, Value]
    loop_attributes: dict[str, str] = field(default_factory=dict)
    apart: bool = False
    phases: bool = True
    late: bool = True

    def point(self, writer: Writer, build: Builder, site: Site) -> None:
        step = site.step
        match step.act:
            case Act.ACQUIRE:
                one = build.value(spelling.constant(1))
                other = build.value(Op("arith.xori", [writer.phase(step), one], ["i32"]))
                self._wait(build, self.empty[step.pipeline], writer.slot(step), other)
            case Act.CLOSE:
                close_group(build, step.copies)
            case Act.COMMIT:
                wait_for_copies(build, step.copies, self.thread.waits.get((site.scope, site.phase, site.position), 0))
                self._arrive(build, self.full[step.pipeline], writer.slot(step))
            case Act.WAIT:
                self._wait(build, self.full[step.pipeline], writer.slot(step), writer.phase(step))
            case Act.RELEASE:
                self._arrive(build, self.empty[step.pipeline], writer.slot(step))

    def _barrier(self, build: Builder, barriers: Value, slot: Value) -> Value:
        return build.value(Op("ttg.memdesc_index", [barriers, slot], [barrier_type(barriers.type)]))

    def _wait(self, build: Builder, barriers: Value, slot: Value, phase: Value) -> None:
        build.create("amdg.wait_barrier", [self._barrier(build, barriers, slot), phase])

    def _arrive(self, build: Builder, barriers: Value, slot: Value) -> None:
        build.create(
            "amdg.arrive_barrier",
            [self._barrier(build, barriers, slot)],
            ["i32"],
            properties={"count": "1 : i32"},
            attributes={"amdwarp.release": '"lds"'},
        )


def barrier_type(barriers: str) -> str:
    """The type of one barrier of ``!ttg.memdesc<Rx1xi64, …>``."""
    head, _, rest = barriers.partition("x")
    return head[: head.index("<") + 1] + rest
