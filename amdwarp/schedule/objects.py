"""The objects of a typed warp-specialization schedule: frozen, hashable, with a ``repr`` that evaluates back.

Names and meaning are the field's (TileLang's ``ws_schedule``), so that a schedule reads the same in both. A constructor
checks types only; what a schedule as a whole must keep is in ``checks/``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from amdwarp.errors import UsageError
from amdwarp.target import Target


class WSSyncKind(Enum):
    """The four synchronization points of a pipeline.

    A pipeline has a full and an empty barrier. The producer waits for *empty* (ACQUIRE) and signals *full* (COMMIT);
    the consumer waits for *full* (WAIT) and signals *empty* (RELEASE).
    """

    PRODUCER_ACQUIRE = "producer_acquire"
    PRODUCER_COMMIT = "producer_commit"
    CONSUMER_WAIT = "consumer_wait"
    CONSUMER_RELEASE = "consumer_release"

    def __repr__(self) -> str:
        return f"WSSyncKind.{self.name}"

    @property
    def opens(self) -> bool:
        """Whether it opens a span: between it and its partner the role may touch the pipeline's buffers."""
        return self in (WSSyncKind.PRODUCER_ACQUIRE, WSSyncKind.CONSUMER_WAIT)

    @property
    def produces(self) -> bool:
        """Whether it belongs to the producer's side."""
        return self in (WSSyncKind.PRODUCER_ACQUIRE, WSSyncKind.PRODUCER_COMMIT)

    @property
    def partner(self) -> WSSyncKind:
        """The other end of the span."""
        return _PARTNERS[self]


_PARTNERS = {
    WSSyncKind.PRODUCER_ACQUIRE: WSSyncKind.PRODUCER_COMMIT,
    WSSyncKind.PRODUCER_COMMIT: WSSyncKind.PRODUCER_ACQUIRE,
    WSSyncKind.CONSUMER_WAIT: WSSyncKind.CONSUMER_RELEASE,
    WSSyncKind.CONSUMER_RELEASE: WSSyncKind.CONSUMER_WAIT,
}


