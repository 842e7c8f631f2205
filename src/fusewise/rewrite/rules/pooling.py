"""Pooling: averages as convolutions, in another order with convolutions of single pixels, past joined channels.

An average is a convolution with equal weights, so what holds for convolutions holds for it too (TASO, Jia et al., SOSP 2019:
sums of parallel branches in NasNet-A). For the search: most of these cost more on some machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fusewise.ops.spec import ANCHOR_FAMILIES
from fusewise.ops.table import spec_of
from fusewise.rewrite.match import Match
from fusewise.rewrite.pattern import Computed
from fusewise.rewrite.rule import Rule, RuleSample, rule
from fusewise.rewrite.rules.guards import all_of
from fusewise.rewrite.rules.order import RISING
from fusewise.rewrite.rules.structure import of_parts

__all__ = ["POOLING"]


def _stated(match: Match) -> str | None:
    """Padding and sizes of the pooling are written out, and it takes no window in part."""
    node = match.like["p"]
    whole = not node.attribute("ceil_mode", 0) and node.attribute("auto_pad", "NOTSET") == "NOTSET"
    return None if whole else "windows at the edge are not whole"


def _padded(match: Match) -> bool:
    """Are windows at the edge divided by fewer than they have places?"""
    node = match.like["p"]
    return any(node.attribute("pads", ())) and not node.attribute("count_include_pad", 0)


def _even(match: Match) -> str | None:
    """Every window is divided by the same number."""
    return "windows at the edge are divided by another number" if _padded(match) else None


def _uneven(match: Match) -> str | None:
    """Windows at the edge are divided by fewer."""
    return None if _padded(match) else "every window is divided by the same number"


def _unpadded(match: Match) -> str | None:
    """The pooling has no padding."""
    return "there are zeros around the image" if any(match.like["p"].attribute("pads", ())) else None


def _pointwise(match: Match) -> str | None:
    """The convolution is of single pixels, one after another."""
    node, kernel = match.like["c"], match.type("w").dims[2:]
    plain = node.attribute("auto_pad", "NOTSET") == "NOTSET" and not any(node.attribute("pads", ()))
    single = all(size == 1 for size in kernel) and all(step == 1 for step in node.attribute("strides", ()))
    return None if plain and single else "the convolution looks at more than one pixel, or leaves some out"


def _skips(match: Match) -> str | None:
    """The pooling takes single pixels."""
    node = match.like["p"]
    single = all(size == 1 for size in node.attribute("kernel_shape")) and not any(node.attribute("pads", ()))
    return None if single else "a window has several pixels"


def _along_channels(match: Match) -> str | None:
    """Channels are joined."""
    axis = match.like["k"].attribute("axis") % match.type("a").rank
    return None if axis == 1 and match.type("a").rank > 2 else "other axes than the channels are joined"


def _shares(match: Match) -> np.ndarray:
    """One share for each tap of each channel."""
    kernel, kind = tuple(match.like["p"].attribute("kernel_shape")), match.type("x")
    return np.full((kind.dims[1], 1, *kernel), 1 / int(np.prod(kernel))).astype(kind.dtype.numpy)


def _corrections(match: Match) -> np.ndarray:
    """What windows at the edge must be multiplied by, [1, 1, *output]: their places over those in the image."""
    node, kind = match.like["p"], match.type("x")
    found = np.ones((1, 1))
    for d, size in enumerate(node.attribute("kernel_shape")):
        counts = _inside(match, d, size)
        found = np.multiply.outer(found, size / counts)
    return found.astype(kind.dtype.numpy)


def _inside(match: Match, d: int, size: int) -> np.ndarray:
    """How many places of each window along an axis lie in the image."""
    node = match.like["p"]
    image = match.graph.tensor(node.inputs[0])
    rank, extent = image.rank - 2, image.dims[2 + d]
    step, apart = node.attribute("strides", (1,) * rank)[d], node.attribute("dilations", (1,) * rank)[d]
    pads = node.attribute("pads", (0,) * 2 * rank)
    begins = np.arange(0, extent + pads[d] + pads[rank + d] - apart * (size - 1), step) - pads[d]
    places = begins[:, None] + apart * np.arange(size)
    return np.asarray(((places >= 0) & (places < extent)).sum(axis=1))


def _met(match: Match) -> str | None:
    """Every window of the pooling meets the image."""
    sizes = match.like["p"].attribute("kernel_shape")
    met = all(bool(np.all(_inside(match, d, size) > 0)) for d, size in enumerate(sizes))
    return None if met else "a window lies beside the image"


def _stands_alone(match: Match) -> str | None:
    """No convolution or product makes x, whose kernel would take the function in."""
    maker = match.graph.producer_of(match.values("x")[0])
    spec = None if maker is None else spec_of(maker.op, maker.domain)
    anchored = spec is not None and spec.family in ANCHOR_FAMILIES
    return "the kernel that makes x takes the function in" if anchored else None


def _of_pool(name: str, rest: Any) -> Computed:
    def value(match: Match) -> tuple[int, ...]:
        node = match.like["p"]
        length = len(node.attribute("kernel_shape")) * (2 if name == "pads" else 1)
        return tuple(node.attribute(name, (rest,) * length))

    return Computed(name, value)


def _as_convolution(g: Any, x: Any) -> Any:
    return g.Conv(
        x,
        Computed("one share a tap", _shares),
        group=Computed("channels", lambda m: m.type("x").dims[1]),
        kernel_shape=_of_pool("kernel_shape", 1),
        strides=_of_pool("strides", 1),
        pads=_of_pool("pads", 0),
        dilations=_of_pool("dilations", 1),
    )


_IMAGE = {"x": (1, 2, 4, 4)}
_POOL = {"p": {"kernel_shape": (2, 2)}}
_JOINED: Mapping[str, tuple[int, ...]] = {"a": (1, 2, 4, 3), "b": (1, 1, 4, 3), "c": (1, 2, 4, 3), "d": (1, 1, 4, 3)}
_WINDOW = {"kernel_shape": (2, 3), "strides": (2, 1), "pads": (1, 1, 1, 1)}


def _after_concat(op: str, count: int, window: bool) -> Rule:
    """Pooling once on joined channels, instead of on every part."""
    like = {"like": "p"} if window else {}

    def before(g: Any, *parts: Any) -> Any:
        return g.Concat(*(getattr(g, op)(part, **like) for part in parts), like="k")

    def after(g: Any, *parts: Any) -> Any:
        return getattr(g, op)(g.Concat(*parts, like="k"), **like)

    names = "abcd"[:count]
    attributes: dict[str, Mapping[str, Any]] = {"k": {"axis": 1}, **({"p": _WINDOW} if window else {})}
    return rule(
        f"{op.lower()}-after-concat" + ("" if count == 2 else f"-of-{count}"),
        of_parts(count, before),
        of_parts(count, after),
        "commutative",
        "exact",
        guard=_along_channels,
        samples=(RuleSample({name: _JOINED[name] for name in names}, {}, attributes),),
    )


def _past_maximum(op: str, numeric: str, fact: str) -> Rule:
    """A function that never falls once after the maxima of windows, of which there are mostly fewer than elements."""
    return rule(
        f"{op.lower()}-after-maxpool",
        lambda g, x: g.MaxPool(getattr(g, op)(x), like="p"),
        lambda g, x: getattr(g, op)(g.MaxPool(x, like="p")),
        "commutative",
        numeric,
        needs=(("x", fact),) if fact else (),
        guard=all_of(_stated, _met, _stands_alone),
        samples=_WINDOWS,
        spreads=True,  # ONNX does not say what the largest of numbers and NaN is
    )


_WINDOWS = (RuleSample(_IMAGE, {}, {"p": _WINDOW}), RuleSample({"x": (2, 1, 6)}, {}, {"p": {"kernel_shape": (2,)}}))

POOLING: tuple[Rule, ...] = (
    rule(
        "average-as-convolution",
        lambda g, x: g.AveragePool(x, like="p"),
        _as_convolution,
        "recognising",
        "reassociating",
        spreads=True,  # ONNX's reference leaves NaN out of averages
        guard=all_of(_stated, _even),
        samples=(
            RuleSample(_IMAGE, {}, _POOL),
            RuleSample(
                _IMAGE,
                {},
                {"p": {"kernel_shape": (2, 1), "strides": (2, 2), "pads": (1, 0, 1, 0), "count_include_pad": 1}},
            ),
        ),
    ),
    rule(
        "padded-average-as-convolution",
        lambda g, x: g.AveragePool(x, like="p"),
        lambda g, x: _as_convolution(g, x) * Computed("places over those in the image", _corrections),
        "recognising",
        "reassociating",
        spreads=True,
        guard=all_of(_stated, _uneven),  # examples with shares that are exact in floats
        samples=(
            RuleSample(_IMAGE, {}, {"p": {"kernel_shape": (2, 2), "pads": (1, 1, 1, 1)}}),
            RuleSample(
                {"x": (1, 2, 5, 4)}, {}, {"p": {"kernel_shape": (2, 2), "strides": (2, 1), "pads": (1, 0, 0, 1)}}
            ),
            RuleSample({"x": (2, 1, 6)}, {}, {"p": {"kernel_shape": (4,), "strides": (2,), "pads": (2, 2)}}),
        ),
    ),
    rule(
        "average-before-pointwise-convolution",
        lambda g, x, w, b=None: g.AveragePool(g.Conv(x, w, b, like="c"), like="p"),
        lambda g, x, w, b=None: g.Conv(g.AveragePool(x, like="p"), w, b, like="c"),
        "distributive",
        "reassociating",
        spreads=True,
        guard=all_of(_pointwise, _stated, _unpadded),
        samples=(
            RuleSample({**_IMAGE, "w": (3, 2, 1, 1), "b": (3,)}, {}, _POOL),
            RuleSample(
                {**_IMAGE, "w": (2, 1, 1, 1)},
                {"b": None},
                {"c": {"group": 2}, "p": {"kernel_shape": (3, 2), "strides": (1, 2)}},
            ),
        ),
    ),
    rule(
        "pointwise-convolution-before-average",
        lambda g, x, w: g.Conv(g.AveragePool(x, like="p"), w, like="c"),
        lambda g, x, w: g.AveragePool(g.Conv(x, w, like="c"), like="p"),
        "distributive",
        "reassociating",
        spreads=True,
        guard=all_of(_pointwise, _stated),
        samples=(
            RuleSample({**_IMAGE, "w": (3, 2, 1, 1)}, {}, _POOL),
            RuleSample({**_IMAGE, "w": (1, 2, 1, 1)}, {}, {"p": {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}}),
        ),
    ),
    rule(
        "mean-before-pointwise-convolution",
        lambda g, x, w, b=None: g.GlobalAveragePool(g.Conv(x, w, b, like="c")),
        lambda g, x, w, b=None: g.Conv(g.GlobalAveragePool(x), w, b, like="c"),
        "distributive",
        "reassociating",
        spreads=True,
        guard=_pointwise,
        samples=(
            RuleSample({**_IMAGE, "w": (3, 2, 1, 1), "b": (3,)}),
            RuleSample({**_IMAGE, "w": (3, 2, 1, 1)}, {"b": None}),
        ),
    ),
    rule(
        "skipping-into-convolution",
        lambda g, x, w, b=None: g.Conv(g.AveragePool(x, like="p"), w, b, like="c"),
        lambda g, x, w, b=None: g.Conv(x, w, b, like="c", strides=_of_pool("strides", 1)),
        "recognising",
        "reassociating",
        spreads=True,
        guard=all_of(_pointwise, _stated, _skips),
        samples=(
            RuleSample(
                {**_IMAGE, "w": (3, 2, 1, 1), "b": (3,)}, {}, {"p": {"kernel_shape": (1, 1), "strides": (2, 3)}}
            ),
        ),
    ),
    *(_past_maximum(*row) for row in RISING),
    rule(
        "relu-before-maxpool",
        lambda g, x, w, b=None: g.Relu(g.MaxPool(g.Conv(x, w, b, like="c"), like="p")),
        lambda g, x, w, b=None: g.MaxPool(g.Relu(g.Conv(x, w, b, like="c")), like="p"),
        "commutative",
        "exact",
        guard=all_of(_stated, _met),
        samples=(
            RuleSample({**_IMAGE, "w": (3, 2, 1, 1), "b": (3,)}, {}, {"p": _WINDOW}),
            RuleSample({**_IMAGE, "w": (2, 2, 3, 3)}, {"b": None}, {"c": {"pads": (1, 1, 1, 1)}, "p": _WINDOW}),
        ),
        spreads=True,
    ),
    *(_after_concat("MaxPool", count, window=True) for count in (2, 3, 4)),
    *(_after_concat("AveragePool", count, window=True) for count in (2, 3, 4)),
    *(_after_concat("GlobalAveragePool", count, window=False) for count in (2, 3, 4)),
)
