"""Functional emulator of AMDGCN programs on numpy: numbers without a GPU.

`launch` runs a compiled kernel's text. Loads deliver at the wait that covers them and destinations hold poison until
then, so that a missing wait or barrier shows as a wrong number; see `amdwarp.emulator.ds` and `amdwarp.emulator.vmem`.
An observer receives every instruction and access; see `amdwarp.emulator.events`.
"""

from amdwarp.emulator.launch import LaunchResult as LaunchResult
from amdwarp.emulator.launch import Machine as Machine
from amdwarp.emulator.launch import launch as launch
from amdwarp.emulator.memory import POISON as POISON
