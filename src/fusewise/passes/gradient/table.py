"""Every gradient rule in one table. An operator without a rule may have a decomposition into operators that have one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fusewise.passes.gradient.elementwise import ELEMENTWISE
from fusewise.passes.gradient.movement import MOVEMENT
from fusewise.passes.gradient.products import PRODUCTS
from fusewise.passes.gradient.reductions import REDUCTIONS
from fusewise.passes.gradient.resize import RESIZE
from fusewise.passes.gradient.row import Gradient
from fusewise.passes.gradient.windows import WINDOWS

__all__ = ["GRADIENTS"]

GRADIENTS: Mapping[str, Gradient] = MappingProxyType(
    {row.op: row for row in (*ELEMENTWISE, *MOVEMENT, *PRODUCTS, *REDUCTIONS, *RESIZE, *WINDOWS)}
)
"""By operator."""
