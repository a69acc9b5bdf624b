"""What a row of the instruction table holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Format(str, Enum):
    """Instruction format families."""

    SALU = "salu"
    BRANCH = "branch"
    SYNC = "sync"
    SMEM = "smem"
    VOP1 = "vop1"
    VOP2 = "vop2"
    VOPC = "vopc"
    VOP3 = "vop3"
    VOP3P = "vop3p"
    MFMA = "mfma"
    DS = "ds"
    BUFFER = "buffer"
    GLOBAL = "global"
    SCRATCH = "scratch"
    FLAT = "flat"
    CACHE = "cache"
    TENSOR = "tensor"


@dataclass(frozen=True, slots=True)
class InstructionInfo:
    """One row.

    Attributes:
        format: format family.
        destinations: how many leading operands are written.
        counter: wait counter the instruction raises, or "".
        reads, writes: scalar registers used without being written out: ``scc``, ``vcc``, ``exec``, ``m0``.
    """

    format: Format
    destinations: int = 1
    counter: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
