"""Prices against the text that Triton and LLVM produce, case by case; and what cannot be priced."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from amdwarp.lowering.analysis.pricing import Price, Pricer, PricingError, Slot, arch_of
from amdwarp.lowering.ir import Block, Module, Op, Region
from price_cases import ARCHS, CASES, compiled, sample

CHILD = Path(__file__).parents[1] / "price_child.py"
LEAST_CASES = 200
Counts = dict[str, int]


@pytest.fixture(scope="module")
def results() -> dict[str, tuple[Counts, Counts]]:
    """Price and count of each case, from one child process a target, all at once."""
    command = [sys.executable, str(CHILD)]
    children = [
        subprocess.Popen([*command, arch], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for arch in ARCHS
    ]
    found = {}
    for child in children:
        out, err = child.communicate(timeout=600)
        for line in out.splitlines():
            if line.startswith("@result "):
                name, price, text = json.loads(line.removeprefix("@result "))
                found[name] = (price, text)
        if child.returncode:
            pytest.fail(f"exit status {child.returncode}\n{err[-3000:]}")
    return found


def test_the_grid_is_wide() -> None:
    assert len(CASES) >= LEAST_CASES
    for arch in ARCHS:
        assert len([case for case in CASES.values() if case.arch == arch]) >= LEAST_CASES // 2


def test_the_sample_has_every_kind_of_every_element() -> None:
    assert {tuple(name.split()[:3]) for name in sample()} == {tuple(name.split()[:3]) for name in CASES}
    assert len(CASES) / 3 <= len(sample()) <= len(CASES) / 2


@pytest.mark.usefixtures("needs_triton")
@pytest.mark.parametrize("name", compiled())
def test_price_equals_text(results: dict[str, tuple[Counts, Counts]], name: str) -> None:
    price, text = results[name]
    assert price == text
    assert sum(text.values()) > 0


def module(target: str = '"hip:gfx950"', **aliases: str) -> Module:
    op = Op("builtin.module", regions=[Region([Block()])], attributes={"ttg.target": target})
    return Module(op, {f"#{name}": text for name, text in aliases.items()})


def function(module: Module) -> Op:
    op = Op("tt.func", regions=[Region([Block()])], properties={"arg_attrs": "[]"})
    module.body.append(op)
    return op


def test_the_target_is_read() -> None:
    assert arch_of(module()) == "gfx950"
    with pytest.raises(PricingError, match=r'not for an AMD GPU: ttg.target is "cuda:90"'):
        arch_of(module('"cuda:90"'))


def test_an_unknown_layout_is_an_error_that_names_the_operation() -> None:
    mod = module()
    value = Op("ub.poison", result_types=["!ttg.memdesc<8x8xf16, #ttg.nvmma_shared<{}>, #ttg.shared_memory>"])
    load = Op("ttg.local_load", [value.result], ["tensor<8x8xf16, #ttg.nvidia_mma<{}>>"])
    with pytest.raises(PricingError, match=r"behind ttg.local_load cannot be counted: layout #ttg.nvidia_mma"):
        Pricer(function(mod), mod).price(load)


def test_arithmetic_is_an_estimate() -> None:
    blocked = "#ttg.blocked<{sizePerThread = [8], threadsPerWarp = [64], warpsPerCTA = [4], order = [0]}>"
    mod = module()
    a = Op("ub.poison", result_types=[f"tensor<4096xf32, {blocked}>"])
    add = Op("arith.addf", [a.result, a.result], [a.result.type])
    pricer = Pricer(function(mod), mod)
    assert pricer.price(add) == (Price(Slot.VALU, 16),)
    assert pricer.price(a) == ()
    assert not Slot.VALU.exact
