"""Every block of code in the documentation runs, and prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.blocks import PAGES, ROOT, Block, blocks, commands, parse, renewed, run_page, same_but_numbers, skips
from tests.blocks.models import names_of
from tests.test_documentation import prose

RUN = ("python", "console", "sh")
SHOWN = ("text", "toml", "json", "yaml", "dockerfile", "mermaid")

SKIPPED = {
    "README.md": 2,
    "docs/explanations.md": 1,
    "docs/how-to/gpu.md": 1,
    "docs/how-to/serve-a-model.md": 1,
    "docs/passes.md": 1,
    "docs/plan-search.md": 1,
    "docs/security.md": 2,
}
"""How many blocks of a page are not run. Each says why where it stands."""

QUICK = ("docs/decoding.md", "docs/onnxruntime.md", "docs/operators.md", "docs/tour.md")
"""Pages whose blocks take a moment together; all others are slow tests."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def with_code(page: Path) -> bool:
    return any(block.language in RUN for block in blocks(page))


def marked(page: Path) -> object:
    marks = [] if name_of(page) in QUICK else [pytest.mark.slow]
    return pytest.param(page, id=name_of(page), marks=marks)


@pytest.mark.parametrize("page", [marked(page) for page in PAGES if with_code(page)])
def test_blocks_run_and_print_what_the_page_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("FUSEWISE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FUSEWISE_THREADS", "1")
    folder = tmp_path / "folder"
    folder.mkdir()
    wrong = run_page(page, folder, names_of(page, folder))
    text = page.read_text()
    said = "\n".join(f"shown:\n{text[start:end]}\nsaid:\n{right}" for start, end, right in wrong)
    assert not wrong, f"{said}\n(python -m tests.blocks {name_of(page)} writes the page again)"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_say_what_they_are(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= {*RUN, *SHOWN}


def test_what_is_not_run_is_counted_and_says_why() -> None:
    reasons = {name_of(page): skips(page) for page in PAGES}
    assert {page: len(why) for page, why in reasons.items() if why} == SKIPPED
    assert all(reason and len(reason) > 12 for why in reasons.values() for reason in why)


@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) in SKIPPED], ids=name_of)
def test_commands_that_are_not_run_are_there(page: Path) -> None:
    for block in blocks(page):
        for command, *_ in commands(block) if block.language in ("console", "sh") else ():
            assert understood(command), command


def test_commands_in_sentences_are_there() -> None:
    found = {command for page in PAGES for command in re.findall(r"`(fusewise [a-z][^`]*)`", prose(page))}
    assert len(found) > 50
    assert not [command for command in sorted(found) if not understood(" ".join(command.split()))]


def understood(command: str) -> bool:
    """Is there such a verb, with such options, or such a module?"""
    from typer.main import get_command

    from fusewise.cli.app import app

    words = re.sub(r"\s#.*", "", command).split()
    if words[0] == "fusewise":
        verb = get_command(app)
        while hasattr(verb, "commands") and len(words) > 1:
            if words[1] not in verb.commands:
                return False
            verb, words = verb.commands[words[1]], words[1:]
        known = {option for parameter in verb.params for option in (*parameter.opts, *parameter.secondary_opts)}
        return {word for word in words if word.startswith("-")} <= {*known, "-h", "--help", "-q", "-v", "--debug"}
    if words[0] == "./dev":
        return re.search(rf"^{re.escape(words[1])}( \|.*)?\)$", (ROOT / "dev").read_text(), re.MULTILINE) is not None
    if words[:2] == ["python", "-m"]:
        path = ROOT / words[2].replace(".", "/")
        places = (path, ROOT / "src" / path.relative_to(ROOT))
        return any(place.with_suffix(".py").exists() or place.is_dir() for place in places)
    return True


def test_commands_that_are_not_there_are_found() -> None:
    assert understood("fusewise compile m.onnx --tune 60  # --and more") and understood("./dev demo")
    assert understood("fusewise zoo list") and understood("python -m benchmarks.zoo") and understood("openssl --any")
    assert not understood("fusewise compile m.onnx --gone") and not understood("fusewise gone")
    assert not understood("./dev gone") and not understood("python -m benchmarks.gone")


PAGE = """# A page

```python
x = 1
```

<!-- skip: next "it would take for ever, and longer" -->
```python
while True:
    pass
```

```python
print(x + 1)
```

```text
3
```

```toml title="a.toml"
b = 1
```

```console
$ cat a.toml; echo 1.5 ms
c = 1
$ fusewise zoo build nobody -o n.onnx
fusewise: ...
```

```python
print(4)
```
"""


def test_what_a_page_shows_otherwise_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSEWISE_CACHE_DIR", str(tmp_path / "cache"))
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    wrong = run_page(page, tmp_path, {})
    right = PAGE.replace("\n3\n", "\n2\n").replace("\nc = 1\n", "\nb = 1\n1.5 ms\n") + "\n```text\n4\n```\n"
    assert renewed(PAGE, wrong) == right
    page.write_text(right.replace("1.5 ms", "2.5 ms"))
    assert not run_page(page, tmp_path, {})
    assert skips(page) == ['"it would take for ever, and longer"']


def test_a_command_that_fails_and_a_block_that_raises_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSEWISE_CACHE_DIR", str(tmp_path / "cache"))
    page = tmp_path / "page.md"
    for text, error in (
        ("```sh\nfusewise gone\n```\n", AssertionError),
        ("```python\n1 / 0\n```\n", ZeroDivisionError),
    ):
        page.write_text(text)
        with pytest.raises(error):
            run_page(page, tmp_path, {})


def test_only_numbers_of_machines_may_differ() -> None:
    assert same_but_numbers("31 groups, 4.1 MB in 12 ms\n────", "31 groups, 3.2 MB in 1,200 ms\n──")
    assert not same_but_numbers("31 groups", "32 groups")
    assert same_but_numbers("31 groups, 99.8, 7", "32 groups, 101, 1,007", all_numbers=True)
    assert same_but_numbers("1.5 x faster than b", "1.1 x slower than b", all_numbers=True)
    assert not same_but_numbers("faster than b", "slower than b")
    assert same_but_numbers("a ... c", "a b c") and not same_but_numbers("a ... c", "a b d")


def test_blocks_are_where_they_are_found() -> None:
    page = ROOT / "docs" / "tour.md"
    text = page.read_text()
    found = blocks(page)
    assert len(found) >= 16 and all(text[block.start :].startswith(block.text) for block in found)
    assert isinstance(found[0], Block) and parse(page).text == text
