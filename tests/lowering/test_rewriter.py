"""Insertion points, replacement, dead code."""

from __future__ import annotations

import pytest
from amdwarp.lowering import dialect
from amdwarp.lowering.ir import IRError, Module, Op
from amdwarp.lowering.rewriter import (
    Builder,
    clone_region,
    erase,
    erase_dead,
    inline_block,
    insert_after,
    insert_before,
    replace,
)
from amdwarp.lowering.text import parse, print_module
from amdwarp.lowering.verify import verify_module
from samples import LOOP


@pytest.fixture
def module() -> Module:
    return parse(LOOP)


def test_builder_keeps_order_and_gives_the_anchors_location(module: Module) -> None:
    (loop,) = module.ops("scf.for")
    before, after = Builder.before(loop), Builder.after(loop)
    for name in ("test.a", "test.b"):
        before.create(name)
        after.create(name)
    names = [op.name for op in loop.block.ops]
    at = names.index("scf.for")
    assert names[at - 2 : at + 3] == ["test.a", "test.b", "scf.for", "test.a", "test.b"]
    assert {op.loc for op in module.ops("test.a", "test.b")} == {loop.loc}
    assert insert_before(loop, Op("test.c", loc="#loc1")).loc == "#loc1"
    assert insert_after(loop, Op("test.d")).loc == loop.loc
    verify_module(module)


def test_builder_at_the_ends_of_a_block(module: Module) -> None:
    body = module.ops("scf.for")[0].regions[0].block
    Builder.at_start(body).create("test.first")
    Builder.at_end(body).create("test.last")
    assert (body.ops[0].name, body.ops[-1].name) == ("test.first", "test.last")
    assert body.ops[0].loc == "#loc2"
    assert body.ops[-1].loc == "#loc3"


def test_values_and_clones(module: Module) -> None:
    (loop,) = module.ops("scf.for")
    build = Builder.before(loop)
    two = build.value(dialect.constant(2))
    total = build.value(dialect.addi(two, two))
    constant = module.ops("arith.constant")[1]
    copy = build.clone(constant)
    assert copy.properties == constant.properties
    assert total.op is not None
    assert total.op.loc == loop.loc
    verify_module(module)


def test_replace_by_op_and_by_values(module: Module) -> None:
    _, zero, one = module.ops("arith.constant")
    replace(zero, dialect.constant(5))
    assert module.ops("arith.constant")[1].properties["value"] == "5 : i32"
    replace(one, [module.ops("arith.constant")[1].result])
    assert len(module.ops("arith.constant")) == 2
    verify_module(module)


def test_replace_refuses_another_shape(module: Module) -> None:
    infinity, zero, _ = module.ops("arith.constant")
    with pytest.raises(IRError, match=r"arith\.constant gives a i32, its replacement a tensor"):
        replace(zero, [infinity.result])
    with pytest.raises(IRError, match="has 1 results, its replacement 0"):
        replace(zero, [])


def test_erase_refuses_used(module: Module) -> None:
    with pytest.raises(IRError, match=r"still used by scf\.for") as caught:
        erase(module.ops("arith.constant")[0])
    assert caught.value.where == "kernel.py:3"


def test_erase_dead(module: Module) -> None:
    block = module.functions()[0].regions[0].block
    assert erase_dead(block) == 5
    assert [op.name for op in block.ops] == ["tt.return"]


def test_erase_dead_keeps_effects(module: Module) -> None:
    block = module.functions()[0].regions[0].block
    inner = module.ops("arith.addf")[0]
    Builder.before(inner).create("amdg.buffer_store")
    assert erase_dead(block) == 1
    assert module.ops("scf.for") != []


def test_clone_region(module: Module) -> None:
    (loop,) = module.ops("scf.for")
    copy = clone_region(loop.regions[0])
    assert copy.parent is None
    assert [op.name for op in copy.block.ops] == ["arith.addf", "arith.addi", "scf.yield"]
    assert copy.block.ops[0].operands[0] is copy.block.args[1]


def test_inline_block_peels_an_iteration(module: Module) -> None:
    (loop,) = module.ops("scf.for")
    peeled = clone_region(loop.regions[0]).block
    values = inline_block(peeled, loop, [loop.operands[0], *loop.operands[3:]])
    for offset, value in enumerate(values):
        loop.set_operand(3 + offset, value)
    verify_module(module)
    text = print_module(module)
    assert print_module(parse(text)) == text
    assert len(module.ops("arith.addf")) == 2
    with pytest.raises(IRError, match="a block of 3 arguments is given 0"):
        inline_block(clone_region(loop.regions[0]).block, loop, [])
