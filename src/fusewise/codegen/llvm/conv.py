"""The direct convolution kernels, for tasks whose anchor is Conv: any rank, stride, dilation, padding and number of groups.

That of bfloat16 reduces two neighbouring channels at a time (`pairs`), where they lie side by side: it is the convolution with
half as many channels, each element a pair. What it refuses is widened element by element by the general one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from fusewise.codegen.kernel import Argument, Kernel, Params, kernel_of
from fusewise.codegen.llvm.conv_direct import direct_arguments, emit_direct, matrices, matrix_axes
from fusewise.codegen.llvm.conv_plan import Direct, direct_of, direct_sharing, direct_space
from fusewise.codegen.llvm.conv_shape import convolution_of
from fusewise.codegen.llvm.gemm_entry import enter
from fusewise.codegen.llvm.gemm_finish import finisher
from fusewise.codegen.llvm.gemm_plan import cycles_of, product_pieces, tile_of
from fusewise.codegen.llvm.pairs import BFLOAT_PAIR, paired_view, with_room_for_pairs
from fusewise.codegen.overwrite import shared_pointers
from fusewise.codegen.packing import paired
from fusewise.codegen.target import Target
from fusewise.lower.task import Reason, Task

__all__ = ["DIRECT", "DIRECT_PAIRS"]


def _direct(task: Task, target: Target) -> Direct | Reason:
    """The convolution as a product."""
    shape = convolution_of(task)
    return shape if isinstance(shape, Reason) else direct_of(shape, task, target)


def _direct_of_pairs(task: Task, target: Target) -> Direct | Reason:
    """The convolution over pairs of channels as a product, or why there are none."""
    shape = convolution_of(task)
    if isinstance(shape, Reason):
        return shape
    if shape.computed is not None or shape.inputs % 2:
        return Reason("channels do not come in pairs")
    if shape.groups > 1 and shape.outputs < target.lanes:
        return Reason("groups of few channels")
    data = paired_view(shape.data, 1)
    if isinstance(data, Reason):
        return data
    return direct_of(replace(shape, inputs=shape.inputs // 2, data=data), task, target)


def _space(d: Direct, target: Target) -> Iterable[Params]:
    return direct_space(d, with_room_for_pairs(target) if d.shape.dtype == BFLOAT_PAIR else target)


def _arguments(d: Direct, task: Task, params: Params) -> tuple[Argument, ...]:
    if d.shape.dtype == BFLOAT_PAIR:
        return direct_arguments(d, task, params, lambda w: _arranged(paired(w, 1), d), "pairs of channels")
    axes = matrix_axes(d.shape, d.side_by_side)
    return direct_arguments(d, task, params, lambda weight: _arranged(weight, d), "convolution", axes)


def _arranged(weight: np.ndarray, d: Direct) -> np.ndarray:
    return matrices(weight, d.shape, d.side_by_side)


def _build(d: Direct, task: Task, target: Target, params: Params, symbol: str) -> str:
    given = _arguments(d, task, params)
    module, f, pointers, share = enter(symbol, given, shared=shared_pointers(task))
    finish = finisher(f, task, target, pointers)
    emit_direct(f, d, task, target, params, given, pointers, share, finish)
    f.give_back()
    return module.text()


def _cycles(d: Direct, target: Target, params: Params) -> int:
    return 0 if d.by_tap or "chunk" in params else cycles_of(d.product, target, params)


def _pieces(d: Direct, target: Target, params: Params) -> int:
    return product_pieces(d.product, target, params)


def _writes_once(d: Direct, params: Params) -> bool:
    return d.side_by_side == 1 and d.product.is_written_once(tile_of(params))


def _kernel(name: str, understand: Callable[[Task, Target], Direct | Reason]) -> Kernel:
    return kernel_of(
        name, understand, _space, _arguments, _build, _cycles, direct_sharing, _pieces, _writes_once, level="tidy"
    )


DIRECT = _kernel("direct-convolution", _direct)
DIRECT_PAIRS = _kernel("bfloat16-convolution", _direct_of_pairs)
