"""What the compiler made of each variant: registers, LDS, and stages that hold what they should and nothing else."""

from __future__ import annotations

import functools
import itertools
import re
from dataclasses import replace

import pytest
from amdwarp.kernels.gemm import SCHEDULES, Access, Matrix, plan
from older_triton import fp16_for_bf16

from amdwarp import compile as compile_kernel
from amdwarp.resources import resources

pytest.importorskip("triton")

GFX950 = [name for name, one in SCHEDULES.items() if (one.arch, one.operand) == ("gfx950", "f16")]

DIRECT = Access(True)
CASES = [
    *((name, dtype, Access(kc)) for name, dtype, kc in itertools.product(GFX950, ("fp16", "bf16"), (True, False))),
    *(("inter_wave_256", "fp16", Access(kc, c_vector=False)) for kc in (True, False)),
    *(
        ("inter_wave_128", dtype, Access(kc, *ways))
        for dtype, kc, ways in itertools.product(
            ("fp16", "bf16"), (True, False), ((False, False, False), (True, False, True), (False, True, False))
        )
    ),
]


@functools.cache
def compiled(name, dtype, access):
    """The AMDGCN text and the metadata of a variant, from operands that lead to it."""
    k = 256 if access.a_direct else 250
    n = 256 if access.c_vector else 252
    b = (1, 264 if access.b_direct else 257) if access.b_k_contiguous else (264 if access.b_direct else 257, 1)
    # The plan itself would choose less here where an operand is odd; compile exactly the variant asked for.
    base = plan(
        Matrix(256, k, 256, 1, 1 << 40), Matrix(k, n, *b, 2 << 40), Matrix(256, n, 256, 1, 3 << 40), dtype,
        "inter_wave_128",
    )  # fmt: skip
    schedule = SCHEDULES[name]
    kernel = "matmul_woven" if schedule.woven else "matmul_quarters" if schedule.quarters else "matmul_whole"
    base = replace(base, kernel=kernel, schedule=schedule)
    result = compile_kernel(
        base.function(),
        base.signature,
        {"S": schedule, "ACCESS": access},
        "gfx950",
        attrs=base.hints,
        **base.options,
    )
    return result.asm["amdgcn"], result.metadata


STAGED = [case for case in CASES if not SCHEDULES[case[0]].woven]
WOVEN = [case for case in CASES if SCHEDULES[case[0]].woven]


def segments(text):
    """The instructions between one barrier and the next, as mnemonics; direct-to-LDS loads end in ' lds'."""
    parts = [[]]
    for line in text[: text.index("s_endpgm")].splitlines():
        code = line.split(";")[0].strip()
        if not re.match(r"(s|v|ds|buffer)_\w+(\s|$)", code):
            continue
        if code.startswith("s_barrier"):
            parts.append([])
        else:
            mnemonic = code.split()[0]
            parts[-1].append(code if mnemonic == "s_waitcnt" else mnemonic + " lds" * code.endswith(" lds"))
    return parts


def count(segment, prefix, suffix=""):
    return sum(op.startswith(prefix) and op.endswith(suffix) for op in segment)


def name_of(case):
    name, dtype, access = case
    order = "nk" if access.b_k_contiguous else "kn"
    ways = "".join("01"[way] for way in (access.a_direct, access.b_direct, access.c_vector))
    return f"{name}-{dtype}-{order}-{ways}"


def each(cases):
    return fp16_for_bf16(cases, name_of)


def reads_of_a_step(schedule):
    """16-byte reads of A and B of a wave in a K step; of quarters each is read once."""
    columns = schedule.tile_k * 2 // 16
    a = schedule.tile_m // schedule.waves_m * columns // 64
    return a, schedule.tile_n // schedule.waves_n * columns // 64


@pytest.mark.parametrize("case", each(CASES))
def test_budget(case):
    text, metadata = compiled(*case)
    used = resources(text)
    schedule = SCHEDULES[case[0]]
    assert used.spills == 0
    assert used.scratch_bytes == 0
    assert used.vgprs <= 512 // (schedule.num_warps // 4)
    assert used.agprs == 0 or schedule.woven
    assert metadata.shared == schedule.lds_bytes(case[2].b_k_contiguous)


@pytest.mark.parametrize("case", each(STAGED))
def test_mfma_stages_hold_mfmas_only(case):
    text, _ = compiled(*case)
    found = [segment for segment in segments(text) if count(segment, "v_mfma")]
    schedule = SCHEDULES[case[0]]
    m, n, k = schedule.mfma
    stages = 2 if schedule.quarters else 1
    per_stage = schedule.tile_m * schedule.tile_n * schedule.tile_k // (stages * schedule.num_warps * m * n * k)
    assert per_stage == {"inter_wave_256x128": 8}.get(case[0], 16)
    assert len(found) >= (4 if SCHEDULES[case[0]].quarters else 1)
    for segment in found:
        assert count(segment, "v_mfma") == per_stage
        last = max(i for i, op in enumerate(segment) if op.startswith("v_mfma"))
        assert {op.split("_")[0] for op in segment[: last + 1]} <= {"v", "s"}
        assert all(op.startswith("v_mfma") for op in segment[: last + 1] if op.startswith("v_"))
        assert not count(segment[: last + 1], "s_waitcnt")


