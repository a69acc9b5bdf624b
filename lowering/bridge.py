"""Between the Triton wheel's modules and this package's IR. The only file that imports ``triton._C``.

A wheel module is read by printing it in generic form and written by parsing text. There is no switch for the generic
form in the wheel's Python API, but MLIR prints an op that fails verification in that form: the module is given an
attribute that its dialect refuses, printed, and the attribute is stripped from the text. The wheel offers no way
to take an attribute off again, so **a module that was read is spoilt**: go on with what :func:`write` returns.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from amdwarp.errors import LoweringError, UnsupportedTritonError

from .ir import Module
from .text import parse, print_module

# The first whose AMD backend takes function attributes for LLVM, which the kernels of this package need.
OLDEST_FOR_KERNELS = (3, 8)
SUPPORTED: dict[tuple[int, int], str] = {
    (3, 7): "runs the lowering; kernels are tested on 3.8 and 3.9",
    (3, 8): "fully tested",
    (3, 9): "fully tested",
}
"""Triton versions (major, minor) this package was tried with, and how far."""

DISTRIBUTIONS = ("triton", "pytorch-triton-rocm", "triton-rocm", "pytorch-triton", "triton-windows")
"""Names under which a distribution that brings the ``triton`` package is published."""

_MARK = "rocdl.kernel"
_MARK_IN_TEXT = re.compile(rf"\{{{re.escape(_MARK)}\}} |{re.escape(_MARK)}, |, {re.escape(_MARK)}(?=\}})")
_GENERIC_HEAD = re.compile(r'^"builtin\.module"\(', re.M)
#: In the text of every module that a pass of ours may change: an attribute or a barrier of ours, or tasks, which may be
#: stock Gluon's. Behind a quotation mark stand names of functions, which hold their module's.
_CONCERNS_US = re.compile(r'(?<!")amdwarp\.|"amdwarp\.named_barrier |ttg\.warp_specialize')
_OWN_LOCATION = re.compile(r'loc\("[^"]*amdwarp-[^"]*":(\d+):(\d+)\)')
_STDERR_LOCK = threading.Lock()


@dataclass(frozen=True)
class TritonInfo:
    """The Triton that ``import triton`` gives.

    Attributes:
        version: (major, minor).
        text: the full version, e.g. ``3.9.0+rocm7``.
        distribution: name it was installed under, or None for a source tree.
    """

    version: tuple[int, int]
    text: str
    distribution: str | None


@lru_cache(maxsize=1)
def find_triton() -> TritonInfo | None:
    """Which Triton is installed, supported or not, without importing it; None if there is none."""
    spec = importlib.util.find_spec("triton")
    if spec is None or not spec.origin:
        return None
    for name in DISTRIBUTIONS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return _info(importlib.metadata.version(name), name)
    return _info(_version_in_source(Path(spec.origin)), None)


def _info(text: str, distribution: str | None) -> TritonInfo:
    match = re.match(r"(\d+)\.(\d+)", text)
    return TritonInfo((int(match[1]), int(match[2])) if match else (0, 0), text, distribution)


def _version_in_source(init: Path) -> str:
    match = re.search(r"""^__version__\s*=\s*['"]([^'"]+)""", init.read_text(encoding="utf-8"), re.M)
    return match.group(1) if match else "unknown"


def require_triton() -> TritonInfo:
    """The installed Triton, if this package supports it.

    Raises:
        UnsupportedTritonError: there is none, it is of an untried version, or it has no AMD backend.
    """
    wanted = ", ".join(f"{major}.{minor}" for major, minor in SUPPORTED)
    info = find_triton()
    if info is None:
        raise UnsupportedTritonError(
            f"no Triton is installed; supported are {wanted}",
            remedy="install the ROCm build of PyTorch, which brings one, or the [triton] extra of this package",
        )
    if info.version not in SUPPORTED:
        found = f"Triton {info.text}" + (f" (installed as {info.distribution})" if info.distribution else "")
        raise UnsupportedTritonError(f"{found} is not supported", remedy=f"install one of {wanted}")
    return info


def require_triton_for(kernels: str) -> TritonInfo:
    """The installed Triton, if the kernels of this package compile with it.

    Args:
        kernels: what needs it, for the error.

    Raises:
        UnsupportedTritonError: as `require_triton`, and one that is older than `OLDEST_FOR_KERNELS`.
    """
    found = require_triton()
    if found.version < OLDEST_FOR_KERNELS:
        oldest = ".".join(map(str, OLDEST_FOR_KERNELS))
        raise UnsupportedTritonError(
            f"{kernels} needs Triton {oldest} or newer, and this is {found.text}", remedy=f"install triton>={oldest}"
        )
    return found


def triton_version() -> tuple[int, int]:
    """(major, minor) of the installed, supported Triton."""
    return require_triton().version


def _wheel() -> tuple[Any, Any]:
    """The wheel's ``ir`` and ``amd`` extension modules."""
    info = require_triton()
    try:
        from triton._C.libtriton import amd, ir
    except ImportError as error:
        raise UnsupportedTritonError(f"Triton {info.text} has no usable AMD backend: {error}") from error
    return ir, amd


# ---- wheel module -> IR -> wheel module


def new_context() -> Any:
    """A fresh MLIR context with Triton's and the AMD backend's dialects loaded."""
    ir, amd = _wheel()
    context = ir.context()
    ir.load_dialects(context)
    amd.load_dialects(context)
    return context


