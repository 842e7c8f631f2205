"""Output types of a node, from ONNX's own shape inference, remembered, and corrected where the operator says otherwise."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import onnx

from fusewise.errors import InvalidModel
from fusewise.ir.graph import Constant, Node
from fusewise.ir.types import TensorType, ValueType
from fusewise.ops.infer_corrected import corrected_types
from fusewise.ops.proto import node_to_proto, tensor_to_proto, type_from_proto, type_to_proto
from fusewise.ops.registered import REGISTERED
from fusewise.ops.validity.table import fault
from fusewise.ops.validity.use import Use

__all__ = ["DATA_LIMIT", "check_use", "infer_outputs"]

_SHAPELESS = frozenset({"GroupNormalization", "MeanVarianceNormalization"})
"""Operators ONNX defines by a function and infers no shape for; their output is shaped as their first operand."""

_REFUSALS = (
    onnx.shape_inference.InferenceError,
    onnx.checker.ValidationError,
    # its C++ core raises these for attributes and tensors that contradict themselves
    RuntimeError,
    TypeError,
    ValueError,
)

DATA_LIMIT = 4096
"""Elements of the largest operand that is given with its contents: only axes, target shapes and the like are looked into."""


def check_use(
    node: Node, types: tuple[ValueType | None, ...], constants: tuple[np.ndarray | None, ...], opset: int
) -> None:
    """Raise `InvalidModel` where ONNX's text forbids the attributes of `node`, or operands of these types and contents."""
    found = fault(Use(node, types, constants, opset))
    if found:
        raise InvalidModel(f"node {node.label!r} ({node.op}): {found}")


def infer_outputs(
    node: Node, types: tuple[ValueType | None, ...], constants: tuple[np.ndarray | None, ...], opset: int
) -> tuple[ValueType | None, ...]:
    """The type of each output of `node`, given the type of each input (None: absent or unknown) and the known inputs.

    An output whose type ONNX cannot tell is None. Raises `InvalidModel` with the reason when the types do not fit; the rows of
    validity come first, since ONNX's own code does not survive everything.
    """
    registered = REGISTERED.get(node.domain, node.op) if node.domain else None
    if registered is not None and registered.types is not None:
        return registered.types(node, types)
    known = tuple(Constant(c) if c is not None and c.size <= DATA_LIMIT else None for c in constants)
    anonymous = Node(
        op=node.op,
        inputs=tuple(f"i{k}" if name else "" for k, name in enumerate(node.inputs)),
        outputs=tuple(f"o{k}" if name else "" for k, name in enumerate(node.outputs)),
        attributes=node.attributes,
        domain=node.domain,
    )
    try:
        found = _infer(anonymous, types, known, opset)
    except _REFUSALS as error:
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else "types do not fit"
        raise InvalidModel(f"node {node.label!r} ({node.op}): {reason}") from error
    except onnx.defs.SchemaError as error:
        raise InvalidModel(f"node {node.label!r}: operator {node.op} does not exist in opset {opset}") from error
    return corrected_types(node, types, constants, found)


@lru_cache(maxsize=4096)
def _infer(
    node: Node, types: tuple[ValueType | None, ...], constants: tuple[Constant | None, ...], opset: int
) -> tuple[ValueType | None, ...]:
    schema = onnx.defs.get_schema(node.op, opset, node.domain)
    wrong = fault(Use(node, types, tuple(None if c is None else c.array for c in constants), opset))
    if wrong:
        raise ValueError(wrong)
    found = onnx.shape_inference.infer_node_outputs(
        schema,
        node_to_proto(node),
        {n: type_to_proto(t) for n, t in zip(node.inputs, types, strict=True) if n and t is not None},
        {n: _stated(node, c, n) for n, c in zip(node.inputs, constants, strict=False) if n and c is not None},
        opset_imports=[onnx.helper.make_opsetid(node.domain, opset)],
    )
    outputs = tuple(type_from_proto(found[n]) if n in found else None for n in node.outputs)
    return _like_first(types[0], outputs) if node.op in _SHAPELESS and types else outputs


def _stated(node: Node, constant: Constant, name: str) -> onnx.TensorProto:
    """A constant for ONNX's inference, which wants the single elements that a Range takes without a dimension."""
    return tensor_to_proto(constant.array.reshape(()) if node.op == "Range" else constant.array, name)


def _like_first(first: ValueType | None, outputs: tuple[ValueType | None, ...]) -> tuple[ValueType | None, ...]:
    if not isinstance(first, TensorType):
        return outputs
    return tuple(
        TensorType(first.dtype if kind is None else kind.dtype, first.shape)
        if kind is None or (isinstance(kind, TensorType) and kind.shape is None)
        else kind
        for kind in outputs
    )
