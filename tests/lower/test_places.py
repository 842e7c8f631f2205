"""Where values lie in a group's index space: the index map found is the one NumPy performs."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.lower.places import hub_index, places, strides_at
from fusewise.ops.build import GraphBuilder
from fusewise.ops.expr import index
from fusewise.ops.interpret import evaluate_expression


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(st.randoms(use_true_random=False))
def test_movement_is_followed_forwards_and_backwards(source: Random) -> None:
    b = GraphBuilder()
    shape = source.choice(((4, 6), (2, 3, 4), (1, 5, 2), (12,)))
    values = [b.op("Relu", b.input("x", shape))]
    for _ in range(5):
        x = values[-1]
        dims = b.shape(x)
        step = source.randrange(4)
        if step == 0:
            values.append(b.op("Transpose", x, perm=source.sample(range(len(dims)), len(dims))))
        elif step == 1:
            values.append(b.op("Reshape", x, b.constant(source.sample(dims, len(dims)))))
        elif step == 2:
            values.append(b.op("Flatten", x, axis=source.randrange(len(dims) + 1)))
        else:
            values.append(b.op("Add", x, b.constant(1.0)))
    graph = b.finish(values[-1])
    contents = {values[0]: np.arange(np.prod(shape)).reshape(shape)}
    for node in graph.nodes[1:]:
        x = contents[node.inputs[0]]
        if node.op == "Transpose":
            x = x.transpose(node.attribute("perm"))
        contents[node.outputs[0]] = x.reshape(graph.tensor(node.outputs[0]).dims)
    hub = source.choice(values)
    extents = {f"i{d}": extent for d, extent in enumerate(graph.tensor(hub).dims)}
    found = places(graph, graph.nodes, hub)
    assert set(found) == set(values)
    for value, place in found.items():
        at = tuple(np.broadcast_to(evaluate_expression(e, extents, {})[0], graph.tensor(hub).dims) for e in place)
        assert np.array_equal(contents[value][at], contents[hub])


def test_a_value_read_at_another_place_is_not_at_the_hub() -> None:
    b = GraphBuilder()
    x = b.input("x", (4, 8))
    s = b.op("Softmax", x)
    r = b.op("ReduceMax", s, b.constant([1]))
    graph = b.finish(b.op("Sub", s, r))
    assert set(places(graph, graph.nodes, s)) == {s, graph.outputs[0]}


def test_strides_are_found_where_steps_are_even() -> None:
    i, j = hub_index(2)
    assert strides_at((j, i), (8, 1), {"i0": 4, "i1": 8}) == ({"i0": 1, "i1": 8}, 0)
    assert strides_at((i // 2, i % 2, j), (16, 8, 1), {"i0": 4, "i1": 8}) == ({"i0": 8, "i1": 1}, 0)
    assert strides_at((i // 2, i % 2, j), (8, 16, 1), {"i0": 4, "i1": 8}) is None
    assert strides_at((index("i0") + 3,), (2,), {"i0": 4}) == ({"i0": 2}, 6)
