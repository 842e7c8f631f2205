"""The direct convolution kernels, for tasks whose anchor is Conv: any rank, stride, dilation, padding and number of groups.

That of bfloat16 reduces two neighbouring channels at a time (`pairs`), where they lie side by side: it is the convolution with
half as many channels, each element a pair. What it refuses is widened element by element by the general one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from fusewise.codegen.kernel import Argument, Kernel, Params
from fusewise.codegen.llvm.conv_direct import (
    Direct,
    direct_arguments,
    direct_of,
    direct_sharing,
    direct_space,
    emit_direct,
    matrices,
    matrix_axes,
)
from fusewise.codegen.llvm.conv_shape import Convolution, convolution_of
from fusewise.codegen.llvm.gemm_entry import enter
from fusewise.codegen.llvm.gemm_finish import finisher
from fusewise.codegen.llvm.gemm_plan import cycles_of
from fusewise.codegen.llvm.pairs import BFLOAT_PAIR, paired_view, with_room_for_pairs
from fusewise.codegen.packing import paired
from fusewise.codegen.strips import Sharing
from fusewise.codegen.target import Target
from fusewise.lower.task import Reason, Task

__all__ = ["DIRECT", "DIRECT_PAIRS"]


def _shape(task: Task, target: Target) -> Convolution | Reason:
    return convolution_of(task)


def _shape_of_pairs(task: Task, target: Target) -> Convolution | Reason:
    """The convolution over pairs of channels, or why there are none."""
    shape = convolution_of(task)
    if isinstance(shape, Reason):
        return shape
    if shape.computed is not None or shape.inputs % 2:
        return Reason("channels do not come in pairs")
    if shape.groups > 1 and shape.outputs < target.lanes:
        return Reason("groups of few channels")
    data = paired_view(shape.data, 1)
    return data if isinstance(data, Reason) else replace(shape, inputs=shape.inputs // 2, data=data)


def _kernel(name: str, shape_of: Callable[[Task, Target], Convolution | Reason]) -> Kernel:
    """The direct convolution of tasks that `shape_of` understands."""

    def accepts(task: Task, target: Target) -> Reason | None:
        shape = shape_of(task, target)
        return shape if isinstance(shape, Reason) else None

    def understood(task: Task, target: Target) -> Direct:
        shape = shape_of(task, target)
        assert not isinstance(shape, Reason), shape
        return direct_of(shape, task, target)

    def space(task: Task, target: Target) -> Iterable[Params]:
        d = understood(task, target)
        return direct_space(d, with_room_for_pairs(target) if d.shape.dtype == BFLOAT_PAIR else target)

    def arguments(task: Task, target: Target, params: Params) -> tuple[Argument, ...]:
        d = understood(task, target)
        if d.shape.dtype == BFLOAT_PAIR:
            return direct_arguments(d, task, params, lambda w: _arranged(paired(w, 1), d), "pairs of channels")
        axes = matrix_axes(d.shape, d.side_by_side)
        return direct_arguments(d, task, params, lambda weight: _arranged(weight, d), "convolution", axes)

    def build(task: Task, target: Target, params: Params, symbol: str) -> str:
        d, given = understood(task, target), arguments(task, target, params)
        module, f, pointers, worker, workers = enter(symbol, given)
        finish = finisher(f, task, target, pointers)
        emit_direct(f, d, task, target, params, given, pointers, worker, workers, finish)
        f.give_back()
        return module.text()

    def cycles(task: Task, target: Target, params: Params) -> int:
        d = understood(task, target)
        return 0 if d.by_tap else cycles_of(d.product, target, params)

    def sharing(task: Task, target: Target, params: Params) -> Sharing | None:
        return direct_sharing(understood(task, target), params)

    return Kernel(name, accepts, space, arguments, build, cycles, sharing)


def _arranged(weight: np.ndarray, d: Direct) -> np.ndarray:
    return matrices(weight, d.shape, d.side_by_side)


DIRECT = _kernel("direct-convolution", _shape)
DIRECT_PAIRS = _kernel("bfloat16-convolution", _shape_of_pairs)
