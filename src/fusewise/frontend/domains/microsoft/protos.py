"""Nodes of a model that is being read, written one after the other, for operators that hold graphs and become many nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from fusewise.frontend.bodies import defined_names, rename_body

__all__ = ["Protos", "owned"]


class Protos:
    """Nodes in place of one; every value has a fresh name.

    Operators are used as all opsets from 11 on have them. A method of the name of one adds a node of it and gives the name of its
    result; operands are names, or arrays for constants.
    """

    def __init__(self, label: str, op: str, opset: int, fresh: Callable[[str], str]) -> None:
        self.label = label
        self.op = op
        self.opset = opset
        self.fresh = fresh
        self.nodes: list[onnx.NodeProto] = []

    @property
    def where(self) -> str:
        """How messages begin."""
        return f"node {self.label!r} ({self.op})"

    def inner(self) -> Protos:
        """The same for a body of one of these nodes."""
        return Protos(self.label, self.op, self.opset, self.fresh)

    def __getattr__(self, op: str) -> Callable[..., str]:
        if op.startswith("_"):
            raise AttributeError(op)
        return lambda *operands, **attributes: self.several(op, 1, *operands, **attributes)[0]

    def several(self, op: str, outputs: int, *operands: Any, domain: str = "", **attributes: Any) -> list[str]:
        """The results of an operator."""
        names = [one if isinstance(one, str) else self.constant(one) for one in operands]
        made = [self.fresh(f"{self.label}_{op.lower()}") for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, names, made, made[0], domain=domain, **attributes))
        return made

    def constant(self, array: np.ndarray | np.generic) -> str:
        """A constant."""
        return self.several("Constant", 1, value=onnx.numpy_helper.from_array(np.asarray(array)))[0]

    def give(self, name: str, value: str) -> None:
        """Gives a value the name of an output of the node that these stand for."""
        self.nodes.append(helper.make_node("Identity", [value], [name], f"{self.label}_{name}"))

    def length(self, x: str, axis: int = 1) -> str:
        """A dimension, without dimensions of its own."""
        return self.Gather(self.Shape(x), np.int64(axis))

    def total(self, x: str) -> str:
        """Sums along the second dimension, which stays as one element."""
        if self.opset < 13:
            return self.several("ReduceSum", 1, x, axes=[1], keepdims=1)[0]
        return self.several("ReduceSum", 1, x, np.array([1]), keepdims=1)[0]

    def number(self, x: str, kind: int = onnx.TensorProto.INT64) -> str:
        """One element in a type, without dimensions."""
        return self.Reshape(self.Cast(x, to=kind), np.zeros(0, np.int64))

    def shape(self, *extents: str | int) -> str:
        """A shape of numbers and of values without dimensions."""
        parts = [np.array([one]) if isinstance(one, int) else self.Reshape(one, np.array([1])) for one in extents]
        return self.Concat(*parts, axis=0)

    def run(self, graph: onnx.GraphProto, *operands: str) -> list[str]:
        """The outputs of a graph whose nodes are put among these; `operands` are its inputs, in order."""
        given = dict(zip((port.name for port in graph.input), operands, strict=True))
        own = owned(graph, self.label, self.fresh, given)
        for tensor in own.initializer:
            self.nodes.append(helper.make_node("Constant", [], [tensor.name], tensor.name, value=tensor))
        for sparse in own.sparse_initializer:
            name = sparse.values.name
            self.nodes.append(helper.make_node("Constant", [], [name], name, sparse_value=sparse))
        self.nodes.extend(own.node)
        return [port.name for port in own.output]


def owned(graph: onnx.GraphProto, label: str, fresh: Callable[[str], str], given: Mapping[str, str]) -> onnx.GraphProto:
    """A copy of a graph whose values have fresh names, but for inputs that stand for values around it."""
    own = onnx.GraphProto()
    own.CopyFrom(graph)
    inside = defined_names(own) | {sparse.values.name for sparse in own.sparse_initializer}
    names = {name: fresh(f"{label}/{name}") for name in sorted(inside - given.keys())} | dict(given)
    rename_body(own, names)
    return own
