"""Parameters of the model: what `parameters.json` states for a target, and their digest.

Every value in the file has a unit, the kind of evidence behind it and its source. A result carries the digest of the
values it was computed with, overrides included, so that two figures are comparable only where the digests agree.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Real
from pathlib import Path
from typing import Any

from amdwarp.errors import UsageError
from amdwarp.target import Target, get_target

FILE = Path(__file__).with_name("parameters.json")


@dataclass(frozen=True)
class MatrixRow:
    """Timing of matrix instructions.

    Attributes:
        pattern: what their mnemonics match as a whole.
        clk: clk until the matrix unit takes the next one.
        passes: LLVM's passes, for the hazard table.
        read: clk from the start in which no vector ALU instruction issues; None where it follows from the number of
            operand registers; ``clk`` where nothing runs beside it.
        clk_8bit, passes_8bit: the same where an operand is fp8 or bf8, or None where that makes no difference.
    """

    pattern: re.Pattern[str]
    clk: int
    passes: int
    read: int | None
    clk_8bit: int | None = None
    passes_8bit: int | None = None


@dataclass(frozen=True)
class LdsAccess:
    """How LDS serves one access width: banks of four bytes, and the lanes of each phase."""

    banks: int
    phases: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Parameters:
    """Values of one target. Those from `target` to `lds` say what they belong to; the others stand in the file.

    Attributes:
        target: the GPU.
        calibrated: the target's figures rest on measurements.
        digest: 12 hex digits over everything below.
        matrix: rows of the matrix table.
        lds: access (``read`` or ``write``) and bytes a lane to banks and phases.
    """

    target: Target
    calibrated: bool
    digest: str
    matrix: tuple[MatrixRow, ...] = field(repr=False)
    lds: Mapping[tuple[str, int], LdsAccess] = field(repr=False)
    issue_period_clk: int
    strict_memory_port: int
    oldest_first: int
    valu_clk: int
    valu_latency_clk: int
    trans_clk: int
    quarter_rate_clk: int
    valu_to_memory_clk: int
    hazard_slot_clk: int
    mfma_c_wait: int
    mfma_use_wait: int
    valu_to_mfma_wait: int
    mfma_read_clk_per_register: float
    packed_coissue: int
    packed_after_mfma_clk: int
    packed_holds_matrix: int
    branch_taken_clk: int
    barrier_clk: int
    smem_cold_clk: int
    smem_clk: int
    counter_vm: int
    counter_lgkm: int
    lds_address_bytes: int
    lds_input_bytes_per_clk: int
    lds_return_bytes_per_clk: int
    lds_fifo: int
    lds_pipe_clk: int
    lds_unaligned_lanes: int
    lds_ports: int
    lds_pass_clk: int
    lds_atomic_factor: int
    lds_copy_bytes_per_clk: int
    vmem_queue: int
    vmem_credit_bytes: int
    vmem_round_trip_clk: int
    vmem_cold_clk: int
    vmem_jitter_clk: int
    vmem_slot_share: float
    vmem_store_clk: int
    tcp_line_bytes: int
    tcp_line_clk: int
    tcp_clk_4: int
    tcp_clk_8: int
    tcp_clk_16: int
    icache_bytes: int
    icache_line_bytes: int
    icache_ways: int
    icache_miss_clk: int
    waves_a_simd: int
    vgpr_granule: int
    workgroup_gap_clk: int
    extra_slot_clk: int
    clock_mhz: float

    def replace(self, **values: float) -> Parameters:
        """The same with some values of the file replaced, and the digest that goes with them.

        Raises:
            UsageError: a name that the file does not have, or a value that its unit does not allow.
        """
        stated = _file()["targets"][self.target.arch]
        merged = {name: getattr(self, name) for name in stated["values"]}
        for name, value in values.items():
            if name not in merged:
                raise UsageError(f"unknown parameter {name!r}", remedy=f"known are {', '.join(sorted(merged))}")
            if not isinstance(value, Real):
                raise UsageError(f"parameter {name} = {value!r} is no number")
            if wrong := _problem(name, stated["values"][name]["unit"], value):
                raise UsageError(f"parameter {name} = {value:g} {wrong}")
            merged[name] = value
        return _build(self.target, stated, merged)

    def matrix_row(self, mnemonic: str) -> MatrixRow | None:
        """The row of a matrix instruction (without encoding suffix), or None."""
        return next((row for row in self.matrix if row.pattern.fullmatch(mnemonic)), None)


#: Upper ends by name, else by unit: beyond every use, and small enough for this machine's memory.
_MOST = {"lds_ports": 16, "icache_bytes": 1 << 26, "vgpr_granule": 512, "bytes": 1 << 40, "clk": 1 << 24}
_MOST_ELSE = 1 << 20
_SHARE = "vmem_slot_share"
#: Without one of these the model has nothing to divide by, no place, or no time that passes.
_POSITIVE = frozenset((
    *("issue_period_clk", "lds_address_bytes", "lds_input_bytes_per_clk", "lds_return_bytes_per_clk", "lds_fifo"),
    *("lds_unaligned_lanes", "lds_ports", "lds_copy_bytes_per_clk", "counter_vm", "counter_lgkm", "vmem_queue"),
    *("vmem_credit_bytes", "tcp_line_bytes", "icache_line_bytes", "icache_ways", "waves_a_simd", "vgpr_granule"),
    "clock_mhz",
))  # fmt: skip


def span(name: str, unit: str) -> tuple[int, int]:
    """The least and the most that a parameter can be."""
    most = 1 if name == _SHARE or unit == "flag" else _MOST.get(name, _MOST.get(unit, _MOST_ELSE))
    return int(name in _POSITIVE), most


def _problem(name: str, unit: str, value: float) -> str:
    """Why a parameter cannot have a value, or ""."""
    if not math.isfinite(value):
        return "is no finite number"
    if unit == "flag" and value not in (0, 1):
        return "is neither 0 nor 1"
    least, most = span(name, unit)
    if name == _SHARE and not least <= value <= most:
        return "is no share, from 0 to 1"
    if value < least or (name in WHOLE and round(value) < least):
        return f"is below {least} {unit}"
    return f"is above {most} {unit}" if value > most else ""


#: Fields of `Parameters` that are whole numbers; other values are rounded.
WHOLE = frozenset(f.name for f in fields(Parameters) if f.type == "int")


@functools.cache
def _file() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(FILE.read_text())
    return content


@functools.cache
def load(target: str | Target) -> Parameters:
    """The parameters that the file states for a target.

    Raises:
        UsageError: unknown target.
    """
    record = get_target(target)
    stated = _file()["targets"][record.arch]
    return _build(record, stated, {name: entry["value"] for name, entry in stated["values"].items()})


def varied(target: str | Target) -> tuple[str, ...]:
    """Names of the parameters that a sensitivity run varies: unknown, derived or known to depend on circumstances."""
    stated = _file()["targets"][get_target(target).arch]["values"]
    return tuple(name for name, entry in stated.items() if entry.get("vary"))


def describe(target: str | Target) -> list[tuple[str, float, str, str, str, str]]:
    """Rows (name, value, unit, evidence, source, text) of a target's parameters."""
    stated = _file()["targets"][get_target(target).arch]["values"]
    keys = ("value", "unit", "evidence", "source", "text")
    return [(name, *(entry[key] for key in keys)) for name, entry in stated.items()]


