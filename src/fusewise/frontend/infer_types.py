"""Types of every value, node by node, in one walk.

`Inference` takes nodes in topological order. Beside the types it keeps the small values it knows (shape arithmetic), so
that the targets of Reshape, Expand and the like resolve as soon as the inputs they depend on are static. The rules are
ONNX's own (`ops.infer`), except for control flow (`infer_control`), partly known shapes, and sizes in terms of symbols
(`ops.shapes`), of which what must hold is told to `frontend.equations`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from fusewise.errors import InvalidModel, UnsupportedModel
from fusewise.frontend.bodies import goes_on, graph_of_body
from fusewise.frontend.declared import contradicts, settled, without_shape
from fusewise.frontend.equations import Equations, Unasked
from fusewise.frontend.infer_control import CONTROL_FLOW, control_outputs, known_branch
from fusewise.frontend.limits import DEFAULT_LIMITS, ModelLimits
from fusewise.frontend.partial_shapes import partial_type
from fusewise.frontend.shape_values import VALUE_LIMIT, is_complete, known_outputs
from fusewise.ir.deciding import known_below
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Constant, Graph, Node, SizesConstant, Subgraph
from fusewise.ir.size import Size
from fusewise.ir.types import TensorType, ValueType
from fusewise.ops.infer import check_use, infer_outputs
from fusewise.ops.shapes.table import has_sizes, infer_sizes

__all__ = ["Inference", "Inferred", "equations_of", "infer_graph", "infer_types", "without_declared"]

_READS_FLOATS = frozenset({"Range", "Resize", "Upsample"})  # operators whose output shape depends on float operands


@dataclass(frozen=True)
class Inferred:
    """What is known of each value: its type, and its contents when it is small and does not depend on data."""

    types: dict[str, ValueType]
    values: dict[str, np.ndarray]


class Inference:
    """A walk over a graph under construction: declare the inputs and constants, then add nodes in order.

    `outer` is the walk over the graph that a body lies in, `declared` what the model itself says of its values. Where an operator
    says otherwise, it is right, and a sentence is added to `contradicted`. `equations` are asked where dimensions are sizes; None
    for a graph without any.
    """

    def __init__(
        self,
        opset: int,
        opsets: tuple[tuple[str, int], ...] = (),
        declared: Mapping[str, ValueType] | None = None,
        outer: Inference | None = None,
        limits: ModelLimits = DEFAULT_LIMITS,
        equations: Equations | Unasked | None = None,
    ) -> None:
        self.opset = opset
        self.opsets = opsets
        self.types: dict[str, ValueType] = {}
        self.values: dict[str, np.ndarray] = {}
        self.declared = declared or {}
        self.contradicted: list[str] = []
        self.outer = outer
        self.limits = limits
        self.equations = equations
        self._of_body: tuple[
            np.ndarray | None, ...
        ] = ()  # what is known of the outputs of the body that was walked last

    def type_of(self, name: str) -> ValueType | None:
        """The type of a value of this graph or of those around it; None when it is absent or unknown."""
        found = self.types.get(name)
        return found if found is not None or self.outer is None else self.outer.type_of(name)

    def value_of(self, name: str) -> np.ndarray | None:
        """The known or partly known (see `shape_values`) contents of a small value."""
        if name in self.types or self.outer is None:
            return self.values.get(name)
        return self.outer.value_of(name)

    def version(self, domain: str) -> int:
        """The opset version that nodes of `domain` are written in."""
        return self.opset if not domain else dict(self.opsets).get(domain, 1)

    def add_constant(self, name: str, constant: Constant) -> None:
        self.types[name] = constant.type
        if constant.type.size > VALUE_LIMIT:
            return
        if isinstance(constant, SizesConstant) or constant.array.dtype.kind in "iufb":
            self.values[name] = constant.array

    def add(self, node: Node) -> None:
        """Infer the outputs of `node`. Raises `InvalidModel` when its operands do not fit."""
        kinds = tuple(self.type_of(name) if name else None for name in node.inputs)
        values = tuple(self.value_of(name) if name else None for name in node.inputs)
        found = self._found(node, kinds, values)
        for name, kind in zip(node.outputs, found, strict=True):
            if name:
                self.types[name] = self._settled(node, name, kind)
        self._ask_of_divisor(node, values)
        taken = known_branch(node, self) and len(self._of_body) == len(node.outputs)
        known = self._of_body if taken else known_outputs(node, kinds, values)
        for name, value in zip(node.outputs, known, strict=True):
            kind = self.types.get(name)
            if name and value is not None and isinstance(kind, TensorType):
                self.values[name] = self._value(value, kind)
                self.types[name] = TensorType(kind.dtype, value.shape)

    def _ask_of_divisor(self, node: Node, values: tuple[np.ndarray | None, ...]) -> None:
        """Shape arithmetic divides by sizes that are not 0."""
        if self.equations is None or node.op not in ("Div", "Mod") or node.domain or values[0] is None:
            return
        for item in values[1].reshape(-1).tolist() if values[1] is not None else ():
            if isinstance(item, Size):
                self.equations.at_least(item, 1, f"the divisor of node {node.label!r} ({node.op})")

    def _value(self, value: np.ndarray, kind: TensorType) -> np.ndarray:
        """Known contents as they are kept: of the value's type where they are numbers, sizes in terms of what is known by now."""
        if self.equations is None:
            return value
        if value.dtype != object:
            return value.astype(kind.dtype.numpy) if value.dtype.kind in "iub" else value
        found = np.empty(value.size, dtype=object)
        found[:] = [self.equations.known(item) for item in value.reshape(-1).tolist()]
        return found.reshape(value.shape)

    def _found(
        self, node: Node, kinds: tuple[ValueType | None, ...], values: tuple[np.ndarray | None, ...]
    ) -> tuple[ValueType | None, ...]:
        """The types of the outputs of `node` as far as its operands tell.

        A node of a body whose operands do not fit is no error yet: it may stand in a branch that is never taken, such as
        the Squeeze of a dimension that is only sometimes 1. Attributes that fit no operands are one wherever they stand.
        """
        try:
            if node.op in CONTROL_FLOW and not node.domain:
                check_use(node, kinds, values, self.opset)
                return control_outputs(node, self)
            if self.equations is not None and has_sizes(kinds, values):
                return infer_sizes(node, kinds, values, self.version(node.domain), self.equations)
            known = tuple(v if v is not None and _matters(node, v) else None for v in values)
            found = infer_outputs(node, kinds, known, self.version(node.domain))
        except InvalidModel:
            if self.outer is None:
                raise
            nothing = (None,) * len(kinds)
            check_use(node, nothing, nothing, self.version(node.domain))
            dtype = next((kind.dtype for kind in kinds if isinstance(kind, TensorType)), FLOAT32)
            return (TensorType(dtype, None),) * len(node.outputs)
        return partial_type(node, kinds, values, found)

    def input_count(self, body: Subgraph) -> int:
        """How many inputs a body has."""
        return len(graph_of_body(body, self.opset, self.opsets).inputs)

    def goes_on(self, body: Subgraph) -> bool:
        """Can only the count end a Loop with this body?"""
        return goes_on(graph_of_body(body, self.opset, self.opsets))

    def body_outputs(
        self, body: Subgraph, captured: tuple[str, ...], inputs: tuple[ValueType | None, ...]
    ) -> tuple[ValueType | None, ...]:
        """The type of each output of a body whose inputs have the given types.

        What the body declares is only asked for element types: its shapes may hold for one run and not for the next.
        """
        graph = graph_of_body(body, self.opset, self.opsets)
        declared = {name: without_shape(kind) for name, kind in graph.types.items()}
        equations = None if self.equations is None else Unasked()
        inner = Inference(self.opset, self.opsets, declared, self, self.limits, equations)
        for name, outer in zip(body.captures, captured, strict=True):
            kind, value = self.type_of(outer), self.value_of(outer)
            if kind is not None:
                inner.types[name] = kind
            if value is not None:
                inner.values[name] = value
        for name, constant in graph.constants.items():
            inner.add_constant(name, constant)
        for name, given in zip(graph.inputs, inputs, strict=True):
            best = given if given is not None else declared.get(name)
            if best is not None:
                inner.types[name] = best
        for node in graph.nodes:
            inner.add(node)
        self._of_body = tuple(inner.values.get(name) for name in graph.outputs)
        return tuple(inner.types.get(name) for name in graph.outputs)

    def _settled(self, node: Node, name: str, kind: ValueType | None) -> ValueType:
        declared = self.declared.get(name)
        best = settled(node, self.type_of(node.inputs[0]) if node.inputs and node.inputs[0] else None, kind, declared)
        if contradicts(kind, declared):
            self.contradicted.append(
                f"{name!r}, which node {node.label!r} ({node.op}) makes, is {kind}, not {declared}"
            )
        if best is None:
            raise UnsupportedModel(
                f"node {node.label!r} ({node.op}): the type of its output {name!r} can neither be inferred nor is declared"
            )
        if self.equations is not None and isinstance(best, TensorType) and best.shape is not None and not best.is_fixed:
            return self._in_sizes(node, best)
        if isinstance(best, TensorType) and best.is_static:
            if any(dim < 0 for dim in best.dims):
                if self.outer is not None:  # see `_found`
                    return TensorType(best.dtype, None)
                raise InvalidModel(
                    f"node {node.label!r} ({node.op}): its output would have the shape {list(best.dims)}"
                )
            self.limits.check_shape(f"the output of node {node.label!r} ({node.op})", best.dims, best.dtype.itemsize)
            if node.op in _WINDOWED and not node.domain:
                self.limits.check_operations(f"node {node.label!r} ({node.op})", best.size, self._window(node))
            if node.op == "ConvTranspose":
                gaps = (*node.attribute("strides", ()), *node.attribute("dilations", ()))
                self.limits.check_gap(f"node {node.label!r} ({node.op})", max(gaps, default=1))
        return best

    def _in_sizes(self, node: Node, kind: TensorType) -> TensorType:
        """A type that is not all numbers, in terms of what is known by now."""
        assert self.equations is not None and kind.shape is not None
        if len(kind.shape) > self.limits.rank:
            self.limits.check_shape(f"the output of node {node.label!r} ({node.op})", (0,) * len(kind.shape), 1)
        dims = tuple(self.equations.known(dim) if isinstance(dim, Size) else dim for dim in kind.shape)
        if any(isinstance(dim, int | Size) and known_below(dim, 0) for dim in dims):
            if self.outer is not None:
                return TensorType(kind.dtype, None)
            raise InvalidModel(f"node {node.label!r} ({node.op}): its output would have the shape {list(dims)}")
        return TensorType(kind.dtype, tuple(None if isinstance(dim, str) else dim for dim in dims))

    def _window(self, node: Node) -> int:
        """From how many elements each element of the output of a convolution or pooling is made."""
        weights = self.type_of(node.inputs[_WINDOWED[node.op]]) if _WINDOWED[node.op] else None
        if isinstance(weights, TensorType) and weights.is_static:
            return math.prod(weights.dims[1:])
        ratio: int = max(1, node.attribute("sampling_ratio", 0))
        return int(ratio**2 * math.prod(node.attribute("kernel_shape", ())))


