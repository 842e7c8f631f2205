"""A batch: of zoo models, of files with a named first dimension, and of others not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fusewise
from fusewise import api
from fusewise.benchmarking.batch import batched
from fusewise.errors import UsageError
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder


def saved(path: Path, *shapes: tuple[int | str, ...]) -> str:
    b = GraphBuilder()
    api.save(b.finish(*(b.op("Relu", b.input(f"x{k}", shape)) for k, shape in enumerate(shapes))), path)
    return str(path)


def test_zoo_models_are_built_with_it() -> None:
    graph, symbols = batched("zoo:squeezenet1_1", 3)
    assert graph.tensor(graph.inputs[0]).dims[0] == 3
    assert symbols == {}


def test_named_dimensions_get_it(tmp_path: Path) -> None:
    graph, symbols = batched(saved(tmp_path / "m.onnx", ("n", 4), ("n", 2)), 8)
    assert symbols == {"n": 8}
    assert api.load(graph, symbols=symbols).tensor("x1").dims == (8, 2)


def test_names_and_numbers_do_not_mix(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'x1' is a number and that of others has a name"):
        batched(saved(tmp_path / "m.onnx", ("n", 4), (1, 2)), 8)


def attention(batch: int, *, fixed: bool = False) -> Graph:
    """Heads apart and together again by Reshape, with the batch among the dimensions stated; `fixed` loses it in a sum."""
    b, rng = GraphBuilder(), np.random.default_rng(0)
    x = b.input("x", (batch, 6, 8))
    h = b.op("MatMul", x, b.constant(rng.standard_normal((8, 8), np.float32)))
    h = b.op("Transpose", b.op("Reshape", h, b.constant([batch, 6, 2, 4])), perm=[0, 2, 1, 3])
    h = b.op("Reshape", h, b.constant([batch * 2, 6, 4]))
    h = b.op("MatMul", b.op("Softmax", b.op("MatMul", h, b.op("Transpose", h, perm=[0, 2, 1])), axis=-1), h)
    h = b.op("Reshape", b.op("Reshape", h, b.constant([batch, 2, 6, 4])), b.constant([batch, -1]))
    if fixed:
        h = b.op("Add", h, b.op("ReduceMean", h, b.constant([0]), keepdims=1), name="mixed")
    return b.finish(h)


@pytest.mark.parametrize("old, new", [(1, 4), (2, 6), (4, 2)])
def test_a_fixed_batch_is_rewritten_where_shapes_follow(tmp_path: Path, old: int, new: int) -> None:
    api.save(attention(old), tmp_path / "m.onnx")
    graph, symbols = batched(str(tmp_path / "m.onnx"), new)
    assert symbols == {} and graph.tensor(graph.outputs[0]).dims == (new, 48)
    x = np.random.default_rng(1).standard_normal((new, 6, 8), np.float32)
    found = fusewise.compile(graph, cache=False, threads=1).run(None, {"x": x})[0]
    alone = fusewise.compile(attention(1), cache=False, threads=1)
    expected = np.concatenate([alone.run(None, {"x": x[k : k + 1]})[0] for k in range(new)])
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def test_what_holds_the_batch_is_named() -> None:
    with pytest.raises(UsageError, match=r"node 'mixed' \(Add\)|node .* \(ReduceMean\)"):
        batched(attention(1, fixed=True), 4)
    b = GraphBuilder()
    h = b.op("Concat", b.input("x", (1, 4)), b.constant(np.ones((1, 3), np.float32)), axis=1, name="joined")
    with pytest.raises(UsageError, match="cannot be run for a batch of 4: node 'joined'"):
        batched(b.finish(h), 4)
    b = GraphBuilder()
    flat = b.op("Reshape", b.input("x", (1, 4)), b.constant([4]))
    with pytest.raises(UsageError, match="node 'added'"):
        batched(b.finish(b.op("Add", flat, b.constant(np.ones(4, np.float32)), name="added")), 3)
