"""Compute now what does not depend on the inputs. Numeric class exact: the same arithmetic, done earlier."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fusewise.errors import FusewiseError, InvalidModel
from fusewise.frontend.bodies import bodies_of, graph_of_body
from fusewise.frontend.shape_values import known_outputs
from fusewise.ir.dtypes import FLOAT32, dtype_of_onnx
from fusewise.ir.graph import Constant, Graph, Node, SizesConstant
from fusewise.ir.size import Size
from fusewise.ir.types import OptionalType, SequenceType, TensorType, ValueType
from fusewise.ops.evaluate import evaluate
from fusewise.ops.interpret import definition_size, interpret
from fusewise.ops.spec import Call, NotDefined
from fusewise.ops.table import spec_of
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.passes.known_branch import KNOWN_BRANCH
from fusewise.passes.later import SHORT_FLOATS, rounded, transposed
from fusewise.passes.merge_equal import NOT_REPEATABLE
from fusewise.passes.packed_weights import packed_weights
from fusewise.passes.steady_states import STEADY_STATES
from fusewise.trace import Trace

__all__ = ["LARGEST_BYTES", "fold_constants", "fold_node"]

SMALL_BYTES = 64 * 1024
"""Constants up to this size are folded whatever they grow from."""

LARGEST_BYTES = 16 * 1024 * 1024
"""Larger ones are folded only when they take no more memory than what they are made of; smaller ones whatever they grow from where
there is no code for them."""

MOST_GROWTH = 4
"""Others are at most so many times as large as their operands."""

_MOST_FLOPS = 50_000_000
"""Arithmetic beyond this is left to the compiled program; the reference evaluator is slow."""

_MOST_PRODUCT_FLOPS = 2_000_000_000
"""The same for matrix products, which NumPy does in some hundredths of a second."""

_PRODUCTS = frozenset({"Gemm", "MatMul"})
"""Operators that NumPy computes much faster than an interpreter of their definition, and no less right."""

_LARGEST_SPACE = 1 << 22
"""Elements of arrays on the way beyond which the evaluator is faster than interpreting a definition. It is as right: where it is
not, it is corrected (`ops.corrections`), and may be by the same definition."""

_MOST_ROUNDS = 64
"""Rounds of a Loop that is folded."""

_FROM_TYPE = ("Shape", "Size")


def fold_constants(graph: Graph, trace: Trace) -> Graph:
    """Nodes whose operands are all constant become constants, and so do Shape and Size of known shapes.

    s = Shape(x); n = Gather(s, 0)   ->   n = 8

    So do values that have no elements: there is nothing to compute. Of an If whose condition is known the nodes of one branch stay,
    and what a Loop or Scan hands on as it is comes from outside.

    Left alone: random operators, bodies of control flow but those of short Loops, and what would grow: a folded constant is small,
    or at most 16 MiB and four times its operands, or no larger than they are. So do weights that
    are multiplied as they are stored, of which those of 16 bits become float32 when they are read (`short_weights` undoes it).
    """
    kept = packed_weights(graph)

    def folded(edit: Edit, node: Node) -> Change | None:
        if not node.outputs[:1] or node.outputs[0] not in kept or not _grows(edit, node):
            return fold_node(edit, node)
        weights = edit.constants.get(node.inputs[0])
        if node.op != "Cast" or weights is None or weights.dtype not in SHORT_FLOATS:
            return None
        return Change((node,), "operands are constant", known={node.outputs[0]: rounded(weights, FLOAT32)})

    return sweep(graph, trace, (KNOWN_BRANCH, STEADY_STATES, LocalRule("fold_constants", (), folded)))


def fold_node(edit: Edit, node: Node) -> Change | None:
    """The change that makes the outputs of a node constant, when they can and should be."""
    empty = _empty(edit, node)
    if empty is not None:
        return Change((node,), "no elements", known=empty)
    if not (node.op in _FROM_TYPE or all(value in edit.constants for value in node.reads)):
        return None
    if node.op in NOT_REPEATABLE or (bodies_of(node) and not _is_short_loop(edit, node)):
        return None
    if not node.writes:
        return None
    turned = _turned(edit, node)
    if turned is not None:
        return Change((node,), "operands are constant", known={node.outputs[0]: turned})
    if not _has_sizes(edit, node) and not _affordable(edit, node):
        return None
    known = _evaluated(edit, node)
    return None if known is None else Change((node,), "operands are constant", known=_constants(edit, known))


def _constants(edit: Edit, known: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray | Constant]:
    """Numbers as they are, numbers and sizes as constants of the type that they have."""
    kinds = {value: edit.static(value) for value in known}
    return {
        value: SizesConstant(array, kind.dtype)
        if array.dtype == object and kind is not None and kind.dtype.is_integer
        else array
        for (value, array), kind in zip(known.items(), kinds.values(), strict=True)
    }


def _is_short_loop(edit: Edit, node: Node) -> bool:
    """A Loop of few rounds, with nothing in its body that is not the same every time."""
    rounds = edit.operand(node, 0) if node.op == "Loop" and not node.domain else None
    if rounds is None or rounds.size != 1 or int(rounds.reshape(-1)[0]) > _MOST_ROUNDS:
        return False
    inner = [one for _, body, _ in bodies_of(node) for one in graph_of_body(body, edit.opset, edit.opsets).nodes]
    return not any(one.op in NOT_REPEATABLE or bodies_of(one) for one in inner)


def _empty(edit: Edit, node: Node) -> Mapping[str, np.ndarray] | None:
    """The results of a node of which none has an element; None for any other node, and where the model only says so."""
    kinds = {value: edit.static(value) for value in node.writes}
    if not kinds or any(kind is None or not kind.is_fixed or kind.size for kind in kinds.values()):
        return None
    try:
        if edit.inferred(node) != kinds:
            return None
    except InvalidModel:
        return None
    return {value: np.empty(kind.dims, kind.dtype.numpy) for value, kind in kinds.items() if kind is not None}


def _has_sizes(edit: Edit, node: Node) -> bool:
    """Does an operand hold, or have a result as its shape, sizes that are no numbers?"""
    kinds = (edit.types.get(value) for value in (*node.reads, *node.writes))
    return any(isinstance(edit.constants.get(value), SizesConstant) for value in node.reads) or any(
        isinstance(kind, TensorType) and kind.is_static and not kind.is_fixed for kind in kinds
    )


def _turned(edit: Edit, node: Node) -> Constant | None:
    """A large constant with its axes in another order, computed when it is read; None for another node."""
    constant, kind = edit.constants.get(node.inputs[0]) if node.inputs else None, edit.static(node.outputs[0])
    if node.op != "Transpose" or node.domain or constant is None or kind is None or kind.nbytes <= SMALL_BYTES:
        return None
    order = tuple(node.attribute("perm", tuple(reversed(range(kind.rank)))))
    if sorted(order) != list(range(constant.type.rank)):
        return None
    turned = transposed(constant, order)
    return turned if turned.type == kind else None


def _affordable(edit: Edit, node: Node) -> bool:
    kinds = [edit.static(value) for value in node.writes]
    given = sum(edit.constants[value].type.nbytes for value in node.reads if value in edit.constants)
    made = 0
    for kind in kinds:
        if kind is None:  # its shape follows from contents; those of small operands are small
            return (
                node.op not in ("Expand", "Tile", "ConstantOfShape", "Range", "Resize", "Pad") and given <= SMALL_BYTES
            )
        made += kind.nbytes
    if made > SMALL_BYTES:
        weights = node.op == "DequantizeLinear" and made <= MOST_GROWTH * given
        most = LARGEST_BYTES if _is_without_code(node) else min(LARGEST_BYTES, MOST_GROWTH * given)
        if not (made <= given or weights or made <= most):
            return False
    return _flops(edit, node) <= (_MOST_PRODUCT_FLOPS if node.op in _PRODUCTS else _MOST_FLOPS)


def _grows(edit: Edit, node: Node) -> bool:
    """Is the result of a node larger than small?"""
    kind = edit.static(node.outputs[0])
    return kind is not None and kind.nbytes > SMALL_BYTES


def _is_without_code(node: Node) -> bool:
    """Would the node be a step of the host in every run?"""
    spec = spec_of(node.op, node.domain)
    return spec is not None and spec.scalar is None and spec.define is None


def _flops(edit: Edit, node: Node) -> float:
    spec = spec_of(node.op, node.domain)
    if spec is None:
        return math.inf
    inputs = tuple(edit.types.get(value) if value else None for value in node.inputs)
    outputs = tuple(edit.types.get(value) if value else None for value in node.outputs)
    if not all(kind is None or (isinstance(kind, TensorType) and kind.is_static) for kind in inputs + outputs):
        return 0
    return spec.flops(Call(node, inputs, outputs, tuple(edit.array(value) for value in node.inputs)))


def _moved(node: Node, arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Copies of large tensors that NumPy does by itself, so that the reference evaluator need not be loaded for them."""
    data = arrays[0] if arrays else None
    if data is None or node.domain:
        return None
    index = arrays[1] if len(arrays) == 2 else None
    try:
        if node.op == "Gather" and index is not None:
            return np.asarray(np.take(data, index, axis=node.attribute("axis", 0)))
        if node.op == "Transpose":
            return np.ascontiguousarray(data.transpose(node.attribute("perm")))
        if node.op == "Unsqueeze" and index is not None:
            return np.expand_dims(data, tuple(index.reshape(-1).tolist()))
        if node.op == "Cast" and data.dtype.kind in "biuf":
            target = dtype_of_onnx(node.attribute("to"))
            # what a float out of range becomes is the reference's to say
            if target.name in ("float32", "float64") or (
                data.dtype.kind in "biu" and target.is_integer and target.bits >= 8
            ):
                return data.astype(target.numpy)
    except (ValueError, IndexError):
        return None
    return None


