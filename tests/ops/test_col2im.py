"""Col2Im natively: every element that windows took is added up where it was taken, and nothing beside is read."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.whole import Case

import fusewise


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """In one to three axes, with every stride and dilation; windows that do not reach all of the image, too."""
    rank = draw(st.integers(1, 3))
    image, block = ([draw(st.integers(low, high)) for _ in range(rank)] for low, high in ((5, 19 - 4 * rank), (1, 4)))
    strides, dilations = ([draw(st.integers(1, high)) for _ in range(rank)] for high in (5, 2))
    pads = [draw(st.integers(0, 2)) for _ in range(2 * rank)]
    spans = [(k - 1) * d + 1 for k, d in zip(block, dilations, strict=True)]
    counts = [(e + pads[d] + pads[rank + d] - spans[d]) // strides[d] + 1 for d, e in enumerate(image)]
    counts = [max(count, 1) for count in counts]
    image = [
        max(e, (c - 1) * s + span - pads[d] - pads[rank + d])
        for d, (e, c, s, span) in enumerate(zip(image, counts, strides, spans, strict=True))
    ]
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    x = rng.integers(-9, 9, (draw(st.integers(1, 2)), 2 * math.prod(block), math.prod(counts))).astype(np.float32)
    wanted = np.zeros((len(x), 2, *image), np.float32)
    columns = x.reshape(len(x), 2, *block, *counts)
    for tap, place in itertools.product(np.ndindex(*block), np.ndindex(*counts)):
        at = [p * s + t * d - b for p, s, t, d, b in zip(place, strides, tap, dilations, pads, strict=False)]
        if all(0 <= a < e for a, e in zip(at, image, strict=True)):
            wanted[(slice(None), slice(None), *at)] += columns[(slice(None), slice(None), *tap, *place)]
    stated = {"strides": strides, "dilations": dilations, "pads": pads}
    return Case("Col2Im", (x, np.array(image), np.array(block)), (wanted,), stated, constant=(1, 2), opset=18)


@settings(max_examples=25, deadline=None)
@given(one=cases())
def test_windows_are_added_up(one: Case) -> None:
    model = fusewise.compile(one.model(), strict=True, threads=1, cache=False, sanitize=True)
    np.testing.assert_array_equal(model.run(None, one.feeds)[0], one.wanted[0])