@pytest.mark.parametrize("case", each(case for case in STAGED if case[2].a_direct and case[2].b_direct))
def test_memory_stages_end_in_the_wait(case):
    """Between two MFMA stages stands one memory stage: wide reads and copies, and one wait as its last instruction."""
    text, _ = compiled(*case)
    schedule, access = SCHEDULES[case[0]], case[2]
    parts = segments(text)
    mfma = [i for i, segment in enumerate(parts) if count(segment, "v_mfma")]
    memory = [parts[i - 1] for i in mfma]
    copies = (schedule.part_m + schedule.part_n) * schedule.tile_k * 2 // (1024 * schedule.num_warps)
    assert copies == {"inter_wave_256x128": 3}.get(case[0], 4)
    for segment in memory:
        assert segment[-1].startswith("s_waitcnt")
        # copies younger than those waited for: of two stages, or of two K steps
        assert f"vmcnt({2 * copies})" in segment[-1]
        start = 0 if segment is not memory[0] else segment.index("s_setprio") if "s_setprio" in segment else 0
        body = segment[start:]
        assert count(body, "buffer_load_dwordx4 lds") == copies
        reads = count(body, "ds_read")
        assert count(body, "ds_read_b128") + count(body, "ds_read_b64_tr_b16") == reads
        assert ("lgkmcnt(0)" in segment[-1]) == bool(reads)
        assert sum(op.startswith("s_waitcnt") for op in body) == 1
    plain = sum(count(segment, "ds_read_b128") for segment in memory)
    transposed = sum(count(segment, "ds_read_b64_tr_b16") for segment in memory)
    steps = len(mfma) // (2 if schedule.quarters else 1)
    a_reads, b_reads = reads_of_a_step(schedule)
    if access.b_k_contiguous:
        assert (plain, transposed) == (steps * (a_reads + b_reads), 0)
    else:
        assert (plain, transposed) == (steps * a_reads, steps * b_reads * 2)


@pytest.mark.parametrize("case", each(STAGED))
def test_priorities_alternate(case):
    """Memory stages run at priority 1, MFMA stages at 0, and so does what follows the loop."""
    text, _ = compiled(*case)
    priorities = re.findall(r"s_setprio (\d)", text)
    assert set(priorities) == {"0", "1"}
    for i, segment in enumerate(parts := segments(text)):
        if count(segment, "v_mfma"):
            assert "s_setprio" in parts[i - 1]


def test_unaligned_operands_are_loaded_by_elements():
    text, _ = compiled("inter_wave_128", "fp16", Access(True, False, False, False))
    assert "buffer_load_ushort" in text or "buffer_load_short_d16" in text
    assert " lds" not in text
    stores = [segment for segment in segments(text) if count(segment, "ds_write_b128")]
    assert stores
    assert all(not count(segment, "v_mfma") for segment in stores)


LETTERS = {"v_mfma": "M", "ds_read": "R", "buffer_load": "G", "s_barrier": "|", "s_waitcnt": "w"}


def woven_loop(text):
    """The loop of the intra-wave schedule: M an MFMA, R an LDS read, G a copy to LDS, | a barrier, w a wait."""
    blocks = re.split(r"^\.LBB\w+:.*$", text, flags=re.M)
    body = max(blocks, key=lambda block: block.count("v_mfma"))
    found = (re.match(r"\s+(v_mfma|ds_read|buffer_load|s_barrier|s_waitcnt)", line) for line in body.splitlines())
    return "".join(LETTERS[match.group(1)] for match in found if match)


@pytest.mark.parametrize("case", each(WOVEN))
def test_loads_are_woven_between_mfmas(case):
    """Two K steps: each two windows of 32 MFMAs with a barrier between them, no long run of MFMAs or of loads."""
    loop = woven_loop(compiled(*case)[0])
    reads = 64 if case[2].b_k_contiguous else 96  # of B in rows each read is two transposed ones of half the width
    assert (loop.count("M"), loop.count("R"), loop.count("G"), loop.count("|")) == (128, reads, 32, 2)
    windows = loop.split("|")
    assert windows[0].count("M") == 32 and "G" not in windows[0]
    for window in windows:
        assert window.count("M") in (32, 64)
        assert max(map(len, re.findall("M+", window))) <= 3
        assert max(map(len, re.findall("[RG]+", window))) <= (4 if case[2].b_k_contiguous else 5)
