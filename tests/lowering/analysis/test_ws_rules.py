"""What a typed schedule must keep on its kernel: each refusal with its text and line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from amdwarp import WSOpRef, WSPipeline, WSScope, WSSync
from amdwarp.errors import AmdwarpError

pytestmark = pytest.mark.usefixtures("needs_triton")
sys.path.insert(0, str(Path(__file__).parents[1]))

acquire, commit = WSSync.producer_acquire, WSSync.producer_commit
wait, release = WSSync.consumer_wait, WSSync.consumer_release
LOAD, ADD = [acquire("p"), "load", commit("p")], [wait("p"), "read", "add", release("p")]
ROOT = WSScope.ROOT

# case: (arguments of the schedule, construct, mark of the line, text)
CASES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "unknown op": (
        {"load": [*LOAD, "copy"]},
        "ws_schedule",
        "schedule",
        "role 'loads' runs op 'copy' in 'loop', and no ws_op in the kernel has this id; have loop, load, read",
    ),
    "wrong scope": (
        {"add": [*ADD, "store"], "root": {"loads": ["loop"], "adds": ["loop"]}},
        "ws_op 'store'",
        "store",
        "role 'adds' runs it in scope 'loop', and it stands in 'ws.root'; refer to it in the scope it stands in",
    ),
    "unplaced": ({}, "ws_op 'spare'", "spare", "no role runs it; add 'spare' to a body of scope 'loop'"),
    "effect": ({}, "ws_schedule", "effect", "tt.store has an effect and stands in no ws_op; put it into one, and let"),
    "twice": (
        {},
        "ws_op 'load'",
        "second load",
        "an op of this id stands at {load} already; give each op an id of its own",
    ),
    "nested": ({}, "ws_op 'outer'", "outer", "op 'inner' stands inside it ({inner}); ops do not nest: close it before"),
    "own copy": (
        {"load": [*LOAD, "spare"]},
        "ws_op 'spare'",
        "own copy",
        "amdg.buffer_load_to_local ({the copy}) copies into a buffer of no pipeline; name the buffer in a WSPipeline",
    ),
    "outside of its span": (
        {"add": [wait("p"), release("p"), "read", "add"]},
        "ws_op 'read'",
        "read",
        "role 'adds' runs it outside of a span of 'p', whose buffer ttg.local_load accesses ({the load}); put",
    ),
    "reads": (
        {"load": [acquire("p"), "load", "spare", commit("p")]},
        "ws_op 'spare'",
        "reading producer",
        "ttg.local_load ({its read}) reads a buffer of 'p', and role 'loads' produces it; let a consumer read it",
    ),
    "writes": (
        {"add": [wait("p"), "read", "add", "spare", release("p")]},
        "ws_op 'spare'",
        "writing consumer",
        "ttg.local_store ({its write}) writes a buffer of 'p', and role 'adds' consumes it; let a producer write it",
    ),
    "two roles access": (
        {"load": [acquire("p"), "load", commit("p")], "add": [wait("p"), "read", "load", "add", release("p")]},
        "ws_op 'load'",
        "load",
        "amdg.buffer_load_to_local ({copy}) writes a buffer of 'p', and role 'adds' consumes it",
    ),
    "two roles store": (
        {"root": {"loads": ["loop", "store"], "adds": ["loop", "store"]}},
        "ws_op 'store'",
        "store",
        "roles 'loads' and 'adds' run it, and tt.store ({the store}) would take effect twice; let one role run it",
    ),
    "guard reads": (
        {"add": [wait("p"), "read", "add", "spare", release("p")]},
        "ws_op 'spare'",
        "guarded",
        "the condition around it ({guard}) reads a pipeline's buffer ({the load}); synchronization is unconditional, "
        "and a condition must be the same in all roles: compute it from arguments",
    ),
    "guard of a value": (
        {"load": [*LOAD, "spare"]},
        "ws_schedule",
        "unplaced load",
        "tt.load has an effect and stands in no ws_op",
    ),
    "guard gives": (
        {"add": [*ADD, "spare"]},
        "ws_op 'spare'",
        "giving",
        "the condition around it ({giving guard}) gives a value, and holds a scope or an effect of no op; give the "
        "value in a condition of its own",
    ),
    "giving guard reads": (
        {"add": [wait("p"), "read", "add", "spare", release("p")]},
        "ws_op 'spare'",
        "giving by a read",
        "the condition around it ({reading guard}) reads a pipeline's buffer ({the load}); synchronization is "
        "unconditional, and a condition must be the same in all roles: compute it from arguments",
    ),
    "guard shares": (
        {"add": [wait("p"), "read", "add", "spare", release("p")]},
        "ws_op 'spare'",
        "sharing",
        "it stands in a condition ({sharing guard}) together with a scope or an effect of no op, and its value is used "
        "outside of it ({its user}); let one op do both, or give them a condition of their own",
    ),
    "loop that is no scope": (
        {"add": [*ADD, "spare"]},
        "ws_op 'spare'",
        "in the loop",
        "it stands in a loop ({inner loop}) that is no scope; name the loop by a WSScope",
    ),
    "value of another role": (
        {"load": [*LOAD, "add"], "add": [wait("p"), "read", release("p")]},
        "ws_op 'read'",
        "read",
        "its value 'value' is used by op 'add' of another role; pass it on through a buffer of a pipeline, or let one",
    ),
    "value at an earlier stage": (
        {"add": [wait("p", 1), "read", WSOpRef("add", 0), release("p", 1)]},
        "ws_op 'read'",
        "read",
        "its value 'value' is used by op 'add' at an earlier stage; give the op that uses a value at least",
    ),
    "access at a stage of its own": (
        {"add": [wait("p"), WSOpRef("read", 1), WSOpRef("add", 1), release("p")]},
        "ws_op 'read'",
        "read",
        "role 'adds' runs it outside of a span of 'p', whose buffer ttg.local_load accesses ({the load}); put",
    ),
    "result of another role": (
        {"root": {"loads": ["loop", "store"], "adds": ["loop"]}},
        "ws_op 'loop'",
        "loop",
        "its value is used by op 'store', whose role does not run it before; let one role run both, in this order, or",
    ),
    "result before the loop": (
        {"root": {"loads": ["loop"], "adds": ["store", "loop"]}},
        "ws_op 'loop'",
        "loop",
        "its value is used by op 'store', whose role does not run it before; let one role run both, in this order, or",
    ),
    "shared buffer": (
        {"load": [*LOAD, "one"], "add": [*ADD, "two"]},
        "ws_op 'two'",
        "two",
        "role 'adds' accesses an LDS buffer ({other}) that role 'loads' accesses in op 'one'; protect it by",
    ),
    "buffer read first": (
        {"add": ["two", "one", *ADD]},
        "ws_op 'two'",
        "two",
        "role 'adds' does not run it behind op 'one' at the same stage, and both access an LDS buffer of no pipeline "
        "({other}); keep the kernel's order and give both one stage, or protect the buffer by a WSPipeline",
    ),
    "buffer read late": (
        {"add": [WSOpRef("one", stage=0), WSOpRef("two", stage=1), *ADD]},
        "ws_op 'two'",
        "two",
        "role 'adds' does not run it behind op 'one' at the same stage, and both access an LDS buffer of no pipeline",
    ),
    "full buffer": (
        {},
        "ws_schedule",
        "full buffer",
        "the buffer 'tile' is made with contents, or inside a loop or condition; allocate it at the top of the kernel",
    ),
    "LDS": (
        {"depth": 40},
        "ws_schedule",
        "schedule",
        "its buffers take 168928 bytes of LDS ('p' 40 x 4192), and gfx950 has 163840; lower a depth or take",
    ),
}


@pytest.mark.parametrize("how", ["pipeline", "tasks"])
@pytest.mark.parametrize(("depth", "size"), [(1000, 4_223_968), (20_000, 84_479_968)])
def test_a_deep_pipeline_is_refused_by_its_bytes(
    depth: int, size: int, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a thread is executed, which takes the longer the more versions there are."""
    from amdwarp.lowering.analysis import ws_rules
    from ws_kernels import line_of
    from ws_refused import build, kernel, plan

    monkeypatch.setattr(ws_rules, "role_threads", lambda _: pytest.fail("executed"))
    with pytest.raises(AmdwarpError) as caught:
        build("", plan(depth=depth), how=how)
    assert str(caught.value).startswith(
        f"ws_schedule ({line_of('schedule', kernel.fn.__code__.co_filename)}): its buffers take "
        f"{size} bytes of LDS ('p' {depth} x 4192), and gfx950 has 163840"
    )


