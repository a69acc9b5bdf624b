"""Schedules that the tests start from."""

from __future__ import annotations

from typing import Any

from amdwarp import WSPipeline, WSRole, WSSchedule, WSScope, WSSync

acquire, commit = WSSync.producer_acquire, WSSync.producer_commit
wait, release = WSSync.consumer_wait, WSSync.consumer_release
ROOT = WSScope.ROOT


def roles(*names: str) -> list[WSRole]:
    return [WSRole(name, warps_lo=4 * i, warps_hi=4 * i + 4) for i, name in enumerate(names)]


def gemm(stage: int = 1, depth: int = 3, in_flight: int = 1, **changes: Any) -> WSSchedule:
    """A producer and a consumer of one pipeline in one loop; ``changes`` replace the arguments of the schedule."""
    parts: dict[str, Any] = {
        "num_warps": 8,
        "roles": roles("load", "mma"),
        "pipelines": [WSPipeline("smem", ["a", "b"], depth, in_flight)],
        "scopes": [
            WSScope(
                "loop_k",
                {
                    "load": [acquire("smem"), "load_a", "load_b", commit("smem")],
                    "mma": [wait("smem", stage), "multiply", release("smem", stage)],
                },
            ),
            WSScope(ROOT, {"load": ["loop_k"], "mma": ["loop_k", "store"]}),
        ],
    }
    return WSSchedule(**{**parts, **changes})


def two(load: list[Any], mma: list[Any], depth: int = 1, other: int = 1) -> WSSchedule:
    """Two roles and the pipelines ``p`` and ``q`` in one loop, with the bodies given."""
    return WSSchedule(
        8,
        roles("load", "mma"),
        [WSPipeline("p", ["a"], depth), WSPipeline("q", ["b"], other)],
        [WSScope("loop", {"load": load, "mma": mma}), WSScope(ROOT, {"load": ["loop"], "mma": ["loop"]})],
    )