def _build(target: Target, stated: Mapping[str, Any], values: Mapping[str, float]) -> Parameters:
    rounded: dict[str, Any] = {name: round(value) if name in WHOLE else float(value) for name, value in values.items()}
    covered = {"values": rounded, "matrix": stated["matrix"], "lds": stated["lds"], "target": target.arch}
    digest = hashlib.sha256(json.dumps(covered, sort_keys=True).encode()).hexdigest()[:12]
    return Parameters(
        target=target,
        calibrated=stated["calibrated"],
        digest=digest,
        matrix=tuple(_row(entry) for entry in stated["matrix"]),
        lds={
            (access, int(width)): LdsAccess(entry["banks"], tuple(_lanes(text) for text in entry["phases"]))
            for access, widths in stated["lds"].items()
            for width, entry in widths.items()
        },
        **rounded,
    )


def _row(entry: Mapping[str, Any]) -> MatrixRow:
    read = entry["clk"] if entry.get("read") == "all" else entry.get("read")
    pattern = re.compile(entry["match"])
    return MatrixRow(pattern, entry["clk"], entry["passes"], read, entry.get("clk_8bit"), entry.get("passes_8bit"))


def _lanes(text: str) -> tuple[int, ...]:
    """``0-3,12-15`` as lane numbers."""
    lanes: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        lanes += range(int(first), int(last or first) + 1)
    return tuple(lanes)
