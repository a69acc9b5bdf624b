"""What this package knows of each op of Triton's AMD dialects: kind, memory effects, and the pipe that executes it.

The tables say it all; the functions at the end look an op up in them. An op that is in no table is ``UNKNOWN``: it may
touch any memory and nothing moves across it. The builders of ops whose spelling differs between Triton versions are
in ``spelling.py``, and are found here too (``dialect.sched_barrier(…)``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from .ir import Op
from .spelling import BARRIER_SPACES as BARRIER_SPACES
from .spelling import PREDICATES as PREDICATES
from .spelling import Mask as Mask
from .spelling import addi as addi
from .spelling import andi as andi
from .spelling import async_commit_group as async_commit_group
from .spelling import async_wait as async_wait
from .spelling import barrier as barrier
from .spelling import cmpi as cmpi
from .spelling import cond_barrier as cond_barrier
from .spelling import constant as constant
from .spelling import divsi as divsi
from .spelling import local_barrier as local_barrier
from .spelling import mask_of as mask_of
from .spelling import muli as muli
from .spelling import remsi as remsi
from .spelling import s_barrier as s_barrier
from .spelling import s_setprio as s_setprio
from .spelling import sched_barrier as sched_barrier
from .spelling import sched_group_barrier as sched_group_barrier
from .spelling import subi as subi
from .spelling import thread_id as thread_id


class Kind(Enum):
    """What an op is for; passes branch on this rather than on names."""

    PURE = "pure"
    VIEW = "view"  # a name for a part of an LDS allocation
    ALLOC = "alloc"  # LDS or scratch allocation, its release too
    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"
    COPY = "copy"  # issue of an asynchronous copy
    COMMIT = "commit"  # closes a group of asynchronous copies
    WAIT = "wait"  # waits for asynchronous copies
    BARRIER = "barrier"  # rendezvous of waves
    MFMA = "mfma"  # a matrix multiply, whichever unit the target has for it
    SCHED = "sched"  # acts on instruction order or wave priority only
    HINT = "hint"  # a promise to the compiler; does nothing
    CONTROL = "control"  # regions, branches, calls of known bodies, terminators
    UNKNOWN = "unknown"


class Space(Enum):
    LDS = "lds"
    GLOBAL = "global"


class Pipe(Enum):
    """The unit that executes the op's machine instructions."""

    MFMA = "mfma"
    VALU = "valu"
    SALU = "salu"
    DS = "ds"
    VMEM = "vmem"
    TDM = "tdm"  # gfx1250's tensor data mover


_NONE: frozenset[Space] = frozenset()
_LDS, _GLOBAL, _BOTH = frozenset({Space.LDS}), frozenset({Space.GLOBAL}), frozenset(Space)


@dataclass(frozen=True)
class OpInfo:
    """One row of the table.

    Attributes:
        kind: what the op is for.
        reads, writes: memory it reads and writes, at issue or later if it is asynchronous.
        pipe: where it executes, None if it emits nothing or that depends on its operands (see :func:`pipe`).
        ordered: nothing that touches memory may cross it.
        pinned: nothing at all may cross it, and it may not move.
        scratch: its lowering may stage through LDS of its own, with barriers, so it costs DS time and synchronises.
    """

    kind: Kind
    reads: frozenset[Space] = _NONE
    writes: frozenset[Space] = _NONE
    pipe: Pipe | None = None
    ordered: bool = False
    pinned: bool = False
    scratch: bool = False


UNKNOWN = OpInfo(Kind.UNKNOWN, _BOTH, _BOTH, ordered=True, pinned=True)

