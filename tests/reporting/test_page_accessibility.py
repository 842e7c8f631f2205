"""The page of a report for who does not use a mouse or does not see it: axe-core finds nothing serious, keys reach everything."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from tests.reporting.documents import small

from fusewise.reporting.charts import charts_of
from fusewise.reporting.page import html

TABS = ("overview", "graph", "kernels", "decisions", "time", "memory")
TARGETS = (
    "node/native/1",
    "group/native/0",
    "kernel/-/0",
    "value/native/c",
    "step/-/1",
    "decision/-/0",
)


@pytest.fixture(scope="module")
def text() -> str:
    return html(small() | {"charts": charts_of(small())})


def findings(page: Any) -> list[str]:
    """What axe-core calls serious or critical on the page as it stands."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        f"{one['impact']} {one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes'][:3]]}"
        for one in found
        if one["impact"] in {"serious", "critical"}
    ]


@pytest.mark.slow
@pytest.mark.parametrize("scheme, width", [("light", 390), ("dark", 1366)])
def test_no_serious_finding_in_any_tab(open_page: Callable[..., Any], text: str, scheme: str, width: int) -> None:
    page = open_page(text, color_scheme=scheme, width=width, bypass_csp=True)
    found = {}
    for tab, target in zip(TABS, TARGETS, strict=True):
        page.evaluate(f"location.hash = '#{tab}/{target}'")
        page.evaluate(f"fusewise.mounted('{tab}')")
        page.wait_for_selector(f"#panel-{tab}:not([hidden])", state="attached")
        assert page.locator("#details").is_visible()
        found[tab] = findings(page)
    page.fill("#find", "conv")
    found["search"] = findings(page)
    assert not any(found.values()), "\n".join(f"{tab}: {each}" for tab, all_ in found.items() for each in all_)


def test_headings_and_landmarks(open_page: Callable[..., Any], text: str) -> None:
    page = open_page(text, "#kernels/node/native/0")
    assert page.locator("h1").count() == 1
    for landmark in ("header", "nav", "main", "aside", "footer"):
        assert page.locator(landmark).first.is_visible(), landmark
    levels = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4')].filter(one => one.checkVisibility()).map(one => +one.tagName[1])"
    )
    assert levels[0] == 1 and all(after <= before + 1 for before, after in pairwise(levels))


def test_everything_that_acts_is_reached_by_tab_and_shows_its_focus(open_page: Callable[..., Any], text: str) -> None:
    """Tab goes through all that is to be clicked, in the order of the page, and out of it again."""
    page = open_page(text, "#kernels/group/native/0")
    seen = []
    for _ in range(200):
        page.keyboard.press("Tab")
        state = page.evaluate(
            """() => {
                const one = document.activeElement;
                if (!one || one === document.body) return null;
                const drawn = one.matches('.themes input') ? one.nextElementSibling : one;
                return [[...document.querySelectorAll('*')].indexOf(one), getComputedStyle(drawn).outlineStyle];
            }"""
        )
        if state is None or (seen and state[0] == seen[0]):
            break
        assert state[1] != "none", page.evaluate("document.activeElement.outerHTML")
        seen.append(state[0])
    clickable = page.evaluate(
        """[...document.querySelectorAll('button, input, select, summary, .scroll')]
            .filter(one => one.checkVisibility() && !one.matches('.themes input:not(:checked)'))
            .map(one => [...document.querySelectorAll('*')].indexOf(one))"""
    )
    assert set(clickable) <= set(seen)
    assert seen == sorted(seen)