@pytest.mark.parametrize("case", CASES)
def test_refused(case: str) -> None:
    from ws_kernels import line_of
    from ws_refused import build, kernel, plan

    arguments, construct, mark, text = CASES[case]
    file = kernel.fn.__code__.co_filename
    marks = ("load", "inner", "the copy", "the load", "its read", "its write", "the store", "guard", "giving guard")
    marks += ("reading guard", "sharing guard", "its user")
    lines = {name: line_of(name, file) for name in (*marks, "inner loop", "other")}
    number = int(lines["load"].rpartition(":")[2]) + 1
    lines["copy"] = f"{file}:{number}"
    for name, line in lines.items():
        text = text.replace("{" + name + "}", line)
    with pytest.raises(AmdwarpError) as caught:
        build(case, plan(**arguments))
    assert str(caught.value).startswith(f"{construct} ({line_of(mark, file)}): {text}")


def test_the_kernel_is_accepted_as_it_is() -> None:
    from ws_refused import build, plan

    assert "amdwarp.ws" not in build("", plan()).asm["amdwarp"]


def test_an_unknown_buffer_is_refused() -> None:
    from dataclasses import replace

    from ws_kernels import line_of
    from ws_refused import build, kernel, plan

    with pytest.raises(AmdwarpError) as caught:
        build("", replace(plan(), pipelines=[WSPipeline("p", ["tiles"], 2)]))
    where = line_of("schedule", kernel.fn.__code__.co_filename)
    assert str(caught.value).startswith(
        f"ws_schedule ({where}): no LDS buffer has the name 'tiles' of pipeline 'p'; have tile"
    )


