"""Examples that rules with axes are checked on; rules without any are checked on broadcasts of small shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fusewise.rewrite.rule import RuleSample

__all__ = ["REDUCTIONS", "REDUCTIONS_BESIDE", "REDUCTIONS_PAIR"]


def _axes(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _reduced(axes: np.ndarray | None, keep: int, **shapes: tuple[int, ...]) -> RuleSample:
    attributes: Mapping[str, Mapping[str, Any]] = {"r": {"keepdims": keep}}
    return RuleSample(shapes, {"axes": axes}, attributes)


REDUCTIONS: tuple[RuleSample, ...] = (
    _reduced(_axes(1), 1, x=(2, 3)),
    _reduced(_axes(-1, 0), 0, x=(2, 2, 3)),
    _reduced(None, 0, x=(2, 2)),
    _reduced(_axes(0), 0, x=(1, 4)),
)
"""One operand `x`, along the last axis, several axes, all axes, an axis of one element."""

REDUCTIONS_BESIDE: tuple[RuleSample, ...] = (
    _reduced(_axes(1), 1, x=(2, 3), c=(2, 1)),
    _reduced(_axes(1), 0, x=(2, 3), c=()),
    _reduced(_axes(0), 0, x=(3, 2), c=(2,)),
    _reduced(_axes(-1), 1, x=(2, 3), c=(1, 1)),
    _reduced(None, 0, x=(2, 2), c=()),
)
"""An operand `c` beside it that does not vary along the axes."""

REDUCTIONS_PAIR: tuple[RuleSample, ...] = (
    _reduced(_axes(1), 1, a=(2, 3), b=(2, 3)),
    _reduced(_axes(0, 2), 0, a=(2, 2, 2), b=(2, 2, 2)),
    _reduced(None, 0, a=(3,), b=(3,)),
)
"""Two operands `a` and `b` of one shape."""
