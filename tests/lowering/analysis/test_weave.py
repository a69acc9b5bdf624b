"""Counting again, trying again, and giving up: the loop around LLVM, with a stand-in for LLVM."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from amdwarp.lowering import bridge
from amdwarp.lowering.analysis.pricing import Slot
from amdwarp.lowering.analysis.realised import Asked, asked
from amdwarp.lowering.passes import DropWindows, windows
from window_snippets import windowed

from amdwarp.errors import LoweringError, UsageError
from amdwarp.weave import PLACEMENTS, Lowered, Placement, Weaver, policy, shortened, windows_are

pytestmark = pytest.mark.usefixtures("needs_triton")

BODY = """
    @@open(weave)
    @@left(la)
    @@dot(d)
    @@global(g)
    @@dot(e)
    @@close
"""
METADATA = """
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .sgpr_count:     20
    .sgpr_spill_count: 0
    .vgpr_count:     100
    .vgpr_spill_count: {spills}
"""
WALL = "\t; sched_barrier mask(0x00000000)\n"
MASKS = {Slot.MFMA: 8, Slot.DS_READ: 0x100, Slot.VMEM_READ: 0x20}
MNEMONICS = {
    Slot.MFMA: "v_mfma_f32_16x16x32_f16 v[0:3], v[4:7], v[4:7], v[0:3]",
    Slot.DS_READ: "ds_read_b128 v[0:3], v9",
    Slot.VMEM_READ: "buffer_load_dwordx4 v[0:3], v9, s[0:3], 0 offen",
}


def realise(window: Asked) -> str:
    """The text of a window as it was asked for."""
    left = {
        slot: [op for op in window.ops for price in op.prices if price.slot is slot for _ in range(price.count)]
        for slot in MNEMONICS
    }
    lines = []
    for slot, count in window.groups:
        for _ in range(count if slot in MNEMONICS else 0):
            op = left[slot].pop(0)
            lines.append(f"\t.loc\t1 {op.line} {op.column}\n\t{MNEMONICS[slot]}\n")
    groups = [
        f"\t; sched_group_barrier mask(0x{MASKS[slot]:08x}) size({count}) SyncID({window.number})\n"
        for slot, count in window.groups
        if slot in MASKS
    ]
    return "".join([*lines, *groups])


Twist = Callable[[str, Asked, int], str]


class Llvm:
    """Stands in for LLVM: realises each window, then does ``twist`` to its text; counts what it was given."""

    def __init__(self, twist: Twist = lambda text, window, call: text, spills: int = 0, before: int = 0) -> None:
        self.twist, self.spills, self.before = twist, spills, before
        self.calls = 0
        self.asked: list[Asked] = []

    def __call__(self, made: Any) -> tuple[str, str, dict[str, Any]]:
        found = asked(bridge.read(made))
        if not found:
            return "", METADATA.format(spills=self.before), {}
        self.calls += 1
        self.asked += found
        texts = [self.twist(realise(window), window, self.calls) for window in found]
        head = '\t.file\t1 "kernel.py"\n'
        text = head + WALL + WALL.join(texts) + WALL + METADATA.format(spills=self.spills)
        return f"llir {self.calls}", text, {"call": self.calls}


def weave(llvm: Llvm) -> Lowered:
    def passes(corrections: Any, how: Placement) -> list[Any]:
        return [DropWindows()] if corrections is None else list(windows(corrections, how.interleave, how.vector))

    return Weaver(bridge.new_context(), passes, llvm).run(windowed(BODY))


def misplace(text: str) -> str:
    """All memory instructions behind the rest."""
    lines = re.findall(r"\t\.loc.*\n\t\w.*\n|\t;.*\n", text)
    memory = [line for line in lines if "ds_read" in line or "buffer_load" in line]
    return "".join([*(line for line in lines if line not in memory and ";" not in line), *memory]) + "".join(
        line for line in lines if line.startswith("\t;")
    )


def test_what_agrees_is_taken_at_once() -> None:
    llvm = Llvm()
    assert weave(llvm).llir == "llir 1"
    assert [window.order.count("R") for window in llvm.asked] == [4]


def test_no_module_is_compiled_twice() -> None:
    """Placements that come to the same as one before; and the metadata is of the one that is kept."""
    given: list[str] = []

    class Seen(Llvm):
        def __call__(self, made: Any) -> tuple[str, str, dict[str, Any]]:
            given.append(str(made))
            return super().__call__(made)

    with windows_are("warn"):
        best = weave(Seen(lambda text, window, call: misplace(text)))
    assert len(given) == len(set(given)) < len(PLACEMENTS)
    assert best.llir == f"llir {best.metadata['call']}"


def test_counts_from_the_text_replace_prices() -> None:
    def one_more(text: str, window: Asked, call: int) -> str:
        return (
            text if window.order.count("R") == 5 else text.replace("ds_read", "ds_read_b128 v[0:3], v9\n\tds_read", 1)
        )

    llvm = Llvm(one_more)
    assert weave(llvm).llir == "llir 2"
    assert [window.order.count("R") for window in llvm.asked] == [4, 5]
    (load,) = [op for op in llvm.asked[1].ops if op.name == "ttg.local_load"]
    assert [price.count for price in load.prices] == [5]


def test_a_second_difference_is_an_error_that_shows_both() -> None:
    def ever_more(text: str, window: Asked, call: int) -> str:
        return text.replace("ds_read", "ds_read_b128 v[0:3], v9\n\tds_read", 1)

    with pytest.raises(LoweringError) as caught:
        weave(Llvm(ever_more))
    text = str(caught.value)
    assert "the produced text does not have the machine instructions that were counted in it before" in text
    assert re.search(r"ttg.local_load \(line \d+\) priced 5 R128, found 6 R128", text)
    assert re.match(r"intra_wave 'weave' \(kernel.py:\d+\): ", text)


def test_instructions_without_a_place_go_where_some_are_missing() -> None:
    llvm = Llvm(lambda text, window, call: re.sub(r"\.loc\t1 \d+ \d+", ".loc\t1 0 0", text, count=2))
    assert weave(llvm).llir == "llir 1"


def test_the_other_placement_is_tried() -> None:
    llvm = Llvm(lambda text, window, call: misplace(text) if call == 1 else text)
    assert weave(llvm).llir == "llir 2"


def test_a_window_that_is_not_realised() -> None:
    def wrong(text: str, window: Asked, call: int) -> str:
        return misplace(text)

    with pytest.raises(LoweringError) as caught:
        weave(Llvm(wrong))
    text = str(caught.value)
    assert "LLVM did not realise it: 5 of its 5 memory and transcendental instructions stand elsewhere" in text
    assert "got M8 R4 G" in text
    assert "AMDWARP_WINDOWS=warn compiles it nevertheless [realised]" in text
    with windows_are("warn"):
        (complaint,) = weave(Llvm(wrong)).complaints
    assert complaint == text
    with windows_are("off"):
        found = weave(Llvm(wrong))
    assert found.amdgcn and not found.complaints


def test_a_window_of_which_little_is_out_of_place_passes() -> None:
    """One anchor in twenty may stand elsewhere."""
    from amdwarp.lowering.analysis.realised import Realised

    window = Asked(1, "", None, (), ())
    assert Realised(window, "", 1, 20, 0, 0).ok
    assert not Realised(window, "", 2, 20, 0, 0).ok


def test_spills_that_the_plain_kernel_has_not() -> None:
    with pytest.raises(LoweringError, match=r"the kernel spills 7 registers, and 3 without its windows; load fewer"):
        weave(Llvm(spills=7, before=3))
    assert weave(Llvm(spills=3, before=3)).amdgcn


def test_a_window_that_is_gone() -> None:
    with pytest.raises(LoweringError, match=r"intra_wave 'weave' .*the produced text does not contain it"):
        weave(Llvm(lambda text, window, call: ""))


def test_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AMDWARP_WINDOWS", raising=False)
    assert policy() == "error"
    monkeypatch.setenv("AMDWARP_WINDOWS", "warn")
    assert policy() == "warn"
    with windows_are("off"):
        assert policy() == "off"
    monkeypatch.setenv("AMDWARP_WINDOWS", "maybe")
    with pytest.raises(UsageError, match="AMDWARP_WINDOWS is 'maybe'; set it to one of error, warn, off, drop"):
        policy()


def test_orders_are_shown_as_runs() -> None:
    assert shortened("RMMRMMGM") == "R M2 R M2 G M"
    assert shortened("RM" * 100, 10) == "R M R M R…"
