"""A convolution of one part of an image and the other part, added: one convolution of the whole image.

MetaFlow's fusing of a Split and an Add (Jia et al., SysML 2019, figure 1): the other part goes through a kernel that is 1 in its
centre. For the search: where parallel convolutions were merged into one, this does away with the Split and the Add behind it.
In a residual network the convolved part is rectified first; a PRelu, whose slope is 0 in that part and 1 in the other, does so
to the whole image.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fusewise.rewrite.match import Match
from fusewise.rewrite.pattern import Computed
from fusewise.rewrite.rule import Rule, RuleSample, rule
from fusewise.rewrite.rules.convolutions import explicit, keeps_position, ungrouped, weights_of
from fusewise.rewrite.rules.guards import all_of

__all__ = ["PARTS"]


def _cuts_channels(match: Match) -> str | None:
    """The Split cuts the channels."""
    axis = match.like["s"].attribute("axis", 0) % match.type("x").rank
    return None if axis == 1 else "the Split does not cut the channels"


def _fits_the_other(match: Match) -> str | None:
    """As many channels come out as the other part has."""
    outputs, inputs = match.type("w").dims[:2]
    return None if match.type("x").dims[1] == inputs + outputs else "the channels differ"


def _beside_identity(match: Match, part: int) -> np.ndarray:
    """The weights for the convolved part, and for the other one the identity, in the order of the parts."""
    weights = weights_of(match, "w")
    channels = np.arange(len(weights))
    identity = np.zeros((len(weights), len(weights), *weights.shape[2:]), weights.dtype)
    identity[(channels, channels, *(size // 2 for size in weights.shape[2:]))] = 1
    return np.concatenate((identity, weights) if part else (weights, identity), axis=1)


def _slopes(match: Match, part: int) -> np.ndarray:
    """0 for the channels of the convolved part, 1 for those of the other."""
    kind = match.type("x")
    outputs, inputs = match.type("w").dims[:2]
    convolved, other = np.zeros(inputs, kind.dtype.numpy), np.ones(outputs, kind.dtype.numpy)
    found = np.concatenate((other, convolved) if part else (convolved, other))
    return found.reshape(-1, *(1,) * (kind.rank - 2))


def _other_part(name: str, part: int, rectified: bool) -> Rule:
    """The convolution is of part number `part` of two, which may be rectified, and the other one is added."""

    def before(g: Any, x: Any, w: Any, b: Any = None, sizes: Any = None) -> Any:
        parts = g.Split(x, sizes, like="s", outputs=2)
        return g.Conv(g.Relu(parts[part]) if rectified else parts[part], w, b, like="c") + parts[1 - part]

    def after(g: Any, x: Any, w: Any, b: Any = None, sizes: Any = None) -> Any:
        slopes = Computed("0 for the rectified channels, 1 for the others", lambda m: _slopes(m, part))
        weights = Computed("w beside the identity", lambda m: _beside_identity(m, part))
        return g.Conv(g.PRelu(x, slopes) if rectified else x, weights, b, like="c")

    sizes = (1, 2)
    return rule(
        name,
        before,
        after,
        "distributive",
        "reassociating",
        spreads=True,
        needs=(("w", "constant"),),
        guard=all_of(_cuts_channels, ungrouped, explicit, keeps_position, _fits_the_other),
        samples=(
            RuleSample(
                {"x": (1, 4, 4, 3), "w": (2, 2, 3, 3), "b": (2,)},
                {"sizes": None},
                {"c": {"pads": (1, 1, 1, 1)}, "s": {"axis": 1, "num_outputs": 2}},
            ),
            RuleSample(
                {"x": (2, 3, 3), "w": (sizes[1 - part], sizes[part], 3)},
                {"b": None, "sizes": np.array(sizes)},
                {"c": {"pads": (2, 2), "dilations": (2,)}, "s": {"axis": -2}},
            ),
        ),
    )


PARTS: tuple[Rule, ...] = (
    _other_part("second-part-into-convolution-of-first", 0, rectified=False),
    _other_part("first-part-into-convolution-of-second", 1, rectified=False),
    _other_part("second-part-into-convolution-of-rectified-first", 0, rectified=True),
    _other_part("first-part-into-convolution-of-rectified-second", 1, rectified=True),
)
