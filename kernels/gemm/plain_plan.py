"""From operands to launches of the plain family. Plain Python, apart from the launches' kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from amdwarp.runtime import Launch
from amdwarp.target import Target

from .dtypes import FORMATS
from .operands import Array
from .plain_config import EXTENT_LIMIT, SHUFFLE_ROWS, PlainConfig
from .plain_problem import Description, Operand, PlainProblem, Scale, Side

#: Buffer instructions and 32-bit offsets reach this far, bytes.
OFFSET_LIMIT = 0x7FFFFFFE
#: Makes an array of so many accumulator elements, of zeros or not.
Workspace = Callable[[int, bool], Any]
#: Bytes of workspace that a plan may ask for.
WORKSPACE_LIMIT = 1 << 32


def launches(
    problem: PlainProblem,
    config: PlainConfig,
    target: Target,
    compute_units: int,
    workspace: Workspace,
) -> Iterator[Launch]:
    """The launches of a product, in order: nothing for an empty output, two for schedules with parts.

    Args:
        problem: what to compute.
        config: how; legal on the target.
        target: the GPU.
        compute_units: of the device.
        workspace: makes an array of so many accumulator elements, of zeros or not.

    Raises:
        UsageError: a configuration that is illegal, or sizes that the kernel cannot take; nothing is launched then.
    """
    config.check(target, problem)
    if not (problem.m and problem.n and problem.matrices):
        return
    for one in _two_batch_dimensions(problem):
        yield from _launches(one, config, target, compute_units, workspace)


def _two_batch_dimensions(problem: PlainProblem) -> list[PlainProblem]:
    """Products with two batch dimensions at most: neighbours that are one are joined, the rest becomes launches."""
    joined = _joined(problem)
    if len(joined.batch) <= 2:
        missing = 2 - len(joined.batch)
        pad = (0,) * missing
        return [
            replace(
                joined,
                batch=(1,) * missing + joined.batch,
                a=replace(joined.a, batch=pad + joined.a.batch),
                b=replace(joined.b, batch=pad + joined.b.batch),
                out_batch=pad + joined.out_batch,
                residual_batch=pad + joined.residual_batch,
                scale_a=_batched(joined.scale_a, lambda steps: pad + steps),
                scale_b=_batched(joined.scale_b, lambda steps: pad + steps),
            )
        ]
    parts = []
    for at in range(joined.batch[0]):

        def part(array: Array, steps: tuple[int, ...], at: int = at) -> Array:
            return _moved(array, at * steps[0])

        def scale(one: Scale | None) -> Scale | None:
            moved = None if one is None else replace(one, array=part(one.array, one.batch))
            return _batched(moved, lambda steps: steps[1:])

        residual = joined.residual
        parts += _two_batch_dimensions(
            replace(
                joined,
                batch=joined.batch[1:],
                a=replace(joined.a, array=part(joined.a.array, joined.a.batch), batch=joined.a.batch[1:]),
                b=replace(joined.b, array=part(joined.b.array, joined.b.batch), batch=joined.b.batch[1:]),
                out=part(joined.out, joined.out_batch),
                out_batch=joined.out_batch[1:],
                residual=None if residual is None else part(residual, joined.residual_batch),
                residual_batch=joined.residual_batch[1:],
                scale_a=scale(joined.scale_a),
                scale_b=scale(joined.scale_b),
            )
        )
    return parts


def _batched(scale: Scale | None, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Scale | None:
    return None if scale is None else replace(scale, batch=change(scale.batch))


def _moved(array: Array, elements: int) -> Array:
    """An array from some element on, seen as one line of what follows."""
    if not elements:
        return array
    from amdwarp.runtime import is_tensor

    low, high = array.span()
    left = (high - low) // array.itemsize - elements
    if is_tensor(array.value):
        value = array.value.as_strided((left,), (1,), array.value.storage_offset() + elements)
    else:
        import numpy as np

        from amdwarp.runtime import memory_span

        span = memory_span(array.value)[elements * array.itemsize :]
        value = np.ndarray((left,), array.value.dtype, buffer=span)
    return Array(array.name, value, array.dtype, (left,), (1,), low + elements * array.itemsize, array.itemsize)


def _joined(problem: PlainProblem) -> PlainProblem:
    """The same product with batch dimensions of 1 dropped, and neighbours joined that one step walks through."""
    none = (0,) * len(problem.batch)
    scales = [one.batch if one is not None and one.batch else none for one in (problem.scale_a, problem.scale_b)]
    steps = [problem.a.batch, problem.b.batch, problem.out_batch, problem.residual_batch or none, *scales]
    kept: list[tuple[int, list[int]]] = []
    for at, extent in enumerate(problem.batch):
        if extent == 1:
            continue
        own = [one[at] for one in steps]
        if kept and all(before == step * extent for before, step in zip(kept[-1][1], own, strict=True)):
            kept[-1] = (kept[-1][0] * extent, own)
        else:
            kept.append((extent, own))
    sides = [tuple(own[side] for _, own in kept) for side in range(6)]
    return replace(
        problem,
        batch=tuple(extent for extent, _ in kept),
        a=replace(problem.a, batch=sides[0]),
        b=replace(problem.b, batch=sides[1]),
        out_batch=sides[2],
        residual_batch=sides[3],
        scale_a=_batched(problem.scale_a, lambda _: sides[4]),
        scale_b=_batched(problem.scale_b, lambda _: sides[5]),
    )


def side(operand: Operand, tile: int, tile_k: int) -> Side:
    """How the kernel reaches an operand with tiles of so many lines and elements along K."""
    numerator, denominator, packed = 1, 1, 1
    if operand.shuffle:
        numerator = SHUFFLE_ROWS
        reach = (tile // SHUFFLE_ROWS + 1) * operand.line + (tile_k + operand.shuffle) * SHUFFLE_ROWS
    else:
        if operand.format:
            format = FORMATS[operand.format]
            numerator, denominator = format.numerator, format.denominator
        packed = 2 if operand.format == "e2m1" else 1
        reach = (tile - 1) * operand.line + tile_k * operand.k
    return Side(
        format=operand.format if operand.format in ("e2m1", "e2m3", "e3m2") else "",
        wide=reach * operand.array.itemsize >= OFFSET_LIMIT,
        mask_outer=operand.line == 1 and operand.k % 16 == 0 and not operand.shuffle,
        vector=operand.shuffle,
        packed=packed,
        numerator=numerator,
        denominator=denominator,
    )


def describe(problem: PlainProblem, config: PlainConfig, target: Target) -> Description:
    """The compile-time description of a product."""
    a, b = problem.scale_a, problem.scale_b
    span = (config.tile_m - 1) * problem.out_line + (config.tile_n - 1) * problem.out_column
    mx = {"e2m3": "e4m3", "e3m2": "e4m3"}
    formats = [mx.get(one.format, one.format) for one in (problem.a, problem.b)]
    return Description(
        accumulator=problem.accumulator,
        precision=problem.precision,
        mx=problem.mx,
        a_mx=formats[0],
        b_mx=formats[1],
        scale_a=a.kind if a is not None else "none",
        scale_b=b.kind if b is not None else "none",
        block_m=a.block if a is not None else 1,
        block_n=b.block if b is not None else 1,
        groups=problem.groups,
        even_k=problem.k % config.tile_k == 0 and problem.groups != "k",
        wide_c=span * problem.out.itemsize >= OFFSET_LIMIT,
        batched_scales=any(one is not None and any(one.batch) for one in (a, b)),
        group_scales=b is not None and b.group != 0,
        raw=problem.epilogue.out == "int32",
        xcds=target.xcds,
    )


def tile_count(problem: PlainProblem, config: PlainConfig) -> int:
    """Output tiles of a product, over its batch; with groups of rows the most there can be."""
    rows = problem.m // config.tile_m + problem.group_count + 1
    if problem.groups != "rows":
        rows = -(-problem.m // config.tile_m)
    return rows * -(-problem.n // config.tile_n) * problem.matrices


def _launches(
    problem: PlainProblem,
    config: PlainConfig,
    target: Target,
    compute_units: int,
    workspace: Workspace,
) -> Iterator[Launch]:
    plain, combine = kernels()
    tiles, steps = tile_count(problem, config), -(-problem.k // config.tile_k)
    if config.partial and (steps < 2 or (config.schedule == "split_k" and config.splits == 1)):
        # nothing to part: the same tiles without a workspace
        config = replace(config, schedule="tiles", splits=1, atomic=False, programs=0)
    programs = _programs(config, tiles, compute_units)
    _check_sizes(problem, config, tiles, programs, steps)
    work = None
    if config.partial:
        slots = 2 * programs if config.schedule == "stream_k" else tiles * (1 if config.atomic else config.splits)
        planes = 2 if problem.epilogue.gated else 1
        elements = slots * config.tile_m * config.tile_n * planes
        if elements * 4 > WORKSPACE_LIMIT:
            raise problem.error(
                f"{config.schedule} takes a workspace of {elements * 4} bytes, more than {WORKSPACE_LIMIT}",
                "take fewer splits, or schedule='tiles'",
            )
        work = workspace(elements, config.atomic)
    sides = {"A": side(problem.a, config.tile_m, config.tile_k), "B": side(problem.b, config.tile_n, config.tile_k)}
    fixed = {"D": describe(problem, config, target), "E": problem.epilogue, "S": config}
    options = {"num_warps": config.num_warps, "num_stages": _stages(fixed["D"], config)}
    if rows := mfma_rows(config, target):
        options["matrix_instr_nonkdim"] = rows
    shared = _shared_arguments(problem, work) | {"tiles": tiles}
    scalars = _operand_arguments(problem)
    yield _launch(plain, (programs,), shared | scalars, fixed | sides, options)
    if config.partial:
        names = set(combine.arg_names)
        again = {name: value for name, value in shared.items() if name in names} | {"programs": programs}
        yield _launch(combine, (tiles,), again, fixed, {"num_warps": config.num_warps})


def kernels() -> tuple[Any, Any]:
    """The two kernels of the family; imports Triton.

    Raises:
        UnsupportedTritonError: no Triton, or one that these kernels do not compile with.
    """
    from amdwarp.lowering.bridge import require_triton_for

    require_triton_for("the GEMM")
    from .plain_kernel import combine, plain

    return plain, combine


def mfma_rows(config: PlainConfig, target: Target) -> int:
    """Rows of an MFMA to ask the compiler for, 0 for its own choice.

    It would take 32 rows where they fit, and have waves repeat each other's work where the tile has fewer such blocks
    than waves: all four in 32x64, which then holds 32 sums a lane and not 8.
    """
    if config.mfma or target.arch == "gfx1250":
        return config.mfma if target.arch != "gfx1250" else 0
    blocks = (config.tile_m // 32) * (config.tile_n // 32)
    return 16 if blocks < config.num_warps else 0


def _stages(description: Any, config: PlainConfig) -> int:
    """K steps that the stock pipeliner keeps under way.

    Triton 3.8 leaves out the wait between the LDS writes at the end of a loop and the barrier at its head: found by the
    sanitizer in 64x64x128 of fp8 with block scales and ragged rows on gfx950, and gone without the pipeliner.
    """
    from amdwarp.lowering.bridge import require_triton

    blocks = "block" in (description.scale_a, description.scale_b)
    return 1 if blocks and require_triton().version < (3, 9) else config.stages


def _programs(config: PlainConfig, tiles: int, compute_units: int) -> int:
    if config.schedule == "split_k":
        return tiles * config.splits
    if config.schedule in ("persistent", "stream_k"):
        wanted = config.programs or compute_units
        return wanted if config.schedule == "stream_k" else min(wanted, tiles)
    return tiles


def _check_sizes(problem: PlainProblem, config: PlainConfig, tiles: int, programs: int, steps: int) -> None:
    for name, extent in (("M", problem.m), ("N", problem.n), ("K", problem.k)):
        if extent > EXTENT_LIMIT:
            raise problem.error(f"{name} = {extent} exceeds {EXTENT_LIMIT}", "split the product")
    numbers = tiles * steps if config.schedule == "stream_k" else programs
    if max(tiles, numbers) > EXTENT_LIMIT:
        raise problem.error(f"{max(tiles, numbers)} tiles are more than a grid holds", "split the product")
    if problem.epilogue.gated and problem.n * 2 > EXTENT_LIMIT:
        raise problem.error(f"N = {problem.n * 2} exceeds {EXTENT_LIMIT}", "split the product")


def _shared_arguments(problem: PlainProblem, work: Any) -> dict[str, Any]:
    """Arguments that both kernels take."""
    a, b, e = problem.scale_a, problem.scale_b, problem.epilogue
    residual = problem.residual_batch if problem.residual is not None else (0, 0)
    return {
        "c": problem.out.value,
        "work": work,
        "scale_a": a.array.value if a is not None else None,
        "scale_b": b.array.value if b is not None else None,
        "bias": problem.bias.value if problem.bias is not None and e.bias else None,
        "residual": problem.residual.value if problem.residual is not None else None,
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "inner": problem.batch[-1],
        "c_outer": problem.out_batch[0],
        "c_inner": problem.out_batch[1],
        "c_m": problem.out_line,
        "c_n": problem.out_column,
        "r_outer": residual[0],
        "r_inner": residual[1],
        "r_m": problem.residual_line,
        "r_n": problem.residual_column,
        "sa_m": a.line if a is not None else 0,
        "sb_n": b.line if b is not None else 0,
        "sa_outer": a.batch[0] if a is not None else 0,
        "sa_inner": a.batch[1] if a is not None else 0,
        "sb_outer": b.batch[0] if b is not None else 0,
        "sb_inner": (b.group or b.batch[1]) if b is not None else 0,
        "bias_step": problem.bias_step,
        "alpha": float(problem.alpha),
        "beta": float(problem.beta),
    }


def _operand_arguments(problem: PlainProblem) -> dict[str, Any]:
    """Arguments of the main kernel alone."""
    a, b = problem.a, problem.b
    return {
        "a": a.array.value,
        "b": b.array.value,
        "offsets": problem.offsets.value if problem.offsets is not None else None,
        "groups": problem.group_count,
        "a_outer": a.batch[0],
        "a_inner": a.batch[1],
        "a_m": a.line,
        "a_k": a.k,
        "b_outer": b.batch[0],
        "b_inner": problem.b_group if problem.groups == "rows" else b.batch[1],
        "b_k": b.k,
        "b_n": b.line,
        "sa_k": problem.scale_a.k if problem.scale_a is not None else 0,
        "sb_k": problem.scale_b.k if problem.scale_b is not None else 0,
        "bias_group": problem.bias_group,
    }


def _launch(
    kernel: Any, grid: tuple[int, ...], arguments: dict[str, Any], fixed: dict[str, Any], options: dict[str, Any]
) -> Launch:
    """A launch whose absent arrays are compile-time constants."""
    absent = {name: value for name, value in arguments.items() if value is None}
    return Launch(kernel, grid, {n: v for n, v in arguments.items() if v is not None}, fixed | absent, options)
