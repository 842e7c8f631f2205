"""What the rooms before code generation would do otherwise if they knew the machine: they do not, and need not.

A graph is rewritten for any machine; where a choice pays on some only, the passes have both ways, and this picks one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fusewise.codegen.llvm.quads import sums_in_one
from fusewise.codegen.target import Target
from fusewise.passes.pipeline import CLEAN, Pass
from fusewise.passes.quantized_to_integer import every_quantized_to_integer, quantized_to_integer

__all__ = ["stand_ins", "suited"]


def stand_ins(target: Target) -> Mapping[Pass, Pass]:
    """Which passes take the place of which on `target`, under the same name.

    Where one instruction adds four products of bytes up, integers beat Winograd's convolution of floats.
    """
    return {quantized_to_integer: every_quantized_to_integer} if sums_in_one(target) else {}


def suited(passes: bool | Sequence[Pass], target: Target, disable: Collection[str] = ()) -> bool | Sequence[Pass]:
    """The passes for native code on `target`: what was asked for, but the usual ones (True) as this machine likes them best.

    `disable` names passes that are left out.
    """
    instead = stand_ins(target)
    if passes is not True or not instead:
        return passes
    return tuple(step if step.__name__ in disable else instead.get(step, step) for step in CLEAN)
