"""The comparison behind ``amdwarp verify``: what it must notice."""

from __future__ import annotations

import numpy as np
import pytest

from amdwarp import EmulatorError, UsageError
from amdwarp.resources import resources
from amdwarp.verify import POISON, compare, error_bound, random_inputs, verify_gemm

SHAPE = (96, 80, 40)
TILE = (64, 64)


def computed(skip: tuple[int, int] | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B, and an output whose four tiles are right, one of them left out."""
    a, b = random_inputs(SHAPE, "fp16", "nk")
    out = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    if skip is not None:
        out.view(np.uint16)[skip[0] : skip[0] + 64, skip[1] : skip[1] + 64] = POISON
    return a, b, out


def test_right_tiles_pass() -> None:
    error, problem = compare(*computed(), TILE, 4, "fp16")
    assert problem == "" and error is not None and 0 < error <= error_bound("fp16", 40)


def test_only_written_tiles_are_compared() -> None:
    error, problem = compare(*computed(skip=(0, 64)), TILE, 3, "fp16")
    assert problem == "" and error is not None


def test_a_tile_that_nobody_wrote() -> None:
    assert compare(*computed(skip=(64, 0)), TILE, 4, "fp16")[1] == "4 workgroups wrote 3 tiles"


def test_an_element_that_nobody_wrote() -> None:
    a, b, out = computed()
    out.view(np.uint16)[70, 3] = POISON
    assert compare(a, b, out, TILE, 4, "fp16")[1] == "1 elements of the tile at row 64, column 0 were not written"


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 100.0])
def test_a_wrong_element(wrong: float) -> None:
    a, b, out = computed()
    out[10, 10] = wrong
    assert "exceeds the bound" in compare(a, b, out, TILE, 4, "fp16")[1]


def test_a_dropped_k_step() -> None:
    a, b, _ = computed()
    out = (a[:, 1:].astype(np.float32) @ b[1:].astype(np.float32)).astype(np.float16)
    assert "exceeds the bound" in compare(a, b, out, TILE, 4, "fp16")[1]


def test_zero_product() -> None:
    a, b, out = (np.zeros(shape, np.float16) for shape in ((96, 40), (40, 80), (96, 80)))
    assert compare(a, b, out, TILE, 4, "fp16") == (0.0, "")
    out[0, 0] = 1
    assert "exceeds the bound" in compare(a, b, out, TILE, 4, "fp16")[1]


def test_random_inputs_are_the_same_everywhere() -> None:
    a, b = random_inputs((2, 3, 4), "fp16", "nk")
    assert a.shape == (2, 4) and b.shape == (4, 3) and b.strides == (2, 8)
    assert random_inputs((2, 3, 4), "fp16", "kn")[1].strides == (6, 2)
    assert (a == random_inputs((2, 3, 4), "fp16", "kn")[0]).all()


@pytest.mark.parametrize("shape", [(0, 1, 1), (1, -1, 1), (1, 1)])
def test_shapes_without_product(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="each at least 1"):
        verify_gemm(shape)  # type: ignore[arg-type]


def test_a_kernel_that_fails_is_a_failed_case(monkeypatch: pytest.MonkeyPatch) -> None:
    from amdwarp.kernels import gemm

    def fail(*args: object, **kwargs: object) -> None:
        raise EmulatorError("register v5 is read before its wait", where="line 12")

    monkeypatch.setattr(gemm, "matmul", fail)
    case = verify_gemm((64, 64, 64))
    assert not case.ok and case.rel_error is None and "register v5 is read before its wait" in case.problem


def test_resources_of_a_text() -> None:
    text = "\n".join(
        f"    .{key}: {value}"
        for key, value in {
            "vgpr_count": 200,
            "agpr_count": 8,
            "sgpr_count": 40,
            "vgpr_spill_count": 3,
            "sgpr_spill_count": 1,
            "group_segment_fixed_size": 1024,
            "private_segment_fixed_size": 16,
        }.items()
    )
    used = resources(text)
    assert (used.vgprs, used.agprs, used.spills, used.lds_bytes, used.scratch_bytes) == (200, 8, 4, 1024, 16)
    with pytest.raises(EmulatorError, match=r"states no \.vgpr_count"):
        resources("s_endpgm")
