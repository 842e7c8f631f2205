"""Which graph is the fastest: what must be gained on the input, and that answers are compared."""

from __future__ import annotations

import numpy as np
import pytest

from fusewise.bench import ranking
from fusewise.bench.ranking import difference, ranked
from fusewise.bench.timing import Timing
from fusewise.ops.build import GraphBuilder


def scaled(factor: float):
    build = GraphBuilder("scaled")
    x = build.input("x", (2, 3))
    return build.finish(build.op("Mul", x, build.constant(np.array(factor, np.float32))))


@pytest.mark.parametrize(
    "others, first",
    [
        ([(8.0, 8.0)], 0),
        ([(9.9, 9.9)], 1),  # less than timing is good for
        ([(8.0, 12.0)], 1),  # lucky once
        ([(9.0, 9.0), (8.0, 8.5)], 1),
    ],
)
def test_the_input_stays_unless_another_gains_in_shortest_run_and_median(monkeypatch, others, first):
    timings = [Timing((low, median, median + 1)) for low, median in (*others, (10.0, 10.0))]
    monkeypatch.setattr(ranking, "timed", lambda *_: tuple(timings))
    assert ranked([scaled(1.0)] * len(timings), "onnxruntime", 1)[0] == first


def test_answers_are_compared():
    assert difference(scaled(2.0), scaled(2.0)) == 0.0
    assert difference(scaled(2.0), scaled(3.0)) == pytest.approx(0.5)
