"""Code in the docstrings of public names, and in the examples of the reference, does what stands there."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documentation.reference.examples import EXAMPLES, network

import fusewise
from fusewise.ops.registered import REGISTERED

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def docstrings() -> dict[str, str]:
    """Of the package and its public names, those with code."""
    found = {"fusewise": fusewise.__doc__ or ""}
    for name in fusewise.__all__:
        one: Any = getattr(fusewise, name)
        for test in doctest.DocTestFinder(recurse=True, exclude_empty=True).find(one, name, globs={}):
            if test.examples:
                found[test.name] = test.docstring or ""
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FUSEWISE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(REGISTERED, "rows", REGISTERED.rows)  # so that what an example adds is forgotten
    network(tmp_path / "model.onnx")
    return tmp_path


@pytest.mark.parametrize("name, text", [*docstrings().items(), *EXAMPLES.items()])
def test_examples(name: str, text: str, folder: Path) -> None:
    if name == "bench":
        pytest.importorskip("onnxruntime")
    known = {"fusewise": fusewise, "np": np, "x": np.zeros((1, 3, 16, 16), np.float32)}
    test = doctest.DocTestParser().get_doctest(text, known, name, None, 0)
    assert test.examples
    said: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    assert not said, "".join(said)


def test_examples_are_of_public_names() -> None:
    assert set(EXAMPLES) <= set(fusewise.__all__)
