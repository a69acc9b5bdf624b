"""The objects: use lists, structure, clones, locations."""

from __future__ import annotations

import pytest
from amdwarp.lowering.ir import Block, IRError, Module, Op, Region, Use
from amdwarp.lowering.text import parse, print_module
from amdwarp.lowering.verify import verify_module
from samples import BLOCKS, LOOP


@pytest.fixture
def module() -> Module:
    return parse(LOOP)


def test_use_lists(module: Module) -> None:
    (loop,) = module.ops("scf.for")
    zero = module.ops("arith.constant")[1].result
    assert zero.uses == [Use(loop, 0), Use(loop, 4)]
    assert zero.users == [loop]
    one = module.ops("arith.constant")[2].result
    loop.set_operand(4, one)
    assert zero.uses == [Use(loop, 0)]
    assert one.uses == [Use(loop, 2), Use(loop, 4)]
    zero.replace_all_uses_with(one)
    assert zero.uses == []
    assert [use.index for use in one.uses] == [2, 4, 0]
    verify_module(module)


def test_replace_all_uses_except_for(module: Module) -> None:
    addi, total = module.ops("arith.addi")
    n = module.functions()[0].regions[0].block.args[1]
    other = module.ops("arith.constant")[2].result
    n.replace_all_uses_with(other, except_for=[total])
    assert n.users == [total]
    assert addi.where == "kernel.py:4"


def test_operands_can_be_replaced_and_erased(module: Module) -> None:
    total = module.ops("arith.addi")[1]
    loop_value, n = total.operands
    total.erase_operand(0)
    assert total.operands == (n,)
    assert loop_value.uses == []
    assert Use(total, 0) in n.uses
    total.set_operands([n, loop_value])
    assert loop_value.uses == [Use(total, 1)]
    verify_module(module)


def test_erase_refuses_a_used_value(module: Module) -> None:
    (loop,) = module.ops("scf.for")
    with pytest.raises(IRError, match=r"cannot erase scf.for: %acc#1 is still used by arith.addi"):
        loop.erase()
    module.ops("arith.addi")[1].erase()
    loop.erase()
    assert module.ops("scf.for", "arith.addf") == []
    assert all(not v.uses for op in module.ops("arith.constant") for v in op.results)
    verify_module(module)


def test_erase_result_and_argument(module: Module) -> None:
    (loop,) = module.ops("scf.for")
    body = loop.regions[0].block
    with pytest.raises(IRError, match="still uses it"):
        loop.erase_result(1)
    with pytest.raises(IRError, match="still uses it"):
        body.erase_arg(2)
    module.ops("arith.addi")[1].erase()
    assert body.terminator is not None
    body.terminator.erase_operand(1)
    body.ops[1].erase()
    body.erase_arg(2)
    loop.erase_result(1)
    loop.erase_operand(4)
    verify_module(module)
    text = print_module(module)
    assert '%acc = "scf.for"(%1, %n, %2, %0) ({' in text
    assert print_module(parse(text)) == text


def test_moves(module: Module) -> None:
    block = module.functions()[0].regions[0].block
    first, second = block.ops[0], block.ops[1]
    assert first.is_before(second)
    first.move_after(second)
    assert block.ops[:2] == [second, first]
    first.move_before(second)
    first.move_before(first)
    assert block.ops[:2] == [first, second]
    with pytest.raises(IRError, match="already is in a block"):
        block.append(first)
    with pytest.raises(IRError, match="different blocks"):
        first.is_before(module.ops("arith.addf")[0])
    with pytest.raises(IRError, match="is not in a block"):
        _ = first.detach().block


def test_tree_walks(module: Module) -> None:
    (function,) = module.functions()
    (loop,) = module.ops("scf.for")
    inner = module.ops("arith.addf")[0]
    assert list(inner.ancestors()) == [loop, function, module.op]
    assert inner.ancestor_in(function.regions[0].block) is loop
    assert loop.ancestor_in(inner.block) is None
    assert [op.name for op in loop.walk()] == ["scf.for", "arith.addf", "arith.addi", "scf.yield"]
    assert len(list(module.walk())) == 10


def test_clone_maps_values(module: Module) -> None:
    (loop,) = module.ops("scf.for")
    other = module.ops("arith.constant")[2].result
    mapping = {loop.operands[4]: other}
    copy = loop.clone(mapping)
    assert copy.parent is None
    assert copy.operands[4] is other
    assert mapping[loop.results[0]] is copy.results[0]
    inner = copy.regions[0].block
    assert inner.ops[0].operands == (inner.args[1], inner.args[1])
    copy.insert_after(loop)
    verify_module(module)
    assert print_module(parse(print_module(module))) == print_module(module)


def test_clone_maps_each_value_once(module: Module) -> None:
    (loop,) = module.ops("scf.for")
    zero, one = (op.result for op in module.ops("arith.constant")[1:])
    inner = module.ops("arith.addi")[0]
    inner.set_operands([zero, one])
    copy = loop.clone({zero: one, one: zero})
    assert copy.regions[0].block.ops[1].operands == (one, zero)


def test_clone_of_blocks_follows_branches() -> None:
    module = parse(BLOCKS)
    copy = module.clone()
    verify_module(copy)
    region = copy.functions()[0].regions[0]
    assert region.blocks[0].ops[0].successors == [region.blocks[1], region.blocks[2]]
    assert region.blocks[3].ops[0].operands[0].op is region.blocks[1].ops[0]
    assert region.blocks[1].predecessors() == region.blocks[:2]
    assert not {id(op) for op in module.walk()} & {id(op) for op in copy.walk()}


def test_built_from_nothing() -> None:
    body = Block(["i32"])
    body.append(Op("tt.return", [body.args[0]]))
    function = Op("tt.func", properties={"function_type": "(i32) -> i32", "sym_name": '"f"'}, regions=[Region([body])])
    module = Module(Op("builtin.module", regions=[Region([Block()])]))
    module.body.append(function)
    verify_module(module)
    assert print_module(module) == (
        '"builtin.module"() ({\n'
        '  "tt.func"() <{function_type = (i32) -> i32, sym_name = "f"}> ({\n'
        "  ^bb0(%0: i32):\n"
        '    "tt.return"(%0) : (i32) -> ()\n'
        "  }) : () -> ()\n"
        "}) : () -> ()"
    )
    with pytest.raises(IRError, match=r"tt\.func has 0 results"):
        _ = function.result


def test_locations(module: Module) -> None:
    (loop,) = module.ops("scf.for")
    found = loop.location()
    assert found is not None
    assert (found.file, found.line, found.column, found.name) == ("kernel.py", 4, 5, None)
    assert [caller.line for caller in found.callers] == [3]
    end = module.ops("tt.return")[0].location()
    assert end is not None
    assert (end.where, end.name) == ("kernel.py:4", None)
    detached = Op("test.op", loc="#loc1")
    assert detached.location() is None
    detached.insert_after(loop)
    assert detached.where == "kernel.py:3"
    assert Op("test.op").insert_after(loop).where == "kernel.py:1"  # its function's
