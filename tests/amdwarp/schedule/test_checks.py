"""Each rule that a schedule keeps by itself: one refusal with its text."""

from __future__ import annotations

from dataclasses import replace

import pytest
from schedule_samples import ROOT, acquire, commit, gemm, release, roles, two, wait

from amdwarp import UsageError, WSOpRef, WSPipeline, WSRole, WSSchedule, WSScope


def role(lo: int, hi: int, nreg: int = 0, name: str = "mma") -> WSRole:
    return WSRole(name, warps_lo=lo, warps_hi=hi, max_nreg=nreg)


def with_role(one: WSRole, num_warps: int = 8) -> WSSchedule:
    return gemm(roles=[role(0, 4, name="load"), one], num_warps=num_warps)


def with_pipeline(*pipelines: WSPipeline) -> WSSchedule:
    return gemm(pipelines=pipelines)


def with_bodies(load: list[object], mma: list[object], root: dict[str, list[str]] | None = None) -> WSSchedule:
    scope = WSScope("loop_k", {"load": load, "mma": mma})  # type: ignore[dict-item]
    return gemm(scopes=[scope, WSScope(ROOT, root or {"load": ["loop_k"], "mma": ["loop_k", "store"]})])


LOAD = [acquire("smem"), "load_a", commit("smem")]
MMA = [wait("smem"), "multiply", release("smem")]

