"""What the rooms before code generation would do otherwise if they knew the machine: they do not, and need not.

A graph is rewritten for any machine; where a choice pays on some only, the passes have both ways, and this picks one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fusewise.codegen.llvm.quads import sums_in_one
from fusewise.codegen.target import Target
from fusewise.passes.pipeline import CLEAN, Pass
from fusewise.passes.quantized_to_integer import every_quantized_to_integer, quantized_to_integer

__all__ = ["suited"]


def suited(passes: bool | Sequence[Pass], target: Target, disable: Collection[str] = ()) -> bool | Sequence[Pass]:
    """The passes for native code on `target`: what was asked for, but the usual ones (True) as this machine likes them best.

    Where one instruction adds four products of bytes up, integers beat Winograd's convolution of floats. `disable` names passes
    that are left out.
    """
    if passes is not True or not sums_in_one(target) or quantized_to_integer.__name__ in disable:
        return passes
    return tuple(every_quantized_to_integer if step is quantized_to_integer else step for step in CLEAN)
