"""Run convolutions and products between Dequantize and Quantize on the integers themselves. Numeric class reassociating.

A quantised model describes a convolution or a product of 8-bit numbers as one of floats: both operands are dequantised first. The
sums of the integers are exact, and the scales are constant factors per output channel, so they can be taken out of the sum.
(The published pass is TVM's FakeQuantizationToInteger.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from fusewise.ir.deciding import hint
from fusewise.ir.dtypes import FLOAT32, INT8, INT32, UINT8
from fusewise.ir.graph import Graph, Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.passes.edit import Change, Edit, LocalRule, rebuilt, sweep
from fusewise.passes.runner import Pass
from fusewise.records import record
from fusewise.trace import Trace

__all__ = ["quantized_to_integer", "to_integer_unless"]

Unless = Callable[[Node, TensorType, TensorType], bool]
"""Is a convolution to stay one of floats? Told the node, and the types of its weights and of its result."""


LEAST_ROWS = 5
"""Rows from which on a product by computed integers is one of integers: kernels copy the right operand, which few rows do not
pay for."""


def quantized_to_integer(graph: Graph, trace: Trace) -> Graph:
    """Integer convolutions and products for dequantised ones.

    y = Conv(DequantizeLinear(x, s, z), DequantizeLinear(w, t), b)  ->  y = Cast(ConvInteger(x, w, z)) * (s * t) + b
    y = QLinearConv(x, s, z, w, t, 0, u, v, b)  ->  y = QuantizeLinear(Cast(ConvInteger(x, w, z)) * (s * t) + b * (s * t), u, v)

    y = Gemm(DequantizeLinear(x, s, z), DequantizeLinear(w, t), b)  ->  y = Cast(MatMulInteger(x, w, z)) * (s * t) + b

    y = QuantizeLinear(Cast(ConvInteger(...)) * a + b, u, v)  ->  y = QuantizeLinear(Cast(ConvInteger(...)) * (a / u) + b / u, 1, v)

    y = QuantizeLinear(DequantizeLinear(p, s, k) + DequantizeLinear(q, t, l), u, v)
      ->  y = QuantizeLinear(DequantizeLinear(p, s / u, k) + DequantizeLinear(q, t / u, l), 1, v)

    and MatMul as Gemm, with constant 8-bit weights and scales, and one zero point of the weights at most, which goes along where it
    is not 0; with right operands that are computed, too, where there are rows enough to copy them for. Refused: groups of an odd
    number of channels, other than depthwise ones.
    """
    return _with_integers(graph, trace, lambda node, weights, result: False)


def to_integer_unless(unless: Unless) -> Pass:
    """The same pass for a machine on which some convolutions of floats are faster: these it leaves alone."""

    def quantized_to_integer(graph: Graph, trace: Trace) -> Graph:
        return _with_integers(graph, trace, unless)

    return quantized_to_integer


def _with_integers(graph: Graph, trace: Trace, unless: Unless) -> Graph:
    rules = (
        LocalRule("integer_convolution", ("Conv",), partial(_convolution, unless=unless)),
        LocalRule("integer_convolution", ("QLinearConv",), _linear_convolution),
        LocalRule("integer_product", ("Gemm", "MatMul"), _product),
        LocalRule("integer_scale", ("QuantizeLinear",), _scale),
        LocalRule("integer_sum_scale", ("QuantizeLinear",), _sum_scale),
    )
    return sweep(graph, trace, rules)


@record(frozen=True)
class _Quantized:
    """An integer tensor, and how to read it as numbers: (integer - zero) * scale, the scale one or per leading index."""

    value: str
    scale: np.ndarray
    zero: str


def _convolution(edit: Edit, node: Node, unless: Unless) -> Change | None:
    data = edit.made_by(node.inputs[0], "DequantizeLinear")
    weight = edit.made_by(node.inputs[1], "DequantizeLinear")
    if data is None or weight is None:
        return None
    x, w = _quantized(edit, data, 0), _quantized(edit, weight, 0)
    bias = _bias(edit, node)
    if x is None or w is None or bias is None or x.scale.size > 1 or not _is_plain(edit, w, node):
        return None
    weights, result = edit.static(w.value), edit.static(node.outputs[0])
    if weights is None or result is None or result.dtype != FLOAT32 or unless(node, weights, result):
        return None
    factor = x.scale.astype(np.float64) * w.scale
    nodes = _integer_nodes(edit, node, "ConvInteger", (x, w), (factor, bias), node.outputs[0])
    return None if nodes is None else Change((data, weight, node), "exact sums of integers", nodes)


def _linear_convolution(edit: Edit, node: Node) -> Change | None:
    x, w = _operands(edit, node.inputs[:3]), _operands(edit, node.inputs[3:6])
    given = edit.operand(node, 8) if len(node.inputs) > 8 and node.inputs[8] else np.zeros(1)
    result = edit.static(node.outputs[0])
    if x is None or w is None or given is None or result is None or x.scale.size > 1 or not _is_plain(edit, w, node):
        return None
    if edit.operand(node, 6) is None or edit.operand(node, 7) is None:
        return None
    factor = x.scale.astype(np.float64) * w.scale
    middle = edit.value(f"{node.outputs[0]}_wide", TensorType(FLOAT32, result.shape))
    nodes = _integer_nodes(edit, node, "ConvInteger", (x, w), (factor, given * factor), middle)
    if nodes is None:
        return None
    last = replace(rebuilt(node, "QuantizeLinear", (middle, node.inputs[6], node.inputs[7])), name="")
    return Change((node,), "exact sums of integers", (*nodes, last))


def _product(edit: Edit, node: Node) -> Change | None:
    data = edit.made_by(node.inputs[0], "DequantizeLinear")
    weight = edit.made_by(node.inputs[1], "DequantizeLinear")
    usual, turned = {"transA": 0, "alpha": 1.0, "beta": 1.0}, bool(node.attribute("transB", 0))
    if data is None or weight is None or any(node.attribute(k, usual[k]) != usual[k] for k in usual):
        return None
    x, w, bias = _quantized(edit, data, 0), _quantized(edit, weight, 0 if turned else 1), _bias(edit, node)
    if x is None or w is None or bias is None or x.scale.size > 1:
        return None
    if not (_is_plain(edit, w, node) or _is_computed(edit, x, w, turned)):
        return None
    right, kind = edit.static(w.value), edit.static(x.value)
    if right is None or kind is None or kind.rank < 2 or (edit.array(w.value) is not None and right.rank != 2):
        return None
    columns = right.dims[-2 if turned else -1]
    if bias.size not in (1, columns) or (bias.ndim > 1 and bias.shape[0] > 1):
        return None
    if turned:
        array = edit.array(w.value)
        assert array is not None
        w = replace(w, value=edit.constant(np.ascontiguousarray(array.T), f"{node.label}_weight"))
    factors = x.scale.astype(np.float64) * w.scale, bias
    nodes = _integer_nodes(edit, node, "MatMulInteger", (x, w), factors, node.outputs[0])
    return None if nodes is None else Change((data, weight, node), "exact sums of integers", nodes)


def _scale(edit: Edit, node: Node) -> Change | None:
    """The scale of what follows a convolution or product of integers, taken into the factors that are there already."""
    scale = edit.operand(node, 1)
    kind = edit.static(node.outputs[0])
    if scale is None or scale.size != 1 or scale.dtype != np.float32 or scale.reshape(-1)[0] == 1 or kind is None:
        return None
    add = edit.sole(node.inputs[0], "Add")
    multiply = edit.sole(node.inputs[0] if add is None else add.inputs[0], "Mul")
    wide = None if multiply is None else edit.sole(multiply.inputs[0], "Cast")
    if multiply is None or wide is None or edit.sole(wide.inputs[0], "ConvInteger", "MatMulInteger") is None:
        return None
    factor, bias = edit.operand(multiply, 1), None if add is None else edit.operand(add, 1)
    if factor is None or (add is not None and bias is None):
        return None
    middle = TensorType(FLOAT32, kind.shape)

    value = edit.value(f"{node.label}_scaled", middle)
    operands = (multiply.inputs[0], _divided(edit, factor, scale, f"{node.label}_factor"))
    nodes = [replace(multiply, inputs=operands, outputs=(value,))]
    if add is not None and bias is not None:
        total = edit.value(f"{node.label}_sum", middle)
        nodes.append(replace(add, inputs=(value, _divided(edit, bias, scale, f"{node.label}_bias")), outputs=(total,)))
        value = total
    one = edit.constant(np.ones(scale.shape, np.float32), f"{node.label}_one")
    matched = (multiply, *((add,) if add is not None else ()), node)
    return Change(matched, "one factor", (*nodes, node.with_inputs((value, one, *node.inputs[2:]))))


def _divided(edit: Edit, array: np.ndarray, scale: np.ndarray, stem: str) -> str:
    """The constant array / scale, as float32."""
    return edit.constant(np.asarray(array / scale.astype(np.float64), np.float32).reshape(array.shape), stem)


def _sum_scale(edit: Edit, node: Node) -> Change | None:
    """The scale of what follows a sum of two dequantised tensors, taken into theirs: a division less for every element."""
    scale, add = edit.operand(node, 1), edit.sole(node.inputs[0], "Add")
    if add is None or scale is None or scale.size != 1 or scale.dtype != np.float32 or scale.reshape(-1)[0] == 1:
        return None
    values, parts = [], []
    for k, read in enumerate(add.inputs):
        maker = edit.made_by(read, "DequantizeLinear")
        kind, factor = edit.static(read), None if maker is None else edit.operand(maker, 1)
        if maker is None or kind is None or factor is None or factor.dtype != np.float32 or factor.size != 1:
            return None
        ratio = _divided(edit, factor, scale, f"{node.label}_ratio{k}")
        values.append(edit.value(f"{node.label}_term{k}", kind))
        parts.append(replace(maker, inputs=(maker.inputs[0], ratio, *maker.inputs[2:]), outputs=(values[-1],)))
    kind = edit.static(add.outputs[0])
    if kind is None:
        return None
    total = edit.value(f"{node.label}_total", kind)
    one = edit.constant(np.ones(scale.shape, np.float32), f"{node.label}_one")
    last = node.with_inputs((total, one, *node.inputs[2:]))
    return Change(
        (add, node), "one division less", (*parts, replace(add, inputs=tuple(values), outputs=(total,)), last)
    )


def _quantized(edit: Edit, node: Node, axis: int) -> _Quantized | None:
    """The integers behind a DequantizeLinear with one scale, or one per index of `axis`."""
    if node.attribute("block_size", 0):
        return None
    found = _operands(edit, (*node.inputs, "")[:3])
    if found is None:
        return None
    rank = edit.static(node.inputs[0])
    along = int(node.attribute("axis", 1)) % max(1, rank.rank if rank is not None else 1)
    return found if found.scale.size == 1 or along == axis else None


def _operands(edit: Edit, inputs: tuple[str, ...]) -> _Quantized | None:
    value, scale, zero = inputs
    kind, known = edit.static(value), edit.array(scale)
    if kind is None or kind.dtype not in (INT8, UINT8) or known is None or known.dtype != np.float32 or known.ndim > 1:
        return None
    if zero and edit.array(zero) is None:
        return None
    return _Quantized(value, known.reshape(-1), zero)


def _is_plain(edit: Edit, weight: _Quantized, node: Node) -> bool:
    """Constant weights around one number, and groups that the integer kernel takes."""
    array, zero = edit.array(weight.value), edit.array(weight.zero) if weight.zero else None
    if array is None or (zero is not None and zero.size > 1 and zero.any()):
        return False
    group = int(node.attribute("group", 1))
    return group == 1 or array.shape[1] % 2 == 0 or (array.shape[1] == 1 and array.shape[0] == group)


def _is_computed(edit: Edit, left: _Quantized, right: _Quantized, turned: bool) -> bool:
    """A right operand that is not constant, with one scale, of which each number is read for some rows."""
    kind, rows = edit.static(right.value), edit.static(left.value)
    if turned or edit.array(right.value) is not None or kind is None or rows is None or min(kind.rank, rows.rank) < 2:
        return False
    return right.scale.size == 1 and hint(rows.dims[-2]) >= LEAST_ROWS


def _bias(edit: Edit, node: Node) -> np.ndarray | None:
    """The bias in float64, zero where there is none; None when it is not known."""
    if len(node.inputs) < 3 or not node.inputs[2]:
        return np.zeros(1)
    known = edit.operand(node, 2)
    if known is not None:
        return known.astype(np.float64)
    maker = edit.made_by(node.inputs[2], "DequantizeLinear")
    if maker is None:
        return None
    parts = [edit.operand(maker, i) for i in range(len(maker.inputs))]
    integers, scale = parts[0], parts[1]
    zero = parts[2] if len(parts) > 2 else np.zeros(1)
    if integers is None or scale is None or zero is None or integers.dtype != np.int32 or scale.ndim > 1:
        return None
    return np.asarray((integers.astype(np.float64) - zero) * scale)


def _integer_nodes(
    edit: Edit,
    node: Node,
    op: str,
    operands: tuple[_Quantized, _Quantized],
    factors: tuple[np.ndarray, np.ndarray],
    output: str,
) -> tuple[Node, ...] | None:
    """A sum of integers, Cast, Mul by the first factor and, where there is a bias, Add of the second; the last writes `output`.

    Of a factor there is one, or one for each output channel or column.
    """
    (x, w), (factor, bias), kind, label = operands, factors, edit.static(output), node.label
    if kind is None or kind.dtype != FLOAT32:
        return None
    behind = kind.rank - 2 if op == "ConvInteger" else 0

    def along(array: np.ndarray, stem: str) -> str:
        shape = (array.size, *(1,) * behind) if array.size > 1 else ()
        return edit.constant(array.astype(np.float32).reshape(shape), f"{label}_{stem}")

    total = edit.value(f"{label}_sum", TensorType(INT32, kind.shape))
    wide = edit.value(f"{label}_cast", TensorType(FLOAT32, kind.shape))
    attributes = tuple((key, value) for key, value in node.attributes) if op == "ConvInteger" else ()
    zero = edit.array(w.zero) if w.zero else None
    around = () if zero is None or not zero.any() else (w.zero,)
    reads = (x.value, w.value, *((x.zero,) if x.zero or around else ()), *around)
    nodes = [
        Node(op, reads, (total,), attributes, name=node.name),
        Node("Cast", (total,), (wide,), attributes_of(to=1)),
    ]
    if not bias.any():
        return (*nodes, Node("Mul", (wide, along(factor, "scale")), (output,)))
    scaled = edit.value(f"{label}_scaled", TensorType(FLOAT32, kind.shape))
    nodes.append(Node("Mul", (wide, along(factor, "scale")), (scaled,)))
    return (*nodes, Node("Add", (scaled, along(bias, "bias")), (output,)))