def test_two_buffers_of_a_name_are_refused() -> None:
    from ws_refused import build, plan

    with pytest.raises(AmdwarpError, match="2 LDS buffers have the name 'tile' of pipeline 'p'; have tile"):
        build("two buffers", plan())


def test_a_scope_without_a_loop_is_refused() -> None:
    from dataclasses import replace

    from ws_refused import build, plan

    wrong = plan(root={"loads": ["loop"], "adds": ["loop"]})
    scopes = [*wrong.scopes, WSScope("store", {"adds": ["x"]})]
    scopes[1] = WSScope(ROOT, {"loads": ["loop"], "adds": ["loop", "store"]})
    with pytest.raises(AmdwarpError, match="a scope is one for loop, and this holds none"):
        build("", replace(wrong, scopes=scopes))


@pytest.mark.parametrize(
    ("case", "mark", "text"),
    [
        (
            "while",
            "while scope",
            "a scope is one for loop, and this holds a while loop; wrap just the loop, with range()",
        ),
        ("no loop", "empty scope", "a scope is one for loop, and this holds none; wrap a loop, with range()"),
    ],
)
def test_a_scope_of_something_else_is_refused(case: str, mark: str, text: str) -> None:
    from dataclasses import replace

    from ws_kernels import line_of
    from ws_refused import build, kernel, plan

    scopes = [plan().scopes[0], WSScope("late", {"adds": ["spare"]})]
    scopes.append(WSScope(ROOT, {"loads": ["loop"], "adds": ["loop", "late", "store"]}))
    with pytest.raises(AmdwarpError) as caught:
        build(case, replace(plan(), scopes=scopes))
    assert str(caught.value).startswith(f"ws_op 'late' ({line_of(mark, kernel.fn.__code__.co_filename)}): {text}")


def test_a_scope_of_no_op_is_refused() -> None:
    from dataclasses import replace

    from ws_refused import build, plan

    scopes = [
        *plan().scopes[:1],
        WSScope("late", {"adds": ["x"]}),
        WSScope(ROOT, {"loads": ["loop"], "adds": ["late"]}),
    ]
    scopes[0] = WSScope("loop", {"loads": LOAD, "adds": ADD})
    scopes[2] = WSScope(ROOT, {"loads": ["loop"], "adds": ["loop", "late"]})
    with pytest.raises(AmdwarpError, match="no ws_op in the kernel has the id 'late' of a scope; have loop, load"):
        build("", replace(plan(), scopes=scopes))
