"""PyTorch's exporter is asked quietly."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import count

import pytest

from fusewise.frontend.torch_export import quietly

TOLD = ("torch", "onnxscript", "onnx_ir")
NUMBERS = count()


@pytest.fixture(params=TOLD)
def head(request: pytest.FixtureRequest) -> Iterator[logging.Logger]:
    """One of the loggers that tell developers, heard by all that listen, at its usual level again behind the test."""
    found = logging.getLogger(request.param)
    before = found.level, found.propagate
    found.setLevel(logging.NOTSET)
    found.propagate = True
    yield found
    found.setLevel(before[0])
    found.propagate = before[1]


def made(head: logging.Logger) -> logging.Logger:
    """A logger that nobody has made before, as the import of a module makes it."""
    return logging.getLogger(f"{head.name}.made{next(NUMBERS)}")


def test_loggers_made_meanwhile_are_quiet_too(head: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    before = made(head)
    with quietly():
        within = made(head)
        for one in (head, before, within):
            one.warning("a package is not installed")
    assert not caplog.messages
    for one in (head, before, within):
        one.warning("heard")
    assert caplog.messages == ["heard"] * 3


@pytest.mark.parametrize("asked", ["head", "below"])
def test_who_asked_for_more_hears_it(head: logging.Logger, asked: str, caplog: pytest.LogCaptureFixture) -> None:
    below = made(head)
    (head if asked == "head" else below).setLevel(logging.INFO)
    with quietly():
        below.info("news")
    assert caplog.messages == ["news"]
