"""Compute in float32 what a model computes in float16, and store what it gets, keeps and gives as it is. Numeric class approximate.

Processors multiply and add float32; a float16 becomes one where it is read, and would be one no more after every operator.
Without that, answers are nearer to those of exact arithmetic, and a model in float16 is the one in float32 to every pass and kernel
behind this one: what is recognised, fused and fast there is so here. (ONNX Runtime does likewise where it has no kernel.)
"""

from __future__ import annotations

from dataclasses import replace

from fusewise.ir.dtypes import FLOAT16, FLOAT32, DType
from fusewise.ir.graph import Constant, Graph, Node, Subgraph, attributes_of
from fusewise.ir.types import TensorType, ValueType
from fusewise.ops.spec import ANCHOR_FAMILIES
from fusewise.ops.table import spec_of
from fusewise.passes.later import rounded
from fusewise.trace import Trace

__all__ = ["halves_in_float32"]

_MOVING = frozenset(
    (
        "Concat DepthToSpace Expand Flatten Gather GatherElements GatherND Identity Pad Reshape ScatterElements ScatterND Slice"
        " SpaceToDepth Split Squeeze TensorScatter Tile Transpose Unsqueeze"
    ).split()
)
"""Operators that only move elements: in float16 where an operand comes from outside, so that caches are copied as they are."""

_SHAPING = frozenset("Expand Flatten Identity Reshape Squeeze Transpose Unsqueeze".split())
"""Of these, those that every reader sees through: what reads their result in float32 finds the cast before them."""

_CASTS = frozenset(("Cast", "CastLike"))
_PRECISION = "softmax_precision"


def halves_in_float32(graph: Graph, trace: Trace) -> Graph:
    """Operators on float16 become those on float32.

    y = Relu(MatMul(x, w))   ->   y = Cast(Relu(MatMul(Cast(x), w')), to=float16)

    Results are rounded where they leave the graph, or meet what stays in float16: inputs that are only moved, operators without a
    kernel in float32, bodies of control flow.
    """
    if not any(isinstance(kind, TensorType) and kind.dtype == FLOAT16 for kind in graph.types.values()):
        return graph
    widening = _Widening(graph, FLOAT16)
    for node in graph.nodes:
        reason = widening.reason(node)
        if reason and trace.allows("rewrite", "halves-in-float32", (node.label,), reason):
            widening.widen(node)
        else:
            widening.keep(node)
    return widening.finished()


