"""lower_tasks: what stock lowering of tasks leaves that the target cannot do, or does without the waits it needs.

Runs on the LLVM dialect, right before it becomes LLVM IR. ``total`` waves of the kernel's own size went through stock
``warp_specialize`` lowering for gfx1250 whatever the target is. The functions called are in ``task_functions.py``.

Before, on gfx942 and gfx950::

    %w = rocdl.wave.id
    rocdl.s.barrier.join @nbar2; rocdl.s.barrier.signal.var @nbar2 {memberCnt = 2}; rocdl.s.barrier.wait
    rocdl.ds.atomic.barrier.arrive.rtn.b64 %b, N
    ^poll: rocdl.s.sleep 1; … llvm.load %b … llvm.icmp "ne" …, %code; llvm.cond_br ^next, ^poll

After::

    (at the start: the dwords of named barriers, behind the kernel's LDS, are zeroed, and all waves meet)
    %w = call @amdwarp_wave_id()
    call @amdwarp_rendezvous(%dword, 2)                 // rocdl.wave.barrier for one wave
    call @amdwarp_barrier_arrive(%b, N)
    ^poll: call @amdwarp_barrier_wait(%b, %code); llvm.br ^next

Everywhere, a named barrier of one wave becomes ``rocdl.wave.barrier``, as does one between two stores that set barriers
up, and an ``llvm.inline_asm "amdwarp.named_barrier …"`` becomes a named barrier.

On gfx1250 wave id and named barriers stay. An arrival gets a release fence before it, since stock lowering lets LDS
reads sink below it, and a poll becomes an atomic load with an acquire fence behind it.

Refuses when: something of this kind does not look as expected (a Triton it was not tried with).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from amdwarp.errors import LoweringError

from .. import bridge
from ..analysis.tasks import NAMED_BARRIER
from ..ir import Block, Module, Op, Region, Value
from ..rewriter import Builder
from ..task_functions import ARRIVE, OBJECT_WAIT, RENDEZVOUS, WAIT, WAVE_ID, functions

_POLL = ["rocdl.s.sleep", "llvm.load", "llvm.lshr", "llvm.trunc", "llvm.and", "llvm.icmp", "llvm.cond_br"]
_ADDRESSES = ("llvm.mul", "llvm.add", "llvm.getelementptr")
_LACKING = ("rocdl.wave.id", "rocdl.ds.atomic.barrier.arrive.rtn.b64")


@dataclass
class LowerTasks:
    """
    Attributes:
        arch: the target.
        context: the wheel's context of the module.
        lds: bytes of LDS the kernel has, which is also where the dwords of named barriers start.
        added: set by :meth:`run`: bytes of LDS that were added behind them.
    """

    arch: str
    context: Any
    lds: int
    added: int = field(default=0, init=False)
    name: str = "lower_tasks"

    def run(self, module: Module) -> None:
        kernel = next(op for op in module.ops("llvm.func") if op.regions and op.regions[0].blocks)
        for block in list(kernel.regions[0].blocks):
            if block.ops and block.ops[0].name == "rocdl.s.sleep":
                self._wait(block)
        for op in module.ops("rocdl.ds.atomic.barrier.arrive.rtn.b64"):
            self._arrive(op)
        for op in module.ops("llvm.inline_asm"):
            if op.properties["asm_string"].startswith(f'"{NAMED_BARRIER}'):
                _expand_named(module, op)
        for op in module.ops("rocdl.s.barrier.signal.var"):
            _simplify(op)
        if self.arch != "gfx1250":
            for op in module.ops("rocdl.wave.id"):
                wave = Builder.before(op).insert(_call(WAVE_ID, [], ["i32"]))
                op.result.replace_all_uses_with(wave.result)
                op.erase()
            self._counters(module, kernel)
            self._check(module)
        _add_functions(module, self.arch, self.context)

    def _wait(self, block: Block) -> None:
        names = [op.name for op in block.ops]
        ending = block.ops[-1]
        if names != _POLL or ending.successors[1] is not block or ending.successors[0] is block:
            raise _unexpected(block.ops[0], "a wait for a barrier")
        compare, place = block.ops[5], block.ops[2].operands[1].op
        if not compare.properties["predicate"].startswith("1 ") or place is None or _value_of(place) != 29:
            raise _unexpected(block.ops[0], "a wait for a barrier")
        phase = next(value for value in compare.operands if value.op is not block.ops[4])
        following = ending.successors[0]
        build = Builder.before(block.ops[0])
        callee = OBJECT_WAIT if self.arch == "gfx1250" else WAIT
        build.insert(_call(callee, [block.ops[1].operands[0], phase]))
        build.insert(Op("llvm.br", successors=[following]))
        for op in reversed(block.ops[-len(_POLL) :]):
            op.erase()

    def _arrive(self, op: Op) -> None:
        build = Builder.before(op)
        if self.arch == "gfx1250":
            build.insert(_fence("release"))
            return
        if any(value.uses for value in op.results):
            raise _unexpected(op, "an arrival whose old phase is used")
        flags = {"overflowFlags": "#llvm.overflow<none>"}
        count = build.value(Op("llvm.trunc", [op.operands[1]], ["i32"], properties=flags))
        build.insert(_call(ARRIVE, [op.operands[0], count]))
        op.erase()

    def _counters(self, module: Module, kernel: Op) -> None:
        """Dwords of LDS in place of named barriers, one for each number of waves that meet at one."""
        places: dict[tuple[str, int], int] = {}
        for op in module.ops("rocdl.s.barrier.signal.var"):
            before, after = _neighbours(op)
            members = _members(op)
            key = (_name_of(op.operands[0]), members)
            offset = places.setdefault(key, -(-self.lds // 16) * 16 + 4 * len(places))
            build = Builder.before(before)
            waits = after.name == "rocdl.s.barrier.wait"
            callee = RENDEZVOUS if waits else ARRIVE
            build.insert(_call(callee, [_place(build, offset), build.value(_constant(members))]))
            for one in (before, op, after) if waits else (before, op):
                one.erase()
        for op in module.ops("llvm.mlir.global"):
            if _is_barrier(op):
                name = op.properties["sym_name"].strip('"')
                for use in module.ops("llvm.mlir.addressof"):
                    if use.properties["global_name"].removeprefix("@") == name:
                        use.erase()
                op.erase()
        if places:
            self.added = max(places.values()) + 4 - self.lds
            _clear(kernel, list(places.values()))

    def _check(self, module: Module) -> None:
        for op in module.walk():
            if op.name in _LACKING or op.name.startswith("rocdl.s.barrier."):
                raise _unexpected(op, f"{op.name}, which {self.arch} lacks")


def _value_of(op: Op) -> int | None:
    return int(op.properties["value"].split(" ")[0]) if op.name == "llvm.mlir.constant" else None


def _members(op: Op) -> int:
    return int(op.properties["memberCnt"].split(":")[0])


def _simplify(op: Op) -> None:
    """A named barrier that orders nothing: of one wave, or between two stores that set barriers up."""
    before, after = _neighbours(op)
    if before.name != "rocdl.s.barrier.join":
        raise _unexpected(op, "a named barrier")
    if after.name == "rocdl.s.barrier.wait" and (_members(op) == 1 or _between_inits(op)):
        Builder.before(before).create("rocdl.wave.barrier")
        for one in (before, op, after):
            one.erase()


def _between_inits(op: Op) -> bool:
    """Whether thread 0 stores a constant to a barrier right before and right behind, and nothing else happens.

    Stock barrier insertion takes these stores, to parts of one allocation, for a hazard.
    """
    block = op.block
    names = [one.name for one in block.ops if one.name not in _ADDRESSES]
    wanted = ["llvm.fence", "rocdl.s.barrier.join", op.name, "rocdl.s.barrier.wait", "llvm.fence", "llvm.cond_br"]
    if names != wanted or not _is_init(block.ops[-1].successors[0]):
        return False
    return any(_is_init(one) for one in block.predecessors())


def _is_init(block: Block) -> bool:
    if [op.name for op in block.ops] != ["llvm.store", "llvm.br"]:
        return False
    value = block.ops[0].operands[0]
    return value.type == "i64" and value.op is not None and value.op.name == "llvm.mlir.constant"


def _expand_named(module: Module, op: Op) -> None:
    """A named barrier of the kernel's author: join it, signal, and wait unless it is an arrival only."""
    index, members, waits = map(int, op.properties["asm_string"].strip('"').removeprefix(NAMED_BARRIER).split())
    name = f"amdwarp_named{index}"
    if not any(one.properties["sym_name"] == f'"{name}"' for one in module.ops("llvm.mlir.global")):
        module.body.insert(0, _barrier_global(name, op.loc))
    build = Builder.before(op)
    build.insert(_fence("release"))
    properties = {"global_name": f"@{name}"}
    place = build.value(Op("llvm.mlir.addressof", result_types=["!llvm.ptr<3>"], properties=properties))
    build.create("rocdl.s.barrier.join", [place])
    build.create("rocdl.s.barrier.signal.var", [place], properties={"memberCnt": f"{members} : i32"})
    if waits:
        build.create("rocdl.s.barrier.wait", properties={"id": "1 : i16"})
        build.insert(_fence("acquire"))
    zero = build.value(_constant(0))
    for value in op.results:
        value.replace_all_uses_with(zero)
    op.erase()


