"""The benchmark of operators: every operator has a row or a reason, every row is a model, and tables count rightly."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from benchmarks.operators.__main__ import ratio, table
from benchmarks.operators.measure import measured
from benchmarks.operators.row import Row, boxes, distinct, ids, model_of, x
from benchmarks.operators.table import NOT_MEASURED, ROWS

from fusewise import api
from fusewise.errors import UnsupportedModel


def test_every_operator_has_a_row_or_a_reason() -> None:
    newest = {(schema.domain, schema.name): schema for schema in onnx.defs.get_all_schemas()}
    wanted = {name for name, schema in newest.items() if not schema.deprecated}
    assert {(row.domain, row.op) for row in ROWS} | set(NOT_MEASURED) == wanted
    assert not {(row.domain, row.op) for row in ROWS} & set(NOT_MEASURED)
    labels = [row.label for row in ROWS]
    assert len(set(labels)) == len(labels)


def test_every_row_is_a_valid_model_of_that_one_node() -> None:
    refused = []
    for row in ROWS:
        model, feeds = model_of(row, 0)
        onnx.checker.check_node(model.graph.node[0], _context(model))
        try:
            assert set(api.load(model).inputs) == set(feeds), row.label
        except UnsupportedModel:
            refused.append(row.op)
    assert set(refused) <= {"ZipMap"}  # gives maps


def _context(model: onnx.ModelProto) -> onnx.checker.C.CheckerContext:
    context = onnx.checker.C.CheckerContext()
    context.ir_version = model.ir_version
    context.opset_imports = {entry.domain: entry.version for entry in model.opset_import}
    return context


def test_operands_hold_what_they_say() -> None:
    corners = boxes(3, 50).array(0)
    assert corners.shape == (3, 50, 4) and (corners[..., :2] <= corners[..., 2:]).all()
    assert len(np.unique(distinct(100, 4, 20).array(0))) == 80
    along = distinct(10, 2, 5, 7).array(0)
    assert along.max() < 10 and all(len(np.unique(along[i, :, j])) == 5 for i in range(2) for j in range(7))
    assert np.array_equal(ids(9, 30).array(1), ids(9, 30).array(1)) and ids(9, 300).array(0).max() == 8


@pytest.mark.parametrize(
    "row", [Row("Relu", ((x(8),), (x(9),))), Row("Momentum", ROWS[0].sizes)], ids=["right", "wrong"]
)
def test_a_row_is_measured_and_an_error_is_a_result(row: Row) -> None:
    found = measured(row, 0, 1)
    if row.op == "Momentum":
        assert "Momentum" in found["error"] and ratio(found) is None
        return
    assert found["error"] == 0 and found["way"] == "native" and (ratio(found) or 0) > 0


def test_the_table_is_sorted_and_lists_what_is_slow() -> None:
    def result(name: str, ours: float) -> dict[str, object]:
        spread = {"p10_ms": 1.0, "p50_ms": 1.0, "p90_ms": 1.0}
        shared = {
            "op": name,
            "row": name,
            "size": 0,
            "threads": 1,
            "peer": "onnxruntime",
            "way": "native",
            "error": 0.0,
        }
        return {**shared, "ours": {**spread, "p50_ms": ours}, "theirs": spread}

    text = table(
        [result("Fast", 0.25), result("Slow", 4.0), {"row": "Bad", "size": 1, "threads": 1, "error": "refused"}]
    )
    rows = [line.split("|")[1].strip() for line in text.splitlines()[2:5]]
    assert rows == ["Slow", "Fast", "Bad"]
    assert "geometric mean 1.00" in text and "slower than 0.5 of the other: 1: Slow (usual)" in text
