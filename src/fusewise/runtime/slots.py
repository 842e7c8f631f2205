"""Nodes as a flat list of calls over numbered slots, one for each value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

__all__ = ["Calls", "ReadyNode"]


class ReadyNode(Protocol):
    """A node ready to run: the names of its operands and outputs, absent operands left out."""

    reads: tuple[str, ...]
    outputs: tuple[str, ...]

    def results(self, operands: list[Any]) -> list[Any]:
        """The outputs for the operands."""


class Calls:
    """`run` takes the values called `inputs`, in order, and gives those called `outputs`; `known` are the same in every run."""

    def __init__(
        self, members: Iterable[ReadyNode], inputs: Sequence[str], outputs: Sequence[str], known: Mapping[str, Any]
    ) -> None:
        slots = {name: k for k, name in enumerate(inputs)}
        given = len(slots)
        for name in known:
            slots.setdefault(name, len(slots))
        calls = []
        for member in members:
            reads = [slots[name] for name in member.reads]
            calls.append((member.results, reads, [slots.setdefault(name, len(slots)) for name in member.outputs]))
        self._rest: list[Any] = [None] * (len(slots) - given)
        for name, value in known.items():
            if slots[name] >= given:
                self._rest[slots[name] - given] = value
        self._calls = tuple(calls)
        self._outputs = [slots[name] for name in outputs]

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The outputs; raises what the nodes raise."""
        slots = [*values, *self._rest]
        for results, reads, writes in self._calls:
            found = results([slots[k] for k in reads])
            if len(writes) == 1:  # sooner than going through both
                (slots[writes[0]],) = found
                continue
            for k, value in zip(writes, found, strict=True):
                slots[k] = value
        return [slots[k] for k in self._outputs]
