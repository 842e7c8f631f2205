"""A program with a node of every kind, as text."""

from __future__ import annotations

from fusewise.codegen.instructions.table import INSTRUCTIONS
from fusewise.ir.dtypes import FLOAT32
from fusewise.lower.task import Operand, Store, Task
from fusewise.ops.expr import const, index

__all__ = ["ROWS", "TASK", "TEXT"]

ROWS = {row.name: row for row in INSTRUCTIONS}

TASK = Task(
    (2, 3),
    (Operand("out0", FLOAT32, (2, 3), (3, 1)), Operand("in0", FLOAT32, (2, 3), (3, 1))),
    (Store("out0", (index("i0"), index("i1")), const(1.0, FLOAT32)),),
)

TEXT = """\
table @signs: float = 1.0, -1.0

function k(ptr noalias %a0, i64 %a1) -> void attributes "nounwind" hides counters {
  %v1: <4 x float> = load(%a0) align 4
  %v9: <4 x float> = for %v2 in 0 .. %a1 step 2 rolled carrying %v3: <4 x float> = %v1 {
    %v4: ptr = getelementptr inbounds(@signs, %v2) of float
    %v5: float = load(%v4) align 4
    %v6: <4 x float> = insertelement(<4 x float> poison, %v5, i64 0)
    %v7: <4 x float> = shufflevector(%v6, %v3) lanes 0 .. 3
    %v8: <4 x float> = llvm.fma(%v7, <4 x float> 0.1, <4 x float> [1.0, -inf, 0.0, 2.0])
    next %v8
  }
  %v10: i1 = icmp slt(%a1, i64 5)
  %v14: i64 = if %v10 rarely {
    give i64 -1
  } else {
    repeat carrying %v11: i64 = %a1 {
      %v12: i1 = icmp sgt(%v11, i64 0)
      while %v12
      %v13: i64 = sub nsw(%v11, i64 1)
      next %v13
    }
    give %v11
  }
  stage %v14 noted at %a0 {
    memset(%a0, i8 0, %v14) align 64
  }
  %v15: <4 x float>, %v16: <4 x float> = accumulate fma 2 x 1 x 4 from %v9, %v9 {
    rows %a0, %a0 of bfloat16
    panel %a0 pitch 4 of bfloat16 following %a0 minus %a0 into %a0
    level 3 stride 8 from %v14 to 3
    level 2 stride 1
    ahead %a0 step 15 locality 3
  }
  store results of #task at (i0 = 1, i1 = %v14) lanes 3 along i1 of %v15 with (out0 = %a0, in0 = %a0)
  ret()
}
"""
