"""Where tests run: in the emulator everywhere, and on the GPU too where one of the supported ones is found."""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import settings

# How long an example takes is a matter of what else the machine does.
settings.register_profile("amdwarp", deadline=None)
settings.load_profile("amdwarp")

# Triton 3.9 warns when nobody says whether multiply and add may fuse; stock kernels in the tests do not say.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")


@functools.cache
def no_gpu() -> str:
    """Why tests marked ``gpu`` cannot run here; "" if they can."""
    from amdwarp.target import TARGETS

    if importlib.util.find_spec("torch") is None:
        return "needs an AMD GPU, and torch is not installed"
    import torch

    if torch.version.hip is None:
        return "needs an AMD GPU, and this torch is not a ROCm build"
    if not torch.cuda.is_available():
        return "needs an AMD GPU, and torch finds none"
    arch = torch.cuda.get_device_properties(0).gcnArchName.split(":")[0]
    return "" if arch in TARGETS else f"needs one of {', '.join(TARGETS)}, and the GPU here is {arch}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden summaries anew")
    parser.addoption("--sample", type=int, default=1, metavar="N", help="of the tests marked slow, take one in N")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _sample(config, items)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and (reason := no_gpu()):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Collect garbage less often: looking again and again at all that is imported took a twentieth of the suite."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture
def garbage_as_usual() -> Iterator[None]:
    """Garbage is collected as often as Python does by itself, for a test that measures memory."""
    rarely = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*rarely)


def _sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave one in N of the slow tests, by a checksum of their names: the same ones in every run and every process."""
    every = config.getoption("--sample")
    if every < 1:
        raise pytest.UsageError(f"--sample {every}: one in how many? At least 1")
    left_out = [item for item in items if item.get_closest_marker("slow") and zlib.crc32(item.nodeid.encode()) % every]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        chosen = set(left_out)
        items[:] = [item for item in items if item not in chosen]


@pytest.fixture(params=["emulator", pytest.param("gpu", marks=pytest.mark.gpu)])
def place(request: pytest.FixtureRequest) -> str:
    """``emulator`` and, where there is one, ``gpu``: a test that takes it runs in both."""
    return str(request.param)
