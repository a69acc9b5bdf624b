"""What an observer is told."""

from __future__ import annotations

from typing import Any

import numpy as np

BODY = [
    "s_load_dwordx2 s[6:7], s[0:1], 0x0",
    "v_lshlrev_b32_e32 v1, 2, v0",
    "s_waitcnt lgkmcnt(0)",
    "s_mov_b64 exec, 0xff",
    "global_load_dword v10, v1, s[6:7]",
    "ds_write_b32 v1, v0 offset:16",
    "s_waitcnt vmcnt(0)",
    "s_waitcnt lgkmcnt(0)",
    "s_barrier",
    "v_readfirstlane_b32 s10, v0",
    "s_cmp_eq_u32 s10, 0",
    "s_cbranch_scc1 .LBB0_1",
    "s_nop 0",
    ".LBB0_1:",
]


class Log:
    """Keeps the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def workgroup(self, index: Any) -> None:
        self.calls.append(("workgroup", index))

    def workgroup_end(self, index: Any) -> None:
        self.calls.append(("workgroup_end", index))

    def instruction(self, event: Any) -> None:
        self.calls.append(("instruction", event))

    def complete(self, event: Any) -> None:
        self.calls.append(("complete", event))

    def barrier(self, waves: Any) -> None:
        self.calls.append(("barrier", waves))


def test_calls(run_text: Any) -> None:
    log = Log()
    data = np.arange(128, dtype=np.uint32)
    result = run_text(BODY, [data], waves=2, lds=1024, observer=log, seed=None)
    kinds = [kind for kind, _ in log.calls]
    assert kinds[0] == "workgroup" and kinds[-1] == "workgroup_end" and kinds.count("barrier") == 1
    events = [event for kind, event in log.calls if kind == "instruction"]
    assert sum(event.last - event.first for event in events) == result.instructions
    by_name = {event.inst.base: event for event in events}
    load, write = by_name["global_load_dword"], by_name["ds_write_b32"]
    assert (load.first, load.last) == (0, 2) and load.mask.sum() == 16
    (access,) = load.accesses
    assert (access.space, access.kind, access.size) == ("global", "read", 4)
    first = int(access.addresses[0, 0])
    np.testing.assert_array_equal(
        access.addresses[access.mask].astype(np.int64) - first, [*range(0, 32, 4), *range(256, 288, 4)]
    )
    (lds,) = write.accesses
    assert (lds.space, lds.kind) == ("lds", "write") and int(lds.addresses[1, 3]) == 4 * 67 + 16
    order = [event.inst.base for kind, event in log.calls if kind == "complete"]
    assert order == ["s_load_dwordx2", "global_load_dword", "ds_write_b32"]
    issued = {serial: event.inst for event in events for serial in event.serials}
    for kind, event in log.calls:
        if kind == "complete":
            assert issued[event.serial] is event.inst
    branch = [event for event in events if event.inst.base == "s_cbranch_scc1"]
    assert [(event.first, event.last) for event in branch] == [(0, 2)]
    nop = next(event for event in events if event.inst.base == "s_nop")
    assert (nop.first, nop.last) == (1, 2)
    assert log.calls[kinds.index("barrier")][1] == (0, 1)


def test_an_observer_may_have_one_method_only(run_text: Any) -> None:
    class Counter:
        barriers = 0

        def barrier(self, waves: Any) -> None:
            self.barriers += 1

    counter = Counter()
    run_text(BODY, [np.zeros(128, np.uint32)], waves=2, lds=1024, observer=counter)
    assert counter.barriers == 1


def test_direct_to_lds_access(run_text: Any) -> None:
    log = Log()
    body = [*BODY[:3], "s_mov_b32 s8, 64", "s_mov_b32 s9, 0x27000", "s_and_b32 s7, s7, 0xffff", "s_mov_b32 m0, 128"]
    body += ["s_mov_b64 s[12:13], s[6:7]", "s_mov_b64 s[14:15], s[8:9]", "buffer_load_dword v1, s[12:15], 0 offen lds"]
    run_text(body, [np.zeros(64, np.uint32)], lds=1024, observer=log)
    event = next(e for k, e in log.calls if k == "instruction" and e.inst.base == "buffer_load_dword")
    source, target = event.accesses
    assert source.space == "global" and source.mask.sum() == 16
    assert (target.space, target.kind) == ("lds", "write") and target.addresses[0].tolist() == list(range(128, 384, 4))
    assert target.filled.sum() == 48
