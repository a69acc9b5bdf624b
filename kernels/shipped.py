"""Tables of choices that ship with the package: JSON files that say how they were made."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any


@functools.lru_cache(maxsize=16)
def _read(path: Path, stamp: int) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {}


def read_json(path: Path) -> dict[str, Any]:
    """What a file holds, read again when it has changed; nothing where there is none, or where it is no JSON."""
    try:
        return _read(path, path.stat().st_mtime_ns)
    except OSError:
        return {}


def forget() -> None:
    """Read files anew."""
    _read.cache_clear()


def made_by(command: str) -> dict[str, Any]:
    """How a table is made, but for the parameters of the model: a table keeps it under ``made``."""
    from amdwarp.lowering.bridge import require_triton

    return {"how": "modelled", "command": command, "triton": require_triton().text}


def write_table(path: Path, made: dict[str, Any], entries: dict[str, Any]) -> None:
    """Write a table."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"made": made, "entries": entries}, indent=1, sort_keys=True) + "\n")
