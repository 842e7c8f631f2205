"""Documents of real models fit the schema, key by key."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
from tests.reporting.document.test_collect import small

import fusewise
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.optimizing import optimized
from fusewise.reporting.document.schema import ReportDocument
from fusewise.reporting.document.verbs import optimize_document, passes_document, plan_document
from fusewise.selecting import selection
from fusewise.trace import Trace


def closed(part: Any) -> Any:
    """A schema that takes no keys but its own."""
    if isinstance(part, dict):
        found = {key: closed(value) for key, value in part.items()}
        return found | {"additionalProperties": False} if "properties" in found else found
    return [closed(one) for one in part] if isinstance(part, list) else part


@pytest.fixture(scope="module")
def schema() -> Any:
    return closed(msgspec.json.schema(ReportDocument))


def on_the_host() -> Graph:
    """NonZero, whose result has a size that only data tell, and what reads it."""
    b = GraphBuilder()
    x = b.input("x", (4, 6))
    places = b.op("NonZero", b.op("Relu", x, name="relu"), name="places")
    return b.finish(b.op("Cast", places, to=1), b.op("Shape", places))


def of_any_size() -> Graph:
    """A product and a softmax of so many rows as there are, and as many of them as there are values other than 0."""
    b = GraphBuilder()
    x = b.input("x", ("rows", 8))
    h = b.op("Softmax", b.op("MatMul", x, b.constant(np.eye(8, dtype=np.float32))), axis=-1)
    return b.finish(h, b.op("Transpose", b.op("Relu", h)))


MODELS = {"small": small, "on_the_host": on_the_host, "of_any_size": of_any_size}


@pytest.mark.parametrize("name", MODELS)
def test_a_document_fits(name: str, schema: Any) -> None:
    timed = name == "small"
    document = fusewise.report(MODELS[name](), times=timed, cache=False).document
    jsonschema.validate(json.loads(json.dumps(document, allow_nan=False)), schema)
    assert (document["times"] is not None) == timed


def test_documents_of_verbs_that_make_no_code_fit(schema: Any) -> None:
    graph, trace = small(), Trace()
    found = optimized(graph, trace=trace, search="greedy", faster_in="none", check=False)
    planned = fusewise.plan("zoo:squeezenet1_1", search="local", plans=20)
    for document in (
        optimize_document("m", graph, found, trace),
        passes_document("m", graph, selection(graph)),
        plan_document("m", fusewise.load("zoo:squeezenet1_1"), planned),
    ):
        jsonschema.validate(json.loads(json.dumps(document, allow_nan=False)), schema)


def test_a_key_that_is_not_in_the_schema_is_seen(schema: Any) -> None:
    document = fusewise.report(small(), times=False, cache=False).document
    document["steps"][0]["colour"] = "red"
    with pytest.raises(jsonschema.ValidationError, match="colour"):
        jsonschema.validate(json.loads(json.dumps(document)), schema)
