"""Registers, spills and LDS of a compiled kernel, read from its AMDGCN text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import EmulatorError

_FIELDS = {
    "vgprs": "vgpr_count",
    "agprs": "agpr_count",
    "sgprs": "sgpr_count",
    "vgpr_spills": "vgpr_spill_count",
    "sgpr_spills": "sgpr_spill_count",
    "lds_bytes": "group_segment_fixed_size",
    "scratch_bytes": "private_segment_fixed_size",
}


@dataclass(frozen=True)
class Resources:
    """What one kernel takes.

    Attributes:
        vgprs: vector registers a lane, accumulation registers included.
        agprs: accumulation registers among them.
        sgprs: scalar registers a wave.
        vgpr_spills, sgpr_spills: registers that the compiler put in memory.
        lds_bytes: LDS of a workgroup that the text itself declares.
        scratch_bytes: private memory of a lane.
    """

    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    lds_bytes: int
    scratch_bytes: int

    @property
    def spills(self) -> int:
        return self.vgpr_spills + self.sgpr_spills


def resources(amdgcn: str) -> Resources:
    """The resources that the metadata of an AMDGCN text states.

    Raises:
        EmulatorError: the text has no kernel metadata.
    """
    found: dict[str, int] = {}
    for field, key in _FIELDS.items():
        match = re.search(rf"^\s*(?:- )?\.{key}:\s*(\d+)", amdgcn, re.M)
        if match is None and field != "agprs":
            raise EmulatorError(f"the text states no .{key}", remedy="give the whole AMDGCN text of one kernel")
        found[field] = int(match.group(1)) if match else 0
    return Resources(**found)