def generic_text(mod: Any) -> str:
    """Generic-form text of a wheel module, with locations. ``mod`` is spoilt: see the module docstring.

    Raises:
        LoweringError: the wheel did not print the generic form.
    """
    ir, _ = _wheel()
    mod.set_attr(_MARK, ir.builder(mod.context).get_unit_attr())
    text = str(mod)
    if not _GENERIC_HEAD.search(text):
        raise LoweringError(
            "this Triton build does not print the generic form of a module",
            remedy=f"report the Triton version ({require_triton().text})",
        )
    stripped, count = _MARK_IN_TEXT.subn("", text)
    if count != 1:
        raise LoweringError(f"the marking attribute stands {count} times in the printed module instead of once")
    return stripped


def read(mod: Any) -> Module:
    """The IR of a wheel module. ``mod`` is spoilt: go on with what :func:`write` returns."""
    return parse(generic_text(mod))


def concerns_passes(text: str) -> bool:
    """Whether any of our passes can find something in a module of this text; reading it can be spared if not."""
    return _CONCERNS_US.search(text) is not None


def write(module: Module, context: Any, *, pass_name: str | None = None, keep_in: Path | None = None) -> Any:
    """A verified wheel module made from IR, with its ``context`` set. Arguments and errors as :func:`parse_text`."""
    return parse_text(print_module(module), context, pass_name=pass_name, keep_in=keep_in)


def parse_text(text: str, context: Any, *, pass_name: str | None = None, keep_in: Path | None = None) -> Any:
    """A wheel module parsed from MLIR text in either form.

    Args:
        text: the module.
        context: from :func:`new_context`, or the ``context`` of the module that is being replaced.
        pass_name: the pass that made the text, for the error.
        keep_in: folder for the text if it is rejected; the system's temporary folder by default.

    Raises:
        LoweringError: the wheel rejects the text; the message has MLIR's diagnostics and the file it was kept in.
    """
    ir, _ = _wheel()
    descriptor, name = tempfile.mkstemp(suffix=".mlir", prefix="amdwarp-")
    path = Path(name)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    captured: list[str] = []
    try:
        with _captured_stderr(captured):
            mod = ir.parse_mlir_module(str(path), context)
            mod.context = context
            valid = mod.verify()
    except RuntimeError as error:
        raise _rejected(path, captured, pass_name, keep_in) from error
    if not valid:
        raise _rejected(path, captured, pass_name, keep_in)
    path.unlink()
    return mod


def transform(
    mod: Any, edit: Callable[[Module], object], *, pass_name: str | None = None, keep_in: Path | None = None
) -> Any:
    """Read ``mod``, run ``edit`` on its IR, and return the module that replaces ``mod``; for a compilation stage."""
    context = mod.context
    module = read(mod)
    edit(module)
    return write(module, context, pass_name=pass_name, keep_in=keep_in)


def allocate_lds(mod: Any, arch: str) -> None:
    """Run Triton's shared-memory allocation: ops that get LDS, a buffer or scratch, get ``allocation.offset``."""
    from triton._C.libtriton import amd, ir

    passes = ir.pass_manager(mod.context)
    allocate = amd.passes.ttgpuir.add_allocate_shared_memory
    if triton_version() >= (3, 8):
        allocate(passes, arch)
    else:
        allocate(passes)
    passes.run(mod, "allocate_lds")


def pretty(module: Module, *, locations: bool = False) -> str:
    """The module in MLIR's pretty form, for dumps and FileCheck tests; it hides types, so never rewrite from it."""
    mod = write(module, new_context())
    return str(mod) if locations else mod.str_nodebug()


def filecheck(text: str, checks: str) -> None:
    """Run the wheel's FileCheck over ``text``; ValueError with FileCheck's report on a mismatch."""
    require_triton()
    from triton._filecheck import run_filecheck

    run_filecheck("module", text, checks)


def _rejected(path: Path, captured: list[str], pass_name: str | None, keep_in: Path | None) -> LoweringError:
    if keep_in is not None:
        keep_in.mkdir(parents=True, exist_ok=True)
        kept = keep_in / f"rejected-{pass_name or 'module'}-{path.stem.removeprefix('amdwarp-')}.mlir"
        kept.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
        path.unlink()
        path = kept
    said = _OWN_LOCATION.sub(r"line \1:\2", "".join(captured)).splitlines()
    errors = [line.strip() for line in said if "error:" in line] or [line.strip() for line in said if line.strip()]
    return LoweringError(
        f"MLIR rejects the module: {'; '.join(errors[:5]) or 'it says nothing'}",
        remedy=f"the text is in {path}",
        pass_name=pass_name,
    )


@contextlib.contextmanager
def _captured_stderr(into: list[str]) -> Iterator[None]:
    """Collect what native code writes to file descriptor 2 meanwhile, for the whole process, one caller at a time.

    The text goes through a named file: it survives should the wheel abort the process.
    """
    with _STDERR_LOCK, tempfile.NamedTemporaryFile("w+", prefix="amdwarp-stderr-", delete=False) as file:
        with contextlib.suppress(AttributeError, OSError, ValueError):
            sys.stderr.flush()
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            into.append(file.read())
            os.unlink(file.name)
