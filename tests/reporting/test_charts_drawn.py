"""Charts in the page: each is drawn without a word on the console, follows the theme, selects, and can be saved."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.reporting.documents import HOSTILE, small
from tests.reporting.test_charts import helpers

from fusewise.reporting.charts import charts_of
from fusewise.reporting.page import html

Open = Callable[..., Any]


def with_charts(document: dict[str, Any], name: str = "a") -> dict[str, Any]:
    """The document with its charts, and those that verbs add in its tab of times."""
    others = [chart | {"id": f"other-{k}", "section": "times"} for k, chart in enumerate(helpers(name))]
    return document | {"charts": [*charts_of(document), *others]}


@pytest.fixture(scope="module")
def text() -> str:
    return html(with_charts(small()))


def test_each_chart_is_drawn(text: str, open_page: Open) -> None:
    page = open_page(text, "#time")
    names = page.locator("section.chart").evaluate_all("all => all.map(one => one.dataset.chart)")
    assert names == [
        "times-groups",
        "times-roofline",
        "times-timeline",
        *(f"other-{k}" for k in range(7)),
        "compile-stages",
    ]
    sizes = page.locator("section.chart svg.marks").evaluate_all("all => all.map(one => one.clientWidth)")
    assert len(sizes) == len(names) and min(sizes) > 200
    assert page.locator("#panel-time .chart-scroll").first.evaluate("one => one.scrollWidth <= one.clientWidth")
    page.locator("#tab-memory").click()
    page.wait_for_selector('section[data-chart="memory-map"] svg.marks')


def test_a_bar_selects_its_group(text: str, open_page: Open) -> None:
    page = open_page(text, "#time")
    page.locator('[data-chart="times-groups"] path[aria-roledescription="bar"]').nth(1).click()
    assert page.evaluate("fusewise.selected.kind + fusewise.selected.id") == "group1"
    page.locator('[data-chart="times-timeline"] path[aria-roledescription="bar"]').last.click()
    assert page.evaluate("fusewise.selected.kind + fusewise.selected.id") == "step0"


def test_the_timeline_moves_and_zooms(text: str, open_page: Open) -> None:
    page = open_page(text, "#time")
    chart = page.locator('[data-chart="times-timeline"]')
    bar = chart.locator('path[aria-roledescription="bar"]').last
    before = bar.evaluate("one => one.getBBox().width")
    bar.hover()
    page.mouse.wheel(0, -200)
    page.wait_for_timeout(100)
    assert bar.evaluate("one => one.getBBox().width") == before, "the wheel alone moves the page"
    bar.scroll_into_view_if_needed()
    bar.hover()
    page.keyboard.down("Shift")
    page.mouse.wheel(0, -200)
    page.wait_for_timeout(200)
    assert chart.locator("path[aria-roledescription='bar']").last.get_attribute("d") != ""
    assert bar.evaluate("one => one.getBBox().width") > before


def test_charts_follow_the_theme(text: str, open_page: Open) -> None:
    page = open_page(text, "#time", color_scheme="light")
    bar = '[data-chart="times-groups"] path[aria-roledescription="bar"]'
    light = page.locator(bar).first.get_attribute("fill")
    page.locator('.themes input[value="dark"]').check(force=True)
    page.wait_for_function(
        "([bar, light]) => document.querySelector(bar)?.getAttribute('fill') !== light", arg=[bar, light]
    )


def test_a_chart_is_saved_and_read_as_a_table(text: str, open_page: Open, tmp_path: Path) -> None:
    page = open_page(text, "#time")
    chart = page.locator('[data-chart="times-groups"]')
    for kind in ("svg", "png"):
        with page.expect_download() as saved:
            chart.get_by_role("button", name=f"Save {kind.upper()}").click()
        assert saved.value.suggested_filename == f"times-groups.{kind}"
        saved.value.save_as(tmp_path / kind)
    assert ET.parse(tmp_path / "svg").getroot().tag.endswith("svg")
    assert (tmp_path / "png").read_bytes().startswith(b"\x89PNG")
    chart.locator("summary").click()
    chart.locator("tbody tr").first.wait_for()
    assert chart.locator("tbody tr").count() == 3


def test_hostile_names_stay_text(open_page: Open) -> None:
    numbers: dict[str, str] = {}
    document = small(lambda text: numbers.setdefault(text, f"{HOSTILE[len(numbers) % len(HOSTILE)]} {len(numbers)}"))
    for k, row in enumerate(document["times"]["groups"]):
        row["operators"] = HOSTILE[k]
    document = with_charts(document, HOSTILE[2])
    for one in document["charts"]:
        one["spec"] = {**one["spec"], "usermeta": {"embedOptions": {"actions": True, "ast": False}}}
    page = open_page(html(document), "#time", width=390)
    assert page.locator(".vega-actions").count() == 0
    for chart in page.locator("section.chart summary").all():
        chart.click()
    page.locator('[data-chart="times-groups"] path[aria-roledescription="bar"]').first.hover()
    page.wait_for_selector("#vg-tooltip-element.visible")
    assert HOSTILE[0] in page.locator("#vg-tooltip-element").inner_text()
    assert page.evaluate("window.ran") is None
