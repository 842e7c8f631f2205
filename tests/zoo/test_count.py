"""Counts of parameters and multiply-accumulates, on graphs small enough to count by hand."""

from __future__ import annotations

import numpy as np

from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.zoo.count import macs, parameters


def _zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def _one(kind: str, shape: tuple[int, ...], *constants: np.ndarray, **attributes: object) -> Graph:
    b = GraphBuilder()
    return b.finish(b.op(kind, b.input("x", shape), *(b.constant(c) for c in constants), **attributes))


def test_a_grouped_convolution_reads_only_its_group() -> None:
    graph = _one("Conv", (1, 8, 10, 10), _zeros(16, 2, 3, 3), _zeros(16), group=4)
    assert parameters(graph) == 16 * 2 * 9 + 16
    assert macs(graph) == 16 * 8 * 8 * 2 * 9


def test_a_transposed_convolution_counts_per_input() -> None:
    graph = _one("ConvTranspose", (1, 6, 5, 5), _zeros(6, 4, 2, 2), strides=(2, 2))
    assert graph.tensor(graph.outputs[0]).dims == (1, 4, 10, 10)
    assert macs(graph) == 6 * 25 * 4 * 4


def test_products() -> None:
    assert macs(_one("Gemm", (7, 3), _zeros(5, 7).T.copy(), transA=1)) == 3 * 5 * 7
    assert macs(_one("MatMul", (2, 4, 3, 7), _zeros(7, 5))) == 2 * 4 * 3 * 5 * 7


def test_statistics_scalars_and_settings_are_no_parameters() -> None:
    graph = _one("BatchNormalization", (1, 4, 2, 2), *(_zeros(4) for _ in range(4)))
    assert parameters(graph) == 8
    assert parameters(_one("Mul", (3,), np.float32(2))) == 0
    assert parameters(_one("Reshape", (6,), np.array([2, 3]))) == 0
    assert parameters(_one("Resize", (1, 1, 2, 2), np.array([], np.float32), np.array([1, 1, 2, 2], np.float32))) == 0


def test_a_shared_weight_counts_once_but_works_twice() -> None:
    b = GraphBuilder()
    x, matrix = b.input("x", (1, 8)), b.constant(_zeros(8, 8))
    graph = b.finish(b.op("MatMul", b.op("MatMul", x, matrix), matrix))
    assert (parameters(graph), macs(graph)) == (64, 128)
