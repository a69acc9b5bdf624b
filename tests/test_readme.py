"""The example of the README that can be run, runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.newest
def test_the_example_runs() -> None:
    pytest.importorskip("triton")
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    (code,) = (block for block in blocks if block.startswith("import"))
    names: dict[str, object] = {}
    exec(compile(code, str(README), "exec"), names)
    expected = names["x"].astype(float) @ names["w"].astype(float).T  # type: ignore[attr-defined]
    assert abs(names["c"] - expected).max() < 0.02  # type: ignore[operator]
