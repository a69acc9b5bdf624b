"""Schedules as JSON: versioned, one instruction a line, strict in what it takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from amdwarp.errors import UsageError

from .objects import WSInstr, WSOpRef, WSPipeline, WSRole, WSSchedule, WSScope, WSSync, WSSyncKind

SCHEMA = "amdwarp.ws_schedule"
VERSION = 1


def to_json(schedule: WSSchedule) -> str:
    """The schedule as JSON text, ending with a newline."""
    lines = ["{", f'  "schema": {_dump(SCHEMA)},', f'  "version": {VERSION},', f'  "num_warps": {schedule.num_warps},']
    roles = [
        {"name": r.name, "warps_lo": r.warps_lo, "warps_hi": r.warps_hi, "max_nreg": r.max_nreg} for r in schedule.roles
    ]
    pipelines = [
        {"name": p.name, "buffers": list(p.buffers), "depth": p.depth, "in_flight": p.in_flight}
        for p in schedule.pipelines
    ]
    lines += _rows("roles", roles) + _rows("pipelines", pipelines)
    lines.append('  "scopes": [')
    for position, scope in enumerate(schedule.scopes):
        lines += ["    {", f'      "id": {_dump(scope.id)},', '      "bodies": {']
        for number, (role, body) in enumerate(scope.bodies):
            lines.append(f"        {_dump(role)}: [")
            lines += [f"          {_dump(_instruction(one))}{_comma(i, body)}" for i, one in enumerate(body)]
            lines.append(f"        ]{_comma(number, scope.bodies)}")
        lines += ["      }", f"    }}{_comma(position, schedule.scopes)}"]
    return "\n".join([*lines, "  ]", "}"]) + "\n"


def _dump(value: Any) -> str:
    return json.dumps(value)


def _comma(index: int, items: Any) -> str:
    return "," if index + 1 < len(items) else ""


def _rows(name: str, rows: list[dict[str, Any]]) -> list[str]:
    return [f'  "{name}": [', *(f"    {_dump(row)}{_comma(i, rows)}" for i, row in enumerate(rows)), "  ],"]


def _instruction(one: WSInstr) -> Any:
    if isinstance(one, WSSync):
        return {"sync": one.kind.value, "pipeline": one.pipeline, "stage": one.stage}
    assert isinstance(one, WSOpRef)
    return one.id if one.stage is None else {"op": one.id, "stage": one.stage}


def from_json(text: str) -> WSSchedule:
    """The schedule that ``text`` says; errors as :meth:`WSSchedule.from_json` documents."""
    try:
        data = json.loads(text, object_pairs_hook=_no_twins)
    except (json.JSONDecodeError, RecursionError, TypeError) as error:
        raise _error(f"it is no JSON: {error}", "write one with WSSchedule.to_json") from error
    fields = _fields("the schedule", data, ("schema", "version", "num_warps", "roles", "pipelines", "scopes"))
    if fields["schema"] != SCHEMA:
        raise _error(f"schema is {fields['schema']!r}, not {SCHEMA!r}", "write one with WSSchedule.to_json")
    if fields["version"] != VERSION or type(fields["version"]) is not int:
        raise _error(f"version {fields['version']!r} is not known", f"this amdwarp reads version {VERSION}")
    return WSSchedule(
        fields["num_warps"],
        _list("roles", fields["roles"], _role),
        _list("pipelines", fields["pipelines"], _pipeline),
        _list("scopes", fields["scopes"], _scope),
    )


def _error(problem: str, remedy: str = "") -> UsageError:
    return UsageError(problem, remedy=remedy, construct="WSSchedule.from_json")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise _error(f"the key {twice!r} stands twice in one object", "keep one of them")
    return dict(pairs)


def _fields(what: str, data: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise _error(f"{what} is {data!r}, not an object", f"give {', '.join(names)}")
    if unknown := next((name for name in data if name not in names), None):
        raise _error(f"{what} has an unknown field {unknown!r}", f"known are {', '.join(names)}")
    if missing := next((name for name in names if name not in data), None):
        raise _error(f"{what} lacks the field {missing!r}", f"give {', '.join(names)}")
    return data


def _list(what: str, data: Any, one: Callable[[Any], Any]) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise _error(f"{what} is {data!r}, not a list")
    return tuple(map(one, data))


def _role(data: Any) -> WSRole:
    fields = dict(_fields("a role", data, ("name", "warps_lo", "warps_hi", "max_nreg")))
    return WSRole(fields.pop("name"), **fields)


def _pipeline(data: Any) -> WSPipeline:
    fields = _fields("a pipeline", data, ("name", "buffers", "depth", "in_flight"))
    return WSPipeline(**fields)


def _scope(data: Any) -> WSScope:
    fields = _fields("a scope", data, ("id", "bodies"))
    if not isinstance(fields["bodies"], dict):
        raise _error(f"bodies is {fields['bodies']!r}, not an object", "give a list for each role")
    bodies = {role: _list(f"the body of {role!r}", body, _read) for role, body in fields["bodies"].items()}
    return WSScope(fields["id"], bodies)


def _read(data: Any) -> WSInstr:
    if isinstance(data, str):
        return WSOpRef(data)
    if isinstance(data, dict) and "op" in data:
        fields = _fields("an op", data, ("op", "stage"))
        return WSOpRef(fields["op"], fields["stage"])
    fields = _fields("an instruction", data, ("sync", "pipeline", "stage"))
    kinds = {kind.value: kind for kind in WSSyncKind}
    if fields["sync"] not in tuple(kinds):
        raise _error(f"sync is {fields['sync']!r}", f"it is one of {', '.join(kinds)}")
    return WSSync(kinds[fields["sync"]], fields["pipeline"], fields["stage"])
