"""Arguments of the GEMM's functions as plain records: what each array is, where it lies, and what is refused of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from amdwarp.errors import UsageError
from amdwarp.runtime import current_emulation, is_tensor
from amdwarp.target import TARGETS, Target, get_target


@dataclass(frozen=True)
class Array:
    """One argument.

    Attributes:
        name: of the argument, for errors.
        value: the torch tensor or numpy array.
        dtype: its element type, as numpy (with ml_dtypes) and torch call it.
        shape, strides: extents and steps, in elements.
        address: of the first element.
        itemsize: bytes of one element.
    """

    name: str
    value: Any
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    itemsize: int

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    def span(self) -> tuple[int, int]:
        """First byte and one past the last byte that it can touch."""
        if not self.size:
            return self.address, self.address
        last = sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        return self.address, self.address + (last + 1) * self.itemsize

    def describe(self) -> str:
        """Kind, dtype and shape in words."""
        return f"{'x'.join(map(str, self.shape)) or 'a scalar'} {self.dtype}"

    def reshaped(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
        """The same memory with other extents and steps."""
        return Array(self.name, self.value, self.dtype, shape, strides, self.address, self.itemsize)


def dtype_of(value: Any) -> str:
    """Name of the element type of a tensor or array."""
    return str(value.dtype).removeprefix("torch.")


def read(name: str, value: Any, construct: str) -> Array:
    """The record of an argument.

    Raises:
        UsageError: no tensor or array, or one that is more than numbers at an address.
    """

    def error(problem: str, remedy: str) -> UsageError:
        return UsageError(problem, remedy=remedy, construct=construct)

    if not is_tensor(value) and not isinstance(value, np.ndarray):
        raise error(f"{name} is a {type(value).__name__}", "pass torch tensors or numpy arrays")
    if isinstance(value, np.ma.MaskedArray):
        raise error(f"{name} is a masked array, whose mask no kernel sees", f"pass {name}.filled(0)")
    shape = tuple(map(int, value.shape))
    if is_tensor(value):
        if str(value.layout) != "torch.strided":
            raise error(f"{name} has layout {value.layout}", f"pass {name}.to_dense()")
        if value.is_conj() or value.is_neg():
            raise error(f"{name} is a lazy view that negates or conjugates", f"pass {name}.resolve_neg()")
        strides, address, itemsize = tuple(map(int, value.stride())), _address(value), int(value.element_size())
    else:
        itemsize = value.itemsize
        if any(stride % itemsize for stride in value.strides):
            raise error(f"{name} has strides of {value.strides} bytes, no whole elements", f"copy {name}")
        strides = tuple(stride // itemsize for stride in value.strides)
        address = value.__array_interface__["data"][0]
        if not value.dtype.isnative:
            raise error(
                f"{name} has the byte order of another machine", f"pass {name}.astype({name}.dtype.newbyteorder('='))"
            )
        if address % itemsize:
            raise error(f"{name} is not aligned to its elements", f"copy {name}")
    if any(stride < 0 for stride, extent in zip(strides, shape, strict=True) if extent > 1):
        raise error(f"{name} has a negative stride", f"copy {name}")
    return Array(name, value, dtype_of(value), shape, strides, address, itemsize)


def rank(name: str, value: Any, construct: str) -> int:
    """Dimensions of an argument, asked in a way that PyTorch's compiler can follow.

    Raises:
        UsageError: no tensor or array.
    """
    if not is_tensor(value) and not isinstance(value, np.ndarray):
        raise UsageError(
            f"{name} is a {type(value).__name__}", remedy="pass torch tensors or numpy arrays", construct=construct
        )
    return int(value.ndim)


def _address(tensor: Any) -> int:
    return 0 if tensor.device.type == "meta" else int(tensor.data_ptr())


def place_of(value: Any) -> str:
    """``cpu``, ``cuda`` (an AMD GPU's name in torch, too), or another of torch's device types."""
    return str(value.device.type) if is_tensor(value) else "cpu"


def check_same_place(arrays: list[Array], construct: str) -> None:
    """Refuse arguments that are not all numpy arrays, or not all tensors of one device."""
    first = arrays[0]
    for other in arrays[1:]:
        if _where(first.value) != _where(other.value):
            raise UsageError(
                f"{first.name} is {_where(first.value)} and {other.name} is {_where(other.value)}",
                remedy="convert or move one of them",
                construct=construct,
            )


def _where(value: Any) -> str:
    return f"a tensor on {value.device}" if is_tensor(value) else "a numpy array"


def check_out(out: Array, shape: tuple[int, ...], dtype: str, construct: str) -> None:
    """Refuse an output of another shape or dtype, a read-only one, or one whose elements share memory."""

    def error(problem: str, remedy: str) -> UsageError:
        return UsageError(problem, remedy=remedy, construct=construct)

    if out.shape != shape:
        want = "x".join(map(str, shape)) or "a scalar"
        raise error(f"out is {out.describe()}, the result is {want}", "pass an out of that shape, or none")
    if out.dtype != dtype:
        raise error(f"out is {out.dtype} and the result {dtype}", "pass an out of that dtype, or none")
    if isinstance(out.value, np.ndarray) and not out.value.flags.writeable:
        raise error("out is read-only", "pass a writeable one, or none")
    reach = 0
    for stride, extent in sorted((s, n) for s, n in zip(out.strides, out.shape, strict=True) if n > 1):
        if stride <= reach:
            raise error(
                f"out has strides {out.strides}, so that elements share memory", "pass a contiguous out, or none"
            )
        reach += (extent - 1) * stride


def check_apart(out: Array, inputs: list[Array], construct: str) -> None:
    """Refuse an output that lies over an input.

    Two column ranges of one buffer, whose rows alternate, do not.
    """
    low, high = out.span()
    for one in inputs:
        first, last = one.span()
        if high <= first or last <= low or not out.address or not one.address:
            continue
        if not _rows_alternate(out, one):
            raise UsageError(
                f"out lies over {one.name} in memory, and is written while {one.name} is read",
                remedy="pass another out",
                construct=construct,
            )


def _rows_alternate(one: Array, other: Array) -> bool:
    """Whether two arrays lie side by side in rows of one pitch, as two column ranges of a buffer do."""
    (run, pitch), (other_run, other_pitch) = _run_and_pitch(one), _run_and_pitch(other)
    if pitch != other_pitch or pitch <= 0:
        return False
    distance = (other.address - one.address) % pitch
    return run <= distance and distance + other_run <= pitch


def _run_and_pitch(array: Array) -> tuple[int, int]:
    """Bytes of one contiguous piece, and from the start of one to that of the next; (0, 0) where that is not so."""
    steps = sorted((s, n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1)
    if len(steps) < 2 or steps[0][0] != 1:
        return 0, 0
    run, pitch = steps[0][1], steps[1][0]
    covered = pitch
    for stride, extent in steps[1:]:
        if stride != covered:
            return 0, 0
        covered = stride * extent
    return run * array.itemsize, pitch * array.itemsize


def device_of(value: Any, name: str, construct: str) -> tuple[Target, int]:
    """The GPU that will run it, and its compute units.

    Raises:
        UsageError: the operands are on none, on one that is not supported, or on a GPU inside ``amdwarp.emulate``.
    """

    def error(problem: str, remedy: str) -> UsageError:
        return UsageError(problem, remedy=remedy, construct=construct)

    emulation, place = current_emulation(), place_of(value)
    if place not in ("cpu", "cuda"):
        raise error(
            f"{name} is on device {value.device}", "move it to an AMD GPU, or to the CPU inside amdwarp.emulate"
        )
    if emulation is not None and place != "cpu":
        raise error(
            f"{name} is on a GPU inside amdwarp.emulate", "pass CPU tensors or numpy arrays, or leave the block"
        )
    if place == "cpu":
        target = emulation.target if emulation is not None else get_target("gfx950")
        return target, target.compute_units
    import torch

    properties = torch.cuda.get_device_properties(value.device)
    arch = getattr(properties, "gcnArchName", properties.name)
    if arch.split(":")[0] not in TARGETS:
        raise error(
            f"{name} is on a {arch}, which is none of {', '.join(TARGETS)}", "use amdwarp.emulate, or such a GPU"
        )
    return get_target(arch), properties.multi_processor_count


def check_can_run(value: Any, name: str, construct: str) -> None:
    """Refuse CPU memory outside of ``amdwarp.emulate``."""
    if current_emulation() is None and place_of(value) == "cpu":
        raise UsageError(
            f"{name} is in CPU memory",
            remedy='move it to an AMD GPU, or run inside `with amdwarp.emulate("gfx950"):`',
            construct=construct,
        )


def empty(like: Any, shape: tuple[int, ...], dtype: str, *, zeros: bool = False) -> Any:
    """A new array of the kind of another, on its device."""
    if is_tensor(like):
        import torch

        make = like.new_zeros if zeros else like.new_empty
        return make(shape, dtype=getattr(torch, dtype))
    import ml_dtypes

    kind = getattr(ml_dtypes, dtype) if not hasattr(np, dtype) else getattr(np, dtype)
    return (np.zeros if zeros else np.empty)(shape, kind)


def bytes_view(value: Any) -> Any:
    """An array of a type that Triton has no name for (E8M0, packed fp4) as bytes of the same shape."""
    if is_tensor(value):
        import torch

        return value.view(torch.uint8)
    return value.view(np.uint8)
