"""The report document of small models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusewise
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder


def small() -> Graph:
    """A convolution, its activation and a pooling."""
    b, rng = GraphBuilder(), np.random.default_rng(0)
    x = b.input("x", (1, 4, 16, 16))
    h = b.op("Conv", x, b.constant(rng.standard_normal((8, 4, 3, 3), np.float32)), pads=[1, 1, 1, 1], name="first")
    return b.finish(b.op("MaxPool", b.op("Relu", h, name="bound"), kernel_shape=[2, 2], strides=[2, 2], name="pool"))


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return fusewise.report(small()).document


def test_groups_hold_every_node_once(document: dict[str, Any]) -> None:
    nodes = document["graphs"]["native"]["nodes"]
    assert sorted(n for group in document["groups"] for n in group["nodes"]) == [node["id"] for node in nodes]
    for group in document["groups"]:
        assert all(nodes[n]["group"] == group["id"] for n in group["nodes"])
    assert document["groups"][0]["title"] == "Conv+Relu" and document["groups"][0]["anchor"] == 0


def test_steps_name_what_they_run_and_touch(document: dict[str, Any]) -> None:
    kernels, values = document["kernels"], document["graphs"]["native"]["values"]
    assert len(document["steps"]) >= 2
    for step in document["steps"]:
        assert step["index"] in kernels[step["kernel"]]["steps"]
        assert step["reads"] and step["writes"] and values.keys() >= {*step["reads"], *step["writes"]}
    assert all("define" in kernel["ir"] and kernel["symbol"] in kernel["nest"] for kernel in kernels)


def test_verdicts_say_what_fusing_saves(document: dict[str, Any]) -> None:
    fused, apart = document["verdicts"]
    assert fused["fused"] and fused["saved_bytes"] == 8 * 16 * 16 * 4 and fused["saved_ms"] > 0
    assert not apart["fused"] and apart["reason"] == "the types do not fuse"


def test_a_report_is_written_as_json(document: dict[str, Any], tmp_path: Path) -> None:
    report = fusewise.report(small())
    report.save(tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["graphs"] == document["graphs"]
    with pytest.raises(fusewise.FusewiseError, match="not as 'r.txt'"):
        report.save(tmp_path / "r.txt")
