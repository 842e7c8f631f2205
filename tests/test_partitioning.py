"""Regions for back ends: what goes where, and the functions they become in a file, which gives the same answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import fusewise
from fusewise.benchmarking.inputs import random_feeds
from fusewise.errors import UsageError
from fusewise.frontend.onnx_import import load
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.partitioning import REGION_DOMAIN, regions_for, regions_of
from fusewise.passes.partition_graph import partition_graph
from fusewise.select.pipeline import Pipeline
from fusewise.selecting import experiment
from fusewise.trace import Trace
from fusewise.zoo.scaled import scaled


def _mixed() -> Graph:
    """A convolution, an operator that only the host has, and an elementwise end of two results."""
    b = GraphBuilder("mixed")
    x = b.input("x", (1, 3, 8, 8))
    weights = b.constant(np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32), "w")
    a = b.op("Relu", b.op("Conv", x, weights, pads=[1, 1, 1, 1]))
    values, places = b.op("Unique", b.op("Reshape", a, b.constant([-1])), outputs=2, sorted=1)
    del places
    return b.finish(b.op("Tanh", a), b.op("Size", values))


def test_each_node_goes_to_the_first_that_takes_it() -> None:
    graph = _mixed()
    found = regions_for(graph)
    place = {
        node.op: name
        for name, group in zip(found.names, found.partition.groups, strict=True)
        for node in group.members(graph)
    }
    assert place["Conv"].startswith("accelerator")
    assert place["Unique"].startswith("host")
    assert "no element definition" in found.refused["native"]
    assert set(regions_for(graph, ("host",)).back_ends) == {"host"}
    assert set(regions_for(graph, ("native",)).back_ends) == {"native", "host"}
    with pytest.raises(UsageError, match="no back end 'gpu'; there are accelerator, native, host"):
        regions_for(graph, ("gpu",))


def test_bytes_between_regions() -> None:
    rows = regions_for(_mixed()).summary["regions"]
    assert rows[0]["reads"] == ["x"]
    assert rows[0]["bytes_read"] == 4 * 3 * 64
    assert sum(len(row["nodes"]) for row in rows) == len(_mixed().nodes)


@pytest.mark.parametrize("family", ["resnet", "mobilenet", "ssd", "bert"])
def test_regions_are_functions_of_the_file(family: str, tmp_path: Path) -> None:
    graph = scaled(family)
    assert regions_of(graph) is None
    parted = partition_graph(graph, Trace())
    path = tmp_path / "parted.onnx"
    fusewise.save(parted, path)
    model = onnx.load(path)
    found = regions_of(parted)
    assert found is not None
    assert [f.name for f in model.functions] == list(found.names)
    assert {f.domain for f in model.functions} == {REGION_DOMAIN}
    assert {node.domain for node in model.graph.node} == {REGION_DOMAIN}
    assert sum(len(f.node) for f in model.functions) == len(graph.nodes)
    onnx.checker.check_model(model)
    feeds = random_feeds(graph, 0)
    sessions = (
        onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
        for m in (model, fusewise.to_onnx(graph))
    )
    for a, b in zip(*(session.run(None, feeds) for session in sessions), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    back = load(path)
    assert sorted(node.op for node in back.nodes) == sorted(node.op for node in graph.nodes)
    assert back.outputs == graph.outputs
    assert len(regions_of(back).partition.groups) == len(found.partition.groups)  # type: ignore[union-attr]


def test_a_published_list_tells_its_regions() -> None:
    graph = scaled("resnet")
    lists = [Pipeline("parted", ("PartitionGraph",)), Pipeline("whole", ("FuseOps",))]
    parted, whole = experiment(graph, lists, budget=None)
    assert parted["regions"] == regions_for(graph).summary["back_ends"]
    assert not parted["unchanged"]
    assert whole["regions"] == {}
