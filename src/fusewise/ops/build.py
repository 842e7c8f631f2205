"""Builds a graph node by node, types inferred as it goes. The zoo, tests and rewrite rules write graphs with it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fusewise.errors import InvalidModel
from fusewise.ir.dtypes import FLOAT32, DType
from fusewise.ir.graph import Constant, Graph, Node, attributes_of
from fusewise.ir.types import Dim, TensorType, ValueType
from fusewise.ops.infer import infer_outputs

__all__ = ["GraphBuilder"]


class GraphBuilder:
    """A graph under construction.

    >>> b = GraphBuilder("tiny")
    >>> x = b.input("x", (1, 8))
    >>> graph = b.finish(b.op("Relu", x))
    """

    def __init__(self, name: str = "graph", opset: int = 23) -> None:
        self.name = name
        self.opset = opset
        self.nodes: list[Node] = []
        self.types: dict[str, ValueType] = {}
        self.constants: dict[str, Constant] = {}
        self.inputs: list[str] = []
        self._counts: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        """A value or node name not handed out before: `stem`, `stem_1`, `stem_2`, ..."""
        while True:
            count = self._counts.get(stem, 0)
            self._counts[stem] = count + 1
            name = f"{stem}_{count}" if count else stem
            if name not in self.types:
                return name

    def input(self, name: str, shape: tuple[Dim, ...], dtype: DType = FLOAT32) -> str:
        """Declare a graph input."""
        self.types[name] = TensorType(dtype, shape)
        self.inputs.append(name)
        return name

    def constant(self, array: Any, name: str = "const") -> str:
        """Add a constant; Python lists of integers become int64, of floats float32."""
        value = np.asarray(array)
        if not isinstance(array, np.ndarray | np.generic) and value.dtype == np.float64:
            value = value.astype(np.float32)
        fresh = self.fresh(name)
        data = Constant(value)
        self.constants[fresh] = data
        self.types[fresh] = data.type
        return fresh

    def op(self, kind: str, *inputs: str | None, outputs: int = 1, name: str = "", **attributes: Any) -> Any:
        """Append a node; returns the name of its output, or a tuple of names when `outputs` is not 1.

        None stands for an absent operand; a trailing run of None is dropped.
        """
        operands = [x or "" for x in inputs]
        while operands and not operands[-1]:
            operands.pop()
        label = self.fresh(name or f"{kind.lower()}")
        produced = tuple(self.fresh(f"{label}_out" if outputs == 1 else f"{label}_out{k}") for k in range(outputs))
        node = Node(
            kind,
            tuple(operands),
            produced,
            attributes_of(**{k: v for k, v in attributes.items() if v is not None}),
            name=label,
            origin=(label,),
        )
        known = [self.constants.get(x) for x in operands]
        kinds = infer_outputs(
            node,
            tuple(self.types[x] if x else None for x in operands),
            tuple(None if c is None else c.array for c in known),
            self.opset,
        )
        for value, found in zip(produced, kinds, strict=True):
            if found is None:
                raise InvalidModel(f"node {label!r} ({kind}): the type of its output cannot be inferred")
            self.types[value] = found
        self.nodes.append(node)
        return produced[0] if outputs == 1 else produced

    def shape(self, value: str) -> tuple[int, ...]:
        """The static shape of a value."""
        kind = self.types[value]
        assert isinstance(kind, TensorType)
        return kind.dims

    def finish(self, *outputs: str) -> Graph:
        """The finished graph."""
        return Graph(
            inputs=tuple(self.inputs),
            outputs=outputs,
            nodes=tuple(self.nodes),
            types=self.types,
            constants=self.constants,
            name=self.name,
            opset=self.opset,
        )
