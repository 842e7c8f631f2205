"""Charts as data: valid, with their data inside, the same each time, small for large models, and right beside what they show."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import altair as alt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reporting.documents import HOSTILE, small

from fusewise.errors import UsageError
from fusewise.reporting.charts import charts_of, running, svg
from fusewise.reporting.charts.comparing import medians, side_by_side
from fusewise.reporting.charts.entry import MOST_ROWS, Chart
from fusewise.reporting.charts.panels import grouped_bars, staircases
from fusewise.reporting.charts.searching import plan_costs, search_path
from fusewise.reporting.charts.standalone import STYLES
from fusewise.reporting.page.overview import visible

PAGE = Path(charts_of.__code__.co_filename).parent.parent / "page"


def helpers(name: str = "a") -> list[Chart]:
    """The charts that verbs ask for, with a text of the user's in each."""
    words = {"identity": "x", "title": name, "about": name}
    rows = [{"name": name, "value": 2.0, "low": 1.5, "high": 2.5}, {"name": f"{name} 2", "value": 3.0}]
    return [
        search_path([3.0, 4.0, 1.0], [name, "down"], title=name, unit="ms", ceilings=[3.1, None, 1.1]),
        plan_costs([(1, 5.0), (40, 3.0)], across="plans evaluated", levels=[(name, 2.5)], end=100),
        plan_costs([(0.1, 5.0)], across="seconds"),
        medians(rows, section="bench", **words),
        side_by_side([{"name": name, "before": 1.0, "after": None, "select": "group:1"}], (name, name), **words),
        grouped_bars({name: {name: {"a": 1.0, "b": 3.0}, "h": {"b": 0.0}}}, title=name, up="times", mark=1.0),
        staircases({name: [(0, 2.0), (5, 1.0)], "b": [(0, 3.0)]}, title=name, across="plans", up="MB"),
    ]


def large(steps: int = 4000, workers: int = 2) -> dict[str, Any]:
    """The parts of a document with so many steps, a group each."""
    group = {
        "flops": 1 << 20,
        "bytes": 1 << 12,
        "gflops": 9.0,
        "gbs": 1.0,
        "peak": 0.1,
        "bound": "compute",
        "level": "L1",
    }
    name = "Conv+BatchNormalization+Relu"
    bars = [{"step": k, "worker": w, "start_us": k * 10.0, "us": 8.0 + w} for k in range(steps) for w in range(workers)]
    live = [{"step": k, "live_bytes": (k * 7919) % 100_003} for k in range(steps)]
    places = [
        {"value": f"v{k}", "kind": "arena", "offset": k, "bytes": 64 + k % 9, "first": k, "last": k + 3}
        for k in range(steps)
    ]
    return {
        "steps": [{"index": k, "kind": "native", "group": k, "label": name, "barrier": True} for k in range(steps)],
        "times": {
            "limits": {"gflops": 100.0, "copy_gbs": 10.0, "levels": []},
            "groups": [
                group | {"group": k, "operators": name, "ms": 1 / (k + 1), "share": 1 / steps} for k in range(steps)
            ],
            "timeline": bars,
        },
        "memory": {"arena_bytes": 100_003, "steps": live, "buffers": places},
        "compile": {"ms": 3.0, "stages": [{"name": "loading", "ms": 3.0}]},
    }


def parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key with its value, however deep."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield key, each
            yield from parts(each)
    elif isinstance(value, list):
        for each in value:
            yield from parts(each)


def drawn(chart: Chart) -> ET.Element:
    return ET.fromstring(svg(chart))


def marks(chart: Chart, kind: str) -> list[ET.Element]:
    return [one for one in drawn(chart).iter() if one.get("aria-roledescription") == kind]


def values(chart: Chart) -> list[dict[str, Any]]:
    return [row for rows in chart["spec"]["datasets"].values() for row in rows]


def test_charts_are_valid_and_hold_their_data() -> None:
    found = [*charts_of(small()), *helpers()]
    assert [chart["id"] for chart in found[:7]] == [
        *("times-groups", "times-roofline", "times-timeline"),
        *("memory-arena", "memory-peak", "memory-map", "compile-stages"),
    ]
    for chart in found:
        alt.Chart.from_dict(chart["spec"])  # validates
        assert json.loads(json.dumps(chart, allow_nan=False)) == json.loads(json.dumps(chart))
        assert "url" not in dict(parts(chart["spec"]))
        assert chart["about"] and chart["title"]
        assert {len(row) for row in chart["rows"]} == {len(chart["rows"][0])}


