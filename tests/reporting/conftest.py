"""A browser for the tests of pages: Chromium, where there is one, without a network."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
OURS = ("file:", "blob:", "data:", "about:")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, one for the tests of a module."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("there is no `chromium` on the path: on Debian, `apt-get install chromium`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens a page of HTML text in a view of its own: `open_page(text, fragment="#graph", width=1366, height=768, **context)`.

    Fails when the page asks for anything but itself, writes an error on the console or ends a script with one. What a test
    expects of these it takes out of `page.complaints`.
    """
    contexts, pages = [], []

    def opened(
        text: str,
        fragment: str = "",
        *,
        width: int = 1366,
        height: int = 768,
        ready: str = "html[data-ready]",
        **context: Any,
    ) -> Any:
        path = tmp_path / f"page-{len(pages)}.html"
        path.write_text(text, encoding="utf-8")
        contexts.append(browser.new_context(viewport={"width": width, "height": height}, **context))
        page = contexts[-1].new_page()
        page.complaints = []
        page.on("console", lambda said: said.type in {"error", "warning"} and page.complaints.append(said.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda asked: asked.url.startswith(OURS) or page.complaints.append(f"asked for {asked.url}"))
        page.goto(path.as_uri() + fragment)
        if context.get("java_script_enabled", True):
            page.wait_for_selector(ready, timeout=60_000)
        pages.append(page)
        return page

    yield opened
    complaints = [complaint for page in pages for complaint in page.complaints]
    for context in contexts:
        with suppress(Exception):
            context.close()
    assert not complaints, "\n".join(complaints)
