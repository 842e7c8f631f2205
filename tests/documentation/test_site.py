"""The site is built strictly, asks nobody for anything, and what is wrong with one is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from documentation.built import faults, without_hosts

pytest.importorskip("mkdocs")


def test_faults_of_a_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "assets" / "javascripts").mkdir(parents=True)
    (tmp_path / "assets" / "style.css").write_text("@import 'https://fonts.example/a'; b { background: url(data:c) }")
    script = tmp_path / "assets" / "javascripts" / "bundle.1.min.js"
    script.write_text('load("https://unpkg.com/x@1/y.js"); open("https://elsewhere.example")')
    (tmp_path / "a.html").write_text(
        '<h1 id="top"><a href="b.html#c">x</a><a href="gone.html">x</a><a href="#top">x</a><a href="#nowhere">x</a>'
        '<a href="https://example.org">x</a><script src="https://example.org/s.js"></script><img src="gone.png">'
    )
    (tmp_path / "b.html").write_text('<a href="a.html#top"></a><p id="c">')
    without_hosts(tmp_path)
    assert script.read_text() == 'load("about:blank"); open("https://elsewhere.example")'
    assert faults(tmp_path) == [
        "a.html loads https://example.org/s.js",
        "a.html loads gone.png, which is not there",
        "a.html links to gone.html, which is not there",
        "a.html links to #nowhere, where that page has no such place",
        "assets/style.css loads https://fonts.example/a",
    ]


@pytest.mark.slow
def test_the_site_is_whole(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Without runs of models, which `./dev docs` adds. In a browser, where there is one: search works, pages are accessible."""
    from documentation.build import build

    assert build(tmp_path, runs=False) > 40
    assert (tmp_path / "search" / "search_index.js").is_file()
    reference = (tmp_path / "reference" / "python.html").read_text()
    assert 'id="fusewise.compile"' in reference and 'id="fusewise.Model.run"' in reference
    found, asked, faults_of_access = looked_at(tmp_path, request.getfixturevalue("browser"))
    assert found >= 1 and not [address for address in asked if not address.startswith(("file:", "data:", "blob:"))]
    assert not faults_of_access


def looked_at(site: Path, browser: Any) -> tuple[int, list[str], list[str]]:
    """How many pages the word `winograd` finds, every address that the browser asked for, and what axe holds against pages."""
    from axe_playwright_python.sync_playwright import Axe

    asked, against = list[str](), list[str]()
    with browser.new_context() as context:
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            for name in ("index", "reference/python", "reference/command-line", "benchmarks"):
                page.goto((site / f"{name}.html").as_uri())
                if (
                    scheme == "dark"
                ):  # where only colours are others, and a member of the reference has those of the next
                    page.evaluate("document.querySelectorAll('.doc-object ~ .doc-object').forEach(one => one.remove())")
                found = Axe().run(page).response["violations"]
                bad = [one for one in found if one["impact"] in ("serious", "critical")]
                against += [f"{name}, {scheme}: {one['id']}: {one['nodes'][0]['html'][:200]}" for one in bad]
        page.keyboard.press("/")
        page.keyboard.type("winograd")
        page.wait_for_selector(".md-search-result__item")
        return page.locator(".md-search-result__item").count(), asked, against
