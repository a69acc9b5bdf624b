"""Small modules in generic form, as MLIR prints them."""

# ruff: noqa: E501 - an op is one line however long

LOOP = """\
#blocked = #ttg.blocked<{sizePerThread = [4], threadsPerWarp = [64], warpsPerCTA = [4], order = [0]}>
#loc = loc("kernel.py":1:1)
#loc7 = loc("acc"(#loc))
"builtin.module"() ({
  "tt.func"() <{arg_attrs = [{tt.divisibility = 16 : i32}, {}], function_type = (!tt.ptr<f32>, i32) -> (), sym_name = "k", sym_visibility = "public"}> ({
  ^bb0(%x: !tt.ptr<f32> loc("x"(#loc)), %n: i32 loc("n"(#loc))):
    %0 = "arith.constant"() <{value = dense<0xFF800000> : tensor<1024xf32, #blocked>}> : () -> tensor<1024xf32, #blocked> loc(#loc1)
    %1 = "arith.constant"() <{value = 0 : i32}> : () -> i32 loc(#loc1)
    %2 = "arith.constant"() <{value = 1 : i32}> : () -> i32 loc(#loc1)
    %acc:2 = "scf.for"(%1, %n, %2, %0, %1) ({
    ^bb0(%i: i32 loc(#loc7), %a: tensor<1024xf32, #blocked> loc("acc"(#loc)), %c: i32 loc("acc"(#loc))):
      %4 = "arith.addf"(%a, %a) <{fastmath = #arith.fastmath<none>}> : (tensor<1024xf32, #blocked>, tensor<1024xf32, #blocked>) -> tensor<1024xf32, #blocked> loc(#loc2)
      %5 = "arith.addi"(%c, %i) <{overflowFlags = #arith.overflow<none>}> : (i32, i32) -> i32 loc(#loc2)
      "scf.yield"(%4, %5) : (tensor<1024xf32, #blocked>, i32) -> () loc(#loc3)
    }) {our.tag = "a } b", tt.num_stages = 2 : i32} : (i32, i32, i32, tensor<1024xf32, #blocked>, i32) -> (tensor<1024xf32, #blocked>, i32) loc(#loc3)
    %3 = "arith.addi"(%acc#1, %n) <{overflowFlags = #arith.overflow<none>}> : (i32, i32) -> i32 loc(#loc2)
    "tt.return"() : () -> () loc(#loc4)
  }) {noinline = false, unit} : () -> () loc(#loc)
}) {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "hip:gfx950", "ttg.threads-per-warp" = 64 : i32} : () -> () loc(#loc)
#loc1 = loc("kernel.py":3:5)
#loc2 = loc("kernel.py":4:5)
#loc3 = loc(callsite(#loc2 at #loc1))
#loc4 = loc(fused<"why">[#loc2, #loc3])
"""

BLOCKS = """\
"builtin.module"() ({
  "tt.func"() <{function_type = (i1, i32) -> i32, sym_name = "cfg"}> ({
  ^bb0(%arg0: i1, %arg1: i32):
    "cf.cond_br"(%arg0, %arg1)[^bb1, ^bb2] <{operandSegmentSizes = array<i32: 1, 1, 0>}> : (i1, i32) -> ()
  ^bb1(%0: i32):  // 2 preds: ^bb0, ^bb1
    %1 = "arith.addi"(%0, %arg1) <{overflowFlags = #arith.overflow<none>}> : (i32, i32) -> i32
    %2 = "arith.cmpi"(%1, %arg1) <{predicate = 2 : i64}> : (i32, i32) -> i1
    "cf.cond_br"(%2, %1)[^bb1, ^bb3] <{operandSegmentSizes = array<i32: 1, 1, 0>}> : (i1, i32) -> ()
  ^bb2:  // pred: ^bb0
    "tt.return"(%arg1) : (i32) -> ()
  ^bb3:  // pred: ^bb1
    "tt.return"(%1) : (i32) -> ()
  ^bb4:  // no predecessors
    "tt.return"(%arg1) : (i32) -> ()
  }) : () -> ()
  "tt.func"() <{function_type = (i32) -> (), sym_name = "declared", sym_visibility = "private"}> ({
  }) : () -> ()
}) : () -> ()
"""

CORNERS = """\
#map = affine_map<(d0, d1) -> (d0 + d1, d1)>
#set = affine_set<(d0) : (d0 - 1 >= 0)>
!alias = tensor<4xf32>
"builtin.module"() ({
  "tt.func"() <{function_type = () -> (), sym_name = "odd"}> ({
    %0 = "arith.constant"() <{value = dense<[[1.000000e+00, 0x7FC00000], [-0.000000e+00, 2.0]]> : tensor<2x2xf32>}> : () -> tensor<2x2xf32>
    %f = "test.function"() : () -> ((i32) -> (f32, i32))
    %1 = "test.text"() <{asm = "v_mov $0, \\22x\\22 // no comment { [ (", constraints = "=v,v"}> : () -> !alias
    "test.regions"() ({
    }, {
    ^bb0:
    }, {
      "test.end"() : () -> ()
    }) : () -> ()
    "tt.return"() : () -> ()
  }) {aff = #map, f = (i32) -> (f32, i32), st = #set, t = tensor<4x?xf32>, u, "we ird" = [1 : i32, {a, b = "]"}]} : () -> ()
}) : () -> ()

{-#
  dialect_resources: {
    builtin: {
      blob: "0x04000000FFFF"
    }
  }
#-}
"""