def _barrier_global(name: str, loc: str | None) -> Op:
    kind = '!llvm.target<"amdgcn.named.barrier", 0>'
    poison = Op("llvm.mlir.poison", result_types=[kind], loc=loc)
    block = Block()
    block.append(poison)
    block.append(Op("llvm.return", [poison.result], loc=loc))
    properties = {
        "addr_space": "3 : i32",
        "global_type": kind,
        "linkage": "#llvm.linkage<internal>",
        "sym_name": f'"{name}"',
        "unnamed_addr": "0 : i64",
        "visibility_": "0 : i64",
    }
    return Op("llvm.mlir.global", properties=properties, regions=[Region([block])], loc=loc)


def _unexpected(op: Op, what: str) -> LoweringError:
    return LoweringError(
        f"stock lowering of tasks left {what} in a form that is not known",
        remedy=f"report the Triton version ({bridge.require_triton().text})",
        construct="async_tasks",
        where=op.where,
    )


def _call(callee: str, operands: list[Value], results: list[str] | None = None) -> Op:
    properties = {
        "CConv": "#llvm.cconv<ccc>",
        "TailCallKind": "#llvm.tailcallkind<none>",
        "callee": f"@{callee}",
        "fastmathFlags": "#llvm.fastmath<none>",
        "op_bundle_sizes": "array<i32>",
        "operandSegmentSizes": f"array<i32: {len(operands)}, 0>",
    }
    return Op("llvm.call", operands, results or [], properties=properties)


