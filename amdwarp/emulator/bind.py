"""Binding: each instruction becomes a closure over its operands before anything runs.

`bind` looks the mnemonic up in `HANDLERS`, which the modules of the instruction families fill. A handler takes the
modifiers it understands with `Binder.take`; what is left over is an error, so no form is run as a plainer one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from amdwarp.asm import Immediate, Instruction, Operand, Program, Register, Symbol
from amdwarp.asm.cdna import ROW_NAMES, missing_on
from amdwarp.asm.program import EXEC, TTMP0, VCC, ModifierValue
from amdwarp.asm.table_gfx1250 import ONLY
from amdwarp.emulator.memory import Array
from amdwarp.emulator.modes import ModeCell, is_plain
from amdwarp.emulator.names import NAMES, gone
from amdwarp.emulator.state import Batch, Closure, Scalar, expand
from amdwarp.errors import EmulatorError

Getter = Callable[[Batch], Any]
Setter = Callable[[Batch, Any], None]
#: Writes a value to the lanes of a mask (None for all).
MaskedSetter = Callable[[Batch, Any, Array | None], None]
Handler = Callable[["Binder"], Closure]

#: Mnemonic (without encoding suffix) to the function that binds it.
HANDLERS: dict[str, Handler] = {}

#: The modules of the instruction families, which fill `HANDLERS`.
FAMILIES = (
    *("salu", "valu", "vop3p", "mfma", "ds", "vmem", "smem", "sync", "convert", "atomics", "exchange"),
    *("wide", "vopd", "counters", "barriers", "lane_moves", "lds_moves", "wmma", "scaled8", "mbarrier", "tensor"),
    *("sparse", "differences", "ops_cdna", "calls", "relative", "scalar_memory", "ds_atomics", "convert_scaled"),
    *("lane_access", "scratch"),
)

#: ttmp6, which tells a workgroup its place in its cluster.
CLUSTER_PLACE = TTMP0 + 6
_ONLY_GFX1250 = ONLY - ROW_NAMES

MASK32, MASK64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF

TYPES: dict[str, Any] = {
    "u32": np.uint32,
    "f32": np.float32,
    "i32": np.int32,
    "u64": np.uint64,
    "i64": np.int64,
    "f64": np.float64,
    "u16": np.uint16,
    "i16": np.int16,
    "f16": np.float16,
}
#: Index of a 32-bit type in `Batch.r`.
LISTS = {"u32": 0, "f32": 1, "i32": 2}


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler for mnemonics."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


def float_bits(value: float, kind: str) -> int:
    """Bits of a floating-point constant as an operand of type `kind`."""
    return int(np.array(value, f"f{int(kind[1:]) // 8}").view(f"u{int(kind[1:]) // 8}"))


class Binder:
    """One instruction on its way to a closure."""

    def __init__(self, program: Program, inst: Instruction, agpr_base: int) -> None:
        self.program, self.inst, self.agpr_base = program, inst, agpr_base
        self.wide_target = program.target == "gfx1250"
        self.ops = inst.operands
        self.lanes = program.wave_size
        self.left: dict[str, ModifierValue] = dict(inst.modifiers)
        self.plain_mode, self.cell = is_plain(program), ModeCell()

    def fail(self, problem: str, remedy: str = "") -> EmulatorError:
        """An error that names this instruction."""
        return EmulatorError(f"'{self.inst.text}': {problem}", where=self.inst.where, remedy=remedy)

    def need(self, count: int) -> None:
        """Refuse another number of operands."""
        if len(self.ops) != count:
            raise self.fail(f"{count} operands expected, {len(self.ops)} found")

    # Modifiers

    def take(self, name: str, default: Any = None) -> Any:
        """Value of modifier `name`, which is now accounted for; `default` where it is absent."""
        return self.left.pop(name, default)

    def flag(self, name: str) -> bool:
        """True if the flag `name` is written; it is now accounted for."""
        if name not in self.left:
            return False
        del self.left[name]
        return True

    def ignore(self, *names: str) -> None:
        """Account for modifiers that change no result (cache policy)."""
        for name in names:
            self.left.pop(name, None)

    def finish(self) -> None:
        """Refuse modifiers that no one asked for."""
        if self.left:
            names = ", ".join(name if value is None else f"{name}:{value}" for name, value in self.left.items())
            raise self.fail(f"modifier {names} is not known for this instruction")

    # Registers

    def vector(self, at: int, count: int | None = None, *, half: bool = False) -> int:
        """Row of the register file that operand `at`, a vector register tuple, starts at; `half`: 16 bits of it do."""
        op = self.ops[at]
        if not isinstance(op, Register) or op.kind == "s":
            raise self.fail(f"operand {at + 1} must be a vector register")
        if op.half and not half:
            raise self.fail(f"operand {at + 1} must be a whole register")
        if count is not None and op.count != count:
            raise self.fail(f"operand {at + 1} must be {count} registers wide, not {op.count}")
        if op.neg or op.absolute or op.sext:
            raise self.fail(f"operand {at + 1} takes no source modifier")
        return self.row(op)

    def row(self, op: Register) -> int:
        """Row of the register file of vector register `op`."""
        return op.index + (self.agpr_base if op.kind == "a" else 0)

    def scalar(self, at: int, count: int | None = None) -> int:
        """Number of the scalar register that operand `at` starts at."""
        op = self.ops[at]
        if not isinstance(op, Register) or op.kind != "s":
            raise self.fail(f"operand {at + 1} must be a scalar register")
        if count is not None and op.count != count:
            raise self.fail(f"operand {at + 1} must be {count} registers wide, not {op.count}")
        return op.index

    # Scalar operands: Python ints, one or one per wave

    def scalar_source(self, at: int, bits: int = 32) -> Getter:
        """Getter of operand `at` as an unsigned int of `bits` bits (or one per wave)."""
        op = self.ops[at]
        mask = (1 << bits) - 1
        if isinstance(op, Immediate):
            value = float_bits(op.value, f"f{bits}") if isinstance(op.value, float) else op.value & mask
            if op.neg or op.absolute:
                raise self.fail(f"operand {at + 1} takes no source modifier")
            # A 32-bit literal of a 64-bit operand is sign-extended for signed operations only.
            if bits == 64 and self.inst.base.endswith("_i64") and isinstance(op.value, int) and op.value >> 31 == 1:
                value |= 0xFFFFFFFF00000000
            return lambda b: value
        if isinstance(op, Symbol):
            return self._symbol_source(op, at, bits)
        if op.kind != "s" or op.neg or op.absolute:
            raise self.fail(f"operand {at + 1} must be a scalar register or constant")
        index = op.index
        if bits == 32:
            if op.count != 1:
                raise self.fail(f"operand {at + 1} must be one register")
            return lambda b: b.s[index]
        if op.count != 2:
            raise self.fail(f"operand {at + 1} must be a register pair")
        return lambda b: b.pair(index)

    def _symbol_source(self, op: Symbol, at: int, bits: int = 32) -> Getter:
        if op.name in ("src_scc", "scc"):
            return lambda b: b.scc
        if op.name == "null":
            return lambda b: 0
        if op.name in ("src_vccz", "src_execz"):
            at_pair = VCC if op.name == "src_vccz" else EXEC
            return lambda b: _zero_flag(b.pair(at_pair))
        if op.name in APERTURES:
            aperture = APERTURES[op.name] & ((1 << bits) - 1)
            return lambda b: aperture
        relative = import_module("amdwarp.emulator.calls").relative_address(self, op.name)
        if relative is not None:
            return lambda b: relative
        raise self.fail(f"operand {at + 1}, '{op.name}', is not known here")

    def scalar_target(self, at: int, bits: int = 32) -> Setter:
        """Setter of scalar operand `at`."""
        if isinstance(self.ops[at], Symbol) and self.ops[at] == Symbol("null"):
            return lambda b, value: None
        index = self.scalar(at, bits // 32)
        if bits == 64:
            return lambda b, value: b.set_pair(index, value)
        if index in (EXEC, EXEC + 1):

            def to_exec(b: Batch, value: Scalar) -> None:
                b.s[index] = value
                b.refresh_exec()

            return to_exec

        def put(b: Batch, value: Scalar) -> None:
            b.s[index] = value

        return put

    # Vector operands: numpy scalars, [waves, 1] or [waves, lanes]

    def source(self, at: int, kind: str, *, high: bool = False) -> Getter:
        """Getter of operand `at` as type `kind` of `TYPES`, with its neg and abs modifiers.

        Args:
            high: take the upper half of a 16-bit operand.
        """
        op = self.ops[at]
        plain = self.plain_source(op, at, kind, high)
        return self.with_modifiers(plain, op, kind)

    def with_modifiers(self, plain: Getter, op: Operand, kind: str) -> Getter:
        """`plain` with the source modifiers of `op`."""
        if isinstance(op, Symbol) or not (op.neg or op.absolute or getattr(op, "sext", False)):
            return plain
        if getattr(op, "sext", False):
            raise self.fail("sext is known for SDWA only")
        if kind[0] != "f":
            raise self.fail("neg and abs need a floating-point operand")
        if op.neg and op.absolute:
            return lambda b: np.negative(np.abs(plain(b)))
        if op.neg:
            return lambda b: np.negative(plain(b))
        return lambda b: np.abs(plain(b))

    def plain_source(self, op: Operand, at: int, kind: str, high: bool = False) -> Getter:
        """Getter of `op` without its modifiers."""
        size = int(kind[1:])
        if isinstance(op, Immediate):
            return self._constant(op, kind)
        if isinstance(op, Symbol):
            get = self._symbol_source(op, at)
            return lambda b: vector_of(get(b), kind)
        if op.count != max(1, size // 32):
            raise self.fail(f"operand {at + 1} must be {max(1, size // 32)} registers wide, not {op.count}")
        if op.kind == "s":
            index, shift = op.index, 16 if high else 0
            if size == 64:
                return lambda b: vector_of(b.pair(index), kind)
            if shift:
                return lambda b: vector_of(shifted(b.s[index], b.n), kind)
            return lambda b: vector_of(b.s[index], kind)
        row = self.row(op)
        if op.half and size != 16:
            raise self.fail(f"operand {at + 1} must be a whole register")
        if size == 32:
            which = LISTS[kind]
            return lambda b: b.r[which][row]
        dtype = TYPES[kind]
        if size == 64:
            return lambda b: read64(b, row).view(dtype)
        half = int(high or op.half == "h")
        return lambda b: b.r[0][row].view(dtype)[..., half::2]

    def _constant(self, op: Immediate, kind: str) -> Getter:
        size = int(kind[1:])
        if isinstance(op.value, float):
            bits = float_bits(op.value, "f" + kind[1:])
        elif kind == "f64":
            # A literal of 32 bits holds the upper half.
            whole = -16 <= op.value <= 64 or op.value > MASK32
            bits = op.value & MASK64 if whole else (op.value & MASK32) << 32
        else:
            bits = op.value & ((1 << size) - 1)
        value = TYPES[f"u{size}"](bits).view(TYPES[kind])
        return lambda b: value

    def target(self, at: int, kind: str, *, high: bool = False) -> MaskedSetter:
        """Setter of vector operand `at` for a value of type `kind`; `high` keeps the lower half of the register."""
        op = self.ops[at]
        half = op.half if isinstance(op, Register) else ""
        row = self.vector(at, max(1, int(kind[1:]) // 32), half=kind.endswith("16"))
        keep = half == "l" or (self.wide_target and not half)
        return self.row_target(row, kind, high=high or half == "h", keep=keep)

    def row_target(self, row: int, kind: str, *, high: bool = False, keep: bool = False) -> MaskedSetter:
        """Setter of the registers from `row` on.

        Args:
            high: a 16-bit result goes to the upper half and leaves the lower one.
            keep: a 16-bit result in the lower half leaves the upper one (gfx1250), else clears it (gfx9).
        """
        size = int(kind[1:])
        if size == 32:
            which = LISTS[kind]

            def put32(b: Batch, value: Any, mask: Array | None) -> None:
                if mask is None:
                    b.r[which][row][...] = value
                else:
                    np.copyto(b.r[which][row], value, where=mask)

            return put32
        if size == 64:
            return lambda b, value, mask: write64(b, row, np.asarray(value).view(np.uint64), mask)

        def put16(b: Batch, value: Any, mask: Array | None) -> None:
            wide = np.asarray(value).view(np.uint16).astype(np.uint32)
            if high:
                wide = wide << np.uint32(16) | (b.r[0][row] & np.uint32(0xFFFF))
            elif keep:
                wide = wide | (b.r[0][row] & np.uint32(0xFFFF0000))
            if mask is None:
                b.r[0][row][...] = wide
            else:
                np.copyto(b.r[0][row], wide, where=mask)

        return put16

    def mask_source(self, at: int) -> Callable[[Batch], Array]:
        """Getter of scalar operand `at` as a lane mask, bool [waves, lanes]."""
        op = self.ops[at]
        if isinstance(op, Immediate) and op.value in (0, -1):
            value = op.value != 0
            return lambda b: np.full((b.n, b.group.lanes), value)
        index = self.scalar(at, self.lanes // 32)
        return lambda b: b.lane_mask(index)


#: 64-bit addresses of the LDS and scratch windows of flat accesses.
APERTURES = {
    "src_shared_base": 0x0001_0000_0000_0000,
    "src_shared_limit": 0x0001_0000_FFFF_FFFF,
    "src_private_base": 0x0002_0000_0000_0000,
    "src_private_limit": 0x0002_0000_FFFF_FFFF,
}


def _zero_flag(value: Scalar) -> Scalar:
    return int(value == 0) if isinstance(value, int) else tuple(int(x == 0) for x in value)


def vector_of(value: Scalar, kind: str) -> Any:
    """A scalar register as numpy scalar or [waves, 1] array of type `kind`; narrower types take the low bits."""
    size = int(kind[1:])
    unsigned, dtype = TYPES[f"u{size}"], TYPES[kind]
    if isinstance(value, int):
        return unsigned(value if size >= 32 else value & 0xFFFF).view(dtype)
    if size < 32:
        value = tuple(x & 0xFFFF for x in value)
    return np.array(value, unsigned)[:, None].view(dtype)


def shifted(value: Scalar, waves: int) -> Scalar:
    """The upper half of a scalar register."""
    return value >> 16 if isinstance(value, int) else tuple(x >> 16 for x in expand(value, waves))


def read64(b: Batch, row: int) -> Array:
    """Registers `row` and `row` + 1 as uint64 [waves, lanes]."""
    out: Array = np.empty((b.n, b.group.lanes), np.uint64)
    halves = out.view(np.uint32)
    halves[:, 0::2] = b.r[0][row]
    halves[:, 1::2] = b.r[0][row + 1]
    return out


def write64(b: Batch, row: int, value: Array, mask: Array | None) -> None:
    """Write uint64 [waves, lanes] (or what broadcasts to it) to registers `row` and `row` + 1."""
    low, high = (value & np.uint64(MASK32)).astype(np.uint32), (value >> np.uint64(32)).astype(np.uint32)
    if mask is None:
        b.r[0][row][...], b.r[0][row + 1][...] = low, high
    else:
        np.copyto(b.r[0][row], low, where=mask)
        np.copyto(b.r[0][row + 1], high, where=mask)


@cache
def _load_families() -> Any:
    """Import the modules of the instruction families, which fill `HANDLERS`; returns the one for index mode."""
    for name in FAMILIES:
        import_module(f"amdwarp.emulator.{name}")
    return import_module("amdwarp.emulator.relative")


def bind(program: Program, inst: Instruction, agpr_base: int) -> Closure:
    """The closure of `inst`.

    Raises:
        EmulatorError: its mnemonic, an operand form or a modifier is not known.
    """
    relative = _load_families()
    if program.target == "gfx1250":
        if gone(inst.base):
            raise Binder(program, inst, agpr_base).fail("gfx1250 does not have this instruction")
        if any(isinstance(op, Register) and _covers(op, CLUSTER_PLACE) for op in inst.operands):
            raise Binder(program, inst, agpr_base).fail("workgroups in clusters (num_ctas above 1) are not executed")
        inst = replace(inst, base=NAMES.get(inst.base, inst.base))
    closure = bind_plainly(program, inst, agpr_base)
    if relative.takes_index(inst) and relative.indexed(program):
        bound: Closure = relative.bind_indexed(program, inst, agpr_base, closure)
        return bound
    return closure


def _covers(op: Register, index: int) -> bool:
    """True if scalar register `index` is among those of an operand."""
    return op.kind == "s" and op.index <= index < op.index + op.count


def bind_plainly(program: Program, inst: Instruction, agpr_base: int) -> Closure:
    """The closure of `inst` outside of index mode; the families are loaded."""
    binder = Binder(program, inst, agpr_base)
    handler = HANDLERS.get("dual issue" if inst.second is not None else inst.base)
    if handler is None or (inst.base in _ONLY_GFX1250 and program.target != "gfx1250"):
        raise binder.fail("the emulator does not know this instruction")
    if missing_on(inst.base, program.target):
        raise binder.fail(f"{program.target} does not have this instruction")
    try:
        closure = handler(binder)
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as problem:
        raise binder.fail(f"its operands or modifiers are not understood ({problem})") from problem
    binder.finish()
    return under_mode(closure, binder.cell) if binder.cell.used else closure


def under_mode(closure: Closure, cell: ModeCell) -> Closure:
    """`closure` with the batch's MODE in `cell`."""

    def run(b: Batch) -> int | None:
        cell.value = b.mode
        return closure(b)

    return run
