"""Host steps that fail: of the right kind, with the node's name."""

from __future__ import annotations

from typing import Any

import pytest

from fusewise.errors import ResourceLimit, UnsupportedModel
from fusewise.ir.graph import Node
from fusewise.runtime.hoststep import _Member


def member(error: BaseException) -> _Member:
    def evaluate(*_: Any) -> list[Any]:
        raise error

    return _Member(Node("Op", (), ("y",), name="here"), evaluate, 23, False)


def wrapped(reason: BaseException) -> BaseException:
    try:
        try:
            raise reason
        except type(reason) as inner:
            raise RuntimeError("unable to run the node") from inner
    except RuntimeError as outer:
        return outer


@pytest.mark.parametrize("error", [MemoryError(), MemoryError("no\nroom"), wrapped(MemoryError("no room"))])
def test_want_of_memory_is_a_limit(error: BaseException) -> None:
    with pytest.raises(ResourceLimit, match=r"^node 'here' \(Op\) needs more memory than there is: [^\n]+$"):
        member(error).results([])


def test_other_failures_are_the_models() -> None:
    with pytest.raises(UnsupportedModel, match="'here'.*ValueError: bad"):
        member(wrapped(ValueError("bad")).__cause__ or ValueError()).results([])
    with pytest.raises(UnsupportedModel, match="'here'"):
        member(wrapped(ValueError("bad"))).results([])
