"""What a kernel must know of an array or tensor that it is given, and the refusal of what no kernel can take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdwarp.errors import UsageError
from amdwarp.runtime import TYPE_NAMES, current_emulation, is_tensor
from amdwarp.target import TARGETS, Target, get_target

HALVES = ("fp16", "bf16")
#: 8-bit floats that the matrix units of a GPU take: with NaN at minus zero on CDNA3, the OCP formats since.
FP8 = {"gfx942": ("fp8e4b8", "fp8e5b16"), "gfx950": ("fp8e4nv", "fp8e5"), "gfx1250": ("fp8e4nv", "fp8e5")}
FLOATS = ("fp16", "bf16", "fp32")
EXTENT_LIMIT = 2**30
# Offsets inside a tile of keys are 32-bit elements; what is outside of a tile is counted in 64 bits.
TILE_LIMIT = 2**31


@dataclass(frozen=True)
class Operand:
    """An array or tensor as a kernel sees it.

    Attributes:
        name: of the argument.
        value: the array itself.
        shape, strides: elements.
        dtype: Triton's name.
        address: of the first element, bytes.
        itemsize: bytes of an element.
    """

    name: str
    value: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    address: int
    itemsize: int

    def span(self) -> tuple[int, int]:
        """First byte and one past the last byte of what it can touch."""
        if 0 in self.shape:
            return self.address, self.address
        last = sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))
        return self.address, self.address + (last + 1) * self.itemsize

    def steps(self, axes: tuple[int, int, int]) -> tuple[int, int, int]:
        """Strides of the axes that are batch, head and row."""
        batch, head, row = (self.strides[axis] for axis in axes)
        return batch, head, row

    def broadcast(self, shape: Sequence[int], construct: str) -> tuple[int, ...]:
        """The strides with which it fills a larger shape: 0 along each extent of 1, and along those it lacks."""
        missing = len(shape) - len(self.shape)
        fits = missing >= 0 and all(
            have in (1, want) for have, want in zip(self.shape, shape[max(missing, 0) :], strict=False)
        )
        if not fits:
            raise UsageError(
                f"{self.name} is {list(self.shape)}, which does not fill {list(shape)}",
                remedy="pass extents that are equal or 1",
                construct=construct,
            )
        steps = [0 if extent == 1 else stride for extent, stride in zip(self.shape, self.strides, strict=True)]
        return (0,) * missing + tuple(steps)


class Checker:
    """The checks of one call; every refusal names the function and the argument."""

    def __init__(self, construct: str) -> None:
        self.construct = construct

    def error(self, problem: str, remedy: str) -> UsageError:
        """A refusal, to be raised."""
        return UsageError(problem, remedy=remedy, construct=self.construct)

    def operand(
        self, name: str, value: Any, dimensions: int | tuple[int, ...], dtypes: Sequence[str], unit: bool = False
    ) -> Operand:
        """An argument as an operand.

        Args:
            name: of the argument.
            value: what was passed.
            dimensions: how many it may have.
            dtypes: the kernel types it may have.
            unit: its last dimension must be contiguous.
        """
        if not is_tensor(value) and not isinstance(value, np.ndarray):
            raise self.error(f"{name} is a {type(value).__name__}", "pass a torch tensor or a numpy array")
        if is_tensor(value) and str(value.layout) != "torch.strided":
            raise self.error(f"{name} has layout {value.layout}", f"pass {name}.to_dense()")
        if is_tensor(value) and (value.is_neg() or value.is_conj()):
            raise self.error(
                f"{name} is a negated or conjugated view, which is not what its memory holds",
                f"pass {name}.resolve_neg().resolve_conj()",
            )
        if isinstance(value, np.ma.MaskedArray):
            raise self.error(f"{name} is a masked array, whose mask no kernel sees", f"pass {name}.filled(0)")
        found = str(value.dtype).removeprefix("torch.")
        dtype = TYPE_NAMES.get(found, found)
        if dtype not in dtypes:
            names = {kernel: name for name, kernel in TYPE_NAMES.items()}
            raise self.error(f"{name} is {found}", f"pass {' or '.join(names[one] for one in dtypes)}")
        allowed = (dimensions,) if isinstance(dimensions, int) else dimensions
        if len(value.shape) not in allowed:
            expected = " or ".join(map(str, allowed))
            raise self.error(f"{name} has {len(value.shape)} dimensions, not {expected}", "reshape it")
        made = self._described(name, value, dtype)
        if any(extent > EXTENT_LIMIT for extent in made.shape):
            raise self.error(f"{name} has an extent of {max(made.shape)}, beyond {EXTENT_LIMIT}", "split the work")
        if any(stride < 0 for stride in made.strides):
            raise self.error(f"{name} has a negative stride", f"copy {name}")
        if unit and made.shape[-1] > 1 and made.strides[-1] != 1 and 0 not in made.shape:
            raise self.error(f"{name} has elements {made.strides[-1]} apart in its last dimension", f"copy {name}")
        return made

    def _described(self, name: str, value: Any, dtype: str) -> Operand:
        shape = tuple(map(int, value.shape))
        if is_tensor(value):
            strides, address, size = tuple(value.stride()), int(value.data_ptr()), value.element_size()
        else:
            size, address = value.itemsize, int(value.__array_interface__["data"][0])
            if any(stride % size for stride in value.strides):
                raise self.error(f"{name} has strides of {value.strides} bytes, no whole elements", f"copy {name}")
            strides = tuple(stride // size for stride in value.strides)
        return Operand(name, value, shape, strides, dtype, address, size)

    def same_place(self, first: Operand, *others: Operand) -> None:
        """Refuse operands of another kind or on another device than the first."""
        for other in others:
            if _place(other.value) != _place(first.value):
                raise self.error(
                    f"{other.name} is {_place(other.value)} and {first.name} is {_place(first.value)}",
                    "convert or move one of them",
                )

    def output(self, out: Operand, inputs: Sequence[Operand]) -> None:
        """Refuse an output that cannot be written, or that lies over an input or over itself."""
        if isinstance(out.value, np.ndarray) and not out.value.flags.writeable:
            raise self.error(f"{out.name} is read-only", "pass a writeable one, or none")
        if 0 in out.shape:
            return
        reach = 1
        for stride, extent in sorted(zip(out.strides, out.shape, strict=True)):
            if extent > 1 and stride < reach:
                raise self.error(f"elements of {out.name} lie over each other", "pass a contiguous one, or none")
            reach += (extent - 1) * stride
        self.apart(out, inputs)

    def apart(self, out: Operand, inputs: Iterable[Operand]) -> None:
        """Refuse an output that lies over an input."""
        first, last = out.span()
        for one in inputs:
            low, high = one.span()
            if low < last and first < high:
                raise self.error(f"{out.name} lies over {one.name} in memory", "pass one with memory of its own")

    def target(self, q: Operand) -> tuple[Target, int]:
        """The GPU that will run it, and its compute units."""
        emulation = current_emulation()
        device = str(q.value.device.type) if is_tensor(q.value) else "cpu"
        if device not in ("cpu", "cuda"):
            raise self.error(
                f"{q.name} is on device {q.value.device}", "move it to an AMD GPU, or to the CPU inside amdwarp.emulate"
            )
        if emulation is not None and device != "cpu":
            raise self.error(
                f"{q.name} is on a GPU inside amdwarp.emulate", "pass CPU tensors or numpy arrays, or leave the block"
            )
        if emulation is not None:
            return emulation.target, emulation.target.compute_units
        if device == "cpu":
            raise self.error(
                f"{q.name} is in CPU memory", 'move it to an AMD GPU, or run inside `with amdwarp.emulate("gfx950"):`'
            )
        import torch

        properties = torch.cuda.get_device_properties(q.value.device)
        arch = getattr(properties, "gcnArchName", properties.name)
        if arch.split(":")[0] not in TARGETS:
            raise self.error(
                f"{q.name} is on a {arch}, which is none of {', '.join(TARGETS)}", "use amdwarp.emulate, or such a GPU"
            )
        return get_target(arch), properties.multi_processor_count


def _place(value: Any) -> str:
    return f"a tensor on {value.device}" if is_tensor(value) else "an array"


def new_array(like: Any, shape: Sequence[int], dtype: str, fill: float | None = None) -> Any:
    """An array or tensor where `like` is; filled, or with whatever is in memory.

    Args:
        like: decides between numpy and torch, and the device.
        shape: its extents.
        dtype: Triton's name.
        fill: a number, or None.
    """
    name = next(name for name, kernel in TYPE_NAMES.items() if kernel == dtype)
    if is_tensor(like):
        import torch

        made = like.new_empty(tuple(shape), dtype=getattr(torch, name))
        return made if fill is None else made.fill_(fill)
    import ml_dtypes

    kind = getattr(ml_dtypes, name) if not hasattr(np, name) else np.dtype(name)
    return np.empty(tuple(shape), kind) if fill is None else np.full(tuple(shape), fill, kind)
