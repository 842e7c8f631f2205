"""The printed form parses back to an equal graph, whatever the names, attributes and constants."""

from __future__ import annotations

import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.errors import UsageError
from fusewise.ir.dtypes import DTYPES, FLOAT32, INT64
from fusewise.ir.graph import Attribute, Constant, Graph, Node, Subgraph, attributes_of
from fusewise.ir.parse import parse_graph
from fusewise.ir.text import print_graph, print_node, side_table
from fusewise.ir.types import OptionalType, SequenceType, TensorType, ValueType
from fusewise.ops.build import GraphBuilder

TINY = """\
graph "tiny" opset 23
input x: float32[1,8]
constant w: float32[8,4] = #w
constant two: float32[] = 2.0
constant axes: int64[2] = [0, -1]
y: float32[1,4] = MatMul(x, w) @dense
z: float32[1,4] = Mul(y, two) @scale from gain, "a b"
m: float32[1,1] = ReduceMax(z, axes) {keepdims=1} @top
return z, m
"""


def test_text_reads_as_documented() -> None:
    weights = Constant(np.arange(32, dtype=np.float32).reshape(8, 4))
    graph = parse_graph(TINY, {"w": weights})
    assert graph.nodes[0] == Node("MatMul", ("x", "w"), ("y",), (), "", "dense", ("dense",))
    assert graph.nodes[1].origin == ("gain", "a b")
    assert graph.nodes[2].attributes == (("keepdims", 1),)
    assert graph.types["m"] == TensorType(FLOAT32, (1, 1))
    assert graph.constants["w"] is weights
    assert print_graph(graph) == TINY.replace("#w", f"#{weights.digest}")
    assert print_graph(graph, digests=False) == TINY.replace("#w", "#")


def test_one_node_as_an_excerpt() -> None:
    b = GraphBuilder()
    x = b.input("x", (2, 3))
    y = b.op("LayerNormalization", x, b.constant(np.ones(3, np.float32), "s"), axis=-1, epsilon=1e-5, name="norm")
    graph = b.finish(y)
    line = "norm_out: float32[2,3] = LayerNormalization(x, s) {axis=-1, epsilon=1e-05} @norm"
    assert print_node(graph, graph.nodes[0]) == line


NAMES = st.one_of(
    st.text(string.ascii_letters + "_/.:-0", min_size=1, max_size=6),
    st.sampled_from("_ input return from inf nan captures a::b inf.x true 0 /a/b.1 body tensor".split()),
    st.text(min_size=1, max_size=4),
)
DIMS = st.one_of(st.none(), st.integers(0, 99), NAMES)
TENSORS = st.builds(TensorType, st.sampled_from(DTYPES), st.one_of(st.none(), st.lists(DIMS, max_size=3).map(tuple)))
KINDS: st.SearchStrategy[ValueType] = st.one_of(
    TENSORS, st.builds(SequenceType, TENSORS), st.builds(OptionalType, st.builds(SequenceType, TENSORS))
)


@st.composite
def constants(draw: st.DrawFn) -> Constant:
    dtype = draw(st.sampled_from([row for row in DTYPES if row.name != "string"]))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    size = int(np.prod(shape, dtype=int))
    if dtype.bits < 8 or dtype.kind == "bool":
        values = draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
        return Constant(np.array(values, np.int64).astype(dtype.numpy).reshape(shape))
    raw = draw(st.binary(min_size=size * dtype.itemsize, max_size=size * dtype.itemsize))
    return Constant(np.frombuffer(raw, dtype.numpy).reshape(shape))


STRINGS = st.lists(st.text(max_size=5), max_size=4).map(lambda x: Constant(np.array(x, dtype=object)))
FLOATS = st.one_of(st.floats(allow_nan=False), st.floats(allow_nan=False, width=32))
SCALARS: st.SearchStrategy[Attribute] = st.one_of(
    st.integers(-(2**63), 2**63 - 1), FLOATS, st.text(max_size=6), st.binary(max_size=6)
)
ATTRIBUTES: st.SearchStrategy[Attribute] = st.one_of(
    SCALARS,
    constants(),
    STRINGS,
    st.lists(st.integers(), max_size=3).map(tuple),
    st.lists(FLOATS, max_size=3).map(tuple),
    st.lists(constants(), max_size=2).map(tuple),
    st.builds(Subgraph, st.binary(max_size=9), st.lists(NAMES, max_size=2).map(tuple)),
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any graph the printer may meet; it need not be valid ONNX."""
    names = draw(st.lists(NAMES, min_size=4, max_size=9, unique=True))
    cut = draw(st.integers(1, len(names) - 2))
    inputs, weights, made = names[:1], names[1:cut], names[cut:]
    held = {name: draw(st.one_of(constants(), STRINGS)) for name in weights}
    nodes = []
    known = [*inputs, *weights]
    for name in made:
        operands = st.lists(st.sampled_from(["", *known]), max_size=3).map(tuple)
        keys = draw(st.lists(NAMES, max_size=2, unique=True))
        nodes.append(
            Node(
                draw(NAMES),
                draw(operands),
                draw(st.sampled_from([(name,), ("", name)])),
                attributes_of(**{key: draw(ATTRIBUTES) for key in keys}),
                draw(st.sampled_from(["", "com.example"])),
                draw(st.one_of(st.just(""), NAMES)),
                draw(st.lists(NAMES, max_size=2).map(tuple)),
                tuple(name for name in draw(operands) if name),
            )
        )
        known.append(name)
    types = {name: draw(KINDS) for name in names if name not in held}
    types.update({name: constant.type for name, constant in held.items()})
    return Graph(
        inputs=tuple(inputs),
        outputs=tuple(made[-1:]),
        nodes=tuple(nodes),
        types=types,
        constants=held,
        name=draw(st.text(max_size=5)),
        opsets=draw(st.sampled_from([(), (("com.example", 2),)])),
        metadata=draw(st.sampled_from([(), (("key", "a value"), ("", "=:"))])),
    )


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_parsing_undoes_printing(graph: Graph) -> None:
    text = print_graph(graph)
    again = parse_graph(text, side_table(graph))
    assert again == graph
    assert print_graph(again) == text


def test_long_and_unprintable_constants_go_to_the_side_table() -> None:
    payload = np.array([0x7FC00001], np.uint32).view(np.float32)  # a NaN that its name would not bring back
    long = np.zeros(9, np.int64)
    b = GraphBuilder()
    for name, array in (("nan", payload), ("long", long), ("short", np.array([np.nan, -0.0], np.float32))):
        b.constant(array, name)
    graph = b.finish("short")
    table = side_table(graph)
    assert {value.type for value in table.values() if isinstance(value, Constant)} == {
        TensorType(FLOAT32, (1,)),
        TensorType(INT64, (9,)),
    }
    assert "constant short: float32[2] = [nan, -0.0]" in print_graph(graph)


@pytest.mark.parametrize(
    "line, complaint",
    [
        ("y = Relu(x", "line 2.*expected"),
        ("y = Relu(x) {axis=}", "line 2"),
        ("constant w: float32[2] = #missing", "line 2.*missing"),
        ("constant w: float31[2] = [1.0, 2.0]", "line 2.*float31"),
        ("constant w: float32[3] = [1.0, 2.0]", "line 2"),
        ("y = Relu(x) $", "line 2.*column 13"),
        ("y = Relu(x) extra", "line 2.*unexpected 'extra'"),
    ],
)
def test_a_broken_line_is_named(line: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse_graph(f'graph "g" opset 23\n{line}\n')
