"""The example of docs/ws-schedule.md runs as it stands."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs" / "ws-schedule.md"


def test_the_example_runs(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.S)
    file = tmp_path / "ws_schedule_example.py"  # Triton reads a kernel's source from its file
    file.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("ws_schedule_example", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert set(module.results) == {"none", "pipeline", "tasks"}


def test_every_check_group_is_in_the_table() -> None:
    from amdwarp.schedule.checks import GROUPS

    text = DOCS.read_text(encoding="utf-8")
    for group in GROUPS:
        assert f"| {group.__name__.rpartition('.')[2]} |" in text
