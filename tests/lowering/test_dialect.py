"""The op registry and the spellings that need no wheel."""

from __future__ import annotations

import pytest
from amdwarp.lowering import dialect, spelling
from amdwarp.lowering.dialect import Kind, Mask, Pipe, Space
from amdwarp.lowering.ir import Block, Op, Region, Value
from amdwarp.lowering.text import parse
from samples import LOOP

from amdwarp.errors import UnsupportedTritonError


def value(type: str) -> Value:
    return Op("test.value", result_types=[type]).result


TENSOR = value("tensor<4xf32, #b>")
SCALAR = value("i32")
MEMDESC = value("!ttg.memdesc<4xf32, #s, #smem, mutable>")


@pytest.mark.parametrize(
    ("op", "kind", "pipe", "reads", "writes"),
    [
        (Op("arith.addf", [TENSOR, TENSOR], [TENSOR.type]), Kind.PURE, Pipe.VALU, (), ()),
        (Op("arith.addi", [SCALAR, SCALAR], ["i32"]), Kind.PURE, Pipe.SALU, (), ()),
        (Op("arith.constant", [], ["i32"]), Kind.PURE, None, (), ()),
        (Op("math.exp2", [TENSOR], [TENSOR.type]), Kind.PURE, Pipe.VALU, (), ()),
        (Op("tt.dot", [TENSOR] * 3, [TENSOR.type]), Kind.MFMA, Pipe.MFMA, (), ()),
        (Op("tt.load", [TENSOR], [TENSOR.type]), Kind.LOAD, Pipe.VMEM, (Space.GLOBAL,), ()),
        (Op("amdg.buffer_store", [TENSOR]), Kind.STORE, Pipe.VMEM, (), (Space.GLOBAL,)),
        (Op("amdg.buffer_load_to_local", [MEMDESC]), Kind.COPY, Pipe.VMEM, (Space.GLOBAL,), (Space.LDS,)),
        (Op("amdg.async_tdm_copy_global_to_local"), Kind.COPY, Pipe.TDM, (Space.GLOBAL,), (Space.LDS,)),
        (Op("ttg.local_load", [MEMDESC], [TENSOR.type]), Kind.LOAD, Pipe.DS, (Space.LDS,), ()),
        (Op("ttg.local_store", [TENSOR, MEMDESC]), Kind.STORE, Pipe.DS, (), (Space.LDS,)),
        (Op("ttg.local_alloc", [], [MEMDESC.type]), Kind.ALLOC, None, (), ()),
        (Op("ttg.local_alloc", [TENSOR], [MEMDESC.type]), Kind.ALLOC, Pipe.DS, (), (Space.LDS,)),
        (Op("ttg.memdesc_index", [MEMDESC, SCALAR], [MEMDESC.type]), Kind.VIEW, None, (), ()),
        (Op("ttg.async_wait"), Kind.WAIT, None, (), ()),
        (Op("ttg.async_commit_group"), Kind.COMMIT, None, (), ()),
        (Op("rocdl.s.barrier"), Kind.BARRIER, None, (), ()),
        (Op("amdg.cond_barrier"), Kind.BARRIER, None, (), ()),
        (Op("rocdl.sched.barrier"), Kind.SCHED, None, (), ()),
        (Op("rocdl.mfma.f32.32x32x16.f16"), Kind.MFMA, Pipe.MFMA, (), ()),
        (Op("rocdl.ds.read.tr16.b64"), Kind.LOAD, Pipe.DS, (Space.LDS,), ()),
    ],
)
def test_rows(op: Op, kind: Kind, pipe: Pipe | None, reads: tuple[Space, ...], writes: tuple[Space, ...]) -> None:
    known = dialect.info(op)
    assert (known.kind, dialect.pipe(op)) == (kind, pipe)
    assert (known.reads, known.writes) == (set(reads), set(writes))


def test_unknown_op_fails_closed() -> None:
    op = Op("ttg.from_the_future")
    assert dialect.info(op) is dialect.UNKNOWN
    assert not dialect.is_known(op.name)
    assert not dialect.is_pure(op)
    assert not dialect.may_swap(op, Op("arith.constant", [], ["i32"]))


@pytest.mark.parametrize(("declared", "known"), [("true", True), ("false", False)])
def test_inline_assembly_is_as_pure_as_declared(declared: str, known: bool) -> None:
    op = Op("tt.elementwise_inline_asm", [TENSOR], [TENSOR.type], properties={"pure": declared})
    assert dialect.is_pure(op) is known
    assert (dialect.info(op) is dialect.UNKNOWN) is not known


