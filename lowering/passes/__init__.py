"""The passes. ``SCHEDULE`` is what runs on TTGIR, in order; ``mark_stages`` runs alone, right after the front end."""

from .drop_anchors import DropAnchors
from .fence_edges import FenceEdges
from .inter_wave import InterWave
from .join_pipelines import JoinPipelines

SCHEDULE = (InterWave(), FenceEdges(), JoinPipelines(), DropAnchors())

__all__ = ["SCHEDULE", "DropAnchors", "FenceEdges", "InterWave", "JoinPipelines"]
