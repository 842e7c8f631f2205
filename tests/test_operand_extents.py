"""Operands that are larger or smaller than their operator needs: refused, or answered without touching what is outside of them."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import fusewise
from fusewise.errors import FusewiseError
from fusewise.ops.proto import node_to_proto, type_to_proto
from fusewise.ops.sampling import call_of_sample, opset_of
from fusewise.ops.spec import Call, OpSpec
from fusewise.ops.table import OPERATORS

WITH_SAMPLES = [row for row in OPERATORS if row.samples and (row.define or row.scalar)]


def other_shapes(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """One extent more or less by one, and an axis less."""
    for axis, extent in enumerate(shape):
        for changed in (extent - 1, extent + 1):
            if changed >= 0:
                yield (*shape[:axis], changed, *shape[axis + 1 :])
    if shape:
        yield shape[1:]


def model_of(
    row: OpSpec, call: Call, arrays: list[np.ndarray | None], declared: bool
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The call on other operands; its results may be `declared` to have the shapes that they had before."""
    given = [
        (name, array, known is not None)
        for name, array, known in zip(call.node.inputs, arrays, call.constants, strict=True)
        if array is not None
    ]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array, known in given
        if not known
    ]
    constants = [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array, known in given if known]
    outputs = [
        onnx.ValueInfoProto(name=name, type=type_to_proto(kind))
        for name, kind in zip(call.node.outputs, call.outputs, strict=True)
        if kind is not None
    ]
    for output in outputs if not declared else ():
        output.type.tensor_type.ClearField("shape")
    graph = helper.make_graph([node_to_proto(call.node)], "graph", inputs, outputs, constants)
    domains = {"": 20, row.domain: opset_of(row)}
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*pair) for pair in domains.items()], ir_version=10
    )
    return model, {name: array for name, array, known in given if not known}


def refusal(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> int | None:
    """The exit status of what is said about a model, None where it runs."""
    try:
        fusewise.compile(model, cache=False, threads=1, sanitize=True).run(None, feeds)
    except FusewiseError as error:
        return error.exit_status
    return None


@pytest.mark.slow
@pytest.mark.parametrize("row", WITH_SAMPLES, ids=lambda row: row.name)
def test_other_extents_are_refused_or_stay_inside(row: OpSpec) -> None:
    rng = np.random.default_rng(zlib.crc32(row.name.encode()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call, arrays = call_of_sample(row, row.samples[0], rng)
        for number, array in enumerate(arrays):
            for shape in () if array is None else other_shapes(array.shape):
                assert array is not None
                changed = [*arrays[:number], np.resize(array, shape).astype(array.dtype), *arrays[number + 1 :]]
                for declared in (True, False):
                    found = refusal(*model_of(row, call, changed, declared))
                    assert found in (None, 2, 3, 5), (number, shape, declared)
