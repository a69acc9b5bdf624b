"""Files that a command will write."""

from __future__ import annotations

import os
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
