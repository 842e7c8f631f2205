"""A graph in which a node is looked at with those before it, and another put in their place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

from fusewise.frontend.domains.row import MICROSOFT
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Constant, Graph, Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.passes.edit import rebuilt
from fusewise.records import record

__all__ = ["Recognise", "Recogniser", "Recognition", "own"]


@record(frozen=True)
class Recognition:
    """A node in place of others: those at `covered`, and the one that was asked about, where that stood or at `place`. It may read
    `constants` that there were not."""

    node: Node
    covered: tuple[int, ...] = ()
    place: int | None = None
    constants: tuple[tuple[str, Constant], ...] = ()


class Recogniser:
    """A graph whose nodes are replaced one by one. Nodes that were covered are gone."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node | None] = list(graph.nodes)
        self._taken = set(graph.types) | set(graph.constants)

    def maker(self, value: str, op: str, domain: str = "") -> tuple[int, Node] | None:
        """The node of an operator that writes `value`, and where it stands."""
        place = self.graph.producer.get(value)
        node = None if place is None else self.nodes[place]
        fits = node is not None and (node.op, node.domain) == (op, domain) and value in node.outputs
        return (place, node) if fits and place is not None and node is not None else None

    def sole(self, value: str, op: str, domain: str = "") -> tuple[int, Node] | None:
        """The same where one operand of one node is all that reads the value."""
        return self.maker(value, op, domain) if self.graph.is_inner(value) else None

    def fresh(self, stem: str) -> str:
        """A name that no value has, nor one that was asked for before."""
        name = next(name for k in count() if (name := f"{stem}_{k}" if k else stem) not in self._taken)
        self._taken.add(name)
        return name

    def kind(self, value: str) -> TensorType | None:
        """The type of a float32 tensor of known rank; None for any other value."""
        found = self.graph.types.get(value)
        is_known = isinstance(found, TensorType) and found.shape is not None and found.dtype == FLOAT32
        return found if is_known and isinstance(found, TensorType) else None

    def is_row(self, value: str, like: str) -> bool:
        """Is a value as long as the last axis of another, and has no other axis?"""
        own, other = self.kind(value), self.kind(like)
        return own is not None and other is not None and own.rank == 1 and own.dims == other.dims[-1:]

    def number(self, value: str) -> float | None:
        """The number that a constant of one element holds, without dimensions that would show in a product."""
        found = self.graph.array(value)
        return float(found.reshape(-1)[0]) if found is not None and found.size == 1 and found.ndim <= 1 else None


def own(node: Node, op: str, *inputs: str, **attributes: Any) -> Node:
    """An operator of ONNX Runtime's domain under the name of `node` and with its outputs."""
    return replace(rebuilt(node, op, inputs), domain=MICROSOFT, attributes=attributes_of(**attributes))


Recognise = Callable[[Recogniser, Node], Recognition | None]
