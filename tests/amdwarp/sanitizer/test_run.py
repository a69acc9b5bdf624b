"""`check` itself: what it takes, what it gives back, how findings are gathered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from handmade import PROLOGUE, run, text_of

from amdwarp.asm import parse
from amdwarp.errors import EmulatorError, UsageError
from amdwarp.sanitizer import KINDS, check

COPY = PROLOGUE + "global_load_dword v3, v1, s[4:5]\ns_waitcnt vmcnt(0)\nglobal_store_dword v1, v3, s[6:7]"
RACE = PROLOGUE + "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\nds_read_b32 v3, v2\ns_waitcnt lgkmcnt(0)"


def buffers() -> list[Any]:
    return [np.arange(4096, dtype=np.uint32), np.zeros(4096, np.uint32)]


def test_text_program_and_kernel() -> None:
    text = text_of(COPY)
    for compiled in (text, parse(text), SimpleNamespace(asm={"amdgcn": text}, metadata=SimpleNamespace(shared=64))):
        args = buffers()
        report = check(compiled, args, (1,))
        assert report.ok and report.workgroups == 1 and not report.deadlock and report.redundant is None
        np.testing.assert_array_equal(args[1][:128], np.arange(128))


def test_lds_of_the_kernel_is_its_limit() -> None:
    text = text_of(PROLOGUE + "ds_write_b32 v1, v0 offset:64", lds=0)
    kernel = SimpleNamespace(asm={"amdgcn": text}, metadata=SimpleNamespace(shared=512))
    assert check(text, buffers(), (1,)).ok
    assert [finding.kind for finding in check(kernel, buffers(), (1,)).findings] == ["lds-out-of-bounds"]


def test_tensors() -> None:
    torch = pytest.importorskip("torch")
    source, out = torch.arange(4096, dtype=torch.int32), torch.zeros(4096, dtype=torch.int32)
    assert check(text_of(COPY), [source, out], (1,)).ok
    assert torch.equal(out[:128], source[:128]) and not out[128:].any()


def test_arrays_that_are_no_block() -> None:
    wide = np.zeros((64, 64), np.uint32)
    assert check(text_of(COPY), [np.arange(4096, dtype=np.uint32), wide[:, :32]], (1,)).ok
    # a row of 32 columns lies in memory as 64
    np.testing.assert_array_equal(wide.reshape(-1)[:128], np.arange(128))


@pytest.mark.parametrize(
    ("compiled", "error", "words"),
    [
        (3, UsageError, "a int is no compiled kernel"),
        (SimpleNamespace(asm={"ptx": ""}), UsageError, "no AMDGCN text"),
        ("", EmulatorError, "empty"),
        (text_of(COPY).replace("lgkmcnt(0)", "vscnt(0)"), EmulatorError, "vscnt"),
        (text_of(COPY, waves=17), EmulatorError, "1088 threads in a workgroup are not possible"),
    ],
)
def test_what_cannot_be_used(compiled: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        check(compiled, buffers(), (1,))


def test_wrong_calls() -> None:
    with pytest.raises(UsageError, match="seeds = 0"):
        check(text_of(COPY), buffers(), (1,), seeds=0)
    with pytest.raises(UsageError, match="takes 2 arguments"):
        check(text_of(COPY), [*buffers(), 3], (1,))
    with pytest.raises(UsageError, match="grid"):
        check(text_of(COPY), buffers(), (0,))


def test_results_that_depend_on_the_interleaving() -> None:
    """Two waves store to one place in global memory."""
    body = PROLOGUE + "v_and_b32_e32 v3, 0xff, v1\nglobal_store_dword v3, v0, s[6:7]"
    report = run(body, options={"seeds": 12})
    assert [finding.kind for finding in report.findings] == ["nondeterminism"]
    assert "argument 1 differs from byte 0 on" in report.findings[0].problem
    assert run(body).ok


def test_seeds_leave_the_first_results() -> None:
    args = buffers()
    report = check(text_of(COPY), args, (1,), seeds=3)
    assert report.ok and report.workgroups == 3
    np.testing.assert_array_equal(args[1][:128], np.arange(128))


def test_one_pair_is_one_finding() -> None:
    report = run(RACE, grid=5)
    (finding,) = report.findings
    assert finding.count >= 5 and finding.workgroup == (0, 0, 0) and report.workgroups == 5
    assert finding.first is not None and finding.first.waves <= {0, 1}


def test_workgroups_that_run() -> None:
    seen = []
    report = run(COPY, grid=40, options={"workgroups": 4, "progress": lambda done, total: seen.append((done, total))})
    assert report.workgroups == 4 and seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert run(RACE, grid=40, options={"workgroups": [7]}).findings[0].workgroup == (7, 0, 0)


def test_every_kind_has_a_severity_and_a_meaning() -> None:
    assert all(severity in ("error", "warning") and meaning for severity, meaning in KINDS.values())


def test_findings_are_in_the_order_of_the_text() -> None:
    early = "s_load_dword s20, s[4:5], 0x0\ns_mov_b32 s21, s20\ns_waitcnt lgkmcnt(0)"
    report = run(RACE + "\n" + early)
    assert [finding.kind for finding in report.findings] == ["register-early-read", "lds-unpublished-read"]
    text = str(report)
    assert text.index("register-early-read") < text.index("lds-unpublished-read") < text.index("2 errors, 0 warnings")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"grid": 3}, "grid 3 must have one to three positive sizes"),
        ({"grid": (2.0,)}, "positive sizes"),
        ({"workgroups": "all"}, "'all' must be at least 1, or a list"),
        ({"workgroups": ["first"]}, "'first' is neither a number nor"),
        ({"seeds": 1.5}, "seeds = 1.5"),
        ({"max_instructions": 0}, "max_instructions = 0"),
        ({"uninitialised": 1}, "uninitialised = 1 is no list"),
        ({"uninitialised": (9,)}, "uninitialised has 9, and there are 2 arguments"),
        ({"args": None}, "args is a NoneType"),
        ({"args": [np.array([1, None]), np.zeros(4)]}, "argument 0 is an array of Python objects"),
        ({"args": [1.5, np.zeros(4)]}, "argument 0 is a pointer, got float"),
        ({"lds_bytes": 1 << 30}, "a workgroup has between 0 and"),
    ],
    ids=str,
)
def test_options_that_cannot_be_used(change: dict[str, Any], words: str) -> None:
    given = {"args": [np.zeros(4096, np.uint32) for _ in range(2)], "grid": (1,)} | change
    with pytest.raises(UsageError) as caught:
        check(text_of(COPY), **given)
    assert words in str(caught.value)
