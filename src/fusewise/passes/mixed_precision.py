"""Compute convolutions and products on floats of 16 bits, and keep what is sensitive in float32. Numeric class approximate.

A bfloat16 is the upper half of a float32: the same range, eight bits of precision. Products of two of them are exact in float32,
where the kernels add them up. What reads only such results and neither adds many numbers nor magnifies follows in bfloat16, so
that half as much is stored and moved; everything else gets float32 back. (The published pass is TVM's ToMixedPrecision, whose
lists of operators these are, as far as ONNX has them.) A float16 has eleven bits and ends at 65504: constants beyond stay.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from fusewise.ir.graph import Constant, Graph, Node, attributes_of
from fusewise.ir.types import TensorType, ValueType
from fusewise.passes.later import rounded
from fusewise.trace import Trace

__all__ = ["FOLLOWING", "KEPT", "PRODUCTS", "mixed_half", "mixed_precision"]

PRODUCTS = frozenset("Conv ConvTranspose Gemm MatMul".split())
"""Always in bfloat16, adding up in float32."""

FOLLOWING = frozenset(
    (
        "Abs Add AveragePool Clip Concat DepthToSpace Div Dropout Elu Expand Flatten Gather Gelu HardSigmoid HardSwish Identity"
        " LeakyRelu Max MaxPool Min Mul Neg PRelu Pad Relu Reshape Resize Sigmoid Slice SpaceToDepth Split Squeeze Sub Tanh Tile"
        " Transpose Unsqueeze Where"
    ).split()
)
"""In bfloat16 where all that they compute with is: arithmetic and activations of single elements, windows, movement."""

KEPT = frozenset(
    (
        "Attention BatchNormalization Erf Exp GlobalAveragePool GlobalLpPool GroupNormalization InstanceNormalization LRN"
        " LayerNormalization Log LogSoftmax LpNormalization LpPool MeanVarianceNormalization Pow RMSNormalization ReduceL1"
        " ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd ReduceSum ReduceSumSquare Softmax Softplus Sum"
    ).split()
)
"""Always in float32: long sums, normalisations, and functions that magnify small differences. So is any operator in no list."""

_DATA_ONLY = frozenset({"Resize"})  # its other float operands say where to read, not what


def mixed_precision(graph: Graph, trace: Trace) -> Graph:
    """Convolutions and products of float32 in bfloat16, with what follows them.

    y = Relu(Conv(x, w)); z = Softmax(y)   ->   y' = Relu(Conv(Cast(x), w')); z = Softmax(Cast(y'))

    Constants are rounded, values are cast at most once in each direction, and outputs of the graph keep their type.
    """
    return _mixed(graph, trace, BFLOAT16)


def mixed_half(graph: Graph, trace: Trace) -> Graph:
    """The same in float16. Refused besides: operators with a constant that no float16 comes near."""
    return _mixed(graph, trace, FLOAT16)


def _mixed(graph: Graph, trace: Trace, narrow: DType) -> Graph:
    rewriting = _Rewriting(graph, narrow)
    changed = False
    for node in graph.nodes:
        reason = rewriting.reason(node)
        if reason and trace.allows("rewrite", "ToMixedPrecision", (node.label,), reason):
            rewriting.narrow(node)
            changed = True
        else:
            rewriting.keep(node)
    return rewriting.finished() if changed else graph


class _Rewriting:
    """The graph being written. Every value keeps its name for its float32 form; `_narrow` has the names of the others."""

    def __init__(self, graph: Graph, narrow: DType) -> None:
        self._graph = graph
        self._dtype = narrow
        self._fits: dict[str, bool] = {}  # constants that have been asked for
        self._nodes: list[Node] = []
        self._types: dict[str, ValueType] = dict(graph.types)
        self._constants: dict[str, Constant] = dict(graph.constants)
        self._narrow: dict[str, str] = {}
        self._computed: set[str] = set()  # values that are computed in 16 bits,
        self._missing: set[str] = set()  # and those of them that nothing has needed in float32 so far

    def reason(self, node: Node) -> str:
        """Why a node is to compute in 16 bits; empty where it is not."""
        operands = [value for value in self._operands(node) if value not in self._graph.constants]
        if node.domain or not operands or not any(map(self._is_wide, node.writes)):
            return ""
        follows = node.op in FOLLOWING and self._computed.issuperset(operands)
        if not (follows or node.op in PRODUCTS) or not all(map(self._may_be_narrow, self._operands(node))):
            return ""
        return f"products of {self._dtype.name}, sums of float32" if node.op in PRODUCTS else "follows its operands"

    def _may_be_narrow(self, value: str) -> bool:
        """Is a value that is a constant still a finite number when it is rounded, where it was one?"""
        constant = self._graph.constants.get(value)
        if constant is None or self._dtype == BFLOAT16:
            return True
        if value not in self._fits:
            array = constant.read_once()
            with np.errstate(over="ignore", invalid="ignore"):
                self._fits[value] = bool((np.isfinite(array.astype(np.float16)) | ~np.isfinite(array)).all())
        return self._fits[value]

    def narrow(self, node: Node) -> None:
        """Append the node in 16 bits."""
        taken = {value: self._as_narrow(value, node) for value in self._operands(node)}
        for value in node.reads:
            if value not in taken:
                self._as_wide(value)
        inputs = tuple(taken.get(value, value) for value in node.inputs)
        outputs = tuple(self._own(value) if self._is_wide(value) else value for value in node.outputs)
        made = {value for value in node.writes if self._is_wide(value)}
        self._computed |= made
        self._missing |= made
        self._nodes.append(replace(node, inputs=inputs, outputs=outputs))

    def keep(self, node: Node) -> None:
        """Append the node as it is."""
        for value in node.reads:
            self._as_wide(value)
        self._nodes.append(node)

    def finished(self) -> Graph:
        for value in self._graph.outputs:
            self._as_wide(value)
        return self._graph.replace(nodes=tuple(self._nodes), types=self._types, constants=self._constants).pruned()

    def _is_wide(self, value: str) -> bool:
        kind = self._graph.types.get(value)
        return isinstance(kind, TensorType) and kind.dtype == FLOAT32

    def _operands(self, node: Node) -> tuple[str, ...]:
        """The float32 values that the node computes with."""
        given = node.inputs[:1] if node.op in _DATA_ONLY else node.inputs
        return tuple(value for value in given if self._is_wide(value))

    def _own(self, value: str) -> str:
        """A name for the form of 16 bits of a value."""
        kind = self._types[value]
        assert isinstance(kind, TensorType)
        name = f"{value}_{self._dtype.name}"
        while name in self._types:
            name += "_"
        self._types[name] = TensorType(self._dtype, kind.shape)
        self._narrow[value] = name
        return name

    def _as_narrow(self, value: str, reader: Node) -> str:
        """The form of 16 bits: there already, rounded now, or cast where the model runs."""
        found = self._narrow.get(value)
        if found is None:
            found = self._own(value)
            constant = self._graph.constants.get(value)
            if constant is None:
                self._cast(value, found, self._dtype.onnx, reader.origin)
            else:
                self._constants[found] = rounded(constant, self._dtype)
        return found

    def _as_wide(self, value: str) -> str:
        """The float32 form, which has the value's own name; cast when it is not there yet."""
        if value in self._missing:
            self._missing.discard(value)
            maker = self._graph.producer_of(value)
            self._cast(self._narrow[value], value, FLOAT32.onnx, () if maker is None else maker.origin)
        return value

    def _cast(self, source: str, target: str, to: int, origin: tuple[str, ...]) -> None:
        self._nodes.append(Node("Cast", (source,), (target,), attributes_of(to=to), name=target, origin=origin))
