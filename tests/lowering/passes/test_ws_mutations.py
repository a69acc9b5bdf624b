"""Each wait and barrier of a materialised schedule is needed: without it the sanitizer finds a race."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from amdwarp.lowering import ws_sync
from amdwarp.lowering.analysis.ws_program import Act

from amdwarp.sanitizer import check

pytestmark = [pytest.mark.usefixtures("needs_triton"), pytest.mark.newest]


def without(act: Act) -> Callable[[Any, Any, Any, Any], None]:
    """``point`` that leaves one kind of point out."""
    whole = ws_sync.BetweenTasks.point

    def point(self: Any, writer: Any, build: Any, site: Any) -> None:
        if site.step.act is not act:
            whole(self, writer, build, site)

    return point


def too_few(build: Any, copies: Any, outstanding: int) -> None:
    """A wait that lets one group of copies more be outstanding."""
    if copies is not ws_sync.Copies.NONE:
        build.insert(ws_sync.spelling.async_wait(outstanding + 1))


def findings(monkeypatch: pytest.MonkeyPatch, folder: Path, how: str) -> list[str]:
    from ws_kernels import compiled, operands, schedule

    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))  # a mutant must not be served to anybody
    kernel = compiled.__wrapped__(schedule(2, 3, 2), how, "gfx950")
    report = check(kernel, operands(320), (1,), seeds=2, max_instructions=20_000)
    return [finding.kind for finding in report.findings]


def test_nothing_is_found_without_a_mutation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert findings(monkeypatch, tmp_path, "tasks") == []
    assert findings(monkeypatch, tmp_path, "pipeline") == []


@pytest.mark.parametrize("act", [Act.ACQUIRE, Act.COMMIT, Act.WAIT, Act.RELEASE])
def test_a_point_that_is_missing_is_found(act: Act, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ws_sync.BetweenTasks, "point", without(act))
    found = findings(monkeypatch, tmp_path, "tasks")
    if act in (Act.COMMIT, Act.RELEASE):
        assert found == ["deadlock"]
    else:
        assert any(kind.startswith("lds") for kind in found), found


@pytest.mark.parametrize("how", ["tasks", "pipeline"])
def test_a_wait_for_too_few_copies_is_found(how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ws_sync, "wait_for_copies", too_few)
    found = findings(monkeypatch, tmp_path, how)
    assert any(kind.startswith("lds") for kind in found), found


def test_a_phase_that_never_turns_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from amdwarp.lowering.ws_threads import Writer

    monkeypatch.setattr(
        Writer, "phase", lambda self, step: self.state["slot", step.role, step.pipeline, self._side(step)]
    )
    assert findings(monkeypatch, tmp_path, "tasks")
