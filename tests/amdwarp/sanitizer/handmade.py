"""Hand-written programs for the sanitizer tests: a body becomes the text of a kernel, and a text a report."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdwarp.sanitizer import Finding, Report, check

_TEXT = """\t.amdgcn_target "amdgcn-amd-amdhsa--{target}"
\t.text
kernel:
{body}
\ts_endpgm
\t.section\t.rodata,"a",@progbits
\t.amdhsa_kernel kernel
\t\t.amdhsa_group_segment_fixed_size {lds}
\t\t.amdhsa_private_segment_fixed_size {scratch}
\t\t.amdhsa_kernarg_size {kernarg}
\t\t.amdhsa_user_sgpr_count 2
\t\t.amdhsa_user_sgpr_kernarg_segment_ptr 1
\t\t.amdhsa_system_sgpr_workgroup_id_x 1
\t.end_amdhsa_kernel
\t.text
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     0
    .args:
{arguments}
    .group_segment_fixed_size: {lds}
    .kernarg_segment_align: 8
    .kernarg_segment_size: {kernarg}
    .max_flat_workgroup_size: {threads}
    .name:           kernel
    .private_segment_fixed_size: {scratch}
    .sgpr_count:     100
    .sgpr_spill_count: 0
    .vgpr_count:     256
    .vgpr_spill_count: 0
    .wavefront_size: {lanes}
amdhsa.target:   amdgcn-amd-amdhsa--{target}
amdhsa.version:
  - 1
  - 2
...
\t.end_amdgpu_metadata
"""
_POINTER = (
    "      - .address_space:  global\n        .offset: {at}\n        .size: 8\n        .value_kind: global_buffer"
)


def text_of(
    body: str, *, target: str = "gfx950", waves: int = 2, pointers: int = 2, lds: int = 4096, scratch: int = 0
) -> str:
    """The text of a kernel with `pointers` arguments; s[0:1] the argument segment, s2 the workgroup, v0 the thread."""
    lanes = 32 if target.startswith("gfx12") else 64
    lines = [line.strip() for line in body.strip().splitlines()]
    return _TEXT.format(
        target=target, lds=lds, scratch=scratch, kernarg=8 * pointers, threads=lanes * waves, lanes=lanes,
        body="\n".join(line if line.endswith(":") else f"\t{line}" for line in lines),
        arguments="\n".join(_POINTER.format(at=8 * at) for at in range(pointers)),
    )  # fmt: skip


def run(body: str, *, grid: int = 1, options: dict[str, Any] | None = None, **kernel: Any) -> Report:
    """Check a body on buffers of 4096 numbered dwords, the last of which it may write."""
    pointers = kernel.get("pointers", 2)
    args = [np.arange(4096, dtype=np.uint32) for _ in range(pointers)]
    return check(text_of(body, **kernel), args, (grid,), **(options or {}))


def kinds(body: str, **options: Any) -> list[str]:
    """The kinds of the findings, in order."""
    return [finding.kind for finding in run(body, **options).findings]


def only(body: str, **options: Any) -> Finding:
    """The one finding."""
    (finding,) = run(body, **options).findings
    return finding


#: s[4:5] and s[6:7] the buffers, s[8:11] a resource over the first, v1 the thread times 4, v2 the thread of the
#: other wave times 4.
PROLOGUE = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_lshlrev_b32_e32 v1, 2, v0
v_xor_b32_e32 v2, 0x100, v1
s_waitcnt lgkmcnt(0)
s_mov_b32 s8, s4
s_and_b32 s9, s5, 0xffff
s_mov_b32 s10, 0x4000
s_mov_b32 s11, 0x27000
"""
#: The same for gfx1250, whose waves have 32 lanes.
PROLOGUE_GFX1250 = """
s_load_b128 s[4:7], s[0:1], 0x0
v_lshlrev_b32_e32 v1, 2, v0
v_xor_b32_e32 v2, 0x80, v1
s_wait_kmcnt 0x0
"""
