"""The wait counters of gfx1250: one for each kind of operation, each with its own wait instruction.

Loads, stores, LDS operations, copies to and from LDS and tensor copies come back in order within their counter, so that
a wait for at most N delivers all but the newest N. Scalar loads come back in any order: only a wait for 0 delivers
them. Counters after the AMDGPU back end's list of gfx12 and gfx1250 wait events. XCNT counts address translations,
which change no result, and so do the hints on issue (``s_delay_alu``, ``s_wait_alu``, ``s_clause``).
"""

from __future__ import annotations

from amdwarp.asm import Immediate, Symbol
from amdwarp.emulator.bind import Binder, handles
from amdwarp.emulator.state import QUEUES, Batch, Closure

#: Wait instruction to the queue it drains.
IN_ORDER = {
    "s_wait_loadcnt": "vm",
    "s_wait_storecnt": "st",
    "s_wait_dscnt": "ds",
    "s_wait_asynccnt": "asynchronous",
    "s_wait_tensorcnt": "tensor",
}
#: Counters of operations that the emulator has none of.
EMPTY = ("s_wait_xcnt", "s_wait_expcnt", "s_wait_samplecnt", "s_wait_bvhcnt")


def limit_of(binder: Binder) -> int:
    """The number that the instruction's only operand must be."""
    binder.need(1)
    op = binder.ops[0]
    if not isinstance(op, Immediate) or not isinstance(op.value, int) or op.value < 0:
        raise binder.fail("a number expected")
    return op.value


def drain_all(b: Batch) -> None:
    """Deliver everything that is under way."""
    for name in QUEUES:
        b.drain(getattr(b, name), 0)


@handles(*IN_ORDER)
def bind_wait(binder: Binder) -> Closure:
    """Wait until at most the given number of operations is under way."""
    name, limit = IN_ORDER[binder.inst.base], limit_of(binder)
    return lambda b: b.drain(getattr(b, name), limit)


@handles("s_wait_kmcnt")
def bind_wait_scalar(binder: Binder) -> Closure:
    """Wait for scalar loads; only 0 says anything of a particular one."""
    limit = limit_of(binder)
    return lambda b: b.drain(b.sm, 0) if limit == 0 else None


@handles("s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt")
def bind_wait_two(binder: Binder) -> Closure:
    """Two waits: the LDS count in bits 0-5, the other in bits 8-13."""
    name = "vm" if "load" in binder.inst.base else "st"
    both = limit_of(binder)

    def run(b: Batch) -> None:
        b.drain(getattr(b, name), both >> 8 & 63)
        b.drain(b.ds, both & 63)

    return run


@handles("s_wait_idle")
def bind_wait_idle(binder: Binder) -> Closure:
    """Wait for everything."""
    binder.need(0)
    return drain_all


@handles(*EMPTY)
def bind_wait_nothing(binder: Binder) -> Closure:
    """A counter that covers no data."""
    limit_of(binder)
    return lambda b: None


@handles("s_delay_alu", "s_wait_alu", "s_clause", "s_code_end", "s_monitor_sleep")
def bind_issue_hint(binder: Binder) -> Closure:
    """Timing only."""
    return lambda b: None


@handles("s_set_vgpr_msb")
def bind_high_bits(binder: Binder) -> Closure:
    """Upper bits of the register numbers that follow: the text has the whole numbers, so nothing is left to do."""
    binder.need(1)
    return lambda b: None


#: Messages that change no result of the kernel itself.
_MESSAGES = ("sendmsg(MSG_DEALLOC_VGPRS)", "sendmsg(MSG_INTERRUPT)")


@handles("s_sendmsg")
def bind_message(binder: Binder) -> Closure:
    """A message to the dispatcher."""
    binder.need(1)
    op = binder.ops[0]
    if not isinstance(op, Symbol) or op.name not in _MESSAGES:
        raise binder.fail("this message is not known")
    return lambda b: None


@handles(
    *("global_prefetch_b8", "flat_prefetch_b8", "global_wb", "global_wbinv", "global_inv"),
    *("s_prefetch_inst", "s_prefetch_inst_pc_rel", "s_prefetch_data", "s_prefetch_data_pc_rel"),
)
def bind_cache(binder: Binder) -> Closure:
    """Caches are not modelled: memory is coherent."""
    binder.ignore("th", "scope", "nv", "offset", "scale_offset")
    return lambda b: None
