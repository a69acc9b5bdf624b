"""``scheduling_wall``: a line in a kernel that LLVM's instruction scheduler moves nothing across.

Inside a stage the order of independent instructions is LLVM's choice, and it starts copies to LDS ahead of reads. A
wall between them keeps the order of the source. Like a stage's marks it is a dead constant until a compilation through
this package makes it a ``sched.barrier``; on a bare Triton it vanishes.
"""

from __future__ import annotations

from typing import Any

from .errors import UsageError

WALL = "amdwarp.wall"


def scheduling_wall(_semantic: Any = None) -> None:
    """Keep LLVM's scheduler from moving instructions across this line of a kernel.

    It is no barrier and no wait: it orders the instructions of one wave, and what they do to memory stays as it was.
    An intra-wave window refuses one inside it, since its order is the window's.

    Raises:
        UsageError: called outside of a kernel.
    """
    if _semantic is None:
        raise UsageError(
            "it has a meaning only inside a kernel",
            remedy="use it in a function under @amdwarp.jit, @gluon.jit or @triton.jit",
            construct="scheduling_wall",
        )
    builder = _semantic.builder
    builder.get_int32(0).set_attr(WALL, builder.get_string_attr(""))


scheduling_wall.__triton_builtin__ = True  # type: ignore[attr-defined]
