"""Waits, arrivals and rendezvous between some waves of a workgroup, as functions in MLIR's LLVM dialect.

``passes/lower_tasks.py`` puts them into a module, and calls to them where stock lowering left what the target lacks.
LLVM inlines them. They are convergent and start with a convergent operation, or LLVM would copy them into the branches
of a divergent condition before them, and one part of a wave would wait for the other.

Memory order: an arrival comes after everything the wave did to LDS (the release fence: all LDS operations waited for),
and what stands behind a wait or a rendezvous comes after the arrivals it waited for (the poll is an atomic load, with
an acquire fence behind it).

A barrier is one dword in LDS that counts arrivals of waves from 0 to 2N-1 and round again, N completing a phase; its
phase is 0 below N and 1 from N on. One lane arrives, by ``ds_inc_u32``, which wraps in the same operation.
"""

from __future__ import annotations

WAIT, ARRIVE, RENDEZVOUS, WAVE_ID, OBJECT_WAIT = (
    "amdwarp_barrier_wait",
    "amdwarp_barrier_arrive",
    "amdwarp_rendezvous",
    "amdwarp_wave_id",
    "amdwarp_barrier_object_wait",
)

_ATTRIBUTES = 'attributes {always_inline, passthrough = ["convergent"]}'
_LANE_0 = """
    %none = llvm.mlir.constant(-1 : i32) : i32
    %zero = llvm.mlir.constant(0 : i32) : i32
    %one = llvm.mlir.constant(1 : i32) : i32
    %low = rocdl.mbcnt.lo %none, %zero : (i32, i32) -> i32
    %lane = rocdl.mbcnt.hi %none, %low : (i32, i32) -> i32
    %first = llvm.icmp "eq" %lane, %zero : i32
    %twice = llvm.add %count, %count : i32
    %last = llvm.sub %twice, %one : i32
"""

COUNTERS = (
    """
  llvm.func internal @amdwarp_wave_id() -> i32 ATTRIBUTES {
    %shift = llvm.mlir.constant(WAVE_BITS : i32) : i32
    %thread = rocdl.workitem.id.x : i32
    %wave = llvm.lshr %thread, %shift : i32
    %uniform = rocdl.readfirstlane %wave : i32
    llvm.return %uniform : i32
  }
  llvm.func internal @amdwarp_barrier_wait(%barrier: !llvm.ptr<3>, %code: i32) ATTRIBUTES {
    rocdl.wave.barrier
    %one = llvm.mlir.constant(1 : i32) : i32
    %phase = llvm.and %code, %one : i32
    %count = llvm.lshr %code, %one : i32
    llvm.br ^poll
  ^poll:
    %word = llvm.load %barrier atomic syncscope("workgroup") monotonic {alignment = 4 : i64} : !llvm.ptr<3> -> i32
    %now = rocdl.readfirstlane %word : i32
    %high = llvm.icmp "uge" %now, %count : i32
    %current = llvm.zext %high : i1 to i32
    %done = llvm.icmp "ne" %current, %phase : i32
    llvm.cond_br %done, ^done, ^sleep
  ^sleep:
    rocdl.s.sleep 1
    llvm.br ^poll
  ^done:
    llvm.fence syncscope("workgroup") acquire
    llvm.return
  }
  llvm.func internal @amdwarp_barrier_arrive(%barrier: !llvm.ptr<3>, %count: i32) ATTRIBUTES {
    rocdl.wave.barrier
    llvm.fence syncscope("workgroup") release"""
    + _LANE_0
    + """
    llvm.cond_br %first, ^arrive, ^done
  ^arrive:
    %old = llvm.atomicrmw uinc_wrap %barrier, %last syncscope("workgroup") monotonic : !llvm.ptr<3>, i32
    llvm.br ^done
  ^done:
    llvm.return
  }
  llvm.func internal @amdwarp_rendezvous(%barrier: !llvm.ptr<3>, %count: i32) ATTRIBUTES {
    rocdl.wave.barrier
    llvm.fence syncscope("workgroup") release"""
    + _LANE_0
    + """
    llvm.cond_br %first, ^arrive, ^arrived(%zero : i32)
  ^arrive:
    %old = llvm.atomicrmw uinc_wrap %barrier, %last syncscope("workgroup") monotonic : !llvm.ptr<3>, i32
    llvm.br ^arrived(%old : i32)
  ^arrived(%before: i32):
    %mine = rocdl.readfirstlane %before : i32
    %was = llvm.icmp "uge" %mine, %count : i32
    llvm.br ^poll
  ^poll:
    %word = llvm.load %barrier atomic syncscope("workgroup") monotonic {alignment = 4 : i64} : !llvm.ptr<3> -> i32
    %now = rocdl.readfirstlane %word : i32
    %is = llvm.icmp "uge" %now, %count : i32
    %done = llvm.icmp "ne" %is, %was : i1
    llvm.cond_br %done, ^done, ^sleep
  ^sleep:
    rocdl.s.sleep 1
    llvm.br ^poll
  ^done:
    llvm.fence syncscope("workgroup") acquire
    llvm.return
  }
"""
)
"""For gfx942 and gfx950."""

OBJECTS = """
  llvm.func internal @amdwarp_barrier_object_wait(%barrier: !llvm.ptr<3>, %phase: i32) ATTRIBUTES {
    rocdl.wave.barrier
    %one = llvm.mlir.constant(1 : i32) : i32
    %place = llvm.mlir.constant(29 : i32) : i32
    %parity = llvm.and %phase, %one : i32
    llvm.br ^poll
  ^poll:
    %word = llvm.load %barrier atomic syncscope("workgroup") monotonic {alignment = 8 : i64} : !llvm.ptr<3> -> i32
    %now = rocdl.readfirstlane %word : i32
    %moved = llvm.lshr %now, %place : i32
    %current = llvm.and %moved, %one : i32
    %done = llvm.icmp "ne" %current, %parity : i32
    llvm.cond_br %done, ^done, ^sleep
  ^sleep:
    rocdl.s.sleep 1
    llvm.br ^poll
  ^done:
    llvm.fence syncscope("workgroup") acquire
    llvm.return
  }
"""
"""For gfx1250, whose barrier objects the hardware counts: phase in bit 29, as Triton initialises them."""


def functions(arch: str) -> str:
    """The functions a target needs, as the text of a module."""
    body = OBJECTS if arch == "gfx1250" else COUNTERS.replace("WAVE_BITS", "6")
    return f"module {{{body.replace('ATTRIBUTES', _ATTRIBUTES)}}}"
