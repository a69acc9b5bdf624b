"""Schedule objects: what they take, their repr, JSON in and out."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from schedule_samples import ROOT, gemm

import amdwarp
from amdwarp import UsageError, WSOpRef, WSPipeline, WSRole, WSSchedule, WSScope, WSSync, WSSyncKind


def test_repr_evaluates_back() -> None:
    schedule = gemm(in_flight=2)
    names = {name: getattr(amdwarp, name) for name in amdwarp.__all__ if name.startswith("WS")}
    again = eval(repr(schedule), names)
    assert again == schedule
    assert hash(again) == hash(schedule)
    assert repr(again) == repr(schedule)
    assert eval(repr(WSSyncKind.CONSUMER_WAIT), names) is WSSyncKind.CONSUMER_WAIT


def test_a_difference_shows_in_repr_and_in_one_line_of_json() -> None:
    one, other = gemm(depth=3), gemm(depth=4)
    assert repr(one) != repr(other)
    lines = list(difflib.unified_diff(one.to_json().splitlines(), other.to_json().splitlines(), lineterm="", n=0))
    changed = [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert len(changed) == 2
    assert '"depth": 4' in changed[1]


def test_json_goes_out_and_in() -> None:
    schedule = gemm(in_flight=2)
    assert WSSchedule.from_json(schedule.to_json()) == schedule
    data = json.loads(schedule.to_json())
    assert (data["schema"], data["version"]) == ("amdwarp.ws_schedule", 1)
    assert WSSchedule.from_json(json.dumps(data)) == schedule


def test_objects_are_frozen_and_strings_are_references() -> None:
    scope = WSScope("loop", {"load": ["x", WSSync.producer_acquire("p")]})
    assert scope.body("load") == (WSOpRef("x"), WSSync(WSSyncKind.PRODUCER_ACQUIRE, "p", 0))
    assert scope.body("nobody") == ()
    with pytest.raises(FrozenInstanceError):
        scope.id = "other"  # type: ignore[misc]
    assert replace(WSRole("r", warps_lo=0, warps_hi=4), warps_hi=8).num_warps == 8


def test_a_role_takes_its_range_by_keyword() -> None:
    with pytest.raises(TypeError):
        WSRole("load", 0, 4)  # type: ignore[misc]


def test_a_stage_of_an_op_goes_out_and_in() -> None:
    scope = WSScope("loop", {"mma": [WSOpRef("multiply", stage=2), "read"]})
    schedule = gemm(scopes=[scope])
    assert '{"op": "multiply", "stage": 2},' in schedule.to_json()
    assert WSSchedule.from_json(schedule.to_json()) == schedule
    assert repr(scope) == "WSScope('loop', {'mma': [WSOpRef('multiply', stage=2), 'read']})"


def edited(edit: Callable[[dict[str, Any]], None]) -> str:
    data = json.loads(gemm().to_json())
    edit(data)
    return json.dumps(data)


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: WSRole("", warps_lo=0, warps_hi=1), "WSRole: name must be one line of text, not ''"),
    (lambda: WSRole("r", warps_lo=0.0, warps_hi=1), "WSRole 'r': warps_lo must be an int, not 0.0"),  # type: ignore[arg-type]
    (lambda: WSRole("r", warps_lo=0, warps_hi=True), "WSRole 'r': warps_hi must be an int, not True"),
    (lambda: WSPipeline("p", "ab", 1), "WSPipeline 'p': buffers must be a list of buffer names, not 'ab'"),
    (lambda: WSPipeline("p", [1], 1), "WSPipeline 'p': buffers holds 1, which is none of buffer names"),  # type: ignore[list-item]
    (lambda: WSPipeline("p", ["a"], "2"), "WSPipeline 'p': depth must be an int, not '2'"),  # type: ignore[arg-type]
    (lambda: WSOpRef("a\nb"), "WSOpRef: id must be one line of text, not 'a\\nb'"),
    (lambda: WSOpRef("a", "1"), "WSOpRef 'a': stage must be an int, not '1'"),  # type: ignore[arg-type]
    (lambda: WSSync("acquire", "p"), "WSSync: kind must be a WSSyncKind, not 'acquire'"),  # type: ignore[arg-type]
    (lambda: WSSync.consumer_wait("p", None), "WSSync.consumer_wait('p'): stage must be an int, not None"),  # type: ignore[arg-type]
    (lambda: WSScope("s", [("r", [])]), "WSScope 's': bodies must map role names to lists, not [('r', [])]"),  # type: ignore[arg-type]
    (lambda: WSScope("s", {"r": "load"}), "WSScope 's': the body of 'r' must be a list of ids and WSSync, not 'load'"),
    (lambda: WSScope("s", {"r": [3]}), "WSScope 's': the body of 'r' holds 3, which is none of ids and WSSync"),  # type: ignore[list-item]
    (lambda: WSSchedule("8", [], [], []), "WSSchedule: num_warps must be an int, not '8'"),  # type: ignore[arg-type]
    (lambda: WSSchedule(8, ["load"], [], []), "WSSchedule: roles holds 'load', which is none of WSRole"),  # type: ignore[list-item]
    (lambda: WSSchedule.from_json("{"), "WSSchedule.from_json: it is no JSON: "),
    (
        lambda: WSSchedule.from_json("[]"),
        "WSSchedule.from_json: the schedule is [], not an object; give schema, version",
    ),
    (lambda: WSSchedule.from_json('{"a": 1, "a": 2}'), "the key 'a' stands twice in one object; keep one of them"),
    (
        lambda: WSSchedule.from_json(edited(lambda d: d.update(schema="x"))),
        "schema is 'x', not 'amdwarp.ws_schedule'; write one with WSSchedule.to_json",
    ),
    (
        lambda: WSSchedule.from_json(edited(lambda d: d.update(version=2))),
        "version 2 is not known; this amdwarp reads version 1",
    ),
    (
        lambda: WSSchedule.from_json(edited(lambda d: d.update(warps=2))),
        "the schedule has an unknown field 'warps'; known are schema, version, num_warps, roles, pipelines, scopes",
    ),
    (
        lambda: WSSchedule.from_json(edited(lambda d: d.pop("roles"))),
        "the schedule lacks the field 'roles'; give schema",
    ),
    (
        lambda: WSSchedule.from_json(edited(lambda d: d["roles"][0].update(color="red"))),
        "a role has an unknown field 'color'; known are name, warps_lo, warps_hi, max_nreg",
    ),
    (
        lambda: WSSchedule.from_json(edited(lambda d: d["pipelines"][0].update(slots=1))),
        "a pipeline has an unknown field 'slots'; known are name, buffers, depth, in_flight",
    ),
    (
        lambda: WSSchedule.from_json(edited(lambda d: d["scopes"][0]["bodies"]["load"].append({"sync": "x"}))),
        "an instruction lacks the field 'pipeline'; give sync, pipeline, stage",
    ),
    (
        lambda: WSSchedule.from_json(
            edited(lambda d: d["scopes"][0]["bodies"]["load"][0].update(sync="acquire")),
        ),
        "sync is 'acquire'; it is one of producer_acquire, producer_commit, consumer_wait, consumer_release",
    ),
]


@pytest.mark.parametrize(("make", "text"), WRONG, ids=range(len(WRONG)))
def test_what_is_no_schedule_is_refused(make: Callable[[], object], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert text in str(caught.value)


def test_sides_of_a_pipeline() -> None:
    assert gemm().sides("smem") == (("load",), ("mma",))
    assert gemm().scope(ROOT) is not None
