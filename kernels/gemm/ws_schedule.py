"""Schedules of the straight-line GEMM that a typed schedule specialises. Plain Python: no Triton, no device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from amdwarp.schedule import WSInstr, WSOpRef, WSPipeline, WSRole, WSSchedule, WSScope, WSSync
from amdwarp.schedule.kernel import REALISATIONS
from amdwarp.target import Target

from .configs import Access, GemmSchedule
from .tasks import TASKS as HAND_WRITTEN
from .tasks import TasksSchedule


@dataclass(frozen=True)
class WSGemmSchedule(TasksSchedule):
    """A straight-line GEMM with the typed schedule that is derived from these numbers.

    Attributes:
        stage: iterations that the multiplying role runs behind the loading one, where one thread runs both.
        realise: how the schedule is carried out, as ``annotate_ws_schedule`` takes it.
    """

    loaders: int = 4
    stage: int = 2
    realise: str = "tasks"

    @property
    def num_warps(self) -> int:
        return self.multipliers

    @property
    def specialized(self) -> bool:
        return self.realise == "tasks"

    @property
    def module(self) -> str:
        return "ws_schedule_gfx1250" if self.arch == "gfx1250" else "ws_schedule_cdna"

    @property
    def kernel(self) -> str:
        return "matmul_straight"

    @property
    def straight(self) -> WSGemmSchedule:
        """The schedule of the kernel as it is written: all of its waves carry the copies."""
        return replace(self, loaders=self.multipliers)

    @property
    def typed(self) -> WSSchedule:
        """The schedule that the kernel is annotated with."""
        # Where data passes through registers, it is fetched a stage before it is stored. Operands are read a stage
        # before they are multiplied; the release stands behind the multiplication, since it waits for the reads.
        store = 0 if self.direct else 1
        read = store + self.stage
        load: list[WSInstr | str] = [
            WSSync.producer_acquire("ring", store),
            "load_a",
            "load_b",
            WSSync.producer_commit("ring", store),
        ]
        fetch: list[WSInstr | str] = [] if self.direct else [WSOpRef("fetch_a", 0), WSOpRef("fetch_b", 0)]
        multiply: list[WSInstr | str] = [
            WSSync.consumer_wait("ring", read),
            "read",
            WSOpRef("multiply_add", read + 1),
            WSSync.consumer_release("ring", read),
        ]
        return WSSchedule(
            self.multipliers + self.loaders,
            [
                WSRole("multiply", warps_lo=0, warps_hi=self.multipliers),
                WSRole("load", warps_lo=self.multipliers, warps_hi=self.multipliers + self.loaders),
            ],
            [WSPipeline("ring", ["a_tile", "b_tile"], self.ring, self.ahead if self.direct else 1)],
            [
                WSScope("k_steps", {"load": [*fetch, *load], "multiply": multiply}),
                WSScope(WSScope.ROOT, {"load": ["k_steps"], "multiply": ["k_steps", "store"]}),
            ],
        )

    def constraints(
        self, target: str | Target = "gfx950", access: Access | None = None, dtype: str | None = None
    ) -> list[str]:
        wrong = super().constraints(target, access, dtype)
        if self.realise not in REALISATIONS:
            wrong.append(f"realise = {self.realise!r} is none of {', '.join(REALISATIONS)}")
        if self.arch != "gfx1250" and type(self.loaders) is int and self.loaders > self.multipliers:
            most = self.multipliers
            wrong.append(
                f"loaders = {self.loaders}; lanes carry the copies, whose layouts are for at most {most} waves"
            )
        return wrong


_GFX950 = WSGemmSchedule(tile_m=128, tile_n=128, ring=4, waves_n=2, ahead=2, mfma=(16, 16, 32))
_GFX942 = replace(_GFX950, tile_k=32, ring=3, mfma=(16, 16, 16), arch="gfx942")
_GFX1250 = replace(_GFX950, loaders=1, arch="gfx1250")
WS_SCHEDULES: dict[str, GemmSchedule] = {
    "ws_schedule_gfx942": _GFX942,
    # one wave that loads leaves the LDS and issue slots to those that multiply: 1000 clk a step for 1116 with four
    "ws_schedule_gfx950": replace(_GFX950, loaders=1),
    "ws_schedule_gfx1250": _GFX1250,
    # The same schedules carried out in other ways. Stages of a wave pipeline need eight waves and copies to LDS.
    "ws_pipeline_gfx942": replace(_GFX942, realise="pipeline"),
    "ws_pipeline_gfx950": replace(_GFX950, realise="pipeline"),
    "ws_pipeline_gfx1250": replace(_GFX1250, realise="pipeline"),
    "ws_inter_wave_gfx950": replace(_GFX950, waves_n=4, loaders=8, realise="inter_wave"),
}
TASKS: dict[str, GemmSchedule] = HAND_WRITTEN | WS_SCHEDULES
"""Every schedule with roles on waves of their own, hand-written or typed."""
