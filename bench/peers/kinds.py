"""Element types of the peers' products: what the operands, the sums and the output are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from amdwarp.errors import UsageError


@dataclass(frozen=True)
class Kind:
    """One kind of product.

    Attributes:
        elements: Triton's name of the operand type, by target.
        bits: of an operand element.
        out: Triton's name of the output type.
        array, out_array: what holds operands and output on the host.
    """

    elements: dict[str, str]
    bits: int
    out: str
    array: Any
    out_array: Any

    @property
    def element_bytes(self) -> float:
        return self.bits / 8

    def operand(self, target: str) -> str:
        """Triton's name of the operand type on a target.

        Raises:
            UsageError: the target does not multiply it.
        """
        if target not in self.elements:
            raise UsageError(f"{target} does not multiply it", remedy=f"use {' or '.join(self.elements)}")
        return self.elements[target]


def _same(name: str) -> dict[str, str]:
    return dict.fromkeys(("gfx950", "gfx942", "gfx1250"), name)


KINDS = {
    "fp16": Kind(_same("fp16"), 16, "fp16", np.float16, np.float16),
    "bf16": Kind(_same("bf16"), 16, "bf16", ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    "fp8": Kind(
        {"gfx950": "fp8e4nv", "gfx942": "fp8e4b8", "gfx1250": "fp8e4nv"}, 8, "bf16", np.uint8, ml_dtypes.bfloat16
    ),
    "int8": Kind(_same("i8"), 8, "i32", np.int8, np.int32),
    "mxfp4": Kind({"gfx950": "mxfp4", "gfx1250": "mxfp4"}, 4, "bf16", np.uint8, ml_dtypes.bfloat16),
}


def kind_of(dtype: str) -> Kind:
    """The kind of a dtype as the commands name it.

    Raises:
        UsageError: an unknown one.
    """
    if dtype not in KINDS:
        raise UsageError(f"unknown dtype {dtype!r}", remedy=f"use one of {', '.join(KINDS)}")
    return KINDS[dtype]