_PURE = OpInfo(Kind.PURE)
_FREE = OpInfo(Kind.VIEW)
_VALU = OpInfo(Kind.PURE, pipe=Pipe.VALU)
_SALU = OpInfo(Kind.PURE, pipe=Pipe.SALU)
_STAGED = OpInfo(Kind.PURE, pipe=Pipe.VALU, scratch=True)
_DOT = OpInfo(Kind.MFMA, pipe=Pipe.MFMA)
_CONTROL = OpInfo(Kind.CONTROL)
_SCHED = OpInfo(Kind.SCHED, pinned=True)
_HINT = OpInfo(Kind.HINT)
_ALLOC = OpInfo(Kind.ALLOC)
_RELEASE = OpInfo(Kind.ALLOC, ordered=True)
_BARRIER = OpInfo(Kind.BARRIER, ordered=True)
_LDS_BARRIER = OpInfo(Kind.BARRIER, _LDS, _LDS, Pipe.DS, ordered=True)  # an mbarrier word in LDS
_WAIT = OpInfo(Kind.WAIT, ordered=True)
_COMMIT = OpInfo(Kind.COMMIT, ordered=True)
_LOAD = OpInfo(Kind.LOAD, _GLOBAL, pipe=Pipe.VMEM)
_STORE = OpInfo(Kind.STORE, writes=_GLOBAL, pipe=Pipe.VMEM)
_ATOMIC = OpInfo(Kind.ATOMIC, _GLOBAL, _GLOBAL, Pipe.VMEM, ordered=True)
_DS_LOAD = OpInfo(Kind.LOAD, _LDS, pipe=Pipe.DS)
_DS_STORE = OpInfo(Kind.STORE, writes=_LDS, pipe=Pipe.DS)
_DS_ATOMIC = OpInfo(Kind.ATOMIC, _LDS, _LDS, Pipe.DS, ordered=True)
_COPY_IN = OpInfo(Kind.COPY, _GLOBAL, _LDS, Pipe.VMEM)
_COPY_OUT = OpInfo(Kind.COPY, _LDS, _GLOBAL, Pipe.VMEM)
_TDM_IN = OpInfo(Kind.COPY, _GLOBAL, _LDS, Pipe.TDM)
_TDM_OUT = OpInfo(Kind.COPY, _LDS, _GLOBAL, Pipe.TDM)
_EFFECT = OpInfo(Kind.UNKNOWN, writes=_GLOBAL, ordered=True)  # observable, yet no motion of arithmetic is unsafe

