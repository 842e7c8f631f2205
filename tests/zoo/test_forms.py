"""Single operators and their older spelling are the same function, and normalisation fits what arrives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fusewise.zoo.catalogue import build

Run = Callable[..., list[list[np.ndarray]]]
Feeds = Callable[..., dict[str, np.ndarray]]

slow = pytest.mark.slow
FORMS = [
    ("tinybert", {"LayerNormalization", "Gelu"}),
    ("convnext_tiny", {"LayerNormalization", "Gelu"}),
    ("mobilenet_v3_small", {"HardSwish", "HardSigmoid"}),
    pytest.param("albert", {"LayerNormalization", "Gelu"}, marks=slow),
    pytest.param("gpt2", {"LayerNormalization", "Gelu"}, marks=slow),
    pytest.param("yolo_v4", {"Mish"}, marks=slow),
]


@pytest.mark.parametrize("name, single", FORMS)
def test_decomposed_operators_compute_the_same(
    name: str, single: set[str], run_reference: Run, feeds_of: Feeds
) -> None:
    whole, apart = build(name), build(name, decomposed=True)
    assert single <= {node.op for node in whole.nodes}
    assert not single & {node.op for node in apart.nodes}
    feeds = feeds_of(whole, 0)
    for a, b in zip(run_reference(whole, feeds)[0], run_reference(apart, feeds)[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * np.abs(a).max())


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "efficientnet_b0", pytest.param("resnet152", marks=slow)])
def test_batch_normalisation_gives_about_unit_variance(name: str, run_reference: Run, feeds_of: Feeds) -> None:
    graph = build(name)
    nodes = [node for node in graph.nodes if node.op == "BatchNormalization"]
    (values,) = run_reference(graph, feeds_of(graph, 0), outputs=tuple(node.outputs[0] for node in nodes))
    for node, value in zip(nodes, values, strict=True):
        gamma = graph.constants[node.inputs[1]].array
        power = np.sqrt((value**2).mean()) / np.abs(gamma).mean()
        assert 0.2 < power < 5, (node.name, power)


def test_rows_of_a_batch_do_not_mix(run_reference: Run, feeds_of: Feeds) -> None:
    one, two = build("tinybert"), build("tinybert", batch=2)
    pair = feeds_of(two, 0)
    (together,) = run_reference(two, pair)
    alone = run_reference(one, *({name: rows[k : k + 1] for name, rows in pair.items()} for k in range(2)))
    for k in range(2):
        for a, b in zip(alone[k], together, strict=True):
            np.testing.assert_allclose(a[0], b[k], rtol=0, atol=1e-5 * np.abs(a).max())
