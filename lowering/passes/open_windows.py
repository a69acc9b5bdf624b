"""open_windows: from the author's intra-wave regions to windows.

A region without ``pair`` is a window of its own. Two adjacent regions with the same ``pair`` become one window: the
anchors between them go.

Before (anchors as ``mark_stages`` leaves them)::

    rocdl.sched.barrier {amdwarp.stage.begin = "load", scope = "intra_wave", pair = 0}
    ttg.local_load …
    rocdl.sched.barrier {amdwarp.stage.end = "load", …}
    rocdl.sched.barrier {amdwarp.stage.begin = "compute", scope = "intra_wave", pair = 0}
    tt.dot …
    rocdl.sched.barrier {amdwarp.stage.end = "compute", …}

After::

    rocdl.sched.barrier {amdwarp.window = 1, amdwarp.window.label = "load", amdwarp.window.paired}
    ttg.local_load … {amdwarp.window.region = 0}
    tt.dot …         {amdwarp.window.region = 1}
    rocdl.sched.barrier {amdwarp.window.end = 1}

Refuses when: a region opens inside another, or closes in another block than it opened in; an inter-wave stage opens
inside; a pair id marks one region only, or three in a row; something stands between the two regions of a pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from amdwarp.stage import BEGIN, END
from amdwarp.stage import ORDER as STAGE_ORDER

from .. import spelling
from ..analysis.windows import (
    ENDS,
    LABEL,
    PAIRED,
    REGION,
    WANTED,
    WINDOW,
    mark_label,
    mark_pair,
    marks,
    mentioned,
    quoted,
    window_error,
)
from ..dialect import is_pure
from ..ir import Block, Module, Op
from ..rewriter import insert_before

NAME = "open_windows"


@dataclass
class _Region:
    begin: Op
    end: Op

    @property
    def label(self) -> str:
        return mark_label(self.begin)

    @property
    def pair(self) -> int | None:
        return mark_pair(self.begin)

    @property
    def ops(self) -> list[Op]:
        block = self.begin.block
        return block.ops[block.index(self.begin) + 1 : block.index(self.end)]

    def error(self, problem: str, remedy: str) -> Exception:
        return window_error(self.begin, self.label, problem, remedy, NAME)


@dataclass(frozen=True)
class OpenWindows:
    name: str = NAME

    def run(self, module: Module) -> None:
        blocks = dict.fromkeys(op.block for op in module.walk() if marks(op))
        number = _first_free(module)
        for block in blocks:
            regions = list(_regions(block))
            while regions:
                first = regions.pop(0)
                second = None if first.pair is None else _partner(first, regions)
                _open(number, first, second)
                number += 1


def _first_free(module: Module) -> int:
    """The first sync id above those that scheduling groups of the author's have."""
    used = [int(op.properties["groupId"].partition(":")[0]) for op in module.ops("rocdl.sched.group.barrier")]
    return max([0, *used]) + 1


def _regions(block: Block) -> Iterator[_Region]:
    opened: Op | None = None
    for op in block.ops:
        mark = marks(op)
        if mark == "begin":
            if opened is not None:
                label = mark_label(op)
                raise window_error(
                    op, label, f"it opens inside {_name(opened)}", "close that one first: windows do not nest", NAME
                )
            opened = op
        elif mark == "end":
            if opened is None:
                raise window_error(
                    op, mark_label(op), "it closes where it did not open", "keep the whole region in one block", NAME
                )
            yield _Region(opened, op)
            opened = None
        elif opened is not None and (BEGIN in op.attributes or END in op.attributes):
            raise window_error(
                opened,
                mark_label(opened),
                f"an inter-wave stage opens inside it ({mentioned(op, opened)})",
                "put the window inside the stage instead",
                NAME,
            )
    if opened is not None:
        raise window_error(
            opened,
            mark_label(opened),
            "it does not close in the block it opens in",
            "keep control flow out of the region, and the whole region inside one branch or loop body",
            NAME,
        )


def _name(begin: Op) -> str:
    label = mark_label(begin)
    return f"the intra_wave region {label!r}" if label else f"an intra_wave region ({begin.where})"


def _partner(first: _Region, rest: list[_Region]) -> _Region:
    """The second region of a pair, taken out of ``rest``, the regions behind the first one."""
    same = [region for region in rest if region.pair == first.pair]
    if not rest or rest[0].pair != first.pair:
        if same:
            between = rest[0].begin
            raise first.error(
                f"the two regions of pair {first.pair} are not adjacent: {_name(between)} stands between them",
                "put the second right behind the first",
            )
        raise first.error(
            f"pair {first.pair} marks this region only", "mark a second region with the same pair right behind it"
        )
    second = rest.pop(0)
    _join(first, second)
    if len(_run(second, rest)) == 1:
        raise rest[0].error(
            f"pair {first.pair} marks three regions in a row",
            "a pair is two regions, one of memory and one of MFMA: put both into these two, or number the third anew",
        )
    return second


def _run(before: _Region, rest: list[_Region]) -> list[_Region]:
    """The regions of the same pair that follow ``before`` with nothing in between."""
    found: list[_Region] = []
    for region in rest:
        if region.pair != before.pair or _between(before, region):
            break
        found.append(region)
        before = region
    return found


def _between(first: _Region, second: _Region) -> list[Op]:
    block = first.begin.block
    return block.ops[block.index(first.end) + 1 : block.index(second.begin)]


def _join(first: _Region, second: _Region) -> None:
    """Check that nothing stands between two regions; what stock passes put there moves ahead of the first."""
    inside = {result for op in first.ops for result in op.results}
    for op in _between(first, second):
        if not is_pure(op) or any(value in inside for value in op.operands):
            raise second.error(
                f"the two regions of pair {first.pair} are not adjacent: an operation "
                f"({mentioned(op, second.begin)}) stands between them",
                "move it into one of the regions, or in front of the first",
            )
    for op in _between(first, second):
        op.move_before(first.begin)


def _open(number: int, first: _Region, second: _Region | None) -> None:
    if second is not None:
        for index, region in enumerate((first, second)):
            for op in region.ops:
                op.attributes[REGION] = f"{index} : i32"
    last = second or first
    begin = insert_before(first.begin, spelling.sched_barrier())
    begin.attributes[WINDOW] = f"{number} : i32"
    begin.attributes[LABEL] = quoted(first.label or last.label)
    if second is not None:
        begin.attributes[PAIRED] = "unit"
        if STAGE_ORDER in second.begin.attributes:
            raise second.error("the second region of a pair has an order", "give it to the first, for both")
    if STAGE_ORDER in first.begin.attributes:
        begin.attributes[WANTED] = first.begin.attributes[STAGE_ORDER]
    end = insert_before(last.end, spelling.sched_barrier(loc=begin.loc))
    end.attributes[ENDS] = f"{number} : i32"
    for op in dict.fromkeys((first.begin, first.end, last.begin, last.end)):
        op.erase()
