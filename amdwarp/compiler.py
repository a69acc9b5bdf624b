"""Compilation with our passes, for a GPU that may not be there; launches go through the same code.

Stock Triton's stages stay as they are. Ours stand between them::

    Gluon:        glir  → mark_stages → ttgir → amdwarp → llir → check → amdgcn → pad → hsaco   (3.8 has no glir)
    @triton.jit:  mark_stages → ttir  → ttgir → amdwarp → llir → check → amdgcn → pad → hsaco

They are put there by Triton's stage-inspection hook, which is installed only while one of our kernels compiles in this
thread. The key of such a kernel covers the sources of this whole package (``source_digest``); keys of other kernels are
never touched.

``pad`` puts in wait states that LLVM leaves out (`amdwarp.sanitizer.padding`).
"""

from __future__ import annotations

import contextlib
import dataclasses
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
FIXED_OPTIONS = ("arch", "backend_name")  # of the backend; the target decides them
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
        constexprs: parameter name -> value; a compile-time parameter that is not named takes its default.
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
    from .weave import warn_of

    record = get_target(target)
    require_triton()
    import triton
    from triton.runtime.jit import JITFunction

    if not isinstance(kernel, JITFunction):
        raise _error(f"{kernel!r} is no kernel", "put @amdwarp.jit on it")
    names = list(kernel.arg_names)
    for name, value in {"signature": signature, "constexprs": constexprs, "attrs": attrs}.items():
        if not isinstance(value, Mapping) and (name == "signature" or value is not None):
            raise _error(f"{name} is a {type(value).__name__}", "pass a dict with parameter names as keys")
    constants = dict(constexprs or {})
    # a pointer or number that is None by default is absent, which Triton compiles as a constant
    with_default = [one for one in kernel.params if one.has_default and (one.is_constexpr or one.default is None)]
    defaults = {one.name: one.default for one in with_default}
    constants |= {name: value for name, value in defaults.items() if name not in constants and name not in signature}
    types = _signature(names, signature, constants)
    source = _source_class(kernel.is_gluon())(kernel, types, constants, _attributes(names, types, attrs))
    checked = _options(options, record)
    with stages_installed(kernel.__name__):
        compiled = triton.compile(source, target=record.gpu_target, options=checked)
    warn_of(compiled)
    return compiled


def _error(problem: str, remedy: str) -> UsageError:
    return UsageError(problem, remedy=remedy, construct="amdwarp.compile")


def _signature(names: list[str], signature: Mapping[str, str], constants: Mapping[str, Any]) -> dict[str, str]:
    for given, what in ((signature, "signature"), (constants, "constexprs")):
        if unknown := [name for name in given if name not in names]:
            raise _error(f"{what} names {unknown[0]!r}, which is no parameter", f"have {', '.join(names)}")
    if missing := [name for name in names if name not in signature and name not in constants]:
        raise _error(f"the signature lacks parameter {missing[0]!r}", "give its type or its constexpr value")
    for name in names:
        if name not in constants and not _is_type(signature[name]):
            problem = f"signature[{name!r}] = {signature[name]!r} is no type"
            raise _error(problem, "write i32, fp16, *fp16 and the like, or give its value in constexprs")
    return {name: "constexpr" if name in constants else signature[name] for name in names}


def _is_type(text: Any) -> bool:
    from triton.language import str_to_ty

    if not isinstance(text, str) or text == "constexpr":
        return False
    try:
        str_to_ty(text, None)
    except Exception:  # it answers a wrong text with whatever its parts fail with
        return False
    return True


def _attributes(names: list[str], types: Mapping[str, str], attrs: Mapping[str, str] | None) -> dict[Any, Any]:
    hints = {name: POINTER_HINTS for name in names if types[name].startswith("*")} | dict(attrs or {})
    for name, letters in hints.items():
        if name not in names or not isinstance(letters, str) or set(letters) - set(HINTS):
            raise _error(f"attrs[{name!r}] = {letters!r} is not understood", "use D, S, DS or '' a parameter")
        if types[name] == "constexpr":
            raise _error(f"attrs names {name!r}, which is a compile-time constant", "drop it")
    return {(names.index(name),): [list(HINTS[c]) for c in letters] for name, letters in hints.items() if letters}


