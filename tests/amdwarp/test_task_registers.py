"""Register budgets of tasks: donation, a fixed default, the pool; and what tasks take, read from the text."""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from triton.experimental.gluon import language as gl

import amdwarp
from amdwarp.task_registers import TaskRegistersWarning, TaskWaves, budgets, needs, share


def tasks(*asked: tuple[int, int | None]) -> list[TaskWaves]:
    return [
        TaskWaves("default" if not at else f"task {at - 1}", waves, 0, number, "k.py", 10 * at, 10 * at + 9)
        for at, (waves, number) in enumerate(asked)
    ]


def test_the_even_share() -> None:
    assert share(amdwarp.get_target("gfx942"), 4) == 512
    assert share(amdwarp.get_target("gfx942"), 5) == 256
    assert share(amdwarp.get_target("gfx950"), 12) == 168
    assert share(amdwarp.get_target("gfx1250"), 5) == 512


@pytest.mark.parametrize(
    "asked, given",
    [
        ([(4, None), (4, None)], None),
        ([(4, None), (4, 56)], [456, 56]),  # the default task is given what the others leave of 8 x 256
        ([(4, None), (4, 8)], [488, 24]),  # raised to the least
        ([(4, None), (1, 24), (1, 64)], [360, 24, 64]),  # 6 waves of 256
        ([(4, 200), (4, None)], [200, 312]),
        ([(4, 200), (2, None), (2, None)], [200, 312, 312]),  # evenly
        ([(4, 200), (4, 100 // 8 * 8)], [200, 96]),  # a surplus stays unused
        ([(4, 64), (1, None)], [64, 512]),  # no wave has more than 512
    ],
)
def test_budgets(asked: list[tuple[int, int | None]], given: list[int] | None) -> None:
    assert budgets(tasks(*asked), "gfx950") == given


@pytest.mark.parametrize(
    "asked, text",
    [
        ([(4, None), (4, 496)], "leave 16 a thread for the default task: 2 tasks of 8 waves share 2048 on gfx950"),
        ([(4, 496), (4, None)], "leave 16 a thread for the other tasks"),
        ([(4, 256), (4, 264)], "the registers asked for are 32 too many"),
    ],
)
def test_budgets_that_do_not_fit(asked: list[tuple[int, int | None]], text: str) -> None:
    with pytest.raises(amdwarp.UsageError, match=text) as caught:
        budgets(tasks(*asked), "gfx950", "k.py:3")
    assert "(k.py:3)" in str(caught.value)


TEXT = """
	.amdgcn_target "amdgcn-amd-amdhsa--gfx950"
	.text
	.globl	k
k:
	.loc	1 3 5 ; k.py:3:5
	v_mov_b32_e32 v40, v0
	.loc	1 4 5 ; helper.py:99:1 @[ k.py:4:5 ]
	v_add_u32_e32 v7, v8, v9
	v_accvgpr_write_b32 a5, v1
	.loc	1 12 5 ; k.py:12:5
	global_load_dwordx4 v[20:23], v[2:3], off
	.loc	1 30 5 ; k.py:30:5
	v_mov_b32_e32 v60, v0
	.loc	1 0 5 ; :0:5
	v_mov_b32_e32 v90, v0
	s_endpgm
"""


def test_needs_are_read_by_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines 0 to 9 are the default task's and 10 to 19 the other's; inlined code counts where it was called."""
    from amdwarp import asm
    from amdwarp.asm.reader import parse_instruction

    lines = [(line.strip(), at) for at, line in enumerate(TEXT.splitlines(), 1)]
    found = [parse_instruction(*one) for one in lines if one[0].startswith(("v_", "s_", "global_"))]
    monkeypatch.setattr(asm, "parse", lambda text: SimpleNamespace(instructions=found))
    # 41 vector registers, then six accumulation registers from a multiple of four on
    assert needs(tasks((4, None), (1, None)), TEXT) == [44 + 6, 24]
    first, second = tasks((4, None), (1, None))
    assert needs([first, second, replace(second, name="task 0 copy 1", start=5)], TEXT) == [44 + 6, 24, 24]


@amdwarp.jit
def wide_kernel(x, y, n, REGISTERS: gl.constexpr):
    with amdwarp.async_tasks():
        with amdwarp.async_task("default", num_regs=128):
            gl.store(y, n)
        with amdwarp.async_task(num_warps=1, num_regs=REGISTERS):
            layout: gl.constexpr = gl.BlockedLayout([1], [64], [1], [0])
            offsets = gl.arange(0, 4096, layout=layout)
            gl.store(x + offsets, gl.load(y + offsets) + 1)


def compiled(registers: int) -> Any:
    return amdwarp.compile(
        wide_kernel, {"x": "*i32", "y": "*i32", "n": "i32"}, {"REGISTERS": registers}, "gfx950", num_warps=4
    )


def test_what_a_task_takes_is_compared_with_its_budget(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with pytest.warns(TaskRegistersWarning, match=r"task 0 \(test_task_registers.py:\d+\) takes \d+ registers a thr"):
        kernel = compiled(24)
    default, other = kernel.metadata.tasks
    assert (default["budget"], other["budget"], other["asked"]) == (128, 24, 24)
    assert (default["start"], default["waves"], other["start"], other["waves"]) == (0, 4, 4, 1)
    assert default["needs"] < 24 < other["needs"] <= other["allocated"] == default["allocated"]
    # the largest budget leaves room for four waves on a SIMD, and LLVM was told
    assert '"amdgpu-waves-per-eu"="4,4"' in kernel.asm["llir"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", TaskRegistersWarning)
        compiled(256)


def test_explain_says_what_tasks_take(capsys: pytest.CaptureFixture[str]) -> None:
    from amdwarp.explain import _print, explain_kernel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TaskRegistersWarning)
        report = explain_kernel(compiled(24))
    _print(report)
    out = capsys.readouterr().out
    needed = report.tasks[1]["needs"]
    assert f"wave 4: takes {needed} registers, a budget of 24, asked for 24; allocated to every wave:" in out
    assert "waves 0 to 3: takes" in out and report.to_json()["tasks"][0]["name"] == "default"
