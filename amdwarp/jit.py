"""``amdwarp.jit``: a kernel whose compilation runs our passes, at a launch as well as offline."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])


def jit(fn: Any = None, **options: Any) -> Any:
    """Make a kernel of a Gluon function, or of a function already under ``@gluon.jit`` or ``@triton.jit``.

    The result launches and compiles like Triton's own (``kernel[grid](…)``, ``kernel.warmup``), with our stages in its
    compilation and in its cache key.

    Args:
        fn: the function; left out when options are given: ``@amdwarp.jit(do_not_specialize=["k"])``.
        options: as ``triton.jit`` takes them; for a plain function only.

    Raises:
        UsageError: ``fn`` is not a function, an option is not known, or options are given for one that is jitted
            already.
        UnsupportedTritonError: no Triton, or one of a version this package was not tried with.
    """
    if fn is None:
        return functools.partial(jit, **options)
    from .lowering.bridge import require_triton

    require_triton()
    from triton.runtime.jit import JITFunction

    if isinstance(fn, JITFunction):
        if options:
            raise UsageError(
                f"options {', '.join(options)} come too late: the function is jitted already",
                remedy="give them to the inner decorator",
                construct="amdwarp.jit",
            )
        kept = ("version", "do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline")
        options = {name: getattr(fn, name) for name in kept}
        options |= {"repr": fn._repr, "launch_metadata": fn.launch_metadata}
        return _kernel_class(fn.is_gluon())(fn.fn, **options)
    if not callable(fn) or not hasattr(fn, "__code__") or fn.__name__ == "<lambda>":
        raise UsageError(f"{fn!r} is not a function", remedy="put @amdwarp.jit on a def", construct="amdwarp.jit")
    made = _kernel_class(True)
    known = [name for name in inspect.signature(JITFunction.__init__).parameters if name not in ("self", "fn")]
    if unknown := [name for name in options if name not in known]:
        raise UsageError(
            f"unknown option {unknown[0]!r}", remedy=f"triton.jit knows {', '.join(known)}", construct="amdwarp.jit"
        )
    return made(fn, **options)


@functools.cache
def _kernel_class(gluon: bool) -> type:
    if gluon:
        from triton.experimental.gluon._runtime import GluonJITFunction as Base
    else:
        from triton.runtime.jit import JITFunction as Base

    from .compiler import _source_class, stages_installed
    from .weave import warn_of

    class Kernel(Base):
        """A Triton kernel that compiles with the stages of this package."""

        def create_binder(self) -> Any:
            binder = super().create_binder()
            stock: Any = self.compile
            self.ASTSource = _source_class(gluon)

            def compile_with_stages(*args: Any, **kwargs: Any) -> Any:
                with stages_installed(self.__name__):
                    compiled = stock(*args, **kwargs)
                warn_of(compiled)
                return compiled

            self.compile: Any = compile_with_stages
            return binder

    return Kernel
