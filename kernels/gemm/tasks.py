"""Schedules of the GEMM as tasks: one loads, one multiplies. Plain Python: no Triton, no device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from amdwarp.target import Target, get_target
from amdwarp.task_registers import share

from .configs import MFMA_SHAPES, Access, GemmSchedule
from .layouts import conflict_factor

SHAPES = {arch: shapes["f16"] for arch, shapes in MFMA_SHAPES.items()} | {"gfx1250": ((16, 16, 32),)}


@dataclass(frozen=True)
class TasksSchedule(GemmSchedule):
    """A GEMM schedule in which `loaders` waves fill the ring for the waves of ``waves_m x waves_n``.

    Attributes:
        loaders: waves of one copy of the loading task.
        copies: copies of that task, which take K steps in turn; one while gfx1250's data mover does the work.
        ahead: K steps whose copies are under way at once, where they go straight to LDS.
        pad: elements behind each row of a tile in LDS, on gfx1250; 16 bytes keep neighbouring rows on other banks.
    """

    quarters: bool = False
    loaders: int = 1
    copies: int = 1
    ahead: int = 2
    pad: int = 8

    @property
    def multipliers(self) -> int:
        """Waves of the multiplying task."""
        return self.waves_m * self.waves_n

    @property
    def specialized(self) -> bool:
        """Roles run on waves of their own."""
        return True

    @property
    def module(self) -> str:
        """The file of the kernel."""
        return "tasks_gfx1250" if self.arch == "gfx1250" else "tasks_cdna"

    @property
    def kernel(self) -> str:
        """Name of the kernel function."""
        return "matmul_tasks"

    @property
    def direct(self) -> bool:
        """Operands go straight to LDS."""
        return self.arch != "gfx942"

    def lds_bytes(self, b_k_contiguous: bool = True) -> int:
        barriers = 2 * 8 * self.ring + 64
        if self.arch == "gfx950":
            return (
                barriers + self.a_layout().size_bytes(self.ring) + self.b_layout(b_k_contiguous).size_bytes(self.ring)
            )
        elements = self.ring * (self.tile_m + self.tile_n) * self.tile_k
        if self.arch == "gfx1250":
            elements += self.ring * self.pad * (self.tile_m + (self.tile_n if b_k_contiguous else self.tile_k))
        return barriers + 2 * elements

    def constraints(
        self, target: str | Target = "gfx950", access: Access | None = None, dtype: str | None = None
    ) -> list[str]:
        record = get_target(target)
        if record.arch != self.arch:
            return [f"this schedule of the GEMM is made for {self.arch}, not for {record.arch}"]
        if self.operand != "f16" or dtype not in (None, "fp16", "bf16"):
            return [f"tasks take fp16 and bf16 operands, not {dtype or self.operand}"]
        wrong = self._number_constraints()
        if not wrong and access is not None and not (access.a_direct and access.b_direct):
            wrong.append("tasks take only operands whose rows are 16-byte aligned, in whole 16-byte pieces")
        lds = 0 if wrong else max(self.lds_bytes(True), self.lds_bytes(False))
        if lds > record.lds_bytes:
            wrong.append(f"the ring takes {lds} bytes of LDS, {record.arch} has {record.lds_bytes}")
        if not wrong and self.arch == "gfx950":
            wrong += [
                f"operand reads of a {one.tile.outer}x{one.tile.k} tile take {factor} times their LDS passes"
                for one in (self.a_layout(), self.b_layout(True), self.b_layout(False))
                if (factor := conflict_factor(one)) > 1
            ]
        return wrong

    def _number_constraints(self) -> list[str]:
        wrong = []
        for name in ("tile_m", "tile_n", "tile_k", "waves_m", "waves_n", "loaders"):
            value = getattr(self, name)
            if type(value) is not int or value < 1 or value & (value - 1):
                wrong.append(f"{name} = {value!r} is no power of two")
        shapes = SHAPES[self.arch]
        if self.mfma not in shapes:
            wrong.append(f"mfma = {self.mfma} is none of {shapes}")
        if self.woven or self.quarters:
            wrong.append("tasks take the tile whole: woven = False, quarters = False")
        if not wrong and self.specialized and self.multipliers % 4:
            wrong.append(f"{self.multipliers} waves multiply, and Triton runs tasks beside a multiple of 4 only")
        if wrong:
            return wrong
        if type(self.copies) is not int or self.copies < 1 or self.ring % self.copies:
            # a slot that two copies fill in turn has phases that one of them does not see
            return [f"copies = {self.copies!r} do not share a ring of {self.ring} slots evenly"]
        under_way = self.ahead * self.copies
        if self.ahead < 1 or (self.direct and under_way >= self.ring):
            wrong.append(f"{under_way} steps under way need a ring of more than {under_way} slots, not {self.ring}")
        if self.arch == "gfx1250" and self.copies > 1:
            wrong.append(f"copies = {self.copies}; on gfx1250 one drives the data mover")
        if self.arch == "gfx942" and self.tile_k != 32:
            wrong.append(f"tile_k = {self.tile_k}; on gfx942 it must be 32")
        for name, waves, step in (("tile_m", self.waves_m, self.mfma[0]), ("tile_n", self.waves_n, self.mfma[1])):
            if getattr(self, name) < waves * step:
                wrong.append(f"{name} = {getattr(self, name)} leaves waves without an MFMA of {step}")
        if self.tile_k < self.mfma[2]:
            wrong.append(f"tile_k = {self.tile_k} is less than one MFMA's {self.mfma[2]}")
        lanes = get_target(self.arch).wave_size
        accumulators = self.tile_m * self.tile_n // (self.multipliers * lanes)
        budget = share(get_target(self.arch), self.multipliers + self.loaders * self.copies)
        if accumulators > budget // 2:
            wrong.append(f"{accumulators} accumulator registers of {budget} leave no room for operands")
        return wrong


_GFX950 = TasksSchedule(tile_m=128, tile_n=128, ring=4, waves_n=2, mfma=(16, 16, 32), loaders=1, copies=2, ahead=1)
TASKS: dict[str, GemmSchedule] = {
    "tasks_gfx942": replace(_GFX950, tile_k=32, ring=3, copies=3, mfma=(16, 16, 16), arch="gfx942"),
    "tasks_gfx950": _GFX950,
    "tasks_gfx1250": replace(_GFX950, copies=1, ahead=2, arch="gfx1250"),
}
