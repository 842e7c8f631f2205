"""Files for other programs, by what their readers ask for."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.reporting.documents import HOSTILE
from tests.reporting.documents import small as made

import fusewise
from fusewise.reporting.formats.dot import dot
from fusewise.reporting.formats.model_explorer import model_explorer, node_data
from fusewise.reporting.formats.perfetto import perfetto
from fusewise.reporting.formats.table import FORMATS, format_of


def hostile() -> dict[str, Any]:
    """A document in which every name is one that somebody might mean ill by."""
    given: dict[str, str] = {}

    def named(text: str) -> str:
        return given.setdefault(text, f"{HOSTILE[len(given) % len(HOSTILE)]} {len(given)}")

    return made(named)


DOCUMENTS = {"plain": made, "hostile": hostile}


@pytest.fixture(params=DOCUMENTS)
def document(request: pytest.FixtureRequest) -> dict[str, Any]:
    return DOCUMENTS[request.param]()


def test_names_of_files_say_the_format() -> None:
    assert {name: format_of(Path(f"x{row.suffix}")).name for name, row in FORMATS.items()} == {n: n for n in FORMATS}
    assert format_of(Path("x.json"), "dot").name == "dot"


def test_graphs_for_model_explorer_name_only_nodes_that_are_there(document: dict[str, Any]) -> None:
    found = model_explorer(document)
    assert found.keys() == {"label", "graphs"} and [graph["id"] for graph in found["graphs"]] == [*document["graphs"]]
    for graph in found["graphs"]:
        outputs = {node["id"]: {one["id"] for one in node["outputsMetadata"]} for node in graph["nodes"]}
        assert len(outputs) == len(graph["nodes"])
        for node in graph["nodes"]:
            assert all(isinstance(text, str) for pair in node.get("attrs", ()) for text in pair.values())
            for edge in node["incomingEdges"]:
                assert edge["sourceNodeOutputId"] in outputs[edge["sourceNodeId"]]
    conv = found["graphs"][-1]["nodes"][1]
    assert conv["namespace"].startswith("group 0: ") and "/" not in conv["namespace"].replace("/group", "")


def test_node_data_are_the_times_of_groups(document: dict[str, Any]) -> None:
    found = node_data(document)["native"]
    nodes = {node["id"] for node in model_explorer(document)["graphs"][-1]["nodes"]}
    assert found["results"].keys() <= nodes
    total = sum(row["ms"] for row in document["times"]["groups"])
    assert sum(one["value"] for one in found["results"].values()) == pytest.approx(total)


def test_copies_of_a_repeat_are_layers_of_their_own() -> None:
    rows = [
        {"id": k, "name": f"n{k}", "op": "Relu", "domain": "", "inputs": [f"v{k}"], "outputs": [f"v{k + 1}"]}
        for k in range(4)
    ]
    rest = {"attributes": {}, "mapping": "one_to_one", "flops": 1, "bytes": 8, "group": None, "runs": None, "how": ""}
    children = [{"kind": "scope", "title": "a/b", "children": [{"kind": "node", "title": "n0", "node": 0}]}]
    children.append({"kind": "node", "title": "n1", "node": 1})
    graph = {
        "inputs": ["v0"],
        "outputs": ["v4"],
        "nodes": [row | rest for row in rows],
        "values": {f"v{k}": {"type": "float32[1]", "bytes": 4, "constant": False} for k in range(5)},
        "outline": [{"kind": "repeat", "title": "layer", "children": children, "times": 2, "copies": [[0, 1], [2, 3]]}],
    }
    (found,) = model_explorer({"title": "t", "graphs": {"written": graph}, "groups": []})["graphs"]
    layers = {node["id"]: node["namespace"] for node in found["nodes"]}
    slash = "a\N{DIVISION SLASH}b"
    assert layers == {
        "input0": "",
        "0": f"layer/1/{slash}",
        "1": "layer/1",
        "2": f"layer/2/{slash}",
        "3": "layer/2",
        "output0": "",
    }


def test_a_trace_for_perfetto_has_every_share_of_the_run(document: dict[str, Any]) -> None:
    found = perfetto(document)
    bars = [event for event in found["traceEvents"] if event["ph"] == "X" and event["cat"] in ("kernel", "host")]
    assert [(bar["args"]["step"], bar["tid"] - 2, bar["ts"], bar["dur"]) for bar in bars] == [
        (one["step"], one["worker"], pytest.approx(one["start_us"], abs=1e-3), pytest.approx(one["us"], abs=2e-3))
        for one in document["times"]["timeline"]
    ]
    stages = [event["dur"] for event in found["traceEvents"] if event["ph"] == "X" and event["cat"] == "compile"]
    assert sum(stages) == pytest.approx(1e3 * sum(stage["ms"] for stage in document["compile"]["stages"]), abs=1e-2)


def test_graphviz_reads_the_graph(document: dict[str, Any]) -> None:
    text = dot(document)
    assert text.startswith("digraph ") and text.count(" -> ") == len(edges(document["graphs"]["native"]))
    if shutil.which("dot") is None:
        pytest.skip("Graphviz's dot is not installed")
    drawn = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True, timeout=60)
    assert drawn.stdout.count('class="node"') == 1 + 2 + len(document["graphs"]["native"]["nodes"])


def edges(graph: Mapping[str, Any]) -> list[str]:
    made_here = {*graph["inputs"], *(value for node in graph["nodes"] for value in node["outputs"])}
    reads: Iterable[str] = (value for node in graph["nodes"] for value in node["inputs"])
    return [value for value in (*reads, *graph["outputs"]) if value in made_here]


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("html", "json")])
def test_what_a_document_does_not_have_is_said(name: str) -> None:
    bare = {"title": "t", "made": {"fusewise": "0"}}
    with pytest.raises(fusewise.FusewiseError, match="the report has no"):
        FORMATS[name].text(bare)
