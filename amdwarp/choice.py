"""What a command is about: a launch of a kernel of the zoo, or a file of AMDGCN text; options of the one and the other.

An option that does not go with what was chosen is refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .errors import UsageError

if TYPE_CHECKING:
    from .cycles.zoo import ZooLaunch

ARCH, DTYPE, B_ORDER = "gfx950", "fp16", "nk"

Arch = Annotated[str | None, typer.Option(help=f"GPU to compile a kernel of the zoo for; {ARCH} by default.")]
Kernel = Annotated[
    str, typer.Argument(help="A kernel of the zoo (gemm, attention, attention_causal), or a file of AMDGCN text.")
]
Shape = Annotated[str | None, typer.Option(help="M,N,K of a product; rows,keys,head dim of an attention.")]
Dtype = Annotated[
    str | None, typer.Option(help=f"fp16 or bf16, of a product also fp8, i8 or mxfp4; {DTYPE} by default.")
]
Schedule = Annotated[
    list[str] | None, typer.Option(help="Name of a schedule of the zoo's kernel; its own choice by default.")
]
BOrder = Annotated[
    str | None, typer.Option(help=f"nk: B as a linear layer's weight; kn: B row-major; {B_ORDER} by default.")
]


@dataclass(frozen=True)
class ZooChoice:
    """A command's kernel, and the options that only a kernel of the zoo takes; None where one was not given.

    Attributes:
        kernel: name of a kernel of the zoo, or a path.
        arch, shape, dtype, schedules, b_order: as for the kernels of the zoo; a launch for each schedule.
    """

    kernel: str
    arch: str | None = None
    shape: str | None = None
    dtype: str | None = None
    schedules: Sequence[str] | None = None
    b_order: str | None = None

    @property
    def of_the_zoo(self) -> bool:
        from .cycles.zoo import KERNELS

        return self.kernel in KERNELS

    def launches(self, shape: tuple[int, int, int] | None = None) -> list[ZooLaunch]:
        """Compile the launches.

        Args:
            shape: where none was asked for.

        Raises:
            UsageError: what the kernel cannot take.
        """
        from .cycles.zoo import DEFAULT_SHAPES, KERNELS

        size = parse_shape(self.shape, self.kernel) if self.shape is not None else shape or DEFAULT_SHAPES[self.kernel]
        return [
            KERNELS[self.kernel](
                size,
                dtype=DTYPE if self.dtype is None else self.dtype,
                schedule=schedule,
                arch=ARCH if self.arch is None else self.arch,
                b_order=B_ORDER if self.b_order is None else self.b_order,
            )
            for schedule in self.schedules or (None,)
        ]

    def file(self) -> Path:
        """The file that was named.

        Raises:
            UsageError: there is none, or an option goes with a kernel of the zoo only.
        """
        from .cycles.zoo import KERNELS

        path = Path(self.kernel)
        if not path.is_file():
            raise UsageError(
                f"{self.kernel!r} is neither a kernel of the zoo nor a file", remedy=f"use {', '.join(KERNELS)}"
            )
        given = {
            "--arch": self.arch,
            "--shape": self.shape,
            "--dtype": self.dtype,
            "--schedule": self.schedules,
            "--b-order": self.b_order,
        }
        refuse(f"{self.kernel} is a file, which has its own", given, f"{', '.join(KERNELS)}")
        return path


def refuse(why: str, options: Mapping[str, object], instead: str) -> None:
    """Refuse options that were given and do not go with what was chosen.

    Raises:
        UsageError: naming them.
    """
    names = [name for name, value in options.items() if value is not None and value != []]
    if names:
        verb = "goes" if len(names) == 1 else "go"
        raise UsageError(f"{why}: {', '.join(names)} {verb} with {instead} only", remedy=f"drop {', '.join(names)}")


def only_one(name: str, values: list[str] | None, command: str) -> list[str] | None:
    """The values of an option that this command takes once.

    Raises:
        UsageError: there are several.
    """
    if values is not None and len(values) > 1:
        raise UsageError(f"{name} is given {len(values)} times, and {command} shows one kernel", remedy="give one")
    return values


def parse_shape(text: str, kernel: str = "gemm") -> tuple[int, int, int]:
    """M, N, K of ``M,N,K`` for a product; rows, keys, elements of a head for an attention.

    Raises:
        UsageError: it is none.
    """
    try:
        m, n, k = (int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        form, like = ("M,N,K", "4096,4096,4096") if kernel == "gemm" else ("rows,keys,head dim", "4096,4096,128")
        raise UsageError(f"shape {text!r} is not {form}", remedy=f"write it like --shape {like}") from None
    return m, n, k
