"""Grids and boxes for the reference evaluator: GridSample, DeformConv, AffineGrid, MaxRoiPool.

Its GridSample limits a position, not each element read, to the border for cubic interpolation, and knows no infinities; its
AffineGrid puts a single element at -1; DeformConv loops over elements; MaxRoiPool it has not.
"""

from __future__ import annotations

from typing import Any

from fusewise.ops.grids import affine_grid, deform_conv, grid_sample, max_roi_pool

__all__ = ["sample_operators"]

_MODES = {"bilinear": "linear", "bicubic": "cubic"}


def sample_operators() -> tuple[type[Any], ...]:
    """Classes for the argument `new_ops` of `ReferenceEvaluator`."""
    from onnx.reference.op_run import OpRun

    class GridSample(OpRun):
        op_domain = ""

        def _run(
            self, image: Any, grid: Any, mode: Any = None, padding_mode: Any = None, align_corners: Any = None
        ) -> tuple[Any, ...]:
            mode = _MODES.get(mode, mode or "linear")
            return (grid_sample(image, grid, mode, padding_mode or "zeros", bool(align_corners)),)

    class DeformConv(OpRun):
        op_domain = ""

        def _run(
            self, image: Any, weight: Any, offset: Any, bias: Any = None, mask: Any = None, **settings: Any
        ) -> tuple[Any, ...]:
            return (deform_conv(image, weight, offset, bias, mask, lambda name, default: settings[name] or default),)

    class AffineGrid(OpRun):
        op_domain = ""

        def _run(self, theta: Any, size: Any, align_corners: Any = None) -> tuple[Any, ...]:
            return (affine_grid(theta, [int(n) for n in size], bool(align_corners)),)

    class MaxRoiPool(OpRun):
        op_domain = ""

        def _run(self, image: Any, boxes: Any, pooled_shape: Any = None, spatial_scale: Any = None) -> tuple[Any, ...]:
            scale = 1.0 if spatial_scale is None else spatial_scale
            return (max_roi_pool(image, boxes, pooled_shape, scale),)

    return (GridSample, DeformConv, AffineGrid, MaxRoiPool)
