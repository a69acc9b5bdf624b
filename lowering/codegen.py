"""Triton's own ``make_llir`` with two of its calls answered by us, for kernels with tasks.

Stock lowering of ``ttg.warp_specialize`` refuses gfx942 and gfx950 in one pass, which takes the name of the target.
The function runs here with globals of its own, a copy of the backend's in which that pass is told gfx1250, and in which
the module is edited (``passes/lower_tasks.py``) right before it becomes LLVM IR. The backend itself is not touched, so
other kernels, also in other threads, compile as ever.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amdwarp.errors import LoweringError

from . import bridge
from .analysis.tasks import PLACED
from .passes.lower_tasks import LowerTasks
from .pipeline import run_passes

STAND_IN = "gfx1250"
"""The target that stock lowering of tasks is told."""


class _Proxy:
    """An object with some attributes replaced."""

    def __init__(self, real: Any, **replaced: Any) -> None:
        self._real = real
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def has_tasks(src: Any) -> bool:
    """Whether a wheel module in TTGIR has been through ``place_tasks``: it has tasks, or barriers between them."""
    return src.get_int_attr(PLACED) is not None


def make_llir(backend: Any, options: Any, src: Any, metadata: Any, keep: Path | None = None) -> str:
    """LLVM IR of a module with tasks.

    Args:
        backend: Triton's AMD backend object.
        options: its options.
        src: the module in TTGIR.
        metadata: of the compilation; ``shared`` grows by the dwords of named barriers.
        keep: folder for dumps, or None.

    Raises:
        LoweringError: this Triton does not lower tasks the way that is known.
    """
    stock: Callable[..., str] = backend.make_llir
    scope = stock.__globals__
    done: list[str] = []
    added = 0

    def specialize(manager: Any, _arch: str) -> None:
        done.append("specialize")
        scope["amd"].passes.ttgpuir.add_warp_specialize_to_llvm(manager, STAND_IN)

    def to_module(mod: Any, context: Any) -> Any:
        nonlocal added
        done.append("to_module")
        edit = LowerTasks(options.arch, mod.context, src.get_int_attr("ttg.shared") or 0)
        lowered = bridge.transform(mod, lambda module: run_passes(module, [edit], dump_to=keep), keep_in=keep)
        added = edit.added
        return scope["llvm"].to_module(lowered, context)

    ttgpuir = _Proxy(scope["amd"].passes.ttgpuir, add_warp_specialize_to_llvm=specialize)
    amd = _Proxy(scope["amd"], passes=_Proxy(scope["amd"].passes, ttgpuir=ttgpuir))
    llvm = _Proxy(scope["llvm"], to_module=to_module)
    copy = types.FunctionType(
        stock.__code__, {**scope, "amd": amd, "llvm": llvm}, stock.__name__, stock.__defaults__, stock.__closure__
    )
    text = copy(src, metadata, options)
    if done != ["specialize", "to_module"]:
        raise LoweringError(
            "this Triton lowers tasks in another way than those this package was tried with",
            remedy=f"report the Triton version ({bridge.require_triton().text})",
            construct="async_tasks",
        )
    metadata["shared"] += added
    return text
