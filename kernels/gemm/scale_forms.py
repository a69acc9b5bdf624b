"""What the scales of a product scale, by their shapes; and the element formats of an MX product."""

from __future__ import annotations

from amdwarp.target import Target

from .dtypes import FORMAT_OF, FORMATS, MX_TARGETS
from .forms import broadcast, error
from .operands import Array, bytes_view
from .plain_config import BLOCK_K, MX_K
from .plain_problem import Scale

MX_SCALES = ("uint8", "float8_e8m0fnu")


def line_remedy(of: str, lines: int) -> str:
    shape = f"({lines}, 1)" if of == "a" else f"(1, {lines})"
    return f"pass one fp32 value, or {shape}"


def plain_scale(construct: str, array: Array, of: str, lines: int, k: int, batch: tuple[int, ...] = ()) -> Scale:
    """What a scale of fp32 values scales, by its last two dimensions; those before them broadcast to the batch."""
    if array.dtype != "float32":
        raise error(construct, f"{array.name} is {array.dtype}, not float32", f"convert {array.name}")
    matrix, steps = _matrix(construct, array, batch)
    if matrix.size == 1 and matrix.ndim <= 2:
        return Scale(array, "tensor", batch=steps)
    blocks_k, blocks = -(-k // BLOCK_K), -(-lines // BLOCK_K)
    shape, strides = matrix.shape, matrix.strides
    if of == "b" and matrix.ndim == 2:
        shape, strides = shape[::-1], strides[::-1]
    if shape == (lines, 1):
        return Scale(array, "line", strides[0], batch=steps)
    if shape == (lines, blocks_k):
        return Scale(array, "block", strides[0], strides[1], 1, steps)
    if shape == (blocks, blocks_k):
        return Scale(array, "block", strides[0], strides[1], BLOCK_K, steps)
    want = [(), (lines, 1), (lines, blocks_k), (blocks, blocks_k)]
    texts = [str(one if of == "a" else one[::-1]) for one in want]
    behind = ", behind batch dimensions that broadcast or none" if batch else ""
    raise error(construct, f"{array.name} is {array.describe()}", f"pass one of the shapes {', '.join(texts)}{behind}")


def mx_scale(construct: str, array: Array, of: str, lines: int, k: int, batch: tuple[int, ...] = ()) -> Scale:
    """E8M0 scales, one every 32 elements along K."""
    shape = (lines, k // MX_K) if of == "a" else (k // MX_K, lines)
    matrix, steps = _matrix(construct, array, batch)
    if matrix.shape != shape:
        raise error(construct, f"{array.name} is {array.describe()}", f"pass {shape}, one E8M0 value every 32 along K")
    strides = matrix.strides if of == "a" else matrix.strides[::-1]
    if array.dtype != "uint8":
        array = Array(array.name, bytes_view(array.value), "uint8", array.shape, array.strides, array.address, 1)
    return Scale(array, "mx", strides[0], strides[1], batch=steps)


def _matrix(construct: str, array: Array, batch: tuple[int, ...]) -> tuple[Array, tuple[int, ...]]:
    """The scales of one matrix, and the steps to those of the others; no steps where all share them."""
    if array.ndim <= 2 or not batch:
        return array, ()
    leading = broadcast(array.reshaped(array.shape[:-2], array.strides[:-2]), batch)
    if leading is None:
        remedy = f"pass batch dimensions that broadcast to {batch}, or none"
        raise error(construct, f"{array.name} is {array.describe()}", remedy)
    return array.reshaped(array.shape[-2:], array.strides[-2:]), leading.strides


def mx_formats(
    construct: str,
    a: Array,
    b: Array,
    scales: dict[str, Array],
    formats: tuple[str | None, str | None],
    target: Target,
) -> tuple[str, str]:
    """Element formats of an MX product."""
    if target.arch not in MX_TARGETS:
        raise error(construct, f"{target.arch} does not multiply with E8M0 scales", f"run on {' or '.join(MX_TARGETS)}")
    for name in ("scale_a", "scale_b"):
        if name not in scales:
            raise error(construct, f"{name} is missing", "an MX product has E8M0 scales for both operands")
        if scales[name].dtype not in MX_SCALES:
            raise error(construct, f"{name} is {scales[name].dtype}", f"pass {' or '.join(MX_SCALES)} in both scales")
    found = []
    for one, given in zip((a, b), formats, strict=True):
        name = given if given is not None else FORMAT_OF[one.dtype]
        if name not in FORMATS or one.dtype not in FORMATS[name].dtypes:
            legal = ", ".join(name for name, f in FORMATS.items() if one.dtype in f.dtypes)
            raise error(construct, f"format_{one.name} = {name!r} of {one.dtype} elements", f"pass one of {legal}")
        found.append(name)
    for one, axis, name in ((a, -1, found[0]), (b, -2, found[1])):
        elements = FORMATS[name].elements(one.shape[axis])
        if elements % MX_K:
            raise error(construct, f"K = {elements} of {one.name}", f"an MX product needs a multiple of {MX_K}")
    return found[0], found[1]
