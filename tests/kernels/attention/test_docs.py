"""The examples of docs/attention.md and docs/attention-backward.md run as they stand there, one after another."""

import re
from pathlib import Path

import pytest

import amdwarp

pytest.importorskip("triton")

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "attention-backward.md"


@pytest.mark.newest
def test_examples_of_the_forward():
    page = DOCS / "attention.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) == 10
    names = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)  # the page is ours


@pytest.mark.newest
def test_examples(caplog):
    pytest.importorskip("torch")
    from amdwarp.kernels.attention import sdpa

    sdpa._warn_once.cache_clear()
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 5
    names = {"amdwarp": amdwarp}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)  # the page is ours
