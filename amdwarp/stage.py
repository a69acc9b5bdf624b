"""``warp_pipeline_stage``: the mark of one stage of a wave pipeline, usable inside Gluon and Triton kernels.

The construct leaves two dead constants that carry its arguments, one where the region opens and one where it closes.
A compilation through this package turns them into stages (``amdwarp.lowering.passes``). Without it the constants are
dead code that any Triton removes, and the kernel means the same without its schedule.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

from .errors import UsageError

SCOPES = ("inter_wave", "intra_wave")
PHASE_GAPS = (1, 2)
PRIORITIES = range(4)
NAMED = ("scope", "priority", "pair", "phase_gap", "order")

BEGIN = "amdwarp.stage.begin"
END = "amdwarp.stage.end"
PRIORITY = "amdwarp.stage.priority"
PHASE_GAP = "amdwarp.stage.phase_gap"
PAIR = "amdwarp.stage.pair"
SCOPE = "amdwarp.stage.scope"
ORDER = "amdwarp.stage.order"

_GROUP, _REPEAT = r"[MRWGSCTV]\d*", r"(\d+)\(([^()]*)\)"


def expand_order(text: str) -> str | None:
    """The order of a window without repeats: ``"2(M T2) M"`` is ``"M T2 M T2 M"``; None for what is none.

    Groups are a letter and a count: M matrix instructions, R and W LDS reads and writes, G and S global loads and
    stores, C copies to LDS, T transcendentals, V other vector instructions. ``n(...)`` repeats what it encloses.
    """
    flat = re.sub(_REPEAT, lambda found: " ".join([found[2].strip()] * int(found[1])), text).split()
    return " ".join(flat) if flat and all(re.fullmatch(_GROUP, one) for one in flat) else None


@dataclass(frozen=True)
class StageSpec:
    """The checked arguments of one ``warp_pipeline_stage``.

    Attributes:
        label: name in diagnostics, or None.
        scope: ``inter_wave`` or ``intra_wave``.
        priority: 0 (lowest) to 3 (highest), the operand of ``s_setprio``; None leaves it unsaid.
        pair: id that ties two intra-wave regions together, or None.
        phase_gap: stages that the second wave group runs behind the first, 1 or 2; None leaves it unsaid, which is 1.
        order: of the instructions of an intra-wave region, as `expand_order` reads it, or None for one by cost.
    """

    label: str | None = None
    scope: str = "inter_wave"
    priority: int | None = None
    pair: int | None = None
    phase_gap: int | None = None
    order: str | None = None

    def __post_init__(self) -> None:
        if self.label is not None and not isinstance(self.label, str):
            raise self._error(f"label must be a string or None, not {self.label!r}")
        if self.label is not None and not self.label.isprintable():
            raise self._error(f"label must be one line of printable characters, not {self.label!r}")
        if self.scope not in SCOPES:
            raise self._error(f"scope must be one of {', '.join(map(repr, SCOPES))}, not {self.scope!r}")
        if self.priority is not None:
            if not _is_int(self.priority) or self.priority not in PRIORITIES:
                raise self._error(f"priority must be an integer from 0 to 3, not {self.priority!r}")
            if self.scope != "inter_wave":
                raise self._error("priority belongs to scope='inter_wave' only", "drop priority")
        if self.pair is not None:
            if not _is_int(self.pair) or not 0 <= self.pair < 2**31:
                raise self._error(f"pair must be a non-negative integer below 2**31, not {self.pair!r}")
            if self.scope != "intra_wave":
                raise self._error("pair belongs to scope='intra_wave' only", "drop pair")
        if self.phase_gap is not None:
            if not _is_int(self.phase_gap) or self.phase_gap not in PHASE_GAPS:
                raise self._error(f"phase_gap must be 1 or 2, not {self.phase_gap!r}")
            if self.scope != "inter_wave":
                raise self._error("phase_gap belongs to scope='inter_wave' only", "drop phase_gap")
        if self.order is not None:
            if not isinstance(self.order, str) or expand_order(self.order) is None:
                raise self._error(
                    f"order must be groups of instructions, not {self.order!r}", 'write it like "8(M T2 V2) 8(M V5)"'
                )
            if self.scope != "intra_wave":
                raise self._error("order belongs to scope='intra_wave' only", "drop order")

    def _error(self, problem: str, remedy: str = "") -> UsageError:
        name = f" {self.label!r}" if isinstance(self.label, str) else ""
        return UsageError(problem, remedy=remedy, construct=f"warp_pipeline_stage{name}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _plain(value: Any) -> Any:
    """A kernel-side argument arrives wrapped as ``constexpr``; anything else as it is."""
    return value.value if type(value).__name__ == "constexpr" else value


def _kernel_line() -> str | None:
    """``file:line`` that Triton's front end is at: its code generator is in a frame above this one."""
    frame = inspect.currentframe()
    while frame is not None:
        generator: Any = frame.f_locals.get("self")
        line = getattr(getattr(generator, "cur_node", None), "lineno", None)
        if line is not None and hasattr(generator, "begin_line"):
            return f"{generator.file_name}:{generator.begin_line + line}"
        frame = frame.f_back
    return None


