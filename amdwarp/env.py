"""Every environment variable this package reads."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    """One variable: its name, its value when unset, and what it does."""

    name: str
    default: str
    help: str

    def get(self) -> str:
        return os.environ.get(self.name, self.default)

    def is_set(self) -> bool:
        return self.name in os.environ


DUMP_DIR = Variable("AMDWARP_DUMP_DIR", "", "folder that receives the IR after each of our passes")
WINDOWS = Variable(
    "AMDWARP_WINDOWS",
    "error",
    "intra-wave windows that LLVM did not realise: error, warn, or off (taken as they are); drop: no windows at all",
)

CACHE_DIR = Variable("AMDWARP_CACHE_DIR", "", "folder of what tuning found; by default ~/.cache/amdwarp")

VARIABLES: tuple[Variable, ...] = (DUMP_DIR, WINDOWS, CACHE_DIR)
