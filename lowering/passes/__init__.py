"""The passes. ``SCHEDULE`` is what runs on TTGIR, in order; ``mark_stages`` runs alone, right after the front end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amdwarp.target import get_target

from ..analysis.pricing import Price
from ..analysis.tasks import own_barriers, specializations
from ..ir import Module
from .chunk_streams import ChunkStreams
from .count_barriers import CountBarriers
from .distribute_cover import DistributeCover
from .drop_anchors import DropAnchors
from .drop_windows import DropWindows
from .emit_groups import EmitGroups
from .fence_edges import FenceEdges
from .hoist_staging import HoistStaging
from .inter_wave import InterWave
from .join_pipelines import JoinPipelines
from .materialize_ws_schedule import MaterializeWSSchedule
from .open_windows import OpenWindows
from .place_chunks import PlaceChunks
from .place_tasks import PlaceTasks
from .release_arrivals import ReleaseArrivals
from .split_conditions import SplitConditions
from .stage_ws_loop import StageWSLoop
from .unfold_scopes import UnfoldScopes

TYPED = (UnfoldScopes(), SplitConditions(), MaterializeWSSchedule(), StageWSLoop())
"""Typed schedules: before everything else, which lowers what they make."""

STAGES = (InterWave(), FenceEdges(), JoinPipelines(), DropAnchors())
"""Inter-wave stages."""


def windows(
    corrections: Mapping[tuple[int, int], tuple[Price, ...]] | None = None,
    interleave: bool = True,
    vector: bool = True,
) -> tuple[Any, ...]:
    """The passes for intra-wave windows.

    Arguments as :class:`ChunkStreams`, :class:`PlaceChunks` and :class:`DistributeCover` take them.
    """
    chunk, place, cover = ChunkStreams(corrections or {}), PlaceChunks(interleave), DistributeCover(vector)
    return (OpenWindows(), HoistStaging(), chunk, place, cover, EmitGroups())


def tasks(module: Module) -> tuple[Any, ...]:
    """The passes for tasks and the barriers between them, which a module with neither does not need."""
    if not specializations(module) and not own_barriers(module):
        return ()
    target = get_target(module.attributes["ttg.target"].strip('"').removeprefix("hip:"))
    passes: tuple[Any, ...] = (PlaceTasks(), ReleaseArrivals(target.arch))
    return passes if target.arch == "gfx1250" else (*passes, CountBarriers(target.wave_size))


SCHEDULE = (*windows(), *STAGES)

__all__ = [
    "SCHEDULE",
    "STAGES",
    "TYPED",
    "ChunkStreams",
    "CountBarriers",
    "DistributeCover",
    "DropAnchors",
    "DropWindows",
    "EmitGroups",
    "FenceEdges",
    "HoistStaging",
    "InterWave",
    "JoinPipelines",
    "MaterializeWSSchedule",
    "OpenWindows",
    "PlaceChunks",
    "PlaceTasks",
    "ReleaseArrivals",
    "SplitConditions",
    "StageWSLoop",
    "UnfoldScopes",
    "tasks",
    "windows",
]
