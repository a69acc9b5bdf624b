"""Linear layouts: maps between hardware indices and tensor indices that are linear over XOR.

A layout sends an index of each of its *inputs* (``register``, ``lane``, ``warp``, ``block`` for a tensor in registers;
``offset``, ``block`` for one in LDS) to an index of each of its *outputs* (``dim0``, ``dim1``, …). It is given by
its bases alone: where bit k of an input goes. The image of any other index is the XOR of the bases of its set bits.
The notion, and the names, are Triton's ("Linear Layouts: Robust Code Generation of Efficient Tensor Computation Using
F2", Zhou et al., 2025).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

REGISTER, LANE, WARP, BLOCK, OFFSET = "register", "lane", "warp", "block", "offset"
DISTRIBUTED = (REGISTER, LANE, WARP, BLOCK)
SHARED = (OFFSET, BLOCK)

Basis = tuple[int, ...]


def log2(size: int) -> int:
    """The exponent of a power of two; ValueError for anything else."""
    if size < 1 or size & (size - 1):
        raise ValueError(f"{size} is not a power of two")
    return size.bit_length() - 1


def dim_names(rank: int) -> tuple[str, ...]:
    return tuple(f"dim{i}" for i in range(rank))


@dataclass(frozen=True)
class LinearLayout:
    """One layout.

    Attributes:
        bases: input name -> one basis a bit of the index, lowest bit first; a basis has one number an output.
        outs: output name -> its size, a power of two.
    """

    bases: Mapping[str, tuple[Basis, ...]]
    outs: Mapping[str, int]

    def in_size(self, name: str) -> int:
        return 1 << len(self.bases.get(name, ()))

    @cached_property
    def _shifts(self) -> dict[str, int]:
        """Position of each output's lowest bit when all outputs are packed into one number."""
        shifts, total = {}, 0
        for name, size in self.outs.items():
            shifts[name] = total
            total += log2(size)
        return shifts

    def flat(self, basis: Sequence[int]) -> int:
        """All outputs of a basis packed into one number."""
        return sum(value << self._shifts[name] for name, value in zip(self.outs, basis, strict=True))

    def flat_bases(self, name: str) -> list[int]:
        return [self.flat(basis) for basis in self.bases.get(name, ())]

    def column(self, name: str, out: str) -> list[int]:
        """What each bit of input ``name`` adds to output ``out``."""
        index = list(self.outs).index(out)
        return [basis[index] for basis in self.bases.get(name, ())]

    def apply(self, **indices: int) -> Basis:
        """Image of an index; inputs that are left out are 0."""
        result = [0] * len(self.outs)
        for name, index in indices.items():
            for bit, basis in enumerate(self.bases.get(name, ())):
                if index >> bit & 1:
                    result = [a ^ b for a, b in zip(result, basis, strict=True)]
        return tuple(result)

    def replace(self, **bases: Iterable[Basis]) -> LinearLayout:
        """The same layout with some inputs' bases exchanged."""
        return LinearLayout({**self.bases, **{name: tuple(new) for name, new in bases.items()}}, self.outs)

    def without_zero(self, name: str) -> LinearLayout:
        """Without the bases of ``name`` that go to 0: those bits only repeat what is there."""
        return self.replace(**{name: (basis for basis in self.bases.get(name, ()) if any(basis))})

    def over(self, other: LinearLayout) -> LinearLayout:
        """The map from this layout's inputs to the inputs of ``other`` that has the same image there.

        ``registers.over(lds)`` says at which LDS offset each register of each lane lies.

        Args:
            other: a layout onto the same outputs; where several of its indices have one image, the one with the
                fewest high bits is taken.

        Raises:
            ValueError: some element of this layout is not in ``other``'s image.
        """
        solver = _Solver(other)
        names = list(other.bases)
        outs = {name: other.in_size(name) for name in names}
        bases = {}
        for name in self.bases:
            bases[name] = tuple(solver.solve(other.flat(_reorder(self, other, basis))) for basis in self.bases[name])
        return LinearLayout(bases, outs)


def _reorder(source: LinearLayout, target: LinearLayout, basis: Basis) -> list[int]:
    by_name = dict(zip(source.outs, basis, strict=True))
    return [by_name[name] for name in target.outs]


