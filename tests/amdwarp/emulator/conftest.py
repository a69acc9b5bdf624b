"""Compiling stock kernels for an AMD target without a GPU."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@cache
def stock_kernels() -> Any:
    """The module `stock` beside this file."""
    spec = importlib.util.spec_from_file_location("amdwarp_stock_kernels", Path(__file__).with_name("stock.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def compile_stock(
    name: str, arch: str, signature: tuple[tuple[str, str], ...], constants: tuple[tuple[str, Any], ...], options: Any
) -> Any:
    """Compile kernel `name`; pointers and i32 arguments are divisible by 16, as most launches have them."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(stock_kernels(), name)
    types, values = dict(signature), dict(constants)
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    full = {}
    for at, argument in enumerate(kernel.arg_names):
        full[argument] = types.get(argument, "constexpr")
        if full[argument].startswith("*"):
            attributes[(at,)] = [["tt.divisibility", 16], ["tt.pointer_range", 32]]
        elif full[argument] == "i32":
            attributes[(at,)] = [["tt.divisibility", 16]]
    places = {(kernel.arg_names.index(key),): value for key, value in values.items()}
    lanes = 32 if arch.startswith("gfx12") else 64
    return triton.compile(
        ASTSource(kernel, full, places, attributes), target=GPUTarget("hip", arch, lanes), options=dict(options)
    )


