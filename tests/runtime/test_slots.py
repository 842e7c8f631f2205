"""Nodes as calls over slots give what they give one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusewise.runtime.slots import Calls


class Sum:
    """One output more than the sum of the operands, a second twice that."""

    def __init__(self, reads: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        self.reads, self.outputs = reads, outputs

    def results(self, operands: list[Any]) -> list[Any]:
        return [1 + sum(operands), 2 * (1 + sum(operands))][: len(self.outputs)]


@given(st.data())
def test_calls(data: st.DataObject) -> None:
    """Any chain of nodes: operands twice, known values that are inputs as well, outputs that are inputs or known."""
    inputs = [f"x{k}" for k in range(data.draw(st.integers(0, 3)))]
    known = {f"k{k}": 10 * k for k in range(data.draw(st.integers(1, 3)))} | ({"x0": 99} if inputs else {})
    names, members = [*inputs, *known], []
    for n in range(data.draw(st.integers(0, 6))):
        reads = tuple(data.draw(st.lists(st.sampled_from(names), max_size=3)))
        outputs = (f"n{n}", f"m{n}")[: data.draw(st.integers(1, 2))]
        members.append(Sum(reads, outputs))
        names += outputs
    wanted = data.draw(st.lists(st.sampled_from(names), max_size=4))
    calls = Calls(members, inputs, wanted, known)
    for _ in range(2):
        values = data.draw(st.lists(st.integers(-9, 9), min_size=len(inputs), max_size=len(inputs)))
        right: dict[str, Any] = known | dict(zip(inputs, values, strict=True))
        for member in members:
            right |= zip(member.outputs, member.results([right[name] for name in member.reads]), strict=True)
        assert calls.run(values) == [right[name] for name in wanted]


def test_a_node_gives_as_many_results_as_it_has_outputs() -> None:
    one = Sum((), ("y",))
    one.outputs = ("y", "z", "more")
    with pytest.raises(ValueError, match="zip"):
        Calls([one], [], ["y"], {}).run([])
