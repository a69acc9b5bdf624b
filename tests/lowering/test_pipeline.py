"""Order, dumps, timing and error annotation of pass runs."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from amdwarp.lowering.ir import Module
from amdwarp.lowering.pipeline import run_passes
from amdwarp.lowering.text import parse
from amdwarp.lowering.verify import VerifyError
from samples import LOOP

from amdwarp.errors import LoweringError


@dataclass(frozen=True)
class Edit:
    name: str
    function: Callable[[Module], object]

    def run(self, module: Module) -> None:
        self.function(module)


def tag(text: str) -> Edit:
    return Edit(f"tag-{text}", lambda module: module.attributes.update({text: "unit"}))


def refuse(_: Module) -> None:
    raise LoweringError("the region stores", remedy="move the store out", where="kernel.py:4")


def test_runs_in_order_and_times(tmp_path: Path) -> None:
    module = parse(LOOP)
    timings = run_passes(module, [tag("a"), tag("b")], dump_to=tmp_path / "dumps")
    assert [timing.name for timing in timings] == ["tag-a", "tag-b"]
    assert all(timing.seconds >= 0 and timing.verify_seconds >= 0 for timing in timings)
    files = sorted((tmp_path / "dumps").iterdir())
    assert [file.name for file in files] == ["01-tag-a.mlir", "02-tag-b.mlir"]
    assert "b" not in parse(files[0].read_text()).attributes
    assert "b" in parse(files[1].read_text()).attributes


def test_dumps_only_what_is_asked_for() -> None:
    stream = io.StringIO()
    run_passes(parse(LOOP), [tag("a"), tag("b")], dump_to=stream, dump_after=["tag-b"])
    assert stream.getvalue().startswith("// after tag-b\n#blocked")
    assert "after tag-a" not in stream.getvalue()


def test_a_refusal_names_its_pass() -> None:
    with pytest.raises(LoweringError) as caught:
        run_passes(parse(LOOP), [Edit("weave", refuse)])
    assert caught.value.pass_name == "weave"
    assert str(caught.value) == "(kernel.py:4): the region stores; move the store out [weave]"


def test_a_broken_module_names_its_pass() -> None:
    damage = Edit("damage", lambda module: module.ops("arith.constant")[0].detach())
    with pytest.raises(VerifyError) as caught:
        run_passes(parse(LOOP), [tag("a"), damage])
    assert caught.value.pass_name == "damage"
    run_passes(parse(LOOP), [damage], verify=False)


def test_any_other_exception_becomes_a_lowering_error() -> None:
    with pytest.raises(LoweringError, match=r"internal error: KeyError: 'x'.*\[crash\]") as caught:
        run_passes(parse(LOOP), [Edit("crash", lambda _: {}["x"])])
    assert isinstance(caught.value.__cause__, KeyError)
