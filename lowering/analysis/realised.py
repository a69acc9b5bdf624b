"""What LLVM made of each window, read from the produced AMDGCN text.

Walls and scheduling groups stay in the text as comments, and a window's sync id is in those of its groups, so that each
window is found again even if LLVM moved or copied its block. Line-table directives tie instructions to operations.

Two questions are answered. *Counts*: are there as many machine instructions of each class and width as the price says?
If not, the groups asked for the wrong thing. *Order*: do they stand in the order asked for? LLVM drops a group that
it cannot fill without a word.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from amdwarp.errors import LoweringError

from ..ir import Module
from .pricing import Price, Slot
from .windows import OPS, ORDER, Window, construct, letters, parse_order, parse_price, price_text, unquoted, windows_of

PASS = "realised"
WRONG_PLACES = 0.05
"""Share of a window's anchors that may stand elsewhere before it counts as not realised."""

_WALL = re.compile(r";\s*sched_barrier mask\(0x0+\)")
_GROUP = re.compile(r";\s*sched_group_barrier mask\(0x0*([0-9A-Fa-f]+)\) size\((\d+)\) SyncID\((\d+)\)")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_FILE = re.compile(r'\.file\s+(\d+)\s+(?:"([^"]*)"\s+)?"([^"]*)"')
_WAITS = re.compile(r"s_waitcnt|s_wait_\w*cnt")
_BARRIERS = re.compile(r"s_barrier")

_PREFIXES: tuple[tuple[tuple[str, ...], Slot], ...] = (
    (("v_mfma_", "v_smfmac_", "v_wmma_", "v_swmmac_"), Slot.MFMA),
    (("ds_read", "ds_load"), Slot.DS_READ),
    (("ds_write", "ds_store"), Slot.DS_WRITE),
    (("buffer_load", "global_load", "flat_load", "tbuffer_load"), Slot.VMEM_READ),
    (("buffer_store", "global_store", "flat_store", "tbuffer_store"), Slot.VMEM_WRITE),
    (("v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_", "v_tanh_"), Slot.TRANS),
)
_MASKS = {0x8: Slot.MFMA, 0x100: Slot.DS_READ, 0x200: Slot.DS_WRITE, 0x20: Slot.VMEM_READ, 0x40: Slot.VMEM_WRITE}
_MASKS |= {0x400: Slot.TRANS, 0x2: Slot.VALU, 0x800: Slot.COPY}
_TO_LDS = re.compile(r"^(?:global|buffer|flat)_load_(?:async_to_)?lds|^(?:buffer|global)_load\S*\s.*\blds\b")
_BYTE_WORDS = {"byte": 8, "ubyte": 8, "sbyte": 8, "short": 16, "ushort": 16, "sshort": 16, "dword": 32}


@dataclass(frozen=True)
class Machine:
    """One machine instruction of a class that is woven.

    Attributes:
        slot: its class.
        bits: what it moves for one lane, 0 for arithmetic.
        mnemonic: as the text has it.
        where: (file, line, column) by the line table, or None where it names none.
    """

    slot: Slot
    bits: int
    mnemonic: str
    where: tuple[str, int, int] | None


@dataclass
class Stretch:
    """The text between two neighbouring walls.

    Attributes:
        instructions: those of a class that is woven, in order.
        waits, barriers: how many waits for memory, and barriers, stand between them.
        groups: scheduling groups by sync id, in the order asked for.
        vector: vector instructions of no other class.
    """

    instructions: list[Machine] = field(default_factory=list)
    waits: int = 0
    barriers: int = 0
    groups: dict[int, list[tuple[Slot, int]]] = field(default_factory=dict)
    vector: int = 0

    @property
    def order(self) -> str:
        return "".join(one.slot.value for one in self.instructions)


def slot_of(instruction: str) -> Slot | None:
    """The class of an instruction, or None for one that windows do not weave.

    >>> [slot_of(t) for t in ("buffer_load_dwordx4 v0, s[0:3], 0 offen lds", "s_nop 0")]
    [<Slot.COPY: 'C'>, None]
    """
    slot = next((slot for prefixes, slot in _PREFIXES if instruction.startswith(prefixes)), None)
    return Slot.COPY if slot is Slot.VMEM_READ and _TO_LDS.match(instruction) else slot


