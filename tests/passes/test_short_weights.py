"""Which weights of 16 bits products read as they are stored, whatever was done to them before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fusewise
from fusewise.errors import UsageError
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from fusewise.ir.graph import Constant, Graph
from fusewise.ir.verify import verify
from fusewise.ops.build import GraphBuilder
from fusewise.passes.combine_parallel import combine_dense
from fusewise.passes.fold_constants import fold_constants
from fusewise.passes.later import rounded, transposed
from fusewise.passes.short_weights import halved_weights, short_weights
from fusewise.passes.transposed_weights import simplify_fc_transpose
from fusewise.trace import Trace

DEPTH, COLUMNS = 96, 256
RNG = np.random.default_rng(3)
WEIGHTS = (RNG.standard_normal((DEPTH, COLUMNS)) / 10).astype(np.float32)


def widened(b: GraphBuilder, dtype: DType, shape: tuple[int, ...] = (DEPTH, COLUMNS)) -> str:
    return b.op("Cast", b.constant(np.resize(WEIGHTS, shape).astype(dtype.numpy)), to=FLOAT32.onnx)


def applied(graph: Graph) -> Graph:
    for step in (fold_constants, simplify_fc_transpose, combine_dense):
        graph = step(graph, Trace())
    after = short_weights(graph, Trace())
    verify(after)
    assert short_weights(graph, Trace(limit=0)) is graph, "every change asks for leave"
    return after


def read_as(graph: Graph) -> list[str]:
    """What the weights of products are stored as, if they are cast."""
    makers = [graph.producer_of(node.inputs[1]) for node in graph.nodes if node.op in ("Gemm", "MatMul")]
    return [
        "" if maker is None or maker.op != "Cast" else graph.constants[maker.inputs[0]].dtype.name for maker in makers
    ]


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
def test_turned_and_joined_weights_are_read_as_they_are_stored(dtype: DType) -> None:
    b = GraphBuilder("weights")
    x = b.input("x", (3, DEPTH))
    turned = b.op("Transpose", widened(b, dtype, (COLUMNS, DEPTH)), perm=[1, 0])
    parts = [b.op("MatMul", x, widened(b, dtype)), b.op("MatMul", x, turned)]
    after = applied(b.finish(*parts))
    assert read_as(after) == [dtype.name]
    (stored,) = (one for one in after.constants.values() if one.dtype == dtype)
    assert stored.type.dims == (DEPTH, 2 * COLUMNS)
    np.testing.assert_array_equal(stored.array[:, :COLUMNS], WEIGHTS.astype(dtype.numpy))


def test_what_is_small_scaled_or_of_float32_stays() -> None:
    b = GraphBuilder("others")
    x = b.input("x", (3, DEPTH))
    small = b.op("MatMul", x, widened(b, FLOAT16, (DEPTH, 4)))
    scaled = b.op("Gemm", x, widened(b, FLOAT16), alpha=0.5)
    graph = fold_constants(b.finish(small, scaled, b.op("MatMul", x, b.constant(WEIGHTS))), Trace())
    assert read_as(short_weights(graph, Trace())) == ["", "", ""]


def test_what_was_made_of_them_is_what_they_are() -> None:
    short = Constant(WEIGHTS.astype(np.float16))
    wide = transposed(rounded(short, FLOAT32), (1, 0))
    assert wide.short is not None and wide.short.dtype == FLOAT16
    np.testing.assert_array_equal(wide.array, wide.short.array.astype(np.float32))
    assert rounded(rounded(short, FLOAT32), BFLOAT16).short is None, "rounded once more, they are others"


def answers(of: Any, feeds: dict[str, np.ndarray], **settings: Any) -> tuple[list[np.ndarray], list[str], int]:
    """Results, kernels, and bytes of constants."""
    model = fusewise.compile(of, cache=False, strict=True, **settings)
    names = [event.what for event in model.trace.events if event.kind == "kernel"]
    held = sum(array.nbytes for array in model.executable.contents.constants.values())
    return model.run(None, feeds), names, held


def test_a_model_in_float16_holds_no_weights_in_float32() -> None:
    """Its answers are those of the rounded weights in float32, to 1e-5, before they are rounded themselves."""
    rows = {"x": RNG.standard_normal((2, DEPTH)).astype(np.float16)}
    b, wide = GraphBuilder("short"), GraphBuilder("wide")
    short = WEIGHTS.astype(np.float16)
    of = b.finish(b.op("Cast", b.op("MatMul", b.input("x", (2, DEPTH), FLOAT16), b.constant(short)), to=FLOAT32.onnx))
    x = wide.op("Cast", wide.input("x", (2, DEPTH), FLOAT16), to=FLOAT32.onnx)
    other = wide.finish(wide.op("MatMul", x, wide.constant(short.astype(np.float32))))
    (found,), names, held = answers(of, rows)
    assert "float16-weights-product" in names and held == short.nbytes
    (expected,), *_ = answers(other, rows)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_float16_as_a_precision_rounds_weights_and_tables() -> None:
    b = GraphBuilder("wide")
    ids = b.input("ids", (5,), FLOAT32)
    rows = b.op("Gather", b.constant(WEIGHTS), b.op("Cast", ids, to=7))
    of = b.finish(b.op("MatMul", rows, b.constant(np.ascontiguousarray(WEIGHTS.T))))
    feeds = {"ids": np.arange(5, dtype=np.float32)}
    (found,), names, held = answers(of, feeds, precision="float16")
    half = WEIGHTS.astype(np.float16).astype(np.float64)
    np.testing.assert_allclose(found, half[:5] @ half.T, rtol=1e-5, atol=1e-5)
    assert "float16-weights-product" in names and held <= WEIGHTS.nbytes + 4096
    with pytest.raises(UsageError, match="changes answers"):
        fusewise.compile(of, precision="float16", exact=True, cache=False)


@pytest.mark.parametrize("bad", [7e4, np.inf, np.nan])
def test_weights_that_a_float16_cannot_hold_stay(bad: float) -> None:
    b, weights = GraphBuilder("large"), WEIGHTS.copy()
    weights[3, 5] = bad
    graph = b.finish(b.op("MatMul", b.input("x", (3, DEPTH)), b.constant(weights)))
    assert halved_weights(graph, Trace()) is graph
