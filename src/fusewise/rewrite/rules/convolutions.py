"""Convolutions: enlarged kernels, parallel ones merged, sums taken into the weights, groups merged and parted.

MetaFlow (Jia et al., SysML 2019) and TASO (Jia et al., SOSP 2019), with the new weights. Weights are constants, so all of
these are computed once. For the search: a rule may cost more by itself and open the way for another.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fusewise.rewrite.match import Match
from fusewise.rewrite.pattern import Computed
from fusewise.rewrite.rule import Guard, Rule, RuleSample, rule
from fusewise.rewrite.rules.guards import all_of, is_constant, one_number

__all__ = ["CONVOLUTIONS", "TARGET_KERNEL", "explicit", "keeps_position", "ungrouped", "weights_of"]

TARGET_KERNEL = 3
"""Kernels are enlarged up to so many taps along each axis, and further where another convolution of the image has more."""


def weights_of(match: Match, name: str) -> np.ndarray:
    """The constant that a variable stands for."""
    array = match.array(name)
    assert array is not None
    return array


def _bias(match: Match, name: str, weights: str) -> np.ndarray:
    """The bias of a convolution, zeros where it has none."""
    array = match.array(name)
    kernel = weights_of(match, weights)
    return np.zeros(kernel.shape[0], kernel.dtype) if array is None else array


def explicit(match: Match) -> str | None:
    """Paddings are written out."""
    return None if match.like["c"].attribute("auto_pad", "NOTSET") == "NOTSET" else "the padding is not written out"


def _groups(match: Match) -> int:
    return int(match.like["c"].attribute("group", 1))


def ungrouped(match: Match) -> str | None:
    """There are no groups."""
    return None if _groups(match) == 1 else "the convolution has groups"


def _known(*variables: str) -> Guard:
    """Weights and biases are constant; a bias may be absent."""

    def check(match: Match) -> str | None:
        unknown = (name for name in variables if not is_constant(match, name))
        name = next(unknown, None)
        return None if name is None else f"{name} is not constant"

    check.__doc__ = f"{', '.join(variables)} are constant"
    return check


def _same_kernel(match: Match) -> str | None:
    """v and w have one kernel size."""
    return None if match.type("v").dims[2:] == match.type("w").dims[2:] else "the kernels differ in size"


def _same_weights(match: Match) -> str | None:
    """v and w have one shape."""
    return None if match.type("v").dims == match.type("w").dims else "the weights differ in shape"


# -- enlarging ----------------------------------------------------------------------------------------------------------------


def _wanted(match: Match) -> tuple[int, ...]:
    """The size to enlarge a kernel to: that of the one beside it, or the target."""
    kernel = match.type("w").dims[2:]
    beside = match.type("v").dims[2:] if "n" in match.like else (TARGET_KERNEL,) * len(kernel)
    return tuple(map(max, kernel, beside))


def _margins(match: Match) -> list[int]:
    """Zeros to put on each side of the kernel, per axis."""
    return [(more - size) // 2 for more, size in zip(_wanted(match), match.type("w").dims[2:], strict=True)]


def _small(match: Match) -> str | None:
    """The kernel is odd and smaller."""
    kernel = match.type("w").dims[2:]
    if any(size % 2 == 0 for size in (*kernel, *_wanted(match))):
        return "an even kernel has no centre"
    return None if any(_margins(match)) else "the kernel is not small"


def _large_beside(match: Match) -> str | None:
    """The kernel beside it is larger than usual, and moves by the same steps."""
    steps = [match.like[like].attribute("strides", (1,) * (match.type("w").rank - 2)) for like in ("c", "n")]
    if steps[0] != steps[1]:
        return "the convolutions move by other steps"
    return None if max(match.type("v").dims[2:]) > TARGET_KERNEL else "the kernel beside it is small itself"


def _enlarged_pads(match: Match) -> tuple[int, ...]:
    node, more = match.like["c"], _margins(match)
    rank = len(more)
    dilations = node.attribute("dilations", (1,) * rank)
    pads = node.attribute("pads", (0,) * (2 * rank))
    return tuple(pads[k] + more[k % rank] * dilations[k % rank] for k in range(2 * rank))


def _enlarged_weights(match: Match) -> np.ndarray:
    return np.pad(weights_of(match, "w"), [(0, 0), (0, 0), *((m, m) for m in _margins(match))])


def _enlarged(g: Any, x: Any, w: Any, b: Any) -> Any:
    weights = Computed("w with zeros around", _enlarged_weights)
    kernel, pads = Computed("kernel", _wanted), Computed("pads", _enlarged_pads)
    return g.Conv(x, weights, b, like="c", kernel_shape=kernel, pads=pads)


# -- sums taken into the weights ----------------------------------------------------------------------------------------------


def keeps_position(match: Match) -> str | None:
    """The convolution keeps the size of the image, and a tap lies on the pixel itself."""
    node, kernel = match.like["c"], match.type("w").dims[2:]
    rank = len(kernel)
    dilations, pads = node.attribute("dilations", (1,) * rank), node.attribute("pads", (0,) * (2 * rank))
    if any(step != 1 for step in node.attribute("strides", (1,) * rank)) or any(size % 2 == 0 for size in kernel):
        return "no tap lies on every pixel"
    if any(pads[k] != dilations[k % rank] * (kernel[k % rank] // 2) for k in range(2 * rank)):
        return "the padding moves the image"
    return None


def _keeps_channels(match: Match) -> str | None:
    """As many channels come out as go in."""
    return None if match.type("x").dims[1] == match.type("w").dims[0] else "the channels differ"


def _with_identity(match: Match) -> np.ndarray:
    weights = np.array(weights_of(match, "w"))
    channels, each = weights.shape[:2]
    per_group = channels // _groups(match)
    centre = tuple(size // 2 for size in weights.shape[2:])
    for k in range(channels):
        weights[(k, k % per_group if each == per_group else 0, *centre)] += 1
    return weights


def _halves(match: Match) -> str | None:
    """The Split cuts the channels in two halves."""
    node, channels = match.like["s"], match.type("w").dims[0]
    sizes = match.array("sizes")
    axis = node.attribute("axis", 0)
    even = sizes is None or list(sizes) == [channels // 2] * 2
    return (
        None if axis == 1 and even and channels % 2 == 0 and _groups(match) == 1 else "not two halves of the channels"
    )


def _sum_of_halves(name: str) -> Computed:
    def total(match: Match) -> np.ndarray:
        array = weights_of(match, "w") if name == "w" else _bias(match, "b", "w")
        first, second = np.split(array, 2)
        return np.asarray(first + second)

    return Computed(f"sum of the halves of {name}", total)


# -- merging ------------------------------------------------------------------------------------------------------------------


def _halved_groups(match: Match) -> np.ndarray:
    """Weights of half as many groups: each new filter is zero on the channels that were not its own."""
    weights = weights_of(match, "w")
    outputs, each, *kernel = weights.shape
    groups = _groups(match)
    merged = np.zeros((outputs, 2 * each, *kernel), weights.dtype)
    for k in range(outputs):
        second = (k // (outputs // groups)) % 2
        merged[k, second * each : (second + 1) * each] = weights[k]
    return merged


def _even_groups(match: Match) -> str | None:
    """The number of groups is even."""
    return None if _groups(match) > 1 and _groups(match) % 2 == 0 else "the groups do not pair up"


def _like_sides(match: Match) -> str | None:
    """Both convolutions have as many input and as many output channels."""
    same = match.type("x").dims == match.type("y").dims and match.type("v").dims == match.type("w").dims
    return None if same else "the two sides differ in shape"


def _two_groups(match: Match) -> str | None:
    """There are two groups, one for each copy of the image."""
    joined = match.like["k"].attribute("axis", 0) % match.type("x").rank
    return None if joined == 1 and _groups(match) == 2 else "the copies are not the two groups"


def _added(pair: tuple[Any, Any]) -> Any:
    return pair[0] + pair[1]


def _dense_groups(match: Match) -> str | None:
    """Every group has several channels."""
    return None if match.type("w").dims[1] > 1 else "every channel is a group of its own"


def _half(k: int, name: str) -> Computed:
    def part(match: Match) -> np.ndarray:
        return np.split(weights_of(match, "w") if name == "w" else _bias(match, "b", "w"), 2)[k]

    return Computed(f"half {k + 1} of {name}", part)


_HALF_GROUP = Computed("group / 2", lambda m: _groups(m) // 2)
_HALF_CHANNELS = Computed("channels / 2", lambda m: np.array([m.type("x").dims[1] // 2] * 2, np.int64))
_SHAPES = {"x": (1, 2, 4, 3), "w": (2, 2, 1, 1), "b": (2,)}
_SAME3 = {"c": {"pads": (1, 1, 1, 1)}}
_TWO_BIASES = Computed("b and d side by side", lambda m: np.concatenate([_bias(m, "b", "v"), _bias(m, "d", "w")]))
_BIAS_SUM = Computed("b + d", lambda m: _bias(m, "b", "v") + _bias(m, "d", "w"))
_CHANNELS = Computed("channels", lambda m: np.array([m.type("v").dims[0], m.type("w").dims[0]], np.int64))
_NONE: dict[str, Any] = {"b": None, "d": None}
_PAIR = {"x": (1, 2, 4, 3), "v": (2, 2, 3, 3), "b": (2,), "w": (4, 2, 3, 3), "d": (4,)}
_SUM = {**_PAIR, "y": (1, 2, 4, 3), "w": (2, 2, 3, 3), "d": (2,)}

CONVOLUTIONS: tuple[Rule, ...] = (
    rule(
        "enlarge-kernel",
        lambda g, x, w, b=None: g.Conv(x, w, b, like="c"),
        lambda g, x, w, b=None: _enlarged(g, x, w, b),
        "recognising",
        "reassociating",
        spreads=True,
        needs=(("w", "constant"),),
        guard=all_of(explicit, _small),
        samples=(
            RuleSample(_SHAPES),
            RuleSample(
                {**_SHAPES, "w": (2, 1, 1, 3)},
                {"b": None},
                {"c": {"group": 2, "strides": (2, 1), "pads": (0, 1, 0, 1)}},
            ),
            RuleSample({**_SHAPES, "x": (1, 2, 5, 6)}, {}, {"c": {"dilations": (2, 2), "strides": (1, 2)}}),
        ),
    ),
    rule(
        "enlarge-kernel-to-neighbour",
        lambda g, x, w, v, b=None, d=None: (g.Conv(x, w, b, like="c"), g.Conv(x, v, d, like="n")),
        lambda g, x, w, v, b=None, d=None: (_enlarged(g, x, w, b), g.Conv(x, v, d, like="n")),
        "recognising",
        "reassociating",
        spreads=True,
        needs=(("w", "constant"),),
        guard=all_of(explicit, _large_beside, _small),
        samples=(
            RuleSample(
                {"x": (1, 2, 4, 5), "w": (2, 2, 1, 3), "v": (3, 2, 5, 5)},
                _NONE,
                {"c": {"pads": (0, 1, 0, 1)}, "n": {"pads": (2, 2, 2, 2)}},
            ),
            RuleSample(
                {"x": (1, 2, 4, 5), "w": (2, 1, 3, 1), "v": (2, 1, 1, 5), "b": (2,), "d": (2,)},
                {},
                {"c": {"group": 2, "pads": (1, 0, 1, 0)}, "n": {"group": 2, "pads": (0, 2, 0, 2)}},
            ),
        ),
    ),
    rule(
        "merge-parallel-convolutions",
        lambda g, x, v, w, b=None, d=None: (g.Conv(x, v, b, like="c"), g.Conv(x, w, d, like="c")),
        lambda g, x, v, w, b=None, d=None: g.Split(
            g.Conv(x, g.Concat(v, w, axis=0), _TWO_BIASES, like="c"), _CHANNELS, axis=1, outputs=2
        ),
        "distributive",
        "reassociating",
        needs=(("v", "constant"), ("w", "constant")),
        guard=all_of(ungrouped, _same_kernel, _known("b", "d")),
        samples=(
            RuleSample(_PAIR, {"b": np.array([1, 2], np.float32), "d": np.array([3, 4, 5, 6], np.float32)}, _SAME3),
            RuleSample(_PAIR, _NONE, {"c": {"strides": (2, 1)}}),
            RuleSample(_PAIR, {"b": np.array([1, 2], np.float32), "d": None}, {"c": {"pads": (0, 1, 2, 1)}}),
        ),
    ),
    rule(
        "scale-into-convolution",
        lambda g, x, w, s, b=None: g.Conv(x * s, w, b, like="c"),
        lambda g, x, w, s, b=None: g.Conv(x, w * s, b, like="c"),
        "associative",
        "reassociating",
        needs=(("w", "constant"),),
        guard=one_number("s"),
        samples=(
            RuleSample({**_SHAPES, "s": ()}, {"s": np.array(2, np.float32)}, _SAME3),
            RuleSample(
                {**_SHAPES, "s": (1,)}, {"b": None, "s": np.array([-3], np.float32)}, {"c": {"strides": (2, 1)}}
            ),
        ),
    ),
    rule(
        "image-into-convolution",
        lambda g, x, w, b=None: g.Conv(x, w, b, like="c") + x,
        lambda g, x, w, b=None: g.Conv(x, Computed("w with the identity", _with_identity), b, like="c"),
        "distributive",
        "reassociating",
        needs=(("w", "constant"),),
        guard=all_of(explicit, keeps_position, _keeps_channels),
        samples=(
            RuleSample({**_SHAPES, "w": (2, 2, 3, 3)}, {}, _SAME3),
            RuleSample({**_SHAPES, "w": (2, 1, 3, 3)}, {"b": None}, {"c": {"group": 2, "pads": (1, 1, 1, 1)}}),
            RuleSample(
                {**_SHAPES, "x": (1, 4, 3, 3), "w": (4, 2, 1, 3)},
                {"b": None},
                {"c": {"group": 2, "pads": (0, 2, 0, 2), "dilations": (1, 2)}},
            ),
        ),
    ),
    rule(
        "sum-of-halves-into-convolution",
        lambda g, x, w, b=None, sizes=None: _added(g.Split(g.Conv(x, w, b, like="c"), sizes, like="s", outputs=2)),
        lambda g, x, w, b=None, sizes=None: g.Conv(x, _sum_of_halves("w"), _sum_of_halves("b"), like="c"),
        "distributive",
        "reassociating",
        needs=(("w", "constant"),),
        guard=all_of(_known("b"), _halves),
        samples=(
            RuleSample(
                {"x": (1, 2, 3, 3), "w": (4, 2, 3, 3)},
                {"b": None, "sizes": np.array([2, 2])},
                {**_SAME3, "s": {"axis": 1}},
            ),
            RuleSample(
                {"x": (1, 2, 3, 3), "w": (2, 2, 1, 1)},
                {"b": np.array([1, 2], np.float32), "sizes": None},
                {"s": {"axis": 1, "num_outputs": 2}},
            ),
        ),
    ),
    rule(
        "sum-of-convolutions-of-one-image",
        lambda g, x, v, w, b=None, d=None: g.Conv(x, v, b, like="c") + g.Conv(x, w, d, like="c"),
        lambda g, x, v, w, b=None, d=None: g.Conv(x, v + w, _BIAS_SUM, like="c"),
        "distributive",
        "reassociating",
        needs=(("v", "constant"), ("w", "constant")),
        guard=all_of(_same_weights, _known("b", "d")),
        samples=(
            RuleSample(_SUM, _NONE, _SAME3),
            RuleSample(
                {**_SUM, "v": (2, 1, 3, 3), "w": (2, 1, 3, 3)},
                {"b": np.array([1, 2], np.float32), "d": None},
                {"c": {"group": 2}},
            ),
        ),
    ),
    rule(
        "sum-of-convolutions",
        lambda g, x, v, y, w, b=None, d=None: g.Conv(x, v, b, like="c") + g.Conv(y, w, d, like="c"),
        lambda g, x, v, y, w, b=None, d=None: g.Conv(
            g.Concat(x, y, axis=1), g.Concat(v, w, axis=1), _BIAS_SUM, like="c"
        ),
        "distributive",
        "reassociating",
        needs=(("v", "constant"), ("w", "constant")),
        guard=all_of(ungrouped, _same_kernel, _known("b", "d")),
        samples=(
            RuleSample(_SUM, {"b": np.array([1, 2], np.float32), "d": np.array([3, 4], np.float32)}, _SAME3),
            RuleSample({**_SUM, "y": (1, 3, 4, 3), "w": (2, 3, 3, 3)}, _NONE, {"c": {"strides": (2, 1)}}),
        ),
    ),
    rule(
        "convolution-of-sum",
        lambda g, x, y, w: g.Conv(x, w, like="c") + g.Conv(y, w, like="c"),
        lambda g, x, y, w: g.Conv(x + y, w, like="c"),
        "distributive",
        "reassociating",
        guard=lambda m: None if m.type("x").dims == m.type("y").dims else "the images differ in shape",
        samples=(RuleSample({"x": (1, 2, 3, 3), "y": (1, 2, 3, 3), "w": (2, 2, 3, 3)}, {}, _SAME3),),
    ),
    rule(
        "halve-groups",
        lambda g, x, w, b=None: g.Conv(x, w, b, like="c"),
        lambda g, x, w, b=None: g.Conv(
            x,
            Computed("w of pairs of groups", _halved_groups),
            b,
            like="c",
            group=_HALF_GROUP,
        ),
        "recognising",
        "reassociating",
        spreads=True,
        needs=(("w", "constant"),),
        guard=_even_groups,
        samples=(
            RuleSample({"x": (1, 4, 3, 3), "w": (8, 1, 1, 1), "b": (8,)}, {}, {"c": {"group": 4}}),
            RuleSample({"x": (1, 4, 3, 3), "w": (2, 2, 3, 3)}, {"b": None}, {"c": {"group": 2, "pads": (1, 1, 1, 1)}}),
        ),
    ),
    rule(
        "convolutions-as-groups",
        lambda g, x, v, y, w, b=None, d=None: g.Concat(g.Conv(x, v, b, like="c"), g.Conv(y, w, d, like="c"), axis=1),
        lambda g, x, v, y, w, b=None, d=None: g.Conv(
            g.Concat(x, y, axis=1), g.Concat(v, w, axis=0), _TWO_BIASES, like="c", group=2
        ),
        "distributive",
        "reassociating",
        needs=(("v", "constant"), ("w", "constant")),
        guard=all_of(ungrouped, _like_sides, _known("b", "d")),
        samples=(
            RuleSample(_SUM, _NONE, _SAME3),
            RuleSample(_SUM, {"b": None, "d": np.array([3, 4], np.float32)}, {"c": {"strides": (2, 1)}}),
        ),
    ),
    rule(
        "groups-of-one-image",
        lambda g, x, w, b=None: g.Conv(g.Concat(x, x, like="k"), w, b, like="c"),
        lambda g, x, w, b=None: g.Conv(x, w, b, like="c", group=1),
        "recognising",
        "exact",
        guard=_two_groups,
        samples=(
            RuleSample(
                {**_SHAPES, "w": (4, 2, 3, 3), "b": (4,)}, {}, {"c": {"group": 2, **_SAME3["c"]}, "k": {"axis": 1}}
            ),
            RuleSample(
                {**_SHAPES, "w": (2, 2, 1, 1)}, {"b": None}, {"c": {"group": 2, "strides": (2, 1)}, "k": {"axis": -3}}
            ),
        ),
    ),
    rule(
        "groups-apart",
        lambda g, x, w, b=None: g.Conv(x, w, b, like="c"),
        lambda g, x, w, b=None: g.Concat(
            *(
                g.Conv(part, _half(k, "w"), _half(k, "b"), like="c", group=_HALF_GROUP)
                for k, part in enumerate(g.Split(x, _HALF_CHANNELS, axis=1, outputs=2))
            ),
            axis=1,
        ),
        "distributive",
        "exact",
        needs=(("w", "constant"),),
        guard=all_of(_even_groups, _dense_groups, _known("b")),
        samples=(
            RuleSample(
                {"x": (1, 4, 3, 3), "w": (4, 2, 3, 3), "b": (4,)}, {}, {"c": {"group": 2, "pads": (1, 1, 1, 1)}}
            ),
            RuleSample({"x": (1, 8, 3, 3), "w": (8, 2, 1, 1)}, {"b": None}, {"c": {"group": 4, "strides": (2, 1)}}),
        ),
    ),
)