def _opened_by_with() -> bool:
    """Whether Triton's front end is at the head of a ``with``, which constructs its managers itself."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "visit_With"


def _check_call(unnamed: int, unknown: list[str], opened: bool) -> None:
    """What Python would answer with a ``TypeError``, and Triton with a text that names no argument."""
    problem = ""
    if unknown:
        problem, remedy = f"unknown argument {unknown[0]!r}", f"it takes label, {', '.join(NAMED)}"
    elif unnamed:
        problem, remedy = f"{unnamed + 1} arguments without a name", f"label comes first; name {', '.join(NAMED)}"
    elif not opened:
        problem, remedy = "it is called without with", "write: with amdwarp.warp_pipeline_stage(...): and a block"
    if problem:
        raise UsageError(problem, remedy=remedy, construct="warp_pipeline_stage")


class warp_pipeline_stage:
    """One stage of a wave pipeline: ``with amdwarp.warp_pipeline_stage("load", priority=1): ...`` in a kernel.

    With ``scope="inter_wave"`` the loop body (or a straight run of statements) is a sequence of at least two such
    regions. Waves 4 to 7 of a workgroup run one stage behind waves 0 to 3, so that one group's memory stage overlaps
    the other's MFMA stage. Between two stages only waits (``wait_group``) and arithmetic may stand.

    Args:
        label: name of the stage in errors and reports; a string or None.
        scope: ``"inter_wave"``, or ``"intra_wave"`` for a window woven inside one wave.
        priority: ``s_setprio`` value of the stage, 0 to 3, inter-wave only. Where some stage of a loop gives one, the
            others run at 0, and it is 0 again after the loop.
        pair: id of a two-region window, a non-negative integer, intra-wave only.
        phase_gap: how many stages apart the two groups run, 1 (where it is not given) or 2; inter-wave only, on the
            first stage of a loop only.
        order: of the instructions of a window, intra-wave only, as LLVM is asked for it: groups of a letter and a
            count, ``"8(M T2 V2) 8(M V5)"``. Matrix, memory and transcendental instructions must be as many as there
            are; V is the other vector work beside them. By default they are dealt out by cost.

    Raises:
        UsageError: while the kernel is compiled, for any other argument, and for a call that no ``with`` opens.
    """

    __triton_builtin__ = True
    __slots__ = ("_semantic", "spec")

    def __init__(
        self,
        label: Any = None,
        *unnamed: Any,
        scope: Any = "inter_wave",
        priority: Any = None,
        pair: Any = None,
        phase_gap: Any = None,
        order: Any = None,
        _semantic: Any = None,
        **unknown: Any,
    ) -> None:
        try:
            _check_call(len(unnamed), [*unknown], opened=_semantic is None or _opened_by_with())
            arguments = map(_plain, (label, scope, priority, pair, phase_gap, order))
            self.spec = StageSpec(*arguments)
        except UsageError as error:
            error.locate(_kernel_line())
            raise
        self._semantic = _semantic

    def __enter__(self) -> warp_pipeline_stage:
        spec = self.spec
        numbers = {PRIORITY: spec.priority, PHASE_GAP: spec.phase_gap, PAIR: spec.pair}
        self._mark(BEGIN, {key: value for key, value in numbers.items() if value is not None})
        return self

    def __exit__(self, *_: object) -> None:
        self._mark(END, {})

    def _mark(self, kind: str, numbers: dict[str, int]) -> None:
        if self._semantic is None:
            raise UsageError(
                "it has a meaning only inside a kernel",
                remedy="use it in a function under @amdwarp.jit, @gluon.jit or @triton.jit",
                construct="warp_pipeline_stage",
            )
        builder = self._semantic.builder
        mark = builder.get_int32(0)
        mark.set_attr(kind, builder.get_string_attr(self.spec.label or ""))
        mark.set_attr(SCOPE, builder.get_string_attr(self.spec.scope))
        if kind == BEGIN and self.spec.order is not None:
            mark.set_attr(ORDER, builder.get_string_attr(expand_order(self.spec.order)))
        for key, value in numbers.items():
            mark.set_attr(key, builder.get_int32_attr(value))
