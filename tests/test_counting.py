"""What fusion saves in memory, as data and as a table."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fusewise.benchmarking.caches import CacheLevel
from fusewise.counting import VARIANTS, Variant, compared, headings, rows
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Constant, Graph, Node
from fusewise.ir.types import TensorType

LEVELS = (CacheLevel("L1", 4 << 10, 4), CacheLevel("L2", 16 << 10, 8))


def block() -> Graph:
    """A product and two activations, 64 rows."""
    dims = {"x": (64, 32), "w": (32, 64), "p": (64, 64), "s": (64, 64), "y": (64, 64)}
    weights = {"w": Constant(np.random.default_rng(0).standard_normal(dims["w"], np.float32))}
    nodes = (Node("MatMul", ("x", "w"), ("p",)), Node("Sigmoid", ("p",), ("s",)), Node("Tanh", ("s",), ("y",)))
    types = {name: TensorType(FLOAT32, each) for name, each in dims.items()}
    return Graph(("x",), ("y",), nodes, types, weights, "block", 21)


@pytest.fixture(scope="module")
def found():
    return compared(block(), threads=1, levels=LEVELS, seconds=0.0)


def test_both_ways_are_counted_and_timed(found) -> None:
    assert list(found["variants"]) == list(VARIANTS) == ["without fusion", "with fusion"]
    apart, together = found["variants"].values()
    assert (apart["groups"], together["groups"]) == (3, 1)
    result = 4 * 64 * 64
    assert apart["needed_bytes"] - together["needed_bytes"] == 4 * result  # two results less, each written and read
    assert apart["stored_bytes"] > together["stored_bytes"] >= result
    assert apart["loads"] + apart["stores"] > together["loads"] + together["stores"]
    assert apart["misses"]["L1"] > together["misses"]["L1"] > 0
    assert apart["peak_bytes"] >= together["peak_bytes"]
    for row in (apart, together):
        assert 0 < row["busy"] <= 1
        assert 0 < row["of_peak"] < 1
        assert row["ms"] > 0
        assert not row["host_steps"]


def test_groups_add_up(found) -> None:
    for row in found["variants"].values():
        assert sum(group["accesses"] for group in row["by_group"]) == row["loads"] + row["stores"]
        assert sum(group["needed_bytes"] for group in row["by_group"]) == row["needed_bytes"]
        assert sum(group["misses"]["L2"] for group in row["by_group"]) == row["misses"]["L2"]


def test_what_the_system_lacks_is_said_or_counted(found) -> None:
    for row in found["variants"].values():
        assert ("cycles" in row["counters"]) != ("cycles" in found["without_counters"])


def test_it_is_plain_data_and_a_table(found) -> None:
    again = json.loads(json.dumps(found))
    assert len(headings(again)) == len(rows(again)[0]) == len(rows(again)[1])
    assert headings(again)[5:7] == ("L1 misses k", "L2 misses k")
    assert rows(again)[1][:2] == ("with fusion", "1")


def test_a_variant_may_be_kept_from_rewriting() -> None:
    given = {"as it is": Variant("none", ("layout by the dominant operator",))}
    assert list(compared(block(), given, threads=1, levels=LEVELS, seconds=0.0)["variants"]) == ["as it is"]
