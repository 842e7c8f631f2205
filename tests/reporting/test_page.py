"""The page of a report in a browser: whole, of a bounded size, worked by mouse and by keys, and deaf to hostile names."""

from __future__ import annotations

import base64
import gzip
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.reporting.documents import HOSTILE, small

from fusewise.errors import FusewiseError, UsageError
from fusewise.reporting.page import html
from fusewise.reporting.page.overview import overview, tabs_of, visible

TABS = ("overview", "graph", "kernels", "decisions", "time", "memory")

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def text() -> str:
    return html(small())


def hostile(position: int) -> str:
    found = HOSTILE[position % len(HOSTILE)]
    return f"{found} {position}" if position >= len(HOSTILE) else found


@pytest.fixture(scope="module")
def hostile_names() -> dict[str, str]:
    """Each text of the document, and the hostile one in its place."""
    return {}


@pytest.fixture(scope="module")
def hostile_document(hostile_names: dict[str, str]) -> dict[str, Any]:
    return small(lambda text: hostile_names.setdefault(text, hostile(len(hostile_names))))


def unpacked(text: str) -> Any:
    found = re.search(r'data-name="document">([^<]*)<', text)
    assert found is not None
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def test_the_document_is_in_the_page() -> None:
    document = small()
    text = html(document)
    assert unpacked(text) == document == small()
    assert html(document) == text
    assert "vega" not in re.findall(r'data-name="([^"]*)"', text)
    document["compile"]["ms"] = float("inf")
    assert unpacked(html(document))["compile"]["ms"] is None


def test_nothing_in_the_page_is_fetched(text: str) -> None:
    without = re.sub(r'<script type="application/gzip".*?</script>', "", text)
    assert not re.search(
        r"""(?:src|href)\s*=\s*(?!["']#)|url\(|@import|https?://(?!github\.com/[\w./-]+</code>)""",
        without.partition("<script>")[0],
    )
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert (
        policy[1].startswith("default-src &#39;none&#39;; script-src &#39;sha256-") and "unsafe-eval" not in policy[1]
    )


def test_the_licence_of_each_library_is_in_the_page(text: str) -> None:
    for words in (
        "Cytoscape.js: MIT",
        "EPL-2.0",
        "Eclipse Public License",
        "Permission is hereby granted, free of charge",
    ):
        assert words in text
    assert "Vega" not in text.partition("<footer")[2].partition("</footer>")[0]
    assert "Redistributions in binary form" in html({**small(), "charts": [{"section": "time"}]})
    assert "licences" not in html({"title": "nothing"}).partition("<footer")[2].partition("</footer>")[0]


def test_without_jinja_one_sentence() -> None:
    with (
        patch.dict(sys.modules, {"jinja2": None}),
        pytest.raises(UsageError, match=r"pip install \"fusewise\[report\]\""),
    ):
        html(small())


def test_without_the_libraries_one_sentence(tmp_path: Path) -> None:
    with (
        patch("fusewise.reporting.page.page._LIBRARIES", tmp_path),
        pytest.raises(FusewiseError, match="cytoscape.min.js, which pages are drawn with, is not there"),
    ):
        html(small())


def test_a_document_of_almost_nothing(open_page: Open) -> None:
    page = open_page(html({"schema": "fusewise-report", "version": 1, "title": "nothing"}))
    assert page.locator('[role="tab"]').all_inner_texts() == ["Overview"]
    page = open_page(html({**small(), "graphs": None}), "#kernels/group/-/0")
    assert page.locator("#details h2").inner_text() == "Conv+Relu"


@pytest.mark.parametrize(
    ("verb", "counts", "search", "note"),
    [
        ("report", {"written": 5, "clean": 4, "native": 3}, None, "3 after the passes"),
        ("passes", {"written": 5, "clean": 4}, None, "4 after the passes"),
        ("plan", {"written": 5, "native": 3}, None, "3 after the passes"),
        ("optimize", {"written": 5, "clean": 2}, {"search": "relaxed"}, "2 after the search"),
        ("optimize", {"written": 5, "clean": 4}, {"search": "none"}, "4 after the passes"),
        ("bench", {"written": 5}, None, ""),
    ],
)
def test_the_figure_of_operators_is_of_the_last_graph(
    verb: str, counts: dict[str, int], search: dict[str, Any] | None, note: str
) -> None:
    graphs = {name: {"nodes": [{}] * count} for name, count in counts.items()}
    found = overview({"verb": verb, "graphs": graphs, "search": search})["figures"]
    assert found[0] == ("operators", "5", note)


