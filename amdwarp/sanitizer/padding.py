"""Wait states that LLVM leaves out, put in.

LLVM counts the wait states behind an instruction on each way that leads from it, but looks into each block once only:
where a block is reached on two ways, the way that it looks at second, and that may be the shorter one, is not counted
(``getWaitStatesSince`` in LLVM's ``GCNHazardRecognizer.cpp``; seen in texts of Triton 3.9). ::

        v_mfma_f32_16x16x32_f16 v[8:11], ...        v_mfma_f32_16x16x32_f16 v[8:11], ...
        ...                       6 others          ...
        s_cbranch_scc1 .LBB0_17                     s_cbranch_scc1 .LBB0_17
        ...                       many others       ...
    .LBB0_17:                                   .LBB0_17:
                                                    s_nop 0
        v_and_b32_e32 v8, 60, v33                   v_and_b32_e32 v8, 60, v33
"""

from __future__ import annotations

from amdwarp.asm import parse
from amdwarp.errors import EmulatorError
from amdwarp.sanitizer.effects import program_effects
from amdwarp.sanitizer.waitstates import shortfalls

#: Wait states of the longest ``s_nop``.
_LONGEST = 16


def padded(text: str) -> str:
    """`text` with an ``s_nop`` in front of each instruction that comes too early by `amdwarp.sanitizer.hazards`.

    A text that cannot be read, and one that lacks nothing, come back as they are.
    """
    try:
        program = parse(text)
        found = shortfalls(program, program_effects(program))
    except EmulatorError:
        return text
    missing: dict[int, int] = {}
    for pair in found:
        line = program.instructions[pair.consumer].line
        missing[line] = max(missing.get(line, 0), pair.needed - pair.found)
    lines = text.split("\n")
    for line, states in sorted(missing.items(), reverse=True):
        counts = [min(_LONGEST, states - at) for at in range(0, states, _LONGEST)]
        lines[line - 1 : line - 1] = [f"\ts_nop {count - 1}" for count in counts]
    return "\n".join(lines)
