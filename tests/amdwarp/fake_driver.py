"""A driver for launches where no GPU is: it reports one GPU and takes note of what would run."""

from __future__ import annotations

from typing import Any

from triton.backends.compiler import GPUTarget


class FakeDriver:
    """Stands for ``triton.runtime.driver.driver.active``.

    Attributes:
        launched: (grid, arguments) of each launch.
    """

    def __init__(self, arch: str = "gfx950", wave_size: int = 64) -> None:
        self.target = GPUTarget("hip", arch, wave_size)
        self.launched: list[tuple[tuple[int, ...], tuple[Any, ...]]] = []
        self.utils = self
        self.launcher_cls = self._launcher

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device

    def get_device_properties(self, device: int) -> dict[str, Any]:
        return {"max_shared_mem": 160 << 10, "arch": self.target.arch, "warpSize": 64, "multiprocessor_count": 256}

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[Any, ...]:
        assert binary[:4] == b"\x7fELF"
        return name, f"function {name}", 0, 0, 1024

    def unload_module(self, module: Any) -> None:
        pass

    def _launcher(self, source: Any, metadata: Any) -> Any:
        def run(x: int, y: int, z: int, *rest: Any) -> None:
            self.launched.append(((x, y, z), rest[6:]))

        return run