def bits_of(mnemonic: str) -> int:
    """Bits that a memory instruction moves for one lane.

    >>> [bits_of(m) for m in ("ds_read2st64_b64", "ds_read_b64_tr_b16", "buffer_load_dwordx4", "global_load_u16")]
    [128, 64, 128, 16]
    """
    if match := re.search(r"dwordx(\d)", mnemonic):
        return 32 * int(match.group(1))
    if match := re.search(r"_[biuf](\d+)", mnemonic.replace("_tr_b16", "").replace("_tr_b8", "").replace("_tr_b4", "")):
        paired = re.search(r"read2|write2|_2addr", mnemonic)
        return int(match.group(1)) * (2 if paired else 1)
    return next((bits for word, bits in _BYTE_WORDS.items() if f"_{word}" in mnemonic), 0)


def stretches(amdgcn: str) -> list[Stretch]:
    """Every stretch between two walls, in text order; the first begins at the top, the last ends at the end."""
    files: dict[str, str] = {}
    found = [Stretch()]
    where: tuple[str, int, int] | None = None
    for line in amdgcn.splitlines():
        text = line.strip()
        if match := _LOC.match(text):
            number, row, column = match.groups()
            where = (files.get(number, number), int(row), int(column)) if int(row) else None
        elif match := _FILE.match(text):
            folder, name = match.group(2) or "", match.group(3)
            files[match.group(1)] = name if name.startswith("/") or not folder else f"{folder}/{name}"
        elif _WALL.match(text):
            found.append(Stretch())
        elif match := _GROUP.match(text):
            slot = _MASKS.get(int(match.group(1), 16))
            if slot is not None:
                found[-1].groups.setdefault(int(match.group(3)), []).append((slot, int(match.group(2))))
        elif text and text[0] not in ".;":
            _count(found[-1], text.partition(";")[0], where)
    return found


def _count(stretch: Stretch, text: str, where: tuple[str, int, int] | None) -> None:
    slot, mnemonic = slot_of(text), text.split()[0]
    if slot is not None:
        bits = bits_of(mnemonic) if slot.memory else 0
        stretch.instructions.append(Machine(slot, bits, mnemonic, where))
    elif _WAITS.match(mnemonic):
        stretch.waits += 1
    elif _BARRIERS.match(mnemonic):
        stretch.barriers += 1
    elif mnemonic.startswith("v_"):
        stretch.vector += 1


# ---- what was asked for


@dataclass(frozen=True)
class PricedOp:
    """One priced operation of a window, as ``emit_groups`` noted it: position, name, place and price."""

    index: int
    name: str
    file: str
    line: int
    column: int
    prices: tuple[Price, ...]

    @property
    def where(self) -> tuple[str, int, int]:
        return (self.file, self.line, self.column)


@dataclass(frozen=True)
class Asked:
    """What a window asked for: its name and place, its operations' prices and its order."""

    number: int
    label: str
    where: str | None
    ops: tuple[PricedOp, ...]
    groups: tuple[tuple[Slot, int], ...]

    @property
    def construct(self) -> str:
        return construct(self.label)

    @property
    def order(self) -> str:
        return letters(self.groups)


def asked(module: Module) -> list[Asked]:
    """What every window of a scheduled module asked for."""
    return [_asked(window) for window in windows_of(module)]


def _asked(window: Window) -> Asked:
    order = parse_order(unquoted(window.end.attributes[ORDER]))
    ops = tuple(parse_ops(window.end.attributes[OPS]))
    return Asked(window.number, window.label, window.where, ops, tuple(order))


def parse_ops(text: str) -> Iterator[PricedOp]:
    """Read the ``OPS`` attribute of a closing wall."""
    for entry in re.findall(r'"((?:[^"\\]|\\.)*)"', text):
        match = re.fullmatch(r"(\d+) (\S+) (.*):(\d+):(\d+) (.*)", unquoted(entry))
        if match:
            index, name, file, line, column, price = match.groups()
            yield PricedOp(int(index), name, file, int(line), int(column), parse_price(price))


# ---- counts


Counts = Counter[tuple[Slot, int]]


def counts_of(prices: Sequence[Price]) -> Counts:
    total: Counts = Counter()
    for price in prices:
        if price.slot.exact:
            total[price.slot, price.bits if price.slot.memory else 0] += price.count
    return total


def recount(window: Asked, stretch: Stretch) -> dict[int, tuple[Price, ...]]:
    """Prices from the text for the operations whose own differ: position -> price; empty where they agree.

    Instructions whose line-table entry names no operation of the window (LLVM joined several, or lost the place) go to
    the operations that lack some of their class.
    """
    at = {op.where: op.index for op in window.ops}
    found: dict[int, Counts] = {op.index: Counter() for op in window.ops}
    loose: Counts = Counter()
    for one in stretch.instructions:
        key = (one.slot, one.bits)
        index = at.get(one.where) if one.where else None
        if index is None:
            loose[key] += 1
        else:
            found[index][key] += 1
    for op in window.ops:
        for key, count in (counts_of(op.prices) - found[op.index]).items():
            given = min(count, loose[key])
            found[op.index][key] += given
            loose[key] -= given
    if rest := +loose:
        _adopt(window, found, rest)
    return {
        op.index: tuple(
            Price(slot, count, bits) for (slot, bits), count in sorted((+found[op.index]).items(), key=_key)
        )
        + tuple(price for price in op.prices if not price.slot.exact)
        for op in window.ops
        if +found[op.index] != counts_of(op.prices)
    }


