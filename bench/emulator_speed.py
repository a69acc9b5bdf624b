"""How fast the emulator and the sanitizer run on this machine, measured: ``python -m amdwarp.bench.emulator_speed``.

The reference case is the GEMM of the zoo on one 256x256 tile with K = 1024: fp16, 8 waves, gfx950.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from amdwarp.emulator import launch
from amdwarp.sanitizer import check

_SHAPE = (256, 256, 1024)
_REPEATS = 5


def best(run: Callable[[], float]) -> float:
    """Seconds of the fastest of some runs."""
    return min(run() for _ in range(_REPEATS))


def main() -> None:
    """Print wave-instructions a second of the emulator and under the sanitizer, and how many times longer it takes."""
    from amdwarp.cycles.zoo import gemm

    case = gemm(_SHAPE, schedule="inter_wave_256", arch="gfx950")
    text, shared = case.compiled.asm["amdgcn"], case.compiled.metadata.shared
    count = launch(text, case.args, case.grid, lds_bytes=shared).instructions

    def plain(lockstep: int | None) -> Callable[[], float]:
        return lambda: launch(text, case.args, case.grid, lds_bytes=shared, lockstep=lockstep).seconds

    def timed(run: Callable[[], object]) -> Callable[[], float]:
        def seconds() -> float:
            start = time.perf_counter()
            run()
            return time.perf_counter() - start

        return seconds

    whole = timed(lambda: launch(text, case.args, case.grid, lds_bytes=shared))
    sanitized = timed(lambda: check(case.compiled, case.args, case.grid))
    print(f"{case.name}, 8 waves: {count} wave-instructions (best of {_REPEATS} runs on one core)")
    rows = [("emulator, running only", plain(None)), ("emulator, single waves, running only", plain(1))]
    rows += [("emulator, from the text on", whole), ("sanitizer, from the text on", sanitized)]
    figures = [(label, best(run)) for label, run in rows]
    for label, seconds in figures:
        print(f"  {label:38} {seconds:7.3f} s  {count / seconds:10,.0f} wave-instructions/s")
    print(f"  the sanitizer takes {figures[3][1] / figures[2][1]:.2f} times as long as the emulator")


if __name__ == "__main__":
    main()
