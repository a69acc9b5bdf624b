"""Choosing a configuration by trying: on the GPU, or in the cycle model; and keeping what was found.

A choice is kept under the *class* of a product (types, memory orders, epilogue, extents rounded up to powers of two)
together with what it depends on: the target, Triton's version and the digest of this package's sources. It lies in
``AMDWARP_CACHE_DIR`` (``~/.cache/amdwarp``), one JSON file a target, written whole and moved into place. Tables shipped
with the package, ``tuned/<target>.json``, hold choices of the cycle model under the class alone, and say so.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from amdwarp import env
from amdwarp.compiler import source_digest
from amdwarp.errors import AmdwarpError, UsageError
from amdwarp.runtime import Launch, compile_for, is_tensor, memory_span
from amdwarp.target import Target

from ..shipped import forget as forget_files
from ..shipped import read_json
from .choice import candidates, choose_plain
from .configs import SCHEDULES, GemmSchedule
from .plain_config import PlainConfig
from .plain_plan import Workspace, launches
from .plain_problem import PlainProblem
from .scheduled import launch as scheduled_launch
from .scheduled import scheduled_candidates, takes, worthwhile

#: What a product may run with.
Choice = PlainConfig | GemmSchedule

TABLES = Path(__file__).parent / "tuned"
#: Candidates that are tried at most.
TRIED = 12
_WARMUP, _RUNS = 3, 10


# ---- the class of a product


def product_class(problem: PlainProblem) -> str:
    """What a choice is kept under, in one line."""
    epilogue = problem.epilogue
    sides = "".join("k" if side.k == 1 else "l" if side.line == 1 else "s" for side in (problem.a, problem.b))
    types = [one.format or one.array.dtype for one in (problem.a, problem.b)]
    extras = [problem.precision, problem.groups]
    extras += [word for word, on in (("blocks", problem.blockwise), ("gated", epilogue.gated)) if on]
    extents = "x".join(str(_bucket(extent)) for extent in (problem.m, problem.n, problem.k))
    batch = _bucket(problem.matrices) if not problem.groups else problem.group_count
    words = [*types, epilogue.out, sides, *filter(None, extras), f"b{batch}", extents]
    return " ".join(words)


def _bucket(extent: int) -> int:
    """The next power of two."""
    return 1 << max(extent - 1, 0).bit_length()


# ---- what is kept


def cache_folder() -> Path:
    """Where tuning keeps what it found."""
    return Path(env.CACHE_DIR.get() or Path.home() / ".cache" / "amdwarp")


def cache_key(problem: PlainProblem, scheduled: bool = True) -> str:
    """The class of a product and what else its choice depends on; `scheduled` kernels among the candidates or not."""
    from amdwarp.lowering.bridge import require_triton

    among = "" if scheduled else " plain"
    return f"{product_class(problem)}{among} triton {require_triton().text} package {source_digest()[:16]}"


def _choice(entry: Any) -> Choice | None:
    try:
        return SCHEDULES[entry["schedule"]] if "schedule" in entry else PlainConfig(**entry["config"])
    except (KeyError, TypeError):
        return None


def entry_of(choice: Choice) -> dict[str, Any]:
    """How a table states a choice: a plain configuration by its fields, a scheduled kernel by its name."""
    if isinstance(choice, PlainConfig):
        return {"config": asdict(choice)}
    return {"schedule": next(name for name, one in SCHEDULES.items() if one == choice)}


def kept(problem: PlainProblem, target: Target, scheduled: bool = True) -> Choice | None:
    """What tuning on this machine found for a product's class, if it still is legal."""
    path = cache_folder() / f"gemm-{target.arch}.json"
    if not path.exists():
        return None
    return _legal(_choice(read_json(path).get(cache_key(problem, scheduled), {})), problem, target)


def shipped(problem: PlainProblem, target: Target) -> Choice | None:
    """What the shipped table of a target has for a product's class, if it is legal."""
    entries = read_json(TABLES / f"{target.arch}.json").get("entries", {})
    return _legal(_choice(entries.get(product_class(problem), {})), problem, target)


def _legal(choice: Choice | None, problem: PlainProblem, target: Target) -> Choice | None:
    if isinstance(choice, GemmSchedule):
        return choice if takes(problem, choice, target, target.compute_units) else None
    return choice if choice is not None and not choice.constraints(target, problem) else None


def keep(problem: PlainProblem, target: Target, choice: Choice, cost: float, how: str, scheduled: bool = True) -> None:
    """Add a choice to the file of its target; a concurrent writer may lose its entry, never the file.

    Raises:
        UsageError: a folder that cannot be written.
    """
    path = cache_folder() / f"gemm-{target.arch}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        entry = entry_of(choice) | {"how": how, "cost": cost}
        entries = dict(read_json(path)) | {cache_key(problem, scheduled): entry}
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".json")
        with os.fdopen(handle, "w") as file:
            json.dump(entries, file, indent=1, sort_keys=True)
        os.replace(name, path)
    except OSError as error:
        remedy = f"set {env.CACHE_DIR.name} to a folder that can be written"
        raise UsageError(f"{path} cannot be used: {error.strerror}", remedy=remedy, construct="tune") from None


# ---- choosing


