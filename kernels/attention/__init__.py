"""Attention: forward, over sequences of any lengths, and over paged caches.

>>> from amdwarp.kernels.attention import attention
>>> out = attention(q, k, v, causal=True)                # torch tensors on the GPU
>>> with amdwarp.emulate("gfx950"):
...     out = attention(q, k, v, causal=True)            # numpy arrays or CPU tensors, in the emulator
"""

from __future__ import annotations

from .cache import decode, paged_attention
from .configs import SCHEDULES, IntraWaveSchedule, PingPongSchedule, PlainSchedule
from .forward import attention, varlen_attention
from .options import AttentionOptions
from .tasks import TasksSchedule

__all__ = [
    "SCHEDULES",
    "AttentionOptions",
    "IntraWaveSchedule",
    "PingPongSchedule",
    "PlainSchedule",
    "TasksSchedule",
    "attention",
    "decode",
    "paged_attention",
    "varlen_attention",
]
