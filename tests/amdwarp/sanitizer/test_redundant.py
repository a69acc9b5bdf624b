"""Waits and barriers that no dependence needs."""

from __future__ import annotations

from typing import Any

import pytest
from handmade import PROLOGUE, kinds, run

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
