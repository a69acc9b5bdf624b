"""Barriers that stock code generation puts inside a stage are found in the produced text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from amdwarp.lowering.analysis.membar import check_text
from amdwarp.lowering.passes.fence_edges import FenceEdges
from stage_forms import __file__ as FORMS
from stage_forms import branchy, form, forms, store_ring
from stage_kernels import line_of, ring_of

from amdwarp.errors import ProtocolError

WALL = "  tail call void @llvm.amdgcn.sched.barrier(i32 0)"
BARRIER = "  tail call void @llvm.amdgcn.s.barrier()"
FENCED = f'  fence syncscope("workgroup") release\n{BARRIER}\n  fence syncscope("workgroup") acquire'
WORK = "  %x = tail call <4 x float> @llvm.amdgcn.mfma.f32.16x16x32.f16(<8 x half> %a)"
STRAY = BARRIER + ", !dbg !7"
PLACES = """
!3 = !DIFile(filename: "kernel.py", directory: "/src")
!5 = distinct !DISubprogram(name: "k", scope: !3, file: !3, line: 1)
!7 = !DILocation(line: 42, column: 3, scope: !5)
"""


def split(name: str, then: str) -> str:
    """A conditional barrier ahead of the block ``then``."""
    return f"  br i1 %{name}, label %only.{then}, label %{then}\nonly.{then}:\n{BARRIER}\n  br label %{then}\n{then}:"


def edge(barrier: str = BARRIER) -> str:
    return f"{WALL}\n{barrier}\n{WALL}"


def function(*parts: str) -> str:
    return "define amdgpu_kernel void @k() {\n" + "\n".join(parts) + "\n  ret void\n}\n" + PLACES


def loop(
    first: str = WORK, second: str = WORK, before: str = "", after: str = "", tail: str = "", lead: str = ""
) -> str:
    return function(
        f"{BARRIER}\n{split('high', 'start')}\n{lead}  br i1 %some, label %body, label %end",
        f"body:\n{first}\n{edge()}\n{second}\n{edge(FENCED)}\n{tail}  br i1 %more, label %body, label %end",
        f"end:\n{before}{split('low', 'rest')}\n{after}",
    )


def flat(inside: str = "") -> str:
    return function(
        f"{split('high', 'start')}\n{WORK}\n{edge()}\n{WORK}",
        f"  br i1 %c, label %then, label %join\nthen:\n{inside}\n{WORK}\n  br label %join\njoin:\n{edge()}\n{WORK}",
        f"{split('low', 'rest')}\n{BARRIER}\n{WORK}\n{BARRIER}",
    )


@pytest.mark.parametrize(
    "text",
    [
        loop(),
        loop(after=f"{STRAY}\n{WORK}\n{STRAY}"),
        flat(),
        function(f"{WORK}\n{STRAY}\n{WORK}"),
        function(f"{WALL}\n{WORK}\n{WALL}\n{STRAY}"),
    ],
    ids=["a loop", "barriers behind a pipeline", "straight code", "no walls", "walls of the author's"],
)
def test_planned_barriers_pass(text: str) -> None:
    check_text(text)


@pytest.mark.parametrize(
    "text",
    [
        loop(first=f"{WORK}\n{STRAY}\n{WORK}"),
        loop(first=f"{STRAY}\n{WORK}"),
        loop(second=f"{WORK}\n{STRAY}"),
        loop(lead=f"{STRAY}\n{WORK}\n"),
        loop(before=f"{STRAY}\n"),
        loop(tail=f"{WORK}\n{STRAY}\n{WORK}\n"),
        loop().replace(FENCED, f"{FENCED}\n{STRAY}"),
        flat(STRAY),
        flat().replace(f"\n{WORK}\n  br i1 %low", f"\n{WORK}\n{STRAY}\n{WORK}\n  br i1 %low"),
    ],
    ids=[
        "first stage",
        "right behind an edge",
        "right before an edge",
        "before the loop",
        "behind the loop",
        "at the back edge",
        "two on an edge",
        "in a branch of straight code",
        "in the last straight stage",
    ],
)
def test_a_barrier_of_stock_insertion_is_found(text: str) -> None:
    with pytest.raises(ProtocolError, match="stock barrier insertion put a barrier inside a stage") as caught:
        check_text(text)
    assert caught.value.where == "/src/kernel.py:42"
    assert caught.value.pass_name == "membar"


def test_the_place_may_be_missing() -> None:
    with pytest.raises(ProtocolError) as caught:
        check_text(loop(first=f"{WORK}\n{BARRIER}\n{WORK}"))
    assert caught.value.where is None
    without_file = loop(first=f"{WORK}\n{STRAY}\n{WORK}").replace("!3 = !DIFile", "!4 = !DIFile")
    with pytest.raises(ProtocolError) as caught:
        check_text(without_file)
    assert caught.value.where == "line 42"


# ---- kernels without the fences they need


@pytest.fixture
def unfenced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(FenceEdges, "run", lambda self, module: None)
    form.cache_clear()
    yield
    form.cache_clear()


@pytest.mark.usefixtures("needs_triton", "unfenced")
@pytest.mark.parametrize(
    ("make", "marks"),
    [
        (lambda: form(store_ring), ("ring store", "ring read")),
        (lambda: form(branchy), ("read in a branch",)),
    ],
    ids=["a ring of stores", "straight code with a branch"],
)
def test_without_fences_stock_insertion_is_found_out(make: Any, marks: tuple[str, ...]) -> None:
    with pytest.raises(ProtocolError, match="stock barrier insertion put a barrier inside a stage") as caught:
        make()
    assert caught.value.where in [line_of(mark, FORMS) for mark in marks]


@pytest.mark.usefixtures("needs_triton")
def test_with_fences_it_has_no_reason() -> None:
    for kernel in (form(store_ring), form(branchy), form(forms, FORM="flat"), ring_of()):
        check_text(kernel.asm["llir"])
