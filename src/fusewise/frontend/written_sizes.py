"""Constants that are known in terms of sizes, computed again: by nodes that read the shapes of inputs, as ONNX writes it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fusewise.errors import UnsupportedModel
from fusewise.ir.dtypes import INT64
from fusewise.ir.graph import Constant, Graph, Node, SizesConstant, attributes_of
from fusewise.ir.size import Compound, Size, Symbol
from fusewise.ir.types import TensorType

__all__ = ["with_written_sizes"]


def with_written_sizes(graph: Graph) -> Graph:
    """The graph without constants in terms of sizes: with nodes that compute them. Raises `UnsupportedModel` for a symbol that is
    no dimension of an input by itself.
    """
    found = {name: constant for name, constant in graph.constants.items() if isinstance(constant, SizesConstant)}
    if not found:
        return graph
    writer = _Writer(graph)
    for name, constant in found.items():
        writer.write(name, constant)
    return graph.replace(
        nodes=(*writer.nodes, *graph.nodes),
        types={**graph.types, **writer.types},
        constants={name: c for name, c in graph.constants.items() if name not in found} | writer.constants,
    )


class _Writer:
    """Nodes that compute sizes, each once; every value on the way has one element, int64[1]."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Constant] = {}
        self.made: dict[str, str] = {}

    def write(self, name: str, constant: SizesConstant) -> None:
        """Nodes whose last writes `name`."""
        items = [self._element(item) for item in constant.array.reshape(-1).tolist()]
        whole = items[0] if len(items) == 1 else self._op("Concat", items, (len(items),), axis=0)
        dims = self._constant(np.array(constant.array.shape, np.int64))
        shaped = self._op("Reshape", [whole, dims], constant.array.shape)
        self.nodes.append(Node("Cast", (shaped,), (name,), attributes_of(to=constant.dtype.onnx), name=f"{name}_cast"))

    def _element(self, size: int) -> str:
        if not isinstance(size, Size):
            return self._constant(np.array([size], np.int64))
        return self._once(str(size), lambda: self._sum(size))

    def _sum(self, size: Size) -> str:
        terms = [self._product(coefficient, monomial) for monomial, coefficient in size.terms]
        if size.constant:
            terms.append(self._constant(np.array([size.constant], np.int64)))
        return self._chain("Add", terms)

    def _product(self, coefficient: int, monomial: tuple[tuple[Symbol | Compound, int], ...]) -> str:
        factors = [self._atom(atom) for atom, power in monomial for _ in range(power)]
        if coefficient != 1:
            factors.append(self._constant(np.array([coefficient], np.int64)))
        return self._chain("Mul", factors)

    def _atom(self, atom: Symbol | Compound) -> str:
        return self._once(
            f"atom {atom}", lambda: self._symbol(atom) if isinstance(atom, Symbol) else self._compound(atom)
        )

    def _compound(self, atom: Compound) -> str:
        args = [self._element(arg) for arg in atom.args]
        if atom.op in ("min", "max"):
            return self._op("Min" if atom.op == "min" else "Max", args, (1,))
        rest = self._op("Mod", args, (1,))
        if atom.op == "mod":
            return rest
        # of integers Div truncates: of what is left over nothing is
        return self._op("Div", [self._op("Sub", [args[0], rest], (1,)), args[1]], (1,))

    def _symbol(self, symbol: Symbol) -> str:
        for name in self.graph.inputs:
            kind = self.graph.types[name]
            for axis, dim in enumerate(kind.shape or ()) if isinstance(kind, TensorType) else ():
                if isinstance(dim, Size) and dim.symbol is not None and dim.symbol.name == symbol.name:
                    return self._op("Shape", [name], (1,), start=axis, end=axis + 1)
        raise UnsupportedModel(
            f"dimension {symbol.name!r} is by itself the size of no input, so that no node can tell it"
        )

    def _chain(self, op: str, operands: list[str]) -> str:
        found = operands[0]
        for operand in operands[1:]:
            found = self._op(op, [found, operand], (1,))
        return found

    def _op(self, op: str, inputs: list[str], shape: tuple[int, ...], **attributes: int) -> str:
        name = self._fresh()
        self.types[name] = TensorType(INT64, shape)
        self.nodes.append(Node(op, tuple(inputs), (name,), attributes_of(**attributes), name=name))
        return name

    def _constant(self, array: np.ndarray) -> str:
        def make() -> str:
            name = self._fresh()
            self.constants[name] = Constant(array)
            self.types[name] = self.constants[name].type
            return name

        return self._once(f"constant {array.tolist()}", make)

    def _once(self, what: str, make: Callable[[], str]) -> str:
        if what not in self.made:
            self.made[what] = make()
        return self.made[what]

    def _fresh(self) -> str:
        number = len(self.types)
        while (name := f"size_{number}") in self.graph.types or name in self.types:
            number += 1
        return name