def test_the_tab_of_a_verb_stands_behind_the_overview() -> None:
    document = {**small(), "verb": "bench", "bench": {"runtimes": []}}
    assert [name for name, _ in tabs_of(document)] == ["overview", "bench", *TABS[1:]]


def test_tables_without_scripts(browser: Any, open_page: Open, text: str) -> None:
    page = open_page(text, java_script_enabled=False)
    said = page.inner_text("body")
    for words in ("Scripts are off", "420", "Conv+Relu", "75.0%", "its result has a size that only running it tells"):
        assert words in said or (words == "420" and "0.42 ms" in said)


def test_what_is_broken_shows_its_tables(open_page: Open, text: str) -> None:
    page = open_page(text.replace('data-name="document">H4sI', 'data-name="document">A4sI'), ready="#trouble:visible")
    assert "could not be unpacked" in page.inner_text("#trouble")
    assert page.locator("#panel-kernels").is_visible() and "Conv+Relu" in page.inner_text("#panel-kernels")


def test_tabs_and_addresses(open_page: Open, text: str) -> None:
    page = open_page(text, "#kernels/group/native/0")
    assert page.locator('[role="tab"]').count() == len(TABS)
    assert page.locator("#details h2").inner_text() == "Conv+Relu"
    assert page.locator('[role="tabpanel"]:visible').get_attribute("id") == "panel-kernels"
    page.click("#tab-decisions")
    assert page.evaluate("location.hash") == "#decisions/group/native/0"
    page.go_back()
    page.wait_for_selector("#panel-kernels:visible")
    page.click("#panel-kernels tr[data-kind=kernel] button")
    assert page.evaluate("location.hash") == "#kernels/kernel/-/0"
    assert page.locator("#panel-kernels tr[aria-current=true]").count() == 1
    page.click("summary:has-text('LLVM IR')")
    assert "ret void" in page.locator("#details pre").last.inner_text()
    assert page.locator("#details summary").all_inner_texts() == ["Loop nest, 2 lines", "LLVM IR, 4 lines"]


def test_an_address_of_nothing_selects_nothing(open_page: Open, text: str) -> None:
    page = open_page(text, "#%E0%A4%A")
    assert page.evaluate("location.hash") == "#overview"
    for fragment in (
        "#kernels/group/native/99",
        "#kernels/value/native/__proto__",
        "#nonsense",
        "#time/x",
        "#time/node/x/0",
    ):
        page.evaluate("hash => { location.hash = hash }", fragment)
        page.wait_for_timeout(20)
        assert page.locator("#details").is_hidden() and page.locator('[role="tabpanel"]:visible').count() == 1


def test_details_of_a_node(open_page: Open, text: str) -> None:
    page = open_page(text, "#decisions/node/native/1")
    said = page.inner_text("#details")
    for words in (
        "Relu",
        "one-to-one: each element",
        "two readers",
        "--fusion greedy",
        "fusing would save 64.0 KiB",
        "As written",
    ):
        assert words in said
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#details .option button")
    assert page.evaluate("navigator.clipboard.readText()") == "--fusion greedy"
    page.locator("#details").get_by_role("button", name="conv", exact=True).first.click()
    said = page.inner_text("#details")
    assert (
        "fold-batch-norm" in said and "--disable fold@bn" in said and "winograd" in said and "too few channels" in said
    )
    page.locator("#details").get_by_role("button", name="b", exact=True).first.click()
    assert "float32[1,16,32,32]" in page.inner_text("#details")
    page.keyboard.press("Escape")
    assert page.locator("#details").is_hidden()


def test_lists_sort_and_filter(open_page: Open, text: str) -> None:
    page = open_page(text, "#kernels")
    groups = page.locator("#panel-kernels .listing").first
    assert groups.locator("tbody th").all_inner_texts() == ["Conv+Relu 0", "NonZero 1", "ReduceMean 2"]
    groups.locator("thead button", has_text="Time").click()
    assert groups.locator("tbody th").all_inner_texts() == ["ReduceMean 2", "NonZero 1", "Conv+Relu 0"]
    assert groups.locator("th[aria-sort=ascending]").inner_text().startswith("Time")
    page.fill("#panel-kernels input >> nth=0", "relu")
    assert groups.locator("tbody th").all_inner_texts() == ["Conv+Relu 0"]
    page.select_option("#panel-kernels select >> nth=0", "host")
    assert "Nothing fits" in groups.inner_text()


