"""Child process: compile the cases of one target and print, for each, its price and the count in the produced text."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # 3.9 warns when it is not set

from amdwarp.lowering import bridge
from amdwarp.lowering.analysis.pricing import Pricer
from amdwarp.lowering.analysis.realised import counts_of, stretches
from amdwarp.lowering.ir import Module
from price_cases import KERNEL_CASES, PriceCase, compiled

import amdwarp
from amdwarp import compiler
from amdwarp.stage import BEGIN, END

HEAD = (
    "import amdwarp\nfrom triton.experimental.gluon import language as gl\n\n@amdwarp.jit\ndef kernel(a, out, s, t):\n"
)
Counts = list[dict[str, int]]


def source(cases: list[PriceCase]) -> str:
    lines = []
    for number, case in enumerate(cases):
        lines += [*case.before, 'with amdwarp.warp_pipeline_stage("priced"):', "    " + case.line, *case.after]
        lines = [line.replace("{i}", str(number)) for line in lines]
    return HEAD + "".join(f"    {line}\n" for line in lines)


def load(text: str, folder: str, name: str) -> Any:
    path = Path(folder) / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


def priced(module: Module) -> Counts:
    """Prices of what stands between each pair of marks."""
    found: Counts = []
    for function in module.functions():
        pricer, inside = Pricer(function, module), False
        for op in function.walk():
            if BEGIN in op.attributes:
                found.append({})
                inside = True
            elif END in op.attributes:
                inside = False
            elif inside:
                found[-1] = dict(Counter(found[-1]) + Counter(named(counts_of(pricer.price(op)))))
    return found


def named(counts: Counter[Any]) -> dict[str, int]:
    return {f"{slot.value}{bits or ''}": count for (slot, bits), count in counts.items() if count}


def compare(cases: list[PriceCase], folder: str, name: str) -> None:
    prices: Counts = []

    def record(mod: Any, *_: Any) -> Any:
        module = bridge.read(mod)
        prices.extend(priced(module))
        for op in module.walk():
            for key in [key for key in op.attributes if key.startswith("amdwarp.")]:
                del op.attributes[key]
        return bridge.write(module, mod.context)

    compiler._schedule = record
    kernel = load(source(cases), folder, name)
    signature = {"a": "*" + cases[0].element, "out": "*fp32", "s": "i32", "t": "i32"}
    made = amdwarp.compile(kernel, signature, {}, cases[0].arch, attrs={"s": "D"}, num_warps=4)
    walls = stretches(made.asm["amdgcn"])[1::2]
    texts = [named(Counter((one.slot, one.bits) for one in wall.instructions)) for wall in walls]
    for case, price, text in zip(cases, prices, texts, strict=True):
        print("@result " + json.dumps([f"{case.arch} {case.name}", price, text]))


def main(arch: str) -> None:
    mine = [case for case in compiled().values() if case.arch == arch]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        count = 0
        for _, group in groupby(mine, key=lambda case: (case.element, case.name.split()[0])):
            cases = list(group)
            for start in range(0, len(cases), KERNEL_CASES):
                count += 1
                compare(cases[start : start + KERNEL_CASES], folder, f"{arch}_{count}")


main(sys.argv[1])
