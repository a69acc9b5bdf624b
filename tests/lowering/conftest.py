"""Makes the helper modules of this folder importable, and skips what needs Triton where there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from amdwarp.lowering import bridge

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))


@pytest.fixture
def needs_triton() -> None:
    info = bridge.find_triton()
    if info is None or info.version not in bridge.SUPPORTED:
        pytest.skip("needs a supported Triton")
