"""Every operator row, assembled by name: the one place that knows them all."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fusewise.ops.attention import ATTENTION
from fusewise.ops.contract import CONTRACT
from fusewise.ops.conv import CONV
from fusewise.ops.elementwise import ELEMENTWISE
from fusewise.ops.gather import GATHER
from fusewise.ops.generate import GENERATE
from fusewise.ops.grid_sample import GRIDS
from fusewise.ops.losses import LOSSES
from fusewise.ops.movement import MOVEMENT
from fusewise.ops.norm import NORM
from fusewise.ops.opaque import MANY_TO_MANY, OPAQUE
from fusewise.ops.pool import POOL
from fusewise.ops.quant import QUANT
from fusewise.ops.reduce import REDUCE
from fusewise.ops.resize import RESIZE
from fusewise.ops.roi_align import ROI_ALIGN
from fusewise.ops.spec import OpSpec
from fusewise.ops.training import TRAINING

__all__ = ["OPERATORS", "spec_of"]

OPERATORS: tuple[OpSpec, ...] = (
    *ELEMENTWISE,
    *REDUCE,
    *CONTRACT,
    *CONV,
    *POOL,
    *NORM,
    *MOVEMENT,
    *GATHER,
    *RESIZE,
    *GRIDS,
    ROI_ALIGN,
    *QUANT,
    *ATTENTION,
    *GENERATE,
    *LOSSES,
    *TRAINING,
    *MANY_TO_MANY,
    *OPAQUE,
)
"""All rows, in the order of the files."""

_BY_NAME: Mapping[tuple[str, str], OpSpec] = MappingProxyType({(row.domain, row.name): row for row in OPERATORS})


def spec_of(op: str, domain: str = "") -> OpSpec | None:
    """The row of an operator, or None when there is none (`ai.onnx` is the empty domain)."""
    return _BY_NAME.get(("" if domain == "ai.onnx" else domain, op))
