"""What is certain about a value: its sign, whether it is constant or finite.

Rules need such facts, `needs=(("a", "nonnegative"),)`. A NaN may be there unless the value is finite; it stays a NaN under every
rule. Zeros count as non-negative whatever their sign. Exp and Sigmoid are not positive: far out they round to zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from fusewise.ir.graph import Graph, Node, SizesConstant
from fusewise.ir.types import TensorType

__all__ = ["FACTS", "is_finite", "is_nonnegative", "is_positive"]

_DEPTH = 8

_NEVER_BELOW_ZERO = frozenset(
    "Abs Exp Relu Sigmoid Sqrt Softplus Softmax HardSigmoid ReduceL1 ReduceL2 ReduceSumSquare".split()
)
_KEEPS_SIGN = frozenset(
    "Identity Dropout Cast Reshape Transpose Flatten Squeeze Unsqueeze Slice Gather Expand Concat Reciprocal Ceil Round"
    " ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd MaxPool AveragePool GlobalAveragePool GlobalMaxPool".split()
)
_NEVER_WRAPS = frozenset("Max Clip Identity Reshape Transpose".split())
_KEEPS_FINITE = frozenset(
    "Identity Reshape Transpose Flatten Squeeze Unsqueeze Slice Expand Neg Abs Sign Relu Floor Ceil Round Sigmoid Tanh"
    " Erf Atan Sin Cos Softmax HardSigmoid Concat Max Min Clip Where".split()
)
_OF_ALL = ("Concat", "Max", "Min", "Clip")
_KEEPS_SIGN_OF_ALL = frozenset("Add Mul Div Min Sum Mean".split())


def is_nonnegative(graph: Graph, value: str, depth: int = _DEPTH) -> bool:
    """Is every element of `value` at least zero, or NaN?"""
    kind = graph.types.get(value)
    if not isinstance(kind, TensorType) or kind.dtype.kind in ("uint", "bool"):
        return isinstance(kind, TensorType)
    array = graph.array(value)
    if array is not None:
        return array.dtype != object and not bool(np.any(array < 0))
    node = graph.producer_of(value) if kind.dtype.is_float else None  # integers wrap around
    return node is not None and not node.domain and depth > 0 and _nonnegative(graph, node, depth - 1)


def _nonnegative(graph: Graph, node: Node, depth: int) -> bool:
    if node.op in _NEVER_BELOW_ZERO:
        return True
    data = node.inputs[: len(node.inputs) if node.op in ("Concat", *_KEEPS_SIGN_OF_ALL) else 1]
    if node.op in _KEEPS_SIGN or node.op in _KEEPS_SIGN_OF_ALL:
        squared = node.op == "Mul" and node.inputs[0] == node.inputs[1]
        return squared or all(is_nonnegative(graph, x, depth) for x in data)
    if node.op == "Max":
        return any(is_nonnegative(graph, x, depth) for x in node.inputs)
    if node.op == "Where":
        return all(is_nonnegative(graph, x, depth) for x in node.inputs[1:])
    if node.op == "Clip":
        low = graph.array(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else None
        return low is not None and bool(np.all(low >= 0))
    if node.op == "Pow":
        power = graph.array(node.inputs[1])
        even = power is not None and bool(np.all(power % 2 == 0))
        return even or is_nonnegative(graph, node.inputs[0], depth)
    return False


def is_positive(graph: Graph, value: str, depth: int = _DEPTH) -> bool:
    """Is every element of `value` above zero, or NaN?"""
    array = graph.array(value)
    if array is not None:
        return array.dtype != object and not bool(np.any(array <= 0))
    node = graph.producer_of(value)
    if node is None or node.domain or depth == 0:
        return False
    if not graph.tensor(value).dtype.is_float and node.op not in _NEVER_WRAPS:
        return False
    if node.op == "Add":
        return all(is_nonnegative(graph, x, depth) for x in node.inputs) and any(
            is_positive(graph, x, depth - 1) for x in node.inputs
        )
    if node.op == "Max":
        return any(is_positive(graph, x, depth - 1) for x in node.inputs)
    if node.op == "Clip":
        low = graph.array(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else None
        return low is not None and bool(np.all(low > 0))
    return node.op in ("Sqrt", "Identity", "Reshape", "Transpose", "Abs") and is_positive(
        graph, node.inputs[0], depth - 1
    )


def _is_nonzero(graph: Graph, value: str) -> bool:
    """Is no element of `value` zero?"""
    array = graph.array(value)
    if array is not None:
        return array.dtype != object and bool(np.all(array != 0))
    return is_positive(graph, value)


def is_finite(graph: Graph, value: str, depth: int = _DEPTH) -> bool:
    """Is no element of `value` infinite or NaN? Whole numbers never are, and floats not that come from them."""
    kind = graph.types.get(value)
    if not isinstance(kind, TensorType) or not kind.dtype.is_float:
        return isinstance(kind, TensorType) and kind.dtype.kind in ("int", "uint", "bool")
    array = graph.array(value)
    if array is not None:
        return array.dtype.kind == "f" and bool(np.all(np.isfinite(array)))
    node = graph.producer_of(value)
    if node is None or node.domain or not depth:
        return False
    if node.op == "Cast":
        return _casts_in_range(graph, node, kind)
    data = node.inputs[1:] if node.op == "Where" else node.inputs if node.op in _OF_ALL else node.inputs[:1]
    return node.op in _KEEPS_FINITE and all(is_finite(graph, x, depth - 1) for x in data if x)


def _casts_in_range(graph: Graph, node: Node, kind: TensorType) -> bool:
    """Does every number of the operand's type lie within the range of the float type it becomes?"""
    given = graph.types.get(node.inputs[0])
    if not isinstance(given, TensorType) or given.dtype.kind not in ("int", "uint", "bool"):
        return False
    return kind.dtype.name in ("float32", "float64", "bfloat16") or (
        kind.dtype.name == "float16" and given.dtype.bits <= 8
    )


def _is_constant(graph: Graph, value: str) -> bool:
    """A constant of numbers; sizes that are not known yet make none."""
    return value in graph.constants and not isinstance(graph.constants[value], SizesConstant)


def _is_whole_positive(graph: Graph, value: str) -> bool:
    """A constant of whole numbers above zero."""
    array = graph.array(value)
    return array is not None and array.dtype != object and bool(np.all((array > 0) & (array == np.floor(array))))


FACTS: Mapping[str, Callable[[Graph, str], bool]] = MappingProxyType(
    {
        "nonnegative": is_nonnegative,
        "positive": is_positive,
        "nonzero": _is_nonzero,
        "constant": _is_constant,
        "whole": _is_whole_positive,
        "finite": is_finite,
    }
)
"""Fact to the function that says whether a value of a graph has it."""
