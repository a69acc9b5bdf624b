"""Schedules of the GEMM as tasks: one loads, one multiplies. Plain Python: no Triton, no device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from amdwarp.target import Target, get_target

from .configs import Access, GemmSchedule
from .layouts import conflict_factor


@dataclass(frozen=True)
class TasksSchedule(GemmSchedule):
    """A GEMM schedule in which `loaders` waves fill the ring for the waves of ``waves_m x waves_n``.

    Attributes:
        loaders: waves of the loading task.
        ahead: K steps whose copies are under way at once, where they go straight to LDS.
        pad: elements behind each row of a tile in LDS, on gfx1250; 16 bytes keep neighbouring rows on other banks.
    """

    quarters: bool = False
    loaders: int = 1
    ahead: int = 2
    pad: int = 8

    @property
    def multipliers(self) -> int:
        """Waves of the multiplying task."""
        return self.waves_m * self.waves_n

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
        wrong = []
        for name in ("tile_m", "tile_n", "tile_k", "waves_m", "waves_n", "loaders"):
            value = getattr(self, name)
            if type(value) is not int or value < 1 or value & (value - 1):
                wrong.append(f"{name} = {value!r} is no power of two")
        if not 1 <= self.ahead < self.ring:
            wrong.append(f"ahead = {self.ahead} copies need a ring of more than {self.ring} slots")
        if access is not None and not (access.a_direct and access.b_direct):
            wrong.append(
                "a schedule of tasks takes only operands whose rows are 16-byte aligned, in whole 16-byte pieces"
            )
        lds = max(self.lds_bytes(True), self.lds_bytes(False))
        if not wrong and lds > record.lds_bytes:
            wrong.append(f"the ring takes {lds} bytes of LDS, {record.arch} has {record.lds_bytes}")
        if not wrong and self.arch == "gfx950":
            wrong += [
                f"operand reads of a {one.tile.outer}x{one.tile.k} tile take {factor} times their LDS passes"
                for one in (self.a_layout(), self.b_layout(True), self.b_layout(False))
                if (factor := conflict_factor(one)) > 1
            ]
        return wrong


_GFX950 = TasksSchedule(tile_m=128, tile_n=128, ring=4, waves_n=2, loaders=1, ahead=2, mfma=(16, 16, 32))
TASKS: dict[str, GemmSchedule] = {
    "tasks_gfx942": replace(_GFX950, tile_k=32, ring=3, loaders=4, mfma=(16, 16, 16), arch="gfx942"),
    "tasks_gfx950": _GFX950,
    "tasks_gfx1250": replace(_GFX950, arch="gfx1250"),
}
