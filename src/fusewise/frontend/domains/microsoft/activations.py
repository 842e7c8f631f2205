"""Activations."""

from __future__ import annotations

from fusewise.frontend.domains.row import DomainCall, DomainRow
from fusewise.frontend.domains.writer import DomainValue, DomainWriter

__all__ = ["ACTIVATIONS"]


def _gelu(g: DomainWriter, call: DomainCall) -> DomainValue:
    return g.Gelu(call["X"])


ACTIVATIONS: tuple[DomainRow, ...] = (DomainRow("Gelu", _gelu, operands=("X",), outputs=("Y",)),)