_ROWS: tuple[tuple[OpInfo, str], ...] = (
    # tt: the front end's dialect, much of which is still there in TTGIR
    (_VALU, "tt.addptr tt.bitcast tt.clampf tt.fp_to_fp tt.int_to_ptr tt.ptr_to_int tt.mulhiui tt.precise_divf"),
    (_VALU, "tt.precise_sqrt tt.approx_divf tt.make_range"),
    (_PURE, "tt.broadcast tt.expand_dims tt.join tt.split tt.splat tt.unsplat tt.trans tt.reshape tt.cat"),
    (_PURE, "tt.make_tensor_ptr tt.advance tt.make_tensor_descriptor"),
    (_SALU, "tt.get_program_id tt.get_num_programs"),
    (_STAGED, "tt.reduce tt.scan tt.gather tt.histogram"),
    (_LOAD, "tt.load tt.descriptor_load tt.descriptor_gather"),
    (_STORE, "tt.store tt.descriptor_store tt.descriptor_scatter"),
    (_ATOMIC, "tt.atomic_rmw tt.atomic_cas tt.atomic_load tt.atomic_store tt.atomic_poll tt.descriptor_reduce"),
    (_DOT, "tt.dot tt.dot_scaled"),
    (_CONTROL, "tt.func tt.return tt.reduce.return tt.scan.return tt.map_elementwise tt.map_elementwise.return"),
    (_EFFECT, "tt.print tt.assert"),
    (_BARRIER, "tt.grid_dependency_wait tt.grid_dependency_launch_dependents"),
    # ttg: Triton's GPU dialect
    (_ALLOC, "ttg.local_alloc ttg.global_scratch_alloc"),
    (_RELEASE, "ttg.local_dealloc"),
    (_FREE, "ttg.memdesc_index ttg.memdesc_subslice ttg.memdesc_trans ttg.memdesc_reshape"),
    (_FREE, "ttg.memdesc_reinterpret"),
    (_DS_LOAD, "ttg.local_load ttg.local_gather"),
    (_DS_STORE, "ttg.local_store ttg.local_scatter"),
    (_DS_ATOMIC, "ttg.local_atomic_scatter_rmw"),
    (_COPY_IN, "ttg.async_copy_global_to_local"),
    (_COMMIT, "ttg.async_commit_group"),
    (_WAIT, "ttg.async_wait"),
    (_BARRIER, "ttg.barrier"),
    (OpInfo(Kind.PURE, pipe=Pipe.DS, scratch=True), "ttg.convert_layout"),
    (_VALU, "ttg.fp4_to_fp"),
    (_SALU, "ttg.warp_id ttg.predicate_stage"),
    (_CONTROL, "ttg.mask ttg.mask.return ttg.warp_return ttg.warp_yield ttg.warp_specialize.partitions"),
    (OpInfo(Kind.CONTROL, ordered=True), "ttg.warp_specialize"),
    # gluon: gone before TTGIR, present in glir
    (_PURE, "gluon.set_auto_layout"),
    # amdg: Triton's AMD dialect
    (_LOAD, "amdg.buffer_load"),
    (_STORE, "amdg.buffer_store"),
    (_ATOMIC, "amdg.buffer_atomic_rmw amdg.buffer_atomic_cas"),
    (_COPY_IN, "amdg.buffer_load_to_local"),
    (_COPY_OUT, "amdg.async_copy_local_to_global"),
    (_WAIT, "amdg.async_wait amdg.async_tdm_wait amdg.async_tdm_intrinsic_wait amdg.memory_counter_wait"),
    (_TDM_IN, "amdg.async_tdm_copy_global_to_local amdg.async_tdm_fused_copy_global_to_local amdg.async_tdm_gather"),
    (_TDM_OUT, "amdg.async_tdm_copy_local_to_global amdg.async_tdm_scatter"),
    (OpInfo(Kind.LOAD, _GLOBAL, pipe=Pipe.VMEM), "amdg.tdm_prefetch"),
    (_SALU, "amdg.update_tensor_descriptor"),
    (_LDS_BARRIER, "amdg.init_barrier amdg.arrive_barrier amdg.wait_barrier"),
    (_LDS_BARRIER, "amdg.async_copy_mbarrier_arrive"),
    (_BARRIER, "amdg.cond_barrier amdg.cluster_barrier_arrive amdg.cluster_barrier_wait"),
    (_PURE, "amdg.concat amdg.extract_slice"),
    (_VALU, "amdg.in_thread_transpose amdg.upcast_mxfp amdg.scaled_upcast_fp4"),
    (_VALU, "amdg.scaled_upcast_fp8 amdg.scaled_downcast_fp4 amdg.scaled_downcast_fp8"),
    (_DS_LOAD, "amdg.local_load_packed_transposed amdg.local_load_packed_tranposed"),  # misspelt before 3.9
    (OpInfo(Kind.LOAD, _BOTH, pipe=Pipe.VMEM), "amdg.masked_load"),
    (OpInfo(Kind.STORE, writes=_BOTH, pipe=Pipe.VMEM), "amdg.masked_store"),
    (_SCHED, "amdg.instruction_sched_hint"),
    # rocdl: machine-level ops that passes place in TTGIR
    (_SCHED, "rocdl.sched.barrier rocdl.sched.group.barrier rocdl.iglp.opt rocdl.s.setprio rocdl.s.sleep rocdl.s.nop"),
    (_SCHED, "rocdl.wave.barrier"),
    (_BARRIER, "rocdl.s.barrier rocdl.barrier rocdl.s.barrier.signal rocdl.s.barrier.wait rocdl.s.barrier.signal.var"),
    (_BARRIER, "rocdl.s.barrier.join rocdl.s.barrier.leave rocdl.s.barrier.init rocdl.s.barrier.signal.isfirst"),
    (_WAIT, "rocdl.s.waitcnt rocdl.s.wait.loadcnt rocdl.s.wait.storecnt rocdl.s.wait.dscnt rocdl.s.wait.expcnt"),
    (_WAIT, "rocdl.s.wait.asynccnt rocdl.s.wait.tensorcnt rocdl.wait.asyncmark"),
    (_COMMIT, "rocdl.asyncmark"),
    (_SALU, "rocdl.readfirstlane rocdl.readlane rocdl.wave.id rocdl.ballot rocdl.wavefrontsize"),
    (_VALU, "rocdl.exp rocdl.exp2 rocdl.log rocdl.rcp rocdl.rsq rocdl.sqrt rocdl.sin rocdl.cos rocdl.tanh rocdl.fmed3"),
    (_VALU, "rocdl.mbcnt.lo rocdl.mbcnt.hi rocdl.update.dpp rocdl.permlane16.swap rocdl.permlane32.swap"),
    (_VALU, "rocdl.permlanex16 rocdl.permlane16.var rocdl.permlanex16.var"),
    (OpInfo(Kind.PURE, pipe=Pipe.DS), "rocdl.ds_bpermute rocdl.ds_swizzle"),
    (_LOAD, "rocdl.raw.ptr.buffer.load rocdl.raw.buffer.load"),
    (_STORE, "rocdl.raw.ptr.buffer.store rocdl.raw.buffer.store"),
    (_COPY_IN, "rocdl.raw.ptr.buffer.load.lds rocdl.raw.ptr.buffer.load.async.lds rocdl.global.load.lds"),
    (_COPY_IN, "rocdl.global.load.async.lds rocdl.load.to.lds rocdl.load.async.to.lds"),
    # gpu, scf, cf, ub, builtin, llvm
    (_SALU, "gpu.thread_id gpu.block_id gpu.block_dim gpu.grid_dim gpu.lane_id gpu.subgroup_id"),
    (_BARRIER, "gpu.barrier"),
    (_CONTROL, "scf.for scf.if scf.while scf.yield scf.condition scf.reduce scf.reduce.return scf.execute_region"),
    (_CONTROL, "scf.index_switch cf.br cf.cond_br cf.switch gpu.return ub.unreachable"),
    (_PURE, "ub.poison builtin.unrealized_conversion_cast llvm.mlir.constant llvm.mlir.undef llvm.mlir.poison"),
    (_PURE, "llvm.mlir.zero llvm.mlir.addressof"),
    (_CONTROL, "builtin.module llvm.func llvm.return llvm.br llvm.cond_br llvm.unreachable llvm.switch"),
    (_HINT, "llvm.intr.assume"),
    (_EFFECT, "cf.assert"),
)

