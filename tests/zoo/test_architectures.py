"""Every architecture against its published figures, run in ONNX Runtime, and compiled to code that gives the same answers.

An architecture is built, and run in ONNX Runtime, once for all its tests and let go before the next.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fusewise import api
from fusewise.ir.graph import Graph
from fusewise.zoo import detection, segmentation, video
from fusewise.zoo.catalogue import MODELS, build, model_named
from fusewise.zoo.count import macs, parameters
from fusewise.zoo.net import start

SLOW = set(
    """resnet34 resnet101 resnet152 resnext50 vgg16 efficientnet_b3 inception_v3 deeplabv3_mobilenet_v3_large unet
    yolo_v4 ssd_resnet50 c3d bert_base distilbert albert gpt2 vit_b_16
    faster_rcnn_resnet50_fpn mask_rcnn_resnet50_fpn""".split()
)
ROUNDED = {
    # Published with two or three digits: half a unit of the last. The two last papers count some work besides products,
    # and do not say which.
    "mobilenet_v1_ssd": 0.05 / 1.2,
    "c3d": 0.05 / 38.5,
    "tinybert": 0.05 / 1.2,
    "distilbert": 0.02,
    "mobilebert": 0.06,
}
ROUNDED_PARAMETERS = {"mobilenet_v1_ssd": 0.05 / 6.8, "c3d": 0.05 / 80.0}

TOLERANCE = 1e-5
"""Largest difference over largest magnitude, float32 (both sides reassociate)."""

SEEDS = {"mobilenet_v1_ssd": (2, 1, 0, 7)}
"""Of the inputs of a model, if not 0 and 1: more of that whose answers come nearest to the tolerance."""

Answered = list[tuple[dict[str, np.ndarray], list[np.ndarray]]]
"""Inputs by name, and ONNX Runtime's outputs."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in (row.name for row in MODELS)],
)
def architecture(request: pytest.FixtureRequest) -> Graph:
    return build(request.param)


@pytest.fixture(scope="module")
def answered(
    architecture: Graph,
    run_reference: Callable[..., list[list[np.ndarray]]],
    feeds_of: Callable[..., dict[str, np.ndarray]],
) -> Answered:
    given = [feeds_of(architecture, seed) for seed in SEEDS.get(architecture.name, (0, 1))]
    return list(zip(given, run_reference(architecture, *given), strict=True))


def test_parameters_are_the_published_ones(architecture: Graph) -> None:
    published = model_named(architecture.name).parameters
    if published is not None:
        rounding = ROUNDED_PARAMETERS.get(architecture.name, 0.0)
        assert parameters(architecture) == pytest.approx(published, rel=rounding, abs=0)


def test_multiply_accumulates_are_the_published_ones(architecture: Graph) -> None:
    published = model_named(architecture.name).macs
    if published is not None:
        assert macs(architecture) == pytest.approx(published, rel=ROUNDED.get(architecture.name, 0.01))


def test_the_row_describes_the_inputs(architecture: Graph) -> None:
    types = {str(architecture.types[name]) for name in architecture.inputs}
    assert len(types) == 1
    names, described = model_named(architecture.name).input.rsplit(" ", 1)
    assert described == types.pop()
    assert names == ", ".join(architecture.inputs) or architecture.name == "nasrnn"


def test_shapes_are_known_and_weights_are_finite_float32(architecture: Graph) -> None:
    # how many boxes two-stage detectors keep follows from the data
    assert all(architecture.tensor(name).is_static for name in architecture.types) or "rcnn" in architecture.name
    for name, constant in architecture.constants.items():
        assert constant.dtype.name in ("float32", "int64", "bool"), name
        assert not constant.dtype.is_float or np.isfinite(constant.array).all(), name


def test_no_constant_goes_unread(architecture: Graph) -> None:
    assert dict(architecture.pruned().constants).keys() == dict(architecture.constants).keys()


def test_answers_are_finite_varied_and_follow_the_input(architecture: Graph, answered: Answered) -> None:
    (_, first), (_, second) = answered[:2]
    for name, a, b in zip(architecture.outputs, first, second, strict=True):
        assert a.shape == architecture.tensor(name).dims
        assert np.isfinite(a).all(), name
        spread = a.std(axis=-1).mean()
        assert 0.02 < spread < 1000, (name, spread)
        assert np.abs(a - b).mean() > 1e-3 * a.std(), name


@pytest.mark.slow
def test_compiled_models_give_the_same_answers(architecture: Graph, answered: Answered) -> None:
    # what follows from the data runs on the host
    model = api.compile(architecture, strict="rcnn" not in architecture.name, cache=False)
    for feeds, expected in answered[1:]:
        for value, found, wanted in zip(architecture.outputs, model.run(None, feeds), expected, strict=True):
            error = np.max(np.abs(found.astype(np.float64) - wanted)) / np.max(np.abs(wanted))
            print(f"{architecture.name} {value}: relative error {error:.1e}")
            assert found.shape == wanted.shape
            assert error <= TOLERANCE


@pytest.mark.parametrize(
    "builder, size, published",
    [(video.s3d, 224, 17.979e9), (segmentation.deeplabv3_mobilenet_v3_large, 520, 10.452e9 - 16.1e6)],
    ids=["s3d at 224", "deeplabv3 at 520, less the auxiliary head"],
)
def test_multiply_accumulates_at_the_size_they_were_published_for(
    builder: Callable[..., Graph], size: int, published: float
) -> None:
    graph = builder(start("sized", seed=0, decomposed=False), 1, size=size)
    assert macs(graph) == pytest.approx(published, rel=1e-4)


def test_ssd_has_the_boxes_of_its_paper() -> None:
    graph = detection.ssd_resnet50(start("ssd", seed=0, decomposed=False), 1)
    assert [graph.tensor(name).dims for name in graph.outputs] == [(1, 4, 8732), (1, 81, 8732)]


def test_shared_layers_read_the_same_weights() -> None:
    graph = build("albert")
    matrices = [node.inputs[1] for node in graph.nodes if node.name.startswith("layer.attention.query")]
    assert matrices.count("layer.attention.query.weight") == 12


@pytest.mark.slow
def test_the_head_of_gpt2_reads_the_embeddings() -> None:
    graph = build("gpt2")
    assert {graph.nodes[k].op for k in graph.users["wte.weight"]} == {"Gather", "Transpose"}
