"""What a model is expected to need."""

from __future__ import annotations

import numpy as np

from fusewise import api
from fusewise.ir.dtypes import FLOAT32
from fusewise.ops.build import GraphBuilder
from fusewise.runtime.expected import expected_bytes


def test_weights_and_what_is_alive_at_once_are_expected():
    graph = api.load("zoo:mobilenet_v2")
    weights = sum(c.array.nbytes for c in graph.constants.values() if c.array.ndim >= 2 and c.dtype == FLOAT32)
    largest = 96 * 112 * 112 * 4
    assert expected_bytes(graph) == weights + 3 * largest


def test_indexed_tables_are_not_expected():
    graph = api.load("zoo:distilbert")
    constants = sum(constant.type.nbytes for constant in graph.constants.values())
    words = 30522 * 768 * 4
    assert 160e6 < expected_bytes(graph) < constants - words + 10e6


def test_dequantised_weights_are_not_expected():
    b = GraphBuilder()
    w, s = b.constant(np.zeros((64, 1000), np.int8)), b.constant(np.ones(1000, np.float32))
    y = b.op("MatMul", b.input("x", (2, 64)), b.op("Cast", b.op("DequantizeLinear", w, s, axis=1), to=1))
    assert expected_bytes(b.finish(b.op("Relu", y))) == 3 * 2 * 1000 * 4
