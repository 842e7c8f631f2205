"""The parts of single verbs on the page: each is drawn, says its figures, and takes no name for code."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from itertools import cycle
from typing import Any

import pytest
from tests.reporting.document.test_searches import branches
from tests.reporting.documents import HOSTILE, small
from tests.reporting.test_page_accessibility import findings

import fusewise
from fusewise import api
from fusewise.optimizing import optimized
from fusewise.reporting.charts import with_charts
from fusewise.reporting.document.bench import bench_part
from fusewise.reporting.document.comparison import compared
from fusewise.reporting.document.passes import experiment_part, passes_part
from fusewise.reporting.document.plan import plan_part
from fusewise.reporting.document.searches import search_part
from fusewise.reporting.document.verification import verification_part
from fusewise.reporting.page import html
from fusewise.select.pipeline import EXPERIMENTS
from fusewise.selecting import OrderSearch, experiment, selection, with_search

pytest.importorskip("jinja2")

Open = Callable[..., Any]
TABS = ("search", "passes", "plan", "verification", "bench", "comparison")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """A small document with every part that a verb fills, from real runs but for the runtimes."""
    graph, found = branches(), small()
    search = optimized(graph, search="relaxed", machine="gpu", faster_in="none", alpha=1.6)
    plan = fusewise.plan(
        "zoo:squeezenet1_1",
        search="local",
        plans=60,
        buffer="128KiB",
        explainer="smallest",
        progress=lambda what, share: None,
    )
    orders = with_search(selection(graph), graph, OrderSearch("estimate", seconds=20.0, budget=4, threads=1))
    times = {"p50_ms": 1.0, "p90_ms": 1.2, "min_ms": 0.9, "runs": 50, "load_ms": 20.0, "peak_rss_mb": 200.0}
    ours, peer = {**times, "max_rel_error": None}, {**times, "p50_ms": 2.5, "max_rel_error": 1e-6}
    race = {"runtimes": {"fusewise": ours, "onnxruntime": peer, "openvino": {"error": "it cannot"}}}
    one = {**race, "best_peer": "onnxruntime", "ratio": 2.5, "max_rel_error": 1e-6}
    other = deepcopy(found)
    other["kernels"][0]["way"] += " tile=9"
    other["machine"]["processor"] = "Another processor"
    return {
        **found,
        "search": search_part(search, graph, alpha=1.6, budget=300),
        "plan": plan_part(plan),
        "passes": passes_part(orders, graph),
        "verification": verification_part(api.verify(graph, inputs="hostile", cache=False)),
        "bench": bench_part({"threads": 2, "precision": "float32", **one}),
        "comparison": compared(found, other),
    }


def said(page: Any, tab: str) -> str:
    page.click(f"#tab-{tab}")
    page.evaluate(f"fusewise.mounted('{tab}')")
    return str(page.inner_text(f"#panel-{tab}"))


def test_every_part_says_its_figures(open_page: Open, document: dict[str, Any]) -> None:
    page = open_page(html(document))
    for words in ("enlarge-kernel", "sum-of-convolutions-of-one-image", "answers may differ by roundings", "best"):
        assert words in said(page, "search")
    for row in document["plan"]["boundaries"]:
        assert row["option"] is None or row["option"] in said(page, "plan")
    assert "19 operators did not fit" in said(page, "plan") or document["plan"]["splittings"]
    assert document["passes"]["family"] in said(page, "passes")
    assert "agree" in said(page, "verification") and "signed zeros" in said(page, "verification")
    assert "2.50 x" in said(page, "bench") and "openvino cannot run it: it cannot" in said(page, "bench")
    for words in ("Another processor", "another kernel", "as before"):
        assert words in said(page, "comparison")


def test_a_step_of_the_search_draws_the_graph_around_it(open_page: Open, document: dict[str, Any]) -> None:
    page = open_page(html(document), "#search")
    page.get_by_role("button", name="sum-of-convolutions-of-one-image").click()
    page.wait_for_selector(".point .side:nth-child(2) svg")
    before, after = (page.locator(f".point .side:nth-child({k})") for k in (1, 2))
    change = document["search"]["points"][2]["change"]
    assert before.locator("g.box.gone").count() == len(change["removed"]) == 3
    assert after.locator("g.box.new").count() == len(change["added"])
    assert "Before step 2" in (before.locator("svg").get_attribute("aria-label") or "")


def test_charts_are_drawn_and_a_point_shows_its_step(open_page: Open, document: dict[str, Any]) -> None:
    pytest.importorskip("altair")
    page = open_page(html(with_charts({key: part for key, part in document.items() if key != "charts"})))
    for tab in ("search", "passes", "plan", "bench", "comparison"):
        said(page, tab)
        assert page.locator(f"#panel-{tab} .chart svg").count() > 0, tab
    said(page, "search")
    detail = {"kind": "search", "id": 2}
    page.evaluate("detail => document.dispatchEvent(new CustomEvent('fusewise-chart', { detail }))", detail)
    assert page.inner_text("#panel-search .point h3").startswith("Step 2: ")


def test_a_group_of_the_plan_is_selected(open_page: Open, document: dict[str, Any]) -> None:
    page = open_page(html(document), "#plan")
    page.locator("#panel-plan .layer button").first.click()
    assert (
        page.evaluate("fusewise.selected.kind") == "group" and page.evaluate("location.hash") == "#plan/group/native/0"
    )
    page.get_by_label("Reason").select_option("too large")
    rows = sum(row["reason"] == "too large" for row in document["plan"]["boundaries"])
    assert page.locator("#panel-plan [aria-label='Why groups end where they do'] tbody tr").count() == rows


def test_lists_of_passes_beside_one_another(open_page: Open) -> None:
    rows = experiment(branches(), EXPERIMENTS["levels"][:2], budget=None)
    page = open_page(html({**small(), "passes": experiment_part("levels", rows)}), "#passes")
    text = said(page, "passes")
    assert all(row["pipeline"] in text for row in rows)


def test_hostile_names_are_text_at_any_width(open_page: Open, document: dict[str, Any]) -> None:
    """Every text of every part, and every name that is a key, ends as something that must not run."""
    endings = cycle(HOSTILE)
    keyed = ("before", "after", "types", "constants", "did", "symbols")

    def named(value: Any, within: str = "") -> Any:
        if isinstance(value, dict):
            return {key + next(endings) if within in keyed else key: named(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return [named(each) for each in value]
        return value + next(endings) if isinstance(value, str) else value

    text = html({**document, **{tab: named(document[tab]) for tab in TABS}})
    for width, height in ((1366, 768), (390, 844)):
        page = open_page(text, width=width, height=height)
        for tab in TABS:
            assert "<script>" in said(page, tab), tab
            assert page.evaluate("document.documentElement.scrollWidth") <= width, tab
        assert page.evaluate("window.ran") is None
        assert page.locator("main img, main script").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("scheme, width", [("light", 1366), ("dark", 390)])
def test_no_serious_finding_in_any_part(open_page: Open, document: dict[str, Any], scheme: str, width: int) -> None:
    page = open_page(html(document), color_scheme=scheme, width=width, bypass_csp=True)
    found = {}
    for tab in TABS:
        said(page, tab)
        if tab == "search":
            page.wait_for_selector(".point .side:nth-child(2) svg")
        found[tab] = findings(page)
    assert not any(found.values()), "\n".join(f"{tab}: {each}" for tab, all_ in found.items() for each in all_)