def test_equal_documents_give_equal_charts() -> None:
    before = charts_of(small())
    helpers()
    assert charts_of(small()) == before


def test_colours_are_left_to_whoever_shows_a_chart() -> None:
    script = (PAGE / "charts.js").read_text()
    for chart in [*charts_of(small()), *helpers()]:
        text = json.dumps(chart["spec"])
        assert not re.search(r"#[0-9a-fA-F]{3,8}\b|\bwhite\b|\bblack\b|\"(?:fill|stroke|color)\": \"", text)
        styles = {value for key, value in parts(chart["spec"]) if key == "style"}
        assert styles <= set(STYLES)
    for name in STYLES:
        assert re.search(rf'^ +"?{name}"?: {{ ', script, re.MULTILINE), f"charts.js does not know {name}"


def test_names_are_text() -> None:
    name = " ".join(HOSTILE)
    document = small(lambda text: f"{name} {text}")
    for row in document["times"]["groups"]:
        row["operators"] = name
    tags, texts = set(), []
    for chart in [*charts_of(document), *helpers(name)]:
        elements = [*drawn(chart).iter()]
        tags |= {element.tag.rpartition("}")[2] for element in elements}
        texts += [element.text for element in elements if element.text]
        assert not any(key.startswith("on") or "href" in key for element in elements for key in element.attrib)
    assert tags <= {"svg", "g", "path", "text", "tspan", "rect", "line", "defs", "clipPath", "title", "desc"}
    assert any(visible(name)[-8:] in text for text in texts)


def test_charts_of_large_models_are_small() -> None:
    document = large()
    for chart in charts_of(document):
        assert len(json.dumps(chart["spec"])) < 320_000, chart["id"]
        assert len(chart["rows"]) <= MOST_ROWS + 2
    timeline = charts_of(document)[2]
    assert "8,000 shares of steps are drawn as" in timeline["about"]
    memory = charts_of(document)[3]
    highest = max(row["live_bytes"] for row in document["memory"]["steps"])
    factor = {f"{unit} in use": 2**shift for unit, shift in (("KiB", 10), ("MiB", 20), ("GiB", 30))}[
        memory["rows"][0][1]
    ]
    shown = max(row["size"] for row in values(memory) if "step" in row)
    assert shown * factor == pytest.approx(highest, rel=1e-3) and shown >= 1, "in a unit that fits"


def test_nothing_to_draw() -> None:
    assert charts_of({}) == []
    assert charts_of({"times": None, "memory": None, "compile": None}) == []
    empty = {"limits": {"gflops": 1.0, "copy_gbs": 1.0, "levels": []}, "groups": [], "timeline": []}
    assert charts_of({"times": empty, "memory": {"arena_bytes": 0, "steps": [], "buffers": []}, "compile": {}}) == []


def test_points_without_a_number_are_left_out() -> None:
    chart = search_path([3.0, float("inf"), 1.0], ["a", "b"], title="t", unit="ms")
    assert [row["cost"] for row in values(chart) if "rule" in row] == [3.0, 1.0]


lengths = st.lists(st.tuples(st.floats(0, 20), st.floats(0.01, 50), st.integers(0, 2)), min_size=1, max_size=60)


@settings(max_examples=20, deadline=None)
@given(lengths)
def test_merged_bars_keep_the_work(found: list[tuple[float, float, int]]) -> None:
    """Bars of a worker stay apart and in order, together take as long as before, and are few."""
    at: dict[int, float] = defaultdict(float)
    bars = []
    for step, (gap, us, worker) in enumerate(found):
        bars.append({"step": step, "worker": worker, "start_us": at[worker] + gap, "us": us})
        at[worker] += gap + us
    times = {"groups": [], "timeline": bars}
    with patch.object(running, "_MOST_BARS", 8):
        chart = running.timeline(times, [])
    assert chart is not None
    rows = [row for row in values(chart) if "kind" in row and row["kind"] != "waits"]
    assert len(rows) <= 8 + 3
    for worker in at:
        own = [row for row in rows if row["worker"] == f"worker {worker}"]
        assert sum(row["ms"] for row in own) == pytest.approx(
            sum(bar["us"] for bar in bars if bar["worker"] == worker) / 1e3, rel=2e-3
        )
        assert all(a["end"] <= b["start"] + 1e-6 for a, b in pairwise(own))


