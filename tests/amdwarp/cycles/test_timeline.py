"""Timeline: lanes, stage names, Perfetto trace, picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amdwarp.cycles.perfetto import rows, trace_bytes
from amdwarp.cycles.stages import Stage, stage_names, stages_of_source
from amdwarp.cycles.timeline import LANES, Slice, Timeline, _groups, build_timeline
from amdwarp.errors import UsageError

KERNEL = """import things
def kernel():
    with warp_pipeline_stage("load", priority=1):
        x = a
        y = b
    with gl.warp_pipeline_stage(name="multiply"):
        z = dot(x, y)
    with open("file"):
        pass
    with warp_pipeline_stage(NAME):
        pass
"""

#: Two groups of waves one stage apart; stage A reads LDS, stage B multiplies.
PIPELINE = [
    "v_readfirstlane_b32 s4, v0",
    "v_lshlrev_b32 v1, 4, v0",
    "v_and_b32 v1, 0xfff, v1",
    "s_mov_b32 s7, 8",
    "s_cmp_lt_u32 s4, 256",
    "s_cbranch_scc1 loop",
    "s_barrier",
    "loop:",
    *[f"ds_read_b128 v[{64 + 4 * at}:{67 + 4 * at}], v1" for at in range(4)],
    "s_waitcnt lgkmcnt(0)",
    "s_barrier",
    *["v_mfma_f32_16x16x32_f16 v[32:35], v[8:11], v[12:15], v[32:35]"] * 8,
    "s_sub_u32 s7, s7, 1",
    "s_barrier",
    "s_cmp_lg_u32 s7, 0",
    "s_cbranch_scc1 loop",
    "s_cmp_lt_u32 s4, 256",
    "s_cbranch_scc0 last",
    "s_barrier",
    "last:",
]


@pytest.fixture(scope="module")
def pipeline(timed: Any) -> Any:
    return timed(PIPELINE, waves=8)


def lanes_of(one: Any, iterations: int | None = None) -> Timeline:
    names = [None] * len(one.trace.program.instructions)
    return build_timeline(one.run, one.trace, names, title="pipeline, modelled", iterations=iterations)


def test_stages_of_a_source() -> None:
    assert stages_of_source(KERNEL) == [Stage("load", 3, 5), Stage("multiply", 6, 7), Stage("stage at line 10", 10, 11)]


def test_names_come_from_the_line_table(tmp_path: Path, text_of: Any) -> None:
    from amdwarp.asm import parse

    source = tmp_path / "pipelined.py"
    source.write_text(KERNEL)
    body = [
        f'.file 1 "{tmp_path}" "pipelined.py"',
        '.file 2 "/nowhere" "library.py"',
        ".loc 1 2 0 ; pipelined.py:2:0",
        "s_nop 0",
        ".loc 1 4 9 ; pipelined.py:4:9",
        "s_nop 1",
        ".loc 2 99 5 ; library.py:99:5 @[ pipelined.py:7:13 ]",
        "s_nop 2",
        ".loc 2 4 5 ; library.py:4:5 @[ pipelined.py:9:13 ]",
        "s_nop 3",
    ]
    text = text_of(body)
    assert stage_names(text, parse(text)) == [None, "load", "multiply", None, None]


def test_lanes_of_a_pipeline(pipeline: Any) -> None:
    lanes = lanes_of(pipeline)
    assert {one.lane for one in lanes.slices} <= set(LANES)
    assert lanes.waves == [(0, 0), (4, 0), (1, 1), (5, 1), (2, 2), (6, 2), (3, 3), (7, 3)]
    mfma = lanes.lane(0, 0, "mfma")
    assert len(mfma) == 64 and {one.end - one.start for one in mfma} == {16}
    assert len(lanes.lane(0, None, "mfma")) == 128
    # one barrier more for the second group before the loop, one more for the first behind it
    assert len(lanes.lane(0, 0, "barrier")) == len(lanes.lane(0, 4, "barrier")) == 17


def test_stages_are_named_by_what_they_hold(pipeline: Any) -> None:
    names = [one.name for one in lanes_of(pipeline).lane(0, 0, "stage")]
    assert names[:4] == ["memory", "MFMA", "memory", "MFMA"]


def test_the_groups_are_one_stage_apart(pipeline: Any) -> None:
    """While one group multiplies, the other reads: what a person looks for in the picture."""
    lanes = lanes_of(pipeline)
    for one in lanes.lane(0, 0, "stage")[3:-2]:
        middle = (one.start + one.end) // 2
        other = next((s for s in lanes.lane(0, 4, "stage") if s.start <= middle < s.end), None)
        assert other is None or other.name != one.name


def test_stages_without_a_barrier_between_them() -> None:
    """One after the other they are told apart, woven they are one; a stray instruction makes no stage."""
    assert _groups(["a"] * 20 + [None] * 3 + ["b"] * 20) == [(0, "a"), (23, "b")]
    assert _groups(["b", "c"] * 20 + ["a"] * 20) == [(0, "b + c"), (40, "a")]
    assert _groups(["a"] * 20 + ["b"] + ["a"] * 20) == [(0, "a")]
    assert _groups([None] * 4) == []


def test_a_window_holds_the_iterations_asked_for(pipeline: Any) -> None:
    from amdwarp.cycles.report import steady_state

    state = steady_state(pipeline.run.waves[0], pipeline.run.loops[0])
    assert state is not None
    lanes = lanes_of(pipeline, iterations=2)
    assert lanes.end - lanes.start == round(2 * state.period)
    assert all(one.start < lanes.end and one.end > lanes.start for one in lanes.slices)
    assert len(lanes.slices) < len(lanes_of(pipeline).slices)


def test_a_window_is_of_the_loop_that_multiplies_and_not_of_one_around_it(timed: Any) -> None:
    product = ["v_mfma_f32_16x16x32_f16 v[32:35], v[8:11], v[12:15], v[32:35]"]
    waits = ["s_nop 15"] * 30
    lines = ["s_mov_b32 s7, 3", "outer:"]
    for label, body in (("waits", waits), ("loop", product)):
        lines += ["s_mov_b32 s8, 9", f"{label}:", *body, "s_sub_u32 s8, s8, 1", "s_cmp_lg_u32 s8, 0"]
        lines.append(f"s_cbranch_scc1 {label}")
    lines += ["s_sub_u32 s7, s7, 1", "s_cmp_lg_u32 s7, 0", "s_cbranch_scc1 outer"]
    part = lanes_of(timed(lines, waves=1), 1)
    assert part.end - part.start < 100
    assert part.lane(0, None, "mfma")


def test_every_event_is_on_a_lane_once(pipeline: Any) -> None:
    waves = [one for one in lanes_of(pipeline).slices if one.wave is not None and one.index is not None]
    assert len(waves) == len(pipeline.run.events) == pipeline.trace.instructions


# Perfetto


def slice_at(start: int, end: int) -> Slice:
    return Slice(0, 0, "lds", start, end, "ds_read_b128")


def test_rows_hold_no_slices_that_cross() -> None:
    found = rows([slice_at(0, 10), slice_at(2, 12), slice_at(10, 20), slice_at(11, 13), slice_at(12, 30)])
    assert [[(one.start, one.end) for one in row] for row in found] == [
        [(0, 10), (10, 20)],
        [(2, 12), (12, 30)],
        [(11, 13)],
    ]


def parsed(content: bytes) -> tuple[dict[int, Any], dict[int, list[tuple[int, bool, str]]]]:
    """Track descriptors, and (time, begins, name) of the events of each track, read back with protobuf."""
    trace_pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = trace_pb2.Trace()
    trace.ParseFromString(content)
    tracks: dict[int, Any] = {}
    events: dict[int, list[tuple[int, bool, str]]] = {}
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        else:
            event = packet.track_event
            begins = event.type == trace_pb2.TrackEvent.TYPE_SLICE_BEGIN
            events.setdefault(event.track_uuid, []).append((packet.timestamp, begins, event.name))
    return tracks, events


def test_perfetto_trace_reads_back(pipeline: Any) -> None:
    pytest.importorskip("perfetto")
    lanes = lanes_of(pipeline)
    tracks, events = parsed(trace_bytes(lanes, pipeline.trace.program))
    assert set(events) <= set(tracks)
    roots = [one for one in tracks.values() if not one.HasField("parent_uuid")]
    assert [one.name for one in roots] == ["pipeline, modelled"]
    simds = [one for one in tracks.values() if one.parent_uuid == roots[0].uuid]
    assert [one.name for one in simds] == [f"SIMD {at}" for at in range(4)]
    below = [one.name for one in tracks.values() if one.parent_uuid == simds[0].uuid]
    assert below == ["wave 0", "wave 4", "matrix unit"]
    wave = next(one.uuid for one in tracks.values() if one.name == "wave 0")
    assert {"stage", "mfma", "lds", "wait", "barrier"} <= {
        one.name for one in tracks.values() if one.parent_uuid == wave
    }
    count = 0
    for row in events.values():
        depth, last = 0, 0
        for at, begins, _ in row:
            assert at >= last
            last, depth = at, depth + (1 if begins else -1)
            assert depth in (0, 1)
            count += begins
        assert depth == 0
    assert count == len(lanes.slices)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, pipeline: Any, tmp_path: Path) -> None:
    import sys

    from amdwarp.cycles.picture import draw

    for name in ("perfetto.trace_builder.proto_builder", "matplotlib"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match="needs the package perfetto"):
        trace_bytes(lanes_of(pipeline), pipeline.trace.program)
    with pytest.raises(UsageError, match="needs the package matplotlib"):
        draw(lanes_of(pipeline), tmp_path / "one.png")


# Picture


def test_picture_shows_the_lanes(pipeline: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from amdwarp.cycles.picture import TITLES, draw

    path = tmp_path / "one.svg"
    lanes = lanes_of(pipeline, iterations=2)
    draw(lanes, path, simd=1)
    text = path.read_text()
    titles = [title for lane, title in TITLES.items() if lane != "stage" and lanes.lane(1, 1, lane)]
    assert len(titles) > 4
    for words in ("wave 1  stage", "wave 5  stage", "matrix unit of SIMD 3", "clk, modelled", "pipeline", *titles):
        assert f"<!-- {words}" in text, words
    with pytest.raises(UsageError, match="SIMD 7 has no wave"):
        draw(lanes_of(pipeline), path, simd=7)


def test_picture_is_not_blank(pipeline: Any, tmp_path: Path) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    from amdwarp.cycles.picture import COLOURS, draw

    path = tmp_path / "one.png"
    draw(lanes_of(pipeline, iterations=2), path)
    pixels = (plt.imread(path)[..., :3] * 255).round().astype(int)
    for lane in ("mfma", "wait", "barrier"):
        colour = [int(COLOURS[lane][at : at + 2], 16) for at in (1, 3, 5)]
        assert (abs(pixels - colour).max(axis=-1) <= 1).sum() > 500, lane
