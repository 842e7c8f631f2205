"""Small models that all kernels have a task of, for tests that look at every kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
from benchmarks.operators.row import model_of
from benchmarks.operators.table import ROWS
from tests.codegen.quantized_products import quantised_products

from fusewise import api
from fusewise.codegen.candidates import candidates
from fusewise.codegen.families.attention.tiles import TILE_ATTENTION
from fusewise.codegen.families.convolution.direct import OUTER_CONVOLUTION
from fusewise.codegen.families.convolution.tiled import BYTE_TILE_CONV, TILE_CONVOLUTIONS
from fusewise.codegen.families.product.byte_tiles import BYTE_TILES
from fusewise.codegen.families.product.matrix_unit import TILE_PRODUCTS
from fusewise.codegen.families.product.outer import OUTER_BYTES, OUTER_FLOATS
from fusewise.codegen.kernel import Implementation
from fusewise.codegen.legalize import legalized
from fusewise.codegen.target import TARGETS, Target
from fusewise.fusion.plan import partition
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from fusewise.ir.graph import Graph
from fusewise.ir.partition import Partition
from fusewise.lower.task import RefusalReason, Task
from fusewise.lower.work import TaskWork, lower_partition
from fusewise.ops.build import GraphBuilder
from fusewise.trace import Trace

__all__ = ["FAMILIES", "groups_of", "operators", "tasks_of", "ways_of_all_kernels"]

FAMILIES = (
    "Attention",
    "Conv",
    "ConvInteger",
    "ConvTranspose",
    "CumSum",
    "GRU",
    "Gemm",
    "GridSample",
    "InstanceNormalization",
    "LayerNormalization",
    "LinearAttention",
    "MatMul",
    "MaxPool",
    "MaxRoiPool",
    "Resize",
    "RoiAlign",
    "ScatterElements",
    "Softmax",
    "TopK",
    "Transpose",
)
"""Operators that have most kernels between them, each by itself."""


_OTHERS = "LSTM", "MatMulInteger", "QLinearMatMul", "TreeEnsemble"
"""Those of other kernels."""


UNIT_KERNELS = (
    *TILE_PRODUCTS,
    BYTE_TILES,
    *TILE_CONVOLUTIONS,
    BYTE_TILE_CONV,
    *TILE_ATTENTION,
    OUTER_BYTES,
    OUTER_FLOATS,
    OUTER_CONVOLUTION,
)
"""Kernels of a matrix unit, of pairs in attention, and of outer products, which no machine that tests run code for has: those of
their families run by emulated instructions."""


def groups_of(graph: Graph, precision: str = "float32") -> Partition:
    trace = Trace()
    return partition(legalized(graph, TARGETS[0], trace, precision=precision), trace)


@cache
def operators() -> Sequence[Partition]:
    return [groups_of(api.load(model_of(row, 0)[0])) for row in ROWS if row.op in FAMILIES] + [groups_of(_chain())]


def _chain() -> Graph:
    """What kernels take that ask for channels last, or for weights of bfloat16."""
    rng = np.random.default_rng(0)

    def weights(*shape: int, dtype: DType = FLOAT32) -> str:
        return b.constant(rng.standard_normal(shape, np.float32).astype(dtype.numpy))

    b = GraphBuilder("chain")
    y = b.op("Conv", b.input("x", (1, 64, 28, 28)), weights(64, 64, 3, 3), pads=[1] * 4)
    y = b.op("Relu", b.op("InstanceNormalization", y, weights(64), weights(64)))
    y = b.op("Mul", y, b.op("Sigmoid", b.op("GlobalAveragePool", y)))
    y = b.op("Relu", b.op("Conv", y, weights(32, 64, 1, 1)))
    y = b.op("Cast", b.op("Flatten", b.op("GlobalAveragePool", y)), to=BFLOAT16.onnx)
    return b.finish(b.op("Cast", b.op("MatMul", y, weights(32, 48, dtype=BFLOAT16)), to=FLOAT32.onnx))


def _convolutions(channels: int, side: int, kernel: int, op: str = "Conv") -> Graph:
    """One behind the other: between them channels come last."""
    b = GraphBuilder("convolutions")
    weights = b.constant(np.ones((channels, channels, kernel, kernel), np.float32))
    value = b.input("x", (1, channels, side, side))
    for _ in range(3):
        value = b.op(op, value, weights, pads=[kernel // 2] * 4)
    return b.finish(value)


def _short_products(dtype: DType, rows: int, depth: int, columns: int) -> Graph:
    """A product of float32 with weights of 16 bits."""
    b = GraphBuilder("short")
    weights = b.op("Cast", b.constant(np.ones((depth, columns), dtype.numpy)), to=FLOAT32.onnx)
    return b.finish(b.op("MatMul", b.input("x", (rows, depth)), weights))


def _others() -> Iterator[Partition]:
    """For kernels that none of these needs."""
    yield from (groups_of(api.load(model_of(row, 0)[0])) for row in ROWS if row.op in _OTHERS)
    yield groups_of(_convolutions(64, 28, 3))
    yield groups_of(_convolutions(1024, 32, 1))
    yield groups_of(_convolutions(32, 8, 1), "bfloat16")
    yield groups_of(_convolutions(32, 8, 1, "ConvTranspose"), "bfloat16")
    for dtype in (FLOAT16, BFLOAT16):
        yield groups_of(_short_products(dtype, 5, 128, 144))
        yield groups_of(_short_products(dtype, 512, 1024, 1024))
    b = GraphBuilder("quantised")
    yield groups_of(b.finish(*quantised_products(b, 5, 128, 144)))


def tasks_of(groups: Partition) -> dict[str, Task]:
    """Its tasks that have elements, by key."""
    work = (one for one in lower_partition(groups, Trace()).work if isinstance(one, TaskWork))
    return {one.bound.task.key: one.bound.task for one in work if 0 not in one.bound.task.extents}


def ways_of_all_kernels(target: Target, workers: int, tasks: int, schedules: int) -> list[Implementation]:
    """Of every kernel the first schedules for some tasks that it accepts, be it the first to accept them or not."""
    machine, found = replace(target, workers=workers), dict[str, list[Implementation]]()
    for groups in (*operators(), *_others()):
        for task in tasks_of(groups).values():
            for kernel in candidates(task):
                ways, held = kernel.implementations(task, machine), found.setdefault(kernel.name, [])
                if not isinstance(ways, RefusalReason) and len({way.task.key for way in held}) < tasks:
                    held += islice(ways, schedules)
    return [way for held in found.values() for way in held]