def _options(options: Mapping[str, Any], target: Target) -> dict[str, Any]:
    from triton.backends.amd.compiler import HIPOptions
    from triton.compiler.compiler import make_backend

    known = sorted(set(HIPOptions.__dataclass_fields__) - set(FIXED_OPTIONS))
    for name in options:
        if name not in known:
            raise _error(f"unknown option {name!r}", f"the AMD backend knows {', '.join(known)}")
    # Triton 3.9 warns when nobody says whether a multiply and an add may fuse, and its default is about to change.
    checked = {"enable_fp_fusion": True} | dict(options)
    try:
        make_backend(target.gpu_target).parse_options(dict(checked))
    except (AssertionError, TypeError, ValueError) as error:
        given = ", ".join(f"{name}={value!r}" for name, value in options.items())
        raise _error(f"the AMD backend refuses the options {given}", str(error)) from error
    return checked


@functools.cache
def _source_class(gluon: bool) -> type:
    """Triton's source class, its hash extended by the digest of our sources: disk and in-flight keys follow from it."""
    if gluon:
        from triton.experimental.gluon._runtime import GluonASTSource as Base
    else:
        from triton.compiler.compiler import ASTSource as Base

    class Source(Base):
        def hash(self) -> str:
            from .weave import policy

            # a kernel that passes under one policy may not under another
            return hashlib.sha256(f"{STAGE}-{source_digest()}-{policy()}-{super().hash()}".encode()).hexdigest()

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
def stages_installed(name: str = "kernel") -> Iterator[None]:
    """Our stages in every compilation this thread starts inside the block; an earlier hook stays in force.

    Args:
        name: of the kernel, for the folders of dumps. Where there are to be dumps, nothing is taken from the cache.
    """
    from triton import knobs

    with _install_lock:
        previous = knobs.runtime.add_stages_inspection_hook
        hook = functools.partial(_hook, previous, threading.get_ident(), name)
        knobs.runtime.add_stages_inspection_hook = hook
        try:
            with knobs.compilation.scope() if env.DUMP_DIR.get() else contextlib.nullcontext():
                if env.DUMP_DIR.get():
                    knobs.compilation.always_compile = True
                yield
        except Exception as error:
            own = _folder_error(error) or _own_error(error)
            if own is None or own is error:
                raise
            raise own from None
        finally:
            if knobs.runtime.add_stages_inspection_hook is hook:
                knobs.runtime.add_stages_inspection_hook = previous