_TABLE: dict[str, OpInfo] = {name: info for info, names in _ROWS for name in names.split()}

_PREFIXES: tuple[tuple[str, OpInfo], ...] = (
    # arith and math have no op with a side effect; a division by zero is undefined, not observed.
    ("arith.", _PURE),
    ("math.", _PURE),
    ("index.", _PURE),
    ("rocdl.workitem.id.", _VALU),
    ("rocdl.workgroup.id.", _SALU),
    ("rocdl.workgroup.dim.", _SALU),
    ("rocdl.grid.dim.", _SALU),
    ("rocdl.cluster.id.", _SALU),
    ("rocdl.cluster.workgroup.id.", _SALU),
    ("rocdl.mfma.", _DOT),
    ("rocdl.smfmac.", _DOT),
    ("rocdl.wmma.", _DOT),
    ("rocdl.swmmac.", _DOT),
    ("rocdl.cvt.", _VALU),
    ("rocdl.fdot2", _VALU),
    ("rocdl.dot4.", _VALU),
    ("rocdl.sdot", _VALU),
    ("rocdl.udot", _VALU),
    ("rocdl.sudot", _VALU),
    ("rocdl.ds.read.tr", _DS_LOAD),
    ("rocdl.ds.load.tr", _DS_LOAD),
    ("rocdl.global.load.tr", _LOAD),
    ("rocdl.global.load.async.to.lds.", _COPY_IN),
    ("rocdl.cluster.load.async.to.lds.", _COPY_IN),
    ("rocdl.global.store.async.from.lds.", _COPY_OUT),
    ("rocdl.tensor.load.to.lds", _TDM_IN),
    ("rocdl.tensor.store.from.lds", _TDM_OUT),
    ("rocdl.raw.ptr.buffer.atomic.", _ATOMIC),
    ("rocdl.raw.buffer.atomic.", _ATOMIC),
)

