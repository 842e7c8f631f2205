"""How nodes on the host run and what they are expected to take; who is warned of a cliff."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import fusewise
from fusewise.hosting import BODIES, EVALUATOR, NUMPY, ROUTINE
from fusewise.ir.dtypes import BOOL, INT64, STRING
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.ops.plain.table import PLAIN


def convoluted(size: int) -> Graph:
    """A convolution, and words counted, which nothing native does."""
    b = GraphBuilder()
    x = b.input("x", (1, 8, size, size))
    words = b.input("words", (size, size), INT64)
    y = b.op("Conv", x, b.constant(np.ones((8, 8, 3, 3), np.float32)), pads=(1, 1, 1, 1))
    counts = b.op(
        "TfIdfVectorizer",
        words,
        mode="TF",
        min_gram_length=1,
        max_gram_length=1,
        max_skip_count=0,
        ngram_counts=(0,),
        ngram_indexes=(0, 1),
        pool_int64s=(1, 2),
    )
    return b.finish(y, counts)


def test_a_node_that_takes_most_of_a_run_is_told_of(tmp_path: Path) -> None:
    fusewise.save(convoluted(128), tmp_path / "m.onnx")
    for _ in range(2):  # compiled, and from the cache
        with pytest.warns(RuntimeWarning, match=r"\(TfIdfVectorizer\) runs on the host \(reference evaluator"):
            fusewise.compile(tmp_path / "m.onnx", cache=tmp_path)


def test_a_step_is_no_cliff() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fusewise.compile(convoluted(4), cache=False)
    assert model.summary["slow_host"] is None


def test_how_each_runs() -> None:
    b = GraphBuilder()
    x, keep = b.input("x", (8, 4)), b.input("keep", (8,), BOOL)
    rows = b.op("Compress", x, keep, axis=0)
    found = fusewise.inspect(
        b.finish(b.op("Exp", rows), b.op("StringConcat", b.input("a", (2,), STRING), b.input("b", (2,), STRING)))
    )
    ways = {row["op"]: (row["way"], row["expected_ms"]) for row in found["host"]}
    assert ways["Exp"] == (NUMPY, None)
    assert {ways[op][0] for op in ways} <= {NUMPY, EVALUATOR, ROUTINE, BODIES}
    assert all(("", op) in PLAIN for op, (way, _) in ways.items() if way == NUMPY)
