"""Small TTGIR modules for the tests of passes and analyses, in MLIR's text form, and what turns them into IR."""

from __future__ import annotations

import re

from amdwarp.lowering import bridge
from amdwarp.lowering.ir import Module
from amdwarp.lowering.spelling import mask_attribute

SLOT = "!ttg.memdesc<64x64xf16, #shared, #smem, mutable>"
TILE = "tensor<64x64xf16, #blocked>"
HEAD = """\
#blocked = #ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [8, 8], warpsPerCTA = [8, 1], order = [1, 0]}>
#shared = #ttg.padded_shared<[512:+16] {order = [1, 0], shape = [64, 64]}>
#smem = #ttg.shared_memory
#loc = loc("kernel.py":1:1)
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = @WAVES@ : i32, ttg.target = "hip:gfx950",
                   "ttg.threads-per-warp" = 64 : i32} {
"""
ENTRY = """\
  tt.func public @kernel(%p: !tt.ptr<f16> {tt.divisibility = 16 : i32, tt.pointer_range = 32 : i32},
                         %offsets: tensor<64x64xi32, #blocked>
                           {tt.contiguity = dense<[1, 8]> : tensor<2xi32>, tt.constancy = dense<1> : tensor<2xi32>,
                            tt.divisibility = dense<16> : tensor<2xi32>},
                         %v: tensor<64x64xf16, #blocked>, %x: tensor<64x64xf32, #blocked>,
                         %n: i32, %m: i32, %flag: i1) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %c3 = arith.constant 3 : i32
"""
_MACRO = re.compile(r"^(\s*)@(\w+)(?:\(([^)]*)\))?(.*)$", re.M)


def module(body: str, *, waves: int = 8, functions: str = "") -> Module:
    """The module of one kernel with ``body``.

    Lines of a body that start with ``@`` are macros: ``@begin(load, priority = 1 : i32)`` and ``@end`` are anchors,
    ``@mark(begin, load)`` and ``@mark(end)`` what the front end leaves of them, ``@ring(r, 3)`` and ``@buffer(r)``
    allocate, ``@slot(s, r, i)`` is a slot of a ring, ``@copy(s)``, ``@load(a, s)``, ``@relaxed(a, s)`` and
    ``@store(s)`` are accesses, ``@commit``, ``@wait(1)`` and ``@fence``. Each line's location is its number.
    """
    count = iter(range(10_000))
    text = _MACRO.sub(lambda match: match.group(1) + _expand(match, next(count)) + match.group(4), body)
    whole = HEAD.replace("@WAVES@", str(waves)) + functions + ENTRY + _located(text) + "\n    tt.return\n  }\n}\n"
    return bridge.read(bridge.parse_text(whole, bridge.new_context()))


def _located(text: str) -> str:
    """The text with the number of its line as the location of each op; of one with regions, where it opens."""
    lines: list[str] = []
    opened: list[int] = []
    for number, line in enumerate(text.splitlines(), start=1):
        plain, at = line.strip(), number
        if plain.startswith("}") and not plain.endswith("{"):
            at = opened.pop()
        elif plain.endswith("{") and not plain.startswith("}"):
            opened.append(number)
        is_op = plain and not plain.endswith(("{", ":")) and not plain.startswith(("^", "#"))
        lines.append(f'{line.rstrip()} loc("kernel.py":{at}:1)' if is_op and " loc(" not in line else line)
    return "\n".join(lines)


def _expand(match: re.Match[str], number: int) -> str:
    name, text = match.group(2), match.group(3) or ""
    args = [part.strip() for part in text.split(",")] if text else []
    make = {
        "begin": lambda: _anchor("begin", "".join(args[:1]), [*args[1:], *_scope(args)]),
        "end": lambda: _anchor("end", "", []),
        "mark": lambda: _mark(number, args),
        "ring": lambda: f"%{args[0]} = ttg.local_alloc : () -> {_ring(args[1])}",
        "buffer": lambda: f"%{args[0]} = ttg.local_alloc : () -> {SLOT}",
        "slot": lambda: f"%{args[0]} = ttg.memdesc_index %{args[1]}[%{args[2]}] : {_ring(args[3])} -> {SLOT}",
        "copy": lambda: (
            f"%copied{number} = amdg.buffer_load_to_local %p[%offsets] into %{args[0]} : "
            "!tt.ptr<f16>[tensor<64x64xi32, #blocked>] -> <64x64xf16, #shared, #smem, mutable>"
        ),
        "load": lambda: f"%{args[0]} = ttg.local_load %{args[1]} : {SLOT} -> {TILE}",
        "relaxed": lambda: (
            f"%{args[0]} = ttg.local_load %{args[1]} {{ttg.amdg.syncedViaAsyncWait = true}} : {SLOT} -> {TILE}"
        ),
        "store": lambda: f"ttg.local_store %v, %{args[0]} : {TILE} -> {SLOT}",
        "commit": lambda: f"%committed{number} = ttg.async_commit_group",
        "wait": lambda: f"%waited{number} = ttg.async_wait {{num = {args[0]} : i32}}",
        "fence": lambda: "ttg.barrier local",
    }
    return make[name]()


def _ring(depth: str) -> str:
    return f"!ttg.memdesc<{depth}x64x64xf16, #shared, #smem, mutable>"


def _scope(args: list[str]) -> list[str]:
    return [] if any(part.startswith("scope") for part in args) else ['scope = "inter_wave"']


def _attributes(kind: str, label: str, more: list[str]) -> str:
    parts = [f'amdwarp.stage.{kind} = "{label}"', *(f"amdwarp.stage.{part}" for part in more)]
    return "{" + ", ".join(parts) + "}"


def _anchor(kind: str, label: str, more: list[str]) -> str:
    return f'"rocdl.sched.barrier"() <{{mask = {mask_attribute(0)}}}> {_attributes(kind, label, more)} : () -> ()'


def _mark(number: int, args: list[str]) -> str:
    attributes = _attributes(args[0], args[1] if args[1:] else "", [*args[2:], *_scope(args)])
    return f"%mark{number} = arith.constant {attributes} 0 : i32"