_ENDINGS = (
    "tt.return tt.reduce.return tt.scan.return tt.map_elementwise.return ttg.mask.return ttg.warp_return",
    "ttg.warp_yield ttg.warp_specialize.partitions scf.yield scf.condition scf.reduce scf.reduce.return",
    "cf.br cf.cond_br cf.switch gpu.return ub.unreachable llvm.return llvm.br llvm.cond_br llvm.switch",
    "llvm.unreachable",
)
TERMINATORS: frozenset[str] = frozenset(name for names in _ENDINGS for name in names.split())
"""Ops that may and must end a block. (``builtin.module`` and regions of unknown ops need none.)"""

# Opaque code that its author declared free of side effects, by the property that says so.
_DECLARED_PURE = frozenset({"tt.elementwise_inline_asm", "tt.extern_elementwise", "ttg.inline_asm"})


def info(op: Op) -> OpInfo:
    """What is known of ``op``; :data:`UNKNOWN` for an op in no table."""
    if op.name in _DECLARED_PURE:
        return _VALU if op.properties.get("pure") == "true" else UNKNOWN
    if op.name == "ttg.local_alloc" and op.operands:
        return OpInfo(Kind.ALLOC, writes=_LDS, pipe=Pipe.DS)
    return info_by_name(op.name)


def info_by_name(name: str) -> OpInfo:
    """The table's row for an op name, before its operands and attributes are looked at."""
    found = _TABLE.get(name)
    if found is None:
        found = next((row for prefix, row in _PREFIXES if name.startswith(prefix)), UNKNOWN)
    return found


def known_names() -> tuple[str, ...]:
    """The names in the table; more are known by their prefix."""
    return (*_TABLE, *sorted(_DECLARED_PURE))


def is_known(name: str) -> bool:
    return info_by_name(name) is not UNKNOWN or name in _DECLARED_PURE


def kind_of(op: Op) -> Kind:
    return info(op).kind


def pipe(op: Op) -> Pipe | None:
    """The pipe that executes ``op``; None if it emits no instruction of its own.

    Arithmetic goes by its type: on tensors VALU, on scalars (uniform in Triton) SALU.
    """
    known = info(op)
    if known.pipe is Pipe.VALU or (known.kind is Kind.PURE and known.pipe is None and _computes(op)):
        types = [v.type for v in (*op.results, *op.operands)]
        return Pipe.VALU if any(t.startswith(("tensor<", "vector<")) for t in types) else Pipe.SALU
    return known.pipe


def _computes(op: Op) -> bool:
    return op.name.startswith(("arith.", "math.", "index.")) and op.name != "arith.constant"


@dataclass(frozen=True)
class Effects:
    """What an op, with everything in its regions, does to memory and to motion; fields as in :class:`OpInfo`."""

    reads: frozenset[Space] = _NONE
    writes: frozenset[Space] = _NONE
    ordered: bool = False
    pinned: bool = False
    scratch: bool = False

    @property
    def memory(self) -> frozenset[Space]:
        return self.reads | self.writes


def effects(op: Op) -> Effects:
    """Effects of ``op`` and of all ops in its regions together."""
    rows = [info(inner) for inner in op.walk()]
    return Effects(
        frozenset().union(*(row.reads for row in rows)),
        frozenset().union(*(row.writes for row in rows)),
        any(row.ordered for row in rows),
        any(row.pinned for row in rows),
        any(row.scratch for row in rows),
    )


def is_pure(op: Op) -> bool:
    """No memory effect, nothing ordered, in the op and its regions: it may move wherever its operands allow."""
    known = effects(op)
    fixed = op.name in TERMINATORS or kind_of(op) is Kind.HINT
    return not (fixed or known.memory or known.ordered or known.pinned)


def may_swap(first: Op, second: Op) -> bool:
    """Whether two adjacent ops may be exchanged: no use of one by the other, no memory conflict, nothing pinned."""
    if first.name in TERMINATORS or second.name in TERMINATORS or uses_any(second, first.results):
        return False
    a, b = effects(first), effects(second)
    if a.pinned or b.pinned or (a.ordered and (b.memory or b.ordered)) or (b.ordered and a.memory):
        return False
    return not (a.writes & b.memory or b.writes & a.memory)


def uses_any(op: Op, values: Iterable[object]) -> bool:
    """Whether ``op`` or an op inside it has one of ``values`` as an operand."""
    wanted = set(values)
    return bool(wanted) and any(operand in wanted for inner in op.walk() for operand in inner.operands)
