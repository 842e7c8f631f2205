"""Text, of which many elements are alike or none are: each element as it is by itself."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fusewise.ir.graph import Node, attributes_of
from fusewise.ops.plain.table import plain_evaluator

TEXTS = st.text(alphabet="ab ,\n\u00e9\u2003", max_size=6)


def nobody(*_: Any) -> list[Any]:
    raise AssertionError("asked the evaluator")


@st.composite
def texts(draw: st.DrawFn) -> np.ndarray:
    """Of any rank, empty ones too; few different ones, or all; more than are looked at to tell."""
    shape = draw(st.sampled_from([(), (0,), (1,), (7,), (3, 0), (2, 5), (2, 3, 2), (300,), (3, 200)]))
    count = int(np.prod(shape))
    pool = draw(st.lists(TEXTS, min_size=1, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    found = [pool[k] for k in rng.integers(0, len(pool), count)]
    if draw(st.booleans()):
        found = [f"{text} {k}" for k, text in enumerate(found)]
    array = np.empty(count, object)
    array[:] = found
    return array.reshape(shape)


@given(texts(), st.sampled_from(["", " ", ",", "ab"]), st.sampled_from([None, 0, 1, 2]))
def test_strings_are_split_one_by_one(words: np.ndarray, delimiter: str, most: int | None) -> None:
    given_ones = {"delimiter": delimiter} | ({} if most is None else {"maxsplit": most})
    run = plain_evaluator(Node("StringSplit", ("x",), ("y", "n"), attributes_of(**given_ones)), 20, nobody)
    assert run is not None
    parts, counts = run(words)
    right = {at: str(words[at]) for at in np.ndindex(words.shape)}
    expected = {
        at: text.split(delimiter or None, -1 if most is None else most) if text else [] for at, text in right.items()
    }
    extent = max(map(len, expected.values()), default=0)
    assert parts.shape == (*words.shape, extent) and parts.dtype == object
    assert counts.shape == words.shape and counts.dtype == np.int64
    for at, row in expected.items():
        assert counts[at] == len(row)
        assert parts[at].tolist() == row + [""] * (extent - len(row))


@given(texts(), st.sampled_from(["[ab ]*", "a.*", "", "(?s).*\n.*", "\u00e9+"]))
def test_strings_are_matched_one_by_one(words: np.ndarray, pattern: str) -> None:
    run = plain_evaluator(Node("RegexFullMatch", ("x",), ("y",), attributes_of(pattern=pattern)), 20, nobody)
    assert run is not None
    (found,) = run(words)
    assert found.shape == words.shape and found.dtype == bool
    for at in np.ndindex(words.shape):
        assert found[at] == (re.fullmatch(pattern, str(words[at])) is not None)
