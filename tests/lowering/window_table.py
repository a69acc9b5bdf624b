"""Print the table of docs/intra-wave.md: ``python tests/lowering/window_table.py``.

*Before* is the same kernel with its windows dropped: the longest run of matrix instructions, at the source lines of
the window, with none of its memory or transcendental instructions in between.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from amdwarp.kernels.attention import attention
from amdwarp.kernels.gemm import SCHEDULES
from amdwarp.lowering import bridge
from amdwarp.lowering.analysis.realised import asked, longest_run, realised, stretches
from window_kernels import CASES

import amdwarp
from amdwarp.cycles import zoo
from amdwarp.resources import resources
from amdwarp.weave import windows_are

HEAD = "| kernel | target | window | anchors | MFMA | longest run, before | after | VGPRs, before | after | spills |"


def shipped(name: str) -> Any:
    """The compiled GEMM of an intra-wave schedule, B transposed, in fp16 or the narrow type that it is for."""
    schedule = SCHEDULES[name]
    dtype = "fp16" if schedule.operand == "f16" else schedule.operand
    return zoo.gemm((256, 256, 256), dtype=dtype, schedule=name, arch=schedule.arch).compiled


def attention_kernel(schedule: str, dim: int) -> Any:
    """The compiled attention of gfx950 under a schedule, fp16 heads of ``dim`` elements."""
    rows = np.zeros((1, 1, 256, dim), np.float16)
    with amdwarp.emulate("gfx950", execute=False) as emulation:
        attention(rows, rows, rows, schedule=schedule)
    return emulation.records[-1][1]


def rows(name: str, arch: str, compiled: Callable[[], Any]) -> list[str]:
    woven = compiled()
    with windows_are("drop"):
        plain = compiled()
    module = bridge.read(bridge.parse_text(woven.asm["amdwarp"], bridge.new_context()))
    windows, found = asked(module), stretches(woven.asm["amdgcn"])
    after, before = resources(woven.asm["amdgcn"]), resources(plain.asm["amdgcn"])
    lines = []
    for one in realised(windows, found):
        places = {op.where for op in one.asked.ops}
        runs = "".join(
            machine.slot.value
            for stretch in stretches(plain.asm["amdgcn"])
            for machine in stretch.instructions
            if machine.where and (machine.where[0], machine.where[1]) in {place[:2] for place in places}
        )
        label = one.asked.label or "-"
        matrix = one.order.count("M")
        lines.append(
            f"| {name} | {arch} | {label} | {one.anchors} | {matrix} | {longest_run(runs)} | {one.longest_run} | "
            f"{before.vgprs} | {after.vgprs} | {after.spills} |"
        )
    return lines


if __name__ == "__main__":
    print(HEAD + "\n|" + " --- |" * (HEAD.count("|") - 1))
    for name, case in CASES.items():
        for arch in case.archs:
            print("\n".join(rows(name, arch, lambda case=case, arch=arch: case.compile(arch))))  # type: ignore[misc]
    for name, schedule in SCHEDULES.items():
        if schedule.woven:
            print("\n".join(rows(f"gemm {name}", schedule.arch, lambda name=name: shipped(name))))  # type: ignore[misc]
    for schedule, dim in itertools.product(("ping_pong", "intra_wave"), (64, 128)):
        made = functools.partial(attention_kernel, schedule, dim)
        print("\n".join(rows(f"attention {schedule}, {dim}", "gfx950", made)))
