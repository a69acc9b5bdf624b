"""Types and layout attributes, from MLIR's text: shape, element, encoding with its parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from amdwarp.errors import LoweringError

from ..ir import Module
from ..location import split_top_level

BITS = {"index": 64, "bf16": 16}

Param = object


class LayoutError(LoweringError):
    """A type or encoding that this analysis does not know."""


@dataclass(frozen=True)
class Encoding:
    """A parsed layout attribute, e.g. ``#ttg.blocked<{sizePerThread = [1, 8], …}>``.

    Attributes:
        kind: its mnemonic, ``blocked``.
        params: its parameters: integers, booleans, words, lists, or an ``Encoding``.
        padding: (interval, padding) pairs of a padded layout, in elements.
    """

    kind: str
    params: dict[str, Param] = field(default_factory=dict)
    padding: tuple[tuple[int, int], ...] = ()

    def ints(self, name: str) -> list[int]:
        value = self.params.get(name, [])
        if not isinstance(value, list):
            raise LayoutError(f"parameter {name} of #ttg.{self.kind} is not a list: {value!r}")
        return value

    def number(self, name: str, default: int = 0) -> int:
        value = self.params.get(name, default)
        if not isinstance(value, int):
            raise LayoutError(f"parameter {name} of #ttg.{self.kind} is not an integer: {value!r}")
        return value

    def bases(self, name: str) -> list[list[int]]:
        return [list(basis) for basis in self.ints(name)]  # type: ignore[call-overload]

    @property
    def parent(self) -> Encoding:
        value = self.params.get("parent")
        if not isinstance(value, Encoding):
            raise LayoutError(f"#ttg.{self.kind} has no parent layout")
        return value


@dataclass(frozen=True)
class TensorType:
    """A ``tensor<…>`` or ``!ttg.memdesc<…>`` type.

    Attributes:
        shape: its dimensions.
        element: element type as text, ``f16`` or ``!tt.ptr<f16>``.
        encoding: its layout, or None.
        alloc_shape: of a memdesc, the shape of the whole allocation where it is a part of one.
        is_memdesc: whether it lies in LDS.
    """

    shape: tuple[int, ...]
    element: str
    encoding: Encoding | None
    alloc_shape: tuple[int, ...] = ()
    is_memdesc: bool = False

    @property
    def bits(self) -> int:
        return element_bits(self.element)


def element_bits(element: str) -> int:
    """Width of an element type in bits; a pointer counts as what it points to in :func:`pointee_bits` only."""
    if element.startswith("!tt.ptr"):
        return 64
    if element in BITS:
        return BITS[element]
    match = re.match(r"(?:tf|[fiusb]|bf|si|ui)(\d+)", element)
    if match is None:
        raise LayoutError(f"element type {element} has no known width")
    return int(match.group(1))


def pointee(element: str) -> str:
    """``f16`` of ``!tt.ptr<f16>`` or ``!tt.ptr<f16, 3>``; any other type as it is."""
    match = re.match(r"!tt\.ptr<(.*)>$", element)
    return split_top_level(match.group(1))[0] if match else element


# ---- parsing


def parse_type(text: str, module: Module) -> TensorType:
    """Parse a tensor or memdesc type, following layout aliases of ``module``.

    Raises:
        LayoutError: the text is neither.
    """
    return _parse_type(text, _Aliases(module.before))


class _Aliases:
    """Alias definitions with a hash by identity of content, so that parsed types can be cached."""

    def __init__(self, table: dict[str, str]) -> None:
        self.table = table
        self._key = tuple(sorted((k, v) for k, v in table.items() if not k.startswith("#loc")))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Aliases) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def resolve(self, text: str) -> str:
        for _ in range(16):
            if text not in self.table:
                return text
            text = self.table[text]
        return text


@lru_cache(maxsize=4096)
def _parse_type(text: str, aliases: _Aliases) -> TensorType:
    text = aliases.resolve(text)
    match = re.match(r"(tensor|!ttg\.memdesc)<(.*)>$", text, re.S)
    if match is None:
        raise LayoutError(f"{text} is no tensor and no memory descriptor")
    parts = split_top_level(match.group(2))
    shape, element = _shape_and_element(parts[0])
    encoding = next((_parse(part, aliases) for part in parts[1:] if part.startswith("#")), None)
    is_memdesc = match.group(1) != "tensor"
    last = parts[-1]
    alloc = tuple(int(n) for n in last.split("x")) if is_memdesc and re.fullmatch(r"[\dx]+", last) else shape
    return TensorType(shape, element, encoding, alloc if is_memdesc else (), is_memdesc)


def _shape_and_element(text: str) -> tuple[tuple[int, ...], str]:
    shape = []
    while match := re.match(r"(\d+)x", text):
        shape.append(int(match.group(1)))
        text = text[match.end() :]
    return tuple(shape), text


def parse_encoding(text: str) -> Encoding:
    """Parse a layout attribute that contains no alias."""
    return _parse(text, _Aliases({}))


def _parse(text: str, aliases: _Aliases) -> Encoding:
    text = aliases.resolve(text.strip())
    match = re.match(r"#(?:ttg|gluon|amdg)\.(\w+)(?:<(.*)>)?$", text, re.S)
    if match is None:
        raise LayoutError(f"{text} is no layout that is known")
    kind, body = match.group(1), match.group(2) or ""
    padding: tuple[tuple[int, int], ...] = ()
    if kind == "padded_shared":
        pairs, _, body = body.partition("]")
        padding = tuple((int(a), int(b)) for a, b in re.findall(r"(\d+):\+(\d+)", pairs))
        body = body.strip()
    params: dict[str, Param] = {}
    for part in split_top_level(body):
        if part.startswith("{"):
            for item in split_top_level(part[1:-1]):
                key, _, value = item.partition("=")
                params[key.strip()] = _value(value.strip(), aliases)
        elif "=" in part:
            key, _, value = part.partition("=")
            params[key.strip()] = _value(value.strip(), aliases)
    return Encoding(kind, params, padding)


def _value(text: str, aliases: _Aliases) -> Param:
    if re.fullmatch(r"-?\d+(\s*:\s*\w+)?", text):
        return int(text.partition(":")[0])
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("["):
        return [_value(part, aliases) for part in split_top_level(text[1:-1])]
    if text.startswith("{"):
        pairs = (part.partition("=") for part in split_top_level(text[1:-1]))
        return {key.strip(): _value(value.strip(), aliases) for key, _, value in pairs}
    return _parse(text, aliases) if text.startswith("#") else text
