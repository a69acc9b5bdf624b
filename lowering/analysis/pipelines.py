"""The wave pipelines of a function: stages found from their anchors, and the rules a stage list must keep.

An *anchor* is a scheduling wall that carries a mark's attributes; ``passes/mark_stages.py`` makes them. The ops between
a stage's opening and closing anchor are the stage. Anchors stand in one block: the body of an ``scf.for`` (a loop
pipeline) or any other block (a flat pipeline, one run from its first stage to its last).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from amdwarp.errors import LoweringError
from amdwarp.stage import BEGIN, END, PHASE_GAP, PRIORITY

from ..dialect import Kind, is_pure, kind_of
from ..ir import Block, Op

PASS = "inter_wave"
LOOPS = ("scf.for", "scf.while")
PHASE = "amdwarp.phase"
LOW_WAVES, HIGH_WAVES = '"low"', '"high"'
"""Attribute of the conditional barriers that ``inter_wave`` makes, and the group that executes one."""


@dataclass
class Stage:
    """One stage: the ops strictly between its anchors.

    Attributes:
        index: position in the pipeline.
        label: the author's name for it, or "".
        priority: ``s_setprio`` value asked for, or None.
        begin, end: its anchors, in one block.
    """

    index: int
    label: str
    priority: int | None
    begin: Op
    end: Op

    @property
    def where(self) -> str | None:
        return self.begin.where

    @property
    def construct(self) -> str:
        return f"warp_pipeline_stage {self.label!r}" if self.label else f"warp_pipeline_stage #{self.index}"

    @property
    def name(self) -> str:
        return f"stage {self.label!r}" if self.label else f"stage #{self.index}"

    @property
    def ops(self) -> list[Op]:
        block = self.begin.block
        return block.ops[block.index(self.begin) + 1 : block.index(self.end)]

    def error(self, problem: str, remedy: str = "", where: str | None = None) -> LoweringError:
        return LoweringError(
            problem, remedy=remedy, construct=self.construct, where=where or self.where, pass_name=PASS
        )


@dataclass
class Pipeline:
    """A run of stages that two wave groups execute ``gap`` stages apart.

    Attributes:
        block: the block the stages stand in.
        loop: the ``scf.for`` whose body that is, or None for a flat pipeline.
        stages: at least two.
        gap: 1 or 2.
    """

    block: Block
    loop: Op | None
    stages: list[Stage]
    gap: int = 1
    edges: list[Op] = field(default_factory=list)

    @property
    def uses_priority(self) -> bool:
        return any(stage.priority is not None for stage in self.stages)

    def between(self, stage: Stage) -> list[Op]:
        """Ops on the edge that precedes ``stage``; for stage 0 of a loop, those before it and after the last one."""
        ops = self.block.ops
        if stage.index:
            return ops[ops.index(self.stages[stage.index - 1].end) + 1 : ops.index(stage.begin)]
        if self.loop is None:
            return []
        return ops[: ops.index(stage.begin)] + ops[ops.index(self.stages[-1].end) + 1 : -1]


def anchor_of(op: Op) -> str | None:
    """``"begin"`` or ``"end"`` for an anchor, else None."""
    if BEGIN in op.attributes:
        return "begin"
    return "end" if END in op.attributes else None


def anchor_key(op: Op) -> str:
    return BEGIN if BEGIN in op.attributes else END


def find_pipelines(function: Op) -> list[Pipeline]:
    """Every pipeline of a function, in text order.

    Raises:
        LoweringError: a stage list that breaks a rule; the message names the stage, its line and the remedy.
    """
    blocks = dict.fromkeys(op.block for op in function.walk() if anchor_of(op))
    return [pipeline for block in blocks for pipeline in _pipelines_in(block)]


def _pipelines_in(block: Block) -> list[Pipeline]:
    stages = _stages_in(block)
    parent = block.parent_op
    loop = parent if parent is not None and parent.name == "scf.for" else None
    if loop is None:
        found = [Pipeline(block, None, run) for run in _flat_runs(block, stages)]
    else:
        found = [Pipeline(block, loop, stages)]
    for pipeline in found:
        for index, stage in enumerate(pipeline.stages):
            stage.index = index
        _check(pipeline)
    return found


def _stages_in(block: Block) -> list[Stage]:
    stages: list[Stage] = []
    opened: Stage | None = None
    for op in block.ops:
        match anchor_of(op):
            case "begin":
                stage = Stage(len(stages), _string(op, BEGIN), _integer(op, PRIORITY), op, op)
                if opened is not None:
                    raise _nested(stage, opened)
                opened = stage
                stages.append(stage)
            case "end":
                if opened is None:
                    raise Stage(0, _string(op, END), None, op, op).error(*_TORN)
                opened.end = op
                opened = None
    if opened is not None:
        raise opened.error(*_TORN)
    return stages


_TORN = "control flow leaves or enters the stage halfway", "let the whole stage stand in one branch"


def _nested(inner: Stage, outer: Stage) -> LoweringError:
    return inner.error(f"a stage opens inside the {outer.name} ({outer.where})", "close that one first")


def _flat_runs(block: Block, stages: Sequence[Stage]) -> list[list[Stage]]:
    """Straight-line stages, split where something other than arithmetic and waits stands between two of them."""
    runs: list[list[Stage]] = []
    splitter: Op | None = None
    for before, stage in zip([None, *stages], stages, strict=False):
        between = block.ops[block.index(before.end) + 1 : block.index(stage.begin)] if before is not None else []
        splitter = next((op for op in between if not _may_stand_between(op)), None)
        if before is None or splitter is not None:
            _check_not_alone(runs[-1:], splitter)
            runs.append([])
        runs[-1].append(stage)
    return runs


def _check_not_alone(runs: list[list[Stage]], splitter: Op | None) -> None:
    for run in runs:
        if len(run) == 1 and splitter is not None:
            raise run[0].error(
                f"a wave pipeline needs at least two stages, and {splitter.name} ({splitter.where}) parts this one "
                "from the next",
                "move it into a stage",
            )


def _may_stand_between(op: Op) -> bool:
    return kind_of(op) in (Kind.WAIT, Kind.BARRIER) or (is_pure(op) and kind_of(op) is not Kind.MFMA)


def _check(pipeline: Pipeline) -> None:
    stages = pipeline.stages
    if len(stages) < 2:
        raise stages[0].error(
            "a wave pipeline needs at least two stages, and this one stands alone",
            "mark the rest of the loop body as a stage of its own, and move what stands between stages into one",
        )
    for stage in stages:
        gap = _integer(stage.begin, PHASE_GAP) or 1
        if gap != 1 and (stage.index or pipeline.loop is None):
            raise stage.error("phase_gap may stand only on the first stage of a loop", "move it there or drop it")
        if stage.index == 0:
            pipeline.gap = gap
        _check_body(stage)
        for op in pipeline.between(stage):
            if not _may_stand_between(op):
                raise stage.error(
                    f"{op.name} ({op.where}) stands between stages; only waits and arithmetic may",
                    "move it into a stage",
                )
    if pipeline.loop is not None:
        _check_loop_top(pipeline)


def _check_loop_top(pipeline: Pipeline) -> None:
    first = pipeline.stages[0]
    for op in pipeline.block.ops[: pipeline.block.index(first.begin)]:
        if kind_of(op) in (Kind.WAIT, Kind.BARRIER):
            raise first.error(
                f"{op.name} ({op.where}) stands at the top of the loop, before the first stage",
                "put it after the last stage, and once before the loop",
            )


def _check_body(stage: Stage) -> None:
    trailing = trailing_waits(stage)
    for op in stage.ops:
        if op in trailing:
            continue
        for inner in op.walk():
            what = kind_of(inner)
            if anchor_of(inner):
                raise _nested(Stage(0, _string(inner, anchor_key(inner)), None, inner, inner), stage)
            if inner.name == "tt.call":
                raise stage.error(
                    f"a call of a function that is not inlined ({inner.where}) stands inside the stage",
                    "drop noinline=True",
                )
            if inner.name in LOOPS:
                raise stage.error(f"a loop ({inner.where}) stands inside the stage", "unroll it with static_range")
            if what is Kind.BARRIER:
                raise stage.error(f"a barrier ({inner.where}) stands inside the stage", "move it between two stages")
            if what is Kind.WAIT:
                raise stage.error(
                    f"{inner.name} ({inner.where}) stands inside the stage, ahead of other memory operations",
                    "move it to the end of the stage or between two stages",
                )


def trailing_waits(stage: Stage) -> list[Op]:
    """Waits that end a stage: nothing but arithmetic follows them. They belong to the edge after it."""
    found: list[Op] = []
    for op in reversed(stage.ops):
        if kind_of(op) is Kind.WAIT:
            found.append(op)
        elif not is_pure(op) or kind_of(op) is Kind.MFMA:
            break
    return found[::-1]


def text_of(attribute: str) -> str:
    """What an MLIR string attribute says: bytes that it does not print as they are stand as two hexadecimal digits."""
    parts = re.split(r"\\(\\|[0-9A-Fa-f]{2})", attribute.removeprefix('"').removesuffix('"'))
    plain = [part.encode() for part in parts]
    plain[1::2] = [b"\\" if part == "\\" else bytes.fromhex(part) for part in parts[1::2]]
    return b"".join(plain).decode("utf-8", "replace")


def attribute_of(text: str) -> str:
    """The MLIR string attribute that says ``text``."""
    shown = (chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in text.encode())
    return '"' + "".join(shown) + '"'


def _string(op: Op, name: str) -> str:
    return text_of(op.attributes[name])


def _integer(op: Op, name: str) -> int | None:
    text = op.attributes.get(name)
    return None if text is None else int(text.split(":")[0])
