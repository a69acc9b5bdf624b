"""What happens to a product between the accumulator and memory, in one stated order. Plain Python.

    value = accumulator * scale * scale_a[row] * scale_b[column]
    value = value + bias                  (per column, or per row)
    value = activation(value)             (relu, gelu_tanh, gelu_erf, silu; swiglu halves the columns)
    value = value + beta * residual
    out   = value in the output dtype, rounded to nearest even; fp8 saturates

All in fp32. The device side is in ``epilogue_device.py``, for Triton and for Gluon.
"""

from __future__ import annotations

from dataclasses import dataclass

from amdwarp.errors import UsageError

from .dtypes import DTYPES, FP8

ACTIVATIONS = ("relu", "gelu_tanh", "gelu_erf", "silu", "swiglu")
#: Other names of activations, as ``torch.nn.functional.gelu`` means them.
SYNONYMS = {"gelu": "gelu_erf", "swish": "silu"}
BIASES = ("column", "row")


@dataclass(frozen=True)
class Epilogue:
    """One epilogue; a compile-time constant of the kernels.

    Attributes:
        out: output dtype.
        scaled: multiply by the run-time scalar ``alpha``.
        bias: None, ``column`` (one value a column of the product) or ``row``.
        activation: None or one of ``ACTIVATIONS``. ``swiglu`` takes a product of 2N columns, the gate in the first N
            and the value in the last N, and writes N columns: silu(gate) * value.
        residual: add ``beta`` times a matrix of the output's shape.
    """

    out: str = "float16"
    scaled: bool = False
    bias: str | None = None
    activation: str | None = None
    residual: bool = False

    @property
    def gated(self) -> bool:
        """Two columns of the product make one of the output."""
        return self.activation == "swiglu"

    @property
    def trivial(self) -> bool:
        """Nothing but a conversion."""
        return not (self.scaled or self.bias or self.activation or self.residual)

    @property
    def saturate(self) -> float:
        """The largest magnitude that is written; 0 where the conversion alone decides."""
        return DTYPES[self.out].largest if self.out in FP8 else 0.0

    def constraints(self) -> list[str]:
        """What is wrong with it, one sentence each."""
        wrong = []
        if self.out not in DTYPES:
            wrong.append(f"out = {self.out!r} is none of {', '.join(DTYPES)}")
        if self.bias is not None and self.bias not in BIASES:
            wrong.append(f"bias = {self.bias!r} is none of {', '.join(BIASES)}")
        if self.activation is not None and self.activation not in ACTIVATIONS:
            wrong.append(f"activation = {self.activation!r} is none of {', '.join(ACTIVATIONS)}")
        if self.out in ("int32", "int8") and not (self.trivial and self.out == "int32"):
            wrong.append(f"out = {self.out} takes no epilogue; write a float dtype")
        return wrong

    def check(self) -> None:
        """Raise `UsageError` with the first broken constraint, if there is one."""
        if wrong := self.constraints():
            raise UsageError(wrong[0], construct="Epilogue")


def activation_name(name: str | None, construct: str) -> str | None:
    """An activation by its name or a synonym.

    Raises:
        UsageError: an unknown one.
    """
    if name is None:
        return None
    found = SYNONYMS.get(name, name) if isinstance(name, str) else name
    if found not in ACTIVATIONS:
        known = ", ".join((*ACTIVATIONS, *SYNONYMS))
        raise UsageError(f"activation = {name!r} is not known", remedy=f"use one of {known}", construct=construct)
    return found
