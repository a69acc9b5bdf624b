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

On gfx1250 wave id and named barriers stay. An arrival gets a release fence before it, since stock lowering lets LDS
reads sink below it, and a poll becomes an atomic load with an acquire fence behind it.

Refuses when: something of this kind does not look as expected (a Triton it was not tried with).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from amdwarp.errors import LoweringError

from .. import bridge
from ..ir import Block, Module, Op, Value
from ..rewriter import Builder
from ..task_functions import ARRIVE, OBJECT_WAIT, RENDEZVOUS, WAIT, WAVE_ID, functions

_POLL = ["rocdl.s.sleep", "llvm.load", "llvm.lshr", "llvm.trunc", "llvm.and", "llvm.icmp", "llvm.cond_br"]
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
        if self.arch != "gfx1250":
            for op in module.ops("rocdl.wave.id"):
                wave = Builder.before(op).insert(_call(WAVE_ID, [], ["i32"]))
                op.result.replace_all_uses_with(wave.result)
                op.erase()
            self._named_barriers(module, kernel)
            self._check(module)
        _add_functions(module, self.arch, self.context)

    def _wait(self, block: Block) -> None:
        names = [op.name for op in block.ops]
        ending = block.ops[-1]
        if names != _POLL or ending.successors[1] is not block or ending.successors[0] is block:
            raise _unexpected(block.ops[0], "a wait for a barrier")
        compare = block.ops[5]
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

    def _named_barriers(self, module: Module, kernel: Op) -> None:
        """Rendezvous of some waves on dwords of LDS in place of hardware barriers."""
        names = [op.properties["sym_name"].strip('"') for op in module.ops("llvm.mlir.global") if _is_barrier(op)]
        places = {name: -(-self.lds // 16) * 16 + 4 * at for at, name in enumerate(names)}
        for op in module.ops("rocdl.s.barrier.signal.var"):
            before, after = _neighbours(op)
            if before.name != "rocdl.s.barrier.join" or after.name != "rocdl.s.barrier.wait":
                raise _unexpected(op, "a named barrier")
            build, members = Builder.before(before), int(op.properties["memberCnt"].split(":")[0])
            if members == 1:
                build.create("rocdl.wave.barrier")
            else:
                place = _place(build, places[_name_of(op.operands[0])])
                build.insert(_call(RENDEZVOUS, [place, build.value(_constant(members))]))
            for one in (before, op, after):
                one.erase()
        for op in module.ops("llvm.mlir.addressof"):
            if op.properties["global_name"].removeprefix("@") in places:
                op.erase()
        for op in module.ops("llvm.mlir.global"):
            if _is_barrier(op):
                op.erase()
        if places:
            self.added = max(places.values()) + 4 - self.lds
            _clear(kernel, list(places.values()))

    def _check(self, module: Module) -> None:
        for op in module.walk():
            if op.name in _LACKING or op.name.startswith("rocdl.s.barrier."):
                raise _unexpected(op, f"{op.name}, which {self.arch} lacks")


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
