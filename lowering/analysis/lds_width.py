"""How an LDS access of a whole tensor is cut into machine instructions: widths, transposed reads, merged pairs.

Code generation finds, for each wave, the longest run of registers that lie side by side in LDS and moves it by one
instruction of at most 128 bits. Afterwards LLVM's load/store optimizer joins two accesses of 32 or of 64 bits that
share their address register into one ``read2``/``write2`` instruction where both offsets fit its two 8-bit fields,
plainly or in steps of 64 elements.

Sources: Triton's ``lowerLdSt``, ``largestVectorisation`` and ``actionAdditiveStrides`` (its ``Utility.cpp`` and
``LayoutUtils.cpp``) and AMD ``MemoryOpToLLVM.cpp``; LLVM's ``SILoadStoreOptimizer.cpp``. The tests compare with the
produced text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .layouts import layout_of
from .linear import LANE, OFFSET, REGISTER, WARP, LinearLayout
from .types import TensorType

WIDEST = 128
PAIRED_BITS = (32, 64)
LARGEST_OFFSET = 0xFFFF
ALIGNED_ONLY = ("gfx942", "gfx950")  # LDS accesses of 128 bits need alignment


@dataclass(frozen=True)
class Accesses:
    """Instructions of one LDS access.

    Attributes:
        count: how many.
        bits: what each moves for one lane.
        transposed: whether lanes exchange data on the way (``ds_read_b64_tr_*``, ``ds_load_tr*``).
    """

    count: int
    bits: int
    transposed: bool = False


# arch -> element bits -> bits a lane of one transposed read
TRANSPOSED_BITS: dict[str, dict[int, int]] = {
    "gfx950": {16: 64, 8: 64},
    "gfx1250": {16: 128, 8: 64},
}


def reads(register: TensorType, memory: TensorType, arch: str) -> list[Accesses]:
    """Instructions that load ``memory``, an LDS view, into registers of type ``register``."""
    where = layout_of(register).over(_memory(register, memory)).without_zero(REGISTER)
    if found := _transposed(where, register, memory, arch):
        return [found]
    return _plain(where, memory, arch)


def writes(register: TensorType, memory: TensorType, arch: str) -> list[Accesses]:
    """Instructions that store registers of type ``register`` to ``memory``."""
    where = layout_of(register).over(_memory(register, memory)).without_zero(REGISTER)
    return _plain(where, memory, arch)


def _memory(register: TensorType, memory: TensorType) -> LinearLayout:
    """The layout of the view, cut down to the part of the allocation that the view covers."""
    full = layout_of(memory)
    sizes = dict(zip(full.outs, register.shape, strict=True))
    if sizes == dict(full.outs):
        return full
    kept = [basis for basis in full.bases[OFFSET] if all(v < s for v, s in zip(basis, register.shape, strict=True))]
    return LinearLayout({OFFSET: tuple(kept)}, sizes)


def affine_mask(memory: TensorType) -> int:
    """Bits of the element offset that the start of a view may set at run time; 0 for a whole allocation."""
    alloc = memory.alloc_shape[-len(memory.shape) :]
    if alloc == memory.shape or not alloc:
        return 0
    whole = layout_of(TensorType(alloc, memory.element, memory.encoding, alloc, True))
    mask = 0
    for bit, basis in enumerate(whole.bases[OFFSET]):
        if any(value >= size for value, size in zip(basis, memory.shape, strict=True)):
            mask |= 1 << bit
    return mask


def _interval(memory: TensorType) -> int | None:
    padding = memory.encoding.padding if memory.encoding else ()
    return min((interval for interval, _ in padding), default=None)


def _transposed(where: LinearLayout, register: TensorType, memory: TensorType, arch: str) -> Accesses | None:
    bits = TRANSPOSED_BITS.get(arch, {}).get(register.bits)
    if bits is None:
        return None
    run = bits // register.bits
    interval = _interval(memory)
    if where.in_size(REGISTER) < run or (interval is not None and interval < run):
        return None
    lanes = where.column(LANE, OFFSET)
    steps = run.bit_length() - 1
    if lanes[:steps] != [1 << i for i in range(steps)]:
        return None
    rest = [*lanes[steps:], *where.column(REGISTER, OFFSET), *where.column(WARP, OFFSET)]
    if any(value & (run - 1) for value in rest) or affine_mask(memory) & (run - 1):
        return None
    return Accesses(where.in_size(REGISTER) // run, bits, transposed=True)


def _plain(where: LinearLayout, memory: TensorType, arch: str) -> list[Accesses]:
    run, registers = vector(where, memory, arch)
    bits = run * memory.bits
    fixed = affine_mask(memory)
    for name in (LANE, WARP):
        for value in where.column(name, OFFSET):
            fixed |= value
    rest = registers[run.bit_length() - 1 :]
    steps = [value for value in rest if not value & fixed]
    bases = [value for value in rest if value & fixed]
    count = 1 << len(rest)
    if bits not in PAIRED_BITS:
        return [Accesses(count, bits)]
    size = memory.bits // 8
    offsets = [padded(offset, memory) * size for offset in spanned(steps)]
    pairs, singles = paired(offsets, bits // 8)
    groups = 1 << len(bases)
    made = [Accesses(pairs * groups, 2 * bits), Accesses(singles * groups, bits)]
    return [one for one in made if one.count]


def vector(where: LinearLayout, memory: TensorType, arch: str) -> tuple[int, list[int]]:
    """The longest run of elements that is one access, and a basis of the registers' offsets with that run's in front.

    Code generation finds runs that are whole registers bits; LLVM's vectorizer then joins neighbours that it can prove
    aligned, so that any run that the registers of a lane span counts. Where two paddings add up it cannot; then only
    targets that take unaligned addresses join.
    """
    registers = _reduced(where.column(REGISTER, OFFSET))
    others = [*where.column(LANE, OFFSET), *where.column(WARP, OFFSET)]
    padding = memory.encoding.padding if memory.encoding else ()
    run = min([max(1, WIDEST // memory.bits), *(interval for interval, _ in padding)])
    if len(padding) > 1 and memory.bits == 32 and arch in ALIGNED_ONLY:
        registers = where.column(REGISTER, OFFSET)
    while run > 1:
        wanted = [1 << i for i in range(run.bit_length() - 1)]
        if registers[: len(wanted)] == wanted and not any(value & (run - 1) for value in others):
            return run, registers
        run //= 2
    return 1, registers


def _reduced(registers: list[int]) -> list[int]:
    """A basis of what ``registers`` span under XOR, each with a lowest bit of its own, lowest first.

    Bits that are the lowest one of some vector are cleared from all others, so that 1, 2, 4, … are in front if they
    are spanned at all.
    """
    basis: list[int] = []
    for vector_ in registers:
        rest = vector_
        for known in basis:
            if rest & known & -known:
                rest ^= known
        if rest:
            low = rest & -rest
            basis = [known ^ rest if known & low else known for known in basis]
            basis.append(rest)
    return sorted(basis, key=lambda value: value & -value)


def spanned(steps: Sequence[int]) -> list[int]:
    """Every XOR of a subset of ``steps``, in the order in which code generation counts registers."""
    offsets = [0]
    for step in steps:
        offsets += [offset ^ step for offset in offsets]
    return offsets


def padded(offset: int, memory: TensorType) -> int:
    """An element offset after padding."""
    padding = memory.encoding.padding if memory.encoding else ()
    return offset + sum(offset // interval * pad for interval, pad in padding)


def paired(offsets: Sequence[int], width: int) -> tuple[int, int]:
    """How many pairs, and how many single accesses are left, of accesses of ``width`` bytes off one address register.

    LLVM sorts them by offset and joins neighbours.
    """
    rest = sorted(offset for offset in offsets if offset <= LARGEST_OFFSET)
    pairs = 0
    # an offset that the instruction's field does not hold needs an address register of its own
    singles = sum(offset > LARGEST_OFFSET for offset in offsets)
    index = 0
    while index < len(rest):
        if index + 1 < len(rest) and _fits(rest[index], rest[index + 1], width):
            pairs += 1
            index += 2
        else:
            singles += 1
            index += 1
    return pairs, singles


def _fits(first: int, second: int, width: int) -> bool:
    if first % width or second % width or first == second:
        return False
    distance = (second - first) // width
    # the address register can be moved, so only the distance counts
    return distance < 256 or (distance % 64 == 0 and distance // 64 < 256)


def by_width(accesses: Iterable[Accesses]) -> dict[int, int]:
    """Bits -> count."""
    totals: dict[int, int] = defaultdict(int)
    for one in accesses:
        totals[one.bits] += one.count
    return dict(totals)
