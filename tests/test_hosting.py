"""How nodes on the host run and what they are expected to take; who is warned of a cliff."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import fusewise
from fusewise import hosting
from fusewise.hosting import BODIES, EVALUATOR, NUMPY, ROUTINE
from fusewise.ir.dtypes import BOOL, STRING
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.ops.plain.table import PLAIN


def mixed() -> Graph:
    """A convolution, and strings joined, which nothing native does."""
    b = GraphBuilder()
    x, words = b.input("x", (1, 8, 4, 4)), b.input("words", (2,), STRING)
    y = b.op("Conv", x, b.constant(np.ones((8, 8, 3, 3), np.float32)), pads=(1, 1, 1, 1))
    return b.finish(y, b.op("StringConcat", words, words))


def test_a_node_that_takes_most_of_a_run_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "_WORTH_TELLING_MS", 0.0)
    fusewise.save(mixed(), tmp_path / "m.onnx")
    for _ in range(2):  # compiled, and from the cache
        with pytest.warns(RuntimeWarning, match=r"\(StringConcat\) runs on the host \(plain NumPy"):
            fusewise.compile(tmp_path / "m.onnx", cache=tmp_path)


def test_a_step_is_no_cliff() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fusewise.compile(mixed(), cache=False)
    assert model.summary["slow_host"] is None


def test_how_each_runs() -> None:
    b = GraphBuilder()
    x, keep = b.input("x", (8, 4)), b.input("keep", (8,), BOOL)
    rows = b.op("Compress", x, keep, axis=0)
    found = fusewise.inspect(
        b.finish(b.op("Exp", rows), b.op("StringConcat", b.input("a", (2,), STRING), b.input("b", (2,), STRING)))
    )
    ways = {row["op"]: (row["way"], row["expected_ms"]) for row in found["host"]}
    assert ways["Exp"] == (f"{NUMPY}, native for sizes that come back", None)
    assert ways["StringConcat"][0] == NUMPY
    assert {way.split(",")[0] for way, _ in ways.values()} <= {NUMPY, EVALUATOR, ROUTINE, BODIES}
    assert all(("", op) in PLAIN for op, (way, _) in ways.items() if way.startswith(NUMPY))


def test_what_a_gpu_leaves_to_the_host_stays_there() -> None:
    b = GraphBuilder()
    rows = b.op("Compress", b.input("x", (8, 4)), b.input("keep", (8,), BOOL), axis=0)
    model = fusewise.compile(b.finish(b.op("Exp", rows)), device="cuda:sm_90", cache=False)
    assert [(row["op"], row["way"]) for row in model.summary["host"]] == [("Compress", NUMPY), ("Exp", NUMPY)]
