"""Operators of the reference evaluator that are computed from our own definitions, because it has them wrong or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from fusewise.errors import UnsupportedModel
from fusewise.ir.graph import Constant, Node, attributes_of
from fusewise.ops.infer import infer_outputs
from fusewise.ops.interpret import interpret
from fusewise.ops.spec import Call, NotDefined
from fusewise.ops.table import spec_of

__all__ = ["BY_DEFINITION", "by_definition", "defined_operators"]

BY_DEFINITION: Mapping[str, str] = MappingProxyType(
    {
        "AveragePool": "windows that hang over, in ceil_mode and with padding by auto_pad",
        "BlackmanWindow": "a window of one element",
        "Cast": "powers of two beyond the largest and below the least; float64 is rounded twice on its way to float8",
        "CastLike": "as Cast",
        "ConvTranspose": "groups, padding by auto_pad, sizes asked for",
        "Flatten": "no elements",
        "GlobalAveragePool": "no elements",
        "GlobalLpPool": "it has none",
        "GlobalMaxPool": "one and three spatial axes",
        "LRN": "neighbours of the sample's number instead of the channel's; ranks other than 4",
        "LogSoftmax": "takes the logarithm of a Softmax that is already zero",
        "LpNormalization": "sums signed values for p = 1",
        "LpPool": "windows that hang over, in ceil_mode and with padding by auto_pad",
        "MaxPool": "padding by auto_pad, sizes in ceil_mode",
        "Mean": "operands of a larger shape than the first",
        "MeanVarianceNormalization": "cancels where the mean is large beside the deviation",
        "OneHot": "values that are no numbers, which it multiplies by zero",
        "Pad": "negative pads",
        "QuantizeLinear": "infinities, which a cast to an integer makes zero",
        "ReduceLogSum": "integers",
        "ReduceLogSumExp": "integers, and rows of -inf alone",
        "ReduceSumSquare": "integers of 32 bits become 64",
        "Resize": "lengths of one element, and minutes for a large image",
        "Softsign": "tensors without dimensions",
    }
)
"""By operator, what the reference evaluator has wrong. What a definition leaves out is still asked of it."""

_OPTIMISERS: Mapping[str, str] = MappingProxyType(
    {
        "Adagrad": "several tensors of float64 become float32",
        "Adam": "float32 becomes float64, several tensors of float64 float32",
        "Momentum": "several tensors of float64 become float32",
    }
)
"""The same of ai.onnx.preview.training."""

_SINCE: Mapping[str, int] = MappingProxyType({"LogSoftmax": 13, "Pad": 11, "Resize": 13})
"""Versions of ONNX's operators from which on the definitions mean them; of the others, every version that there is."""


def by_definition(node: Node, operands: tuple[np.ndarray | None, ...], opset: int) -> tuple[np.ndarray | None, ...]:
    """The outputs of `node` by its row's definition, None for absent ones. `NotDefined` where the row does not cover the case."""
    spec = spec_of(node.op, node.domain)
    if spec is None or opset < _SINCE.get(node.op, 0):
        raise NotDefined(f"{node.op} of opset {opset} has no row")
    if any(x is not None and not isinstance(x, np.ndarray) for x in operands):
        raise NotDefined(f"{node.op} on values that are no tensors")
    types = tuple(None if x is None else Constant(x).type for x in operands)
    deciding = tuple(x if x is not None and (x.dtype.kind in "iu" or node.op == "Resize") else None for x in operands)
    call = Call(node, types, infer_outputs(node, types, deciding, opset), operands)
    return tuple(interpret(spec, call, operands, k) if name else None for k, name in enumerate(node.outputs))


def defined_operators() -> tuple[type[Any], ...]:
    """Classes for the argument `new_ops` of `ReferenceEvaluator`."""
    from onnx.reference.op_run import OpRun
    from onnx.reference.ops import load_op

    class Defined(OpRun):
        """An operator by its definition, and as the evaluator has it where that does not cover the case."""

        op_domain = ""

        def _run(self, *operands: Any, **attributes: Any) -> tuple[Any, ...]:
            proto = self.onnx_node
            opset = self.run_params["opsets"][proto.domain]
            given = {row.name: _attribute(attributes[row.name]) for row in proto.attribute}
            names, stated = (tuple(proto.input), tuple(proto.output)), attributes_of(**given)
            node = Node(proto.op_type, *names, stated, domain=proto.domain, name=proto.name)
            try:
                return by_definition(node, (*operands, *(None,) * (len(node.inputs) - len(operands))), opset)
            except NotDefined as reason:
                try:
                    reference = load_op(proto.domain, proto.op_type, opset)
                except (NotImplementedError, RuntimeError):
                    raise UnsupportedModel(f"{proto.op_type} cannot run here: {reason}") from reason
                return tuple(reference(proto, self.run_params).run(*operands))

        def _check_and_fix_outputs(self, found: tuple[Any, ...]) -> tuple[Any, ...]:
            return found

    training = {"op_domain": "ai.onnx.preview.training"}
    optimisers = (type(name, (Defined,), training) for name in _OPTIMISERS)
    return (*(type(name, (Defined,), {}) for name in BY_DEFINITION), *optimisers)


def _attribute(value: Any) -> Any:
    """An attribute as the evaluator has it, as a node of ours has it."""
    if isinstance(value, np.ndarray):
        return Constant(value)
    return tuple(value) if isinstance(value, list) else value