def _fence(order: str) -> Op:
    number = {"acquire": 4, "release": 5}[order]
    return Op("llvm.fence", properties={"ordering": f"{number} : i64", "syncscope": '"workgroup"'})


def _constant(value: int) -> Op:
    return Op("llvm.mlir.constant", result_types=["i32"], properties={"value": f"{value} : i32"})


def _place(build: Builder, offset: int) -> Value:
    """Address of a byte of the workgroup's LDS."""
    base = build.value(
        Op("llvm.mlir.addressof", result_types=["!llvm.ptr<3>"], properties={"global_name": "@global_smem"})
    )
    properties = {
        "elem_type": "i8",
        "noWrapFlags": "0 : i32",
        "rawConstantIndices": f"array<i32: {offset}>",
    }
    return build.value(Op("llvm.getelementptr", [base], ["!llvm.ptr<3>"], properties=properties))


def _clear(kernel: Op, places: list[int]) -> None:
    """Zero dwords of LDS at the start of the kernel, and let all waves meet."""
    build = Builder.at_start(kernel.regions[0].blocks[0])
    zero = build.value(_constant(0))
    for place in places:
        address = _place(build, place)
        build.create("llvm.store", [zero, address], properties={"alignment": "4 : i64", "ordering": "0 : i64"})
    build.create("rocdl.barrier")


def _is_barrier(op: Op) -> bool:
    return "amdgcn.named.barrier" in op.properties.get("global_type", "")


def _name_of(value: Value) -> str:
    op = value.op
    if op is None or op.name != "llvm.mlir.addressof":
        raise LoweringError("a named barrier is not known by its name", construct="async_tasks")
    return op.properties["global_name"].removeprefix("@")


def _neighbours(op: Op) -> tuple[Op, Op]:
    at = op.block.index(op)
    return op.block.ops[at - 1], op.block.ops[at + 1]


def _add_functions(module: Module, arch: str, context: Any) -> None:
    helpers = bridge.read(bridge.parse_text(functions(arch), context))
    for function in list(helpers.body.ops):
        for op in function.walk():
            op.loc = "unknown"
            for held in (op.properties, op.attributes):
                held.update({key: helpers.resolve(text) for key, text in held.items()})
            for region in op.regions:
                for block in region.blocks:
                    for argument in block.args:
                        argument.loc = None if argument.loc is None else "unknown"
        module.body.append(function.detach())
