"""Views of pages in Chromium, without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

OURS = ("file:", "blob:", "data:", "about:")


EMULATED = {"color_scheme": "light", "reduced_motion": "no-preference"}
"""What a view is told of its user when a test says nothing else."""


@pytest.fixture(scope="module")
def views() -> dict[str, list[Any]]:
    """Views that are free, by the options of their contexts: one that is there takes a page in half the time of a new one."""
    return {}


@pytest.fixture
def open_page(browser: Any, views: dict[str, list[Any]], tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens a page of HTML text in a view of its own: `open_page(text, fragment="#graph", width=1366, height=768, **context)`.

    Fails when the page asks for anything but itself, writes an error on the console or ends a script with one. What a test
    expects of these it takes out of `page.complaints`.
    """
    lent: list[tuple[str, Any]] = []

    def opened(
        text: str,
        fragment: str = "",
        *,
        width: int = 1366,
        height: int = 768,
        ready: str = "html[data-ready]",
        **context: Any,
    ) -> Any:
        path = tmp_path / f"page-{len(lent)}.html"
        path.write_text(text, encoding="utf-8")
        emulated = {name: context.pop(name, usual) for name, usual in EMULATED.items()}
        kind = repr(sorted(context.items()))
        page = views[kind].pop() if views.get(kind) else view(browser, context)
        lent.append((kind, page))
        page.complaints = []
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(**emulated)
        page.goto(path.as_uri() + fragment)
        if context.get("java_script_enabled", True):
            page.wait_for_selector(ready, timeout=60_000)
        return page

    yield opened
    complaints = [complaint for kind, page in lent for complaint in left(page, views.setdefault(kind, []))]
    assert not complaints, "\n".join(complaints)


def view(browser: Any, context: dict[str, Any]) -> Any:
    """A view whose `complaints` grow with what a page in it says and asks for."""
    page = browser.new_context(**context).new_page()
    page.on("console", lambda said: said.type in {"error", "warning"} and page.complaints.append(said.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("request", lambda asked: asked.url.startswith(OURS) or page.complaints.append(f"asked for {asked.url}"))
    return page


def left(page: Any, free: list[Any]) -> list[str]:
    """What the page in a view complained of; the view goes to those that are free, as empty as a new one, or is closed."""
    try:
        for key in ("Shift", "Control", "Alt", "Meta"):
            page.keyboard.up(key)
        page.mouse.up()
        page.mouse.move(0, 0)
        page.evaluate("localStorage.clear(), sessionStorage.clear()")
        page.goto("about:blank")
        free.append(page)
    except Exception:
        with suppress(Exception):
            page.context.close()
    return list(page.complaints)
