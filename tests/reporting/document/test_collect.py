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
from fusewise.reporting.report import Report


def small() -> Graph:
    """A convolution, its activation and a pooling."""
    b, rng = GraphBuilder(), np.random.default_rng(0)
    x = b.input("x", (1, 4, 16, 16))
    h = b.op("Conv", x, b.constant(rng.standard_normal((8, 4, 3, 3), np.float32)), pads=[1, 1, 1, 1], name="first")
    return b.finish(b.op("MaxPool", b.op("Relu", h, name="bound"), kernel_shape=[2, 2], strides=[2, 2], name="pool"))


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return dict(fusewise.report(small(), times=False, cache=False).document)


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
    report = fusewise.report(small(), times=False, cache=False)
    report.save(tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["graphs"] == document["graphs"]
    with pytest.raises(fusewise.FusewiseError, match="not as 'r.txt'"):
        report.save(tmp_path / "r.txt")


def test_a_compiled_model_reports_on_itself(document: dict[str, Any], tmp_path: Path) -> None:
    model = fusewise.compile(small(), cache=False)
    found = model.report()
    for part in ("graphs", "groups", "verdicts", "steps", "memory", "options"):
        assert found.document[part] == document[part], part
    assert all(kernel["code_bytes"] > 0 for kernel in found.document["kernels"])
    assert found.document["times"] is None
    assert "3 native" in repr(found) and found.title == "graph"
    model.save(tmp_path / "m.fw")
    with pytest.raises(fusewise.FusewiseError, match="give the model it was compiled from"):
        fusewise.open_compiled(tmp_path / "m.fw").report()


def test_a_notebook_gets_the_page_in_a_frame(document: dict[str, Any]) -> None:
    pytest.importorskip("jinja2")
    shown = Report({**document, "title": '"><script>'})._repr_html_()
    assert (
        shown.startswith('<iframe srcdoc="&lt;!doctype html&gt;') and "<script" not in shown and shown.count('"') == 8
    )
    assert '" sandbox="allow-scripts allow-downloads" style="' in shown


def test_memory_is_never_more_than_the_arena(document: dict[str, Any]) -> None:
    memory = document["memory"]
    live = [step["live_bytes"] for step in memory["steps"]]
    assert len(live) == len(document["steps"]) and 0 < max(live) <= memory["arena_bytes"]
    written = {value for step in document["steps"] for value in step["writes"]}
    assert written <= {value for buffer in memory["buffers"] for value in buffer["values"]}
