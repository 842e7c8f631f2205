"""The document of a model for a GPU: its kernels, launches and who waits for whom, estimates, and times on a simulated one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import jsonschema
import msgspec
import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest
from tests.reporting.document.test_schema import closed
from tests.runtime.gpu.kernels import needs_triton
from tests.runtime.gpu.sharing import compile_nothing, share

import fusewise
from fusewise import api
from fusewise.benchmarking import gpu_roofline
from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.estimate import occupancy
from fusewise.errors import UsageError
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.reporting.charts import with_charts
from fusewise.reporting.document.schema import ReportDocument
from fusewise.reporting.formats.model_explorer import node_data
from fusewise.reporting.report import Report
from fusewise.runtime.gpu.driver import NoDriver
from fusewise.runtime.gpu.fake import FakeDriver
from fusewise.runtime.gpu.timing import launch_times

H100 = device_named("sm_90")


def branches() -> Graph:
    """Two softmaxes of one sum, which need not wait for each other, a product of both, and NonZero on the host."""
    b = GraphBuilder()
    x = b.input("x", (16, 32))
    s = b.op("Add", x, b.constant(np.ones(32, np.float32)), name="sum")
    left, right = b.op("Softmax", s, axis=-1, name="left"), b.op("Softmax", s, axis=0, name="right")
    y = b.op("MatMul", left, b.op("Transpose", right, perm=[1, 0], name="turned"), name="product")
    return b.finish(y, b.op("NonZero", y, name="places"))


def recurrent() -> onnx.ModelProto:
    """A recurrence of free sizes, which is two launches: a product of all steps, and the loop over them."""
    text = """<ir_version: 10, opset_import: ["": 21]>
        g (float[time,batch,8] x, float[1,64,8] w, float[1,64,16] r) => (float[time,1,batch,16] y) {
            [lstm] y = LSTM <hidden_size = 16> (x, w, r)
        }"""
    model = onnx.parser.parse_model(text)
    zeros = [np.zeros((1, 64, width), np.float32) for width in (8, 16)]
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(each, name) for each, name in zip(zeros, "wr", strict=True)
    )
    del model.graph.input[1:]
    return model


@pytest.fixture(scope="module")
def uncompiled() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        compile_nothing(patch)
        yield


@pytest.fixture(scope="module")
def document(uncompiled: None) -> dict[str, Any]:
    told: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        share(patch, None)
        found = fusewise.report(branches(), device="cuda:sm_90", cache=False, warn=told.append).document
    assert len(told) == 1 and told[0].startswith("the report has no times, but estimates: there is no driver")
    return dict(found)


def test_it_fits_the_schema(document: dict[str, Any]) -> None:
    schema = closed(msgspec.json.schema(ReportDocument))
    jsonschema.validate(json.loads(json.dumps(document, allow_nan=False)), schema)
    assert document["times"] is None and document["device"]["architecture"] == "sm_90"
    assert document["options"] == {"device": "cuda:sm_90", "cache": False}
    assert all(stage["ms"] is None for stage in document["stages"] if stage["id"] in ("clean", "native"))


def test_groups_and_nodes_are_told_as_for_a_cpu(document: dict[str, Any]) -> None:
    plain = fusewise.report(branches(), times=False, cache=False).document
    assert document.keys() - plain.keys() == {"device", "estimates"} and plain.keys() <= document.keys()
    nodes = document["graphs"]["native"]["nodes"]
    assert sorted(n for group in document["groups"] for n in group["nodes"]) == [node["id"] for node in nodes]
    how = {node["name"]: (node["runs"], node["how"]) for node in nodes}
    assert how["left"] == ("kernel", "rows " + how["left"][1].partition(" ")[2]) and how["places"][0] == "host"
    assert any(one["kind"] == "kernel" and one["what"] == "rows" and one["option"] for one in document["decisions"])
    assert not any(one["what"] == "nest" and one["option"] for one in document["decisions"]), (
        "the last cannot be refused"
    )


def test_steps_are_launches_that_wait_for_each_other(document: dict[str, Any]) -> None:
    steps, values = document["steps"], document["graphs"]["native"]["values"]
    made = {value: step["index"] for step in steps for value in step["writes"]}
    before: dict[int, set[int]] = {}
    for step in steps:
        assert values.keys() >= {*step["reads"], *step["writes"]}
        waits = set(step["waits_for"])
        before[step["index"]] = waits.union(*(before[one] for one in waits))
        assert {made[value] for value in step["reads"] if value in made} <= before[step["index"]], step
    assert [(step["label"], step["waits_for"]) for step in steps] == [
        ("Add+Softmax", []),
        ("Add+Softmax", []),
        ("Softmax+Transpose", [1]),
        ("MatMul", [0, 2]),
        ("places", [3]),
    ]
    assert steps[-1]["kind"] == "host" and steps[-1]["reason"] and "estimate" not in steps[-1]


def test_kernels_have_what_they_take_of_a_multiprocessor(document: dict[str, Any]) -> None:
    held = occupancy(H100, registers=32, shared_bytes=0, threads=128)
    for kernel in document["kernels"]:
        assert "@triton.jit" in kernel["source"] and not kernel["ir"] and kernel["code_bytes"] == 4
        assert kernel["gpu"]["blocks_per_multiprocessor"] == held.blocks and kernel["gpu"]["occupancy"] == held.share
        assert all(document["steps"][at]["kernel"] == kernel["id"] for at in kernel["steps"])


def test_estimates_add_up_and_are_called_so(document: dict[str, Any]) -> None:
    launches = [step for step in document["steps"] if step["kind"] == "native"]
    for step in launches:
        one = step["estimate"]
        assert one["us"] == pytest.approx(one["launch_us"] + max(one["memory_us"], one["arithmetic_us"]))
    found = document["estimates"]
    assert found["ms"] == pytest.approx(sum(step["estimate"]["us"] for step in launches) / 1e3)
    assert sum(row["share"] for row in found["groups"]) == pytest.approx(1)
    assert all(row["peak"] <= 1 and row["limit"] == "launch" for row in found["groups"])
    charts = with_charts(document)["charts"]
    told = [chart for chart in charts if chart["section"] == "times"]
    assert len(told) == 2 and all("Nothing was measured" in chart["about"] for chart in told)
    assert node_data(document)["native"]["name"] == "ms of launches, estimated"


def test_memory_lies_where_the_program_has_it(document: dict[str, Any]) -> None:
    memory = document["memory"]
    arena = [one for one in memory["buffers"] if one["kind"] == "arena"]
    assert arena and all(one["offset"] + one["bytes"] <= memory["arena_bytes"] for one in arena)
    assert max(row["live_bytes"] for row in memory["steps"]) <= memory["arena_bytes"]
    for k, one in enumerate(arena):
        for other in arena[:k]:
            if one["first"] <= other["last"] and other["first"] <= one["last"]:
                apart = (
                    one["offset"] + one["bytes"] <= other["offset"] or other["offset"] + other["bytes"] <= one["offset"]
                )
                assert apart, (one, other)


@needs_triton
def test_with_a_gpu_there_are_times(
    uncompiled: None, monkeypatch: pytest.MonkeyPatch, document: dict[str, Any]
) -> None:
    device = FakeDriver("sm_90", 1 << 26, takes=lambda kernel: 5.0 if "product" in kernel.symbol else 2.0)
    share(monkeypatch, device)
    monkeypatch.setattr(gpu_roofline, "launch_times", partial(launch_times, repeats=2, rounds=1))  # it is interpreted
    with fusewise.compile(branches(), device="cuda", cache=False) as model:
        found = model.report(times=True).document
    times, steps = found["times"], found["steps"]
    jsonschema.validate(json.loads(json.dumps(found)), closed(msgspec.json.schema(ReportDocument)))
    launches = sum(step["kind"] == "native" for step in steps)
    assert times["ms"] == pytest.approx((2.0 * (launches - 1) + 5.0) / 1e3) and times["timeline"] == []
    assert times["groups"][0]["ms"] == pytest.approx(0.005) and "MatMul" in times["groups"][0]["operators"]
    assert found["kernels"] == document["kernels"] and found["estimates"] == document["estimates"]
    figures, events = api.profile(branches(), device="cuda", cache=False, runs=2)
    assert figures["groups"][0] == times["groups"][0] and events == []
    device.close()


def test_what_needs_a_gpu_says_so_and_files_hold_no_graph(
    uncompiled: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    share(monkeypatch, None)
    with pytest.raises(NoDriver, match="there is no driver"):
        api.profile(branches(), device="cuda:sm_90", cache=False)
    with pytest.raises(NoDriver, match="to compile without a GPU name an architecture"):
        fusewise.report(branches(), device="cuda", cache=False)
    model = fusewise.compile(branches(), device="cuda:sm_90", cache=False)
    assert "estimated at" in repr(model.report())
    model.save(tmp_path / "m.fw")
    with pytest.raises(UsageError, match="give the model it was compiled from"):
        fusewise.open_compiled(tmp_path / "m.fw").report()
    model.close()
    with pytest.raises(UsageError, match="closed"):
        model.report()


def test_a_node_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    found = api.explain(branches(), node="turned", device="cuda:sm_90", cache=False)
    (part,) = found["became"]
    assert part["runs"] in ("kernel", "") and found["decisions"]
    (host,) = api.explain(branches(), node="places", device="cuda:sm_90", cache=False)["became"]
    assert host["runs"] == "host" and host["how"]
    (loop,) = api.explain(recurrent(), node="lstm", device="cuda:sm_90", cache=False)["became"]
    assert all(family in loop["how"] for family in ("product ", "recurrence ")), (
        "sizes are free, and it takes two launches"
    )
    share(monkeypatch, None)
    with pytest.raises(NoDriver, match="to explain a node without a GPU name an architecture"):
        api.explain(branches(), node="left", device="cuda", cache=False)


def test_the_page_says_what_is_estimated(document: dict[str, Any], open_page: Any) -> None:
    pytest.importorskip("jinja2")
    page = open_page(Report(document).html(), "#kernels")
    kernels = page.text_content("#panel-kernels")
    assert all(word in kernels for word in ("Estimate", "Most of it for", "Registers", "Occupancy", "Lines for Triton"))
    assert "LLVM" not in kernels and "all launches, estimated" in page.text_content("#panel-overview")

    def details(kind: str, number: int) -> str:
        page.evaluate("([kind, id]) => window.fusewise.select({ kind, id })", [kind, number])
        return str(page.text_content("#details"))

    step = details("step", 3)
    assert all(word in step for word in ("as a launch on the GPU", "Estimate, not measured", "Waits for", "Waves"))
    assert "32 of a thread, 128 threads of a block" in details("kernel", 0) and "Source for Triton" in details(
        "kernel", 0
    )
    assert "of all launches, not measured" in details("group", 0)
    assert "Waits for" in details("step", 4) and "on the host" in details("step", 4)