_WINDOWED = MappingProxyType(
    {
        **dict.fromkeys(("AveragePool", "LpPool", "MaxPool", "RoiAlign"), 0),
        **dict.fromkeys(("Conv", "ConvInteger", "DeformConv"), 1),
        "QLinearConv": 3,
    }
)
"""Operators whose outputs are made from a window each, and which operand has its size, if one has."""


def _matters(node: Node, value: np.ndarray) -> bool:
    """May the contents of an operand decide the output's type? Withholding the others lets equal nodes share an answer."""
    return is_complete(value) and (value.dtype.kind in "iu" or node.op in _READS_FLOATS)


def infer_graph(
    graph: Graph,
    inputs: Mapping[str, ValueType] | None = None,
    declared: Mapping[str, ValueType] | None = None,
    outer: Inference | None = None,
    equations: Equations | None = None,
    contents: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Inferred:
    """Types and small known values of every value of `graph`.

    `inputs` overrides the types of graph inputs; `declared` is what to fall back on where inference cannot tell; `equations` are
    told what must hold of sizes; `contents` is what is known of inputs' elements.
    """
    walk = Inference(graph.opset, graph.opsets, declared, outer, equations=equations)
    for name in graph.inputs:
        walk.types[name] = (inputs or {}).get(name) or graph.types[name]
    walk.values.update(contents)
    for name, constant in graph.constants.items():
        walk.add_constant(name, constant)
    for node in graph.nodes:
        walk.add(node)
    return Inferred(walk.types, walk.values)


def infer_types(graph: Graph) -> Graph:
    """The graph with the type of every value inferred anew; present types fill what cannot be inferred."""
    return graph.replace(types=infer_graph(graph, declared=graph.types, equations=equations_of(graph)).types)


def equations_of(graph: Graph) -> Equations | None:
    """What is known of the symbols of a graph; None for one that has none."""
    return Equations(graph.symbols, graph.checks) if graph.symbols else None


def without_declared(graph: Graph) -> Graph:
    """The graph with no shapes but those that follow from its inputs: what the model states of other values is not believed."""
    declared = {name: without_shape(kind) for name, kind in graph.types.items()}
    return graph.replace(types=infer_graph(graph, declared=declared, equations=equations_of(graph)).types)
