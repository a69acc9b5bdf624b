"""Contiguity, divisibility and constancy: what is claimed holds for the numbers, and loops and hints are followed."""

from __future__ import annotations

import random

import numpy as np
from amdwarp.lowering.analysis.alignment import Alignment
from amdwarp.lowering.analysis.axis import MOST, Axis, join, lowest_bit
from amdwarp.lowering.ir import Block, Module, Op, Region, Value
from hypothesis import given, settings
from hypothesis import strategies as st

SHAPE = (8, 32)
MATRIX, MASK = "tensor<8x32xi32>", "tensor<8x32xi1>"
BINARY = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.divsi": lambda a, b: a // np.maximum(b, 1),
    "arith.remsi": lambda a, b: a % np.maximum(b, 1),
    "arith.minsi": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
}
PREDICATES = {2: np.less, 3: np.less_equal, 4: np.greater, 5: np.greater_equal, 0: np.equal}
SHIFTS = {"arith.shli": np.left_shift, "arith.shrsi": np.right_shift}


def function(args: list[str], attributes: str = "[]") -> tuple[Module, Op, Block]:
    block = Block(args)
    op = Op("tt.func", regions=[Region([block])], properties={"arg_attrs": attributes})
    module = Module(Op("builtin.module", regions=[Region([Block()])]))
    module.body.append(op)
    return module, op, block


