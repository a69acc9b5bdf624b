"""Configurations of the plain family: tiles, waves, and how the work is dealt out. Plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amdwarp.errors import UsageError
from amdwarp.target import Target, get_target

#: Kernel scalars such as extents and numbers of tiles are 32-bit, and are rounded up to whole tiles in 32 bits.
EXTENT_LIMIT = 2**31 - 1024
SCHEDULES = ("tiles", "persistent", "split_k", "stream_k")
#: K elements under one scale of a blockwise product, and under one E8M0 scale.
BLOCK_K = 128
MX_K = 32
#: Bytes that one lane of a preshuffled weight's load moves.
SHUFFLE_BYTES = 16
SHUFFLE_ROWS = 16
#: Share of padding that stock Triton puts into the slots at most: 16 bytes behind 256 on gfx950, 16 behind 128
#: on gfx1250 (read from the produced kernels; the budgets test holds it).
LDS_PADDING = {"gfx942": 0.0, "gfx950": 1 / 16, "gfx1250": 1 / 8}


@dataclass(frozen=True)
class PlainConfig:
    """One configuration of the plain family.

    Attributes:
        tile_m, tile_n, tile_k: output tile of a workgroup and its step along K, elements.
        num_warps: waves of the workgroup.
        stages: K steps that the stock pipeliner keeps under way; 1 turns it off.
        schedule: ``tiles`` (a workgroup a tile), ``persistent`` (as many workgroups as the GPU has compute units, each
            walks over tiles), ``split_k`` (``splits`` workgroups a tile), ``stream_k`` (one workgroup a compute unit,
            each with an equal share of all K steps).
        splits: parts along K; for ``split_k`` only.
        atomic: add the parts of ``split_k`` atomically in fp32, in an order that changes from run to run; otherwise
            they are added in the order of K by a second kernel.
        programs: workgroups of ``persistent`` and ``stream_k``; 0 for one a compute unit.
        group_m: tile rows that neighbouring workgroups share before they move on along N.
        mfma: rows of an MFMA, 16 or 32; 0 leaves the choice to the compiler. Only 16 on gfx1250.
    """

    tile_m: int = 64
    tile_n: int = 64
    tile_k: int = 64
    num_warps: int = 4
    stages: int = 2
    schedule: str = "tiles"
    splits: int = 1
    atomic: bool = False
    programs: int = 0
    group_m: int = 4
    mfma: int = 0

    @property
    def name(self) -> str:
        """Tile, waves and schedule in one line."""
        how = {"tiles": "", "split_k": f" split_k {self.splits}{' atomic' if self.atomic else ''}"}
        return f"plain {self.tile_m}x{self.tile_n}x{self.tile_k}" + how.get(self.schedule, f" {self.schedule}")

    @property
    def partial(self) -> bool:
        """Whether sums pass through a workspace and a second kernel."""
        return self.schedule in ("split_k", "stream_k")

    def accumulator_registers(self, target: Target, gated: bool = False) -> int:
        """Registers a lane that the output tile takes."""
        planes = 2 if gated else 1
        return planes * self.tile_m * self.tile_n // (self.num_warps * target.wave_size)

    def lds_bytes(self, target: Target, a_bytes: float, b_bytes: float, gated: bool = False) -> int:
        """Bytes of LDS at most: the pipeliner's slots of both operands, and the padding between their rows.

        Args:
            target: the GPU.
            a_bytes, b_bytes: of one element as it stands in memory.
            gated: two tiles of B.
        """
        slots = max(self.stages, 1)
        planes = 2 if gated else 1
        slots_bytes = slots * self.tile_k * (self.tile_m * a_bytes + planes * self.tile_n * b_bytes)
        return int(slots_bytes * (1 + LDS_PADDING[target.arch]))

    def scratch_bytes(self) -> int:
        """Bytes of LDS at most that an fp32 tile takes on its way between layouts, where that is not in the slots."""
        return self.tile_m * (self.tile_n + 8) * 4

    def constraints(self, target: str | Target = "gfx950", problem: Any = None) -> list[str]:
        """What makes this configuration illegal on a target, one sentence each; empty where it is legal.

        Args:
            target: arch name or record.
            problem: a `PlainProblem` that it would run; None asks about the configuration alone.
        """
        record = get_target(target)
        integers = ("tile_m", "tile_n", "tile_k", "num_warps", "stages", "splits", "programs", "group_m", "mfma")
        wrong = [f"{n} = {getattr(self, n)!r} is no int" for n in integers if type(getattr(self, n)) is not int]
        if type(self.atomic) is not bool:
            wrong.append(f"atomic = {self.atomic!r} is no bool")
        if wrong:
            return wrong
        for name in ("tile_m", "tile_n", "tile_k", "num_warps"):
            value = getattr(self, name)
            if value < 1 or value & (value - 1):
                wrong.append(f"{name} = {value} is no power of two")
        wrong += [
            f"{name} = {getattr(self, name)} is less than 16, the least that a matrix instruction takes"
            for name in ("tile_m", "tile_n", "tile_k")
            if getattr(self, name) < 16
        ]
        # Triton 3.9 aborts on gfx1250 with one wave of 32 lanes and a tile of 32x32.
        least = 2 if record.wave_size == 32 else 1
        if not least <= self.num_warps <= 16:
            wrong.append(f"num_warps = {self.num_warps}; on {record.arch} it must be {least} to 16")
        if not 1 <= self.stages <= 4:
            wrong.append(f"stages = {self.stages}; it must be 1 to 4")
        if self.schedule not in SCHEDULES:
            wrong.append(f"schedule = {self.schedule!r} is none of {', '.join(SCHEDULES)}")
        if not 1 <= self.splits <= 256:
            wrong.append(f"splits = {self.splits}; it must be 1 to 256")
        if self.splits != 1 and self.schedule != "split_k":
            wrong.append(f"splits = {self.splits} with schedule = {self.schedule!r}; only split_k has parts")
        if self.atomic and self.schedule != "split_k":
            wrong.append(f"atomic = True with schedule = {self.schedule!r}; only split_k adds atomically")
        if self.programs < 0 or (self.programs and self.schedule not in ("persistent", "stream_k")):
            wrong.append(f"programs = {self.programs}; only persistent and stream_k take a number of workgroups")
        if self.group_m < 1:
            wrong.append(f"group_m = {self.group_m} must be at least 1")
        if self.mfma not in (0, 16, 32) or (record.arch == "gfx1250" and self.mfma == 32):
            legal = "0 or 16" if record.wave_size == 32 else "0, 16 or 32"
            wrong.append(f"mfma = {self.mfma}; on {record.arch} it must be {legal}")
        if self.mfma > min(self.tile_m, self.tile_n):
            wrong.append(f"mfma = {self.mfma} is larger than the tile")
        if wrong:
            return wrong
        gated = problem is not None and problem.epilogue.gated
        budget = min(512, record.vgprs * record.simds // max(self.num_warps, record.simds))
        if self.accumulator_registers(record, gated) > budget // 2:
            taken = self.accumulator_registers(record, gated)
            wrong.append(f"{taken} accumulator registers of {budget} leave no room for operands")
        if problem is None:
            return wrong
        return wrong + self._problem_constraints(record, problem)

    def _problem_constraints(self, record: Target, problem: Any) -> list[str]:
        wrong = []
        lds = self.lds_bytes(record, problem.a.element_bytes, problem.b.element_bytes, problem.epilogue.gated)
        if lds > record.lds_bytes:
            wrong.append(f"the operands' slots take {lds} bytes of LDS, {record.arch} has {record.lds_bytes}")
        if problem.mx and self.tile_k < 128:
            wrong.append(f"tile_k = {self.tile_k}; with E8M0 scales it is at least 128")
        if problem.blockwise and self.tile_k > BLOCK_K:
            wrong.append(f"tile_k = {self.tile_k} spans two scales of {BLOCK_K} elements; it must be at most {BLOCK_K}")
        if problem.groups and self.partial:
            wrong.append(f"schedule = {self.schedule!r} does not take groups, whose K or rows only the GPU knows")
        if self.atomic and problem.accumulator != "float32":
            wrong.append(f"atomic = True adds in float32, and these sums are {problem.accumulator}")
        return wrong

    def check(self, target: str | Target = "gfx950", problem: Any = None) -> None:
        """Raise `UsageError` with the first broken constraint, if there is one."""
        if wrong := self.constraints(target, problem):
            raise UsageError(wrong[0], remedy="choose another configuration", construct="PlainConfig")