REFUSED: list[tuple[str, WSSchedule, str]] = [
    # roles
    ("no waves", gemm(num_warps=0), "WSSchedule: num_warps = 0; a workgroup has at least one wave"),
    ("no roles", gemm(roles=[]), "WSSchedule: it has no roles; name at least one WSRole"),
    ("two names", gemm(roles=roles("load", "load")), "WSRole 'load': two roles have this name; rename one"),
    ("before 0", with_role(role(-4, 4)), "WSRole 'mma': warps_lo = -4; waves are counted from 0"),
    ("empty", with_role(role(4, 4)), "WSRole 'mma': the waves 4 up to 4 are none; warps_hi is one past the last"),
    (
        "past the end",
        with_role(role(8, 12)),
        "WSRole 'mma': it ends at wave 11, the workgroup at wave 7; raise num_warps to 12 or move the role",
    ),
    ("three waves", with_role(role(4, 7), 7), "WSRole 'mma': it has 3 waves; layouts need a power of two"),
    (
        "overlap",
        with_role(role(2, 6)),
        "WSRole 'mma': it starts at wave 2, and 'load' holds the waves up to 3; give each wave to one role",
    ),
    (
        "gap",
        with_role(role(8, 16), 16),
        "WSSchedule: waves 4 to 7 belong to no role; on AMD an idle wave still holds its registers: lower num_warps",
    ),
    ("idle end", with_role(role(4, 8), 9), "WSSchedule: wave 8 belongs to no role; on AMD an idle wave still holds"),
    ("registers", with_role(role(4, 8, 100)), "WSRole 'mma': max_nreg = 100; give a multiple of 8, or 0 for no"),
    ("too many registers", with_role(role(4, 8, 1024)), "WSRole 'mma': max_nreg = 1024; a lane of gfx950 has 512"),
    (
        "too many waves",
        gemm(roles=[role(0, 16, name="load"), role(16, 32)], num_warps=32),
        "WSSchedule: num_warps = 32; a workgroup on gfx950 has at most 16 waves of 64 lanes; give roles fewer waves",
    ),
    # pipelines
    (
        "two pipelines of a name",
        with_pipeline(WSPipeline("smem", ["a"], 2), WSPipeline("smem", ["b"], 2)),
        "WSPipeline 'smem': two pipelines have this name; rename one",
    ),
    (
        "no buffer",
        with_pipeline(WSPipeline("smem", [], 2)),
        "WSPipeline 'smem': it protects no buffer; name the buffers",
    ),
    (
        "depth",
        with_pipeline(WSPipeline("smem", ["a"], 0)),
        "WSPipeline 'smem': depth = 0; it needs at least one version",
    ),
    (
        "in flight",
        with_pipeline(WSPipeline("smem", ["a"], 2, 3)),
        "WSPipeline 'smem': in_flight = 3 with depth = 2; copies of 1 to depth versions can be under way",
    ),
    ("buffer twice", with_pipeline(WSPipeline("smem", ["a", "a"], 2)), "it names the buffer 'a' twice; drop one"),
    (
        "shared buffer",
        with_pipeline(WSPipeline("smem", ["a"], 2), WSPipeline("other", ["a"], 2)),
        "WSPipeline 'other': the buffer 'a' is protected by 'smem' already; give each buffer to one pipeline",
    ),
    (
        "unknown pipeline",
        with_bodies([acquire("lds"), "load_a", commit("lds")], MMA),
        "WSScope 'loop_k', role 'load': producer_acquire names an unknown pipeline 'lds'; have smem",
    ),
    ("no producer", with_bodies(["load_a"], MMA), "WSPipeline 'smem': it has no producer; add producer_acquire and"),
    ("no consumer", with_bodies(LOAD, ["multiply"]), "WSPipeline 'smem': it has no consumer; add consumer_wait and"),
    (
        "both",
        with_bodies([*LOAD, wait("smem"), release("smem")], MMA),
        "WSPipeline 'smem': role 'load' is both a producer and a consumer of it; a role that waits for itself",
    ),
    # scopes
    (
        "two scopes of an id",
        gemm(scopes=[*gemm().scopes, WSScope(ROOT, {})]),
        "WSScope 'ws.root': two scopes have this id; join them",
    ),
    ("no root", gemm(scopes=gemm().scopes[:1]), "WSSchedule: it has no root scope; add WSScope(WSScope.ROOT, "),
    (
        "unknown role",
        gemm(scopes=[gemm().scopes[0], WSScope(ROOT, {"epilogue": ["store"]})]),
        "WSScope 'ws.root': it has a body for an unknown role 'epilogue'; have load, mma",
    ),
    (
        "idle role",
        gemm(roles=roles("load", "mma", "spare"), num_warps=12),
        "WSRole 'spare': it has nothing to do; give it a body, or drop it",
    ),
    (
        "twice",
        with_bodies([*LOAD[:2], "load_a", commit("smem")], MMA),
        "WSScope 'loop_k', role 'load': op 'load_a' is used twice; the role runs it in 'loop_k' already",
    ),
    (
        "twice in two scopes",
        with_bodies(LOAD, MMA, {"load": ["loop_k", "load_a"], "mma": ["loop_k"]}),
        "WSScope 'ws.root', role 'load': op 'load_a' is used twice; the role runs it in 'loop_k' already",
    ),
    (
        "root inside",
        with_bodies([*LOAD, ROOT], MMA),
        "WSScope 'loop_k', role 'load': it refers to the root; the root is in no scope",
    ),
    (
        "not reached",
        gemm(scopes=[gemm().scopes[0], WSScope(ROOT, {"load": [], "mma": ["store"]})]),
        "WSScope 'loop_k': the root does not lead to it; refer to it in the body of the scope around it",
    ),
    (
        "in itself",
        gemm(scopes=[WSScope("loop_k", {"load": [*LOAD, "loop_k"], "mma": MMA}), WSScope(ROOT, {"mma": ["store"]})]),
        "WSScope 'loop_k': the root does not lead to it",
    ),
    (
        "in two",
        gemm(
            scopes=[
                WSScope("loop_k", {"load": LOAD, "mma": MMA}),
                WSScope("outer", {"load": ["loop_k"]}),
                WSScope(ROOT, {"load": ["outer"], "mma": ["loop_k"]}),
            ]
        ),
        "WSScope 'loop_k': it stands in 'outer' and in 'ws.root'; a loop stands in one scope",
    ),
    (
        "never entered",
        with_bodies(LOAD, MMA, {"load": ["loop_k"], "mma": ["store"]}),
        "WSScope 'loop_k', role 'mma': it has a body here, and none of its steps in 'ws.root' is this scope; add",
    ),
    # spans
    (
        "negative stage",
        with_bodies(LOAD, [wait("smem", -1), "multiply", release("smem", -1)]),
        "WSScope 'loop_k', role 'mma': consumer_wait of 'smem' is at stage -1; stages are counted from 0",
    ),
    (
        "negative stage of an op",
        with_bodies(LOAD, [wait("smem"), WSOpRef("multiply", -2), release("smem")]),
        "WSScope 'loop_k', role 'mma': op 'multiply' is at stage -2; stages are counted from 0",
    ),
    (
        "open at the end",
        with_bodies([acquire("smem"), "load_a"], MMA),
        "producer_acquire of 'smem' is still open at the end; add WSSync.producer_commit('smem')",
    ),
    (
        "twice in a row",
        with_bodies([acquire("smem"), acquire("smem"), "load_a", commit("smem")], MMA),
        "producer_acquire of 'smem' stands twice in a row; close the first span before",
    ),
    (
        "not open",
        with_bodies(LOAD, ["multiply", release("smem")]),
        "consumer_release of 'smem' stands where no span of it is open; put WSSync.consumer_wait('smem') before it",
    ),
    (
        "stages of the ends",
        with_bodies(LOAD, [wait("smem", 1), "multiply", release("smem", 2)]),
        "consumer_wait of 'smem' is at stage 1 and consumer_release at stage 2; give both ends of a span one stage",
    ),
    (
        "stages of an op",
        two(
            [acquire("p"), "x", commit("p"), wait("q"), release("q")],
            [wait("p"), acquire("q", 1), "y", commit("q", 1), release("p")],
        ),
        "op 'y' is in spans of 'p' at stage 0 and 'q' at stage 1; give them one stage, or close one span before",
    ),
    (
        "stages far apart",
        with_bodies(LOAD, [wait("smem"), "read", release("smem"), WSOpRef("multiply", stage=65)]),
        "WSScope 'loop_k', role 'mma': its last steps run 65 iterations behind the first, and at most 64 are written "
        "out; lower a stage or an in_flight",
    ),
    (
        "many copies under way",
        gemm(depth=66, in_flight=66),
        "WSScope 'loop_k', role 'load': its last steps run 65 iterations behind the first",
    ),
    (
        "stages of a pipeline",
        with_bodies([*LOAD, acquire("smem", 1), "load_b", commit("smem", 1)], MMA),
        "'smem' has spans at stages 0 and 1; give all spans of a pipeline in one body one stage",
    ),
    (
        "phase lost",
        with_bodies([*LOAD, acquire("smem"), "load_b", commit("smem")], MMA),
        "WSPipeline 'smem': its phase is lost: 'load' turns it 2 times in 'loop_k', 'mma' 1 time in 'loop_k'; let all",
    ),
    (
        "phase lost between scopes",
        gemm(
            scopes=[
                WSScope("loop_k", {"load": LOAD, "mma": ["multiply"]}),
                WSScope(ROOT, {"load": ["loop_k"], "mma": [*MMA[:1], "loop_k", *MMA[2:]]}),
            ]
        ),
        "its phase is lost: 'load' turns it 1 time in 'loop_k', 'mma' 1 time in 'ws.root'",
    ),
    # deadlock
    (
        "cross-pipeline",
        two(
            [acquire("p"), "x", commit("p"), acquire("p"), "v", commit("p"), acquire("q"), "y", commit("q")],
            [wait("q"), "z", release("q"), wait("p"), "w", release("p"), wait("p"), "u", release("p")],
        ),
        "WSSchedule: deadlock: 'load' waits in producer_acquire('p'), iteration 0, for a release by 'mma', and 'mma' "
        "waits in consumer_wait('q'), iteration 0, for a commit by 'load' (iterations: 1 of 'loop'); reorder the "
        "spans, raise a depth, or lower a stage",
    ),
    (
        "each waits for the other first",
        two(
            [wait("q"), "x", release("q"), acquire("p"), "y", commit("p")],
            [wait("p"), "z", release("p"), acquire("q"), "w", commit("q")],
        ),
        "WSSchedule: deadlock: 'load' waits in consumer_wait('q'), iteration 0, for a commit by 'mma', and 'mma' waits "
        "in consumer_wait('p'), iteration 0, for a commit by 'load' (iterations: 1 of 'loop'); reorder the "
        "spans so that a producer commits before it waits, or lower the producer's stage; all wait "
        "for data, which no depth brings",
    ),
    (
        "held over",
        two(
            [acquire("p"), "x", commit("p"), wait("q", 0), "u", release("q", 0)],
            [wait("p", 1), "z", release("p", 1), acquire("q", 2), "w", commit("q", 2)],
        ),
        "deadlock",
    ),
]


@pytest.mark.parametrize(("schedule", "text"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused(schedule: WSSchedule, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        schedule.check("gfx950")
    assert text in str(caught.value)


def test_the_samples_are_accepted() -> None:
    for stage in range(4):
        for in_flight in (1, 2, 3):
            gemm(stage, in_flight=in_flight).check("gfx950")
    replace(gemm(), num_warps=8).check()


def test_depth_resolves_the_cross_pipeline_deadlock() -> None:
    (schedule,) = (row[1] for row in REFUSED if row[0] == "cross-pipeline")
    replace(schedule, pipelines=[WSPipeline("p", ["a"], 2), WSPipeline("q", ["b"], 1)]).check("gfx950")


def test_more_waves_fit_where_a_wave_is_narrow() -> None:
    wide = gemm(roles=[role(0, 16, name="load"), role(16, 32)], num_warps=32)
    wide.check("gfx1250")
    with pytest.raises(UsageError, match="at most 16 waves of 64 lanes"):
        wide.check("gfx942")