class Drawn:
    """A random expression over rows, columns and one argument, with the numbers it stands for."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        multiple = self.pick.choice((1, 4, 16))
        self.module, self.function, self.block = function(["i32"], f"[{{tt.divisibility = {multiple} : i32}}]")
        self.numbers: dict[Value, np.ndarray] = {}
        scalar = multiple * self.pick.randint(0, 9)
        rows, columns = self._range(SHAPE[0], 1), self._range(SHAPE[1], 0)
        splat = self._op("tt.splat", [self.block.args[0]], MATRIX, np.full(SHAPE, scalar))
        self.matrices = [rows, columns, splat]
        for value in (1, self.pick.choice((2, 8, 32)), self.pick.choice((0, 3, 24))):
            self.matrices.append(self._constant(value))
        for _ in range(self.pick.randint(1, 7)):
            self._grow()

    def _op(self, name: str, operands: list[Value], type_: str, numbers: np.ndarray, **properties: str) -> Value:
        op = self.block.append(Op(name, operands, [type_], properties=properties))
        self.numbers[op.result] = numbers
        return op.result

    def _range(self, size: int, axis: int) -> Value:
        start = self.pick.choice((0, 0, size))
        numbers = np.arange(start, start + size)
        line = self._op(
            "tt.make_range", [], f"tensor<{size}xi32>", numbers, start=f"{start} : i32", end=f"{start + size} : i32"
        )
        shape = (size, 1) if axis else (1, size)
        thin = self._op(
            "tt.expand_dims", [line], f"tensor<{shape[0]}x{shape[1]}xi32>", numbers.reshape(shape), axis=f"{axis} : i32"
        )
        return self._op("tt.broadcast", [thin], MATRIX, np.broadcast_to(numbers.reshape(shape), SHAPE))

    def _constant(self, value: int) -> Value:
        return self._op("arith.constant", [], MATRIX, np.full(SHAPE, value), value=f"dense<{value}> : {MATRIX}")

    def _grow(self) -> None:
        a, b = (self.pick.choice(self.matrices) for _ in range(2))
        kind = self.pick.random()
        if kind < 0.75:
            name = self.pick.choice(list(BINARY))
            if name in ("arith.divsi", "arith.remsi") and (self.numbers[b] < 1).any():
                return
            made = BINARY[name](self.numbers[a], self.numbers[b])
            if (made < 0).any() or (made > 1 << 40).any():
                return  # rounding of negative quotients is not what numpy does
            self.matrices.append(self._op(name, [a, b], MATRIX, made))
        elif kind < 0.85:
            name, shift = self.pick.choice(list(SHIFTS)), self.pick.randint(0, 4)
            by = self._constant(shift)
            self.matrices.append(self._op(name, [a, by], MATRIX, SHIFTS[name](self.numbers[a], shift)))
        else:
            number = self.pick.choice(list(PREDICATES))
            c, d = (self.pick.choice(self.matrices) for _ in range(2))
            which = PREDICATES[number](self.numbers[c], self.numbers[d])
            mask = self._op("arith.cmpi", [c, d], MASK, which, predicate=f"{number} : i64")
            made = np.where(which, self.numbers[a], self.numbers[b])
            self.matrices.append(self._op("arith.select", [mask, a, b], MATRIX, made))


def holds(facts: Axis, numbers: np.ndarray) -> bool:
    """Whether what is claimed of an array is so."""
    if facts.constant is not None and (numbers != facts.constant).any():
        return False
    for axis, size in enumerate(numbers.shape):
        lines = np.moveaxis(numbers.astype(np.int64), axis, -1).reshape(-1, size)
        run, same = min(facts.contiguity[axis], size), min(facts.constancy[axis], size)
        if size % run or size % same:
            return False
        runs, equal = lines.reshape(-1, size // run, run), lines.reshape(-1, size // same, same)
        if (runs != runs[..., :1] + np.arange(run)).any() or (equal != equal[..., :1]).any():
            return False
        if facts.divisibility[axis] < MOST and (runs[..., 0] % facts.divisibility[axis]).any():
            return False
    return True


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9))
def test_what_is_claimed_is_so(seed: int) -> None:
    drawn = Drawn(seed)
    alignment = Alignment(drawn.function, drawn.module)
    for value, numbers in drawn.numbers.items():
        facts = alignment.of(value)
        assert holds(facts, numbers), f"{value.op}: {facts}"


def test_something_is_claimed() -> None:
    """The usual offsets of a tile are known to be contiguous and aligned."""
    drawn = Drawn(0)
    columns = drawn.matrices[1]
    rows = drawn.block.append(Op("arith.muli", [drawn.matrices[0], drawn._constant(64)], [MATRIX]))
    at = drawn.block.append(Op("arith.addi", [rows.result, columns], [MATRIX]))
    facts = Alignment(drawn.function, drawn.module).of(at.result)
    assert (facts.contiguity[1], facts.divisibility[1]) == (32, 32)


def test_pointers_count_bytes() -> None:
    module, top, block = function(["!tt.ptr<f16>", "tensor<64xi32>"], "[{tt.divisibility = 16 : i32}, {}]")
    block.ops.clear()
    base = block.append(Op("tt.splat", [block.args[0]], ["tensor<64x!tt.ptr<f16>>"]))
    line = block.append(Op("tt.make_range", [], ["tensor<64xi32>"], properties={"start": "0 : i32", "end": "64 : i32"}))
    at = block.append(Op("tt.addptr", [base.result, line.result], [base.result.type]))
    facts = Alignment(top, module).of(at.result)
    assert (facts.contiguity, facts.divisibility) == ((64,), (16,))


def test_hints_on_operations_win() -> None:
    module, top, block = function(["tensor<64xi32>"])
    hints = {"tt.contiguity": "dense<8> : tensor<1xi32>", "tt.divisibility": "dense<16> : tensor<1xi32>"}
    known = block.append(Op("arith.addi", [block.args[0]] * 2, ["tensor<64xi32>"], attributes=hints))
    facts = Alignment(top, module).of(known.result)
    assert (facts.contiguity, facts.divisibility) == ((8,), (16,))


def loop(step: int) -> Axis:
    """What is known of a pointer offset that grows by ``step`` in a loop, starting at a multiple of 16."""
    module, top, block = function(["i32", "i32"], "[{tt.divisibility = 16 : i32}, {}]")
    zero = block.append(Op("arith.constant", [], ["i32"], properties={"value": "0 : i32"}))
    one = block.append(Op("arith.constant", [], ["i32"], properties={"value": "1 : i32"}))
    by = block.append(Op("arith.constant", [], ["i32"], properties={"value": f"{step} : i32"}))
    body = Block(["i32", "i32"])
    more = body.append(Op("arith.addi", [body.args[1], by.result], ["i32"]))
    body.append(Op("scf.yield", [more.result]))
    operands = [zero.result, block.args[1], one.result, block.args[0]]
    made = block.append(Op("scf.for", operands, ["i32"], regions=[Region([body])]))
    alignment = Alignment(top, module)
    assert alignment.of(made.result) == alignment.of(body.args[1])
    return alignment.of(made.result)


def test_loops_keep_what_every_iteration_has() -> None:
    assert loop(64).divisibility == (16,)
    assert loop(8).divisibility == (8,)
    assert loop(3).divisibility == (1,)


def test_a_condition_keeps_what_both_sides_have() -> None:
    module, top, block = function(
        ["i1", "i32", "i32"], "[{}, {tt.divisibility = 16 : i32}, {tt.divisibility = 4 : i32}]"
    )
    sides = []
    for arg in block.args[1:]:
        side = Block()
        side.append(Op("scf.yield", [arg]))
        sides.append(Region([side]))
    made = block.append(Op("scf.if", [block.args[0]], ["i32"], regions=sides))
    assert Alignment(top, module).of(made.result).divisibility == (4,)


def test_joining() -> None:
    a, b = Axis((8,), (16,), (1,), 3), Axis((4,), (16,), (1,), 3)
    assert join(a, b) == Axis((4,), (4,), (1,), 3)
    assert join(a, a) == a
    assert [lowest_bit(n) for n in (12, -8, 1)] == [4, 8, 1]
    assert lowest_bit(0) == MOST
