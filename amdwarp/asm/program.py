"""The typed form of one AMDGCN text: registers, instructions, descriptor, argument layout.

Everything here is a frozen dataclass, so a `Program` can be shared between the emulator, the sanitizer and the cycle
model without one of them changing what another sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

#: Fixed numbers of the special scalar registers (GCN operand encoding).
SPECIAL_SGPRS: dict[str, tuple[int, int]] = {
    "flat_scratch": (102, 2),
    "flat_scratch_lo": (102, 1),
    "flat_scratch_hi": (103, 1),
    "xnack_mask": (104, 2),
    "xnack_mask_lo": (104, 1),
    "xnack_mask_hi": (105, 1),
    "vcc": (106, 2),
    "vcc_lo": (106, 1),
    "vcc_hi": (107, 1),
    "m0": (124, 1),
    "exec": (126, 2),
    "exec_lo": (126, 1),
    "exec_hi": (127, 1),
}
VCC, M0, EXEC, TTMP0 = 106, 124, 126, 108


def words(text: str) -> tuple[str, ...]:
    """The words of a table that is written as text."""
    return tuple(text.split())


ModifierValue = int | str | tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Register:
    """A register tuple.

    Attributes:
        kind: ``v`` (vector), ``a`` (accumulation) or ``s`` (scalar; vcc, exec, m0 and ttmp have their fixed numbers).
        index: number of the first register.
        count: how many consecutive registers.
        neg, absolute, sext: source modifiers as written.
        half: ``l`` or ``h`` for 16 bits of a vector register (gfx1250 writes ``v3.h``), else "".
    """

    kind: str
    index: int
    count: int = 1
    neg: bool = False
    absolute: bool = False
    sext: bool = False
    half: str = ""


@dataclass(frozen=True, slots=True)
class Immediate:
    """A number written in the text; a float stands for a floating-point inline constant."""

    value: int | float
    neg: bool = False
    absolute: bool = False


@dataclass(frozen=True, slots=True)
class Symbol:
    """A word that is neither a register nor a number: a label, ``off``, ``null``, ``src_scc``, ``hwreg(...)``."""

    name: str


Operand = Register | Immediate | Symbol


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """Where in the kernel's source an instruction came from, after the line table."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        index: position in `Program.instructions`.
        line: line of the text, from 1.
        text: the instruction as written, without comment.
        mnemonic: as written, e.g. ``v_add_u32_e32``.
        base: without its encoding suffix, e.g. ``v_add_u32``.
        encoding: ``e32``, ``e64``, ``dpp``, ``sdwa``, ``e64_dpp`` or "" where the text has no suffix.
        operands: as written, destinations first.
        modifiers: (name, value) in text order; a flag has the value None.
        source: location in the kernel source, or None where the line table has none.
        second: the other half of a dual-issue instruction, or None.
    """

    index: int
    line: int
    text: str
    mnemonic: str
    base: str
    encoding: str
    operands: tuple[Operand, ...]
    modifiers: tuple[tuple[str, ModifierValue], ...] = ()
    source: SourceLocation | None = None
    second: Instruction | None = None

    @property
    def where(self) -> str:
        """``line N`` of the text, with the kernel source where known."""
        return f"line {self.line}" + (f", {self.source}" if self.source else "")

    def modifier(self, name: str) -> ModifierValue:
        """Value of modifier `name`; None where absent (flags also have the value None: use `has`)."""
        return next((value for key, value in self.modifiers if key == name), None)

    def has(self, name: str) -> bool:
        """True if modifier `name` is written."""
        return any(key == name for key, _ in self.modifiers)


@dataclass(frozen=True, slots=True)
class Argument:
    """One entry of the kernel argument segment (bytes)."""

    offset: int
    size: int
    kind: str
    address_space: str = ""
    name: str = ""

    @property
    def is_pointer(self) -> bool:
        """True for a pointer to global memory."""
        return self.kind == "global_buffer"

    @property
    def is_hidden(self) -> bool:
        """True for an argument the runtime fills in, not the launcher."""
        return self.kind.startswith("hidden_")


@dataclass(frozen=True)
class KernelDescriptor:
    """The ``.amdhsa_*`` directives of the kernel, without their prefix."""

    directives: dict[str, int] = field(default_factory=dict)

    def get(self, name: str, default: int = 0) -> int:
        """Value of ``.amdhsa_<name>``, or `default` where the text does not say."""
        return self.directives.get(name, default)

    @property
    def lds_bytes(self) -> int:
        """Statically allocated LDS."""
        return self.get("group_segment_fixed_size")

    @property
    def scratch_bytes(self) -> int:
        """Private memory of one lane."""
        return self.get("private_segment_fixed_size")

    @property
    def user_sgprs(self) -> int:
        """SGPRs initialised before the system SGPRs, preloaded arguments included."""
        return self.get("user_sgpr_count")

    @property
    def kernarg_preload(self) -> tuple[int, int]:
        """(dwords preloaded to SGPRs, first dword of the argument segment they come from)."""
        return self.get("user_sgpr_kernarg_preload_length"), self.get("user_sgpr_kernarg_preload_offset")

    @property
    def kernarg_sgpr(self) -> int | None:
        """First SGPR of the argument segment pointer, or None if the kernel has none.

        Raises nothing: the order of user SGPRs is fixed by the code object ABI.
        """
        if not self.get("user_sgpr_kernarg_segment_ptr"):
            return None
        sizes = (
            ("user_sgpr_private_segment_buffer", 4),
            ("user_sgpr_dispatch_ptr", 2),
            ("user_sgpr_queue_ptr", 2),
        )
        return sum(size for name, size in sizes if self.get(name))

    @property
    def preload_sgpr(self) -> int:
        """First SGPR of the preloaded arguments: they are the last user SGPRs."""
        return self.user_sgprs - self.kernarg_preload[0]

    @property
    def wave32(self) -> bool:
        """True for a kernel of 32-lane waves."""
        return bool(self.get("wavefront_size32"))


@dataclass(frozen=True)
class Metadata:
    """What the metadata note says of the kernel; sizes in bytes."""

    name: str
    arguments: tuple[Argument, ...]
    kernarg_size: int
    lds_bytes: int
    scratch_bytes: int
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    wave_size: int
    max_workgroup_size: int


@dataclass(frozen=True, eq=False)
class Program:
    """One kernel; each reading of a text is a program of its own.

    Attributes:
        name: the kernel's symbol.
        target: the architecture, e.g. ``gfx950``.
        descriptor: the kernel descriptor.
        metadata: the metadata note.
        instructions: in text order.
        labels: label to index of the instruction after it.
        entry: index of the first instruction that runs. With preloaded arguments that is the instruction behind the
            compatibility prologue, which loads what the hardware has preloaded.
    """

    name: str
    target: str
    descriptor: KernelDescriptor
    metadata: Metadata
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    entry: int = 0

    @property
    def wave_size(self) -> int:
        """Lanes of a wave."""
        return self.metadata.wave_size

    @property
    def waves(self) -> int:
        """Waves of a workgroup."""
        return -(-self.metadata.max_workgroup_size // self.wave_size)

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions)
