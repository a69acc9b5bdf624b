"""How fast the model runs on this machine, measured: ``python -m amdwarp.cycles.speed``.

Seconds are those of the process on a core, so that other work on the machine matters little.
"""

from __future__ import annotations

import time

from amdwarp.cycles.parameters import load
from amdwarp.cycles.trace import record
from amdwarp.cycles.unit import simulate

_SHAPE = (2048, 2048, 4096)
_REPEATS = 3


def main() -> None:
    """Print wave-instructions a second of the recorder and of the compute unit, the best of some runs."""
    from amdwarp.cycles.zoo import gemm

    for schedule in ("inter_wave_256", "inter_wave_128"):
        launch = gemm(_SHAPE, schedule=schedule)
        text, shared = launch.compiled.asm["amdgcn"], launch.compiled.metadata.shared
        recording, modelling, count = [], [], 0
        for _ in range(_REPEATS):
            start = time.process_time()
            trace = record(text, launch.args, launch.grid, workgroups=[0], lds_bytes=shared)
            middle = time.process_time()
            simulate(trace, load(trace.program.target))
            recording.append(middle - start)
            modelling.append(time.process_time() - middle)
            count = trace.instructions
        print(
            f"{launch.name}: {count} wave-instructions; recorded at {count / min(recording):,.0f} a second, "
            f"modelled at {count / min(modelling):,.0f} a second of CPU time (best of {_REPEATS}, measured)"
        )


if __name__ == "__main__":
    main()
