"""What a schedule must keep whatever kernel it is for, one file a group, run in this order.

What depends on the kernel (ids, effects, buffers) is checked by ``lowering/analysis/ws_kernel.py``.
"""

from __future__ import annotations

from amdwarp.target import Target, get_target

from ..objects import WSSchedule
from . import deadlock, pipelines, roles, scopes, spans

GROUPS = (roles, pipelines, scopes, spans, deadlock)


def check(schedule: WSSchedule, target: str | Target | None = None) -> None:
    """Raise ``UsageError`` for the first rule that the schedule breaks.

    Args:
        schedule: the schedule.
        target: arch name or record, for what a target bounds; None leaves that out.
    """
    record = get_target(target) if target is not None else None
    for group in GROUPS:
        group.check(schedule, record)
