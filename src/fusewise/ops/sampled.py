"""Which operators read elements at places that come from data, and their taps: the one table of the kind.

A result of such an operator is the sum of its taps, or the largest of them where its `mode` is `max`, and the kernel
(`codegen.families.sampled.kernel`) knows it by nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fusewise.ops.grid_sample import grid_taps
from fusewise.ops.roi_align import roi_taps
from fusewise.ops.taps import Taps

__all__ = ["TAPS"]

TAPS: Mapping[str, Taps] = MappingProxyType({"GridSample": grid_taps, "RoiAlign": roi_taps})
"""By operator; each has the channels of operand 0 as axis 1 of its result."""
