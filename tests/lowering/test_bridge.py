"""The wheel's side: generic form, refusals, versions, FileCheck."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from amdwarp.lowering import bridge, dialect
from amdwarp.lowering.ir import Module, Op
from amdwarp.lowering.rewriter import Builder
from amdwarp.lowering.text import parse, print_module
from samples import BLOCKS, LOOP

from amdwarp.errors import LoweringError, UnsupportedTritonError

triton_needed = pytest.mark.usefixtures("needs_triton")


def reprint(text: str) -> str:
    return bridge.generic_text(bridge.parse_text(text, bridge.new_context()))


@triton_needed
def test_generic_form_is_stable() -> None:
    once = reprint(LOOP)
    assert '"scf.for"(' in once
    assert "rocdl.kernel" not in once
    assert reprint(once) == once
    assert print_module(parse(once)) == once


@triton_needed
def test_marking_attribute_is_stripped_where_it_is_alone() -> None:
    once = reprint(BLOCKS)
    assert "rocdl.kernel" not in once
    assert "}) : () -> () loc(" in once.split("tt.return")[-1]


@triton_needed
def test_minus_infinity_survives_the_wheel() -> None:
    assert "dense<0xFF800000> : tensor<1024xf32, #blocked>" in reprint(LOOP)


@triton_needed
def test_unregistered_attributes_survive() -> None:
    module = parse(LOOP)
    module.ops("arith.addf")[0].attributes["amdwarp.stage"] = '"load"'
    mod = bridge.write(module, bridge.new_context())
    assert mod.verify()
    assert bridge.read(mod).ops("arith.addf")[0].attributes == {"amdwarp.stage": '"load"'}


@triton_needed
def test_unregistered_ops_do_not_parse() -> None:
    module = parse(LOOP)
    Builder.before(module.ops("scf.for")[0]).create("ttg.from_the_future")
    with pytest.raises(LoweringError, match=r"ttg\.from_the_future"):
        bridge.write(module, bridge.new_context())


@triton_needed
def test_rocdl_ops_may_stand_in_ttgir() -> None:
    module = parse(LOOP)
    Builder.before(module.ops("scf.for")[0]).insert(dialect.sched_barrier())
    names = [op.name for op in bridge.read(bridge.write(module, bridge.new_context())).walk()]
    assert "rocdl.sched.barrier" in names


@triton_needed
def test_a_nested_alias_must_be_defined_earlier() -> None:
    module = parse(LOOP)
    module.ops("arith.addf")[0].loc = 'callsite(#loc4 at "x.py":1:1)'
    with pytest.raises(LoweringError, match="undefined"):
        bridge.write(module, bridge.new_context())
    module.before["#loc2"] = module.after.pop("#loc2")
    for name in ("#loc1", "#loc3", "#loc4"):
        module.before[name] = module.after.pop(name)
    bridge.write(module, bridge.new_context())


@triton_needed
def test_an_op_without_location_gets_a_temporary_path() -> None:
    """Why the rewriter copies the anchor's location."""
    module = parse(LOOP)
    Op("rocdl.s.barrier").insert_before(module.ops("scf.for")[0])
    assert ".mlir" in bridge.generic_text(bridge.write(module, bridge.new_context()))


@triton_needed
def test_a_rejection_says_why_and_keeps_the_text(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    module = parse(LOOP)
    module.ops("arith.addi")[0].properties["overflowFlags"] = "7 : i32"
    with pytest.raises(LoweringError) as caught:
        bridge.write(module, bridge.new_context(), pass_name="weave", keep_in=tmp_path / "kept")
    assert caught.value.pass_name == "weave"
    assert "line 13:" in str(caught.value)
    assert "arith.addi" in str(caught.value)
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.name.startswith("rejected-weave-")
    assert str(kept) in str(caught.value)
    assert kept.read_text() == print_module(module)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "concerns"),
    [
        ('"arith.constant"() <{value = 0 : i32}> {amdwarp.stage.begin = "load"} : () -> i32', True),
        ('"rocdl.sched.barrier"() {amdwarp.ws.loop, amdwarp.wall} : () -> ()', True),
        ('<{asm_string = "amdwarp.named_barrier 0 4 1"}>', True),
        ('"ttg.warp_specialize"(%0) : (i32) -> ()', True),
        ('"tt.call"(%0) <{callee = @"amdwarp.kernels.gemm.plain_load.fill__i32"}> : (i32) -> ()', False),
        ('loc("/site-packages/amdwarp/kernels/gemm/plain_kernel.py":3:4)', False),
    ],
)
def test_what_concerns_the_passes(text: str, concerns: bool) -> None:
    assert bridge.concerns_passes(text) == concerns


@triton_needed
def test_transform_keeps_the_context() -> None:
    mod = bridge.parse_text(LOOP, bridge.new_context())
    context = mod.context

    def edit(module: Module) -> None:
        module.attributes["ttg.shared"] = "128 : i32"

    after = bridge.transform(mod, edit, pass_name="share")
    assert after.context is context
    assert after.get_int_attr("ttg.shared") == 128


@triton_needed
def test_pretty_form_and_filecheck() -> None:
    text = bridge.pretty(parse(LOOP))
    bridge.filecheck(text, "// CHECK: tt.func public @k\n// CHECK: scf.for\n// CHECK-NEXT: arith.addf\n")
    with pytest.raises(ValueError, match="expected string not found"):
        bridge.filecheck(text, "// CHECK: tt.dot\n")
    assert "loc(" in bridge.pretty(parse(LOOP), locations=True)


@triton_needed
def test_the_generic_form_is_demanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "_MARK", "an.allowed.attribute")
    with pytest.raises(LoweringError, match="does not print the generic form"):
        bridge.generic_text(bridge.parse_text(LOOP, bridge.new_context()))


def test_importing_does_not_import_triton(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from amdwarp.lowering import bridge, dialect, ir, pipeline, rewriter, text, verify\n"
        "bridge.find_triton()\n"
        "assert not {'triton', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (None, "no Triton is installed; supported are 3.7, 3.8, 3.9; install the ROCm build of PyTorch"),
        (
            bridge.TritonInfo((3, 2), "3.2.0+rocm6", "pytorch-triton-rocm"),
            "Triton 3.2.0+rocm6 (installed as pytorch-triton-rocm) is not supported; install one of 3.7, 3.8, 3.9",
        ),
        (bridge.TritonInfo((4, 0), "4.0.0", None), "Triton 4.0.0 is not supported"),
    ],
)
def test_unsupported(monkeypatch: pytest.MonkeyPatch, info: bridge.TritonInfo | None, message: str) -> None:
    monkeypatch.setattr(bridge, "find_triton", lambda: info)
    with pytest.raises(UnsupportedTritonError) as caught:
        bridge.require_triton()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("distribution", bridge.DISTRIBUTIONS)
def test_finds_triton_under_any_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, distribution: str) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("__version__ = '3.8.0'\n")
    metadata = tmp_path / f"{distribution.replace('-', '_')}-3.9.1+rocm7.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 3.9.1+rocm7\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    assert bridge.find_triton.__wrapped__() == bridge.TritonInfo((3, 9), "3.9.1+rocm7", distribution)
    (metadata / "METADATA").unlink()
    metadata.rmdir()
    importlib.invalidate_caches()
    assert bridge.find_triton.__wrapped__() == bridge.TritonInfo((3, 8), "3.8.0", None)