def _set(instance: object, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(instance, name, value)


def _integer(construct: str, name: str, value: object) -> None:
    if type(value) is not int:
        raise UsageError(f"{name} must be an int, not {value!r}", construct=construct)


def _text(construct: str, name: str, value: object) -> None:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise UsageError(f"{name} must be one line of text, not {value!r}", construct=construct)


def _items(construct: str, name: str, value: Any, kind: type | tuple[type, ...], what: str) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise UsageError(f"{name} must be a list of {what}, not {value!r}", construct=construct)
    items = tuple(value)
    for item in items:
        if not isinstance(item, kind):
            raise UsageError(f"{name} holds {item!r}, which is none of {what}", construct=construct)
    return items


@dataclass(frozen=True, init=False, repr=False)
class WSRole:
    """A contiguous range of waves with one duty.

    Attributes:
        name: keys the bodies of every scope.
        warps_lo: first wave.
        warps_hi: one past the last wave.
        max_nreg: vector registers a lane that the role asks for; 0 asks for nothing.
    """

    name: str
    warps_lo: int
    warps_hi: int
    max_nreg: int

    def __init__(self, name: str, *, warps_lo: int, warps_hi: int, max_nreg: int = 0) -> None:
        _text("WSRole", "name", name)
        for key, value in {"warps_lo": warps_lo, "warps_hi": warps_hi, "max_nreg": max_nreg}.items():
            _integer(f"WSRole {name!r}", key, value)
        _set(self, name=name, warps_lo=warps_lo, warps_hi=warps_hi, max_nreg=max_nreg)

    @property
    def num_warps(self) -> int:
        """Waves of the role."""
        return self.warps_hi - self.warps_lo

    def __repr__(self) -> str:
        return f"WSRole({self.name!r}, warps_lo={self.warps_lo}, warps_hi={self.warps_hi}, max_nreg={self.max_nreg})"


@dataclass(frozen=True, init=False, repr=False)
class WSPipeline:
    """A full and an empty barrier that protect ``depth`` versions of some LDS buffers.

    Attributes:
        name: what synchronization points call it.
        buffers: names of the buffers: the kernel's variable, or the id of the ``ws_op`` around the allocation.
        depth: versions of each buffer.
        in_flight: versions whose copies the producer may have under way at once. With 1 it waits for its copies before
            it goes on; with more, each commit takes effect ``in_flight - 1`` iterations late. Not in TileLang, whose
            copies signal the barrier themselves.
    """

    name: str
    buffers: tuple[str, ...]
    depth: int
    in_flight: int

    def __init__(self, name: str, buffers: Iterable[str], depth: int, in_flight: int = 1) -> None:
        _text("WSPipeline", "name", name)
        construct = f"WSPipeline {name!r}"
        _integer(construct, "depth", depth)
        _integer(construct, "in_flight", in_flight)
        items = _items(construct, "buffers", buffers, str, "buffer names")
        _set(self, name=name, buffers=items, depth=depth, in_flight=in_flight)

    def __repr__(self) -> str:
        return f"WSPipeline({self.name!r}, {list(self.buffers)!r}, depth={self.depth}, in_flight={self.in_flight})"


@dataclass(frozen=True)
class WSInstr:
    """One step of a role's program: a :class:`WSOpRef` or a :class:`WSSync`."""


@dataclass(frozen=True, repr=False)
class WSOpRef(WSInstr):
    """Run the op, or the child scope, that the kernel marks with ``ws_op(id)``.

    Attributes:
        id: its id.
        stage: iterations it runs behind stage 0, whatever spans stand around it; None takes the stage of its span, or
            the body's lowest. Values of ops at lower stages are carried in registers. Not in TileLang, where only spans
            have stages.
    """

    id: str
    stage: int | None = None

    def __post_init__(self) -> None:
        _text("WSOpRef", "id", self.id)
        if self.stage is not None:
            _integer(f"WSOpRef {self.id!r}", "stage", self.stage)

    def __repr__(self) -> str:
        return f"WSOpRef({self.id!r})" if self.stage is None else f"WSOpRef({self.id!r}, stage={self.stage})"


@dataclass(frozen=True, repr=False)
class WSSync(WSInstr):
    """A synchronization point of a pipeline.

    Attributes:
        kind: which of the four.
        pipeline: name of the pipeline.
        stage: what stands between the two ends of a span runs so many iterations behind what stands at stage 0.
    """

    kind: WSSyncKind
    pipeline: str
    stage: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.kind, WSSyncKind):
            raise UsageError(f"kind must be a WSSyncKind, not {self.kind!r}", construct="WSSync")
        _text(f"WSSync.{self.kind.value}", "pipeline", self.pipeline)
        _integer(f"WSSync.{self.kind.value}({self.pipeline!r})", "stage", self.stage)

    @classmethod
    def producer_acquire(cls, pipeline: str, stage: int = 0) -> WSSync:
        """Wait until the next version of the buffers is empty; opens the producer's span."""
        return cls(WSSyncKind.PRODUCER_ACQUIRE, pipeline, stage)

    @classmethod
    def producer_commit(cls, pipeline: str, stage: int = 0) -> WSSync:
        """Signal that the version is full; closes the producer's span."""
        return cls(WSSyncKind.PRODUCER_COMMIT, pipeline, stage)

    @classmethod
    def consumer_wait(cls, pipeline: str, stage: int = 0) -> WSSync:
        """Wait until the next version of the buffers is full; opens the consumer's span."""
        return cls(WSSyncKind.CONSUMER_WAIT, pipeline, stage)

    @classmethod
    def consumer_release(cls, pipeline: str, stage: int = 0) -> WSSync:
        """Signal that the version is empty; closes the consumer's span."""
        return cls(WSSyncKind.CONSUMER_RELEASE, pipeline, stage)

    def __repr__(self) -> str:
        return f"WSSync.{self.kind.value}({self.pipeline!r}, stage={self.stage})"


Body = tuple[WSInstr, ...]


