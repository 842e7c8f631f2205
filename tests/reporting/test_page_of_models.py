"""Pages of real models: no larger than they may be, and every tab of them is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fusewise


@pytest.mark.slow
@pytest.mark.parametrize(
    "model, limit, times", [("zoo:resnet50", 3_000_000, True), ("zoo:mask_rcnn_resnet50_fpn", 8_000_000, False)]
)
def test_pages_of_models(open_page: Callable[..., Any], model: str, limit: int, times: bool) -> None:
    report = fusewise.report(model, times=times)
    document, text = report.document, report.html()
    assert len(text.encode()) <= limit
    page = open_page(text)
    for tab in page.locator('[role="tab"]').all():
        tab.click()
        name = (tab.get_attribute("id") or "").removeprefix("tab-")
        page.evaluate(f"fusewise.mounted('{name}')")
        assert page.locator(f"#panel-{name}").inner_text().strip(), name
        assert page.evaluate("document.documentElement.scrollWidth") <= 1366, name
    for kind, rows in (("group", document["groups"]), ("kernel", document["kernels"]), ("step", document["steps"])):
        page.evaluate("target => fusewise.select(target)", {"kind": kind, "id": len(rows) - 1})
        assert page.locator("#details h2").inner_text()
    for graph, found in document["graphs"].items():
        page.evaluate(
            "target => fusewise.select(target)", {"kind": "node", "graph": graph, "id": len(found["nodes"]) // 2}
        )
        assert page.locator("#details h2").inner_text() == found["nodes"][len(found["nodes"]) // 2]["name"]