def _key(item: tuple[tuple[Slot, int], int]) -> tuple[str, int]:
    return item[0][0].value, -item[0][1]


def _adopt(window: Asked, found: dict[int, Counts], rest: Counts) -> None:
    """Instructions that no operation lacks go to the last one of the class, else to the last one at all."""
    for (slot, bits), count in rest.items():
        same = [op.index for op in window.ops if any(price.slot is slot for price in op.prices)]
        index = (same or [op.index for op in window.ops])[-1]
        found[index][slot, bits] += count


def count_error(window: Asked, corrected: dict[int, tuple[Price, ...]]) -> LoweringError:
    """The error for a window whose corrected prices are off again; shows both."""
    ops = {op.index: op for op in window.ops}
    shown = "; ".join(
        f"{ops[index].name} (line {ops[index].line}) priced {price_text(ops[index].prices) or 'nothing'}, "
        f"found {price_text(prices) or 'nothing'}"
        for index, prices in corrected.items()
    )
    return LoweringError(
        f"the produced text does not have the machine instructions that were counted in it before: {shown}",
        remedy="compiling the scheduled kernel changes its own instructions; drop the window, or report the kernel",
        construct=window.construct,
        where=window.where,
        pass_name=PASS,
    )


# ---- order


@dataclass(frozen=True)
class Realised:
    """How one copy of a window came out.

    Attributes:
        asked: the window.
        order: its instructions' letters as they stand in the text.
        misplaced: anchors that stand elsewhere than asked for.
        anchors: how many were asked for.
        waits, barriers: how many stand inside.
    """

    asked: Asked
    order: str
    misplaced: int
    anchors: int
    waits: int
    barriers: int

    @property
    def longest_run(self) -> int:
        return longest_run(self.order)

    @property
    def ok(self) -> bool:
        return self.misplaced <= WRONG_PLACES * self.anchors


def longest_run(order: str) -> int:
    """The longest run of matrix instructions with nothing woven in between."""
    return max((len(run) for run in re.findall("M+", order)), default=0)


def misplaced(wanted: str, got: str) -> int:
    """The fewest anchors of ``got`` that would have to move for it to read ``wanted``.

    Anchors are compared by their class and by how many matrix instructions stand before them.

    >>> misplaced("RMRMGMM", "RMRMGMM"), misplaced("RMRMGMM", "RRMMGMM"), misplaced("RRMM", "MMRR")
    (0, 1, 2)
    """
    return sum((_positions(wanted) - _positions(got)).values())


def _positions(order: str) -> Counter[tuple[str, int]]:
    found: Counter[tuple[str, int]] = Counter()
    before = 0
    for letter in order:
        if letter == Slot.MFMA.value:
            before += 1
        else:
            found[letter, before] += 1
    return found


def realised(windows: Sequence[Asked], found: Sequence[Stretch]) -> list[Realised]:
    """Every copy of every window in the text, windows in order.

    Raises:
        LoweringError: a window is not in the text at all.
    """
    results = []
    for window in windows:
        copies = copies_of(window, found)
        if not copies:
            raise LoweringError(
                "the produced text does not contain it",
                remedy="LLVM removed its instructions as unused, or its groups; check that its results are used",
                construct=window.construct,
                where=window.where,
                pass_name=PASS,
            )
        results += [_compare(window, stretch) for stretch in copies]
    return results


def copies_of(window: Asked, found: Sequence[Stretch]) -> list[Stretch]:
    """The stretches that have groups with the window's sync id.

    LLVM peels the last turn of a loop it unrolls, and what that turn loads ahead is dead: a stretch that has lost all
    its anchors is no copy to judge where another has them all.
    """
    copies = [stretch for stretch in found if window.number in stretch.groups]
    whole = any(_anchors(stretch.order) == _anchors(window.order) for stretch in copies)
    return [stretch for stretch in copies if _anchors(stretch.order) or not whole]


def _anchors(order: str) -> int:
    return sum(letter != Slot.MFMA.value for letter in order)


def _compare(window: Asked, stretch: Stretch) -> Realised:
    count = _anchors(window.order)
    wrong = misplaced(window.order, stretch.order)
    return Realised(window, stretch.order, wrong, count, stretch.waits, stretch.barriers)