@dataclass(frozen=True, init=False, repr=False)
class WSScope:
    """A loop of the kernel, or all of it, with one program a role.

    Attributes:
        id: id of the ``ws_op`` around the loop, or :attr:`ROOT`.
        bodies: (role, program of one iteration) in the order given; the constructor takes a mapping, whose strings
            are op references.
    """

    ROOT: ClassVar[str] = "ws.root"
    """The id of the scope that is the whole kernel."""

    id: str
    bodies: tuple[tuple[str, Body], ...]

    def __init__(self, id: str, bodies: Mapping[str, Iterable[WSInstr | str]]) -> None:
        _text("WSScope", "id", id)
        construct = f"WSScope {id!r}"
        if not isinstance(bodies, Mapping):
            raise UsageError(f"bodies must map role names to lists, not {bodies!r}", construct=construct)
        made = []
        for role, body in bodies.items():
            _text(construct, "a role's name", role)
            items = _items(construct, f"the body of {role!r}", body, (str, WSOpRef, WSSync), "ids and WSSync")
            made.append((role, tuple(WSOpRef(item) if isinstance(item, str) else item for item in items)))
        _set(self, id=id, bodies=tuple(made))

    def body(self, role: str) -> Body:
        """The program of a role in one iteration; empty for one that has none here."""
        return dict(self.bodies).get(role, ())

    def __repr__(self) -> str:
        bodies = {
            role: [one.id if isinstance(one, WSOpRef) and one.stage is None else one for one in body]
            for role, body in self.bodies
        }
        return f"WSScope({self.id!r}, {bodies!r})"


@dataclass(frozen=True, init=False, repr=False)
class WSSchedule:
    """The complete warp-specialization schedule of one kernel. Its ``repr`` enters the kernel's cache key.

    Attributes:
        num_warps: waves of the workgroup; overrides the launch.
        roles: who there is.
        pipelines: what they synchronize through.
        scopes: the scheduled loops, and the root.
    """

    num_warps: int
    roles: tuple[WSRole, ...]
    pipelines: tuple[WSPipeline, ...]
    scopes: tuple[WSScope, ...]

    def __init__(
        self, num_warps: int, roles: Iterable[WSRole], pipelines: Iterable[WSPipeline], scopes: Iterable[WSScope]
    ) -> None:
        _integer("WSSchedule", "num_warps", num_warps)
        _set(
            self,
            num_warps=num_warps,
            roles=_items("WSSchedule", "roles", roles, WSRole, "WSRole"),
            pipelines=_items("WSSchedule", "pipelines", pipelines, WSPipeline, "WSPipeline"),
            scopes=_items("WSSchedule", "scopes", scopes, WSScope, "WSScope"),
        )

    def __repr__(self) -> str:
        parts = (list(self.roles), list(self.pipelines), list(self.scopes))
        return f"WSSchedule({self.num_warps}, " + ", ".join(map(repr, parts)) + ")"

    def role(self, name: str) -> WSRole:
        return next(role for role in self.roles if role.name == name)

    def pipeline(self, name: str) -> WSPipeline:
        return next(pipeline for pipeline in self.pipelines if pipeline.name == name)

    def scope(self, id: str) -> WSScope | None:
        return next((scope for scope in self.scopes if scope.id == id), None)

    def sides(self, pipeline: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of a pipeline's producer roles and of its consumer roles, in the order of ``roles``."""
        found = {
            (role, one.kind.produces)
            for scope in self.scopes
            for role, body in scope.bodies
            for one in body
            if isinstance(one, WSSync) and one.pipeline == pipeline
        }
        names = [role.name for role in self.roles]
        return tuple(n for n in names if (n, True) in found), tuple(n for n in names if (n, False) in found)

    def check(self, target: str | Target | None = None) -> None:
        """Raise ``UsageError`` for the first rule that the schedule breaks by itself, whatever kernel it is for.

        Args:
            target: arch name or record, for what a target bounds; None leaves that out.
        """
        from .checks import check

        check(self, target)

    def to_json(self) -> str:
        """The schedule as JSON, one instruction a line, so that two of them can be compared with ``diff``."""
        from .codec import to_json

        return to_json(self)

    @classmethod
    def from_json(cls, text: str) -> WSSchedule:
        """The schedule that JSON says.

        Raises:
            UsageError: no JSON, another schema or version, a field that is unknown, missing or of a wrong type.
        """
        from .codec import from_json

        return from_json(text)