def _own_error(error: BaseException) -> AmdwarpError | None:
    """Our error inside the ones that Triton's front end wraps around it."""
    return next((one for one in _chain(error) if isinstance(one, AmdwarpError)), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and those it was raised from."""
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__


def _folder_error(error: BaseException) -> UsageError | None:
    """What to say where Triton's cache or our dumps cannot be written."""
    from triton import knobs

    cause = next((one for one in _chain(error) if isinstance(one, OSError) and one.filename), None)
    if cause is None:
        return None
    failed = Path(str(cause.filename)).absolute()
    for variable, folder in (("TRITON_CACHE_DIR", knobs.cache.dir), (env.DUMP_DIR.name, env.DUMP_DIR.get())):
        wanted = Path(folder).absolute() if folder else None
        if wanted is not None and (failed.is_relative_to(wanted) or wanted.is_relative_to(failed)):
            return UsageError(
                f"{failed} cannot be used: {cause.strerror}", remedy=f"set {variable} to a folder that can be written"
            )
    return None


def _hook(previous: Callable[..., Any] | None, thread: int, name: str, *args: Any) -> Any:
    """Triton calls it without arguments for a key, and with (backend, stages, options, language, capability)."""
    if not args:
        return previous() if previous is not None else ("", "")
    if previous is not None:
        previous(*args)
    if threading.get_ident() == thread:
        backend, stages, options = args[:3]
        _insert_stages(stages, name, functools.partial(_llir, backend, options, stages["llir"], name))
    return None


def _llir(backend: Any, options: Any, stock: Any, kernel: str, src: Any, metadata: Any) -> str:
    """The stage that makes LLVM IR: Triton's own, and for a kernel with tasks a changed copy of it."""
    from .lowering import codegen

    if not codegen.has_tasks(src):
        return str(stock(src, metadata))
    from .task_registers import waves_wanted

    options = dataclasses.replace(options, waves_per_eu=options.waves_per_eu or waves_wanted(metadata))
    return codegen.make_llir(backend, options, src, metadata, _dump_folder(kernel, metadata))


def _insert_stages(stages: dict[str, Any], kernel: str, llir: Callable[[Any, Any], str]) -> None:
    from .sanitizer.padding import padded
    from .task_registers import complete

    stock = dict(stages) | {"llir": llir}
    stages.clear()
    first = next(iter(stock))
    staged: list[bool] = []  # whether the kernel has stages, once that is known
    kept: dict[str, Any] = {}  # what scheduling a kernel with windows had to compile already
    for name, run in stock.items():
        if name == "glir":
            stages[name] = lambda src, metadata, run=run: _mark(run(src, metadata), _dump_folder(kernel, metadata))
        elif name == first:  # @triton.jit, and Gluon before Triton 3.9: the first stage takes the front end's module
            stages[name] = lambda src, metadata, run=run: run(_mark(src, _dump_folder(kernel, metadata)), metadata)
        elif name == "llir":
            stages[name] = lambda src, metadata, run=run: (
                kept["llir"] if src is kept.get(STAGE) else _checked(run(src, metadata), staged)
            )
        elif name == "amdgcn":
            stages[name] = lambda src, metadata, run=run: complete(
                padded(kept["amdgcn"] if src is kept.get("llir") else run(src, metadata)), metadata
            )
        else:
            stages[name] = run
        if name == "ttgir":
            stages[STAGE] = lambda src, metadata: _schedule(src, metadata, stock, staged, kept, kernel)


def _dump_folder(kernel: str, metadata: Mapping[str, Any]) -> Path | None:
    """Where the IR of one compilation goes: each has a folder of its own."""
    folder = env.DUMP_DIR.get()
    return Path(folder, f"{kernel}-{metadata['hash'][:8]}") if folder else None


def _mark(mod: Any, keep: Path | None) -> Any:
    from .lowering import bridge
    from .lowering.passes.mark_stages import MarkStages
    from .lowering.pipeline import run_passes

    context, text = mod.context, bridge.generic_text(mod)
    if keep is None and not bridge.concerns_passes(text):
        return bridge.parse_text(text, context)
    module = bridge.parse(text)
    run_passes(module, [MarkStages()], dump_to=keep)
    return bridge.write(module, context, keep_in=keep)


def _schedule(
    mod: Any, metadata: Any, stock: dict[str, Any], staged: list[bool], kept: dict[str, Any], kernel: str
) -> Any:
    from .lowering import bridge
    from .lowering.analysis.pipelines import anchor_of
    from .lowering.analysis.windows import marks
    from .lowering.passes import STAGES, TYPED, DropWindows, tasks, windows
    from .lowering.pipeline import run_passes
    from .task_registers import announce
    from .weave import COMPLAINTS, Placement, Weaver, policy

    keep, context = _dump_folder(kernel, metadata), mod.context
    text = bridge.generic_text(mod)
    if keep is None and not bridge.concerns_passes(text):
        return bridge.parse_text(text, context)
    module = bridge.parse(text)
    run_passes(module, TYPED, dump_to=keep)
    staged.append(any(anchor_of(op) and not marks(op) for op in module.walk()))
    after = tasks(module)
    announce(module, metadata)
    if not any(map(marks, module.walk())) or policy() == "drop":
        run_passes(module, [DropWindows(), *STAGES, *after], dump_to=keep)
        return bridge.write(module, context, keep_in=keep)

    def lower(made: Any) -> tuple[str, str, dict[str, Any]]:
        noted = dict(metadata)
        llir = _checked(stock["llir"](made, noted), staged)
        return llir, stock["amdgcn"](llir, noted), noted

    def passes(corrections: Any, how: Placement) -> list[Any]:
        if corrections is None:
            return [DropWindows(), *STAGES, *after]
        return [*windows(corrections, how.interleave, how.vector), *STAGES, *after]

    lowered = Weaver(context, passes, lower, keep).run(module)
    metadata.update(lowered.metadata | {COMPLAINTS: lowered.complaints})
    kept.update({STAGE: bridge.write(lowered.module, context, keep_in=keep)})
    kept.update({"llir": lowered.llir, "amdgcn": lowered.amdgcn})
    return kept[STAGE]


def _checked(llir: str, staged: list[bool]) -> str:
    from .lowering.analysis.membar import check_text

    if any(staged):
        check_text(llir)
    return llir
