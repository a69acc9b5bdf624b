"""What every combination of options compiles to: no scratch memory, no atomics."""

from __future__ import annotations

import re

import pytest
from amdwarp.kernels.attention.backward_plan import BackwardKind, BackwardTile, tiles

import amdwarp
from amdwarp.target import TARGETS, get_target

pytest.importorskip("triton")

KINDS = {
    "plain": BackwardKind(),
    "causal": BackwardKind(right=True),
    "all": BackwardKind(True, True, True, True, True, True),
    "all but bias": BackwardKind(True, True, True, True),
    "unaligned": BackwardKind(True, True, True, True, varlen=True, unit=1),
}
OPTIONAL = {"alibi_ptr": "alibi", "bias_ptr": "bias", "dbias_ptr": "dbias", "cu_rows_ptr": "varlen"}
OPTIONAL["cu_keys_ptr"] = "varlen"
DIMS = ((64, 64), (128, 128), (192, 128), (256, 256))


def compiled(name: str, kind: BackwardKind, tile: BackwardTile, arch: str, dtype: str) -> str:
    """The text of one kernel."""
    from amdwarp.kernels.attention import backward_kernels

    kernel = getattr(backward_kernels, name)
    signature, constants = {}, {"KIND": kind, "TILE": tile}
    for one in kernel.arg_names:
        if one in OPTIONAL and not getattr(kind, OPTIONAL[one]):
            constants[one] = None
        elif one.endswith("_ptr"):
            fp32 = one in ("lse_ptr", "delta_ptr", "alibi_ptr", "dbias_ptr")
            signature[one] = "*fp32" if fp32 else "*i32" if one.startswith("cu_") else f"*{dtype}"
        elif one not in constants:
            signature[one] = "fp32" if one in ("scale", "softcap") else "i32"
    made = amdwarp.compile(kernel, signature, constants, arch, **tile.options(get_target(arch)))
    return str(made.asm["amdgcn"])


def check(dims, kind, arch, dtype):
    for name, tile in zip(("backward_keys", "backward_rows"), tiles(*dims, arch), strict=True):
        text = compiled(name, kind, tile, arch, dtype)
        assert re.findall(r"\.private_segment_fixed_size: +(\d+)", text) == ["0"], (name, dims, kind, arch)
        assert not re.search(r"_atomic_|scratch_", text)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_no_scratch_and_no_atomics(arch):
    check((128, 128), KINDS["causal"], arch, "bf16")


@pytest.mark.slow
@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dims", DIMS, ids=str)
def test_no_scratch_and_no_atomics_anywhere(dims, kind, arch):
    for dtype in ("fp16", "bf16"):
        check(dims, KINDS[kind], arch, dtype)
