"""Functional emulator of AMDGCN programs on numpy: numbers without a GPU.

`launch` runs a compiled kernel's text. Loads deliver at the wait that covers them and destinations hold poison until
then, so that a missing wait or barrier shows as a wrong number; see `amdwarp.emulator.ds` and `amdwarp.emulator.vmem`.
An observer receives every instruction and access; see `amdwarp.emulator.events`.
"""

from amdwarp.emulator import ds, mfma, salu, smem, sync, valu, vmem, vop3p

#: The modules that fill the handler table.
HANDLER_MODULES = (ds, mfma, salu, smem, sync, valu, vmem, vop3p)

from amdwarp.emulator.launch import LaunchResult as LaunchResult  # noqa: E402
from amdwarp.emulator.launch import Machine as Machine  # noqa: E402
from amdwarp.emulator.launch import launch as launch  # noqa: E402
from amdwarp.emulator.memory import POISON as POISON  # noqa: E402
