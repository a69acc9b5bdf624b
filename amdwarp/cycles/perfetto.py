"""A timeline as a Perfetto trace, written with the perfetto package's trace builder.

A nanosecond of the trace is a clk of the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amdwarp.asm import Program
from amdwarp.cycles.timeline import LANES, Slice, Timeline
from amdwarp.errors import UsageError

_SEQUENCE = 1


def _builder() -> tuple[Any, Any]:
    try:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
        from perfetto.trace_builder.proto_builder import TraceProtoBuilder
    except ImportError:
        raise UsageError("a Perfetto trace needs the package perfetto", remedy='pip install "amdwarp[viz]"') from None
    return TraceProtoBuilder(), TrackEvent


def trace_bytes(timeline: Timeline, program: Program) -> bytes:
    """The timeline as the bytes of a ``.pftrace`` file.

    Tracks: one a SIMD, below it its matrix unit and its waves, below a wave its lanes. Memory operations that are under
    way at the same time get a track each, since slices of one track must not cross.

    Raises:
        UsageError: the perfetto package is not installed.
    """
    builder, events = _builder()
    tracks = _Tracks(builder)
    root = tracks.add(timeline.title, None)
    parents: dict[Any, int] = {}
    for simd in sorted({simd for _, simd in timeline.waves}):
        parents[simd, None] = tracks.add(f"SIMD {simd}", root)
    for number, simd in timeline.waves:
        parents[simd, number] = tracks.add(f"wave {number}", parents[simd, None])
    lanes: dict[tuple[int, int | None, str], list[Slice]] = {}
    for one in timeline.slices:
        lanes.setdefault((one.simd, one.wave, one.lane), []).append(one)
    ordered = sorted(lanes.items(), key=lambda item: _place(*item[0]))
    for (simd, wave, lane), slices in ordered:
        name = "matrix unit" if wave is None else lane
        for at, row in enumerate(rows(slices)):
            track = tracks.add(name if at == 0 else f"{name} {at + 1}", parents[simd, wave])
            for one in row:
                _write(builder, events, track, one, program)
    return bytes(builder.serialize())


def _place(simd: int, wave: int | None, lane: str) -> tuple[int, int, int]:
    """Order of the lanes: by SIMD, its matrix unit, then its waves."""
    return simd, -1 if wave is None else wave, LANES.index(lane)


def rows(slices: Iterable[Slice]) -> list[list[Slice]]:
    """Slices in rows, so that none of a row begins before the one before it has ended."""
    found: list[list[Slice]] = []
    for one in slices:
        row = next((row for row in found if row[-1].end <= one.start), None)
        if row is None:
            found.append([one])
        else:
            row.append(one)
    return found


class _Tracks:
    """Gives tracks their numbers."""

    def __init__(self, builder: Any) -> None:
        self._builder, self._next = builder, 1

    def add(self, name: str, parent: int | None) -> int:
        number, self._next = self._next, self._next + 1
        descriptor = self._builder.add_packet().track_descriptor
        descriptor.uuid, descriptor.name = number, name
        if parent is not None:
            descriptor.parent_uuid = parent
        descriptor.child_ordering = descriptor.CHRONOLOGICAL if parent is None else descriptor.EXPLICIT
        descriptor.sibling_order_rank = number
        return number


def _write(builder: Any, events: Any, track: int, one: Slice, program: Program) -> None:
    for kind, clk in ((events.TYPE_SLICE_BEGIN, one.start), (events.TYPE_SLICE_END, one.end)):
        packet = builder.add_packet()
        packet.timestamp = clk
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.track_event.type = kind
        packet.track_event.track_uuid = track
        if kind == events.TYPE_SLICE_BEGIN:
            packet.track_event.name = one.name
            packet.track_event.categories.append(one.lane)
            if one.index is not None:
                inst = program.instructions[one.index]
                for key, value in (("instruction", inst.text), ("source", str(inst.source or ""))):
                    annotation = packet.track_event.debug_annotations.add()
                    annotation.name, annotation.string_value = key, value
