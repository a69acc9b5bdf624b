"""What a kernel says of its schedule: ``ws_op`` names ops, ``annotate_ws_schedule`` attaches the schedule.

Both leave dead constants that carry what was said, as ``warp_pipeline_stage`` does; on a bare Triton they vanish and
the kernel runs straight through.
"""

from __future__ import annotations

from typing import Any

from amdwarp.errors import UsageError
from amdwarp.stage import _kernel_line, _plain

from .objects import WSSchedule, WSScope

OP_BEGIN = "amdwarp.ws.begin"
OP_END = "amdwarp.ws.end"
SCHEDULE = "amdwarp.ws.schedule"
REALISE = "amdwarp.ws.realise"

REALISATIONS = ("tasks", "inter_wave", "pipeline", "none")


class ws_op:
    """Give what stands in the block a stable id: ``with amdwarp.ws_op("load_a"): ...`` in a kernel.

    The block is one op of the schedule, or, if it holds a loop that a ``WSScope`` names, that loop. It may stand in an
    ``if``, which then guards it.

    Args:
        id: what the schedule calls it, a constexpr string; each id once a kernel.

    Raises:
        UsageError: while the kernel is compiled, for anything else.
    """

    __triton_builtin__ = True
    __slots__ = ("_semantic", "id")

    def __init__(self, id: Any, *, _semantic: Any = None) -> None:
        name = _plain(id)
        if not isinstance(name, str) or not name or not name.isprintable():
            raise _located(UsageError(f"id must be one line of text, not {name!r}", construct="ws_op"))
        if name == WSScope.ROOT:
            raise _located(
                UsageError("the root scope has no op", remedy="take another id", construct=f"ws_op {name!r}")
            )
        self.id = name
        self._semantic = _semantic

    def __enter__(self) -> ws_op:
        _mark(self._semantic, f"ws_op {self.id!r}", {OP_BEGIN: self.id})
        return self

    def __exit__(self, *_: object) -> None:
        _mark(self._semantic, f"ws_op {self.id!r}", {OP_END: self.id})


def annotate_ws_schedule(schedule: Any, realise: Any = "tasks", *, _semantic: Any = None) -> None:
    """Attach a schedule to the kernel it is called in.

    Args:
        schedule: a ``WSSchedule``, a constexpr.
        realise: how to carry it out. ``"tasks"``: each role on waves of its own; ``"inter_wave"``: all waves run all
            roles, each role a stage of a wave pipeline; ``"pipeline"``: all waves run all roles as one software
            pipeline; ``"none"``: the kernel straight through, as it is written.

    Raises:
        UsageError: while the kernel is compiled, for a schedule that breaks a rule or anything else.
    """
    plan, how = _plain(schedule), _plain(realise)
    try:
        if not isinstance(plan, WSSchedule):
            raise UsageError(f"schedule must be a WSSchedule, not {plan!r}", construct="annotate_ws_schedule")
        if how not in REALISATIONS:
            raise UsageError(
                f"realise must be one of {', '.join(map(repr, REALISATIONS))}, not {how!r}",
                construct="annotate_ws_schedule",
            )
        plan.check(_arch(_semantic))
    except UsageError as error:
        raise _located(error) from None
    if how != "none":
        _mark(_semantic, "annotate_ws_schedule", {SCHEDULE: plan.to_json(), REALISE: how})


annotate_ws_schedule.__triton_builtin__ = True  # type: ignore[attr-defined]


def _arch(semantic: Any) -> str | None:
    """The arch that is compiled for, where the front end says so."""
    arch = getattr(getattr(getattr(semantic, "builder", None), "options", None), "arch", None)
    return arch if isinstance(arch, str) and arch.startswith("gfx") else None


def _located(error: UsageError) -> UsageError:
    error.locate(_kernel_line())
    return error


def _mark(semantic: Any, construct: str, texts: dict[str, str]) -> None:
    if semantic is None:
        raise UsageError(
            "it has a meaning only inside a kernel",
            remedy="use it in a function under @amdwarp.jit, @gluon.jit or @triton.jit",
            construct=construct,
        )
    builder = semantic.builder
    mark = builder.get_int32(0)
    for name, text in texts.items():
        mark.set_attr(name, builder.get_string_attr(text))
