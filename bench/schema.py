"""One figure a row, in CSV or JSON: what was timed or modelled, by what, where, when. Reading validates."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from amdwarp.cycles.parameters import load
from amdwarp.errors import UsageError
from amdwarp.files import write_whole
from amdwarp.target import TARGETS

from .metrics import CPU, HARDWARE, MODELLED, SOURCES, get_metric

FORMAT = 1
_DIGEST = re.compile(r"[0-9a-f]{8,64}")
_ROCM = re.compile(r"\d+\.\d+")
_COMMIT = re.compile(r"([0-9a-f]{7,40}(-dirty)?)?")
_TIMED_UNITS = re.compile(r"flops?/s|/s$|^(s|ms|us|ns)$", re.IGNORECASE)


@dataclass(frozen=True)
class Row:
    """One figure.

    Attributes:
        kernel, variant: what it is about, and which form of it.
        shape: of the problem, ``x`` between the extents, or "".
        dtype: of the operands, or "".
        metric, unit: as in `amdwarp.bench.metrics`.
        p20, p50, p80: percentiles of the values, in order of value; all the same for a figure that does not vary.
        source: ``hardware``, ``modelled`` or ``cpu``.
        target: the arch that was compiled for, or "" where none was.
        gpu, rocm: of a hardware figure: its name and the ROCm version. Empty otherwise.
        cpu: name of the processor of a cpu figure. Empty otherwise.
        triton, amdwarp: versions.
        commit: of this package's source tree, ``-dirty`` behind it where files were changed; "" outside of one.
        time: when, ISO 8601 with its offset.
        parameters: digest of the parameters of a modelled figure. Empty otherwise.
        calibrated: of a modelled figure: ``yes``, or ``no`` where the parameters of the target are not calibrated.
    """

    kernel: str
    variant: str
    shape: str
    dtype: str
    metric: str
    unit: str
    p20: float
    p50: float
    p80: float
    source: str
    target: str
    gpu: str
    rocm: str
    cpu: str
    triton: str
    amdwarp: str
    commit: str
    time: str
    parameters: str
    calibrated: str

    @property
    def case(self) -> str:
        """Name of the case it is a figure of."""
        return "/".join(part for part in (self.kernel, self.variant, self.shape, self.dtype, self.target) if part)

    @property
    def when(self) -> datetime:
        """`time` as a point of time: texts with different offsets are not in its order."""
        # Python 3.10 does not read a Z
        return datetime.fromisoformat(self.time.replace("Z", "+00:00"))

    @property
    def key(self) -> tuple[str, ...]:
        """What makes two rows two runs of the same thing."""
        return (self.kernel, self.variant, self.shape, self.dtype, self.metric, self.source, self.target)


FIELDS = tuple(field.name for field in fields(Row))
_NUMBERS = ("p20", "p50", "p80")


def problem(row: Row) -> str:
    """What is wrong with a row, or ""."""
    if row.source not in SOURCES:
        return f"source {row.source!r} is none of {', '.join(SOURCES)}"
    if row.source == MODELLED and _TIMED_UNITS.search(row.unit):
        return f"a modelled figure cannot be in {row.unit}: nothing was timed"
    try:
        metric = get_metric(row.metric)
    except UsageError as error:
        return str(error)
    if row.source != metric.source:
        return f"metric {row.metric!r} is {metric.source}, not {row.source}"
    if row.unit != metric.unit:
        return f"metric {row.metric!r} is in {metric.unit}, not in {row.unit!r}"
    if not all(math.isfinite(value) and value >= 0 for value in (row.p20, row.p50, row.p80)):
        return f"percentiles {row.p20}, {row.p50}, {row.p80} are not finite numbers of at least 0"
    if not row.p20 <= row.p50 <= row.p80:
        return f"percentiles {row.p20}, {row.p50}, {row.p80} are not in order"
    return _origin_problem(row) or _text_problem(row)


def _origin_problem(row: Row) -> str:
    """Each source needs its own proof and may not carry that of another."""
    needed = {HARDWARE: ("gpu", "rocm", "target"), MODELLED: ("parameters", "calibrated", "target"), CPU: ("cpu",)}
    for source, names in needed.items():
        for name in names:
            value = getattr(row, name)
            if source == row.source and not value.strip():
                return f"a {source} figure lacks its {name}"
            if source != row.source and value and name != "target":
                return f"a {row.source} figure cannot have {name} = {value!r}"
    if row.source == HARDWARE and not _ROCM.match(row.rocm):
        return f"rocm {row.rocm!r} is no version of ROCm"
    if row.source == MODELLED and not _DIGEST.fullmatch(row.parameters):
        return f"parameters {row.parameters!r} is no digest of parameters"
    if row.calibrated not in ("", "yes", "no"):
        return f"calibrated {row.calibrated!r} is neither yes nor no"
    if row.calibrated == "yes" and row.target in TARGETS and not load(row.target).calibrated:
        return f"there are no calibrated parameters of {row.target}"
    return ""


def _text_problem(row: Row) -> str:
    for name in ("kernel", "variant", "triton", "amdwarp"):
        if not getattr(row, name).strip():
            return f"{name} is empty"
    if row.target and row.target not in TARGETS:
        return f"target {row.target!r} is none of {', '.join(TARGETS)}"
    if row.shape and not re.fullmatch(r"\d+(x\d+)*", row.shape):
        return f"shape {row.shape!r} is not numbers with x between them"
    if not _COMMIT.fullmatch(row.commit):
        return f"commit {row.commit!r} is no commit"
    try:
        offset = row.when.utcoffset()
    except ValueError:
        return f"time {row.time!r} is not ISO 8601"
    return "" if offset is not None else f"time {row.time!r} has no offset from UTC"


def check(rows: Iterable[Row]) -> None:
    """Raise `UsageError` for the first row that is wrong."""
    for number, row in enumerate(rows, start=1):
        if text := problem(row):
            raise UsageError(f"row {number}: {text}")


def write(rows: Sequence[Row], path: str | Path) -> None:
    """Write rows as JSON or CSV, by the path's suffix: the whole file or, where that fails, nothing.

    Raises:
        UsageError: a row that is wrong, another suffix, or a place that cannot be written.
    """
    check(rows)
    file = Path(path)
    text = _dump(rows, suffix_of(file))
    try:
        write_whole(file, text)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from error


def suffix_of(path: str | Path) -> str:
    """``.json`` or ``.csv``, or a `UsageError`."""
    suffix = Path(path).suffix
    if suffix not in (".json", ".csv"):
        raise UsageError(f"{path} is neither .json nor .csv", remedy="name the file so")
    return suffix


def _dump(rows: Sequence[Row], suffix: str) -> str:
    if suffix == ".json":
        return json.dumps({"format": FORMAT, "rows": [asdict(row) for row in rows]}, indent=1) + "\n"
    out = io.StringIO()
    writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return out.getvalue()


def read(path: str | Path) -> list[Row]:
    """Rows of a file that `write` made.

    Raises:
        UsageError: it cannot be read, or a row in it is wrong; names the file and the row.
    """
    suffix = suffix_of(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"{path} cannot be read: {reason}") from error
    try:
        records = _json_records(text) if suffix == ".json" else _csv_records(text)
        rows = [_row(record, number) for number, record in enumerate(records, start=1)]
        check(rows)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return rows


def _json_records(text: str) -> list[Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"no JSON: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT or not isinstance(content.get("rows"), list):
        raise UsageError(f"not a result file of format {FORMAT}", remedy="make it with amdwarp bench run")
    return list(content["rows"])


def _csv_records(text: str) -> list[Any]:
    reader = csv.DictReader(io.StringIO(text))
    if tuple(reader.fieldnames or ()) != FIELDS:
        raise UsageError("the columns are not those of a result file", remedy="make it with amdwarp bench run")
    return list(reader)


def _row(record: Any, number: int) -> Row:
    if not isinstance(record, Mapping) or set(record) != set(FIELDS):
        raise UsageError(f"row {number} has not exactly the fields {', '.join(FIELDS)}")
    values: dict[str, Any] = dict(record)
    for name in FIELDS:
        value = values[name]
        if name not in _NUMBERS:
            if not isinstance(value, str):
                raise UsageError(f"row {number}: {name} = {value!r} is no text")
            continue
        if isinstance(value, bool):
            raise UsageError(f"row {number}: {name} = {value!r} is no number")
        try:
            values[name] = float(value)
        except (TypeError, ValueError):
            raise UsageError(f"row {number}: {name} = {value!r} is no number") from None
    return Row(**values)