class _Solver:
    """Preimages under a layout, by elimination over GF(2)."""

    def __init__(self, layout: LinearLayout) -> None:
        self.widths = [len(layout.bases[name]) for name in layout.bases]
        self.pivots: dict[int, tuple[int, int]] = {}
        column = 0
        for name in layout.bases:
            for value in layout.flat_bases(name):
                image, combination = self._reduce(value, 1 << column)
                if image:
                    self.pivots[image.bit_length()] = (image, combination)
                column += 1

    def _reduce(self, image: int, combination: int) -> tuple[int, int]:
        while image and (pivot := self.pivots.get(image.bit_length())):
            image ^= pivot[0]
            combination ^= pivot[1]
        return image, combination

    def solve(self, image: int) -> Basis:
        rest, combination = self._reduce(image, 0)
        if rest:
            raise ValueError("an element of one layout is not in the other")
        indices = []
        for width in self.widths:
            indices.append(combination & ((1 << width) - 1))
            combination >>= width
        return tuple(indices)


class Tile:
    """A layout under construction: each step extends one output, inside out.

    Args:
        rank: how many outputs, ``dim0`` to ``dim<rank-1>``.
        inputs: the layout's inputs.
    """

    def __init__(self, rank: int, inputs: Sequence[str]) -> None:
        self.rank = rank
        self.sizes = [1] * rank
        self.bases: dict[str, list[list[int]]] = {name: [] for name in inputs}

    def extend(self, name: str, dim: int, size: int) -> Tile:
        """``size`` more indices of input ``name``, along ``dim``, on top of what the tile covers already."""
        for bit in range(log2(size) if size > 1 else 0):
            self._append(name, {dim: self.sizes[dim] << bit})
        self.sizes[dim] *= max(size, 1)
        return self

    def extend_all(self, name: str, shape: Sequence[int], order: Sequence[int]) -> Tile:
        """:meth:`extend` along every dimension, ``order[0]`` first."""
        for dim in order:
            self.extend(name, dim, shape[dim])
        return self

    def repeat(self, name: str, size: int) -> Tile:
        """``size`` more indices of input ``name`` that all hold what the first holds."""
        for _ in range(log2(size)):
            self._append(name, {})
        return self

    def add(self, name: str, basis: Sequence[int]) -> Tile:
        """One more bit of input ``name``, its basis given on top of nothing; :meth:`cover` updates the sizes."""
        self.bases[name].append(list(basis))
        return self

    def product(self, name: str, bases: Sequence[Sequence[int]], covered: Sequence[int]) -> Tile:
        """More bits of ``name``, with bases counted in units of ``covered``, what the tile covered at some point."""
        for basis in bases:
            self.bases[name].append([value * unit for value, unit in zip(basis, covered, strict=True)])
        return self

    def cover(self) -> Tile:
        """Set the sizes to what the bases span."""
        for dim in range(self.rank):
            spanned = 0
            for bases in self.bases.values():
                for basis in bases:
                    spanned |= basis[dim]
            self.sizes[dim] = 1 << spanned.bit_length()
        return self

    def _append(self, name: str, basis: Mapping[int, int]) -> None:
        self.bases[name].append([basis.get(dim, 0) for dim in range(self.rank)])

    # ---- to a given shape

    def fit(self, shape: Sequence[int], blocks: Sequence[Sequence[int]], order: Sequence[int]) -> LinearLayout:
        """The layout of a tensor: this tile repeated in registers until it covers ``shape``, or cut down to it.

        Args:
            shape: the tensor's.
            blocks: bases of input ``block``: how the tensor is split over a cluster of workgroups.
            order: dimensions in the order in which registers repeat along them.
        """
        block = Tile(self.rank, [BLOCK])
        for basis in blocks:
            block.add(BLOCK, basis)
        block.cover()._shrink(shape)
        part = [max(1, whole // split) for whole, split in zip(shape, block.sizes, strict=True)]
        first = next(iter(self.bases))
        for dim in order:
            if self.sizes[dim] < part[dim]:
                self.extend(first, dim, part[dim] // self.sizes[dim])
        self._shrink(part)
        # a cluster splits the tensor in halves of the whole, beyond what one workgroup covers
        scaled = [[value * size for value, size in zip(basis, part, strict=True)] for basis in block.bases[BLOCK]]
        bases = {name: tuple(map(tuple, values)) for name, values in self.bases.items() if name != BLOCK}
        bases[BLOCK] = tuple(map(tuple, scaled))
        return LinearLayout(bases, dict(zip(dim_names(self.rank), shape, strict=True)))

    def _shrink(self, shape: Sequence[int]) -> None:
        """Clear the highest bits of dimensions that reach beyond ``shape``: those indices repeat what others hold."""
        for dim, wanted in enumerate(shape):
            touching = [(b[dim], name, i) for name, bases in self.bases.items() for i, b in enumerate(bases) if b[dim]]
            for _, name, index in sorted(touching, key=lambda item: -item[0]):
                if self.sizes[dim] <= wanted:
                    break
                self.bases[name][index][dim] = 0
                self.sizes[dim] //= 2
