"""The order of dimensions that values get, seen in the strides they are given."""

from __future__ import annotations

import numpy as np
import pytest

from fusewise.ir.partition import Group, Partition
from fusewise.lower.layout import plan_layout
from fusewise.ops.build import GraphBuilder


def strides_after(shape: tuple[int, ...], permutation: tuple[int, ...] | None) -> tuple[int, ...]:
    """Of a value computed from a convolution's (1, 12, 4, 6) reshaped and transposed, every node a group of its own."""
    b = GraphBuilder()
    y = b.op("Conv", b.input("x", (1, 3, 4, 6)), b.constant(np.ones((12, 3, 1, 1), np.float32)))
    y = b.op("Reshape", y, b.constant(list(shape)))
    if permutation is not None:
        y = b.op("Transpose", y, perm=list(permutation))
    y = b.op("Relu", y)
    graph = b.finish(b.op("Neg", y))
    storage = plan_layout(graph, Partition(graph, tuple(Group((k,)) for k in range(len(graph.nodes))))).storage[y]
    return storage.strides


@pytest.mark.parametrize(
    ("shape", "permutation", "strides"),
    [
        ((1, 12, 24), None, (288, 1, 12)),
        ((1, 12, 24), (0, 2, 1), (288, 12, 1)),  # patches of an image: a row each, as what follows reads them
        ((3, 4, 24), None, (4, 1, 12)),
        ((12, 4, 1, 6), None, (1, 72, 72, 12)),
        ((1, 24, 12), None, (288, 12, 1)),  # a mixture of rows and channels lies as ONNX has it
        ((288,), None, (1,)),
    ],
)
def test_a_reshape_keeps_channels_last(shape, permutation, strides) -> None:
    found = strides_after(shape, permutation)
    dims = shape if permutation is None else tuple(shape[d] for d in permutation)
    assert [s for s, n in zip(found, dims, strict=True) if n > 1] == [
        s for s, n in zip(strides, dims, strict=True) if n > 1
    ]