def choose_config(
    problem: PlainProblem,
    target: Target,
    compute_units: int,
    *,
    tune: bool = False,
    parts: bool = True,
    scheduled: bool = True,
) -> Choice:
    """How to run a product: as tuned before, as tuned now if asked, as shipped, or by rules.

    Args:
        problem: the product.
        target, compute_units: where it runs.
        tune: try candidates where nothing is kept yet: on the GPU that holds the operands, else in the cycle model.
        parts: allow parts along K.
        scheduled: allow the scheduled kernels.
    """
    found = kept(problem, target, scheduled)
    if found is None and tune:
        found = _tuned(problem, target, compute_units, scheduled)
    if found is None:
        found = shipped(problem, target)
    if isinstance(found, GemmSchedule) and not scheduled:
        found = None
    if isinstance(found, PlainConfig) and found.partial and not parts:
        found = None
    if found is None and scheduled:
        found = worthwhile(problem, target, compute_units)
    return found if found is not None else choose_plain(problem, target, compute_units, parts=parts)


def all_candidates(problem: PlainProblem, target: Target, compute_units: int, scheduled: bool = True) -> list[Choice]:
    """What tuning tries: scheduled kernels that take the product, and `TRIED` plain configurations at most."""
    by_schedule = scheduled_candidates(problem, target, compute_units) if scheduled else []
    return [*by_schedule, *candidates(problem, target, compute_units)[:TRIED]]


def launches_of(
    problem: PlainProblem, choice: Choice | str, target: Target, compute_units: int, workspace: Workspace
) -> Iterator[Launch]:
    """The launches of a product by either family, in order; see `plain_plan.launches` and `scheduled.launch`."""
    if isinstance(choice, PlainConfig):
        yield from launches(problem, choice, target, compute_units, workspace)
    else:
        yield scheduled_launch(problem, choice, target, compute_units)


def _tuned(problem: PlainProblem, target: Target, compute_units: int, scheduled: bool) -> Choice:
    on_gpu = is_tensor(problem.out.value) and problem.out.value.device.type == "cuda"
    if problem.groups:
        return choose_plain(problem, target, compute_units)  # only the GPU knows how long groups are
    tried = all_candidates(problem, target, compute_units, scheduled)
    if on_gpu:
        best, cost = measure(problem, target, compute_units, tried)
        how = "measured"
    else:
        first = rank(problem, target, compute_units, configs=tried)[0]
        best, cost, how = first.config, first.clk, f"modelled, parameters {first.parameters}"
    keep(problem, target, best, cost, how, scheduled)
    return best


@dataclass(frozen=True)
class Ranked:
    """One candidate in the cycle model.

    Attributes:
        config: the candidate.
        clk: modelled clk of all of its launches.
        parameters: digest of the model's parameters.
        calibrated: they rest on measurements of this target.
    """

    config: Choice
    clk: float
    parameters: str
    calibrated: bool


def rank(
    problem: PlainProblem,
    target: Target,
    compute_units: int,
    *,
    configs: Sequence[Choice] = (),
) -> list[Ranked]:
    """Candidates in the order of their modelled time, fastest first. Nothing is measured.

    Args:
        problem: the product; its memory is neither read nor written.
        target, compute_units: where it would run.
        configs: those to try instead of `all_candidates`.

    Raises:
        AmdwarpError: no candidate could be modelled.
    """
    import numpy as np

    from amdwarp.cycles import estimate

    def workspace(elements: int, zeros: bool) -> Any:
        return np.zeros(elements, problem.accumulator)

    made = []
    failed = ""
    for config in configs or all_candidates(problem, target, compute_units):
        clk, one = 0.0, None
        try:
            for launch in launches_of(problem, config, target, compute_units, workspace):
                compiled, values = compile_for(launch, target)
                one = estimate(compiled, [_blank(value) for value in values], launch.grid)
                clk += one.kernel_clk
        except AmdwarpError as error:
            failed = str(error)
            continue
        if one is not None:
            made.append(Ranked(config, clk, one.parameters, one.calibrated))
    if not made:
        raise AmdwarpError(f"no candidate could be modelled: {failed or 'nothing to compute'}", construct="tune")
    return sorted(made, key=lambda one: one.clk)


def _blank(value: Any) -> Any:
    """Zeros in the place of an argument's memory, whose pages are never there until they are touched."""
    import numpy as np

    is_array = is_tensor(value) or isinstance(value, np.ndarray)
    return np.zeros(memory_span(value).nbytes, np.uint8) if is_array else value


def measure(
    problem: PlainProblem, target: Target, compute_units: int, configs: Sequence[Choice]
) -> tuple[Choice, float]:
    """The fastest of some configurations on the GPU that holds the operands, and its microseconds.

    Untested on hardware. The output is written by every run, with the same result.
    """
    import torch

    from amdwarp.runtime import run

    from .operands import empty

    best: tuple[Choice, float] | None = None
    out = problem.out.value
    with torch.cuda.device(out.device):
        for config in configs:

            def work(config: Choice = config) -> None:
                def workspace(elements: int, zeros: bool) -> Any:
                    return empty(out, (elements,), problem.accumulator, zeros=zeros)

                for launch in launches_of(problem, config, target, compute_units, workspace):
                    run(launch)

            for _ in range(_WARMUP):
                work()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(_RUNS):
                work()
            end.record()
            end.synchronize()
            microseconds = begin.elapsed_time(end) * 1000 / _RUNS
            if best is None or microseconds < best[1]:
                best = (config, microseconds)
    assert best is not None
    return best


def forget() -> None:
    """Remove what tuning on this machine found."""
    for path in cache_folder().glob("gemm-*.json"):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    forget_files()
