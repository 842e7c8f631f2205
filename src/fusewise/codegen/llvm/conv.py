"""The convolution kernels: tasks whose anchor is Conv, of any rank, stride, dilation, padding and number of groups."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fusewise.codegen.kernel import Argument, Kernel, Params
from fusewise.codegen.llvm.conv_direct import (
    Direct,
    direct_arguments,
    direct_of,
    direct_space,
    emit_direct,
    matrices,
    matrix_axes,
)
from fusewise.codegen.llvm.conv_shape import convolution_of
from fusewise.codegen.llvm.gemm_entry import enter
from fusewise.codegen.llvm.gemm_finish import finisher
from fusewise.codegen.target import Target
from fusewise.lower.task import Reason, Task

__all__ = ["DIRECT"]


def _accepts(task: Task, target: Target) -> Reason | None:
    shape = convolution_of(task)
    return shape if isinstance(shape, Reason) else None


def _understood(task: Task, target: Target) -> Direct:
    shape = convolution_of(task)
    assert not isinstance(shape, Reason), shape
    return direct_of(shape, task, target)


def _space(task: Task, target: Target) -> Iterable[Params]:
    return direct_space(_understood(task, target), target)


def _arguments(task: Task, target: Target, params: Params) -> tuple[Argument, ...]:
    d = _understood(task, target)

    def arrange(weight: np.ndarray) -> np.ndarray:
        return matrices(weight, d.shape, d.side_by_side)

    return direct_arguments(d, task, params, arrange, "convolution", matrix_axes(d.shape, d.side_by_side))


def _build(task: Task, target: Target, params: Params, symbol: str) -> str:
    d = _understood(task, target)
    arguments = _arguments(task, target, params)
    module, f, pointers, worker, workers = enter(symbol, arguments)
    finish = finisher(f, task, target, pointers)
    emit_direct(f, d, task, target, params, arguments, pointers, worker, workers, finish)
    f.give_back()
    return module.text()


DIRECT = Kernel("direct-convolution", _accepts, _space, _arguments, _build)
