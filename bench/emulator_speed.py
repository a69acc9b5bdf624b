"""How fast the emulator and the sanitizer run on this machine, measured: ``python -m amdwarp.bench.emulator_speed``.

The reference case is the GEMM of the zoo on one 256x256 tile with K = 1024: fp16, 8 waves, gfx950. Seconds are those of
the processor (user and system, `time.process_time`), so that other work on the machine disturbs them little; the two
that are compared run in turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from amdwarp.asm import parse
from amdwarp.emulator import launch
from amdwarp.sanitizer import check

_SHAPE = (256, 256, 1024)
_REPEATS = 9


def fastest(runs: Sequence[Callable[[], object]]) -> list[float]:
    """Processor seconds of the fastest of some turns of each."""
    best = [float("inf")] * len(runs)
    for _ in range(_REPEATS):
        for at, run in enumerate(runs):
            start = time.process_time()
            run()
            best[at] = min(best[at], time.process_time() - start)
    return best


def main() -> None:
    """Print wave-instructions a second of the emulator and under the sanitizer, and how many times longer it takes."""
    from amdwarp.cycles.zoo import gemm

    case = gemm(_SHAPE, schedule="inter_wave_256", arch="gfx950")
    text, lds = case.compiled.asm["amdgcn"], case.compiled.metadata.shared
    program = parse(text)
    count = launch(program, case.args, case.grid, lds_bytes=lds).instructions

    rows: list[tuple[str, Callable[[], object]]] = [
        ("emulator", lambda: launch(program, case.args, case.grid, lds_bytes=lds)),
        ("sanitizer", lambda: check(program, case.args, case.grid, lds_bytes=lds)),
        ("emulator, reading the text too", lambda: launch(text, case.args, case.grid, lds_bytes=lds)),
        ("sanitizer, reading the text too", lambda: check(text, case.args, case.grid, lds_bytes=lds)),
        ("emulator, single waves", lambda: launch(program, case.args, case.grid, lds_bytes=lds, lockstep=1)),
    ]
    figures = fastest([run for _, run in rows])
    print(f"{case.name}, 8 waves: {count} wave-instructions, processor time, best of {_REPEATS} runs")
    for (label, _), seconds in zip(rows, figures, strict=True):
        print(f"  {label:34} {seconds:7.3f} s  {count / seconds:10,.0f} wave-instructions/s")
    print(f"  the sanitizer takes {figures[1] / figures[0]:.2f} times as long as the emulator", end="")
    print(f" ({figures[3] / figures[2]:.2f} with reading the text)")


if __name__ == "__main__":
    main()
