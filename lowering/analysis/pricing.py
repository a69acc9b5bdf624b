"""Prices: how many machine instructions of which class one wave runs for an op, from its types and layouts alone.

LLVM's scheduling groups count machine instructions, and a group with a wrong count is dropped without a word, so a
window has to know them before LLVM does. What is priced here is compared with the produced text (``realised.py``),
and the text has the last word.

=============================  =====================================================================================
matrix multiply                one instruction for each block of the instruction's shape a wave computes
LDS read and write             ``lds_width.py``
global load and store          the run of elements that one lane has side by side and aligned (``alignment.py``), up to
                               128 bits; a mask shortens it to the run on which it is constant
copy from global to LDS        the same, further cut down to what the layout in LDS lets one instruction write
transcendental                 one instruction an element a lane holds
other arithmetic               an estimate: one instruction an element; it is never held against the text
=============================  =====================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import ceil, prod

from amdwarp.errors import LoweringError

from .. import dialect
from ..dialect import Kind, Pipe, kind_of
from ..ir import Module, Op, Value
from . import lds_width
from .alignment import Alignment
from .layouts import layout_of
from .linear import REGISTER, WARP
from .types import LayoutError, TensorType, element_bits, parse_type
from .vmem_width import access_of, operand, side_by_side, vector_length


class Slot(Enum):
    """A class of machine instructions that a scheduling group can ask for; the value is its letter in reports."""

    MFMA = "M"
    DS_READ = "R"
    DS_WRITE = "W"
    VMEM_READ = "G"
    VMEM_WRITE = "S"
    COPY = "C"
    TRANS = "T"
    VALU = "V"

    @property
    def memory(self) -> bool:
        return self in MEMORY

    @property
    def exact(self) -> bool:
        """Whether prices of this class are held against the text."""
        return self is not Slot.VALU


MEMORY = frozenset({Slot.DS_READ, Slot.DS_WRITE, Slot.VMEM_READ, Slot.VMEM_WRITE, Slot.COPY})


@dataclass(frozen=True)
class Price:
    """``count`` instructions of class ``slot``, each moving ``bits`` bits of one lane (0 for arithmetic)."""

    slot: Slot
    count: int
    bits: int = 0


class PricingError(LoweringError):
    """An op whose instructions cannot be counted; ``problem`` says what of it is not known."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Widths, in bits a lane, of copies from global memory to LDS: Triton's TargetFeatures.cpp
COPY_BITS = {"gfx942": (32,), "gfx950": (128, 32), "gfx1250": (128, 64, 32)}
TRANSCENDENTAL = _names(
    # a division is one reciprocal and some plain arithmetic; sine and cosine are a page of it, and are not here
    "math.exp math.exp2 math.log math.log2 math.sqrt math.rsqrt tt.precise_sqrt arith.divf tt.precise_divf"
)
# Ops that move registers about or rename them, and that code generation gives no instruction of their own.
FREE = _names(
    "arith.constant tt.broadcast tt.expand_dims tt.splat tt.unsplat tt.trans tt.reshape tt.join tt.split tt.cat "
    "amdg.concat amdg.extract_slice ub.poison tt.get_program_id tt.get_num_programs"
)
FP4 = "e2m1"
_SCALED_TYPES = {0: "e4m3", 1: "e5m2", 2: "e2m3", 3: "e3m2", 4: "e2m1", 5: "bf16", 6: "fp16"}


class Pricer:
    """Prices the ops of one function.

    Args:
        function: for its arguments' hints and its loops.
        module: for its layouts and its target.
    """

    def __init__(self, function: Op, module: Module) -> None:
        self.module = module
        self.alignment = Alignment(function, module)
        self.arch = arch_of(module)

    def price(self, op: Op) -> tuple[Price, ...]:
        """What ``op`` costs; nothing for an op that becomes no instruction.

        Raises:
            PricingError: the op is of a kind that is priced, but something about it is not known.
        """
        rule = _RULES.get(op.name)
        try:
            if rule is not None:
                return tuple(one for one in rule(self, op) if one.count)
            if op.name in TRANSCENDENTAL:
                return (Price(Slot.TRANS, self.elements(op.result)),)
            return self._arithmetic(op)
        except (LayoutError, KeyError, ValueError) as error:
            raise PricingError(
                f"the instructions behind {op.name} cannot be counted: {getattr(error, 'problem', error)}",
                where=op.where,
            ) from error

    def type(self, value: Value) -> TensorType:
        return parse_type(value.type, self.module)

    def elements(self, value: Value) -> int:
        """Different elements that one lane holds; 1 for a scalar."""
        if self.alignment.tensor(value) is None:
            return 1
        return layout_of(self.type(value)).without_zero(REGISTER).in_size(REGISTER)

    def _arithmetic(self, op: Op) -> tuple[Price, ...]:
        if op.name in FREE or not op.results or dialect.pipe(op) is not Pipe.VALU:
            return ()
        if any(value.type.startswith("!ttg.memdesc") for value in op.results):
            return ()
        return (Price(Slot.VALU, max(self.elements(value) for value in op.results)),)


