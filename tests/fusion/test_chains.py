"""Chains that fixed patterns cannot fuse: each is one group, as a rule one kernel, and agrees with the reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.fusion.graphs import feeds_for, model_of

from fusewise.benchmarking.accuracy import TOLERANCES, relative_error
from fusewise.codegen.assemble import generate
from fusewise.fusion.plan import partition
from fusewise.ops.build import GraphBuilder
from fusewise.runtime.executable import build
from fusewise.runtime.host import host_target
from fusewise.trace import INTER_BLOCK, INTRA_BLOCK, Trace

Chain = Callable[[GraphBuilder], list[str]]


def weights(b: GraphBuilder, *shape: int) -> str:
    return b.constant(np.random.default_rng(len(b.constants)).standard_normal(shape, dtype=np.float32) / 4)


def transposed_convolution_into_concat(b: GraphBuilder) -> list[str]:
    x = b.input("x", (1, 8, 6, 5))
    up = b.op("Relu", b.op("ConvTranspose", x, weights(b, 8, 4, 2, 2), weights(b, 4), strides=[2, 2]))
    return [b.op("Concat", up, weights(b, 1, 4, 12, 10), axis=1)]


def projection_to_heads(b: GraphBuilder) -> list[str]:
    h = b.op("MatMul", b.input("x", (2, 6, 16)), weights(b, 16, 16))
    h = b.op("Transpose", b.op("Reshape", h, b.constant([2, 6, 4, 4])), perm=[0, 2, 1, 3])
    return [b.op("Add", h, b.input("y", (2, 4, 6, 4)))]


def spread(b: GraphBuilder) -> list[str]:
    centred = b.op("Sub", b.input("x", (24, 33)), b.input("mean", (24, 1)))
    variance = b.op("ReduceMean", b.op("Pow", centred, b.constant(2.0)), b.constant([-1]))
    return [b.op("Sqrt", b.op("Add", variance, b.constant(1e-5)))]


def exported_activation(b: GraphBuilder) -> list[str]:
    h = b.op(
        "Gemm", b.op("Reshape", b.input("x", (2, 6, 16)), b.constant([12, 16])), weights(b, 16, 24), weights(b, 24)
    )
    return [b.op("Gelu", b.op("Reshape", h, b.constant([2, 6, 24])))]


def residual_in_three_dimensions(b: GraphBuilder) -> list[str]:
    h = b.op("Gemm", b.op("Reshape", b.input("x", (2, 6, 16)), b.constant([12, 16])), weights(b, 16, 24))
    return [b.op("Add", b.op("Reshape", h, b.constant([2, 6, 24])), b.input("skip", (2, 6, 24)))]


def context_of_heads(b: GraphBuilder) -> list[str]:
    c = b.op("MatMul", b.input("p", (1, 4, 9, 9)), b.input("v", (1, 4, 9, 8)))
    return [b.op("Reshape", b.op("Transpose", c, perm=[0, 2, 1, 3]), b.constant([1, 9, 32]))]


def scaled_into_pointwise(b: GraphBuilder) -> list[str]:
    scaled = b.op("Mul", b.input("x", (1, 16, 7, 7)), b.input("s", (1, 16, 1, 1)))
    return [b.op("Relu", b.op("Conv", scaled, weights(b, 12, 16, 1, 1), weights(b, 12)))]


def two_results(b: GraphBuilder) -> list[str]:
    c = b.op("Conv", b.input("x", (1, 8, 6, 6)), weights(b, 8, 8, 3, 3), pads=[1, 1, 1, 1])
    s = b.op("Sigmoid", c)
    return [s, b.op("Transpose", b.op("Mul", c, s), perm=[0, 2, 3, 1])]


CHAINS: tuple[Chain, ...] = (
    transposed_convolution_into_concat,
    projection_to_heads,
    spread,
    exported_activation,
    residual_in_three_dimensions,
    context_of_heads,
    scaled_into_pointwise,
    two_results,
)


SECOND_STEP = (transposed_convolution_into_concat, projection_to_heads)
"""The constant half of the result is copied; the heads of a graph's output do not lie evenly to the product's columns."""


@pytest.mark.parametrize("switched_off", [(), (INTRA_BLOCK,), (INTER_BLOCK,)], ids="-".join)
@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.__name__)
def test_a_chain_is_one_group_and_right(chain: Chain, switched_off: tuple[str, ...]) -> None:
    import onnxruntime

    b = GraphBuilder(chain.__name__)
    graph = b.finish(*chain(b))
    feeds = feeds_for(graph, 0)
    session = onnxruntime.InferenceSession(model_of(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    trace = Trace(disabled=frozenset(switched_off))
    groups = partition(graph, trace)
    program = generate(groups, host_target(), trace, workers=2)
    found = build(program, threads=2, cache=None).run(None, feeds)
    for got, wanted in zip(found, session.run(None, feeds), strict=True):
        assert relative_error(got, wanted) <= TOLERANCES["float32"]
    if INTRA_BLOCK not in switched_off:
        assert (len(groups.groups), len(program.steps)) == (1, 1 + (chain in SECOND_STEP))
