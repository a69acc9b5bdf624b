"""Typed warp-specialization schedules: who does what, through which pipelines, in which order.

A schedule is data. It is checked by itself (``checks/``), attached to a straight-line kernel whose ops carry ids
(``kernel.py``), checked against that kernel and carried out by the lowering.
"""

from __future__ import annotations

from .kernel import annotate_ws_schedule, ws_op
from .objects import WSInstr, WSOpRef, WSPipeline, WSRole, WSSchedule, WSScope, WSSync, WSSyncKind

__all__ = [
    "WSInstr",
    "WSOpRef",
    "WSPipeline",
    "WSRole",
    "WSSchedule",
    "WSScope",
    "WSSync",
    "WSSyncKind",
    "annotate_ws_schedule",
    "ws_op",
]