def arch_of(module: Module) -> str:
    """``gfx950`` of a module's ``ttg.target = "hip:gfx950"``."""
    text = module.attributes.get("ttg.target") or module.attributes.get('"ttg.target"') or ""
    match = re.search(r"hip:(\w+)", text)
    if match is None:
        raise PricingError(f"the module is not for an AMD GPU: ttg.target is {text or 'missing'}")
    return match.group(1)


# ---- matrix multiplies


def matrix_shape(pricer: Pricer, op: Op) -> tuple[list[int], list[int], int]:
    """Of a dot: how many instructions a wave has along each dimension of the result, the instruction's shape, and
    how many instructions deep K is. The first list is empty where the dot does not use the matrix unit.
    """
    result, left = pricer.type(op.results[0]), pricer.type(op.operands[0])
    encoding = result.encoding
    if encoding is None or encoding.kind not in ("amd_mfma", "amd_wmma"):
        return [], [], 0
    instruction = encoding.ints("instrShape")
    rows_columns = instruction[:2]
    if encoding.kind == "amd_wmma" and encoding.params.get("isTranspose"):
        rows_columns = rows_columns[::-1]  # computed with the operands exchanged
    sides = [1] * (len(result.shape) - 2) + rows_columns
    waves, repeats = _spread(result)
    tiles = [
        repeat * ceil(size / (side * wave * repeat))
        for size, side, wave, repeat in zip(result.shape, sides, waves, repeats, strict=True)
    ]
    depth = left.shape[-1]
    if op.name == "tt.dot_scaled" and scaled_types(op)[0] == FP4 and op.properties.get("lhs_k_pack") != "false":
        depth *= 2
    return tiles, instruction, _steps(left, instruction, depth)


