"""Small AMDGCN programs written by hand, recorded and timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from amdwarp.cycles import Parameters, Run, Trace, load, record, simulate

TEXT = """
.amdgcn_target "amdgcn-amd-amdhsa--{target}"
.text
micro:
{body}
s_endpgm
.section .rodata,"a",@progbits
.amdhsa_kernel micro
.amdhsa_group_segment_fixed_size {lds}
.amdhsa_user_sgpr_count 2
.amdhsa_user_sgpr_kernarg_segment_ptr 1
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.kernels:
  - .args:{args}
    .kernarg_segment_size: {kernarg}
    .max_flat_workgroup_size: {threads}
    .name: micro
    .wavefront_size: {lanes}
    .vgpr_count: {vgprs}
amdhsa.target: amdgcn-amd-amdhsa--{target}
...
.end_amdgpu_metadata
"""
POINTER = "      - .address_space: global\n        .offset: {}\n        .size: 8\n        .value_kind: global_buffer"


def build(
    body: str | Sequence[str], waves: int = 1, target: str = "gfx950", *, pointers: int = 0, vgprs: int = 128
) -> str:
    """A whole text around some instructions, one a line."""
    args = "".join("\n" + POINTER.format(8 * at) for at in range(pointers)) or " []"
    lines = body if isinstance(body, str) else "\n".join(body)
    lanes = 32 if target.startswith("gfx12") else 64
    return TEXT.format(
        target=target,
        body=lines,
        lds=65536,
        args=args,
        kernarg=8 * pointers,
        threads=lanes * waves,
        lanes=lanes,
        vgprs=vgprs,
    )


@dataclass
class Timed:
    """A recorded program, the run of the model, and when what was issued."""

    trace: Trace
    run: Run

    def starts(self, prefix: str, wave: int = 0) -> list[int]:
        """Clk at which the wave issued instructions whose text starts with `prefix`."""
        return [e.start for e in self._events(prefix, wave)]

    def ends(self, prefix: str, wave: int = 0) -> list[int]:
        """Clk at which they were done."""
        return [e.end for e in self._events(prefix, wave)]

    def _events(self, prefix: str, wave: int) -> list[Any]:
        text = self.trace.program.instructions
        events = [e for e in self.run.events if e.wave == wave and text[e.index].text.startswith(prefix)]
        return sorted(events, key=lambda e: e.start)


Timer = Callable[..., Timed]


@pytest.fixture(scope="session")
def text_of() -> Callable[..., str]:
    """`build`, for tests that need only the text."""
    return build


@pytest.fixture(scope="session")
def timed() -> Timer:
    """Function that records a program and times it."""

    def run(
        body: str | Sequence[str],
        waves: int = 1,
        target: str = "gfx950",
        *,
        args: Sequence[Any] = (),
        resident: int = 1,
        vgprs: int = 128,
        parameters: Parameters | None = None,
        **values: float,
    ) -> Timed:
        chosen = (parameters or load(target)).replace(**values)
        trace = record(build(body, waves, target, pointers=len(args), vgprs=vgprs), args, (1,), parameters=chosen)
        return Timed(trace, simulate(trace, chosen, resident=resident, keep_log=True))

    return run
