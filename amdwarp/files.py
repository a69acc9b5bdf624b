"""Files that a command will write."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from .errors import UsageError


def check_writable(path: str | Path) -> None:
    """Find out before the work that its result cannot be written.

    Raises:
        UsageError: the folder is not there, the path is a folder, or there is no permission.
    """
    file = Path(path)
    folder = file.parent
    if not folder.is_dir():
        raise UsageError(f"{path} cannot be written: {folder} is no folder", remedy="make it first")
    if file.is_dir():
        raise UsageError(f"{path} cannot be written: it is a folder", remedy="name a file")
    if not os.access(file if file.exists() else folder, os.W_OK):
        raise UsageError(f"{path} cannot be written: no permission", remedy="name another place")


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a text or bytes so that the file holds either what it held before or all of it, whenever the process ends.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    file = Path(os.path.realpath(path))  # what a link leads to, not the link
    mode = file.stat().st_mode & 0o777 if file.exists() else None
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with open(handle, "wb") as out:
            out.write(content.encode() if isinstance(content, str) else content)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(name, 0o666 & ~_umask() if mode is None else mode)
        os.replace(name, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0o077)  # the one way to read it
    os.umask(mask)
    return mask
