"""What the compiler, the checks and the models know of each GPU, one frozen record an arch."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import UsageError


@dataclass(frozen=True)
class Target:
    """One GPU architecture.

    Attributes:
        arch: LLVM processor name.
        product: what people call it.
        wave_size: lanes of a wave.
        simds: SIMD units of a compute unit.
        lds_bytes: LDS a workgroup may have.
        lds_banks: banks of 4 bytes.
        vgprs: vector registers of one SIMD lane, accumulators included, which its waves share.
        max_waves: waves a SIMD holds at most.
        xcds: dies that workgroups are dealt to in turn.
        compute_units: compute units of the whole GPU.
        direct_to_lds_bytes: widest global-to-LDS copy of one lane.

    Sources: ROCm documentation, "GPU architecture specifications" (LDS, registers, compute units, dies) and the CDNA3
    and CDNA4 ISA documents; for gfx1250, AMD's published description of the MI450 and LLVM's processor tables (waves
    of a SIMD, which AMD has not published, among them).
    """

    arch: str
    product: str
    wave_size: int
    simds: int
    lds_bytes: int
    lds_banks: int
    vgprs: int
    max_waves: int
    xcds: int
    compute_units: int
    direct_to_lds_bytes: int

    @property
    def gpu_target(self) -> object:
        """The ``triton.backends.compiler.GPUTarget`` of this arch."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("hip", self.arch, self.wave_size)


TARGETS: dict[str, Target] = {
    target.arch: target
    for target in (
        Target("gfx942", "MI300X / MI325X", 64, 4, 64 << 10, 32, 512, 8, 8, 304, 4),
        Target("gfx950", "MI350X / MI355X", 64, 4, 160 << 10, 64, 512, 8, 8, 256, 16),
        Target("gfx1250", "MI450", 32, 4, 320 << 10, 64, 1024, 16, 8, 256, 16),
    )
}


def get_target(arch: str | Target) -> Target:
    """The record of an arch, by name or as it is.

    Raises:
        UsageError: the arch is not one of ``TARGETS``.
    """
    if isinstance(arch, Target):
        return arch
    # a driver reports features behind the name: gfx942:sramecc+:xnack-
    target = TARGETS.get(arch.split(":")[0]) if isinstance(arch, str) else None
    if target is None:
        raise UsageError(f"unknown arch {arch!r}", remedy=f"use one of {', '.join(TARGETS)}")
    return target
