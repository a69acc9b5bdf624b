"""How many workgroups share a compute unit, and in how many rounds a grid runs."""

from __future__ import annotations

from dataclasses import dataclass

from amdwarp.asm import Program
from amdwarp.cycles.parameters import Parameters
from amdwarp.errors import UsageError


@dataclass(frozen=True)
class Occupancy:
    """Workgroups on a compute unit.

    Attributes:
        fitting: workgroups that registers, LDS and wave slots allow.
        resident: workgroups that are there at a time, given the grid.
        rounds: how often the resident workgroups are replaced until the grid is done.
    """

    fitting: int
    resident: int
    rounds: int


def occupancy(program: Program, lds_bytes: int, workgroups: int, parameters: Parameters) -> Occupancy:
    """Occupancy of a launch.

    Raises:
        UsageError: not one workgroup fits.
    """
    target = parameters.target
    granule = parameters.vgpr_granule
    vgprs = max(1, -(-program.metadata.vgprs // granule)) * granule
    waves_a_simd = min(target.vgprs // vgprs, parameters.waves_a_simd)
    fitting = waves_a_simd * target.simds // program.waves
    if lds_bytes:
        fitting = min(fitting, target.lds_bytes // lds_bytes)
    if fitting < 1:
        raise UsageError(
            f"a workgroup of {program.waves} waves with {vgprs} registers a lane and {lds_bytes} bytes of LDS does not "
            f"fit on a compute unit of {target.arch}"
        )
    shared = -(-workgroups // target.compute_units)
    resident = min(fitting, shared)
    return Occupancy(fitting, resident, -(-shared // resident))
