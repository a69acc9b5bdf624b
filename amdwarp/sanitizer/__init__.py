"""Sanitizer of AMDGCN programs: races, missing waits and barriers, stray accesses, found without a GPU.

`check` runs a compiled kernel in the emulator and examines every access. What it finds holds for every interleaving of
the waves that takes the same branches, not just for the one that ran. See ``docs/check.md``.
"""

from amdwarp.sanitizer.report import KINDS as KINDS
from amdwarp.sanitizer.report import Finding as Finding
from amdwarp.sanitizer.report import Redundancy as Redundancy
from amdwarp.sanitizer.report import Report as Report
from amdwarp.sanitizer.report import Site as Site
from amdwarp.sanitizer.run import MAX_INSTRUCTIONS as MAX_INSTRUCTIONS
from amdwarp.sanitizer.run import check as check
