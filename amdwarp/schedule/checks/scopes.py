"""Scopes: named once, reached from the root by every role that works in them, each id once a role."""

from __future__ import annotations

from amdwarp.errors import UsageError
from amdwarp.target import Target

from ..objects import WSOpRef, WSSchedule, WSScope
from ..programs import body_error


def check(schedule: WSSchedule, target: Target | None) -> None:
    """Raise ``UsageError`` for the first scope that breaks a rule."""
    ids = [scope.id for scope in schedule.scopes]
    for scope in schedule.scopes:
        if ids.count(scope.id) > 1:
            raise _error(scope.id, "two scopes have this id", "join them")
    if WSScope.ROOT not in ids:
        raise UsageError(
            "it has no root scope",
            remedy="add WSScope(WSScope.ROOT, …) with what each role does, loops included",
            construct="WSSchedule",
        )
    _check_roles(schedule)
    parents = _parents(schedule)
    _check_reached(schedule, parents)


def _error(id: str, problem: str, remedy: str) -> UsageError:
    return UsageError(problem, remedy=remedy, construct=f"WSScope {id!r}")


def _check_roles(schedule: WSSchedule) -> None:
    names = [role.name for role in schedule.roles]
    for scope in schedule.scopes:
        for role, body in scope.bodies:
            if role not in names:
                raise _error(scope.id, f"it has a body for an unknown role {role!r}", f"have {', '.join(names)}")
            for one in body:
                if isinstance(one, WSOpRef) and one.id == WSScope.ROOT:
                    raise body_error(scope, role, "it refers to the root", "the root is in no scope")
    for name in names:
        if not any(scope.body(name) for scope in schedule.scopes):
            raise UsageError("it has nothing to do", remedy="give it a body, or drop it", construct=f"WSRole {name!r}")
        used: dict[str, str] = {}
        for scope in schedule.scopes:
            for one in scope.body(name):
                if isinstance(one, WSOpRef) and one.id in used:
                    raise body_error(
                        scope, name, f"op {one.id!r} is used twice", f"the role runs it in {used[one.id]!r} already"
                    )
                if isinstance(one, WSOpRef):
                    used[one.id] = scope.id


def _parents(schedule: WSSchedule) -> dict[str, str]:
    """Scope id -> the scope that its loop stands in."""
    ids = {scope.id for scope in schedule.scopes}
    found: dict[str, str] = {}
    for scope in schedule.scopes:
        for _role, body in scope.bodies:
            for one in body:
                if not isinstance(one, WSOpRef) or one.id not in ids:
                    continue
                if found.setdefault(one.id, scope.id) != scope.id:
                    raise _error(
                        one.id, f"it stands in {found[one.id]!r} and in {scope.id!r}", "a loop stands in one scope"
                    )
    return found


def _check_reached(schedule: WSSchedule, parents: dict[str, str]) -> None:
    for scope in schedule.scopes:
        if scope.id == WSScope.ROOT:
            continue
        chain, at = [scope.id], scope.id
        while at in parents and parents[at] not in chain:
            at = parents[at]
            chain.append(at)
        if at != WSScope.ROOT:
            raise _error(scope.id, "the root does not lead to it", "refer to it in the body of the scope around it")
        for role, body in scope.bodies:
            around = schedule.scope(parents[scope.id])
            assert around is not None
            steps = [one.id for one in around.body(role) if isinstance(one, WSOpRef)]
            if body and scope.id not in steps:
                raise body_error(
                    scope,
                    role,
                    f"it has a body here, and none of its steps in {around.id!r} is this scope",
                    f"add {scope.id!r} to its body there",
                )
