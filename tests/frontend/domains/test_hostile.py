"""Nodes of other domains with operands and attributes at random: each is imported, or refused in one sentence."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from fusewise.errors import FusewiseError
from fusewise.frontend.domains.row import DomainRow
from fusewise.frontend.domains.table import ROWS
from fusewise.frontend.onnx_import import load

KINDS = ("float32", "float32", "float32", "float16", "int64", "int32", "uint8", "int8", "bool")
TEXTS = ("", "none", "silu", "Relu", "constant", "bilinear", "NOTSET", "SAME_UPPER", "sqeuclidean")
TRIES = 12
DIMS: tuple[Any, ...] = (0, 1, 2, 3, 8, "n", None)


def value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2])


def attribute(rng: np.random.Generator, kind: int) -> Any:
    number = int(rng.choice([-1, 0, 1, 2, 3, 4, 8, 2**40]))
    made: dict[int, Any] = {
        1: float(number),
        2: number,
        3: str(rng.choice(TEXTS)),
        5: helper.make_graph([helper.make_node("Identity", ["a"], ["b"])], "inner", *[[value("a")], [value("b")]]),
        4: helper.make_tensor("t", onnx.TensorProto.FLOAT, [2], [1.0, 2.0]),
        6: [float(n) for n in rng.integers(-2, 9, rng.integers(1, 5))],
        7: [int(n) for n in rng.integers(-2, 9, rng.integers(1, 5))],
        8: [str(rng.choice(TEXTS))],
    }
    return made[kind]


def model(row: DomainRow, rng: np.random.Generator) -> onnx.ModelProto:
    """A model of one node with operands of any type and shape: inputs, constants, or of unknown rank."""
    least, most = row.inputs_taken
    names = [f"x{k}" for k in range(rng.integers(least, min(most, max(least, 12)) + 1))]
    inputs, constants, nodes = [], [], []
    for name in names:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(str(rng.choice(KINDS))))
        shape = [DIMS[i] for i in rng.integers(0, len(DIMS), rng.integers(0, 5))]
        if rng.random() < 0.3:
            sizes = [size if isinstance(size, int) else 2 for size in shape]
            values = rng.integers(0, 3, sizes).astype(helper.tensor_dtype_to_np_dtype(kind))
            constants.append(onnx.numpy_helper.from_array(values, name))
        else:
            inputs.append(helper.make_tensor_value_info(name, kind, None if rng.random() < 0.1 else shape))
    given = {one.name: attribute(rng, one.kind) for one in row.attributes if one.required or rng.random() < 0.5}
    operands = [
        "" if row.operands[min(k, len(row.operands) - 1)].endswith("?") and rng.random() < 0.3 else name
        for k, name in enumerate(names)
    ]
    outputs = [f"y{k}" for k in range(rng.integers(row.outputs_given[0], min(row.outputs_given[1], 6) + 1))]
    nodes.append(helper.make_node(row.op, operands, outputs, name="here", domain=row.domain, **given))
    ends = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "g", inputs, ends, constants)
    versions = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


def refusal(made: onnx.ModelProto) -> FusewiseError | None:
    """Why a model is not imported; None where it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            load(made)
        except FusewiseError as error:
            return error
    return None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.domain}.{row.op}")
def test_any_node_is_imported_or_refused(row: DomainRow) -> None:
    rng = np.random.default_rng(len(row.op))
    for _ in range(TRIES):
        found = refusal(model(row, rng))
        assert found is None or (found.exit_status in (3, 5) and "\n" not in str(found)), found
