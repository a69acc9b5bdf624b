"""The grid of operations whose price is held against the produced text: plain data, Gluon source as strings.

A case is one line of a kernel, with the lines before and after it. ``{i}`` is its number in its kernel.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from amdwarp.lowering import bridge

WAVE_SIZE = {"gfx942": 64, "gfx950": 64, "gfx1250": 32}
ARCHS = tuple(WAVE_SIZE)
NEWEST = max(bridge.SUPPORTED)
KERNEL_CASES = 4  # cases of one kernel


@dataclass(frozen=True)
class PriceCase:
    """One priced line.

    Attributes:
        name: unique with its arch.
        before, line, after: kernel source.
        element: type of what ``a`` points to.
    """

    name: str
    arch: str
    before: tuple[str, ...]
    line: str
    after: tuple[str, ...]
    element: str = "fp16"


def mfma(arch: str, rows: int, depth: int, waves: str = "[2, 2]", transposed: bool = True) -> str:
    version = 3 if arch == "gfx942" else 4
    return f"gl.amd.AMDMFMALayout({version}, [{rows}, {rows}, {depth}], {transposed}, {waves})"


def wmma(depth: int, rows: int = 16, waves: str = "[[0, 1], [1, 0]]", registers: str = "[]") -> str:
    return f"gl.amd.AMDWMMALayout(3, True, {waves}, {registers}, [{rows}, 16, {depth}])"


def operand(index: int, parent: str, width: int) -> str:
    return f"gl.DotOperandLayout({index}, {parent}, {width})"


def swizzled(vec: int, per: int, phases: int, order: str = "[1, 0]") -> str:
    return f"gl.SwizzledSharedLayout({vec}, {per}, {phases}, {order})"


def padded(pairs: str, order: str = "[1, 0]") -> str:
    return f"gl.PaddedSharedLayout.with_identity_for({pairs}, [128, 64], {order})"


def blocked(arch: str, size: tuple[int, int], columns: int, waves: str = "[4, 1]", order: str = "[1, 0]") -> str:
    return f"gl.BlockedLayout({list(size)}, [{WAVE_SIZE[arch] // columns}, {columns}], {waves}, {order})"


def at(rows: int, columns: int, layout: str, stride: str | int | None = None) -> str:
    stride = columns if stride is None else stride
    down = f"gl.arange(0, {rows}, gl.SliceLayout(1, {layout}))[:, None] * {stride}"
    return f"{down} + gl.arange(0, {columns}, gl.SliceLayout(0, {layout}))[None, :]"


# ---- LDS

PARENTS: dict[str, dict[str, tuple[tuple[str, int], ...]]] = {
    "gfx942": {
        "float16": ((mfma("gfx942", 16, 16), 4), (mfma("gfx942", 32, 8, transposed=False), 8)),
        "int8": ((mfma("gfx942", 16, 32), 8), (mfma("gfx942", 32, 16, "[4, 1]"), 16)),
        "float32": ((mfma("gfx942", 16, 4), 1),),
        "float64": ((mfma("gfx942", 16, 4), 2),),
    },
    "gfx950": {
        "float16": ((mfma("gfx950", 16, 32), 8), (mfma("gfx950", 32, 16, transposed=False), 4)),
        "bfloat16": ((mfma("gfx950", 16, 32, "[1, 4]"), 8),),
        "int8": ((mfma("gfx950", 16, 64), 16), (mfma("gfx950", 16, 32), 8)),
        "float8e4nv": ((mfma("gfx950", 32, 64), 16),),
        "float32": ((mfma("gfx950", 16, 4), 1),),
    },
    "gfx1250": {
        "float16": ((wmma(32), 8),),
        "bfloat16": ((wmma(32), 4),),
        "int8": ((wmma(64), 8), (wmma(64), 16)),
        "float8e5": ((wmma(128), 16),),
        "float32": ((wmma(4), 2),),
    },
}
MEMORIES = {
    "sw8": swizzled(8, 1, 8),
    "sw8 columns": swizzled(8, 1, 8, "[0, 1]"),
    "sw4": swizzled(4, 2, 4),
    "flat": swizzled(1, 1, 1),
    "pad16": padded("[[256, 16]]"),
    "pad4": padded("[[128, 4]]"),
    "pad columns": padded("[[256, 8]]", "[0, 1]"),
    "pad twice": padded("[[64, 8], [512, 16]]"),
}


def lds() -> Iterator[PriceCase]:
    for arch in ARCHS:
        for element, parents in PARENTS[arch].items():
            for number, (parent, width) in enumerate(parents):
                for index, (name, memory) in enumerate(MEMORIES.items()):
                    side = (index + number) % 2
                    yield read(
                        arch, f"read {element} {number} {side} {name}", operand(side, parent, width), memory, element
                    )
        for index, (name, memory) in enumerate(MEMORIES.items()):
            wide = blocked(arch, (1, 8), 8) if index % 2 else blocked(arch, (8, 1), 4, "[1, 4]", "[0, 1]")
            narrow = blocked(arch, (2, 2), 8) if index % 2 else blocked(arch, (1, 4), 16)
            for element in ("float16", "float32") if index % 2 else ("bfloat16", "int8"):
                yield write(arch, f"write {element} {name}", wide, memory, element)
                yield write(arch, f"write narrow {element} {name}", narrow, memory, element)
        parent = PARENTS[arch]["float16"][0][0]
        for name in ("sw8", "pad16", "flat", "sw8 columns"):
            yield write(arch, f"write result {name}", parent, MEMORIES[name], "float16")
        for view in ("index(t)", "index(1).slice(0, 64, 0)", "index(t).slice(64, 64, 0)"):
            rows = 64 if "slice" in view else 128
            layout = operand(0, parent, PARENTS[arch]["float16"][0][1])
            yield PriceCase(
                f"view {view}",
                arch,
                (f"m{{i}} = gl.allocate_shared_memory(gl.float16, [2, 128, 64], {MEMORIES['sw8']})",),
                f"v{{i}} = m{{i}}.{view}.load({layout})",
                (f"gl.store(out + {at(rows, 64, layout)}, v{{i}}.to(gl.float32))",),
            )


def read(arch: str, name: str, layout: str, memory: str, element: str) -> PriceCase:
    return PriceCase(
        name,
        arch,
        (f"m{{i}} = gl.allocate_shared_memory(gl.{element}, [128, 64], {memory})",),
        f"v{{i}} = m{{i}}.load({layout})",
        (f"gl.store(out + {at(128, 64, layout)}, v{{i}}.to(gl.float32))",),
    )


def write(arch: str, name: str, layout: str, memory: str, element: str) -> PriceCase:
    plain = blocked(arch, (1, 1), WAVE_SIZE[arch])
    return PriceCase(
        name,
        arch,
        (
            f"m{{i}} = gl.allocate_shared_memory(gl.{element}, [128, 64], {memory})",
            f"v{{i}} = gl.load(out + {at(128, 64, layout)}).to(gl.{element})",
        ),
        "m{i}.store(v{i})",
        (f"gl.store(out + {at(128, 64, plain)}, m{{i}}.load({plain}).to(gl.float32))",),
    )


# ---- matrix multiplies

DOTS = (
    ("gfx942", "float16", mfma("gfx942", 16, 16), 8),
    ("gfx942", "bfloat16", mfma("gfx942", 32, 8, "[4, 1]"), 4),
    ("gfx942", "float8e4b8", mfma("gfx942", 16, 32, "[1, 4]"), 16),
    ("gfx942", "int8", mfma("gfx942", 32, 16), 8),
    ("gfx942", "float32", mfma("gfx942", 16, 4), 1),
    ("gfx950", "float16", mfma("gfx950", 16, 32), 8),
    ("gfx950", "float16", mfma("gfx950", 32, 8, transposed=False), 4),
    ("gfx950", "bfloat16", mfma("gfx950", 32, 16, "[4, 1]"), 8),
    ("gfx950", "float8e4nv", mfma("gfx950", 16, 32), 16),
    ("gfx950", "int8", mfma("gfx950", 16, 64, "[1, 4]"), 16),
    ("gfx950", "float32", mfma("gfx950", 16, 4), 4),
    ("gfx1250", "float16", wmma(32), 8),
    ("gfx1250", "bfloat16", wmma(32, waves="[[1, 0], [2, 0]]"), 8),
    ("gfx1250", "float16", wmma(32, waves="[[0, 2], [2, 0]]", registers="[[0, 1], [1, 0]]"), 8),
    ("gfx1250", "float8e4nv", wmma(64), 8),
    ("gfx1250", "float8e4nv", wmma(128), 16),
    ("gfx1250", "int8", wmma(64), 8),
    ("gfx1250", "float32", wmma(4), 2),
)
SIZES = ((128, 128, 64), (64, 128, 32), (32, 64, 128))
SCALED = tuple(
    (arch, left, right, rows)
    for arch in ("gfx950", "gfx1250")
    for left, right, rows in (
        ("e4m3", "e4m3", 16),
        ("e2m1", "e2m1", 16),
        ("e2m1", "e4m3", 16),
        ("e5m2", "e2m1", 16),
        ("e2m1", "e2m1", 32),
    )
)
FORMATS = {"e4m3": ("float8e4nv", 1), "e5m2": ("float8e5", 1), "e2m1": ("uint8", 2)}


def dots() -> Iterator[PriceCase]:
    for number, (arch, element, parent, width) in enumerate(DOTS):
        function = {"gfx942": "gl.amd.cdna3.mfma", "gfx950": "gl.amd.cdna4.mfma"}.get(arch, "gl.amd.gfx1250.wmma")
        whole = "int32" if element == "int8" else "float32"
        for m, n, k in SIZES:
            yield PriceCase(
                f"dot {number} {element} {m}x{n}x{k}",
                arch,
                (
                    *_operands(parent, parent, width, element, element, (m, k), (k, n)),
                    f"z{{i}} = gl.zeros([{m}, {n}], gl.{whole}, {parent})",
                ),
                f"z{{i}} = {function}(x{{i}}, y{{i}}, z{{i}})",
                (f"gl.store(out + {at(m, n, parent)}, z{{i}}.to(gl.float32))",),
            )


def _operands(
    left: str, right: str, width: int, a: str, b: str, left_size: tuple[int, int], right_size: tuple[int, int]
) -> Iterator[str]:
    for name, index, parent, element, size, order in (
        ("x", 0, left, a, left_size, "[1, 0]"),
        ("y", 1, right, b, right_size, "[0, 1]"),
    ):
        memory = f"gl.allocate_shared_memory(gl.{element}, {list(size)}, {swizzled(8, 1, 8, order)})"
        yield f"{name}{{i}} = {memory}.load({operand(index, parent, width)})"


def scaled() -> Iterator[PriceCase]:
    for arch, left, right, rows in SCALED:
        m, n, k = 128, 64, 256
        (a, pack_a), (b, pack_b) = FORMATS[left], FORMATS[right]
        if arch == "gfx950":
            parents = [mfma(arch, rows, 128 if rows == 16 else 64)] * 3
            function = "gl.amd.cdna4.mfma_scaled"
        else:
            parents = [wmma(64 if kind == "e2m1" else 128, rows) for kind in (left, right)] + [wmma(128, rows)]
            function = "gl.amd.gfx1250.wmma_scaled"
        yield PriceCase(
            f"scaled {left} {right} {rows}",
            arch,
            (
                *_operands(parents[0], parents[1], 16, a, b, (m, k // pack_a), (k // pack_b, n)),
                f"z{{i}} = gl.zeros([{m}, {n}], gl.float32, {parents[2]})",
            ),
            f"z{{i}} = {function}(x{{i}}, None, {left!r}, y{{i}}, None, {right!r}, z{{i}})",
            (f"gl.store(out + {at(m, n, parents[2])}, z{{i}})",),
        )


# ---- global memory

ELEMENTS = {"fp16": "float16", "fp32": "float32", "i8": "int8", "fp64": "float64"}
OFFSETS = {
    "rows": at(128, 64, "{L}"),
    "stride": at(128, 64, "{L}", "s"),
    "columns": "gl.arange(0, 128, gl.SliceLayout(1, {L}))[:, None] + "
    "gl.arange(0, 64, gl.SliceLayout(0, {L}))[None, :] * 128",
    "shifted": at(128, 64, "{L}") + " + t",
    "quads": "gl.arange(0, 128, gl.SliceLayout(1, {L}))[:, None] * 64 + "
    "gl.arange(0, 64, gl.SliceLayout(0, {L}))[None, :] // 4 * 4 + "
    "gl.arange(0, 64, gl.SliceLayout(0, {L}))[None, :] % 4",
}
MASKS = {
    "": "",
    "masked rows": ", mask=gl.arange(0, 128, gl.SliceLayout(1, {L}))[:, None] < s",
    "masked columns": ", mask=gl.arange(0, 64, gl.SliceLayout(0, {L}))[None, :] < s",
}


def vmem() -> Iterator[PriceCase]:
    for arch in ARCHS:
        buffer = "gl.amd.gfx1250" if arch == "gfx1250" else "gl.amd.cdna3"
        shapes = (blocked(arch, (1, 8), 8), blocked(arch, (1, 4), 16), blocked(arch, (8, 1), 4, "[1, 4]", "[0, 1]"))
        number = 0
        for element in ELEMENTS:
            for name, offsets in OFFSETS.items():
                layout, mask = shapes[number % 3], list(MASKS)[number % 3 if name != "columns" else 0]
                pointers = number % 4 == 3
                number += 1
                if pointers and (mask or (element == "i8" and name in ("stride", "shifted"))):
                    mask = ""  # a masked access through pointers is a branch, no instruction to count
                    name, offsets = "rows", OFFSETS["rows"]
                offset, tail = offsets.replace("{L}", layout), MASKS[mask].replace("{L}", layout)
                load = f"gl.load(a + o{{i}}{tail})" if pointers else f"{buffer}.buffer_load(a, o{{i}}{tail})"
                store = (
                    f"gl.store(a + o{{i}}, v{{i}}{tail})"
                    if pointers
                    else f"{buffer}.buffer_store(v{{i}}, a, o{{i}}{tail})"
                )
                plain = f"gl.store(a + 65536 + {at(128, 64, layout)}, v{{i}})"
                label = f"{element} {name} {mask} {'pointers' if pointers else 'buffer'} {number}"
                yield PriceCase(f"load {label}", arch, (f"o{{i}} = {offset}",), f"v{{i}} = {load}", (plain,), element)
                before = (f"o{{i}} = {offset}", f"v{{i}} = gl.load(a + 65536 + {at(128, 64, layout)})")
                yield PriceCase(f"store {label}", arch, before, store, (), element)


def copies() -> Iterator[PriceCase]:
    for arch in ARCHS:
        for element, bits in (("fp16", 16), ("fp32", 32), ("i8", 8)):
            for width in {"gfx942": (32,), "gfx950": (128, 32), "gfx1250": (128, 64)}[arch]:
                run = width // bits
                if 64 // run > WAVE_SIZE[arch]:
                    continue
                layout = blocked(arch, (1, run), 64 // run)
                for name, memory in (("flat", swizzled(1, 1, 1)), ("swizzled", swizzled(run, 1, 4))):
                    if arch == "gfx1250":
                        call = f"gl.amd.gfx1250.async_copy.global_to_shared(m{{i}}, a + {at(128, 64, layout)})"
                    else:
                        call = f"gl.amd.cdna4.async_copy.buffer_load_to_shared(m{{i}}, a, {at(128, 64, layout)})"
                    group = "gl.amd.gfx1250.async_copy" if arch == "gfx1250" else "gl.amd.cdna4.async_copy"
                    yield PriceCase(
                        f"copy {element} {width} {name}",
                        arch,
                        (f"m{{i}} = gl.allocate_shared_memory(gl.{ELEMENTS[element]}, [128, 64], {memory})",),
                        call,
                        (
                            f"{group}.commit_group()",
                            f"{group}.wait_group(0)",
                            f"gl.store(out + {at(128, 64, layout)}, m{{i}}.load({layout}).to(gl.float32))",
                        ),
                        element,
                    )


# ---- transcendental


def transcendental() -> Iterator[PriceCase]:
    for arch in ARCHS:
        layout = blocked(arch, (1, 8), 8)
        for name in ("exp2", "exp", "log2", "sqrt", "rsqrt"):
            yield PriceCase(
                name,
                arch,
                (f"v{{i}} = gl.load(out + {at(64, 64, layout)})",),
                f"v{{i}} = gl.{name}(v{{i}})",
                (f"gl.store(out + {at(64, 64, layout)}, v{{i}})",),
            )
        yield PriceCase(
            "division",
            arch,
            (f"v{{i}} = gl.load(out + {at(64, 64, layout)})",),
            "v{i} = (v{i} + 1.0) / v{i}",
            (f"gl.store(out + {at(64, 64, layout)}, v{{i}})",),
        )


CASES: dict[str, PriceCase] = {
    f"{case.arch} {case.name}": case for make in (lds, dots, scaled, vmem, copies, transcendental) for case in make()
}


def sample() -> dict[str, PriceCase]:
    """The first case of each kind on each target, and a fifth of the others by a checksum of their names."""
    first: dict[tuple[str, ...], str] = {}
    for name in CASES:
        first.setdefault(tuple(name.split()[:3]), name)  # target, operation, element
    return {name: case for name, case in CASES.items() if name in first.values() or zlib.crc32(name.encode()) % 5 == 0}


def compiled() -> dict[str, PriceCase]:
    """What the installed Triton compiles: an older one a sample."""
    info = bridge.find_triton()
    return CASES if info is None or info.version >= NEWEST else sample()
