"""What an older Triton need not compile again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def fp16_for_bf16(cases: Iterable[Any], name: Callable[[Any], str]) -> list[Any]:
    """Parameters of a test: cases, with ids by ``name``; those of bf16 need only the newest Triton.

    With an older one fp16 stands for them: their programs differ in the names of MFMAs.
    """
    return [pytest.param(case, id=name(case), marks=[pytest.mark.newest] if "bf16" in case else []) for case in cases]
