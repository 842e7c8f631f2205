"""What is expected of a nest is what it takes where its rounds are alike."""

from __future__ import annotations

import pytest
from tests.codegen.nest.length import expected_operations

from fusewise.codegen.nest.interpret import TooLong, interpret
from fusewise.codegen.nest.parse import parsed

NEST = """
function run(i64 %a0, i64 %a1) -> void {
  %v1: i64 = mul nsw(%a0, i64 4)
  %v2: i64 = llvm.smin(%v1, %a1)
  for %v3 in 0 .. %v2 step 2 rolled {
    %v4: i64 = hidden(%v3)
    %v5: i64 = add nsw(%v4, i64 3)
    for %v6 in %v4 .. %v5 step 1 rolled {
      %v7: i64 = mul nsw(%v6, i64 3)
    }
  }
  ret()
}
"""


@pytest.mark.parametrize("arguments", [(0, 9), (1, 9), (3, 9), (50, 1000)])
def test_rounds_that_are_alike_are_counted(arguments: tuple[int, int]) -> None:
    module = parsed(NEST, {}, {})
    expected = expected_operations(module, "run", arguments)
    interpret(module, "run", arguments, expected)
    with pytest.raises(TooLong):
        interpret(module, "run", arguments, expected - 1)
