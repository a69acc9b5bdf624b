"""Waits and barriers that no dependence needs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from handmade import PROLOGUE, kinds, run

from amdwarp.sanitizer import Redundancy, check

WRITE, READ, DONE = "ds_write_b32 v1, v0", "ds_read_b32 v3, v2", "s_waitcnt lgkmcnt(0)"


def listed(*lines: str, **options: Any) -> list[tuple[str, str]]:
    """(text, counter) of what is listed, the prologue's own wait left out."""
    report = run("\n".join((PROLOGUE, *lines)), options={"redundant": True}, **options)
    assert report.ok and report.redundant is not None
    return [(item.inst.text, item.counter) for item in report.redundant]


def test_everything_is_needed() -> None:
    assert listed(WRITE, DONE, "s_barrier", READ, DONE, "v_mov_b32_e32 v5, v3") == []


def test_a_second_barrier() -> None:
    assert listed(WRITE, DONE, "s_barrier", "s_barrier", READ, DONE, "v_mov_b32_e32 v5, v3") == [("s_barrier", "")] * 2


def test_a_barrier_without_accesses() -> None:
    assert listed("s_barrier") == [("s_barrier", "")]


def test_a_wait_for_nothing() -> None:
    assert listed("s_waitcnt vmcnt(0)") == [("s_waitcnt vmcnt(0)", "vmcnt")]


def test_each_counter_by_itself() -> None:
    both = "s_waitcnt vmcnt(0) lgkmcnt(0)"
    load, use = "global_load_dword v10, v1, s[4:5]", "v_mov_b32_e32 v5, v10"
    assert listed(load, both, use) == [(both, "lgkmcnt")]


def test_a_wait_that_another_makes_good() -> None:
    load, use = "global_load_dword v10, v1, s[4:5]", "v_mov_b32_e32 v5, v10"
    wait = "s_waitcnt vmcnt(0)"
    assert listed(load, wait, "s_nop 0", wait, use) == [(wait, "vmcnt")] * 2
    assert listed(load, wait, use, wait) == [(wait, "vmcnt")]


def test_stores_may_have_to_be_finished() -> None:
    assert listed("global_store_dword v1, v0, s[6:7]", "s_waitcnt vmcnt(0)") == []


def test_barriers_that_waves_reach_at_different_places() -> None:
    """Neither can go alone: the waves would no longer meet."""
    split = "v_readfirstlane_b32 s12, v1\ns_cmp_eq_u32 s12, 0\ns_cbranch_scc1 first"
    assert listed(split, "s_barrier", "s_branch end", "first:", "s_barrier", "end:") == []


@pytest.mark.parametrize(("address", "expected"), [("v2", []), ("v1", [("s_barrier", "")])])
def test_a_barrier_may_order_global_memory(address: str, expected: list[tuple[str, str]]) -> None:
    """Waves that read what another has stored; each its own."""
    store, load = "global_store_dword v1, v0, s[6:7]", f"global_load_dword v3, {address}, s[6:7]"
    wait, use = "s_waitcnt vmcnt(0)", "v_mov_b32_e32 v5, v3"
    assert listed(store, wait, "s_barrier", load, wait, use) == expected


@pytest.mark.parametrize("at", range(4))
def test_dropping_what_is_listed_changes_nothing(at: int) -> None:
    lines = [WRITE, DONE, "s_barrier", "s_waitcnt vmcnt(0)", READ, DONE, "v_mov_b32_e32 v5, v3", "s_barrier", DONE]
    body = "\n".join((PROLOGUE, *lines))
    report = run(body, options={"redundant": True})
    assert report.redundant is not None and len(report.redundant) == 3
    if at < 3:
        rows = body.split("\n")
        # the text starts three lines before the body, which loses its empty first line
        dropped = report.redundant[at].inst
        place = [n for n, row in enumerate(rows) if row == dropped.text]
        assert any(kinds("\n".join((*rows[:n], *rows[n + 1 :]))) == [] for n in place)


def test_text_and_json() -> None:
    report = run(PROLOGUE + "s_barrier", options={"redundant": True})
    assert "redundant: line" in str(report) and "s_barrier" in str(report)
    (item,) = report.to_json()["redundant"]
    assert item["text"] == "s_barrier" and item["counter"] == ""
    assert "redundant" not in run(PROLOGUE + "s_barrier").to_json()


def _without(text: str, item: Redundancy) -> str:
    """The text with one listed wait or barrier dropped."""
    lines = text.split("\n")
    at = item.inst.line - 1
    line = lines[at]
    if "loadcnt_dscnt" in line or "storecnt_dscnt" in line:
        kept = "dscnt" if item.counter != "dscnt" else line.split("s_wait_")[1].split("_")[0]
        count = int(line.split()[1], 0)
        lines[at] = f"\ts_wait_{kept} {count & 63 if kept == 'dscnt' else count >> 8:#x}"
    else:
        left = re.sub(rf"{item.counter}\(\d+\)", "", line) if item.counter and "s_waitcnt" in line else ""
        lines[at] = left if "(" in left else ""
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["gfx950/tasks-2-3", "gfx1250/tasks-2-3", "gfx950/dot-long-fp16", "gfx942/gluon_staged-4"]
)
def test_each_of_a_kernel_can_go_alone(name: str) -> None:
    pytest.importorskip("triton")
    from sanitizer_corpus import CASES

    case = CASES[name].build()
    report = check(case.text, case.args, case.grid, lds_bytes=case.lds_bytes, redundant=True)
    assert report.redundant is not None
    for item in report.redundant:
        again = check(_without(case.text, item), case.args, case.grid, lds_bytes=case.lds_bytes)
        assert again.ok, f"{item.inst.line}: {item.inst.text} {item.counter}: {again}"
