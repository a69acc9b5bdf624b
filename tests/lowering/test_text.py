"""Reader and printer on hand-written text; whole kernels are in test_corpus.py."""

from __future__ import annotations

import contextlib

import pytest
from amdwarp.lowering import bridge
from amdwarp.lowering.ir import Op
from amdwarp.lowering.text import ParseError, parse, print_module
from samples import BLOCKS, CORNERS, LOOP


@pytest.mark.parametrize("text", [LOOP, BLOCKS, CORNERS], ids=["loop", "blocks", "corners"])
def test_roundtrip_is_byte_for_byte(text: str) -> None:
    module = parse(text)
    assert print_module(module) == text
    assert print_module(module.clone()) == text


def test_properties_and_attributes_are_two_dictionaries() -> None:
    (function,) = parse(LOOP).functions()
    assert list(function.properties) == ["arg_attrs", "function_type", "sym_name", "sym_visibility"]
    assert function.attributes == {"noinline": "false", "unit": "unit"}
    (branch, _) = parse(BLOCKS).ops("cf.cond_br")
    assert branch.properties == {"operandSegmentSizes": "array<i32: 1, 1, 0>"}
    assert branch.attributes == {}


def test_keys_lose_their_quotes_and_get_them_back() -> None:
    module = parse(LOOP)
    assert module.attributes["ttg.num-warps"] == "4 : i32"
    assert module.attributes["ttg.target"] == '"hip:gfx950"'
    (loop,) = module.ops("scf.for")
    assert loop.attributes["our.tag"] == '"a } b"'


def test_minus_infinity_is_kept() -> None:
    constant = parse(LOOP).ops("arith.constant")[0]
    assert constant.properties["value"] == "dense<0xFF800000> : tensor<1024xf32, #blocked>"


def test_aliases_keep_their_place_and_order() -> None:
    module = parse(LOOP)
    assert list(module.before) == ["#blocked", "#loc", "#loc7"]
    assert list(module.after) == ["#loc1", "#loc2", "#loc3", "#loc4"]
    assert module.resolve("#blocked").startswith("#ttg.blocked<{sizePerThread = [4]")
    assert module.resolve("tensor<4xf32>") == "tensor<4xf32>"


def test_packed_results() -> None:
    module = parse(LOOP)
    (loop,) = module.ops("scf.for")
    assert [v.name for v in loop.results] == ["%acc#0", "%acc#1"]
    assert module.ops("arith.addi")[1].operands[0] is loop.results[1]
    loop.append_result("i64")
    assert '%acc:2, %6 = "scf.for"' in print_module(module)


def test_use_before_definition_in_text() -> None:
    # ^bb3 is dominated by ^bb1, which stands later here.
    text = BLOCKS.replace("[^bb1, ^bb2]", "[^bb2, ^bb1]", 1)
    lines = text.splitlines()
    first, second = lines.index("  ^bb1(%0: i32):  // 2 preds: ^bb0, ^bb1"), lines.index("  ^bb3:  // pred: ^bb1")
    moved = [*lines[:first], *lines[second : second + 2], *lines[first:second], *lines[second + 2 :]]
    module = parse("\n".join(moved))
    final = module.functions()[0].regions[0].blocks[1].ops[0]
    assert final.operands[0].op is module.ops("arith.addi")[0]
    printed = print_module(module)
    assert print_module(parse(printed)) == printed


def test_names_are_made_unique() -> None:
    module = parse(LOOP)
    first = module.ops("arith.constant")[1]
    copy = first.clone().insert_after(first)
    named = Op("test.value", result_types=["i32"], result_names=["acc"]).insert_after(first)
    nameless = Op("test.value", result_types=["i32"]).insert_after(first)
    text = print_module(module)
    assert first.result.name == "%1"
    assert copy.result.name == "%7"
    assert named.result.name == "%acc"
    assert nameless.result.name == "%6"
    assert '%acc_0:2 = "scf.for"' in text
    assert print_module(parse(text)) == text