def test_a_long_list_is_drawn_in_parts(open_page: Open) -> None:
    document = small()
    document["decisions"] = [{**document["decisions"][0], "serial": k, "what": f"rule {k}"} for k in range(3000)]
    page = open_page(html(document), "#decisions")
    rows = page.locator("#panel-decisions .listing").first.locator("tbody tr")
    assert rows.count() == 100
    page.click("text=Show 500 more of 3,000")
    assert rows.count() == 600
    assert page.evaluate("document.activeElement.innerText") == "rule 100"


def test_search_by_keys(open_page: Open, text: str) -> None:
    page = open_page(text)
    page.keyboard.press("/")
    page.keyboard.type("BN")
    box = page.locator("#find")
    assert box.get_attribute("aria-expanded") == "true"
    assert page.locator('[role="option"][aria-selected="true"]').inner_text().startswith("node")
    page.keyboard.press("Enter")
    assert page.locator("#details h2").inner_text() == "bn" and page.evaluate("document.activeElement.tagName") == "H2"
    assert "conv" in page.inner_text("#details")  # what it became
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type("mean_")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator("#details h2").inner_text() == "mean_1"
    page.keyboard.press("Control+k")
    page.keyboard.type("no such name")
    assert "Nothing has this name" in page.inner_text("#hits")
    page.keyboard.press("Escape")
    assert page.locator("#hits").is_hidden()


def test_tabs_by_keys(open_page: Open, text: str) -> None:
    page = open_page(text)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.focus("#tab-overview")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.locator("#panel-memory").is_visible()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-overview"


def test_themes(open_page: Open, text: str) -> None:
    page = open_page(text, color_scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(paper)
    page.click("label:has-text('Light')")
    light = page.evaluate(paper)
    assert light != dark and page.evaluate("fusewise.theme()") == "light"
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.evaluate(paper) == light
    page.click("label:has-text('Auto')")
    assert page.evaluate(paper) == dark


@pytest.mark.parametrize("width, height", [(390, 844), (1366, 768)])
def test_nothing_overflows_sideways(open_page: Open, hostile_document: dict[str, Any], width: int, height: int) -> None:
    page = open_page(html(hostile_document), width=width, height=height)
    for selected in ("", "/node/native/0"):
        for tab in TABS:
            page.evaluate("hash => { location.hash = hash }", f"#{tab}{selected}")
            page.wait_for_selector(f"#panel-{tab}:not([hidden])", state="attached")
            page.evaluate(f"fusewise.mounted('{tab}')")
            assert page.locator("#details").is_visible() == bool(selected)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, tab


def test_hostile_names_are_text(
    open_page: Open, hostile_document: dict[str, Any], hostile_names: dict[str, str]
) -> None:
    text = html(hostile_document)
    assert unpacked(text) == hostile_document
    page = open_page(text)
    said = []
    for tab in TABS:
        page.click(f"#tab-{tab}")
        page.evaluate(f"fusewise.mounted('{tab}')")
        said.append(page.inner_text("body"))
    targets = [{"kind": "node", "graph": graph, "id": k} for graph in ("written", "native") for k in range(4)]
    targets += [{"kind": kind, "id": k} for kind in ("group", "step") for k in range(3)]
    targets += [{"kind": kind, "id": k} for kind in ("kernel", "decision") for k in range(2)]
    targets += [
        {"kind": "value", "graph": "native", "id": value} for value in hostile_document["graphs"]["native"]["values"]
    ]
    for target in targets:
        page.evaluate("target => fusewise.select(target)", target)
        assert page.locator("#details").is_visible(), target
        said.append(page.inner_text("#details"))
    page.fill("#find", "script")
    said.append(page.inner_text("#hits"))
    assert page.evaluate("window.ran") is None
    whole = "\n".join(said)
    missing = [name for name in hostile_names.values() if visible(name) not in whole]
    assert not missing
    assert page.locator("main img, main script, aside img, aside script").count() == 0


def test_what_cannot_be_seen_is_written_as_python_and_the_page_write_it(open_page: Open, text: str) -> None:
    page = open_page(text)
    texts = [
        *(name for name in HOSTILE if "\ud800" not in name),
        "é ü 你好 שלום",
        "a\tb\nc\r",
        "\U000e0001",
        "\u00ad\ufeff",
    ]
    assert page.evaluate("texts => texts.map(text => fusewise.dom.shown(text))", texts) == [
        visible(one) for one in texts
    ]