@pytest.fixture(scope="session")
def run_stock() -> Any:
    """Function that compiles and emulates a stock kernel."""
    pytest.importorskip("triton")
    from amdwarp.emulator import launch

    def run(
        name: str,
        arch: str,
        signature: dict[str, str],
        constants: dict[str, Any],
        args: list[Any],
        grid: tuple[int, ...],
        launch_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        kernel = compile_stock(
            name, arch, tuple(signature.items()), tuple(constants.items()), tuple(sorted(options.items()))
        )
        return launch(
            kernel.asm["amdgcn"], args, grid, **{"lds_bytes": kernel.metadata.shared, **(launch_options or {})}
        )

    return run


@pytest.fixture
def random() -> np.random.Generator:
    """A generator with a fixed seed."""
    return np.random.default_rng(7)


# Hand-written programs

_TEXT = """\t.amdgcn_target "amdgcn-amd-amdhsa-unknown-{arch}"
\t.text
\t.globl\tkernel
\t.type\tkernel,@function
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
\t\t.amdhsa_system_sgpr_workgroup_id_y 1
\t\t.amdhsa_system_sgpr_workgroup_id_z 1
\t\t.amdhsa_float_denorm_mode_32 3
\t\t.amdhsa_float_denorm_mode_16_64 3
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
    .symbol:         kernel.kd
    .vgpr_count:     256
    .vgpr_spill_count: 0
    .wavefront_size: {lanes}
amdhsa.target:   amdgcn-amd-amdhsa-unknown-{arch}
amdhsa.version:
  - 1
  - 2
...
\t.end_amdgpu_metadata
"""


def program_text(
    body: list[str], *, waves: int = 1, lds: int = 0, scratch: int = 0, arch: str = "gfx950", pointers: int = 2
) -> str:
    """Text of a kernel with `pointers` pointer arguments (at s[0:1]); work-group ids stand in s2, s3 and s4.

    On gfx1250 the ids stand in ttmp9 and ttmp7.
    """
    lanes = lanes_of(arch)
    arguments = "\n".join(
        f"      - .address_space:  global\n        .offset:         {8 * at}\n        .size:           8\n"
        "        .value_kind:     global_buffer"
        for at in range(pointers)
    )
    lines = "\n".join(line if line.endswith(":") else "\t" + line for line in body)
    return _TEXT.format(
        body=lines,
        lds=lds,
        scratch=scratch,
        arch=arch,
        arguments=arguments,
        kernarg=8 * pointers,
        threads=lanes * waves,
        lanes=lanes,
    )


def lanes_of(arch: str) -> int:
    """Lanes of a wave."""
    return 32 if arch.startswith("gfx12") else 64


#: What the harness spells differently on gfx1250.
_GFX9 = {
    "load4": "s_load_dwordx4",
    "wait scalar": "s_waitcnt lgkmcnt(0)",
    "wait": "s_waitcnt vmcnt(0)",
    "load": "global_load_dword",
    "store": "global_store_dword",
    "add": "v_add_u32_e32",
    "all": "s_mov_b64 s[0:1], exec;s_mov_b64 exec, -1",
}
_GFX1250 = {
    "load4": "s_load_b128",
    "wait scalar": "s_wait_kmcnt 0x0",
    "wait": "s_wait_loadcnt 0x0",
    "load": "global_load_b32",
    "store": "global_store_b32",
    "add": "v_add_nc_u32_e32",
    "all": "s_mov_b32 s0, exec_lo;s_mov_b32 exec_lo, -1",
}


def execute(
    body: list[str],
    inputs: dict[str, Any] | None = None,
    outputs: list[str] | None = None,
    *,
    waves: int = 1,
    lds: int = 0,
    scratch: int = 0,
    arch: str = "gfx950",
    **options: Any,
) -> dict[str, Any]:
    """Run `body` and return registers.

    Args:
        body: instructions; v249 to v251 and s[90:95] belong to the harness.
        inputs: vector or accumulation register to its value in every lane of every wave (any 32-bit type), scalar
            register to an int.
        outputs: registers wanted: uint32 [lanes * waves] for each (a scalar register's value in every lane).
    """
    from amdwarp.emulator import launch

    inputs, outputs = inputs or {}, outputs or []
    threads = lanes_of(arch) * waves
    spell = _GFX1250 if arch == "gfx1250" else _GFX9
    vectors = {name: np.asarray(value) for name, value in inputs.items() if name[0] in "va"}
    data = np.zeros((max(len(vectors), 1), threads), np.uint32)
    head = [f"{spell['load4']} s[92:95], s[0:1], 0x0", "v_lshlrev_b32_e32 v249, 2, v0", "v_mov_b32_e32 v250, v249"]
    head += [spell["wait scalar"]]
    for at, (name, value) in enumerate(vectors.items()):
        data[at] = np.broadcast_to(value.astype(np.uint32) if value.ndim == 0 else value.view(np.uint32), (threads,))
        target = "v251" if name[0] == "a" else name
        head += [f"{spell['load']} {target}, v250, s[92:93]", f"{spell['add']} v250, {4 * threads}, v250"]
        if name[0] == "a":
            head += ["s_waitcnt vmcnt(0)", f"v_accvgpr_write_b32 {name}, v251"]
    head += [spell["wait"]]
    head += [f"s_mov_b32 {name}, {value:#x}" for name, value in inputs.items() if name[0] not in "va"]
    tail = ["s_cselect_b32 s90, 1, 0"] if "scc" in outputs else []
    tail += [*spell["all"].split(";"), "v_mov_b32_e32 v250, v249"]
    for name in outputs:
        source = {"scc": "s90", "exec_lo": "s0", "exec_hi": "s1"}.get(name, name)
        move = "v_accvgpr_read_b32" if name[0] == "a" else "v_mov_b32_e32"
        tail += [f"{move} v251, {source}", f"{spell['store']} v250, v251, s[94:95]"]
        tail += [f"{spell['add']} v250, {4 * threads}, v250"]
    out = np.zeros((max(len(outputs), 1), threads), np.uint32)
    text = program_text([*head, *body, *tail], waves=waves, lds=lds, scratch=scratch, arch=arch)
    launch(text, [data, out], (1,), **options)
    return dict(zip(outputs, out, strict=False))


def run_text(body: list[str], args: list[Any], grid: tuple[int, ...] = (1,), **options: Any) -> Any:
    """Launch a hand-written body; keywords of `program_text` and of `launch` mix."""
    from amdwarp.emulator import launch

    shape = {key: options.pop(key) for key in ("waves", "lds", "scratch", "arch") if key in options}
    return launch(program_text(body, pointers=len(args), **shape), args, grid, **options)


@pytest.fixture(scope="session", name="execute")
def execute_function() -> Any:
    """The function `execute`."""
    return execute


@pytest.fixture(scope="session", name="run_text")
def run_text_function() -> Any:
    """The function `run_text`."""
    return run_text


@pytest.fixture(scope="session", name="program_text")
def program_text_function() -> Any:
    """The function `program_text`."""
    return program_text