def test_waits_fill_what_workers_do_not_do() -> None:
    bars = [(0, 0, 0.0, 50.0), (0, 1, 0.0, 100.0), (1, 0, 100.0, 100.0)]
    timeline = [{"step": s, "worker": w, "start_us": start, "us": us} for s, w, start, us in bars]
    steps = [{"index": 0, "kind": "native", "group": 0, "barrier": True}, {"index": 1, "kind": "host", "group": 1}]
    chart = running.timeline({"groups": [], "timeline": timeline}, steps)
    assert chart is not None
    waits = [(row["worker"], row["start"], row["end"]) for row in values(chart) if row.get("kind") == "waits"]
    assert waits == [("worker 0", 0.05, 0.1), ("worker 1", 0.1, 0.2)]
    assert {row["start"] for row in values(chart) if set(row) == {"start"}} == {0.1}
    assert [row["kind"] for row in values(chart) if row.get("what") == "1"] == ["on the host"]


def test_ceilings_that_are_close_share_a_name() -> None:
    document = small()
    speeds = {"L1": 500.0, "L2": 230.0, "L3": 200.0, "memory": 30.0}
    document["times"]["limits"]["levels"] = [{"name": name, "bytes": 1, "gbs": gbs} for name, gbs in speeds.items()]
    named = [row["name"] for row in values(charts_of(document)[1]) if row.get("slope")]
    assert named == ["L1", "L2, L3", "memory"]


def test_the_peak_is_where_most_is_in_use() -> None:
    memory = {
        "arena_bytes": 30,
        "steps": [{"step": 0, "live_bytes": 10}, {"step": 1, "live_bytes": 30}, {"step": 2, "live_bytes": 20}],
        "buffers": [
            {"value": "a", "kind": "arena", "offset": 0, "bytes": 10, "first": 0, "last": 1},
            {"value": "b", "kind": "arena", "offset": 10, "bytes": 20, "first": 1, "last": 2},
            {"value": "c", "kind": "arena", "offset": 0, "bytes": 10, "first": 2, "last": 2},
            {"value": "w", "kind": "constant", "offset": 0, "bytes": 99, "first": 0, "last": 2},
        ],
    }
    _, peak, boxes = charts_of({"memory": memory})
    assert [row[0] for row in peak["rows"][1:]] == ["b", "a"] and "step 1" in peak["title"]
    assert {row["value"] for row in values(boxes)} == {"a", "b", "c"}


def test_a_point_for_each_graph_of_a_search() -> None:
    points = marks(search_path([3.0, 4.0, 1.0], ["up <&>", "down"], title="a & b", unit="ms"), "circle")
    assert ["rule: input" in p.get("aria-label", "") for p in points] == [True, False, False]
    assert "rule: up <&>" in points[1].get("aria-label", "")
    assert points[1].get("fill") != points[2].get("fill")
    heights = [float(re.findall(r"[-\d.]+", p.get("transform", ""))[1]) for p in points]
    assert heights[1] < heights[0] < heights[2], "a higher cost is drawn higher"
    assert len(marks(search_path([2.0], [], title="t", unit="ms"), "circle")) == 1


def test_bars_are_as_high_as_their_figures() -> None:
    chart = grouped_bars({"p": {"g": {"a": 1.0, "b": 3.0}, "h": {"b": 0.0}}}, title="t", up="u", mark=1.0)
    heights = [abs(float(re.findall(r"v([-\d.]+)", bar.get("d", ""))[0])) for bar in marks(chart, "bar")]
    assert heights[1] == pytest.approx(3 * heights[0], rel=0.01)
    assert heights[2] == 0.0


def test_a_staircase_goes_on_to_the_end() -> None:
    rows = values(staircases({"a": [(0, 2.0), (5, 1.0)], "b": [(0, 3.0)]}, title="t", across="plans", up="MB"))
    assert [(row["name"], row["x"], row["y"]) for row in rows][-2:] == [("b", 0.0, 3.0), ("b", 5.0, 3.0)]


@pytest.mark.parametrize("package", ["altair", "vl_convert"])
def test_without_a_package_one_sentence(package: str) -> None:
    chart = search_path([1.0], [], title="t", unit="ms")
    with (
        patch.dict(sys.modules, {package: None}),
        pytest.raises(UsageError, match=r"pip install \"fusewise\[report\]\""),
    ):
        svg(chart)
