"""The picture of a search's way: a point for each graph, steps up and down told apart, names escaped."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from fusewise.reporting.search_path import search_path


def test_a_point_for_each_graph() -> None:
    root = ET.fromstring(search_path([3.0, 4.0, 1.0], ["up <&>", "down"], title="a & b", unit="ms"))
    circles = [element for element in root.iter() if element.tag.endswith("circle")]
    assert [next(iter(circle)).text for circle in circles] == ["input", "up <&>", "down"]
    colours = [circle.get("fill") for circle in circles]
    assert colours[1] != colours[2]
    heights = [float(circle.get("cy", "")) for circle in circles]
    assert heights[1] < heights[0] < heights[2], "a higher cost is drawn higher"


def test_a_way_without_steps() -> None:
    root = ET.fromstring(search_path([2.0], [], title="t", unit="ms"))
    assert sum(element.tag.endswith("circle") for element in root.iter()) == 1
