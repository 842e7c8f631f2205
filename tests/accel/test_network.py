"""Networks: the zoo's are the pinned ones, derived sets agree with walks over the graph, and unknown sizes are refused."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest
from tests.accel.pinned import pinned, pinned_graph

from fusewise.accel.bits import bits_of, mask_of
from fusewise.accel.network import Network, network_of, prepare
from fusewise.errors import UnsupportedModel
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.ir.walk import ancestors, descendants, is_convex
from fusewise.zoo.catalogue import build


def operators(network: Network) -> Counter[object]:
    """Every operator by kind, windows, filter, and shapes read and written; operands in any order."""

    def image(t: int) -> tuple[int, int, int]:
        return network.tensors[t].channels, network.tensors[t].height, network.tensors[t].width

    return Counter(
        (
            op.form.kind,
            op.form.rows,
            op.form.columns,
            op.form.filter_weights,
            tuple(sorted(image(read.tensor) for read in op.reads)),
            tuple(image(t) for t in op.writes),
        )
        for op in network.operators
    )


def bias_elements_missing(ours: Network, theirs: Network) -> int:
    return sum(op.form.weights for op in ours.operators) - sum(op.form.weights for op in theirs.operators)


# Biases that are all zero were dropped by the exporter of the pinned graphs; trained networks have them.
@pytest.mark.parametrize(
    "name, zero_biases",
    [
        ("resnet18", 0),
        ("resnet50", 0),
        ("mobilenet_v2", 1000),
        ("squeezenet1_1", 3944),
        ("efficientnet_b0", None),
        ("mobilenet_v3_large", None),
        ("deeplabv3_mobilenet_v3_large", None),
    ],
)
def test_zoo_is_the_pinned_network(name: str, zero_biases: int | None) -> None:
    ours, theirs = network_of(prepare(build(name))), pinned(name, bilinear_ahead=1)
    assert len(ours) == len(theirs)
    assert operators(ours) == operators(theirs)
    missing = bias_elements_missing(ours, theirs)
    assert missing == zero_biases if zero_biases is not None else missing > 0


@pytest.mark.slow
def test_zoo_vgg16_has_no_pooling_that_does_nothing() -> None:
    ours, theirs = network_of(prepare(build("vgg16"))), pinned("vgg16", bilinear_ahead=1)
    [(extra, times)] = (operators(theirs) - operators(ours)).items()
    assert times == 1 and extra[0] == "pool" and extra[1].size == 1  # type: ignore[index]
    assert not operators(ours) - operators(theirs)


def test_zoo_inception_joins_nested_concats() -> None:
    ours, theirs = network_of(prepare(build("inception_v3"))), pinned("inception_v3", bilinear_ahead=1)
    assert len(ours) == len(theirs) - 4
    assert {key[0] for key in operators(ours) - operators(theirs)} == {"pointwise"}  # type: ignore[index]


@pytest.mark.parametrize("name", ["resnet18", "squeezenet1_1", "inception_v3"])
def test_sets_agree_with_walks(name: str) -> None:
    graph, network = pinned_graph(name), pinned(name)
    for v in range(0, len(network), 5):
        assert set(bits_of(network.ancestors[v])) == ancestors(graph, [v])
        assert set(bits_of(network.descendants[v])) == descendants(graph, [v])
        for w in range(v, min(v + 12, len(network)), 3):
            nodes = [v, w, (v + w) // 2]
            assert network.is_convex(mask_of(nodes)) == is_convex(graph, nodes)
    assert all(network.successors[a] >> b & 1 for a, b in network.edges)


def test_a_network_is_small_enough_to_travel() -> None:
    network = pinned("vgg16")
    again = pickle.loads(pickle.dumps(network))
    assert again == network and len(pickle.dumps(network)) < 100_000


def test_unknown_sizes_ask_for_shapes() -> None:
    kind = TensorType(FLOAT32, (1, 3, "height", "width"))
    graph = Graph(("x",), ("y",), (Node("Relu", ("x",), ("y",)),), {"x": kind, "y": kind}, name="free")
    with pytest.raises(UnsupportedModel, match=r"'x' of 'free' is float32.*--shape x="):
        prepare(graph)


def test_a_tensor_read_twice_is_one_read() -> None:
    kind = TensorType(FLOAT32, (1, 3, 4, 4))
    graph = Graph(("x",), ("y",), (Node("Mul", ("x", "x"), ("y",)),), {"x": kind, "y": kind})
    [operator] = network_of(prepare(graph)).operators
    assert len(operator.reads) == 1 and operator.form.kind == "pointwise"