def _defined(
    edit: Edit, node: Node, kinds: Sequence[ValueType | None], arrays: Sequence[np.ndarray | None]
) -> tuple[np.ndarray | None, ...]:
    """The outputs by our own definition of the operator, as native code computes them; None where it does not cover the case,
    or where that takes too long."""
    spec, outputs = (
        spec_of(node.op, node.domain),
        tuple(edit.types.get(name) if name else None for name in node.outputs),
    )
    nothing: tuple[np.ndarray | None, ...] = (None,) * len(outputs)
    if (
        spec is None
        or node.op in _PRODUCTS
        or spec.family == "gather"
        or any(isinstance(kind, SequenceType | OptionalType) for kind in kinds)
    ):
        return nothing
    call = Call(node, tuple(kinds), outputs, tuple(arrays))
    try:
        if definition_size(spec, call) > _LARGEST_SPACE:
            return nothing
        return tuple(interpret(spec, call, tuple(arrays), k) if name else None for k, name in enumerate(node.outputs))
    except (NotDefined, FusewiseError):
        return nothing


def _evaluated(edit: Edit, node: Node) -> Mapping[str, np.ndarray] | None:
    """The outputs of a node by name; None when it cannot be evaluated, or not to what its types say."""
    kinds = tuple(edit.types.get(value) if value else None for value in node.inputs)
    constants = tuple(edit.constants.get(value) if value else None for value in node.inputs)
    arrays = tuple(None if constant is None else constant.array for constant in constants)
    found: tuple[np.ndarray | None, ...] = known_outputs(node, kinds, arrays)
    if len(found) == 1 and found[0] is None:
        found = (_moved(node, arrays),)
    if any(name and value is None for name, value in zip(node.outputs, found, strict=True)):
        if node.op in _FROM_TYPE or _has_sizes(edit, node):
            return None
        found = _defined(edit, node, kinds, arrays)
    if any(name and value is None for name, value in zip(node.outputs, found, strict=True)):
        feeds = {name: array for name, array in zip(node.inputs, arrays, strict=True) if name}
        feeds |= {name: edit.array(name) for name in node.captured}
        try:
            with np.errstate(all="ignore"):
                found = evaluate(node, feeds, edit.opset, edit.opsets)
        except (FusewiseError, ValueError, IndexError, TypeError, RuntimeError, ArithmeticError, AttributeError):
            return None  # the run says what is wrong, if the value is ever needed
    known = {name: value for name, value in zip(node.outputs, found, strict=True) if name}
    fits = all(isinstance(value, np.ndarray) and _fits(value, edit.types.get(name)) for name, value in known.items())
    return {name: value for name, value in known.items() if value is not None} if fits else None


def _fits(value: np.ndarray, kind: object) -> bool:
    if not isinstance(kind, TensorType) or (value.dtype != object and value.dtype != kind.dtype.numpy):
        return False
    if value.dtype == object and kind.dtype.name != "string":
        whole = all(isinstance(item, int | Size) for item in value.reshape(-1).tolist())
        return whole and kind.dtype.is_integer and kind.shape == value.shape
    return kind.shape is None or (
        len(kind.shape) == value.ndim
        and all(not isinstance(dim, int) or dim == size for dim, size in zip(kind.shape, value.shape, strict=True))
    )
