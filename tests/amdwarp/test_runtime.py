"""Arguments on their way to a kernel, and where a launch goes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdwarp
from amdwarp import UsageError
from amdwarp.runtime import Launch, as_numpy, compile_for, current_emulation, is_tensor, memory_span, run


class Kernel:
    """Stands for a compiled kernel where nothing is compiled."""

    arg_names = ("x", "n")
    params = (SimpleNamespace(name="x", do_not_specialize=False), SimpleNamespace(name="n", do_not_specialize=False))


class Unspecialised(Kernel):
    """One whose `n` is `do_not_specialize`."""

    params = (SimpleNamespace(name="x", do_not_specialize=False), SimpleNamespace(name="n", do_not_specialize=True))


def test_memory_span_covers_first_to_last_element() -> None:
    memory = np.arange(200, dtype=np.float16).reshape(10, 20)
    for view, expected in (
        (memory, 400),
        (memory.T, 400),
        (memory[:, 3:7], 368),
        (memory[2:5, ::2], 2 * (2 * 20 + 18 + 1)),
        (memory[3, 4], 2),
        (memory[:0], 0),
    ):
        assert memory_span(np.asarray(view)).nbytes == expected


def test_memory_span_is_a_view() -> None:
    memory = np.zeros((4, 8), np.int32)
    memory_span(memory[1:3, 2:4])[:] = 255
    expected = np.zeros(32, np.int32)
    expected[10:20] = -1
    assert (memory.reshape(-1) == expected).all()


def test_memory_span_of_bfloat16() -> None:
    memory = np.zeros((3, 4), ml_dtypes.bfloat16)
    memory_span(memory.T)[:2] = (0x80, 0x3F)
    assert memory[0, 0] == 1.0


def test_memory_span_refuses_negative_strides() -> None:
    with pytest.raises(UsageError, match=r"negative stride.*pass a copy"):
        memory_span(np.zeros(4, np.float32)[::-1])


def test_tensors_share_their_memory() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int32):
        tensor = torch.zeros(4, 6, dtype=dtype)
        view = tensor[1:, 2:].t()
        assert as_numpy(view).shape == (4, 3)
        memory_span(view)[:] = 1
        assert (tensor.view(torch.uint8) != 0).any() and tensor[0, 0] == 0


def test_tensors_of_a_subclass_are_tensors() -> None:
    torch = pytest.importorskip("torch")

    class Named(torch.Tensor):  # type: ignore[misc]
        pass

    assert is_tensor(torch.zeros(2).as_subclass(Named)) and is_tensor(torch.nn.Parameter(torch.zeros(2)))
    assert not is_tensor(torch.nn.Linear(1, 1)) and not is_tensor(np.zeros(2))


def test_emulate_nests_and_ends() -> None:
    assert current_emulation() is None
    with amdwarp.emulate("gfx950") as outer:
        with amdwarp.emulate("gfx942") as inner:
            assert current_emulation() is inner and inner.target.arch == "gfx942"
        assert current_emulation() is outer
    assert current_emulation() is None


def test_emulate_refuses_unknown_arch() -> None:
    with (
        pytest.raises(UsageError, match="unknown arch 'gfx900'; use one of gfx942, gfx950, gfx1250"),
        amdwarp.emulate("gfx900"),
    ):
        pass


def test_cpu_argument_outside_of_emulate() -> None:
    launch = Launch(Kernel(), (1,), {"x": np.zeros(4, np.float32), "n": 4})
    with pytest.raises(UsageError, match="argument 'x' is in CPU memory; move it to an AMD GPU, or run inside"):
        run(launch)


class GpuTensor:
    """Looks like a torch tensor on a GPU."""

    class device:
        type = "cuda"

    def untyped_storage(self) -> None: ...


GpuTensor.__module__ = "torch"


def test_gpu_argument_inside_of_emulate() -> None:
    launch = Launch(Kernel(), (1,), {"x": GpuTensor(), "n": 4})
    with (
        amdwarp.emulate("gfx950"),
        pytest.raises(UsageError, match=r"argument 'x' is on a GPU inside amdwarp\.emulate"),
    ):
        run(launch)


@pytest.mark.parametrize(
    ("value", "text"),
    [("four", "argument 'n' is a str"), (None, "argument 'n' is a NoneType")],
)
def test_arguments_without_kernel_type(value: Any, text: str) -> None:
    launch = Launch(Kernel(), (1,), {"x": np.zeros(4, np.float32), "n": value})
    with pytest.raises(UsageError, match=text):
        compile_for(launch, "gfx950")


def test_dtype_without_kernel_type() -> None:
    launch = Launch(Kernel(), (1,), {"x": np.zeros(4, np.complex64), "n": 1})
    with pytest.raises(UsageError, match="dtype complex64 has no kernel type"):
        compile_for(launch, "gfx950")


def test_specialisation_is_that_of_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    from amdwarp import runtime

    seen: dict[str, Any] = {}

    def record(kernel: Any, signature: Any, constexprs: Any, target: Any, *, attrs: Any, **options: Any) -> str:
        seen.update(signature=signature, constexprs=constexprs, attrs=attrs, options=options)
        return "compiled"

    monkeypatch.setattr(runtime, "compile_kernel", record)
    memory = np.zeros(64, np.float16)
    start = -memory.__array_interface__["data"][0] // 2 % 8
    for x, n, signature, constexprs, attrs in (
        (memory[start:], 32, {"x": "*fp16", "n": "i32"}, {}, {"x": "DS", "n": "D"}),
        (memory[start + 1 :], 33, {"x": "*fp16", "n": "i32"}, {}, {"x": "S", "n": ""}),
        (memory[start:], 1, {"x": "*fp16"}, {"n": 1}, {"x": "DS"}),
        (memory[start:], 2**40, {"x": "*fp16", "n": "i64"}, {}, {"x": "DS", "n": "D"}),
        (memory[start:], 0.5, {"x": "*fp16", "n": "fp32"}, {}, {"x": "DS", "n": ""}),
    ):
        compiled, values = compile_for(Launch(Kernel(), (1,), {"x": x, "n": n}, {}, {"num_warps": 8}), "gfx950")
        assert compiled == "compiled" and len(values) == len(signature)
        assert seen == {
            "signature": signature,
            "constexprs": constexprs,
            "attrs": attrs,
            "options": {"num_warps": 8},
        }
    for n in (1, 32):
        compile_for(Launch(Unspecialised(), (1,), {"x": memory[start:], "n": n}, {}, {}), "gfx950")
        assert seen["signature"] == {"x": "*fp16", "n": "i32"} and not seen["constexprs"]
        assert seen["attrs"] == {"x": "DS"}


@pytest.mark.parametrize(
    "workgroups", [0, -1, True, 2.5, "2", "all", [], [1.5], [None], np.float32(2), [(0, "x")], {"a": 1}]
)
def test_emulate_refuses_a_choice_that_is_none(workgroups: Any) -> None:
    with pytest.raises(UsageError, match=r"workgroups = .*; give "), amdwarp.emulate(workgroups=workgroups):
        pass
    assert current_emulation() is None


@pytest.mark.parametrize(
    ("workgroups", "chosen"),
    [
        (None, None),
        (3, 3),
        (np.int64(3), 3),
        (range(2), [0, 1]),
        (np.array([4, 2]), [4, 2]),
        ([1, 1, 0], [1, 0]),
        ([(1, 0, 0)], [(1, 0, 0)]),
    ],
    ids=str,
)
def test_emulate_takes_any_number_or_sequence(workgroups: Any, chosen: Any) -> None:
    with amdwarp.emulate(workgroups=workgroups) as emulation:
        assert emulation.workgroups == chosen


def test_arguments_are_those_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from amdwarp import runtime

    monkeypatch.setattr(runtime, "compile_kernel", lambda kernel, signature, *_, **__: signature)
    x = np.zeros(4, np.float32)
    with pytest.raises(UsageError, match="argument 'm' is no parameter of the kernel; have x, n"):
        compile_for(Launch(Kernel(), (1,), {"x": x, "m": 4}), "gfx950")
    # what is left out is for compile to find a default for, or to complain of
    assert compile_for(Launch(Kernel(), (1,), {"x": x}), "gfx950") == ({"x": "*fp32"}, [x])


def test_a_tensor_without_memory_is_refused() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(UsageError, match=r"a tensor on meta has no memory here; pass tensor\.cpu\(\)"):
        memory_span(torch.empty(3, device="meta"))
