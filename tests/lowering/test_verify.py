"""One test a fault that the verifier must find."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from amdwarp.lowering.ir import Block, Module, Op, Region
from amdwarp.lowering.text import parse
from amdwarp.lowering.verify import VerifyError, verify_module
from samples import BLOCKS, LOOP


def one(module: Module, name: str) -> Op:
    return module.ops(name)[0]


def use_after_definition(module: Module) -> None:
    one(module, "arith.constant").move_after(one(module, "scf.for"))


def use_outside_of_region(module: Module) -> None:
    module.ops("arith.addi")[1].set_operand(0, module.ops("arith.addi")[0].result)


def own_result(module: Module) -> None:
    op = one(module, "arith.addf")
    op.set_operand(0, op.result)


def detached_definition(module: Module) -> None:
    one(module, "arith.constant").detach()


def lost_use(module: Module) -> None:
    one(module, "arith.constant").result.uses.clear()


def stale_use(module: Module) -> None:
    value = one(module, "arith.constant").result
    value.uses.append(value.uses[0].__class__(one(module, "tt.return"), 0))


def wrong_parent(module: Module) -> None:
    one(module, "arith.addf").parent = module.body


def no_terminator(module: Module) -> None:
    one(module, "tt.return").erase()


def early_terminator(module: Module) -> None:
    one(module, "tt.return").clone().insert_before(one(module, "scf.for"))


def yields_another_type(module: Module) -> None:
    yielded = one(module, "scf.yield")
    yielded.set_operands([yielded.operands[1], yielded.operands[0]])


def loses_an_argument(module: Module) -> None:
    loop = one(module, "scf.for")
    loop.set_operands(loop.operands[:4])


def undefined_location(module: Module) -> None:
    one(module, "arith.addf").loc = "#loc99"


def wrong_index(module: Module) -> None:
    one(module, "scf.for").results[1].index = 0


def foreign_region(module: Module) -> None:
    one(module, "scf.for").regions.append(Region([Block()]))


@pytest.mark.parametrize(
    ("damage", "message", "where"),
    [
        (use_after_definition, "operand %0 is defined after it", "kernel.py:4"),
        (use_outside_of_region, "operand %5 is not visible here", "kernel.py:4"),
        (own_result, "operand %4 is defined after it", "kernel.py:4"),
        (detached_definition, "defined by an op that is in no block", "kernel.py:4"),
        (lost_use, "operand 3 (%0) does not know of this use", "kernel.py:4"),
        (stale_use, "lists a use in tt.return that is not there", "kernel.py:3"),
        (wrong_parent, "block that is not its parent", "kernel.py:4"),
        (no_terminator, "ends with arith.addi, which is no terminator", "kernel.py:1"),
        (early_terminator, "a terminator stands before the end", "kernel.py:4"),
        (yields_another_type, "yielded values and results differ", "kernel.py:4"),
        (loses_an_argument, "initial values and results differ", "kernel.py:4"),
        (undefined_location, "location #loc99 is defined nowhere", "kernel.py:4"),
        (wrong_index, "does not know its owner or position", "kernel.py:4"),
        (foreign_region, "a region of it belongs to another op", "kernel.py:4"),
    ],
)
def test_finds(damage: Callable[[Module], None], message: str, where: str) -> None:
    module = parse(LOOP)
    verify_module(module)
    damage(module)
    with pytest.raises(VerifyError) as caught:
        verify_module(module)
    assert message in caught.value.problem
    assert caught.value.where == where or damage is undefined_location


def test_dominance_between_blocks() -> None:
    module = parse(BLOCKS)
    verify_module(module)
    blocks = module.functions()[0].regions[0].blocks
    blocks[2].ops[0].set_operand(0, module.ops("arith.addi")[0].result)
    with pytest.raises(VerifyError, match="%1 is not defined on every path that leads here"):
        verify_module(module)


def test_segment_sizes() -> None:
    module = parse(BLOCKS)
    module.ops("cf.cond_br")[0].properties["operandSegmentSizes"] = "array<i32: 1, 1, 1>"
    with pytest.raises(VerifyError, match="operandSegmentSizes adds up to 3, but there are 2"):
        verify_module(module)


def test_branch_out_of_region() -> None:
    module = parse(BLOCKS)
    module.ops("cf.cond_br")[0].successors[0] = module.body
    with pytest.raises(VerifyError, match="branches to a block of another region"):
        verify_module(module)


def test_isolated_region_sees_nothing() -> None:
    module = parse(BLOCKS)
    outside = Op("arith.constant", result_types=["i32"], properties={"value": "1 : i32"})
    module.body.insert(0, outside)
    module.ops("arith.addi")[0].set_operand(0, outside.result)
    with pytest.raises(VerifyError, match="is not visible here"):
        verify_module(module)
