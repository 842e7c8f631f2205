"""Families of architectures as data: what each asks of the features, and which one a graph is.

A family asks for some features to lie within bounds; its score is the weight of what is met over the weight of all it asks. The
family with the highest score wins, unless even that misses too much: then the graph is of no known family. Nothing is trained:
the table can be read, and a new family is a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from fusewise.errors import UsageError
from fusewise.select.features import Features
from fusewise.words import nearest

__all__ = ["FAMILIES", "UNKNOWN", "Ask", "Classification", "ModelFamily", "classify", "family_named"]

UNKNOWN = "unknown"
_LEAST_SCORE = 0.85
_SHARPNESS = 12


@dataclass(frozen=True, slots=True)
class Ask:
    """A feature that lies between two bounds, both included, and how much that counts."""

    feature: str
    low: float
    high: float = inf
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """A family by its name, and what it asks."""

    name: str
    asks: tuple[Ask, ...]

    def score(self, features: Features) -> float:
        """The share of what the family asks that the features meet, 0 to 1."""
        met = sum(ask.weight for ask in self.asks if ask.low <= getattr(features, ask.feature) <= ask.high)
        return met / sum(ask.weight for ask in self.asks)


def _none(*features: str, weight: float = 1.0) -> tuple[Ask, ...]:
    return tuple(Ask(feature, 0, 0, weight) for feature in features)


_PLAIN = _none("attention_blocks", "tokens", "volumes", "regions", "recurrent", weight=0.25)
_CLASSIFIER = (Ask("images", 1, 1, 2), Ask("convolutions", 2, weight=3), *_PLAIN, *_none("upsamplings", "dense_output"))
_ONE_SIZE = Ask("pyramid_heads", 0, 1, 2)

FAMILIES: tuple[ModelFamily, ...] = (
    ModelFamily(
        "ResNet",
        (
            *_CLASSIFIER,
            _ONE_SIZE,
            Ask("residuals", 2, weight=3),
            *_none("depthwise_share", "joined_maps", "gates", weight=3),
        ),
    ),
    ModelFamily(
        "MobileNet",
        (
            *_CLASSIFIER,
            _ONE_SIZE,
            Ask("depthwise_share", 0.1, 0.6, 4),
            *_none("joined_maps", "layer_norms", weight=3),
            Ask("sigmoid_share", 0, 0.3, 3),
        ),
    ),
    ModelFamily(
        "EfficientNet",
        (
            *_CLASSIFIER,
            _ONE_SIZE,
            Ask("depthwise_share", 0.1, 0.6, 3),
            Ask("gates", 1, weight=2),
            Ask("sigmoid_share", 0.4, weight=4),
            *_none("joined_maps", weight=2),
        ),
    ),
    ModelFamily(
        "NASNet",
        (
            *_CLASSIFIER,
            _ONE_SIZE,
            Ask("depthwise_share", 0.2, 0.6, 3),
            Ask("joined_maps", 3, weight=4),
            Ask("poolings", 4),
        ),
    ),
    ModelFamily(
        "ConvNeXt",
        (
            *_CLASSIFIER,
            _ONE_SIZE,
            Ask("depthwise_share", 0.5, weight=3),
            Ask("products", 5, weight=3),
            Ask("layer_norms", 1, weight=3),
            Ask("residuals", 2),
        ),
    ),
    ModelFamily(
        "VGG",
        (
            *_CLASSIFIER,
            _ONE_SIZE,
            Ask("large_kernel_share", 0.7, weight=3),
            Ask("poolings", 2, weight=2),
            Ask("branching", 1, 1, 3),
            *_none("residuals", "joined_maps", "depthwise_share", weight=3),
        ),
    ),
    ModelFamily(
        "SqueezeNet",
        (
            *_CLASSIFIER,
            _ONE_SIZE,
            Ask("joined_share", 0.2, weight=3),
            Ask("branching", 2, 2, 3),
            *_none("residuals", "depthwise_share", "products", weight=2),
        ),
    ),
    ModelFamily(
        "Inception",
        (
            *_CLASSIFIER,
            _ONE_SIZE,
            Ask("joined_maps", 2, weight=3),
            Ask("branching", 3, weight=4),
            *_none("residuals", "depthwise_share", weight=2),
        ),
    ),
    ModelFamily(
        "DenseNet",
        (
            *_CLASSIFIER,
            _ONE_SIZE,
            Ask("joined_share", 0.25, weight=3),
            Ask("branching", 1, 1, 4),
            *_none("residuals", "depthwise_share", weight=2),
        ),
    ),
    ModelFamily(
        "SSD",
        (
            Ask("images", 1, 1),
            *_PLAIN,
            Ask("convolutions", 4, weight=2),
            Ask("pyramid_heads", 3, weight=6),
            *_none("upsamplings", weight=4),
            *_none("dense_output", weight=2),
        ),
    ),
    ModelFamily(
        "YOLO",
        (
            Ask("images", 1, 1),
            *_PLAIN,
            Ask("convolutions", 4, weight=2),
            Ask("pyramid_heads", 2, weight=5),
            Ask("upsamplings", 1, weight=4),
            Ask("joined_maps", 1, weight=2),
            *_none("dense_output", weight=2),
        ),
    ),
    ModelFamily(
        "R-CNN",
        (
            Ask("images", 1, 1),
            Ask("regions", 1, weight=6),
            Ask("convolutions", 4),
            Ask("products", 2, weight=2),
            *_none("tokens"),
        ),
    ),
    ModelFamily(
        "Segmentation",
        (
            Ask("images", 1, 1),
            *_none("attention_blocks", "tokens", "volumes", "recurrent", weight=0.25),
            *_none("regions", weight=3),
            Ask("convolutions", 4, weight=2),
            Ask("upsamplings", 1, weight=4),
            Ask("dense_output", 0.01, weight=6),
        ),
    ),
    ModelFamily(
        "Video", (Ask("volumes", 1, weight=8), *_none("attention_blocks", "tokens", "regions", "recurrent", weight=0.5))
    ),
    ModelFamily(
        "BERT",
        (
            Ask("tokens", 1, weight=3),
            Ask("attention_blocks", 1, weight=5),
            Ask("product_weights", 0.5, weight=2),
            *_none("causal", weight=4),
            *_none("images", "convolutions", "recurrent"),
        ),
    ),
    ModelFamily(
        "GPT",
        (
            Ask("tokens", 1, weight=3),
            Ask("attention_blocks", 1, weight=5),
            Ask("product_weights", 0.5, weight=2),
            Ask("causal", 1, weight=4),
            *_none("images", "convolutions", "recurrent"),
        ),
    ),
    ModelFamily(
        "ViT",
        (
            Ask("images", 1, 1, 3),
            Ask("attention_blocks", 1, weight=5),
            Ask("product_weights", 0.25, weight=2),
            Ask("products", 4, weight=2),
            *_none("tokens", "regions", "volumes", "upsamplings", weight=0.5),
        ),
    ),
    ModelFamily(
        "Recurrent",
        (
            *_none("attention_blocks", "convolutions", "images", "regions"),
            Ask("unrolled", 1, weight=8),
        ),
    ),
)
"""The four published classes, and more as the zoo suggests. The order decides between equal scores."""


@dataclass(frozen=True, slots=True)
class Classification:
    """The family, how sure that is (0 to 1), and the two nearest of all families with their scores, the family included."""

    family: str
    confidence: float
    nearest: tuple[tuple[str, float], ...]


def classify(features: Features) -> Classification:
    """The family of a graph.

    The confidence is the winner's score against all scores, each to a high power, so that near misses of other families count
    and far ones do not. Below 0.85 of what the best family asks the graph is `unknown`.
    """
    scores = [(family.name, family.score(features)) for family in FAMILIES]
    ranked = sorted(scores, key=lambda pair: -pair[1])
    best = ranked[0][1]
    weights = [score**_SHARPNESS for _, score in ranked]
    confidence = best * weights[0] / sum(weights) if best else 0.0
    family = ranked[0][0] if best >= _LEAST_SCORE else UNKNOWN
    return Classification(family, confidence, tuple(ranked[:2]))


def family_named(name: str) -> str:
    """The family called `name`, in any case; `UsageError` with the nearest names when there is none."""
    known = {family.name.lower(): family.name for family in FAMILIES}
    if name.lower() not in known:
        raise UsageError(f"there is no family called {name!r}; {nearest(name, known.values(), most=2)}")
    return known[name.lower()]
