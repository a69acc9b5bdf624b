"""Builders for the ops that passes insert, spelt as the installed Triton reads them.

Each returns a detached op. Give it the ``loc`` of the op it belongs to, or insert it through ``rewriter.Builder``,
which gives an op without one its anchor's. ``version`` is (major, minor) of the Triton that will read the module, the
installed one by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

from amdwarp.errors import UnsupportedTritonError

from . import bridge
from .ir import Op, Value


class Mask(IntFlag):
    """Instruction classes, with the bits of LLVM's scheduling barriers.

    In ``sched_barrier`` the mask says what *may* cross (NONE: nothing), in ``sched_group_barrier`` what the group is
    of. VALU does not include MFMA nor TRANS; a buffer load to LDS counts as VMEM.
    """

    NONE = 0
    ALU = 1
    VALU = 2
    SALU = 4
    MFMA = 8
    VMEM = 16
    VMEM_READ = 32
    VMEM_WRITE = 64
    DS = 128
    DS_READ = 256
    DS_WRITE = 512
    TRANS = 1024
    LDSDMA = 2048


_MASK_WORDS: dict[Mask, str] = {
    Mask.ALU: "non_mem_non_sideeffect",
    Mask.VALU: "valu",
    Mask.SALU: "salu",
    Mask.MFMA: "mfma_wmma",
    Mask.VMEM: "all_vmem",
    Mask.VMEM_READ: "vmem_read",
    Mask.VMEM_WRITE: "vmem_write",
    Mask.DS: "all_ds",
    Mask.DS_READ: "ds_read",
    Mask.DS_WRITE: "ds_write",
    Mask.TRANS: "transcendental",
    Mask.LDSDMA: "ldsdma",
}
_ALL = Mask((1 << len(_MASK_WORDS)) - 1)


@dataclass(frozen=True)
class MaskSpelling:
    """How a Triton version takes scheduling masks.

    Attributes:
        enum: as enum words rather than as a 32-bit integer.
        bits: all bits its LLVM knows; one outside of them aborts the process.
    """

    enum: bool
    bits: Mask


SPELLINGS: dict[tuple[int, int], MaskSpelling] = {
    (3, 7): MaskSpelling(enum=False, bits=_ALL & ~Mask.LDSDMA),
    (3, 8): MaskSpelling(enum=False, bits=_ALL),
    (3, 9): MaskSpelling(enum=True, bits=_ALL),
}

PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
"""``arith.cmpi`` predicates in the order of their numbers."""

BARRIER_SPACES = {"none": 0, "local": 1, "global_read": 2, "global_write": 4, "tensor_read": 8, "tensor_write": 16}
"""Memory whose accesses ``ttg.barrier`` also completes, as bits."""


def as_mask(mask: Mask | int | str) -> Mask:
    """A mask from its bits, or from words joined by ``|``: ``"none"``, ``"all"`` or those of :data:`_MASK_WORDS`."""
    if isinstance(mask, str):
        bits = {word: bit for bit, word in _MASK_WORDS.items()} | {"none": Mask.NONE, "all": _ALL}
        result = Mask.NONE
        for word in mask.split("|"):
            if word.strip() not in bits:
                raise ValueError(f"no scheduling mask is called {word.strip()!r}; there are {', '.join(bits)}")
            result |= bits[word.strip()]
        return result
    if int(mask) & ~int(_ALL):
        raise ValueError(f"scheduling mask {int(mask):#x} has bits outside of {int(_ALL):#x}")
    return Mask(mask)


def mask_attribute(mask: Mask | int | str, version: tuple[int, int] | None = None) -> str:
    """The text of a scheduling mask attribute."""
    version = version or bridge.triton_version()
    name = f"Triton {version[0]}.{version[1]}"
    spelling = SPELLINGS.get(version)
    if spelling is None:
        raise UnsupportedTritonError(f"no spelling of scheduling masks is known for {name}")
    bits = spelling.bits if mask == "all" else as_mask(mask)
    if bits & ~spelling.bits:
        raise UnsupportedTritonError(f"{name} does not know the scheduling mask {_words(bits & ~spelling.bits)}")
    return f"#rocdl<sched_group_mask {_words(bits)}>" if spelling.enum else f"{int(bits)} : i32"


def _words(mask: Mask) -> str:
    if mask in (Mask.NONE, _ALL):
        return "all" if mask else "none"
    return "|".join(word for bit, word in _MASK_WORDS.items() if mask & bit)


def mask_of(op: Op) -> Mask:
    """The mask of a ``rocdl.sched.barrier`` or ``rocdl.sched.group.barrier``, however it is spelt."""
    text = op.properties["mask"]
    if not text.startswith("#rocdl<sched_group_mask "):
        return Mask(int(text.partition(" :")[0]))
    return as_mask(text.removeprefix("#rocdl<sched_group_mask ").removesuffix(">"))


def sched_barrier(
    mask: Mask | int | str = Mask.NONE, *, loc: str | None = None, version: tuple[int, int] | None = None
) -> Op:
    """A wall for LLVM's scheduler; only instructions of the classes in ``mask`` may cross it."""
    return Op("rocdl.sched.barrier", properties={"mask": mask_attribute(mask, version)}, loc=loc)


