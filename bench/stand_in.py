"""A stand-in for a GPU driver: kernels compile and are launched as on the GPU, and the launch itself does nothing.

What is timed with it is the host's part of a launch: Triton's binding, specialisation and cache lookup, and this
package's checks. The driver's own part is not in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from amdwarp.target import get_target


class _Utils:
    """What Triton asks of a driver about the device and its binaries."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": self._target.lds_bytes, "multiprocessor_count": self._target.compute_units}

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        """Module, function, registers, spills, threads a workgroup may have."""
        return 1, 1, 0, 0, 1024


class StandInDriver:
    """Stands for Triton's HIP driver.

    Attributes:
        launches: grid and arguments of each launch, where they are kept.
    """

    def __init__(self, arch: str, keep: bool = False) -> None:
        self._target = get_target(arch)
        self._gpu_target = self._target.gpu_target
        self.launches: list[tuple[Any, ...]] = []
        self._keep = keep
        self.utils = _Utils(self._target)

    def get_current_target(self) -> Any:
        return self._gpu_target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        """What Triton calls for a launch."""

        def launch(*args: Any) -> None:
            if self._keep:
                self.launches.append(args)

        return launch


@contextlib.contextmanager
def stand_in(arch: str, keep: bool = False) -> Iterator[StandInDriver]:
    """Triton's active driver inside the block."""
    from triton.runtime import driver

    before = driver._active
    mine = StandInDriver(arch, keep)
    driver.set_active(mine)
    try:
        yield mine
    finally:
        driver._active = before