def test_names_start_afresh_in_functions() -> None:
    start, end = BLOCKS.index('  "tt.func"'), BLOCKS.rindex('  "tt.func"')
    text = BLOCKS[:end] + BLOCKS[start:]
    assert print_module(parse(text)) == text


def test_comments_and_spacing_are_skipped() -> None:
    text = BLOCKS.replace('"tt.return"', '// a note\n\n      "tt.return"')
    text = text.replace(": (i32) -> ()", ":( i32 )  ->  ()  // end")
    assert print_module(parse(text)) == BLOCKS


@pytest.mark.parametrize(
    ("old", "new", "message", "line"),
    [
        ('"tt.return"(%1) : (i32) -> ()', '"tt.return"(%9) : (i32) -> ()', "%9 is used but not defined", 12),
        ('"tt.return"(%1) : (i32) -> ()', '"tt.return"(%1) : (i64) -> ()', "%1 is a i32, not a i64", 12),
        ('"tt.return"(%1) : (i32) -> ()', '"tt.return"(%1) : () -> ()', "1 operands and 0 operand types", 12),
        ('"tt.return"(%1) : (i32) -> ()', "tt.return %1 : i32", "the text must be in generic form", 12),
        ('"tt.return"(%1) : (i32) -> ()', '"tt.return"(%1) : (tensor<4xi32) -> ()', "unbalanced ')'", 12),
        ("%1 = ", "%1:2 = ", "2 results and 1 result types", 6),
        ("%2 = ", "%1 = ", "%1 is defined twice", 7),
        ("[^bb1, ^bb3]", "[^bb1, ^bb7]", "^bb7, which is not defined", 15),
        ("^bb3:", "^bb2:", "^bb2 is defined twice", 11),
        ('"builtin.module"', '"other.module"', "expected builtin.module", 1),
        ("}) : () -> ()\n}) : () -> ()", "}) : () -> ()", "expected '}' at the end of a region", 18),
    ],
)
def test_errors_say_where(old: str, new: str, message: str, line: int) -> None:
    assert old in BLOCKS
    with pytest.raises(ParseError) as caught:
        parse(BLOCKS.replace(old, new, 1))
    assert message in str(caught.value)
    assert caught.value.line == line
    assert f"line {line}, column {caught.value.column}" in str(caught.value)


@pytest.mark.parametrize("text", [LOOP, BLOCKS, CORNERS], ids=["loop", "blocks", "corners"])
def test_damaged_text_is_refused_or_read(text: str) -> None:
    """Cut off anywhere, or with any one character gone: a module or a ParseError, nothing else."""
    end = text.rindex("})")
    for cut in range(0, end, 7):
        with pytest.raises(ParseError):
            parse(text[:cut])
    for gone in range(0, len(text), 5):
        with contextlib.suppress(ParseError):
            print_module(parse(text[:gone] + text[gone + 1 :]))


@pytest.mark.usefixtures("needs_triton")
def test_names_inside_partitions_differ_from_those_outside() -> None:
    # MLIR's parser of the generic form gives isolated regions of this op no scope of names of their own
    text = """\
"builtin.module"() ({
  "tt.func"() <{function_type = () -> (), sym_name = "k"}> ({
    %x = "arith.constant"() <{value = 0 : i32}> : () -> i32
    "ttg.warp_specialize"() <{partitionNumWarps = array<i32: 4>, warpGroupStartIds = array<i32: 4>}> ({
      "ttg.warp_yield"() : () -> ()
    }, {
      "ttg.warp_specialize.partitions"(%x) ({
      ^bb0(%y: i32):
        %z = "arith.constant"() <{value = 1 : i32}> : () -> i32
        "ttg.warp_return"() : () -> ()
      }) : (i32) -> ()
    }) : () -> ()
    "tt.return"() : () -> ()
  }) : () -> ()
}) {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, "ttg.threads-per-warp" = 64 : i32} : () -> ()
"""
    module = parse(text)
    (inner,) = [op for op in module.ops("arith.constant") if op.properties["value"] == "1 : i32"]
    inner.result.name = "%x"
    printed = print_module(module)
    assert "%x_0 = " in printed
    bridge.parse_text(printed, bridge.new_context())