def sched_group_barrier(
    mask: Mask | int | str,
    size: int,
    sync_id: int = 0,
    *,
    loc: str | None = None,
    version: tuple[int, int] | None = None,
) -> Op:
    """Ask for the next ``size`` instructions of the classes in ``mask``; groups of one ``sync_id`` form a sequence."""
    if size < 1:
        raise ValueError(f"a scheduling group has at least one instruction, not {size}")
    properties = {"groupId": f"{sync_id} : i32", "mask": mask_attribute(mask, version), "size": f"{size} : i32"}
    return Op("rocdl.sched.group.barrier", properties=properties, loc=loc)


def s_setprio(priority: int, *, loc: str | None = None) -> Op:
    """Set the wave's issue priority, 0 (normal) to 3."""
    if not 0 <= priority <= 3:
        raise ValueError(f"a wave priority is 0 to 3, not {priority}")
    return Op("rocdl.s.setprio", properties={"priority": f"{priority} : i16"}, loc=loc)


def s_barrier(*, loc: str | None = None) -> Op:
    """A bare rendezvous of the work group's waves: it completes no memory access."""
    return Op("rocdl.s.barrier", loc=loc)


def cond_barrier(predicate: Value, *, loc: str | None = None) -> Op:
    """A barrier that only waves with a true ``predicate`` (an i1, uniform in a wave) execute."""
    return Op("amdg.cond_barrier", [predicate], loc=loc)


def local_barrier(*, loc: str | None = None) -> Op:
    """A barrier before which every wave's LDS accesses are complete."""
    return barrier("local", loc=loc)


def barrier(*spaces: str, loc: str | None = None) -> Op:
    """``ttg.barrier`` over the named memory, the keys of :data:`BARRIER_SPACES`."""
    bits = 0
    for space in spaces:
        bits |= BARRIER_SPACES[space]
    return Op("ttg.barrier", properties={"addrSpace": f"{bits} : i32"}, loc=loc)


def thread_id(*, loc: str | None = None) -> Op:
    """The thread's index in its work group, an i32, as stock Triton's warp pipelining takes it."""
    return Op("rocdl.workitem.id.x", result_types=["i32"], loc=loc)


def constant(value: int | bool | str, type: str = "i32", *, loc: str | None = None) -> Op:
    """``arith.constant``; a string is the attribute's text, without its type, such as ``dense<0.0>``."""
    if type == "i1" and not isinstance(value, str):
        return Op("arith.constant", result_types=[type], properties={"value": "true" if value else "false"}, loc=loc)
    return Op("arith.constant", result_types=[type], properties={"value": f"{value} : {type}"}, loc=loc)


def cmpi(predicate: str, left: Value, right: Value, *, loc: str | None = None) -> Op:
    """``arith.cmpi`` on scalars; ``predicate`` is one of :data:`PREDICATES`."""
    properties = {"predicate": f"{PREDICATES.index(predicate)} : i64"}
    return Op("arith.cmpi", [left, right], ["i1"], properties=properties, loc=loc)


def divsi(left: Value, right: Value, *, loc: str | None = None) -> Op:
    """Signed division, rounding to zero."""
    return Op("arith.divsi", [left, right], [left.type], loc=loc)


def remsi(left: Value, right: Value, *, loc: str | None = None) -> Op:
    """Remainder of :func:`divsi`."""
    return Op("arith.remsi", [left, right], [left.type], loc=loc)


_OVERFLOW = {"overflowFlags": "#arith.overflow<none>"}


def addi(left: Value, right: Value, *, loc: str | None = None) -> Op:
    return Op("arith.addi", [left, right], [left.type], properties=_OVERFLOW, loc=loc)


def subi(left: Value, right: Value, *, loc: str | None = None) -> Op:
    return Op("arith.subi", [left, right], [left.type], properties=_OVERFLOW, loc=loc)


def muli(left: Value, right: Value, *, loc: str | None = None) -> Op:
    return Op("arith.muli", [left, right], [left.type], properties=_OVERFLOW, loc=loc)


def andi(left: Value, right: Value, *, loc: str | None = None) -> Op:
    return Op("arith.andi", [left, right], [left.type], loc=loc)


def async_commit_group(tokens: tuple[Value, ...] = (), *, loc: str | None = None) -> Op:
    return Op("ttg.async_commit_group", tokens, ["!ttg.async.token"], loc=loc)


def async_wait(groups: int, tokens: tuple[Value, ...] = (), *, loc: str | None = None) -> Op:
    """Wait until at most ``groups`` committed groups of asynchronous copies are outstanding."""
    return Op("ttg.async_wait", tokens, ["!ttg.async.token"], properties={"num": f"{groups} : i32"}, loc=loc)
