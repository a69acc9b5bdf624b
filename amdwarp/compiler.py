"""Compilation with our passes, for a GPU that may not be there; launches go through the same code.

Stock Triton's stages stay as they are. Ours stand between them::

    Gluon:        glir  → mark_stages → ttgir → amdwarp → llir → check → amdgcn → hsaco   (3.8 has no glir)
    @triton.jit:  mark_stages → ttir  → ttgir → amdwarp → llir → check → amdgcn → hsaco

They are put there by Triton's stage-inspection hook, which is installed only while one of our kernels compiles in this
thread. The key of such a kernel covers the sources of this whole package (``source_digest``); keys of other kernels are
never touched.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from . import env
from .errors import AmdwarpError, UsageError
from .target import Target, get_target

STAGE = "amdwarp"
POINTER_HINTS = "DS"
HINTS = {"D": ["tt.divisibility", 16], "S": ["tt.pointer_range", 32]}

_install_lock = threading.RLock()


def compile(
    kernel: Any,
    signature: Mapping[str, str],
    constexprs: Mapping[str, Any] | None = None,
    target: str | Target = "gfx950",
    *,
    attrs: Mapping[str, str] | None = None,
    **options: Any,
) -> Any:
    """Compile a kernel for an arch, with no GPU and no driver.

    Args:
        kernel: an ``@amdwarp.jit`` function, or a ``@gluon.jit`` / ``@triton.jit`` one (compiled with our passes too).
        signature: parameter name -> ``"*fp16"``, ``"i32"``, …; parameters named in ``constexprs`` may be left out.
        constexprs: parameter name -> value.
        target: arch name or record.
        attrs: parameter name -> what a launch would find: ``"D"`` divisible by 16, ``"S"`` a pointer to less than
            2 GiB, ``"DS"`` both, ``""`` neither. By default pointers are ``"DS"``, as a torch allocation is, and
            integers have no hint.
        options: AMD backend options such as ``num_warps``; ``enable_fp_fusion`` is on unless given.

    Returns:
        Triton's compiled kernel: ``.asm["ttgir" | "amdwarp" | "llir" | "amdgcn" | "hsaco"]``, ``.metadata``.

    Raises:
        UsageError: a parameter, attribute or option that is not known, or an unknown arch.
        LoweringError: a construct that our passes refuse.
        UnsupportedTritonError: no Triton, or one of a version this package was not tried with.
    """
    from .lowering.bridge import require_triton

    record = get_target(target)
    require_triton()
    import triton
    from triton.runtime.jit import JITFunction

    if not isinstance(kernel, JITFunction):
        raise UsageError(f"{kernel!r} is no kernel", remedy="put @amdwarp.jit on it", construct="amdwarp.compile")
    names = list(kernel.arg_names)
    constants = dict(constexprs or {})
    types = _signature(names, signature, constants)
    source = _source_class(kernel.is_gluon())(kernel, types, constants, _attributes(names, types, attrs))
    with stages_installed():
        return triton.compile(source, target=record.gpu_target, options=_options(options))


def _signature(names: list[str], signature: Mapping[str, str], constants: Mapping[str, Any]) -> dict[str, str]:
    for given, what in ((signature, "signature"), (constants, "constexprs")):
        if unknown := [name for name in given if name not in names]:
            raise UsageError(f"{what} names {unknown[0]!r}, which is no parameter", remedy=f"have {', '.join(names)}")
    if missing := [name for name in names if name not in signature and name not in constants]:
        raise UsageError(f"the signature lacks parameter {missing[0]!r}", remedy="give its type or its constexpr value")
    return {name: "constexpr" if name in constants else signature[name] for name in names}


def _attributes(names: list[str], types: Mapping[str, str], attrs: Mapping[str, str] | None) -> dict[Any, Any]:
    hints = {name: POINTER_HINTS for name in names if types[name].startswith("*")} | dict(attrs or {})
    for name, letters in hints.items():
        if name not in names or set(letters) - set(HINTS):
            raise UsageError(
                f"attrs[{name!r}] = {letters!r} is not understood", remedy="use D, S, DS or '' a parameter"
            )
    return {(names.index(name),): [list(HINTS[c]) for c in letters] for name, letters in hints.items() if letters}


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    from triton.backends.amd.compiler import HIPOptions

    known = HIPOptions.__dataclass_fields__
    for name in options:
        if name not in known or name == "arch":
            raise UsageError(f"unknown option {name!r}", remedy=f"the AMD backend knows {', '.join(sorted(known))}")
    # Triton 3.9 warns when nobody says whether a multiply and an add may fuse, and its default is about to change.
    return {"enable_fp_fusion": True} | dict(options)


@functools.cache
def _source_class(gluon: bool) -> type:
    """Triton's source class, its hash extended by the digest of our sources: disk and in-flight keys follow from it."""
    if gluon:
        from triton.experimental.gluon._runtime import GluonASTSource as Base
    else:
        from triton.compiler.compiler import ASTSource as Base

    class Source(Base):
        def hash(self) -> str:
            policy = env.WINDOWS.get()  # a kernel that passes under one policy may not under another
            return hashlib.sha256(f"{STAGE}-{source_digest()}-{policy}-{super().hash()}".encode()).hexdigest()

    return Source


