"""Whole kernels through the IR and back, on the installed Triton; each in a child process."""

from __future__ import annotations

from typing import Any

import pytest
from amdwarp.lowering import bridge
from children import run_jobs

# Named here as well, since importing the corpus imports Triton.
CDNA_CASES = ("gluon_gemm_staged", "gluon_persistent")
GFX950_CASES = ("gluon_gemm_async", "gluon_warp_pipeline")
GFX1250_CASES = ("gluon_tdm", "gluon_specialized")
STOCK_CASES = ("vector_add", "softmax", "layer_norm", "matmul", "attention", "many_ops", "descriptor_matmul")
PAIRS = [
    *((name, arch) for name in STOCK_CASES for arch in ("gfx942", "gfx950", "gfx1250")),
    *(("scaled_matmul", arch) for arch in ("gfx950", "gfx1250")),
    *((name, arch) for name in CDNA_CASES for arch in ("gfx942", "gfx950")),
    *((name, "gfx950") for name in GFX950_CASES),
    *((name, "gfx1250") for name in GFX1250_CASES),
]
STOCK_FAILS = {("descriptor_matmul", "gfx1250"): (3, 7)}  # up to this version the stock pipeliner gives up
BUILDER_ARCHS = ("gfx942", "gfx950")

_GONE_SINCE_38 = {"amdg.instruction_sched_hint", "amdg.upcast_mxfp", "tt.advance", "tt.make_tensor_ptr"}
_GONE_SINCE_39 = {*_GONE_SINCE_38, "amdg.local_load_packed_tranposed", "amdg.memory_counter_wait"}
_NEW_IN_39 = {
    "amdg.async_tdm_fused_copy_global_to_local",
    "amdg.local_load_packed_transposed",
    "amdg.scaled_downcast_fp4",
    "amdg.scaled_downcast_fp8",
    "tt.approx_divf",
    "tt.atomic_load",
    "tt.atomic_poll",
    "tt.atomic_store",
    "tt.grid_dependency_launch_dependents",
    "tt.grid_dependency_wait",
    "ttg.inline_asm",
}
_NEW_IN_38 = {"amdg.update_tensor_descriptor", "ttg.local_atomic_scatter_rmw"}
ABSENT = {
    (3, 7): _NEW_IN_38 | _NEW_IN_39,
    (3, 8): _NEW_IN_39 | _GONE_SINCE_38,
    (3, 9): _GONE_SINCE_39,
}
"""Names in the op registry that a Triton version does not register."""

pytestmark = pytest.mark.usefixtures("needs_triton")


@pytest.fixture(scope="session")
def results() -> dict[str, dict[str, Any]]:
    jobs = [f"roundtrip:{name}:{arch}" for name, arch in PAIRS if not stock_fails(name, arch)]
    return run_jobs([*jobs, *(f"builders:{arch}" for arch in BUILDER_ARCHS), "registered:all"])


def stock_fails(name: str, arch: str) -> bool:
    return bridge.triton_version() <= STOCK_FAILS.get((name, arch), (0, 0))


def result_of(results: dict[str, dict[str, Any]], job: str) -> dict[str, Any]:
    if job not in results:
        pytest.skip("stock Triton of this version does not compile it")
    result = results[job]
    for key in ("died", "error"):
        if key in result:
            pytest.fail(f"{job} {key}: {result[key]}")
    return result


@pytest.mark.parametrize(("name", "arch"), PAIRS)
def test_roundtrip_leaves_the_program_unchanged(results: dict[str, dict[str, Any]], name: str, arch: str) -> None:
    result = result_of(results, f"roundtrip:{name}:{arch}")
    assert result["differ"] == []
    assert result["instructions"] > 20
    assert result["stages"] == dict.fromkeys(result["stages"], True)
    assert set(result["stages"]) == {"glir" if name.startswith("gluon") else "ttir", "ttgir"}


@pytest.mark.parametrize(("name", "arch"), PAIRS)
def test_every_op_is_in_the_registry(results: dict[str, dict[str, Any]], name: str, arch: str) -> None:
    # A call is unknown on purpose: its effects are its callee's.
    assert set(result_of(results, f"roundtrip:{name}:{arch}")["unknown"]) <= {"tt.call"}


@pytest.mark.parametrize(("name", "arch"), PAIRS)
def test_passes_leave_alone_what_does_not_concern_them(
    results: dict[str, dict[str, Any]], name: str, arch: str
) -> None:
    """So that compiling such a kernel need not read its module."""
    assert result_of(results, f"roundtrip:{name}:{arch}")["changed"] == []


@pytest.mark.parametrize(("name", "arch"), PAIRS)
def test_marking_attribute_is_not_left_behind(results: dict[str, dict[str, Any]], name: str, arch: str) -> None:
    assert result_of(results, f"roundtrip:{name}:{arch}")["marked"] == []


@pytest.mark.parametrize("arch", BUILDER_ARCHS)
def test_builders_reach_the_machine_code(results: dict[str, dict[str, Any]], arch: str) -> None:
    result = result_of(results, f"builders:{arch}")
    for call in (
        "sched.group.barrier(i32 8, i32 4, i32 1)",
        "sched.group.barrier(i32 258, i32 2, i32 1)",
        "sched.barrier(i32 0)",
        f"sched.barrier(i32 {2047 if bridge.triton_version() == (3, 7) else 4095})",
        "s.setprio(i16 1)",
        "s.barrier()",
        "workitem.id.x()",
    ):
        assert f"@llvm.amdgcn.{call}" in result["llir"], call
    for instruction in ("s_setprio 1", "s_barrier", "s_cbranch"):
        assert instruction in result["amdgcn"], instruction


@pytest.mark.parametrize("arch", BUILDER_ARCHS)
def test_builders_are_spelt_as_the_wheel_prints(results: dict[str, dict[str, Any]], arch: str) -> None:
    result = result_of(results, f"builders:{arch}")
    assert result["same"]
    for text in result["texts"]:
        if "(%" not in text:  # operands are named by the wheel
            assert text in result["reprinted"]


@pytest.mark.parametrize("arch", BUILDER_ARCHS)
def test_inserted_ops_bring_no_temporary_path(results: dict[str, dict[str, Any]], arch: str) -> None:
    result = result_of(results, f"builders:{arch}")
    assert "amdwarp-" not in result["reprinted"]
    assert "corpus_kernels.py" in result["reprinted"]


def test_registry_names_exist(results: dict[str, dict[str, Any]]) -> None:
    """A name in the table that no supported version registers is a misspelling."""
    absent = set(result_of(results, "registered:all")["absent"])
    assert absent == ABSENT[bridge.triton_version()]


def test_a_dead_child_fails_only_its_job() -> None:
    results = run_jobs(["abort:now", "roundtrip:vector_add:gfx942"])
    assert "died" in results["abort:now"]
    assert results["roundtrip:vector_add:gfx942"]["differ"] == []


def test_the_pairs_are_the_corpus(results: dict[str, dict[str, Any]]) -> None:
    listed = run_jobs(["list:all"])["list:all"]["pairs"]
    assert sorted(map(tuple, listed)) == sorted(PAIRS)


def test_version_is_supported() -> None:
    assert bridge.triton_version() in bridge.SUPPORTED
