"""The protocol check on kernels: every single mutation that makes a race is refused, and right variants are not.

A refusal names the kernel's line, both stages, the slot, and the wait or barrier that would mend it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from amdwarp.lowering.analysis import protocol, timeline
from amdwarp.lowering.bridge import triton_version
from stage_forms import __file__ as FORMS
from stage_forms import form, forms, persistent, store_ring, two_loops
from stage_kernels import line_of, ops, ring_of

from amdwarp.errors import ProtocolError

pytestmark = pytest.mark.usefixtures("needs_triton")

READ, REFILL = "it reads slot {} of LDS buffer 'a_ring'", "it refills slot {} of LDS buffer 'a_ring'"
NOT_LANDED = "while the copy into slot {} of LDS buffer 'a_ring' {} ({}) may not have landed"
NO_WAIT = ": no wait covers it; the copy must be committed, and a wait that covers it must stand before the barrier {}"
LATE = " for every wave: its wait ({}) comes too late; " + NO_WAIT.partition("; ")[2]
STILL_READ = (
    "while the other wave group may still be at the relaxed read of slot {} of LDS buffer 'a_ring' in stage 'load' ({})"
)
PROLOGUE, LOOP = "outside the stages", "in stage 'load'"
BEFORE, MIDDLE, BACK = (
    "before the pipeline",
    "between stage 'load' and stage 'mfma'",
    "between stage 'mfma' and stage 'load'",
)
COPY0, COPY, WAIT, LATE_WAIT = (line_of(mark) for mark in ("prologue copy", "refill", "wait", "late wait"))
HELPER = line_of("relaxed read")
READ_AT = f"{HELPER}, called at {line_of('read')}"
EPILOGUE_AT = line_of("epilogue read")


def unwaited(slot: int, place: str, copy: str, barrier: str) -> str:
    return " ".join((READ.format(slot), NOT_LANDED.format(slot, place, copy))) + NO_WAIT.format(barrier)


def late(slot: int, place: str, copy: str, wait: str, barrier: str) -> str:
    return " ".join((READ.format(slot), NOT_LANDED.format(slot, place, copy))) + LATE.format(wait, barrier)


def refilled(slot: int, barrier: str) -> str:
    both = f"both wave groups must have passed the barrier {barrier} before it starts: deepen the ring by one slot"
    return " ".join((REFILL.format(slot), STILL_READ.format(slot, READ_AT))) + f"; {both}"


def refilled_at_once(slot: int) -> str:
    read = f"with no barrier since the relaxed read of slot {slot} of LDS buffer 'a_ring' in stage 'load' ({READ_AT})"
    return f"{REFILL.format(slot)} {read}, which other waves may still be at; deepen the ring by one slot"


# mutation -> the access it is refused at, its stage, and the words
MUTATIONS: list[tuple[dict[str, Any], str, str, str]] = [
    # waits
    ({"WHERE": "nowhere"}, READ_AT, "load", unwaited(1, PROLOGUE, COPY0, MIDDLE)),
    ({"WHERE": "late"}, READ_AT, "load", late(1, PROLOGUE, COPY0, LATE_WAIT, MIDDLE)),
    ({"R": 4, "WHERE": "late"}, READ_AT, "load", late(1, PROLOGUE, COPY0, LATE_WAIT, MIDDLE)),
    ({"R": 4, "WHERE": "late", "WAIT": 1}, READ_AT, "load", late(1, PROLOGUE, COPY0, LATE_WAIT, MIDDLE)),
    ({"WHERE": "mfma_end"}, READ_AT, "load", "comes too late"),
    ({"WAIT": 2}, READ_AT, "load", unwaited(1, PROLOGUE, COPY0, MIDDLE)),
    ({"R": 2, "WAIT": 1}, READ_AT, "load", unwaited(1, LOOP, COPY, MIDDLE)),
    ({"WAIT0": 2}, READ_AT, "load", unwaited(0, PROLOGUE, COPY0, BEFORE)),
    ({"WAIT0": -1}, READ_AT, "load", unwaited(0, PROLOGUE, COPY0, BEFORE)),
    ({"EPI": 1}, EPILOGUE_AT, "", unwaited(1, PROLOGUE, COPY0, BEFORE)),
    ({"EPI": -1}, EPILOGUE_AT, "", unwaited(1, PROLOGUE, COPY0, BEFORE)),
    # ring indices
    ({"RD": 1}, READ_AT, "load", unwaited(1, PROLOGUE, COPY0, BEFORE)),
    ({"RD": 2}, READ_AT, "load", "slot 2 of LDS buffer 'a_ring' is read before anything was copied into it"),
    ({"WR": 1}, COPY, "load", refilled_at_once(0)),
    ({"WR": 2}, COPY, "load", " ".join((REFILL.format(1), NOT_LANDED.format(1, PROLOGUE, COPY0)))),
    ({"R": 4, "D": 2, "WR": 1}, READ_AT, "load", "slot 2 of LDS buffer 'a_ring' is read before anything was copied"),
    ({"START": True, "WR": 1}, COPY, "load", refilled_at_once(0)),
    ({"START": True, "RD": 1}, READ_AT, "load", unwaited(1, PROLOGUE, COPY0, BEFORE)),
    # commits and copies
    ({"COMMIT": "never"}, EPILOGUE_AT, "", unwaited(2, LOOP, COPY, BACK)),
    ({"COMMIT": "mfma"}, READ_AT, "load", unwaited(1, PROLOGUE, COPY0, MIDDLE)),
    ({"COMMIT": "twice", "WAIT": 4}, READ_AT, "load", unwaited(1, PROLOGUE, COPY0, MIDDLE)),
    (
        {"COMMIT": "twice", "WAIT": 3},
        f"{HELPER}, called at {line_of('read b')}",
        "load",
        "slot 1 of LDS buffer 'b_ring'",
    ),
    ({"PRO": 1}, READ_AT, "load", unwaited(0, PROLOGUE, COPY0, BEFORE)),
    # depth and gap
    ({"R": 2, "D": 2}, COPY, "load", refilled_at_once(0)),
    ({"R": 3, "D": 3}, COPY, "load", refilled_at_once(0)),
    ({"GAP": 2}, READ_AT, "load", late(1, PROLOGUE, COPY0, WAIT, BEFORE)),
    ({"R": 4, "D": 2, "GAP": 2}, READ_AT, "load", late(1, PROLOGUE, COPY0, WAIT, BEFORE)),
    ({"R": 4, "GAP": 2, "WAIT0": 1, "WAIT": 1}, COPY, "load", refilled(0, MIDDLE)),
    # carried indices
    ({"INDEX": "select", "WAIT": 2}, READ_AT, "load", unwaited(1, PROLOGUE, COPY0, MIDDLE)),
    ({"INDEX": "if", "WHERE": "late"}, READ_AT, "load", late(1, PROLOGUE, COPY0, LATE_WAIT, MIDDLE)),
    ({"INDEX": "select", "D": 3}, COPY, "load", refilled_at_once(0)),
]


def name_of(changes: dict[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in changes.items())


@pytest.mark.parametrize(("changes", "where", "stage", "words"), MUTATIONS, ids=[name_of(m[0]) for m in MUTATIONS])
def test_a_mutation_is_refused(changes: dict[str, Any], where: str, stage: str, words: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        ring_of(**changes)
    error = caught.value
    assert words in str(error)
    assert error.where == where
    assert error.construct == (f"warp_pipeline_stage {stage!r}" if stage else "ttg.local_load")
    assert error.pass_name == "check_protocol"


RIGHT: list[dict[str, Any]] = [
    {},
    {"R": 2},
    {"R": 4},
    {"R": 4, "D": 2},
    {"WHERE": "load_end"},
    {"R": 4, "D": 2, "GAP": 2, "WAIT0": 0, "WAIT": 0},
    {"R": 5, "D": 3, "GAP": 2, "WAIT0": 1, "WAIT": 1},
    {"COMMIT": "twice"},
    {"COMMIT": "mfma", "WAIT": 0},
    {"MASKED": True},
    {"START": True},
    {"INDEX": "count"},
    {"PRIORITY": False},
    {"WAIT": 0},
]


@pytest.mark.parametrize("changes", RIGHT, ids=map(name_of, RIGHT))
def test_a_right_variant_is_taken_with_one_fence_in_the_loop(changes: dict[str, Any]) -> None:
    text = ring_of(**changes).asm["amdwarp"]
    loop = text.partition("scf.for")[2].partition("\n    }")[0]
    assert ops(loop, "ttg.barrier") == 1, "the edge with the wait"
    assert ops(loop, "rocdl.s.barrier") == 1
    assert "amdwarp." not in text


def test_a_wait_behind_the_mfma_stage_needs_a_fence_before_it_too() -> None:
    """The refill follows the read in the next iteration, so the edge right behind the read must fence."""
    loop = ring_of(R=4, WHERE="late", WAIT=1, WAIT0=1).asm["amdwarp"].partition("scf.for")[2].partition("\n    }")[0]
    assert (ops(loop, "ttg.barrier"), ops(loop, "rocdl.s.barrier")) == (2, 0)


@pytest.mark.parametrize("index", ["select", "if"])
def test_a_carried_slot_is_followed(index: str) -> None:
    """The check takes it; stock barrier insertion since 3.9 cannot tell two carried slots apart, and that is found."""
    if triton_version() < (3, 9):
        assert ops(ring_of(INDEX=index).asm["amdwarp"], "amdg.cond_barrier") == 2
        return
    with pytest.raises(ProtocolError) as caught:
        ring_of(INDEX=index)
    assert "stock barrier insertion put a barrier inside a stage" in str(caught.value)
    assert "slots that Triton sees are different: (i + d) % depth of one counter i" in str(caught.value)
    assert caught.value.where == COPY
    assert caught.value.pass_name == "membar"


# ---- the edges of a ring: each sort forgotten once


def refusal(kernel: Any, **changes: Any) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        form(kernel, **changes)
    return caught.value


def test_flat_edges() -> None:
    assert ops(form(forms, FORM="flat").asm["amdwarp"], "amdg.cond_barrier") == 2
    error = refusal(forms, FORM="flat", WAIT=2)
    assert "it reads slot 1 of LDS buffer 'a_ring'" in str(error)
    assert NO_WAIT.format(MIDDLE) in str(error)
    assert error.construct == "warp_pipeline_stage 'load'"
    error = refusal(forms, FORM="flat", EPI=-1)
    assert "it reads slot 2 of LDS buffer 'a_ring' while the copy" in str(error)
    assert "in stage 'load'" in str(error)
    assert error.construct == "ttg.local_load"


def test_edges_between_two_loops() -> None:
    error = refusal(two_loops, SECOND=2)
    assert "slot 2 of LDS buffer 'a_ring' is read before anything was copied" in str(error)
    assert error.construct == "warp_pipeline_stage 'load 2'"
    error = refusal(two_loops, WAIT1=2)
    assert "it reads slot 2 of LDS buffer 'a_ring' while the copy" in str(error)
    assert "in stage 'load' (" in str(error)
    assert "may not have landed: no wait covers" in str(error)
    assert error.construct == "warp_pipeline_stage 'load 2'"


@pytest.mark.parametrize("epilogue", [-1, 1])
def test_edges_of_a_persistent_loop(epilogue: int) -> None:
    error = refusal(persistent, EPI=epilogue)
    assert "it reads slot 1 of LDS buffer 'a_ring' while the copy" in str(error)
    assert error.construct == "ttg.local_load"
    assert str(error.where).endswith(line_of("last read of a tile", FORMS))


@pytest.mark.parametrize("relaxed", [False, True])
def test_a_persistent_loop_with_an_unknown_start(relaxed: bool) -> None:
    assert ops(form(persistent, RELAXED=relaxed).asm["amdwarp"], "amdg.cond_barrier") == 2


def test_rings_filled_by_stores() -> None:
    text = form(store_ring).asm["amdwarp"]
    loop = text.partition("scf.for")[2].partition("\n    }")[0]
    assert (ops(loop, "ttg.barrier"), ops(loop, "rocdl.s.barrier")) == (2, 1)
    for depth in (2, 3):
        error = refusal(store_ring, R=depth, D=1)
        assert "it reads slot 1 of LDS buffer 'a_ring' while the other wave group may still be at the" in str(error)
        assert "store into slot 1" in str(error)
        assert f"in stage 'store' ({line_of('ring store', FORMS)})" in str(error)
        assert "the barrier between stage 'store' and stage 'read'" in str(error)
        assert error.where == line_of("ring read", FORMS)


def test_store_and_load_of_one_ring_in_one_stage() -> None:
    """Stock barrier insertion tells the two slots apart since 3.9; before, it would part them inside the stage."""
    if triton_version() >= (3, 9):
        loop = form(store_ring, TOGETHER=True).asm["amdwarp"].partition("scf.for")[2].partition("\n    }")[0]
        assert (ops(loop, "ttg.barrier"), ops(loop, "rocdl.s.barrier")) == (1, 1)
        return
    error = refusal(store_ring, TOGETHER=True)
    assert "ttg.local_store needs a barrier inside the stage: the read of slot 0" in str(error)
    assert error.where == line_of("ring store together", FORMS)


def test_an_empty_commit_group() -> None:
    """Before Triton 3.9 a wait whose newest group is empty waits for nothing, which the program shows."""
    if triton_version() >= (3, 9):
        assert "s_waitcnt vmcnt" in ring_of(COMMIT="empty").asm["amdgcn"]
        return
    with pytest.raises(ProtocolError) as caught:
        ring_of(COMMIT="empty")
    wait = line_of("epilogue wait")
    assert f"its wait ({wait}) waits for nothing, as the newest group that it covers is empty" in str(caught.value)
    assert "commit no group without a copy in it" in str(caught.value)


def test_a_slot_outside_of_the_ring() -> None:
    words = "slot index -1 lies outside of LDS buffer 'a_ring', which has 4 slots"
    with pytest.raises(ProtocolError, match=words) as caught:
        ring_of(R=4, D=2, RD=-1)
    assert caught.value.where == line_of("read")


@pytest.mark.parametrize(("depth", "most"), [(3, 6_000), (5, 16_000)])
def test_the_effort_of_the_check(depth: int, most: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A walk looks at some hundred thousand ops a second, so this is a matter of milliseconds."""
    programs: list[timeline.Program] = []

    class Counted(timeline.Program):
        def __init__(self, function: Any) -> None:
            super().__init__(function)
            programs.append(self)

    monkeypatch.setattr(protocol, "Program", Counted)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    ring_of.__wrapped__(R=depth)
    assert 500 < sum(program.walked for program in programs) < most