@functools.cache
def source_digest() -> str:
    """SHA-256 over every source and data file of this package, computed once a process."""
    digest = hashlib.sha256()
    for package in _package_folders():
        for path in sorted(p for p in package.rglob("*") if p.suffix in (".py", ".json") and p.is_file()):
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _package_folders() -> list[Path]:
    from . import kernels, lowering

    return [Path(str(module.__file__)).parent for module in (lowering, kernels)] + [Path(__file__).parent]


# ---- stages


@contextlib.contextmanager
def stages_installed() -> Iterator[None]:
    """Our stages in every compilation this thread starts inside the block; an earlier hook stays in force."""
    from triton import knobs

    with _install_lock:
        previous = knobs.runtime.add_stages_inspection_hook
        hook = functools.partial(_hook, previous, threading.get_ident())
        knobs.runtime.add_stages_inspection_hook = hook
        try:
            yield
        except Exception as error:
            own = _own_error(error)
            if own is None or own is error:
                raise
            raise own from None
        finally:
            if knobs.runtime.add_stages_inspection_hook is hook:
                knobs.runtime.add_stages_inspection_hook = previous


def _own_error(error: BaseException) -> AmdwarpError | None:
    """Our error inside the ones that Triton's front end wraps around it."""
    chain: BaseException | None = error
    while chain is not None and not isinstance(chain, AmdwarpError):
        chain = chain.__cause__ or chain.__context__
    return chain


def _hook(previous: Callable[..., Any] | None, thread: int, *args: Any) -> Any:
    """Triton calls it without arguments for a key, and with (backend, stages, options, language, capability)."""
    if not args:
        return previous() if previous is not None else ("", "")
    if previous is not None:
        previous(*args)
    if threading.get_ident() == thread:
        _insert_stages(args[1])
    return None


def _insert_stages(stages: dict[str, Any]) -> None:
    stock = dict(stages)
    stages.clear()
    first = next(iter(stock))
    staged: list[bool] = []  # whether the kernel has stages, once that is known
    kept: dict[str, Any] = {}  # what scheduling a kernel with windows had to compile already
    for name, run in stock.items():
        if name == "glir":
            stages[name] = lambda src, metadata, run=run: _mark(run(src, metadata))
        elif name == first:  # @triton.jit, and Gluon before Triton 3.9: the first stage takes the front end's module
            stages[name] = lambda src, metadata, run=run: run(_mark(src), metadata)
        elif name == "llir":
            stages[name] = lambda src, metadata, run=run: (
                kept["llir"] if src is kept.get(STAGE) else _checked(run(src, metadata), staged)
            )
        elif name == "amdgcn":
            stages[name] = lambda src, metadata, run=run: (
                kept["amdgcn"] if src is kept.get("llir") else run(src, metadata)
            )
        else:
            stages[name] = run
        if name == "ttgir":
            stages[STAGE] = lambda src, metadata: _schedule(src, metadata, stock, staged, kept)


def _dump_folder() -> Path | None:
    folder = env.DUMP_DIR.get()
    return Path(folder) if folder else None


def _mark(mod: Any) -> Any:
    from .lowering import bridge
    from .lowering.passes.mark_stages import MarkStages
    from .lowering.pipeline import run_passes

    keep = _dump_folder()
    return bridge.transform(mod, lambda module: run_passes(module, [MarkStages()], dump_to=keep), keep_in=keep)


def _schedule(mod: Any, metadata: Any, stock: dict[str, Any], staged: list[bool], kept: dict[str, Any]) -> Any:
    from .lowering import bridge
    from .lowering.analysis.pipelines import anchor_of
    from .lowering.analysis.windows import marks
    from .lowering.passes import STAGES, DropWindows, windows
    from .lowering.pipeline import run_passes
    from .weave import Placement, Weaver

    keep, context = _dump_folder(), mod.context
    module = bridge.read(mod)
    staged.append(any(anchor_of(op) and not marks(op) for op in module.walk()))
    if not any(map(marks, module.walk())):
        run_passes(module, STAGES, dump_to=keep)
        return bridge.write(module, context, keep_in=keep)

    def lower(made: Any, real: bool) -> tuple[str, str]:
        data = metadata if real else dict(metadata)
        llir = _checked(stock["llir"](made, data), staged)
        return llir, stock["amdgcn"](llir, data)

    def passes(corrections: Any, how: Placement) -> list[Any]:
        if corrections is None:
            return [DropWindows(), *STAGES]
        return [*windows(corrections, how.interleave, how.vector), *STAGES]

    lowered = Weaver(context, passes, lower, keep).run(module)
    kept.update({STAGE: bridge.write(lowered.module, context, keep_in=keep)})
    kept.update({"llir": lowered.llir, "amdgcn": lowered.amdgcn})
    return kept[STAGE]


def _checked(llir: str, staged: list[bool]) -> str:
    from .lowering.analysis.membar import check_text

    if any(staged):
        check_text(llir)
    return llir
