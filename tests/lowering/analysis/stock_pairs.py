"""Pairs of LDS accesses run through the barrier insertion of the installed Triton; prints what stands between them.

A child process: a fault in the wheel ends the process. The modules are written out here in full, since they go through
passes that other text must not have been near.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns when it is not set
sys.path.insert(0, str(Path(__file__).parents[1]))

from amdwarp.lowering import bridge
from amdwarp.lowering.text import print_module
from snippets import module

ACCESSES = {
    "ASYNC_WRITE": "@copy({slot})",
    "RELAXED_READ": "@relaxed({name}, {slot})",
    "READ": "@load({name}, {slot})",
    "WRITE": "@store({slot})",
}
# how the two accesses find their slots
PLACES = {
    "same": ("s0", "s0"),
    "numbers": ("s0", "s1"),
    "remainders": ("near", "far"),
    "unknown": ("first", "second"),
    "other buffer": ("s0", "q"),
}
HEAD = """
    @ring(r, 3)
    @buffer(q)
    @slot(s0, r, c0, 3)
    @slot(s1, r, c1, 3)
    @slot(first, r, n, 3)
    @slot(second, r, m, 3)
    %n2 = arith.addi %n, %c2 : i32
    %i0 = arith.remsi %n, %c3 : i32
    %i2 = arith.remsi %n2, %c3 : i32
    @slot(near, r, i0, 3)
    @slot(far, r, i2, 3)
"""
TAIL = """
    @buffer(out)
    @buffer(out2)
    @fence
    ttg.local_store %a, %out : tensor<64x64xf16, #blocked> -> !ttg.memdesc<64x64xf16, #shared, #smem, mutable>
    ttg.local_store %b, %out2 : tensor<64x64xf16, #blocked> -> !ttg.memdesc<64x64xf16, #shared, #smem, mutable>
"""
KEEP = "    %a = arith.addf %v, %v : tensor<64x64xf16, #blocked>\n"


def body(first: str, second: str, place: str, between: str = "") -> str:
    slots = PLACES[place]
    lines = [HEAD]
    for access, slot, name in ((first, slots[0], "a"), (second, slots[1], "b")):
        if name == "b":
            lines.append(between)
        lines.append("    " + ACCESSES[access].format(slot=slot, name=name))
        if access not in ("READ", "RELAXED_READ"):
            lines.append(KEEP.replace("%a", f"%{name}"))
    return "\n".join(lines) + TAIL


def barriers_between(text: str, allocate: Any) -> int:
    """Barriers between the two accesses of the lowered module."""
    mod = bridge.parse_text(print_module(module(text)), bridge.new_context())
    from triton._C.libtriton import amd, ir, passes

    manager = ir.pass_manager(mod.context)
    amd.passes.ttgpuir.add_update_async_wait_count(manager, "gfx950")
    passes.convert.add_scf_to_cf(manager)
    allocate(manager)
    if hasattr(amd.passes.ttgpuir, "add_membar"):
        amd.passes.ttgpuir.add_membar(manager, "gfx950")
        manager.run(mod, "membar")
        wanted, found = r"ttg\.barrier|local_load|local_store|buffer_load_to_local", mod.str_nodebug()
    else:
        passes.convert.add_index_to_llvmir(manager)
        amd.passes.ttgpuir.add_to_llvmir(manager, "gfx950", True)
        manager.run(mod, "lower")
        wanted, found = (
            r"rocdl\.s\.barrier|rocdl\.barrier|llvm\.load|llvm\.store|buffer\.load\.\S*lds",
            mod.str_nodebug(),
        )
    kinds = ["barrier" if "barrier" in m else "access" for m in re.findall(wanted, found)]
    runs = [k for i, k in enumerate(kinds) if i == 0 or k == "barrier" or kinds[i - 1] == "barrier"]
    return runs.count("barrier") - 1  # the fence before the tail


def allocation(manager: Any) -> None:
    from triton._C.libtriton import amd

    add = amd.passes.ttgpuir.add_allocate_shared_memory
    add(manager, "gfx950") if bridge.triton_version() >= (3, 8) else add(manager)


if __name__ == "__main__":
    found = {}
    for place in PLACES:
        for first in ACCESSES:
            for second in ACCESSES:
                found[f"{first} {second} {place}"] = barriers_between(body(first, second, place), allocation)
    found["wait"] = barriers_between(body("ASYNC_WRITE", "RELAXED_READ", "same", "    @wait(0)\n"), allocation)
    found["wait and fence"] = barriers_between(
        body("ASYNC_WRITE", "RELAXED_READ", "same", "    @wait(0)\n    @fence\n"), allocation
    )
    print("@result " + json.dumps(found))