def _steps(left: TensorType, instruction: list[int], depth: int) -> int:
    """How many instructions K takes; a lane's ``kWidth`` elements may be those of several instructions."""
    operand_ = left.encoding
    step = instruction[2]
    if operand_ is not None and operand_.kind == "dot_op" and operand_.parent.kind == "amd_mfma":
        lanes = 64 // min(64, instruction[0])
        step = max(step, operand_.number("kWidth", 1) * lanes)
    return ceil(depth / step) * (step // instruction[2])


def _spread(result: TensorType) -> tuple[list[int], list[int]]:
    """How many waves, and how many neighbouring tiles of one wave, lie along each dimension of a dot's result."""
    assert result.encoding is not None
    rank = len(result.shape)
    waves = result.encoding.ints("warpsPerCTA")
    if waves:
        return waves, result.encoding.ints("tilesPerWarp") or [1] * rank
    table = result.encoding.params.get("ctaLayout")
    counts = []
    for name in ("warp", "register"):
        bases = table.get(name, []) if isinstance(table, dict) else []
        counts.append([1 << sum(1 for basis in bases if basis[dim]) for dim in range(rank)])
    return counts[0], counts[1]


def scaled_types(op: Op) -> tuple[str, str]:
    """Element formats of the operands of a ``tt.dot_scaled``."""
    found = []
    for key in ("a_elem_type", "b_elem_type"):
        text = op.properties.get(key, "")
        match = re.match(r"(\d+) : i32", text)
        found.append(_SCALED_TYPES[int(match.group(1))] if match else text.rpartition("=")[2].strip())
    return found[0], found[1]


def _dot(pricer: Pricer, op: Op) -> list[Price]:
    tiles, _, steps = matrix_shape(pricer, op)
    if not tiles:
        return [Price(Slot.VALU, pricer.elements(op.results[0]) * pricer.type(op.operands[0]).shape[-1])]
    return [Price(Slot.MFMA, prod(tiles) * steps)]


# ---- LDS


def _local_load(pricer: Pricer, op: Op) -> list[Price]:
    made = lds_width.reads(pricer.type(op.result), pricer.type(op.operands[0]), pricer.arch)
    return [Price(Slot.DS_READ, one.count, one.bits) for one in made]


def _packed_transposed(pricer: Pricer, op: Op) -> list[Price]:
    """4-bit elements, two to a byte, that change places on the way: always 64 bits a lane."""
    bits = pricer.elements(op.result) * pricer.type(op.result).bits
    return [Price(Slot.DS_READ, bits // 64, 64)]


def _local_store(pricer: Pricer, op: Op) -> list[Price]:
    return _writes(pricer, op.operands[0], op.operands[1])


def _local_alloc(pricer: Pricer, op: Op) -> list[Price]:
    return _writes(pricer, op.operands[0], op.result) if op.operands else []


def _writes(pricer: Pricer, value: Value, memory: Value) -> list[Price]:
    made = lds_width.writes(pricer.type(value), pricer.type(memory), pricer.arch)
    return [Price(Slot.DS_WRITE, one.count, one.bits) for one in made]


# ---- global memory


def _vmem(slot: Slot) -> Callable[[Pricer, Op], list[Price]]:
    def rule(pricer: Pricer, op: Op) -> list[Price]:
        access = access_of(op, pricer.alignment)
        run = vector_length(access, pricer.alignment)
        count = pricer.elements(access.offsets or access.pointer) // run
        return [Price(slot, count, run * element_bits(access.element))]

    return rule


def _copy(pricer: Pricer, op: Op) -> list[Price]:
    access = access_of(op, pricer.alignment)
    memory = operand(op, "memory")
    assert memory is not None
    source = access.offsets or access.pointer
    registers = layout_of(pricer.type(source)).without_zero(REGISTER)
    target = pricer.type(memory)
    where = registers.over(layout_of(target))
    bits = element_bits(access.element)
    run = vector_length(access, pricer.alignment)
    while run > 1 and not side_by_side(where, run):
        run //= 2
    width = next((w for w in COPY_BITS[pricer.arch] if w <= run * bits), None)
    if width is None:
        raise ValueError(f"no copy to LDS moves {run * bits} bits")
    return [Price(Slot.COPY, registers.in_size(REGISTER) * bits // width, width)]


# ---- staging through LDS


def needs_scratch(op: Op, module: Module) -> bool:
    """Whether an op that may stage through LDS with barriers of its own does, because waves have to exchange data."""
    if not dialect.info(op).scratch:
        return False
    try:
        if op.name == "ttg.convert_layout":
            source, result = (layout_of(parse_type(value.type, module)) for value in (op.operands[0], op.result))
            moved = result.over(source)
            return moved.column(WARP, WARP) != [1 << i for i in range(len(moved.bases.get(WARP, ())))] or any(
                value for name in (REGISTER, "lane") for value in moved.column(name, WARP)
            )
        if op.name == "tt.reduce":
            axis = int(op.properties["axis"].partition(":")[0])
            return any(basis[axis] for basis in layout_of(parse_type(op.operands[0].type, module)).bases.get(WARP, ()))
    except (LayoutError, ValueError, KeyError):
        return True
    return True


_RULES: dict[str, Callable[[Pricer, Op], list[Price]]] = {
    "tt.dot": _dot,
    "tt.dot_scaled": _dot,
    "ttg.local_load": _local_load,
    "amdg.local_load_packed_transposed": _packed_transposed,
    "ttg.local_store": _local_store,
    "ttg.local_alloc": _local_alloc,
    "tt.load": _vmem(Slot.VMEM_READ),
    "tt.store": _vmem(Slot.VMEM_WRITE),
    "amdg.buffer_load": _vmem(Slot.VMEM_READ),
    "amdg.buffer_store": _vmem(Slot.VMEM_WRITE),
    "amdg.buffer_load_to_local": _copy,
    "ttg.async_copy_global_to_local": _copy,
}


def priced(op: Op) -> bool:
    """Whether the op has a pricing rule of its own."""
    return op.name in _RULES or op.name in TRANSCENDENTAL


def is_memory(op: Op) -> bool:
    return kind_of(op) in (Kind.LOAD, Kind.STORE, Kind.COPY) or (op.name == "ttg.local_alloc" and bool(op.operands))
