"""The examples of docs/gemm.md, in order, in one namespace."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

pytest.importorskip("triton")

PAGE = Path(__file__).parents[3] / "docs" / "gemm.md"


@pytest.mark.newest
def test_every_example_runs(monkeypatch):
    monkeypatch.delenv("AMDWARP_CACHE_DIR", raising=False)
    monkeypatch.setenv("AMDWARP_CACHE_DIR", "")  # the page sets it; monkeypatch puts back what was there
    examples = re.findall(r"^```python( torch)?\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert len(examples) >= 12
    space: dict[str, object] = {}
    for needs_torch, code in examples:
        if needs_torch and importlib.util.find_spec("torch") is None:
            continue
        exec(compile(code, str(PAGE), "exec"), space)


def test_every_public_function_is_shown():
    from amdwarp.kernels import gemm

    text = PAGE.read_text()
    for name in gemm.__all__:
        if name.islower() and name not in ("choose", "plan", "product_extents", "schedule_name"):
            assert name in text, name
