"""The comparison behind ``amdwarp verify attention``: what it must notice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amdwarp.kernels.attention import PingPongSchedule, TasksSchedule, reference
from amdwarp.kernels.attention.configs import schedule_name
from amdwarp.kernels.attention.forms import Form
from amdwarp.kernels.attention.options import AttentionOptions

from amdwarp import EmulatorError
from amdwarp.runtime import Launch
from amdwarp.verify import POISON
from amdwarp.verify_attention import _inputs, compare, tiles, verify_attention

ROWS, KEYS, DIM, STEP = 80, 50, 32, 64
REGIONS = [(slice(head, head + 1), slice(row, row + STEP)) for head in range(64) for row in (0, STEP)]


def computed(causal: bool = True, drop: int = 0) -> tuple[Any, ...]:
    """q, k, v, and an output that is right, or lacks some keys."""
    q, k, v = _inputs((ROWS, KEYS, DIM), "fp16")
    out, _ = reference.attention(q, k[:, :, drop:], v[:, :, drop:], AttentionOptions(causal=causal))
    return q, k, v, out.astype(np.float16)


@pytest.mark.parametrize("causal", [False, True])
def test_right_tiles_pass(causal: bool) -> None:
    error, problem = compare(*computed(causal), causal, REGIONS, 128)
    assert problem == "" and error is not None and 0 < error < 1e-3


def test_a_mask_that_was_forgotten() -> None:
    assert "times its bound away" in compare(*computed(False), True, REGIONS, 128)[1]


def test_a_key_that_was_dropped() -> None:
    assert "times its bound away" in compare(*computed(drop=1), True, REGIONS, 128)[1]


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 2.0])
def test_a_wrong_element(wrong: float) -> None:
    q, k, v, out = computed()
    out[0, 7, 70, 3] = wrong
    assert "times its bound away" in compare(q, k, v, out, True, REGIONS, 128)[1]


def test_tiles_that_nobody_wrote_or_only_in_part() -> None:
    q, k, v, out = computed()
    bits = out.view(np.uint16)
    bits[0, 3, STEP:] = POISON
    assert compare(q, k, v, out, True, REGIONS, 127)[1] == ""
    assert compare(q, k, v, out, True, REGIONS, 128)[1] == "128 workgroups wrote 127 tiles"
    bits[0, 5, 2, :4] = POISON
    assert compare(q, k, v, out, True, REGIONS, 127)[1] == ("4 elements of the tile at head 5, row 0 were not written")


def launch(**constants: Any) -> Launch:
    return Launch(None, (1,), {}, constants, {})


def test_what_a_workgroup_writes() -> None:
    assert list(tiles(launch(S=PingPongSchedule()), (1, 2, 300, 64))) == [
        (slice(head, head + 1), slice(row, row + 256)) for head in range(2) for row in (0, 256)
    ]
    few = launch(F=Form(64, 64, 64, 64, ratio=8, fold=8))
    assert list(tiles(few, (1, 16, 3, 64))) == [(slice(head, head + 8), slice(0, 8)) for head in (0, 8)]


def test_names_of_schedules() -> None:
    assert [schedule_name(one) for one in (PingPongSchedule(ring=3), TasksSchedule(), None)] == [
        "ping_pong",
        "tasks",
        "plain",
    ]


def test_a_kernel_that_fails_is_a_failed_case(monkeypatch: pytest.MonkeyPatch) -> None:
    from amdwarp.kernels import attention

    def fail(*args: object, **kwargs: object) -> None:
        raise EmulatorError("register v5 is read before its wait", where="line 12")

    monkeypatch.setattr(attention, "attention", fail)
    case = verify_attention((64, 64, 64))
    assert not case.ok and case.rel_error is None and "register v5 is read before its wait" in case.problem


def test_few_rows_of_all_heads_of_a_key_head() -> None:
    case = verify_attention((3, 40, 32), workgroups=2)
    assert case.ok and case.workgroups == 2 and case.schedule == "plain", case.problem
