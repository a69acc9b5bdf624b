"""Reading the produced text: classes, widths, places, and how far an order is from the one asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from amdwarp.lowering.analysis.pricing import Price, Slot
from amdwarp.lowering.analysis.realised import (
    Asked,
    Machine,
    PricedOp,
    Stretch,
    bits_of,
    copies_of,
    longest_run,
    misplaced,
    parse_ops,
    recount,
    slot_of,
    stretches,
)
from amdwarp.lowering.analysis.windows import letters, order_text, parse_order, parse_price, price_text, quoted
from hypothesis import given, settings
from hypothesis import strategies as st

INSTRUCTIONS = {
    "v_mfma_f32_32x32x16_f16 v[0:15], v[16:19], v[20:23], v[0:15]": (Slot.MFMA, 0),
    "v_wmma_scale_f32_32x16x128_f4 v[0:15], v[16:31], v[32:39], v[0:15], s0, s1": (Slot.MFMA, 0),
    "ds_read_b128 v[0:3], v9 offset:4096": (Slot.DS_READ, 128),
    "ds_read2st64_b64 v[0:3], v9 offset1:4": (Slot.DS_READ, 128),
    "ds_read2_b32 v[0:1], v9 offset1:4": (Slot.DS_READ, 64),
    "ds_read_b64_tr_b16 v[0:1], v9": (Slot.DS_READ, 64),
    "ds_load_tr16_b128 v[0:3], v9": (Slot.DS_READ, 128),
    "ds_load_tr8_b64 v[0:1], v9": (Slot.DS_READ, 64),
    "ds_load_2addr_stride64_b64 v[0:3], v9 offset1:4": (Slot.DS_READ, 128),
    "ds_read_u16_d16_hi v0, v9": (Slot.DS_READ, 16),
    "ds_write_b8 v0, v9": (Slot.DS_WRITE, 8),
    "ds_write2st64_b64 v0, v[2:3], v[4:5] offset1:4": (Slot.DS_WRITE, 128),
    "ds_store_2addr_b32 v0, v2, v4 offset1:4": (Slot.DS_WRITE, 64),
    "buffer_load_dwordx4 v[0:3], v9, s[0:3], 0 offen": (Slot.VMEM_READ, 128),
    "buffer_load_dwordx4 v9, s[0:3], 0 offen lds": (Slot.COPY, 128),
    "buffer_load_dword v9, s[0:3], 0 offen offset:64 lds": (Slot.COPY, 32),
    "buffer_load_ushort v0, v9, s[0:3], 0 offen": (Slot.VMEM_READ, 16),
    "global_load_b64 v[0:1], v9, s[2:3]": (Slot.VMEM_READ, 64),
    "global_load_lds_dwordx4 v[0:1], off": (Slot.COPY, 128),
    "global_load_async_to_lds_b128 v0, v[2:3], off": (Slot.COPY, 128),
    "global_load_ubyte v0, v9, s[2:3]": (Slot.VMEM_READ, 8),
    "buffer_store_short v0, v9, s[0:3], 0 offen": (Slot.VMEM_WRITE, 16),
    "global_store_dwordx2 v9, v[0:1], s[2:3]": (Slot.VMEM_WRITE, 64),
    "v_exp_f32_e32 v0, v1": (Slot.TRANS, None),
    "v_rcp_f32_e32 v0, v1": (Slot.TRANS, None),
}


@pytest.mark.parametrize("text", INSTRUCTIONS)
def test_classes_and_widths(text: str) -> None:
    slot, bits = INSTRUCTIONS[text]
    assert slot_of(text) is slot
    if bits is not None and slot is not Slot.MFMA:
        assert bits_of(text.split()[0]) == bits


@pytest.mark.parametrize(
    "text", ["v_mov_b32_e32 v0, v1", "s_nop 0", "ds_bpermute_b32 v0, v1, v2", "s_load_dword s0, s[0:1]"]
)
def test_what_is_not_woven(text: str) -> None:
    assert slot_of(text) is None


TEXT = """
\t.file\t1 "/src" "kernel.py"
\t.file\t2 "/abs/other.py"
\tv_exp_f32_e32 v0, v1
\t; sched_barrier mask(0x00000000)
\t.loc\t1 12 4                         ; kernel.py:12:4
\tds_read_b128 v[0:3], v9
\ts_waitcnt lgkmcnt(0)
\tv_add_f32_e32 v0, v1, v2
\t.loc\t1 0 0 is_stmt 0
\tds_read_b128 v[0:3], v9
\t.loc\t2 3 9 is_stmt 1
\tv_mfma_f32_16x16x32_f16 v[0:3], v[4:7], v[4:7], v[0:3] ; comment
\t; sched_group_barrier mask(0x00000100) size(2) SyncID(5)
\t; sched_group_barrier mask(0x00000008) size(1) SyncID(5)
\t; sched_barrier mask(0x00000000)
\ts_barrier
"""


def test_stretches_between_walls() -> None:
    first, window, last = stretches(TEXT)
    assert (first.order, window.order, last.order) == ("T", "RRM", "")
    assert [one.where for one in window.instructions] == [("/src/kernel.py", 12, 4), None, ("/abs/other.py", 3, 9)]
    assert window.groups == {5: [(Slot.DS_READ, 2), (Slot.MFMA, 1)]}
    assert (window.waits, window.barriers, window.vector, last.barriers) == (1, 0, 1, 1)


def priced(index: int, line: int, *prices: Price) -> PricedOp:
    return PricedOp(index, "ttg.local_load", "k.py", line, 1, prices)


def machine(slot: Slot, bits: int, line: int | None) -> Machine:
    return Machine(slot, bits, "", ("k.py", line, 1) if line else None)


def test_recount_by_place() -> None:
    window = Asked(1, "", None, (priced(0, 7, Price(Slot.DS_READ, 2, 128)), priced(3, 8, Price(Slot.MFMA, 1))), ())
    reads = [machine(Slot.DS_READ, 64, 7)] * 4
    assert recount(window, Stretch([*reads, machine(Slot.MFMA, 0, 8)])) == {0: (Price(Slot.DS_READ, 4, 64),)}
    reads = [machine(Slot.DS_READ, 128, 7), machine(Slot.DS_READ, 128, None)]
    assert recount(window, Stretch([*reads, machine(Slot.MFMA, 0, 8)])) == {}
    assert recount(window, Stretch([*reads])) == {3: ()}


def test_instructions_that_nobody_lacks_go_to_their_class() -> None:
    first, second = (priced(i, 7 + i, Price(Slot.DS_READ, 1, 128)) for i in range(2))
    window = Asked(1, "", None, (first, second), ())
    stray = [machine(Slot.DS_READ, 128, line) for line in (7, 8, 99)]
    assert recount(window, Stretch(stray)) == {1: (Price(Slot.DS_READ, 2, 128),)}


def test_estimates_are_kept_and_not_compared() -> None:
    op = priced(0, 7, Price(Slot.TRANS, 4), Price(Slot.VALU, 9))
    window = Asked(1, "", None, (op,), ())
    assert recount(window, Stretch([machine(Slot.TRANS, 0, 7)] * 4)) == {}
    found = recount(window, Stretch([machine(Slot.TRANS, 0, 7)] * 3))
    assert found == {0: (Price(Slot.TRANS, 3), Price(Slot.VALU, 9))}


@pytest.mark.parametrize(
    ("wanted", "got", "count"),
    [
        ("RMRMGMM", "RMRMGMM", 0),
        ("RMRMGMM", "RRMMGMM", 1),
        ("RMRM", "MRMR", 1),
        ("RMGM", "GMRM", 2),
        ("RRMM", "MMRR", 2),
        ("", "", 0),
    ],
)
def test_misplaced_anchors(wanted: str, got: str, count: int) -> None:
    assert misplaced(wanted, got) == count


@settings(deadline=None)
@given(st.text("RMG", max_size=40))
def test_an_order_is_in_its_own_place(order: str) -> None:
    assert misplaced(order, order) == 0
    assert 0 <= longest_run(order) <= order.count("M")


@settings(deadline=None)
@given(st.text("RMG", max_size=30), st.randoms())
def test_no_more_anchors_are_misplaced_than_there_are(order: str, random: object) -> None:
    shuffled = list(order)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    anchors = sum(letter != "M" for letter in order)
    assert misplaced(order, "".join(shuffled)) <= anchors


groups = st.lists(st.tuples(st.sampled_from(list(Slot)), st.integers(1, 40)), max_size=12)


@settings(deadline=None)
@given(groups)
def test_orders_survive_their_text(found: list[tuple[Slot, int]]) -> None:
    assert parse_order(order_text(found)) == found
    assert len(letters(found)) == sum(count for slot, count in found if slot.exact)


@settings(deadline=None)
@given(st.lists(st.builds(Price, st.sampled_from(list(Slot)), st.integers(1, 99), st.sampled_from([0, 32, 128]))))
def test_prices_survive_their_text(prices: list[Price]) -> None:
    assert parse_price(price_text(prices)) == tuple(prices)


def test_a_closing_wall_lists_its_operations() -> None:
    entries = [quoted('3 tt.dot /a "b"/k.py:8:1003 32 M'), quoted("4 ttg.local_load k.py:9:1 8 R128, 2 R64")]
    first, second = parse_ops(f"[{', '.join(entries)}]")
    assert (first.index, first.file, first.column) == (3, '/a "b"/k.py', 1003)
    assert second.prices == (Price(Slot.DS_READ, 8, 128), Price(Slot.DS_READ, 2, 64))


@pytest.mark.parametrize(
    ("orders", "judged"),
    [
        (["RMRM", "RMRM", "MM"], ["RMRM", "RMRM"]),  # the peeled last turn, whose loads are dead
        (["MM"], ["MM"]),
        (["RMM", "MM"], ["RMM", "MM"]),
    ],
)
def test_a_copy_that_lost_its_anchors_is_not_judged_beside_a_whole_one(orders: list[str], judged: list[str]) -> None:
    window: Any = SimpleNamespace(number=3, order="RMRM")
    found: Any = [SimpleNamespace(groups={3: 1}, order=order) for order in orders]
    elsewhere: Any = SimpleNamespace(groups={4: 1}, order="RMRM")
    assert [stretch.order for stretch in copies_of(window, [elsewhere, *found])] == judged