class _Widening:
    """The graph being written. Every value keeps its name for its own form; `_wide` has the names of those in float32."""

    def __init__(self, graph: Graph, narrow: DType) -> None:
        self._graph = graph
        self._narrow = narrow
        self._nodes: list[Node] = []
        self._types: dict[str, ValueType] = dict(graph.types)
        self._constants: dict[str, Constant] = dict(graph.constants)
        self._wide: dict[str, str] = {}
        self._missing: set[str] = set()  # values that are there in float32, but in their own form not yet
        self._changed = False

    def reason(self, node: Node) -> str:
        """Why a node is to compute in float32; empty where it stays."""
        halves = [value for value in (*node.reads, *node.writes) if self._is_narrow(value)]
        if not halves or node.domain or any(isinstance(value, Subgraph) for _, value in node.attributes):
            return ""
        if node.op in _CASTS:
            return "casts"
        if node.op in _MOVING:
            moved = [value for value in node.reads if self._is_narrow(value) and value not in self._graph.constants]
            return "moves what is computed" if moved and self._wide.keys() >= set(moved) else ""
        spec = spec_of(node.op, node.domain)
        computes = spec is not None and (
            spec.scalar is not None or spec.family in ANCHOR_FAMILIES or node.op.startswith("Reduce")
        )
        return "computes" if computes and any(map(self._is_narrow, node.reads)) else ""

    def widen(self, node: Node) -> None:
        """Append the node in float32."""
        if node.op in _CASTS:
            self._cast_of(node)
            return
        self._changed = True
        inputs = tuple(self._as_wide(value, node) if self._is_narrow(value) else value for value in node.inputs)
        outputs = tuple(self._made(value) if self._is_narrow(value) else value for value in node.outputs)
        changed = replace(node, inputs=inputs, outputs=outputs)
        if changed.attribute(_PRECISION) == self._narrow.onnx:
            changed = changed.with_attributes(**{_PRECISION: FLOAT32.onnx})
        self._nodes.append(changed)

    def keep(self, node: Node) -> None:
        """Append the node as it is."""
        for value in node.reads:
            self._as_own(value)
        self._nodes.append(node)

    def finished(self) -> Graph:
        if not self._changed:
            return self._graph
        for value in self._graph.outputs:
            self._as_own(value)
        found = self._graph.replace(nodes=tuple(self._nodes), types=self._types, constants=self._constants).pruned()
        return self._graph if found.nodes == self._graph.nodes else found

    def _cast_of(self, node: Node) -> None:
        """A cast from, to or between both: of what is there in float32 it is the value itself, and one to float16 waits."""
        source, target = node.inputs[0], node.outputs[0]
        read = self._wide.get(source, source)
        kind = self._types[read]
        assert isinstance(kind, TensorType)
        if not self._is_narrow(target):
            self._nodes.append(self._to(read, target, self._dtype(target), node))
        elif kind.dtype == FLOAT32:
            self._wide[target] = read
            self._missing.add(target)
            self._changed = True
        elif source == read and self._is_narrow(source):
            self._nodes.append(node)
        else:
            self._nodes.append(self._to(read, self._made(target), FLOAT32, node))

    def _to(self, source: str, target: str, dtype: DType, like: Node) -> Node:
        same = self._dtype(source) == dtype
        attributes = () if same else attributes_of(to=dtype.onnx)
        return Node("Identity" if same else "Cast", (source,), (target,), attributes, name=target, origin=like.origin)

    def _dtype(self, value: str) -> DType:
        kind = self._types[value]
        assert isinstance(kind, TensorType)
        return kind.dtype

    def _is_narrow(self, value: str) -> bool:
        kind = self._graph.types.get(value)
        return isinstance(kind, TensorType) and kind.dtype == self._narrow

    def _own(self, value: str) -> str:
        """A name for the float32 form of a value."""
        kind = self._types[value]
        assert isinstance(kind, TensorType)
        name = f"{value}_{FLOAT32.name}"
        while name in self._types:
            name += "_"
        self._types[name] = TensorType(FLOAT32, kind.shape)
        self._wide[value] = name
        return name

    def _made(self, value: str) -> str:
        """A name for the float32 form of a value that is computed in it."""
        self._missing.add(value)
        return self._own(value)

    def _as_wide(self, value: str, reader: Node) -> str:
        """The float32 form: there already, made of a constant when it is read, or cast where the model runs, before what gives its
        elements another shape."""
        shaped: list[Node] = []
        while value not in self._wide and (maker := self._shaper(value)) is not None:
            shaped.append(maker)
            value = maker.inputs[0]
        found = self._wide.get(value)
        if found is None:
            found = self._own(value)
            constant = self._graph.constants.get(value)
            if constant is None:
                self._nodes.append(self._to(value, found, FLOAT32, reader))
            else:
                self._constants[found] = rounded(constant, FLOAT32)
        for node in reversed(shaped):
            given, found = found, self._own(node.outputs[0])
            self._nodes.append(replace(node, inputs=(given, *node.inputs[1:]), outputs=(found,), name=found))
        return found

    def _shaper(self, value: str) -> Node | None:
        """What gives elements of float16 another shape, and makes `value` of them for inner nodes alone."""
        maker = None if value in self._graph.output_set else self._graph.producer_of(value)
        return maker if maker is not None and maker.op in _SHAPING and not maker.domain else None

    def _as_own(self, value: str) -> None:
        """Have the value in its own form, cast when it is not there yet."""
        if value in self._missing:
            self._missing.discard(value)
            maker = self._graph.producer_of(value)
            assert maker is not None, "only values of nodes are computed"
            self._nodes.append(self._to(self._wide[value], value, self._narrow, maker))
