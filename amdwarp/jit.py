"""``amdwarp.jit``: a kernel whose compilation runs our passes, at a launch as well as offline."""

from __future__ import annotations

import functools
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
        UsageError: ``fn`` is not a function, or options are given for one that is jitted already.
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
    if not callable(fn) or not hasattr(fn, "__code__"):
        raise UsageError(f"{fn!r} is not a function", remedy="put @amdwarp.jit on a def", construct="amdwarp.jit")
    return _kernel_class(True)(fn, **options)


@functools.cache
def _kernel_class(gluon: bool) -> type:
    if gluon:
        from triton.experimental.gluon._runtime import GluonJITFunction as Base
    else:
        from triton.runtime.jit import JITFunction as Base

    from .compiler import _source_class, stages_installed

    class Kernel(Base):
        """A Triton kernel that compiles with the stages of this package."""

        def create_binder(self) -> Any:
            binder = super().create_binder()
            stock: Any = self.compile
            self.ASTSource = _source_class(gluon)

            def compile_with_stages(*args: Any, **kwargs: Any) -> Any:
                with stages_installed():
                    return stock(*args, **kwargs)

            self.compile: Any = compile_with_stages
            return binder

    return Kernel
