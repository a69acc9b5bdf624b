"""The examples of docs/attention-backward.md run as they stand there, one after another."""

import re
from pathlib import Path

import pytest

import amdwarp

pytest.importorskip("triton")
pytest.importorskip("torch")

PAGE = Path(__file__).parents[3] / "docs" / "attention-backward.md"


def test_examples(caplog):
    from amdwarp.kernels.attention import sdpa

    sdpa._warn_once.cache_clear()
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 5
    names = {"amdwarp": amdwarp}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)  # the page is ours
