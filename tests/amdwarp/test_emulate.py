"""What ``amdwarp.emulate`` does with what is launched inside of it: runs it, watches it, or only compiles it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import amdwarp
from amdwarp import EmulatorError, UsageError
from amdwarp.runtime import Launch, run

pytest.importorskip("triton")

from triton.experimental.gluon import language as gl

BLOCK = 64


@amdwarp.jit
def add_one(x, out, n, BLOCK: gl.constexpr):  # type: ignore[no-untyped-def]
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, gl.BlockedLayout([1], [64], [1], [0]))
    gl.store(out + at, gl.load(x + at, mask=at < n) + 1.0, mask=at < n)


@amdwarp.jit
def all_to_one_place(x, out, BLOCK: gl.constexpr):  # type: ignore[no-untyped-def]
    """Every workgroup stores another value to the same elements."""
    at = gl.arange(0, BLOCK, gl.BlockedLayout([1], [64], [1], [0]))
    gl.store(out + at, gl.load(x + at) + gl.program_id(0))


def launched(kernel: Any, **arguments: Any) -> tuple[np.ndarray[Any, Any], Launch]:
    x, out = np.arange(2 * BLOCK, dtype=np.float32), np.full(2 * BLOCK, -1.0, np.float32)
    return out, Launch(kernel, (2,), {"x": x, "out": out} | arguments, {"BLOCK": BLOCK}, {"num_warps": 1})


def test_a_launch_is_run_and_recorded() -> None:
    out, launch = launched(add_one, n=100)
    with amdwarp.emulate("gfx950") as emulation:
        run(launch)
    assert (out[:100] == np.arange(1, 101)).all() and (out[100:] == -1).all()
    ((recorded, compiled, result),) = emulation.records
    assert recorded is launch and "amdgcn" in compiled.asm and result is not None


def test_workgroups_run_a_part_of_the_grid() -> None:
    out, launch = launched(add_one, n=128)
    with amdwarp.emulate("gfx950", workgroups=[1]):
        run(launch)
    assert (out[:BLOCK] == -1).all() and (out[BLOCK:] == np.arange(BLOCK + 1, 2 * BLOCK + 1)).all()


def test_without_execute_outputs_keep_what_they_hold() -> None:
    out, launch = launched(add_one, n=128)
    with amdwarp.emulate("gfx942", execute=False) as emulation:
        run(launch)
    assert (out == -1).all()
    ((_, compiled, result),) = emulation.records
    assert "gfx942" in compiled.asm["amdgcn"] and result is None


def test_the_sanitizer_runs_the_launch_and_leaves_its_report() -> None:
    out, launch = launched(add_one, n=128)
    with amdwarp.emulate("gfx950", sanitize=True) as emulation:
        run(launch)
    assert (out == np.arange(1, 129)).all()
    assert emulation.records[0][2].ok and not emulation.records[0][2].findings


def test_what_the_sanitizer_finds_is_an_error() -> None:
    _, launch = launched(all_to_one_place)
    with amdwarp.emulate("gfx950", sanitize=True) as emulation:
        with pytest.raises(EmulatorError, match=r"(?s)the sanitizer reports of all_to_one_place:\n.*race") as caught:
            run(launch)
        assert "test_emulate.py" in str(caught.value) and not emulation.records
    with amdwarp.emulate("gfx950"):
        run(launch)  # without it nobody looks


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sanitize": "no"}, "emulate: sanitize = 'no' is no bool; pass True or False"),
        ({"execute": 0}, "emulate: execute = 0 is no bool"),
        ({"sanitize": True, "execute": False}, "the sanitizer watches a run; leave one of them out"),
    ],
)
def test_flags_that_ask_for_nothing_are_refused(options: Any, text: str) -> None:
    with pytest.raises(UsageError) as caught, amdwarp.emulate("gfx950", **options):
        pass
    assert text in str(caught.value)
