"""What the waves of a workgroup executed, recorded once and timed as often as wanted.

The emulator interleaves waves as it likes; the record keeps one instruction stream for each wave, with what each memory
instruction touched. How the streams interleave in time is then the model's business. Of a wait by polling the rounds
that found nothing are left out, and what it waited for is noted (``flags.py``). Any other control flow that depends on
the interleaving has the stream of the one that was emulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from amdwarp.asm import Program, parse
from amdwarp.cycles.flags import Flags
from amdwarp.cycles.lds import PassCounter
from amdwarp.cycles.parameters import Parameters, load
from amdwarp.emulator import launch
from amdwarp.emulator.events import Access, CompletionEvent, InstructionEvent
from amdwarp.errors import UsageError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Touched:
    """What one memory instruction of one wave touched.

    Attributes:
        passes: LDS passes, conflicts counted.
        lines: cache lines in global or scratch memory.
        copied: bytes that a direct-to-LDS load brings to LDS.
    """

    passes: int = 0
    lines: int = 0
    copied: int = 0


@dataclass
class WaveTrace:
    """One wave: indices of its instructions in `Program.instructions`, and what each touched (None: no memory).

    `waits` and `arrivals`, by position in these lists: (LDS address, arrivals that a poll needs), and the LDS address
    that an arrival is at; see ``flags.py``.
    """

    pcs: list[int] = field(default_factory=list)
    touched: list[Touched | None] = field(default_factory=list)
    waits: dict[int, tuple[int, int]] = field(default_factory=dict)
    arrivals: dict[int, int] = field(default_factory=dict)


@dataclass
class GroupTrace:
    """The waves of one workgroup."""

    index: tuple[int, int, int]
    waves: list[WaveTrace]


@dataclass
class Trace:
    """Workgroups of one launch.

    Attributes:
        program: the kernel.
        groups: the recorded workgroups.
        grid: workgroups along x, y, z of the whole launch.
        lds_bytes: LDS of a workgroup; where nobody said, up to the highest address that was touched.
    """

    program: Program
    groups: list[GroupTrace]
    grid: tuple[int, ...]
    lds_bytes: int

    @property
    def instructions(self) -> int:
        """Wave-instructions recorded."""
        return sum(len(wave.pcs) for group in self.groups for wave in group.waves)

    @property
    def workgroups(self) -> int:
        """Workgroups of the launch."""
        return int(np.prod(self.grid))


class Recorder:
    """Observer of an emulation that builds a `Trace`."""

    def __init__(self, program: Program, parameters: Parameters) -> None:
        self._program, self._parameters = program, parameters
        self._passes = PassCounter(parameters)
        self._lines: dict[Any, int] = {}
        self._shared: dict[Touched, Touched] = {}
        self._flags = Flags(program)
        self.groups: list[GroupTrace] = []
        self.lds_high = 0

    def workgroup(self, index: tuple[int, int, int]) -> None:
        """A workgroup starts."""
        waves = [WaveTrace() for _ in range(self._program.waves)]
        self.groups.append(GroupTrace(index, waves))
        self._flags.workgroup()

    def workgroup_end(self, index: tuple[int, int, int]) -> None:
        """A workgroup has ended."""
        self._flags.finish(self.groups[-1].waves)

    def instruction(self, event: InstructionEvent) -> None:
        """An instruction was issued."""
        waves = self.groups[-1].waves[event.first : event.last]
        pc = event.inst.index
        if pc in self._flags.inside:
            self._flags.issuing(event, waves)
        touched: Sequence[Touched | None] = self._touched(event) if event.accesses else [None] * len(waves)
        for wave, what in zip(waves, touched, strict=True):
            wave.pcs.append(pc)
            wave.touched.append(what)
        if self._flags.concerns(event):
            self._flags.issued(event, waves)

    def complete(self, event: CompletionEvent) -> None:
        """A memory operation was waited for."""
        self._flags.complete(event)

    def _touched(self, event: InstructionEvent) -> list[Touched]:
        count = event.last - event.first
        passes, lines, copied = [0] * count, [0] * count, [0] * count
        copies = any(access.space == "global" for access in event.accesses)
        for access in event.accesses:
            if access.space == "lds":
                self._note_lds(access)
                if copies:
                    copied = self._copied(access, count)
                else:
                    more = self._passes.count(access.addresses, access.mask, access.size, access.kind)
                    passes = [x + y for x, y in zip(passes, more, strict=True)]
            elif access.space != "scalar":
                lines = self._count_lines(access)
        found = [Touched(*values) for values in zip(passes, lines, copied, strict=True)]
        return [self._shared.setdefault(one, one) for one in found]

    def _note_lds(self, access: Access) -> None:
        addresses = access.addresses if access.mask is None else access.addresses[access.mask]
        if addresses.size:
            self.lds_high = max(self.lds_high, int(addresses.max()) + access.size)

    def _copied(self, access: Access, waves: int) -> list[int]:
        if access.mask is None:
            return [access.addresses.shape[1] * access.size] * waves
        return [int(row.sum()) * access.size for row in access.mask]

    def _count_lines(self, access: Access) -> list[int]:
        """Cache lines that each wave's lanes touch. The private blocks of lanes are interleaved dword by dword."""
        line = self._parameters.tcp_line_bytes
        if access.space == "scratch":
            lanes = access.addresses.shape[1]
            active = [lanes] * len(access.addresses) if access.mask is None else access.mask.sum(axis=1)
            return [-(-int(n) * access.size // line) for n in active]
        addresses = access.addresses.astype(np.int64)
        relative = addresses - (addresses.min(axis=1, keepdims=True) // line * line)
        result = []
        for wave, row in enumerate(relative):
            on = None if access.mask is None else access.mask[wave]
            key = (access.size, row.tobytes(), None if on is None else on.tobytes())
            if key not in self._lines:
                used = row if on is None else row[on]
                ends = np.concatenate((used // line, (used + access.size - 1) // line))
                self._lines[key] = int(np.unique(ends).size)
            result.append(self._lines[key])
        return result


def record(
    program: Program | str,
    args: Sequence[Any],
    grid: tuple[int, ...],
    *,
    workgroups: int | Sequence[int | tuple[int, ...]] | None = 1,
    lds_bytes: int | None = None,
    parameters: Parameters | None = None,
    seed: int = 0,
) -> Trace:
    """Run a kernel in the emulator and keep what its waves executed.

    Args:
        program: the kernel, or its AMDGCN text.
        args: as for `amdwarp.emulator.launch`; outputs are written.
        grid: workgroups along x, y, z.
        workgroups: which to run, as for `amdwarp.emulator.launch`.
        lds_bytes: LDS of a workgroup; None where the text does not say and nobody knows.
        parameters: whose bank tables count conflicts; the target's own by default.
        seed: draws the interleaving of the emulation.

    Raises:
        EmulatorError: the text is not known, or the execution cannot go on.
        UsageError: the arguments do not fit the kernel, or no workgroup is named.
    """
    if isinstance(program, str):
        program = parse(program)
    if isinstance(workgroups, Sequence) and not workgroups:
        raise UsageError(f"workgroups = {workgroups!r} names none", remedy="give at least one")
    recorder = Recorder(program, parameters or load(program.target))
    launch(program, args, grid, workgroups=workgroups, observer=recorder, lds_bytes=lds_bytes, seed=seed)
    stated = max(program.descriptor.lds_bytes, program.metadata.lds_bytes)
    return Trace(program, recorder.groups, grid, lds_bytes or max(stated, recorder.lds_high))
