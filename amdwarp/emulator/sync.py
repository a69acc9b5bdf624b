"""Waits, barriers, branches and what changes no state."""

from __future__ import annotations

from amdwarp.asm import Immediate, Symbol
from amdwarp.asm.program import EXEC, VCC
from amdwarp.emulator.barriers import wave_ended
from amdwarp.emulator.bind import Binder, handles
from amdwarp.emulator.counters import drain_all
from amdwarp.emulator.hardware import mode_field
from amdwarp.emulator.mbarrier import complete_notifying
from amdwarp.emulator.memory import Fault
from amdwarp.emulator.state import AT_BARRIER, ENDED, STOP, Batch, Closure, Scalar, SplitError, expand


def wait(b: Batch, vm: int | None, lgkm: int | None) -> None:
    """Deliver what ``vmcnt(vm)`` and ``lgkmcnt(lgkm)`` cover.

    Vector memory and LDS operations come back in order. Scalar loads do not, so they are delivered by lgkmcnt(0) only,
    and with some under way a count says of the LDS operations no more than without them.
    """
    if vm is not None:
        b.drain(b.vm, vm)
    if lgkm is not None:
        b.drain(b.ds, lgkm)
        if lgkm == 0:
            b.drain(b.sm, 0)


@handles("s_waitcnt")
def bind_wait(binder: Binder) -> Closure:
    """Wait until at most the given numbers of operations are under way."""
    vm, lgkm = binder.take("vmcnt", None), binder.take("lgkmcnt", None)
    binder.take("expcnt", None)
    if binder.ops:
        if len(binder.ops) != 1 or not isinstance(binder.ops[0], Immediate):
            raise binder.fail("counters or one number expected")
        code = int(binder.ops[0].value)
        vm, lgkm = code & 15 | (code >> 14 & 3) << 4, code >> 8 & 15
    # A counter at its largest value holds back the next operation, so that no more than 63 (15) are ever under way:
    # LLVM's wait insertion relies on it and writes vmcnt(63) before the use of the oldest of 64 loads.
    return lambda b: wait(b, vm, lgkm)


@handles("s_barrier")
def bind_barrier(binder: Binder) -> Closure:
    """Hold the batch until every live wave of the workgroup is at some barrier."""
    binder.need(0)
    after = binder.inst.index + 1

    def run(b: Batch) -> int:
        b.pc, b.state = after, AT_BARRIER
        return STOP

    return run


@handles("s_endpgm")
def bind_end(binder: Binder) -> Closure:
    """End the waves; what they have under way is completed."""
    at = binder.inst.index

    def run(b: Batch) -> int:
        drain_all(b)
        b.pc, b.state = at, ENDED
        wave_ended(b)
        return STOP

    return run


def _target(binder: Binder) -> int:
    binder.need(1)
    op = binder.ops[0]
    assert isinstance(op, Symbol)
    return binder.program.labels[op.name]


@handles("s_branch")
def bind_branch(binder: Binder) -> Closure:
    """Jump."""
    target = _target(binder)
    return lambda b: target


def _jump(b: Batch, taken: Scalar, wanted: int, target: int, after: int) -> int | None:
    if isinstance(taken, int):
        return target if (taken != 0) == wanted else None
    raise SplitError([target if (flag != 0) == wanted else after for flag in taken])


@handles("s_cbranch_scc0", "s_cbranch_scc1")
def bind_branch_scc(binder: Binder) -> Closure:
    """Jump where SCC is 0 or 1."""
    target, wanted, after = _target(binder), int(binder.inst.base[-1]), binder.inst.index + 1

    def run(b: Batch) -> int | None:
        scc = b.scc
        if scc == 0 or scc == 1:
            return target if scc == wanted else None
        return _jump(b, scc, wanted, target, after)

    return run


@handles("s_cbranch_vccz", "s_cbranch_vccnz", "s_cbranch_execz", "s_cbranch_execnz")
def bind_branch_mask(binder: Binder) -> Closure:
    """Jump where vcc or exec is zero or not."""
    target, after = _target(binder), binder.inst.index + 1
    wanted = int(binder.inst.base.endswith("nz"))
    index = VCC if "vcc" in binder.inst.base else EXEC
    wide = binder.lanes == 64

    def run(b: Batch) -> int | None:
        value = b.pair(index) if wide else b.s[index]
        flags: Scalar = int(value != 0) if isinstance(value, int) else tuple(int(x != 0) for x in expand(value, b.n))
        if isinstance(flags, tuple) and len(set(flags)) == 1:
            flags = flags[0]
        return _jump(b, flags, wanted, target, after)

    return run


@handles("s_setreg_imm32_b32", "s_setreg_b32")
def bind_set_mode(binder: Binder) -> Closure:
    """Write a field of MODE; other hardware registers are not known."""
    binder.need(2)
    op = binder.ops[0]
    if isinstance(op, Symbol) and op.name.startswith("hwreg(HW_REG_WAVE_SCHED_MODE,"):
        return lambda b: None
    field = mode_field(op.name) if isinstance(op, Symbol) else None
    if field is None:
        raise binder.fail("the emulator knows the fields of HW_REG_MODE only")
    offset, size = field
    mask = (1 << size) - 1
    get = binder.scalar_source(1)

    def run(b: Batch) -> None:
        value = get(b)
        if not isinstance(value, int):
            raise Fault("the waves of a batch set MODE differently", remedy="launch with lockstep=1")
        b.mode = b.mode & ~(mask << offset) | (value & mask) << offset

    return run


@handles("s_sleep")
def bind_sleep(binder: Binder) -> Closure:
    """Let the other waves go on; what no wave waits for completes meanwhile."""
    after = binder.inst.index + 1

    def run(b: Batch) -> int:
        complete_notifying(b.group)
        b.pc = after
        b.slept += 1
        return STOP

    return run


@handles("s_nop", "s_setprio", "s_icache_inv", "s_incperflevel", "s_decperflevel", "s_ttracedata")
def bind_hint(binder: Binder) -> Closure:
    """Timing and priority: no effect on what is computed."""
    return lambda b: None


_CACHES = (
    *("buffer_wbl2", "buffer_inv", "buffer_wbinvl1", "buffer_wbinvl1_vol", "s_dcache_inv", "s_dcache_wb"),
    *("s_dcache_inv_vol", "s_dcache_wb_vol", "s_dcache_discard", "s_dcache_discard_x2"),
    *("s_atc_probe", "s_atc_probe_buffer"),
)


@handles(*_CACHES)
def bind_cache(binder: Binder) -> Closure:
    """Caches are not modelled: memory is coherent."""
    binder.ignore("sc0", "sc1", "nt", "offset", "glc")
    return lambda b: None
