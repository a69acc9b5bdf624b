"""Barriers that stock code generation puts into a stage are found behind the walls of a window too."""

from __future__ import annotations

import pytest
from amdwarp.lowering.analysis.membar import check_text

from amdwarp.errors import ProtocolError

WALL = "  call void @llvm.amdgcn.sched.barrier(i32 0)\n"
BARRIER = "  call void @llvm.amdgcn.s.barrier()\n"
READ = "  %x = load <8 x half>, ptr addrspace(3) %p, align 16\n"
GROUP = "  call void @llvm.amdgcn.sched.group.barrier(i32 256, i32 1, i32 1)\n"
EDGE = WALL + BARRIER + WALL


def function(body: str) -> str:
    return "define amdgpu_kernel void @kernel() {\nentry:\n" + EDGE + body + EDGE + "  ret void\n}\n"


@pytest.mark.parametrize("barrier", ["", BARRIER])
def test_inside_a_window_in_a_stage(barrier: str) -> None:
    text = function(READ + WALL + barrier + READ + GROUP + WALL + READ)
    if not barrier:
        check_text(text)
        return
    with pytest.raises(ProtocolError, match="put a barrier inside a stage"):
        check_text(text)


def test_behind_a_window_in_a_stage() -> None:
    with pytest.raises(ProtocolError, match="put a barrier inside a stage"):
        check_text(function(WALL + READ + GROUP + GROUP + WALL + BARRIER + READ))
