"""Processors of which more is known than their features say, by LLVM's names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fusewise.codegen.machine.figures import OverheadFigures
from fusewise.records import record

__all__ = ["PROCESSORS", "Processor"]


@record(frozen=True)
class Processor:
    """`multiply_bits` and `adds_apart` as a `Target` has them; `overhead` where other figures were measured."""

    multiply_bits: int = 0
    adds_apart: bool = True
    overhead: OverheadFigures = OverheadFigures()


_SHARED = Processor(adds_apart=False, overhead=OverheadFigures(load=0.24, line=0.2, finish=0.0))
"""Adds with the units that multiply; and its cores lose by loads what another thread on the same one takes, as on rented machines
there mostly is one. Measured on an Emerald Rapids."""

PROCESSORS: Mapping[str, Processor] = MappingProxyType(
    {
        "znver4": Processor(multiply_bits=512),
        "znver5": Processor(overhead=OverheadFigures(fourth=0.2)),
        **dict.fromkeys(("sapphirerapids", "emeraldrapids", "graniterapids"), _SHARED),
    }
)
"""A Zen 4 takes two cycles' worth of a 256-bit unit for a multiply-add of 512 bits. All other figures were measured on one."""
