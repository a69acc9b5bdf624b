"""Element types of the GEMM and which GPU multiplies which. Plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amdwarp.errors import UsageError

#: A flavour of fp8 that a GPU lacks, and the one of the same kind that it has.
FNUZ = {"float8_e4m3fn": "float8_e4m3fnuz", "float8_e5m2": "float8_e5m2fnuz"}
OCP = {fnuz: ocp for ocp, fnuz in FNUZ.items()}
FLOATS = ("float16", "bfloat16", "float32")
FP8 = (*FNUZ, *OCP)
#: GPUs whose fp8 is FNUZ (CDNA3 ISA, 7.2); the others follow the OCP specification.
FNUZ_TARGETS = ("gfx942",)
#: GPUs that multiply with E8M0 scales (CDNA4 ISA, 7.2.2; LLVM's gfx1250 tables).
MX_TARGETS = ("gfx950", "gfx1250")
#: What a caller may ask of fp32 operands, and what Triton calls it.
PRECISIONS = {"ieee": "ieee", "xf32": "tf32"}
#: GPUs with xf32 matrix instructions.
XF32_TARGETS = ("gfx942",)
#: What holds E8M0 scales and packed elements: bytes.
BYTES = ("uint8", "float8_e8m0fnu", "float4_e2m1fn_x2")


@dataclass(frozen=True)
class DType:
    """One element type.

    Attributes:
        name: as numpy (with ml_dtypes) and torch call it.
        bytes: of one element.
        fraction: explicit fraction bits; 0 for integers.
        smallest: the least positive value; 1 for integers.
        largest: the largest finite value.
    """

    name: str
    bytes: int
    fraction: int
    smallest: float
    largest: float

    @property
    def is_float(self) -> bool:
        return self.fraction > 0


DTYPES = {
    one.name: one
    for one in (
        DType("float32", 4, 23, 2.0**-149, 3.4028234663852886e38),
        DType("float16", 2, 10, 2.0**-24, 65504.0),
        DType("bfloat16", 2, 7, 2.0**-133, 3.3895313892515355e38),
        DType("float8_e4m3fn", 1, 3, 2.0**-9, 448.0),
        DType("float8_e5m2", 1, 2, 2.0**-16, 57344.0),
        DType("float8_e4m3fnuz", 1, 3, 2.0**-10, 240.0),
        DType("float8_e5m2fnuz", 1, 2, 2.0**-17, 57344.0),
        DType("int8", 1, 0, 1.0, 127.0),
        DType("int32", 4, 0, 1.0, 2.0**31 - 1),
    )
}


@dataclass(frozen=True)
class Format:
    """How an operand's elements stand in bytes, for products with E8M0 scales.

    Attributes:
        name: of the OCP Microscaling specification 1.0.
        numerator, denominator: bytes an element along K, as a fraction.
        dtypes: element types of arrays that hold it.
    """

    name: str
    numerator: int
    denominator: int
    dtypes: tuple[str, ...]

    def stored(self, k: int) -> int:
        """Bytes along K of so many elements."""
        return -(-k * self.numerator // self.denominator)

    def elements(self, stored: int) -> int:
        """Elements along K in so many bytes."""
        return stored * self.denominator // self.numerator


FORMATS = {
    one.name: one
    for one in (
        Format("e4m3", 1, 1, ("float8_e4m3fn",)),
        Format("e5m2", 1, 1, ("float8_e5m2",)),
        Format("e2m3", 3, 4, ("uint8",)),
        Format("e3m2", 3, 4, ("uint8",)),
        Format("e2m1", 1, 2, ("uint8", "float4_e2m1fn_x2")),
    )
}
#: What an array holds where nobody says.
FORMAT_OF = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "uint8": "e2m1", "float4_e2m1fn_x2": "e2m1"}


def dtype_name(dtype: Any, construct: str = "out_dtype") -> str:
    """The name of a dtype given as a string, numpy dtype or torch dtype.

    Raises:
        UsageError: none of those that the GEMM writes.
    """
    if isinstance(dtype, str):
        name = dtype
    elif isinstance(dtype, type):
        import numpy as np

        name = str(np.dtype(dtype))
    else:
        name = str(dtype)
    name = name.removeprefix("torch.")
    name = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}.get(name, name)
    if name not in DTYPES:
        raise UsageError(
            f"dtype {name!r} is not supported", remedy=f"use one of {', '.join(DTYPES)}", construct=construct
        )
    return name


def fp8_for(name: str, arch: str) -> str:
    """The fp8 dtype of a target that corresponds to a given one."""
    return FNUZ.get(name, name) if arch in FNUZ_TARGETS else OCP.get(name, name)


def refuse_foreign_fp8(argument: str, name: str, arch: str, construct: str) -> None:
    """Refuse the flavour of fp8 that a GPU does not multiply.

    Raises:
        UsageError: naming the flavour that it does.
    """
    if name in FP8 and fp8_for(name, arch) != name:
        raise UsageError(
            f"{argument} is {name}, and {arch} multiplies {fp8_for(name, arch)}",
            remedy=f"convert {argument} to {fp8_for(name, arch)}",
            construct=construct,
        )