def test_effects_include_regions() -> None:
    body = Block()
    body.append(Op("ttg.local_store", [TENSOR, MEMDESC]))
    body.append(Op("scf.yield"))
    loop = Op("scf.for", regions=[Region([body])])
    assert dialect.effects(loop).writes == {Space.LDS}
    assert not dialect.is_pure(loop)
    pure = parse(LOOP).ops("scf.for")[0]
    assert dialect.is_pure(pure)
    assert not dialect.is_pure(body.ops[1])


def test_scratch_is_seen_through_regions() -> None:
    assert dialect.effects(Op("ttg.convert_layout", [TENSOR], [TENSOR.type])).scratch
    assert not dialect.effects(Op("tt.trans", [TENSOR], [TENSOR.type])).scratch


def op(name: str, *operands: Value) -> Op:
    return Op(name, operands, ["i32"])


LOAD = op("ttg.local_load", MEMDESC)
STORE = op("ttg.local_store", TENSOR, MEMDESC)
GLOBAL_LOAD = op("amdg.buffer_load")
WAIT = op("ttg.async_wait")


@pytest.mark.parametrize(
    ("first", "second", "allowed"),
    [
        (LOAD, op("ttg.local_load", MEMDESC), True),
        (LOAD, STORE, False),
        (STORE, GLOBAL_LOAD, True),
        (LOAD, op("arith.addi", LOAD.result), False),
        (LOAD, WAIT, False),
        (WAIT, op("arith.addi", SCALAR, SCALAR), True),
        (op("ttg.barrier"), WAIT, False),
        (op("rocdl.sched.barrier"), op("arith.addi"), False),
        (op("tt.dot"), LOAD, True),
        (op("amdg.buffer_load_to_local", MEMDESC), LOAD, False),
        (op("amdg.buffer_store"), GLOBAL_LOAD, False),
        (op("tt.atomic_rmw"), GLOBAL_LOAD, False),
        (op("arith.addi"), op("scf.yield"), False),
    ],
)
def test_may_swap(first: Op, second: Op, allowed: bool) -> None:
    assert dialect.may_swap(first, second) is allowed


@pytest.mark.parametrize(
    ("version", "mask", "text"),
    [
        ((3, 7), Mask.MFMA, "8 : i32"),
        ((3, 8), "ds_read|valu", "258 : i32"),
        ((3, 9), Mask.NONE, "#rocdl<sched_group_mask none>"),
        ((3, 9), Mask.MFMA, "#rocdl<sched_group_mask mfma_wmma>"),
        ((3, 9), Mask.DS_READ | Mask.VALU, "#rocdl<sched_group_mask valu|ds_read>"),
        ((3, 9), "all", "#rocdl<sched_group_mask all>"),
        ((3, 7), "all", "2047 : i32"),
    ],
)
def test_masks_by_version(version: tuple[int, int], mask: Mask | str, text: str) -> None:
    assert spelling.mask_attribute(mask, version) == text
    built = dialect.sched_group_barrier(mask, 3, 2, version=version)
    assert built.properties == {"groupId": "2 : i32", "mask": text, "size": "3 : i32"}
    if mask != "all":
        assert dialect.mask_of(built) == spelling.as_mask(mask)


def test_bad_arguments_of_builders() -> None:
    with pytest.raises(UnsupportedTritonError, match="does not know the scheduling mask ldsdma"):
        spelling.mask_attribute(Mask.LDSDMA, (3, 7))
    with pytest.raises(UnsupportedTritonError, match=r"Triton 2\.1"):
        spelling.mask_attribute(Mask.MFMA, (2, 1))
    with pytest.raises(ValueError, match="no scheduling mask is called 'mfma'"):
        spelling.as_mask("mfma")
    with pytest.raises(ValueError, match="0x8000"):
        spelling.as_mask(0x8000)
    with pytest.raises(ValueError, match="not 4"):
        dialect.s_setprio(4)
    with pytest.raises(ValueError, match="not 0"):
        dialect.sched_group_barrier("valu", 0, version=(3, 9))
    with pytest.raises(KeyError):
        dialect.barrier("remote")


def test_every_version_is_in_both_tables() -> None:
    from amdwarp.lowering import bridge

    assert set(spelling.SPELLINGS) == set(bridge.SUPPORTED)
