"""Architectures are named by what they look like: the zoo, and members of families at many sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fusewise.errors import UsageError
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.select.families import FAMILIES, UNKNOWN, classify, family_named
from fusewise.select.features import Features, features_of
from fusewise.zoo import net
from fusewise.zoo.catalogue import MODELS, build
from fusewise.zoo.scaled import SCALED, Scale, scaled

ZOO = {
    **dict.fromkeys("resnet18 resnet34 resnet50 resnet101 resnet152 resnext50".split(), "ResNet"),
    **dict.fromkeys("mobilenet_v1 mobilenet_v2 mobilenet_v3_small mobilenet_v3_large".split(), "MobileNet"),
    **dict.fromkeys("efficientnet_b0 efficientnet_b3".split(), "EfficientNet"),
    **dict.fromkeys("bert_base distilbert tinybert albert mobilebert".split(), "BERT"),
    **dict.fromkeys("mobilenet_v1_ssd ssd_resnet50".split(), "SSD"),
    **dict.fromkeys("deeplabv3_mobilenet_v3_large unet".split(), "Segmentation"),
    **dict.fromkeys("faster_rcnn_resnet50_fpn mask_rcnn_resnet50_fpn".split(), "R-CNN"),
    **dict.fromkeys("c3d s3d".split(), "Video"),
    "vgg16": "VGG",
    "squeezenet1_1": "SqueezeNet",
    "inception_v3": "Inception",
    "densenet121": "DenseNet",
    "nasnet_a_mobile": "NASNet",
    "convnext_tiny": "ConvNeXt",
    "yolo_v4": "YOLO",
    "gpt2": "GPT",
    "vit_b_16": "ViT",
    "nasrnn": "Recurrent",
}

QUICK = ("mobilenet_v3_small", "squeezenet1_1", "mobilenet_v1_ssd", "tinybert")

KINDS = {
    "resnet": "ResNet",
    "resnet_bottleneck": "ResNet",
    "mobilenet": "MobileNet",
    "efficientnet": "EfficientNet",
    "ssd": "SSD",
    "vgg": "VGG",
    "squeezenet": "SqueezeNet",
    "inception": "Inception",
    "densenet": "DenseNet",
    "unet": "Segmentation",
    "yolo": "YOLO",
    "bert": "BERT",
    "gpt": "GPT",
    "vit": "ViT",
    "recurrent": "Recurrent",
}

SCALES = (
    Scale(),
    Scale(depth=3),
    Scale(width=24, size=48, heads=3),
)


def check(graph: Graph, family: str) -> None:
    found = classify(features_of(graph))
    assert found.family == family, found
    assert found.nearest[0][0] == family
    assert found.nearest[0][1] > found.nearest[1][1]
    assert 0 < found.confidence <= 1


def test_every_model_of_the_zoo_has_a_family() -> None:
    assert set(ZOO) == {model.name for model in MODELS}
    assert set(KINDS) == set(SCALED)
    assert set(ZOO.values()) == {family.name for family in FAMILIES}


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("decomposed", [False, True])
def test_some_of_the_zoo(name: str, decomposed: bool) -> None:
    check(build(name, decomposed=decomposed), ZOO[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ZOO if name not in QUICK])
def test_the_rest_of_the_zoo(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without drawing weights or following pixels, which no feature looks at."""
    monkeypatch.setattr(net, "_RINGS", 1)
    monkeypatch.setattr(net, "_PIXELS", 1)
    monkeypatch.setattr(np.random, "default_rng", lambda seed: Zeros())
    check(build(name), ZOO[name])


class Zeros:
    """A generator whose every number is zero."""

    def standard_normal(self, shape: tuple[int, ...], dtype: type = np.float64) -> np.ndarray:
        return np.zeros(shape, dtype)

    def normal(self, mean: float, deviation: float, count: int) -> np.ndarray:
        return np.zeros(count)

    uniform = normal


@pytest.mark.parametrize("kind", KINDS)
def test_members_at_every_scale(kind: str) -> None:
    for scale in SCALES:
        for decomposed in (False, True) if scale == SCALES[0] else (False,):
            check(scaled(kind, scale, decomposed=decomposed), KINDS[kind])


def test_a_graph_of_no_family_says_so() -> None:
    b = GraphBuilder()
    x = b.input("x", (4, 4))
    found = classify(features_of(b.finish(b.op("Relu", b.op("Exp", x)))))
    assert found.family == UNKNOWN
    assert len(found.nearest) == 2
    assert found.confidence < 0.5


def test_families_ask_for_features_there_are() -> None:
    known = set(Features.__dataclass_fields__)
    assert {ask.feature for family in FAMILIES for ask in family.asks} <= known
    assert all(ask.low <= ask.high and ask.weight > 0 for family in FAMILIES for ask in family.asks)


def test_more_confident_with_nothing_in_between() -> None:
    features = features_of(scaled("resnet"))
    assert classify(features).confidence > classify(replace(features, residuals=1)).confidence


def test_names_are_found_in_any_case_and_nearest_ones_offered() -> None:
    assert family_named("resnet") == "ResNet"
    with pytest.raises(UsageError, match="no family called 'resnett'; did you mean 'ResNet'"):
        family_named("resnett")
