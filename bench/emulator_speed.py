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
    """Print wave-instructions a second: plain, with single waves interleaved, and under the sanitizer."""
    from amdwarp.cycles.zoo import gemm

    case = gemm(_SHAPE, schedule="inter_wave_256", arch="gfx950")
    text, shared = case.compiled.asm["amdgcn"], case.compiled.metadata.shared
    count = launch(text, case.args, case.grid, lds_bytes=shared).instructions

    def plain(lockstep: int | None) -> Callable[[], float]:
        return lambda: launch(text, case.args, case.grid, lds_bytes=shared, lockstep=lockstep).seconds

    def sanitized() -> float:
        start = time.perf_counter()
        check(case.compiled, case.args, case.grid)
        return time.perf_counter() - start

    print(f"{case.name}, 8 waves: {count} wave-instructions (best of {_REPEATS} runs on one core)")
    rows = [("emulator", plain(None)), ("emulator, single waves", plain(1)), ("sanitizer, reading included", sanitized)]
    fastest = None
    for label, run in rows:
        seconds = best(run)
        fastest = fastest or seconds
        print(
            f"  {label:28} {seconds:7.3f} s  {count / seconds:10,.0f} wave-instructions/s  {seconds / fastest:5.2f} x"
        )


if __name__ == "__main__":
    main()
