"""Memory operations under way, by wave and queue, and what a wait finishes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amdwarp.emulator.state import MOST_UNDER_WAY
from amdwarp.sanitizer.effects import QUEUES, spell_wait
from amdwarp.sanitizer.order import Records
from amdwarp.sanitizer.redundant import Needs


@dataclass(frozen=True, slots=True)
class Operation:
    """A memory operation.

    Attributes:
        inst: index of the instruction.
        record: LDS record of wave `first`, or 0.
        first: first wave of the batch that issued it.
        stores: it writes global memory.
    """

    inst: int
    record: int
    first: int
    stores: bool = False


class Queues:
    """What each wave has under way.

    Args:
        target: architecture, for the names of its waits.
        waves: of the workgroup.
        records: told of operations on LDS that finish.
        needs: told which wait finishes what, or None.
    """

    def __init__(self, target: str, waves: int, records: Records, needs: Needs | None) -> None:
        self.target, self.waves, self.records, self.needs = target, waves, records, needs
        self.reset()

    def reset(self) -> None:
        """Forget everything, for the next workgroup."""
        self._under_way: dict[str, list[list[Operation]]] = {q: [[] for _ in range(self.waves)] for q in QUEUES}
        self._covered: dict[tuple[str, int], list[tuple[Operation, int]]] = {}

    def issue(self, queue: str, operation: Operation, first: int, last: int) -> None:
        """Waves [first, last) have issued an operation."""
        full = False
        for operations in self._under_way[queue][first:last]:
            operations.append(operation)
            full |= len(operations) > MOST_UNDER_WAY
        if full:
            self.drain(((queue, MOST_UNDER_WAY),), range(first, last), operation.inst)

    def drain(self, limits: Iterable[tuple[str, int]], waves: range, inst: int) -> None:
        """Instruction `inst` waits until at most the given number of operations of each queue are under way."""
        records: list[int] = []
        owners: list[int] = []
        for queue, left in limits:
            for wave in waves:
                operations = self._under_way[queue][wave]
                if self.needs is not None:
                    self._cover(queue, wave, left, inst)
                covered = len(operations) - left
                if covered <= 0:
                    continue
                for operation in operations[:covered]:
                    if operation.record:
                        records.append(operation.record + wave - operation.first)
                        owners.append(wave)
                del operations[:covered]
        if records:
            self.records.finish(records, owners)

    def _cover(self, queue: str, wave: int, left: int, inst: int) -> None:
        """Tell `needs` which operations this wait covers as the first, and which as the second that differs."""
        assert self.needs is not None
        operations = self._under_way[queue][wave]
        earlier = self._covered.setdefault((queue, wave), [])
        again = max(0, min(len(earlier), len(earlier) + len(operations) - left))
        kept = [(operation, wait) for operation, wait in earlier[:again] if wait == inst]
        done = [operation for operation, wait in earlier[:again] if wait != inst]
        fresh = operations[: max(0, len(operations) - left)]
        self._covered[queue, wave] = [*kept, *earlier[again:], *((operation, inst) for operation in fresh)]
        if any(operation.stores for operation in fresh):
            self.needs.waits.add((inst, queue))
        if records := [operation.record + wave - operation.first for operation in fresh if operation.record]:
            self.needs.covered(records, inst, queue)
        if records := [operation.record + wave - operation.first for operation in done if operation.record]:
            self.needs.covered_again(records)

    def records_of(self, queue: str, wave: int) -> list[int]:
        """LDS records that a wave has under way in a queue."""
        return [op.record + wave - op.first for op in self._under_way[queue][wave] if op.record]

    def under_way(self, wave: int) -> Iterator[tuple[str, int, Operation]]:
        """What a wave has under way: queue, number of younger operations in it, operation."""
        for queue in QUEUES:
            operations = self._under_way[queue][wave]
            for at, operation in enumerate(operations):
                yield queue, len(operations) - at - 1, operation

    def wait_for(self, record: int, wave: int) -> str:
        """The wait that covers LDS record `record` of a wave, or "" if that is not under way."""
        for queue, younger, operation in self.under_way(wave):
            if operation.record and operation.record + wave - operation.first == record:
                return spell_wait(self.target, queue, younger)
        return ""
