"""Matrix products: the kernels of this package, the stock ``tl.dot`` kernel, and torch."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amdwarp.cycles import estimate
from amdwarp.errors import UsageError

from ..model import TileWork, model
from ..registry import Case, GpuWork, Modelled

DTYPES = ("fp16", "bf16")
FP8 = {"gfx950": "float8_e4m3fn", "gfx942": "float8_e4m3fnuz", "gfx1250": "float8_e4m3fn"}
Shape = tuple[int, int, int]
#: A square product, and layers of an 8-billion-parameter Llama 3 at 4096 tokens.
SHAPES: tuple[Shape, ...] = ((4096, 4096, 4096), (4096, 6144, 4096), (4096, 4096, 14336))
#: The stock kernel's variants: name to ping-pong's setting. "stock" is what this Triton does by default.
STOCK: dict[str, bool | None] = {"stock": None, "stock_pingpong_off": False, "stock_pingpong_on": True}
#: Shapes at which the stock kernel is tuned by the model; each takes a minute or more.
TUNED_SHAPES = SHAPES[:1]
TARGETS = ("gfx950", "gfx942")
#: The family that takes everything, with the configuration that its rule chooses.
PLAIN = "plain"
#: The largest relative difference (Frobenius) from torch's product that is timed. Rounding to bf16 costs 2**-9.
MISMATCH = 0.01


def shape_text(shape: Shape) -> str:
    """``MxNxK``."""
    return "x".join(map(str, shape))


@functools.cache
def own_schedules(target: str, dtype: str) -> tuple[str, ...]:
    """Names of the schedules of ``amdwarp.kernels.gemm`` that a target and a dtype can have."""
    from amdwarp.kernels.gemm import SCHEDULES

    found = []
    for name in SCHEDULES:
        with contextlib.suppress(UsageError):
            chosen = own_plan(name, SHAPES[0], dtype, target)
            if chosen.schedule == SCHEDULES[name]:  # not another one of its family
                found.append(name)
    return tuple(found)


@dataclass(frozen=True)
class OwnLaunch:
    """A launch of a kernel of this package: what it was compiled to, and its arguments, on zeros."""

    compiled: Any
    args: list[Any]
    grid: tuple[int, ...]


def own_plan(schedule: str, shape: Shape, dtype: str, target: str) -> Any:
    """Launch plan of a product whose B is a linear layer's weight."""
    import numpy as np
    from amdwarp.kernels.gemm import Matrix, plan

    from ..peers.kinds import kind_of

    m, n, k = shape
    kind = kind_of(dtype)
    stored, size = (k // 2 if dtype == "mxfp4" else k), max(1, kind.bits // 8)
    a, b = Matrix(m, stored, stored, 1, 0, size), Matrix(stored, n, 1, stored, 0, size)
    c = Matrix(m, n, n, 1, 0, np.dtype(kind.out_array).itemsize)
    return plan(a, b, c, kind.operand(target), schedule, out_dtype=kind.out, target=target)


def own_launch(schedule: str, shape: Shape, dtype: str, target: str) -> OwnLaunch:
    """Compile a schedule of ``amdwarp.kernels.gemm`` for a product, whose timing does not depend on the numbers."""
    import amdwarp

    from ..peers.tune import arguments

    chosen = own_plan(schedule, shape, dtype, target)
    function, hints = chosen.function(), chosen.hints
    compiled = amdwarp.compile(function, chosen.signature, chosen.constexprs, target, attrs=hints, **chosen.options)
    arrays = arguments(*shape, dtype)[:3]
    if dtype == "mxfp4":
        import numpy as np
        from amdwarp.kernels.gemm.scales import shuffled_size

        arrays += [np.zeros(shuffled_size(lines, shape[2] // 32), np.uint8) for lines in shape[:2]]
    return OwnLaunch(compiled, [*arrays, *chosen.arguments.values()], chosen.grid)


def model_own(schedule: str, shape: Shape, dtype: str, target: str) -> Modelled:
    """A schedule of ``amdwarp.kernels.gemm`` in the cycle model."""
    from amdwarp.kernels.gemm import SCHEDULES as KNOWN

    from ..peers.kinds import kind_of

    launch = own_launch(schedule, shape, dtype, target)
    chosen = KNOWN[schedule]
    work = TileWork((chosen.tile_m, chosen.tile_n, chosen.tile_k), shape[2], kind_of(dtype).element_bytes)
    config = f"{chosen.tile_m}x{chosen.tile_n}x{chosen.tile_k} warps {chosen.num_warps} ring {chosen.ring}"
    return model(launch.compiled, launch.args, launch.grid, work, config)


def model_plain(variant: str, shape: Shape, dtype: str, target: str) -> Modelled:
    """The plain family in the cycle model, through the public functions; the clk of all launches together."""
    import dataclasses

    import ml_dtypes
    import numpy as np
    from amdwarp.kernels import gemm

    from amdwarp.runtime import compile_for, emulate, memory_span

    from ..peers.kinds import kind_of
    from ..peers.tune import arguments

    kind = kind_of(dtype)
    a, b, c, *scales = arguments(*shape, dtype)
    with emulate(target, execute=False) as emulation:  # a sample of workgroups would have no parts along K
        if dtype in DTYPES:
            gemm.matmul(a, b.T, out=c, schedule=variant)
        elif dtype == "int8":
            gemm.int8_matmul(a, b.T, out=c, schedule=variant)
        elif dtype == "mxfp4":
            gemm.scaled_matmul(a, b.T, scales[0], scales[1].T, out=c, schedule=variant)
        else:
            a, b = (one.view(getattr(ml_dtypes, FP8[target])) for one in (a, b))
            gemm.scaled_matmul(a, b.T, out=c, schedule=variant)
    found = []
    for launch, compiled, _ in emulation.records:
        _, values = compile_for(launch, target)
        args = [memory_span(value) if isinstance(value, np.ndarray) else value for value in values]
        found.append((launch, compiled, args))
    launch, compiled, args = found[0]
    chosen = launch.constexprs["S"]
    parts = chosen.splits if chosen.schedule == "split_k" else 1
    work = TileWork((chosen.tile_m, chosen.tile_n, chosen.tile_k), shape[2] // parts, kind.element_bytes)
    text = f"{chosen.tile_m}x{chosen.tile_n}x{chosen.tile_k} warps {chosen.num_warps} {chosen.schedule}"
    made = model(compiled, args, launch.grid, work, text + (f" {parts}" if parts > 1 else ""))
    after = sum(estimate(compiled, args, launch.grid).kernel_clk for launch, compiled, args in found[1:])
    return dataclasses.replace(made, figures=dict(made.figures) | {"kernel_clk": made.figures["kernel_clk"] + after})


def model_stock(variant: str, shape: Shape, dtype: str, target: str) -> Modelled:
    """The stock kernel in the cycle model, at the configuration that the model finds fastest."""
    from ..peers.kernel import compile_stock, has_pingpong
    from ..peers.kinds import kind_of
    from ..peers.tune import arguments, tune

    setting = STOCK[variant]
    m, n, k = shape
    config = tune(shape, dtype, target, setting)
    compiled = compile_stock(config, dtype, target, setting, k % config.bk == 0)
    work = TileWork((config.bm, config.bn, config.bk), k, kind_of(dtype).element_bytes)
    text = str(config) + (", ping-pong at work" if has_pingpong(compiled) else "")
    return model(compiled, arguments(m, n, k, dtype), config.grid(m, n), work, text)


# Timed on a GPU


def operands(shape: Shape, dtype: str, device: str) -> tuple[Any, Any, Any]:
    """Normal random A (M, K), B (K, N) as a transposed view, and an empty C, as torch tensors."""
    import torch

    m, n, k = shape
    kind = {"fp16": torch.float16, "bf16": torch.bfloat16}[dtype]
    torch.manual_seed(0)
    a = torch.randn((m, k), dtype=torch.float32).to(kind).to(device)
    b = torch.randn((n, k), dtype=torch.float32).to(kind).to(device).t()
    return a, b, torch.empty((m, n), dtype=kind, device=device)


def gpu_work(run: Callable[[Any, Any, Any], object], shape: Shape, dtype: str, device: str = "cuda") -> GpuWork:
    """A product on a device, with a check of its result against torch's."""
    import torch

    a, b, c = operands(shape, dtype, device)

    def check() -> str:
        expected = torch.matmul(a, b).float()
        difference = float((c.float() - expected).norm() / expected.norm())
        return "" if difference <= MISMATCH else f"it differs from torch.matmul by {difference:.3g}"

    m, n, k = shape
    return GpuWork(lambda: run(a, b, c), 2.0 * m * n * k, check)


def run_own(schedule: str, a: Any, b: Any, c: Any) -> None:
    """C = A @ B with a schedule of ``amdwarp.kernels.gemm``."""
    from amdwarp.kernels.gemm import matmul

    matmul(a, b, out=c, schedule=schedule)


def run_torch(a: Any, b: Any, c: Any) -> None:
    """C = A @ B with torch."""
    import torch

    torch.matmul(a, b, out=c)


def run_stock(variant: str, target: str, a: Any, b: Any, c: Any) -> None:  # untested on hardware
    """C = A @ B with the stock kernel, which Triton tunes on the first call."""
    from ..peers.kernel import pingpong

    (m, k), n = a.shape, b.shape[1]
    with pingpong(STOCK[variant]):
        tuned = _autotuned(variant, target)
        grid = lambda meta: (-(-m // meta["BM"]) * -(-n // meta["BN"]),)  # noqa: E731 - what Triton calls it with
        tuned[grid](a, b, c, m, n, k, a.stride(0), b.stride(1), c.stride(0))


@functools.cache
def _autotuned(variant: str, target: str) -> Any:  # untested on hardware
    """A kernel of its own for each setting: Triton's cache in memory does not know of the setting."""
    import triton

    from ..peers.kernel import matmul
    from ..peers.tune import space

    configs = [
        triton.Config(one.constexprs | {"matrix_instr_nonkdim": one.mfma, "kpack": one.kpack}, one.warps, one.stages)
        for one in space(target)
    ]
    even = triton.heuristics({"EVEN_K": lambda args: args["k"] % args["BK"] == 0})
    return triton.autotune(configs=configs, key=["m", "n", "k"])(even(triton.jit(matmul)))


def _own_case(schedule: str, shape: Shape, dtype: str, target: str) -> Case:
    modelled = functools.partial(model_own, schedule, shape, dtype, target)
    hardware = functools.partial(gpu_work, functools.partial(run_own, schedule), shape, dtype)
    return Case("gemm", schedule, shape_text(shape), dtype, target, modelled=modelled, hardware=hardware)


def _stock_case(variant: str, shape: Shape, dtype: str, target: str) -> Case:
    modelled = functools.partial(model_stock, variant, shape, dtype, target) if shape in TUNED_SHAPES else None
    hardware = functools.partial(gpu_work, functools.partial(run_stock, variant, target), shape, dtype)
    return Case("gemm", variant, shape_text(shape), dtype, target, modelled, hardware, baseline=True)


def _torch_case(shape: Shape, dtype: str, target: str) -> Case:
    hardware = functools.partial(gpu_work, run_torch, shape, dtype)
    return Case("gemm", "torch", shape_text(shape), dtype, target, hardware=hardware, baseline=True)


def build_cases() -> list[Case]:
    """Every case of this file."""
    found = []
    for target in TARGETS:
        for dtype in DTYPES:
            for shape in SHAPES:
                found += [_own_case(name, shape, dtype, target) for name in own_schedules(target, dtype)]
                found += [_stock_case(variant, shape, dtype, target) for variant in STOCK]
                found.append(_torch_case(shape, dtype, target))
    return found
