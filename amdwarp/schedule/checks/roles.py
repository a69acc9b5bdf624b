"""Roles: named once, in range, apart from each other, and together all waves that the target can hold."""

from __future__ import annotations

from amdwarp.errors import UsageError
from amdwarp.target import Target

from ..objects import WSRole, WSSchedule

# LLVM's AMDGPU usage guide: a flat workgroup has at most 1024 work items.
MAX_THREADS = 1024
REGISTER_GRANULE = 8


def check(schedule: WSSchedule, target: Target | None) -> None:
    """Raise ``UsageError`` for the first role that breaks a rule."""
    if schedule.num_warps < 1:
        raise _error("WSSchedule", f"num_warps = {schedule.num_warps}", "a workgroup has at least one wave")
    if not schedule.roles:
        raise _error("WSSchedule", "it has no roles", "name at least one WSRole")
    names = [role.name for role in schedule.roles]
    for role in schedule.roles:
        if names.count(role.name) > 1:
            raise _error(f"WSRole {role.name!r}", "two roles have this name", "rename one")
        _check_range(role, schedule)
        _check_registers(role, target)
    _check_apart(schedule)
    if target is not None and schedule.num_warps * target.wave_size > MAX_THREADS:
        most = MAX_THREADS // target.wave_size
        raise _error(
            "WSSchedule",
            f"num_warps = {schedule.num_warps}; a workgroup on {target.arch} has at most {most} waves of "
            f"{target.wave_size} lanes",
            "give roles fewer waves",
        )


def _error(construct: str, problem: str, remedy: str) -> UsageError:
    return UsageError(problem, remedy=remedy, construct=construct)


def _check_range(role: WSRole, schedule: WSSchedule) -> None:
    construct = f"WSRole {role.name!r}"
    if role.warps_lo < 0:
        raise _error(construct, f"warps_lo = {role.warps_lo}", "waves are counted from 0")
    if role.num_warps < 1:
        raise _error(
            construct, f"the waves {role.warps_lo} up to {role.warps_hi} are none", "warps_hi is one past the last"
        )
    if role.warps_hi > schedule.num_warps:
        raise _error(
            construct,
            f"it ends at wave {role.warps_hi - 1}, the workgroup at wave {schedule.num_warps - 1}",
            f"raise num_warps to {role.warps_hi} or move the role",
        )
    if role.num_warps & (role.num_warps - 1):
        raise _error(construct, f"it has {role.num_warps} waves", "layouts need a power of two")


def _check_registers(role: WSRole, target: Target | None) -> None:
    construct = f"WSRole {role.name!r}"
    if role.max_nreg < 0 or role.max_nreg % REGISTER_GRANULE:
        raise _error(
            construct, f"max_nreg = {role.max_nreg}", f"give a multiple of {REGISTER_GRANULE}, or 0 for no request"
        )
    if target is not None and role.max_nreg > target.vgprs:
        raise _error(construct, f"max_nreg = {role.max_nreg}", f"a lane of {target.arch} has {target.vgprs}")


def _check_apart(schedule: WSSchedule) -> None:
    ordered = sorted(schedule.roles, key=lambda role: role.warps_lo)
    end = 0
    for before, role in zip([None, *ordered], ordered, strict=False):
        if before is not None and role.warps_lo < end:
            raise _error(
                f"WSRole {role.name!r}",
                f"it starts at wave {role.warps_lo}, and {before.name!r} holds the waves up to {end - 1}",
                "give each wave to one role",
            )
        if role.warps_lo > end:
            raise _idle(end, role.warps_lo)
        end = role.warps_hi
    if end < schedule.num_warps:
        raise _idle(end, schedule.num_warps)


def _idle(low: int, high: int) -> UsageError:
    which = f"wave {low} belongs" if high == low + 1 else f"waves {low} to {high - 1} belong"
    remedy = "on AMD an idle wave still holds its registers: lower num_warps or give it a role"
    return _error("WSSchedule", f"{which} to no role", remedy)
