"""The page about a plan: well-formed, whole, and nothing in it that must be fetched."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import fusewise
from fusewise.reporting.drawing import DrawnEdge, columns
from fusewise.reporting.plain import Markup, page, paragraph, section, table
from fusewise.reporting.plan_page import plan_page

VOID = {"meta"}


class Nesting(HTMLParser):
    """Fails on a tag that is closed out of turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_of_a_plan() -> None:
    found = fusewise.plan("zoo:squeezenet1_1", search="local", plans=60, buffer="128KiB", explainer="smallest")
    text = plan_page(found)
    parser = Nesting()
    parser.feed(text)
    assert not parser.open
    assert not re.search(r"(src|href)=|url\(|@import|<script", text)
    for operator in found.plan.network.operators:
        assert operator.name in text
    for heading in (
        "The plan",
        "Groups",
        "Network",
        "Why groups end",
        "Left out",
        "The search",
        "Groups that were split",
    ):
        assert heading in text


def test_names_cannot_break_the_page() -> None:
    text = page("<title>", section("a & b", paragraph("<script>"), table(["<h>"], [["<td>"], [Markup("<b>ok</b>")]])))
    assert "<script>" not in text and "<b>ok</b>" in text and "&lt;td&gt;" in text


def test_a_chain_is_straight_and_a_branch_stands_beside_it() -> None:
    chain = [DrawnEdge(0, 1), DrawnEdge(1, 2)]
    assert columns(3, chain) == [0, 0, 0]
    fork = [DrawnEdge(0, 1), DrawnEdge(0, 2), DrawnEdge(1, 3), DrawnEdge(2, 3), DrawnEdge(3, 4)]
    found = columns(5, fork)
    assert found[0] == found[1] == found[3] == found[4] and found[2] != found[0]
