"""Models of one node that small models of the zoo have none of, so that every family of kernels has one to write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import ValueInfoProto, helper, numpy_helper

import fusewise
from fusewise.ir.graph import Graph

__all__ = ["BESIDE", "OneNode"]

_LEARNED = "ai.onnx.ml"


@dataclass(frozen=True)
class OneNode:
    """A node: its operands in order, an array for a constant and else a type and a shape; None is absent."""

    op: str
    operands: tuple[np.ndarray | tuple[str, tuple[int, ...]] | None, ...]
    outputs: int = 1
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""

    def graph(self) -> Graph:
        """The model."""
        inputs, constants = [], []
        for k, one in enumerate(self.operands):
            if isinstance(one, np.ndarray):
                constants.append(numpy_helper.from_array(one, f"x{k}"))
            elif one is not None:
                kind = helper.np_dtype_to_tensor_dtype(np.dtype(one[0]))
                inputs.append(helper.make_tensor_value_info(f"x{k}", kind, one[1]))
        names = ["" if one is None else f"x{k}" for k, one in enumerate(self.operands)]
        results = [f"y{k}" for k in range(self.outputs)]
        node = helper.make_node(self.op, names, results, domain=self.domain, **self.attributes)
        outputs = [ValueInfoProto(name=name) for name in results]
        versions = [helper.make_opsetid("", 27), helper.make_opsetid(_LEARNED, 3)]
        graph = helper.make_graph([node], self.op, inputs, outputs, constants)
        return fusewise.load(helper.make_model(graph, opset_imports=versions, ir_version=13))


def _weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32) / 16


_TREE: Mapping[str, Any] = MappingProxyType(
    {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [3, 0, 0],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
        "n_targets": 1,
    }
)

_TOKENS = ("float32", (1, 64, 128))
_HEADS = MappingProxyType({"q_num_heads": 4, "kv_num_heads": 4, "update_rule": "linear"})

BESIDE: tuple[OneNode, ...] = (
    OneNode("CumSum", (("int64", (1, 128)), np.array(1))),
    OneNode("ReduceMean", (("float32", (1, 3, 224, 224)),), attributes={"keepdims": 0}),
    OneNode("LSTM", (("float32", (20, 1, 64)), _weights(1, 256, 64), _weights(1, 256, 64)), 2, {"hidden_size": 64}),
    OneNode("LinearAttention", (_TOKENS, _TOKENS, _TOKENS, ("float32", (1, 4, 32, 32))), 2, _HEADS),
    OneNode("TreeEnsembleRegressor", (("float32", (64, 6)),), attributes=_TREE, domain=_LEARNED),
    OneNode("TopK", (("float32", (1, 1000)), np.array([5])), 2),
    OneNode("ScatterElements", (("float32", (64, 64)), ("int64", (8, 64)), ("float32", (8, 64)))),
    OneNode("MaxRoiPool", (("float32", (1, 16, 32, 32)), ("float32", (8, 5))), attributes={"pooled_shape": [7, 7]}),
)
"""A family that no small model of the zoo has needs a row here."""
