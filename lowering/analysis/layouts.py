"""From a type to its linear layout: which element each register of each lane of each wave holds, at which LDS offset.

Covered are the encodings that AMD kernels have: blocked, slice, dot_op, amd_mfma, amd_wmma, linear in registers;
swizzled_shared, padded_shared, amd_rotating_shared, shared_linear in LDS. The rules are those of Triton's
``LinearLayoutConversions.cpp``; the tests compare them with Triton's own conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .linear import BLOCK, DISTRIBUTED, LANE, OFFSET, REGISTER, SHARED, WARP, Basis, LinearLayout, Tile, log2
from .types import Encoding, LayoutError, TensorType

MFMA_WAVE, WMMA_WAVE = 64, 32


def layout_of(type_: TensorType) -> LinearLayout:
    """The linear layout of a tensor or memdesc type.

    For a padded layout in LDS it maps the offsets *before* padding. For a part of a larger allocation it is the layout
    of the part on its own.

    Raises:
        LayoutError: the type has no layout, or one of an unknown kind.
    """
    if type_.encoding is None:
        raise LayoutError("a type without layout has no place in registers or LDS")
    return layout(type_.encoding, type_.shape)


def layout(encoding: Encoding, shape: Sequence[int]) -> LinearLayout:
    """The linear layout of a layout attribute for a tensor of ``shape``; errors as :func:`layout_of`."""
    rule = _RULES.get(encoding.kind)
    if rule is None:
        raise LayoutError(f"layout #ttg.{encoding.kind} is not known")
    return rule(encoding, tuple(shape))


def _row_major(rank: int) -> list[int]:
    return list(range(rank))[::-1]


def _k_first(operand: int, rank: int) -> list[int]:
    """Dimensions of a dot operand, K first, then the other one, then the batch."""
    k, other = (rank - 1, rank - 2) if operand == 0 else (rank - 2, rank - 1)
    return [k, other, 0][:rank]


def _blocked(encoding: Encoding, shape: tuple[int, ...]) -> LinearLayout:
    order = encoding.ints("order")
    tile = Tile(len(shape), DISTRIBUTED)
    tile.extend_all(REGISTER, encoding.ints("sizePerThread"), order)
    tile.extend_all(LANE, encoding.ints("threadsPerWarp"), order)
    tile.extend_all(WARP, encoding.ints("warpsPerCTA"), order)
    return tile.fit(shape, encoding.bases("CGALayout"), order)


def _slice(encoding: Encoding, shape: tuple[int, ...]) -> LinearLayout:
    dim = encoding.number("dim")
    whole = layout(encoding.parent, (*shape[:dim], 1, *shape[dim:]))
    bases = {name: tuple(b[:dim] + b[dim + 1 :] for b in values) for name, values in whole.bases.items()}
    outs = {f"dim{i}": size for i, size in enumerate(shape)}
    return LinearLayout(bases, outs).without_zero(REGISTER)


def _linear(encoding: Encoding, shape: tuple[int, ...]) -> LinearLayout:
    tile = Tile(len(shape), DISTRIBUTED)
    for name in (REGISTER, LANE, WARP):
        for basis in encoding.bases(name):
            tile.add(name, basis)
    tile.cover()
    blocks = encoding.bases(BLOCK)
    # block bases of a linear layout are in elements, those that fit() takes in whole workgroup tiles
    units = [[value // max(1, size) for value, size in zip(basis, tile.sizes, strict=True)] for basis in blocks]
    return tile.fit(shape, units, _order_of(encoding.bases(REGISTER), len(shape)))


def _order_of(bases: list[list[int]], rank: int) -> list[int]:
    """Dimensions in the order in which registers first move along them, then the rest from the last to the first."""
    touched = [dim for basis in bases for dim, value in enumerate(basis) if value]
    return list(dict.fromkeys([*touched, *_row_major(rank)]))


def _mfma(encoding: Encoding, shape: tuple[int, ...]) -> LinearLayout:
    rank = len(shape)
    m, n = rank - 2, rank - 1
    rows, columns = encoding.ints("instrShape")[:2]
    waves = encoding.ints("warpsPerCTA")
    tiles = encoding.ints("tilesPerWarp") or [1] * rank
    height = 1 if encoding.number("elementBitWidth", 32) == 64 else 4
    spread = rows * columns // (MFMA_WAVE * height)
    along, across, width = (n, m, rows) if encoding.params.get("isTransposed") else (m, n, columns)
    tile = Tile(rank, DISTRIBUTED)
    tile.extend(REGISTER, along, height).extend(LANE, across, width).extend(LANE, along, MFMA_WAVE // width)
    tile.extend(REGISTER, along, spread)
    tile.extend(REGISTER, n, tiles[n]).extend(WARP, n, waves[n])
    # the dot lowering walks tiles along N first, over the whole tensor and not only over a workgroup's tile
    tile.extend(REGISTER, n, _pow2(shape[n] // (columns * waves[n] * tiles[n])))
    tile.extend(REGISTER, m, tiles[m]).extend(WARP, m, waves[m])
    if rank == 3:
        tile.extend(WARP, 0, waves[0])
    return tile.fit(shape, encoding.bases("CGALayout"), _row_major(rank))


def _pow2(size: int) -> int:
    return size if size > 1 else 1


def _dot_op(encoding: Encoding, shape: tuple[int, ...]) -> LinearLayout:
    rule = {"blocked": _fma_operand, "amd_mfma": _mfma_operand, "amd_wmma": _wmma_operand}.get(encoding.parent.kind)
    if rule is None:
        raise LayoutError(f"a dot operand with parent #ttg.{encoding.parent.kind} is not known")
    return rule(encoding, shape)


def _fma_operand(encoding: Encoding, shape: tuple[int, ...]) -> LinearLayout:
    parent, rank = encoding.parent, len(shape)
    order = parent.ints("order")
    k = _k_first(encoding.number("opIdx"), rank)[0]
    size = parent.ints("sizePerThread")[:]
    size[k] = shape[k]
    tile = Tile(rank, DISTRIBUTED).extend_all(REGISTER, size, order)
    for name, spread in ((LANE, parent.ints("threadsPerWarp")), (WARP, parent.ints("warpsPerCTA"))):
        _spread_without(tile, name, spread, order, k)
    return tile.fit(shape, _operand_blocks(parent, k), order)


def _operand_blocks(parent: Encoding, k: int) -> list[list[int]]:
    """A cluster splits the result of a dot; along K an operand is whole in every workgroup."""
    return [[0 if dim == k else value for dim, value in enumerate(basis)] for basis in parent.bases("CGALayout")]


def _spread_without(tile: Tile, name: str, spread: Sequence[int], order: Sequence[int], k: int) -> None:
    """Lanes or waves that lie along K in the result hold the same part of an operand."""
    for dim in order:
        if dim == k:
            tile.repeat(name, spread[dim])
        else:
            tile.extend(name, dim, spread[dim])


def _mfma_operand(encoding: Encoding, shape: tuple[int, ...]) -> LinearLayout:
    parent, rank, operand = encoding.parent, len(shape), encoding.number("opIdx")
    k, other = _k_first(operand, rank)[:2]
    rows, columns = parent.ints("instrShape")[:2]
    lanes = rows if operand == 0 else columns
    width = encoding.number("kWidth")
    tile = Tile(rank, DISTRIBUTED)
    tile.extend(REGISTER, k, width).extend(LANE, other, lanes).extend(LANE, k, MFMA_WAVE // lanes)
    if (rows, columns, operand) in ((64, 4, 0), (4, 64, 1)):
        tile.extend(REGISTER, k, 16)
    tile.extend(REGISTER, k, _pow2(shape[k] // tile.sizes[k]))
    tile.extend(REGISTER, other, (parent.ints("tilesPerWarp") or [1] * rank)[other])
    _spread_without(tile, WARP, parent.ints("warpsPerCTA"), _row_major(rank), k)
    return tile.fit(shape, _operand_blocks(parent, k), _k_first(operand, rank))


def _wmma_waves(encoding: Encoding, name: str) -> list[list[int]]:
    table = encoding.params.get("ctaLayout")
    bases = table.get(name, []) if isinstance(table, dict) else []
    return [list(basis) for basis in bases]


def _wmma(encoding: Encoding, shape: tuple[int, ...]) -> LinearLayout:
    rank = len(shape)
    rows, columns = (encoding.ints("instrShape") or [16, 16])[:2]
    along, across = (rank - 1, rank - 2) if encoding.params.get("isTranspose") else (rank - 2, rank - 1)
    tile = Tile(rank, DISTRIBUTED)
    tile.extend(REGISTER, along, 8).extend(LANE, across, 16).extend(LANE, along, 2)
    if (rows, columns) == (32, 16):
        tile.extend(REGISTER, along, 2)
    covered = tuple(tile.sizes)
    for name in (REGISTER, WARP):
        tile.product(name, _wmma_waves(encoding, name), covered)
    return tile.cover().fit(shape, encoding.bases("CGALayout"), _row_major(rank))


def _wmma_operand(encoding: Encoding, shape: tuple[int, ...]) -> LinearLayout:
    parent, rank, operand = encoding.parent, len(shape), encoding.number("opIdx")
    k, other = _k_first(operand, rank)[:2]
    instruction = parent.ints("instrShape") or [16, 16, 16]
    width = encoding.number("kWidth")
    tile = Tile(rank, DISTRIBUTED)
    tile.extend(REGISTER, k, width).extend(LANE, other, 16).extend(LANE, k, WMMA_WAVE // 16)
    tile.extend(REGISTER, k, instruction[2] // tile.sizes[k])
    # a transposed result is computed with the operands exchanged
    tile.extend(REGISTER, other, instruction[operand ^ bool(parent.params.get("isTranspose"))] // 16)
    covered = tuple(tile.sizes)
    for name in (REGISTER, WARP):
        bases = [[0 if dim == k else value for dim, value in enumerate(b)] for b in _wmma_waves(parent, name)]
        tile.product(name, [b for b in bases if name == WARP or any(b)], covered)
    return tile.cover().fit(shape, _operand_blocks(parent, k), _k_first(operand, rank))


# ---- encodings in LDS


def _swizzled(encoding: Encoding, shape: tuple[int, ...], rotate: bool = False) -> LinearLayout:
    blocks, part = _blocks_and_part(encoding, shape)
    order = encoding.ints("order") or _row_major(len(shape))
    tile = Tile(len(shape), SHARED)
    if len(shape) == 1:
        return tile.extend(OFFSET, 0, part[0]).fit(shape, blocks, order)
    column, row = order[:2]
    vec, per, phases = encoding.number("vec", 1), encoding.number("perPhase", 1), encoding.number("maxPhase", 1)
    tile.extend(OFFSET, column, part[column])
    for bit in range(log2(part[row])):
        at = 1 << bit
        phase = at // per % phases
        if rotate:
            phase ^= at // phases // per % phases
        basis = [0] * len(shape)
        basis[row], basis[column] = at, vec * phase % part[column]
        tile.add(OFFSET, basis)
    tile.cover()
    for dim in order[2:]:
        tile.extend(OFFSET, dim, part[dim])
    return tile.fit(shape, blocks, order)


def _rotating(encoding: Encoding, shape: tuple[int, ...]) -> LinearLayout:
    return _swizzled(encoding, shape, rotate=True)


def _blocks_and_part(encoding: Encoding, shape: tuple[int, ...]) -> tuple[list[list[int]], list[int]]:
    """The bases of ``block``, and the shape that one workgroup holds."""
    blocks = encoding.bases("CGALayout")
    split = [1] * len(shape)
    for basis in blocks:
        split = [max(s, 2 * value) for s, value in zip(split, basis, strict=True)]
    return blocks, [max(1, whole // s) for whole, s in zip(shape, split, strict=True)]


def _padded(encoding: Encoding, shape: tuple[int, ...]) -> LinearLayout:
    if encoding.bases(OFFSET):
        return _shared_linear(encoding, shape)
    own = encoding.ints("shape") or list(shape)
    order = encoding.ints("order") or _row_major(len(own))
    blocks, part = _blocks_and_part(encoding, tuple(own))
    return Tile(len(own), SHARED).extend_all(OFFSET, part, order).fit(tuple(own), blocks, order)


def _shared_linear(encoding: Encoding, shape: tuple[int, ...]) -> LinearLayout:
    bases: dict[str, tuple[Basis, ...]] = {
        name: tuple(tuple(basis) for basis in encoding.bases(name)) for name in (OFFSET, BLOCK)
    }
    sizes = [1] * len(shape)
    for values in bases.values():
        for basis in values:
            sizes = [max(s, 1 << value.bit_length()) for s, value in zip(sizes, basis, strict=True)]
    return LinearLayout(bases, {f"dim{i}": size for i, size in enumerate(sizes)})


_RULES: dict[str, Callable[[Encoding, tuple[int, ...]], LinearLayout]] = {
    "blocked": _blocked,
    "slice": _slice,
    "linear": _linear,
    "generic_linear": _linear,
    "amd_mfma": _mfma,
    "amd_wmma": _wmma,
    "dot_op": _dot_op,
    "swizzled_shared": _swizzled,
    "amd_rotating_shared": _rotating,
    "padded_shared": _padded,
    "shared_linear": _shared_linear,
}
